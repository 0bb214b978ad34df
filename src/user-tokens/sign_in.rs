//! A sign-in at its page: the browser proves to be the caller's, is sent to the authorization server, and comes back.
//!
//! A link is not enough to sign anybody in. Whoever begins a sign-in elsewhere cannot have it ended by somebody else's
//! browser: it ends in the browser that gave the proof, which has a cookie for that.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use url::Url;

use super::client::TokenAnswer;
use super::offer::{OpenSignIn, owner_of_sign_in, plain_code};
use super::{Authorization, Begun, Grant, Origin, OwnAddresses, SIGN_IN_KIND, TOKEN_KIND, UserSource, UserTokens};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::{NewUserToken, StoredSignIn, StoredUserToken, TokenOwner};

/// The parameters with which a browser comes back from the authorization server (RFC 6749 §4.1.2, RFC 9207 §2).
#[derive(Clone)]
pub struct ReturnedBrowser {
    pub state: String,
    pub issuer: Option<String>,
    /// The code, or the error.
    pub outcome: Result<String, String>,
}

/// A sign-in whose browser has come back: it cannot be used again. No `Debug`: it holds secrets.
pub struct TakenSignIn {
    pub stored: StoredSignIn,
    begun: Begun,
    upstream: String,
}

impl UserTokens {
    /// A sign-in for its page.
    /// Errors: `not_found`; `overloaded` when the store cannot be read.
    pub async fn sign_in(&self, id: &str) -> Result<StoredSignIn, CallError> {
        self.store.sign_in(id).await?.ok_or_else(not_pending)
    }

    /// Checks a one-time code, of which few can be tried.
    /// Errors: `denied`; `overloaded` when the store cannot be read.
    pub async fn check_code(&self, sign_in: &StoredSignIn, written: &str) -> Result<(), CallError> {
        if !self.store.try_code(&sign_in.id).await? {
            let message = "too many codes were tried for this sign-in; make the call again for another one";
            return Err(CallError::new(ErrorCode::Denied, message));
        }
        let OpenSignIn { code, .. } = self.opened(sign_in)?;
        let is_right = plain_code(written).as_bytes().ct_eq(plain_code(&code).as_bytes());
        match bool::from(is_right) {
            true => Ok(()),
            false => Err(CallError::new(ErrorCode::Denied, "this is not the one-time code of this sign-in")),
        }
    }

    /// Takes the sign-in of a browser that has come back.
    /// Errors: `not_found`: there is no such sign-in, or it began in another browser; `overloaded` when the store
    /// cannot be written.
    pub async fn take(&self, browser: &str, state: &str) -> Result<TakenSignIn, CallError> {
        let taken = self.store.take_sign_in(&digest(state), &digest(browser)).await?;
        let stored = taken.ok_or_else(not_pending)?;
        let OpenSignIn { begun, upstream, .. } = self.opened(&stored)?;
        Ok(TakenSignIn { stored, begun: begun.ok_or_else(not_pending)?, upstream })
    }
}

impl UserSource {
    /// Begins a sign-in in a browser that has proven to be the caller's. `browser` is the secret that it gets as a cookie.
    /// Errors: `upstream_error` with the reason why the authorization server cannot be used; `not_found`, if the
    /// sign-in has ended.
    pub async fn begin(&self, sign_in: &StoredSignIn, browser: &str, own: &OwnAddresses) -> Result<Url, CallError> {
        let open = self.tokens.opened(sign_in)?;
        let begun = self.provider.begin(own, &open.scopes).await;
        let Authorization { url, state, begun } = begun.map_err(|reason| self.failed(&reason))?;
        // The address is the upstream's, and a browser may execute some (`javascript:`).
        if !self.requests.permits(&url) {
            return Err(self.failed("the authorization URL is not one that a browser may be sent to"));
        }
        let open = OpenSignIn { begun: Some(begun), upstream: self.upstream.clone(), ..open };
        let sealed = self.tokens.seal(SIGN_IN_KIND, owner_of_sign_in(sign_in), &open)?;
        let (browser, state) = (digest(browser), digest(&state));
        match self.tokens.store.begin_sign_in(&sign_in.id, &browser, &state, &sealed).await? {
            true => Ok(url),
            false => Err(not_pending()),
        }
    }

    /// Ends a sign-in: exchanges the code for tokens, and keeps them for the caller.
    /// Errors: `upstream_error` with the reason; the sign-in is over then, too.
    pub async fn finish(&self, taken: TakenSignIn, returned: ReturnedBrowser) -> Result<(), CallError> {
        let TakenSignIn { stored, begun, upstream } = taken;
        if upstream != self.upstream {
            return Err(self.failed("the address of the upstream has changed since it began; make the call again"));
        }
        if !begun.is_from(returned.issuer.as_deref()) {
            return Err(self.failed("the browser came back from another issuer than the sign-in began at"));
        }
        let code = returned.outcome.map_err(|error| {
            let error: String = error.chars().filter(|c| !c.is_control()).take(300).collect();
            self.failed(&format!("the authorization server refused it: {error}"))
        })?;
        let secret = self.provider.secret_of(&begun.client.client_id);
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("redirect_uri", begun.redirect.as_str()),
            ("code_verifier", &*begun.verifier),
        ];
        let answer = self.requests.token(&begun.client, secret, &fields).await;
        let answer = answer.map_err(|error| self.failed(&error.to_string()))?;
        self.keep(&stored, begun, answer).await
    }

    async fn keep(&self, sign_in: &StoredSignIn, begun: Begun, answer: TokenAnswer) -> Result<(), CallError> {
        let TokenAnswer { access_token, refresh_token, lifetime, scope } = answer;
        let Begun { client, scopes, .. } = begun;
        let origin = Origin::Client(Box::new(client));
        let grant = Grant { access_token, refresh_token, origin, upstream: self.upstream.clone() };
        if grant.token().is_none() {
            return Err(self.failed("the token server gave something that is not a bearer token"));
        }
        let owner = owner_of_sign_in(sign_in);
        let sealed = self.tokens.seal(TOKEN_KIND, owner, &grant)?;
        // RFC 6749 §5.1: without a scope, the requested scopes are granted.
        let scopes = scope.unwrap_or_else(|| scopes.join(" "));
        let new = NewUserToken { kind: None, sealed: &sealed, scopes: &scopes, lifetime };
        self.tokens.store.keep(owner, new).await?;
        self.tokens.signed_in.notify_waiters();
        Ok(())
    }

    /// Revokes the tokens of a caller at the authorization server, if that can be done.
    pub async fn revoke_upstream(&self, token: &StoredUserToken) {
        let owner = TokenOwner {
            tenant: &token.tenant,
            caller_key: &token.caller_key,
            caller_id: &token.caller_id,
            source: &token.source,
        };
        if let Ok(grant) = self.tokens.open::<Grant>(TOKEN_KIND, owner, &token.sealed) {
            self.revoke_grant(&grant).await;
        }
    }

    /// Revokes tokens at the authorization server that gave them, if that can be done.
    pub(super) async fn revoke_grant(&self, grant: &Grant) {
        let Origin::Client(client) = &grant.origin else { return };
        // The configured secret is not for the authorization server of an upstream that had the name before.
        let secret = self.provider.secret_of(&client.client_id).filter(|_| grant.upstream == self.upstream);
        // With the refresh token, servers revoke its access tokens (RFC 7009 §2.1).
        match &grant.refresh_token {
            Some(refresh) => self.requests.revoke(client, secret, refresh, "refresh_token").await,
            None => self.requests.revoke(client, secret, &grant.access_token, "access_token").await,
        }
    }

    pub(super) fn failed(&self, reason: &str) -> CallError {
        CallError::new(ErrorCode::UpstreamError, format!("the sign-in to {} failed: {reason}", self.name))
    }
}

impl fmt::Debug for ReturnedBrowser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ReturnedBrowser").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl fmt::Debug for TakenSignIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TakenSignIn").field("source", &self.stored.source).finish_non_exhaustive()
    }
}

pub(super) fn not_pending() -> CallError {
    let message = "there is no such sign-in in this browser: it was used, began in another browser, or is older than 10 \
                   minutes; make the call again for another one";
    CallError::new(ErrorCode::NotFound, message)
}

fn digest(secret: &str) -> String {
    hex::encode(Sha256::digest(secret))
}
