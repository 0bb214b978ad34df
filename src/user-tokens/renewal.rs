//! The token that is sent for a caller, and its renewal by one process at a time: a refresh token that is used twice is treated as
//! stolen.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep};

use super::client::{TokenAnswer, TokenError};
use super::{Grant, TOKEN_KIND, TokenClient, User, UserSource};
use crate::credentials::Token;
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_store::{NewUserToken, RenewalLease, StoredUserToken};

/// How long before its end a token is renewed, unless it lasts less than twice as long.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_secs(120);

/// For how long only one process may renew a token: longer than the request takes.
const RENEWAL_LEASE: Duration = Duration::from_secs(30);

/// How long a call waits for the renewal of another process, and how often it looks.
const RENEWAL_WAIT: Duration = Duration::from_secs(25);
const RENEWAL_POLL: Duration = Duration::from_millis(100);

/// The outcome of a renewal.
enum Renewal {
    /// The new token; none where that needs a sign-in.
    Ended(Option<Token>),
    /// Somebody else has replaced the token, or renews it by now, since this one took longer than its lease.
    Overtaken,
}

impl UserSource {
    /// The token to send for a caller.
    /// Errors: `sign_in_required`; `upstream_error` when the authorization server does not renew it now; `overloaded`
    /// when the store cannot be read.
    pub async fn token(self: &Arc<Self>, user: &User) -> Result<Token, CallError> {
        let found = self.find(user).await?;
        let current = found.and_then(|(stored, grant)| Some((grant.token()?, stored, grant)));
        match current {
            // A token that cannot be renewed is sent until the upstream refuses it.
            Some((token, stored, grant)) if grant.refresh_token.is_none() || is_fresh(&stored) => {
                self.tokens.record_use(&stored).await;
                Ok(token)
            }
            Some((token, ..)) => self.another(user, &token).await,
            None => Err(self.sign_in_required(user, &[]).await),
        }
    }

    /// Replaces a token that has expired or was refused.
    /// Errors: as [`token`](Self::token).
    pub(crate) async fn another(self: &Arc<Self>, user: &User, than: &Token) -> Result<Token, CallError> {
        let (this, of, old) = (Arc::clone(self), user.clone(), than.clone());
        // In a task of its own: a caller that disconnects must not lose a new refresh token.
        let renewing = tokio::spawn(async move { this.renewed(&of, &old).await });
        match renewing.await.unwrap_or_else(|error| Err(CallError::internal(error)))? {
            Some(token) => Ok(token),
            None => Err(self.sign_in_required(user, &[]).await),
        }
    }

    /// The refusal of a call whose token the upstream does not accept, although it was new.
    /// Errors: `overloaded` when the store cannot be read.
    pub(super) async fn refused(&self, user: &User, sent: &Token) -> Result<CallError, CallError> {
        if let Some((stored, grant)) = self.find(user).await?
            && grant.token().is_some_and(|token| token.header == sent.header)
        {
            self.tokens.store.forget(&stored).await?;
        }
        Ok(self.sign_in_required(user, &[]).await)
    }

    /// The refusal of a call for which the upstream requires further scopes.
    /// Errors: `overloaded` when the store cannot be read.
    pub(super) async fn requires(&self, user: &User, scope: &str) -> Result<CallError, CallError> {
        let Some((stored, _)) = self.find(user).await? else { return Ok(self.sign_in_required(user, &[]).await) };
        let is_granted = |scope: &str| stored.scopes.split(' ').any(|granted| granted == scope);
        let missing: Vec<_> = scope.split_whitespace().filter(|scope| !is_granted(scope)).collect();
        if missing.is_empty() {
            let message = format!(
                "{} refuses this caller (403), who has signed in: it requires the scope {scope:?}, which was granted",
                self.name
            );
            return Ok(CallError::new(ErrorCode::ToolError, message).blaming(Blame::Call));
        }
        // The scopes from before, too: a new sign-in replaces the existing one.
        let granted = stored.scopes.split_whitespace();
        let scopes: Vec<_> = granted.chain(missing).map(str::to_owned).collect();
        Ok(self.sign_in_required(user, &scopes).await)
    }

    /// A token other than this one; `None` where that needs a sign-in.
    async fn renewed(&self, user: &User, old: &Token) -> Result<Option<Token>, CallError> {
        let until = Instant::now() + RENEWAL_WAIT;
        loop {
            let Some((stored, grant)) = self.find(user).await? else { return Ok(None) };
            if let Some(token) = grant.token()
                && token.header != old.header
            {
                return Ok(Some(token));
            }
            let Some((refresh_token, client)) = grant.renewal() else {
                self.tokens.store.forget(&stored).await?;
                return Ok(None);
            };
            match self.tokens.store.start_renewal(&stored, RENEWAL_LEASE).await? {
                Some(lease) => match self.renew(user, lease, grant, (&client, &refresh_token)).await? {
                    Renewal::Ended(token) => return Ok(token),
                    Renewal::Overtaken => {}
                },
                None if Instant::now() >= until => {
                    return Err(self.not_renewed("another process renews it, and has not ended"));
                }
                None => sleep(RENEWAL_POLL).await,
            }
        }
    }

    async fn renew(
        &self,
        user: &User,
        lease: RenewalLease<'_>,
        grant: Grant,
        (client, refresh_token): (&TokenClient, &str),
    ) -> Result<Renewal, CallError> {
        let secret = self.provider.secret_of(&client.client_id);
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        match self.requests.token(client, secret, &fields).await {
            Ok(answer) => self.keep_renewed(user, lease, grant, answer).await,
            Err(TokenError::Refused(reason)) => {
                if !self.tokens.store.refuse_renewal(lease).await? && self.find(user).await?.is_some() {
                    return Ok(Renewal::Overtaken);
                }
                tracing::info!(source = &*self.name, reason, "a caller must sign in again: its token is not renewed");
                Ok(Renewal::Ended(None))
            }
            Err(TokenError::Failed(reason)) => {
                self.tokens.store.give_up_renewal(lease).await?;
                Err(self.not_renewed(&reason))
            }
        }
    }

    async fn keep_renewed(
        &self,
        user: &User,
        lease: RenewalLease<'_>,
        grant: Grant,
        answer: TokenAnswer,
    ) -> Result<Renewal, CallError> {
        let TokenAnswer { access_token, refresh_token, lifetime, scope } = answer;
        // RFC 6749 §6: without a new refresh token, the old one counts.
        let grant = Grant { access_token, refresh_token: refresh_token.or(grant.refresh_token), ..grant };
        let token = grant.token().ok_or_else(|| self.not_renewed("the new token cannot be sent in a header"))?;
        let sealed = self.tokens.seal(TOKEN_KIND, self.owner(user), &grant)?;
        let scopes = scope.as_deref().unwrap_or(&lease.read.scopes);
        let new = NewUserToken { kind: None, sealed: &sealed, scopes, lifetime };
        if self.tokens.store.end_renewal(lease, new).await? {
            return Ok(Renewal::Ended(Some(token)));
        }
        if self.find(user).await?.is_some() {
            return Ok(Renewal::Overtaken);
        }
        // It was revoked: the tokens that came after that are revoked too.
        self.revoke_grant(&grant).await;
        Ok(Renewal::Ended(None))
    }

    fn not_renewed(&self, why: &str) -> CallError {
        let problem = format!("the sign-in of the caller to {} cannot be renewed now: {why}", self.name);
        CallError::new(ErrorCode::UpstreamError, problem).blaming(Blame::Network)
    }
}

/// Whether a token need not be renewed yet.
fn is_fresh(stored: &StoredUserToken) -> bool {
    let Some(expires) = stored.expires else { return true };
    let lifetime = expires.duration_since(stored.changed);
    expires.duration_since(stored.now) > RENEW_BEFORE.min(lifetime / 2)
}
