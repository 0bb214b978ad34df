//! Tokens and credentials of callers for upstreams that are called as their caller (`identity: per_user` and `stored`).
//!
//! A caller without a token is refused with the address of a page of the console (`offer`). The browser there proves that it is
//! the caller's, is sent to the authorization server, and comes back to the gateway in the same browser (`sign_in`). The tokens
//! are in the store, sealed for the tenant, the caller and the upstream, and one process at a time renews them (`renewal`).
//! How an authorization server is found differs between sources: [`Provider`]. Where there is none, the page asks for a credential of the
//! caller (`stored`). Callers with a token of their own need no sign-in where
//! that is exchanged or forwarded (`exchange`).

mod client;
pub mod credentials;
mod elicitation;
mod exchange;
mod offer;
mod provider;
mod renewal;
mod scope_challenge;
mod sign_in;
mod stored;
#[cfg(test)]
mod tests;
mod user_token;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::credentials::Token;
use sekisho_config::Config;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::sealing::{SealedFor, Sealer, SealingError};
use sekisho_store::{StoredSignIn, StoredUserToken, TokenOwner, UserTokenFilter, UserTokenStore};

pub use self::client::{TokenClient, TokenRequests};
pub use self::exchange::TokenExchange;
pub use self::provider::{Authorization, Begun, Provider};
pub use self::user_token::UserToken;

pub use self::provider::OwnAddresses;
pub use self::sign_in::ReturnedBrowser;
pub use self::stored::{CredentialHeader, CredentialKind, NewCredential};

/// The kinds of sealed values.
const TOKEN_KIND: &str = "user token";
const SIGN_IN_KIND: &str = "user sign-in";

/// How often it is written that a token is used.
const USE_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// The tokens of all callers for all sources.
pub struct UserTokens {
    store: UserTokenStore,
    sealer: Sealer,
    /// The address of the page of a sign-in, without its id.
    page: String,
    /// Notified when a caller has signed in here.
    signed_in: Notify,
}

/// A caller as the owner of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    tenant: Arc<str>,
    /// [`Caller::key`].
    key: Arc<str>,
    id: Arc<str>,
}

/// One upstream that is called with its callers' tokens.
pub struct UserSource {
    /// `mcp:SERVER` or `openapi:COLLECTION`.
    name: Arc<str>,
    /// The address that its tokens are for: another upstream of the same name gets none of them.
    upstream: String,
    tokens: Arc<UserTokens>,
    requests: TokenRequests,
    provider: Box<dyn Provider>,
}

/// The tokens of one caller for one upstream, or its stored credential. No `Debug`: it holds secrets.
#[derive(Clone, Serialize, Deserialize)]
struct Grant {
    /// Of a stored credential, the value of the header.
    access_token: String,
    refresh_token: Option<String>,
    #[serde(flatten)]
    origin: Origin,
    upstream: String,
}

/// Where a grant comes from: the client that renews its tokens, or the header of a credential that the caller stored.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Origin {
    Client(Box<TokenClient>),
    Header(String),
}

impl UserTokens {
    pub fn new(config: &Config, store: UserTokenStore) -> Arc<Self> {
        Arc::new(Self {
            store,
            sealer: Sealer::new(config),
            page: format!("{}/console/upstream-sign-in/", config.server.public_address()),
            signed_in: Notify::new(),
        })
    }

    /// Whether tokens can be kept: with a database, only with a key that all replicas have.
    pub fn can_keep_tokens(&self) -> bool {
        self.sealer.is_available()
    }

    /// The sign-ins of callers to upstreams, the latest first.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn list(&self, filter: UserTokenFilter<'_>) -> Result<Vec<StoredUserToken>, CallError> {
        Ok(self.store.list(filter).await?)
    }

    /// The tokens that nobody used for so long, at most so many.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn unused_for(&self, age: Duration, max: u32) -> Result<Vec<StoredUserToken>, CallError> {
        Ok(self.store.unused(age, max).await?)
    }

    /// Writes that a token is sent, about once a day; of a stored credential also the first time.
    async fn record_use(&self, token: &StoredUserToken) {
        let is_first = token.kind.is_some() && token.used.is_none();
        let last = token.used.map_or(token.changed, |used| used.max(token.changed));
        if !is_first && token.now.duration_since(last) < USE_INTERVAL {
            return;
        }
        if let Err(error) = self.store.record_use(token).await {
            tracing::warn!(%error, source = token.source, "the use of a caller's token is not recorded");
        }
    }

    /// Forgets a token. False: it was replaced or forgotten before.
    /// Errors: `overloaded` when the store cannot be written.
    pub async fn forget(&self, token: &StoredUserToken) -> Result<bool, CallError> {
        Ok(self.store.forget(token).await?)
    }

    fn seal(&self, kind: &'static str, owner: TokenOwner<'_>, secret: &impl Serialize) -> Result<String, CallError> {
        let text = serde_json::to_vec(secret).map_err(CallError::internal)?;
        let whose = SealedFor { tenant: owner.tenant, owner: &owner_of(owner), kind };
        self.sealer.seal(whose, &text).map_err(|error| not_sealed(&error))
    }

    fn open<T: DeserializeOwned>(
        &self,
        kind: &'static str,
        owner: TokenOwner<'_>,
        sealed: &str,
    ) -> Result<T, CallError> {
        let whose = SealedFor { tenant: owner.tenant, owner: &owner_of(owner), kind };
        let text = self.sealer.open(whose, sealed).map_err(CallError::internal)?;
        serde_json::from_slice(&text).map_err(CallError::internal)
    }
}

impl User {
    /// Errors: `unauthenticated`: callers without credentials cannot be told apart.
    pub fn of(caller: &Caller) -> Result<Self, CallError> {
        if caller.anonymous {
            let message = "this upstream is called as its caller, who must sign in to it, and this one has no credentials: \
                           send a key or a token of this gateway";
            return Err(CallError::new(ErrorCode::Unauthenticated, message));
        }
        let (tenant, key, id) = (Arc::clone(&caller.tenant), Arc::clone(&caller.key), Arc::clone(&caller.id));
        Ok(Self { tenant, key, id })
    }

    fn of_sign_in(sign_in: &StoredSignIn) -> Self {
        let StoredSignIn { tenant, caller_key, caller_id, .. } = sign_in;
        Self { tenant: tenant.as_str().into(), key: caller_key.as_str().into(), id: caller_id.as_str().into() }
    }

    /// The owner of a stored token.
    fn of_stored(token: &StoredUserToken) -> Self {
        let StoredUserToken { tenant, caller_key, caller_id, .. } = token;
        Self { tenant: tenant.as_str().into(), key: caller_key.as_str().into(), id: caller_id.as_str().into() }
    }
}

impl UserSource {
    pub fn new(
        name: String,
        upstream: String,
        tokens: &Arc<UserTokens>,
        requests: TokenRequests,
        provider: Box<dyn Provider>,
    ) -> Arc<Self> {
        Arc::new(Self { name: name.into(), upstream, tokens: Arc::clone(tokens), requests, provider })
    }

    /// `mcp:SERVER` or `openapi:COLLECTION`.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The callers who have signed in, the latest first.
    /// Errors: `overloaded` when the store cannot be read.
    pub async fn users(&self, max: u32) -> Result<Vec<User>, CallError> {
        let filter = UserTokenFilter { source: Some(&self.name), max, ..UserTokenFilter::default() };
        let found = self.tokens.store.list(filter).await?;
        Ok(found.iter().map(User::of_stored).collect())
    }

    fn owner<'a>(&'a self, user: &'a User) -> TokenOwner<'a> {
        TokenOwner { tenant: &user.tenant, caller_key: &user.key, caller_id: &user.id, source: &self.name }
    }

    /// The tokens of a caller, if it has any for this upstream that can be opened.
    async fn find(&self, user: &User) -> Result<Option<(StoredUserToken, Grant)>, CallError> {
        let Some(stored) = self.tokens.store.get(&user.key, &self.name).await? else { return Ok(None) };
        match self.tokens.open::<Grant>(TOKEN_KIND, self.owner(user), &stored.sealed) {
            Ok(grant) if grant.upstream != self.upstream || !self.takes(&grant) => Ok(None),
            // A stored credential ends when its caller said.
            Ok(Grant { origin: Origin::Header(_), .. }) if stored.expires.is_some_and(|end| end <= stored.now) => {
                self.tokens.store.forget(&stored).await?;
                Ok(None)
            }
            Ok(grant) => Ok(Some((stored, grant))),
            Err(error) => {
                tracing::warn!(
                    source = &*self.name,
                    cause = error.cause(),
                    "a token cannot be opened: a new sign-in is needed"
                );
                Ok(None)
            }
        }
    }

    /// Whether a grant is of the kind that this source has.
    fn takes(&self, grant: &Grant) -> bool {
        match (&grant.origin, self.provider.credential_header()) {
            (Origin::Client(_), None) => true,
            (Origin::Header(sent), Some(name)) => name.as_str() == sent,
            _ => false,
        }
    }
}

impl Grant {
    /// `None` for one that no header can contain.
    fn token(&self) -> Option<Token> {
        match &self.origin {
            Origin::Client(_) => Token::new(&self.access_token, None),
            Origin::Header(name) => Token::in_header(name, &self.access_token),
        }
    }

    /// The refresh token, and the client that it is for.
    fn renewal(&self) -> Option<(String, TokenClient)> {
        match &self.origin {
            Origin::Client(client) => Some((self.refresh_token.clone()?, TokenClient::clone(client))),
            Origin::Header(_) => None,
        }
    }
}

impl fmt::Debug for UserTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UserTokens").finish_non_exhaustive()
    }
}

impl fmt::Debug for UserSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UserSource").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The caller and the upstream in one name. Neither contains the separator at its end or begin: see [`Caller::key`].
fn owner_of(owner: TokenOwner<'_>) -> String {
    format!("{}\u{1f}{}", owner.caller_key, owner.source)
}

fn not_sealed(error: &SealingError) -> CallError {
    tracing::error!(%error, "no caller can sign in to an upstream: its tokens cannot be sealed");
    let message = "nobody can sign in to upstreams now: tell the operators of this gateway, whose log says why";
    CallError::new(ErrorCode::Overloaded, message).caused_by(error)
}
