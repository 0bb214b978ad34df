//! Authentication: an API key or a token becomes a [`Caller`].
//!
//! Credentials must be valid if they are sent: a wrong key is refused even where callers without credentials are
//! accepted. No secret appears in an error, a log line or `Debug`.

mod attempts;
mod claims;
mod discovery;
mod identity;
mod introspection;
mod issuer_client;
mod issuers;
mod jwks;
mod jwt;
mod keys;
mod managed;
pub mod open_id;
mod provider;
mod seen;
#[cfg(test)]
mod tests;
mod token_kind;
mod work_identity;
mod workload;

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};
use thiserror::Error;

use self::attempts::Attempts;
use self::issuers::Issuers;
use self::jwt::{Lifetime, Tokens};
use self::keys::ApiKeys;
use self::managed::ManagedToken;
use sekisho_config::{AnonymousAccess, AuthConfig, WorkloadConfig};
use sekisho_core::call::Caller;
use sekisho_core::caller::{DEFAULT_TENANT, Owner};
use sekisho_core::database_clock::DatabaseClock;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::headers::{HeaderError, single};
use sekisho_core::token_scopes::TokenScopes;

pub use self::discovery::SignInEndpoints;
pub use self::issuer_client::{IssuerClient, IssuerError, IssuerFailure, IssuerRequest};
pub use self::managed::{ManagedKeys, check_identity, new_key_id, new_token};
pub use self::provider::IdentityProvider;
pub use self::work_identity::WorkIdentity;

/// The configured credentials, and the managed keys.
#[derive(Debug)]
pub struct Authenticator {
    keys: ApiKeys,
    managed: Arc<ManagedKeys>,
    issuers: Option<Issuers>,
    /// The caller of a request without credentials, and when such requests are accepted.
    anonymous: Arc<Caller>,
    anonymous_access: AnonymousAccess,
    workloads: Vec<WorkloadConfig>,
    attempts: Arc<Attempts>,
}

/// Why the `auth` configuration is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct AuthConfigError {
    /// Path in the configuration, such as `auth.api_keys[1].key`.
    pub place: String,
    pub problem: String,
}

/// An accepted sign-in, without the key or token: enough to see later whether it is still accepted.
#[derive(Debug, Clone)]
pub struct SignedIn {
    caller: Arc<Caller>,
    proof: Proof,
}

/// The method by which a caller signed in.
#[derive(Debug, Clone)]
enum Proof {
    Key(SecretDigest),
    ManagedKey {
        id: Box<str>,
        digest: SecretDigest,
    },
    Token(Lifetime),
    /// The user who can open the Unix socket.
    LocalUser,
}

impl SignedIn {
    /// This machine's user, under the name of a request over the Unix socket.
    pub fn of_local_user(caller: Arc<Caller>) -> Self {
        Self { caller, proof: Proof::LocalUser }
    }

    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Whether it is this machine's user, who can do whatever the gateway's user can.
    pub fn is_local_user(&self) -> bool {
        matches!(self.proof, Proof::LocalUser)
    }
}

const TRY_AGAIN: &str = "the token could not be kept for the session; try again";

/// Why a request is refused: a message for its sender, without secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refusal(&'static str);

const UNKNOWN_KEY: Refusal = Refusal("unknown API key; get one from the operators of this service");

impl From<Refusal> for CallError {
    fn from(Refusal(why): Refusal) -> Self {
        Self::new(ErrorCode::Unauthenticated, why)
    }
}

/// SHA-256 of a key or token: stored and looked up instead of it.
type SecretDigest = [u8; 32];

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A caller that this user names: over the Unix socket and on the command line.
/// Errors: `unauthenticated`: a name or role that no caller may have.
pub fn named_caller(id: &str, roles: Vec<String>) -> Result<Arc<Caller>, CallError> {
    let caller = Caller::new(id, DEFAULT_TENANT, roles);
    identity::checked(caller).map_err(|problem| CallError::new(ErrorCode::Unauthenticated, problem))
}

impl Authenticator {
    /// `client` sends the requests to the issuers. It is first used when a token arrives, so that an unavailable issuer
    /// does not keep the service from starting.
    /// Errors: all errors of the configuration, each with its place.
    pub async fn new(config: &AuthConfig, client: Option<Arc<dyn IssuerClient>>) -> Result<Self, Vec<AuthConfigError>> {
        let (keys, mut errors) = ApiKeys::new(&config.api_keys);
        let issuers = Issuers::new(config, client).await.map_err(|more| errors.extend(more));
        if !errors.is_empty() {
            return Err(errors);
        }
        // Who has no token has none of the scopes.
        let anonymous = Caller::anonymous().with_scopes(TokenScopes::new(&config.scopes, &[]));
        Ok(Self {
            keys,
            managed: Arc::new(ManagedKeys::new(&[], false, &Arc::new(DatabaseClock::of_this_machine()))),
            issuers: issuers.ok().flatten(),
            anonymous: Arc::new(anonymous),
            anonymous_access: config.anonymous,
            workloads: config.workloads.clone(),
            attempts: Arc::default(),
        })
    }

    /// Removes the cached data of expired tokens; run every minute.
    pub fn forget_expired_tokens(&self) {
        self.issuers.iter().for_each(Issuers::forget_expired_tokens);
    }

    /// Accepts these managed keys too.
    pub fn use_managed_keys(&mut self, keys: &Arc<ManagedKeys>) {
        self.managed = Arc::clone(keys);
    }

    /// Keeps the issuers' current keys: a reload while an issuer is down locks no caller out. Who has sent wrong keys is kept,
    /// too.
    pub fn keep_keys_of(&mut self, before: &Self) {
        self.attempts = Arc::clone(&before.attempts);
        if let (Some(issuers), Some(before)) = (&mut self.issuers, &before.issuers) {
            issuers.keep_keys_of(before);
        }
    }

    /// From the request's headers (`Authorization: Bearer …`, `X-API-Key`). `is_local`: it was sent on this machine to
    /// a loopback listener, and not through a proxy. `client`: who waits while an issuer is asked about a token.
    /// Errors: `unauthenticated`: credentials that are wrong, ambiguous or missing; `rate_limited`: the client's
    /// address has sent too many wrong ones. `overloaded`: it is not known whether a managed key was revoked.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        is_local: bool,
        client: &Owner,
    ) -> Result<Arc<Caller>, CallError> {
        let is_open = match self.anonymous_access {
            AnonymousAccess::Always => true,
            AnonymousAccess::Loopback => is_local,
            AnonymousAccess::Never => false,
        };
        let anonymous = is_open.then_some(&self.anonymous);
        match credential(headers)? {
            Some(credential) => match anonymous {
                // Without keys and an issuer, credentials are not checked: clients of model APIs always send some.
                Some(anonymous) if self.accepts_any(&credential) => Ok(Arc::clone(anonymous)),
                _ => self.recognize_of(client, &credential, Some(client)).await,
            },
            None => Ok(anonymous.cloned().ok_or(Refusal(self.how_to_sign_in()))?),
        }
    }

    /// Accepts an API key or a JSON Web Token for a session. A token that only its issuer can read begins none: it may be
    /// revoked meanwhile. `client`: who sent it.
    /// Errors: `unauthenticated`; `rate_limited`: the client's address has sent too many wrong ones.
    pub async fn sign_in(&self, secret: &str, client: &Owner) -> Result<SignedIn, CallError> {
        let secret = secret.trim();
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Refusal("the key is empty, or has characters that no key has").into());
        }
        let caller = self.recognize_of(client, &Credential { secret, bearer: true }, None).await?;
        let digest: SecretDigest = Sha256::digest(secret).into();
        let proof = match (&caller.key_id, &self.issuers, self.keys.find(&digest)) {
            (Some(id), ..) => Proof::ManagedKey { id: (&**id).into(), digest },
            (None, Some(issuers), None) => Proof::Token(issuers.lifetime(&digest).ok_or(Refusal(TRY_AGAIN))?),
            _ => Proof::Key(digest),
        };
        Ok(SignedIn { caller, proof })
    }

    /// Where the first issuer signs people in. Its metadata is kept for minutes.
    /// Errors: `upstream_error`: the issuer does not answer, or its metadata cannot be used.
    pub async fn sign_in_endpoints(&self) -> Result<SignInEndpoints, CallError> {
        let unusable = |cause: String| {
            let message = "the metadata of the sign-in provider (`auth.jwt.issuer`) cannot be used";
            CallError::new(ErrorCode::UpstreamError, message).caused_by(cause)
        };
        let discovery = self.issuers.as_ref().and_then(Issuers::first).and_then(Tokens::discovery);
        let discovery = discovery.ok_or_else(|| unusable("the issuer is no address".to_owned()))?;
        discovery.sign_in().await.map_err(|error| unusable(error.cause))
    }

    /// Accepts the ID token of a sign-in at the first issuer. The session that begins with it ends by its own limits.
    /// Errors: `unauthenticated`.
    pub async fn sign_in_with_id_token(&self, token: &str, client: &str, nonce: &str) -> Result<SignedIn, CallError> {
        let tokens = self.issuers.as_ref().and_then(Issuers::first);
        let tokens = tokens.ok_or(Refusal("tokens are not configured (`auth.jwt`)"))?;
        let (caller, lifetime) = tokens.verify_id_token(token, client, nonce).await?;
        Ok(SignedIn { caller, proof: Proof::Token(lifetime) })
    }

    /// The caller of an earlier sign-in, with the roles of now; `None` once its key was revoked or its token expired.
    pub fn still_signed_in(&self, earlier: &SignedIn) -> Option<Arc<Caller>> {
        let is_valid = match &earlier.proof {
            Proof::Key(digest) => return self.keys.find(digest),
            Proof::ManagedKey { id, digest } => return self.managed.still_accepted(id, digest),
            Proof::Token(lifetime) => self.issuers.as_ref().is_some_and(|issuers| issuers.is_within(lifetime)),
            Proof::LocalUser => true,
        };
        is_valid.then(|| Arc::clone(&earlier.caller))
    }

    /// Slows down clients that send wrong ones.
    async fn recognize_of(
        &self,
        client: &Owner,
        credential: &Credential<'_>,
        asking: Option<&Owner>,
    ) -> Result<Arc<Caller>, CallError> {
        let digest: SecretDigest = Sha256::digest(credential.secret).into();
        // Nobody guesses a signature, and a new token must not wait for clients that send expired ones.
        if self.issuers.is_some() && credential.bearer && jsonwebtoken::decode_header(credential.secret).is_ok() {
            return self.recognize(credential, &digest, asking).await;
        }
        let Some(attempt) = self.attempts.begin(client, &digest).await? else {
            return self.recognize(credential, &digest, asking).await;
        };
        match self.recognize(credential, &digest, asking).await {
            Ok(caller) => {
                self.attempts.accept(&digest);
                Ok(caller)
            }
            Err(error) if error.code() == ErrorCode::Unauthenticated => Err(attempt.fail(error)),
            Err(error) => Err(error),
        }
    }

    /// `client`: who may have an issuer asked.
    async fn recognize(
        &self,
        credential: &Credential<'_>,
        digest: &SecretDigest,
        client: Option<&Owner>,
    ) -> Result<Arc<Caller>, CallError> {
        if let Some(caller) = self.keys.find(digest) {
            return Ok(caller);
        }
        if let Some(token) = ManagedToken::read(credential.secret) {
            return self.managed.recognize(token.id, digest);
        }
        match &self.issuers {
            // A token is accepted only as a bearer.
            Some(issuers) if credential.bearer => Ok(issuers.verify(credential.secret, digest, client).await?),
            _ => Err(UNKNOWN_KEY.into()),
        }
    }

    /// Whether callers without credentials may send these. A managed key is always checked: it may have been revoked.
    fn accepts_any(&self, credential: &Credential<'_>) -> bool {
        let is_configured = !self.keys.is_empty() || self.issuers.is_some() || !self.managed.is_empty();
        !is_configured && ManagedToken::read(credential.secret).is_none()
    }

    fn how_to_sign_in(&self) -> &'static str {
        match (self.keys.is_empty() && self.managed.is_empty(), &self.issuers) {
            (true, None) if self.anonymous_access == AnonymousAccess::Loopback => {
                "authentication required: a request through a proxy, or to another host name than localhost, needs \
                 credentials, and none are configured: its operators can set `auth.api_keys` or `auth.jwt`, or create a key \
                 with `sekisho keys create`"
            }
            (_, Some(_)) => "authentication required: send `Authorization: Bearer` with a token or an API key",
            (false, None) => {
                "authentication required: send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
            }
            (true, None) => {
                "authentication required, and no credentials are configured: \
                 its operators can set `auth.api_keys` or `auth.jwt`, or create a key with `sekisho keys create`"
            }
        }
    }
}

/// Whether a request names its caller by a key or token.
pub fn has_credentials(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION) || headers.contains_key(API_KEY)
}

/// The credentials of a request.
struct Credential<'a> {
    secret: &'a str,
    bearer: bool,
}

/// The one credential of a request. More than one is refused: a proxy in front may choose another than we do.
fn credential(headers: &HeaderMap) -> Result<Option<Credential<'_>>, Refusal> {
    let authorization = only(headers, &AUTHORIZATION)?;
    let api_key = only(headers, &API_KEY)?;
    match (authorization, api_key) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Refusal("send either `Authorization` or `X-API-Key`, not both")),
        (None, Some(secret)) => present(secret, false),
        (Some(authorization), None) => {
            let (scheme, secret) = authorization.split_once(' ').unwrap_or((authorization, ""));
            if !scheme.eq_ignore_ascii_case("bearer") {
                return Err(Refusal("`Authorization` must be of the form `Bearer KEY`"));
            }
            present(secret, true)
        }
    }
}

fn present(secret: &str, bearer: bool) -> Result<Option<Credential<'_>>, Refusal> {
    let secret = secret.trim();
    if secret.is_empty() {
        return Err(Refusal("the credentials are empty; send a key, or omit the header"));
    }
    Ok(Some(Credential { secret, bearer }))
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    single(headers, name).map_err(|error| match error {
        HeaderError::Duplicate => Refusal("duplicate header with credentials; send it once"),
        HeaderError::NotText => Refusal("the credentials are not visible ASCII text"),
    })
}
