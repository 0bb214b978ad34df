//! Who calls: an API key or a token becomes a [`Caller`].
//!
//! Credentials that are there must be right: a wrong key is refused also where callers without any are
//! let in. No secret appears in an error, a log line or `Debug`.

mod identity;
mod jwks;
mod jwt;
mod keys;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};
use thiserror::Error;

use self::jwt::Tokens;
use self::keys::ApiKeys;
use crate::config::{AnonymousAccess, AuthConfig};
use crate::core::call::Caller;
use crate::core::error::{CallError, ErrorCode};

pub use self::jwks::{KeyFetchError, KeyFetchFailure, KeySource};

/// What the configuration knows of callers.
#[derive(Debug)]
pub struct Authenticator {
    keys: ApiKeys,
    tokens: Option<Tokens>,
    /// Who a request without credentials comes from, where such requests are let in.
    anonymous: Option<Arc<Caller>>,
}

/// Why `auth` of the configuration cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct AuthConfigError {
    /// Path in the configuration, such as `auth.api_keys[1].key`.
    pub place: String,
    pub problem: String,
}

/// Why a request is not let in: a sentence for its sender, without anything secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refusal(&'static str);

/// SHA-256 of a key or token: what is kept and looked up instead of it.
type SecretDigest = [u8; 32];

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

impl Authenticator {
    /// `fetch` gets the key set of `auth.jwt.jwks_url`; it is first asked when a token comes in, so that
    /// an issuer that is down does not keep the service from starting.
    ///
    /// # Errors
    /// All faults of the configuration, each with its place.
    pub async fn new(
        config: &AuthConfig,
        on_loopback: bool,
        fetch: Option<Arc<dyn KeySource>>,
    ) -> Result<Self, Vec<AuthConfigError>> {
        let anonymous = match config.anonymous {
            AnonymousAccess::Always => true,
            AnonymousAccess::Loopback => on_loopback,
            AnonymousAccess::Never => false,
        };
        let (keys, mut faults) = ApiKeys::new(&config.api_keys);
        let tokens = match &config.jwt {
            Some(jwt) => Tokens::new(jwt, fetch).await.map_err(|more| faults.extend(more)).ok(),
            None => None,
        };
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self { keys, tokens, anonymous: anonymous.then(|| Arc::new(Caller::anonymous())) })
    }

    /// Goes on with the issuer's keys that are known already: a reload while the issuer is down shuts nobody out.
    pub fn keep_keys_of(&mut self, before: &Self) {
        if let (Some(tokens), Some(before)) = (&mut self.tokens, &before.tokens) {
            tokens.keep_keys_of(before);
        }
    }

    /// From the request's headers (`Authorization: Bearer …`, `X-API-Key`).
    ///
    /// # Errors
    /// `unauthenticated`: credentials that are wrong, ambiguous or missing.
    pub async fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Caller>, CallError> {
        let caller = match credential(headers) {
            Ok(Some(credential)) => match &self.anonymous {
                // Where no credential is known, none is wrong: clients of model APIs always send one.
                Some(anonymous) if self.keys.is_empty() && self.tokens.is_none() => Ok(Arc::clone(anonymous)),
                _ => self.recognize(&credential).await,
            },
            Ok(None) => self.anonymous.clone().ok_or(Refusal(self.how_to_sign_in())),
            Err(refusal) => Err(refusal),
        };
        caller.map_err(|Refusal(why)| CallError::new(ErrorCode::Unauthenticated, why))
    }

    async fn recognize(&self, credential: &Credential<'_>) -> Result<Arc<Caller>, Refusal> {
        let digest: SecretDigest = Sha256::digest(credential.secret).into();
        if let Some(caller) = self.keys.find(&digest) {
            return Ok(caller);
        }
        match &self.tokens {
            Some(tokens) if credential.may_be_token() => tokens.verify(credential.secret, &digest).await,
            _ => Err(Refusal("the API key is not known here; ask the operators of this service for one")),
        }
    }

    fn how_to_sign_in(&self) -> &'static str {
        match (self.keys.is_empty(), &self.tokens) {
            (_, Some(_)) => {
                "this service needs to know who calls: send `Authorization: Bearer` with a token or an API key"
            }
            (false, None) => {
                "this service needs to know who calls: send an API key as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
            }
            (true, None) => {
                "this service needs to know who calls, and no way to sign in is configured: \
                 its operators can set `auth.api_keys` or `auth.jwt`"
            }
        }
    }
}

/// What a request says of its sender.
struct Credential<'a> {
    secret: &'a str,
    bearer: bool,
}

impl Credential<'_> {
    /// A signed token has three parts (RFC 7515, compact serialization), and only comes as a bearer.
    fn may_be_token(&self) -> bool {
        self.bearer && self.secret.bytes().filter(|byte| *byte == b'.').count() == 2
    }
}

/// The one credential of a request. More than one is refused: which of them counts would be a guess, and
/// a proxy in front may guess otherwise.
fn credential(headers: &HeaderMap) -> Result<Option<Credential<'_>>, Refusal> {
    let authorization = only(headers, AUTHORIZATION)?;
    let api_key = only(headers, API_KEY)?;
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
        return Err(Refusal("the credentials are empty; send a key, or leave the header out"));
    }
    Ok(Some(Credential { secret, bearer }))
}

fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Refusal("the credentials are not plain text")),
        (Some(_), Some(_)) => Err(Refusal("the header with the credentials stands there more than once")),
    }
}
