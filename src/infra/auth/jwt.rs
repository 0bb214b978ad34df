//! JSON Web Tokens (RFC 7519) of one issuer. Signature, issuer, audience and expiry are always checked,
//! the algorithm comes from our list and from the key, never from the token alone (RFC 8725).

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use dashmap::DashMap;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, AlgorithmFamily, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

use super::jwks::{IssuerKeys, KeyFetchFailure, KeyFile, KeySource};
use super::{AuthConfigError, Refusal, SecretDigest, identity};
use crate::config::JwtConfig;
use crate::core::call::Caller;
use crate::core::caller::SubjectToken;

pub(super) struct Tokens {
    config: JwtConfig,
    keys: Arc<IssuerKeys>,
    /// Tokens verified before, so that not every request costs a signature check.
    seen: DashMap<SecretDigest, Seen>,
}

struct Seen {
    caller: Arc<Caller>,
    /// Of the keys that verified it.
    generation: u64,
    /// Expiry in seconds since 1970, including the leeway.
    until: u64,
}

type Claims = Map<String, Value>;

/// Tokens remembered at once.
const MAX_SEEN: usize = 10_000;

/// Clocks that differ by more must be corrected.
const MAX_LEEWAY_SECONDS: u64 = 3_600;

impl Tokens {
    pub(super) async fn new(
        config: &JwtConfig,
        fetch: Option<Arc<dyn KeySource>>,
    ) -> Result<Self, Vec<AuthConfigError>> {
        let mut errors = Vec::new();
        let mut add_error = |place: &str, problem: String| {
            errors.push(AuthConfigError { place: format!("auth.jwt{place}"), problem });
        };
        if config.issuer.is_empty() {
            add_error(".issuer", "must not be empty".to_owned());
        }
        if config.issuer.chars().any(char::is_control) {
            add_error(".issuer", "must not contain control characters".to_owned());
        }
        if config.audience.is_empty() {
            add_error(".audience", "must not be empty".to_owned());
        }
        if config.leeway_seconds > MAX_LEEWAY_SECONDS {
            add_error(".leeway_seconds", format!("must be at most {MAX_LEEWAY_SECONDS}"));
        }
        let source = match (&config.jwks_file, &config.jwks_url, fetch) {
            (Some(file), None, _) => Some(Arc::new(KeyFile(file.clone())) as Arc<dyn KeySource>),
            (None, Some(_), Some(fetch)) => Some(fetch),
            (None, Some(_), None) => {
                add_error(".jwks_url", "cannot be fetched here; set `jwks_file`".to_owned());
                None
            }
            _ => {
                add_error("", "set either `jwks_url` or `jwks_file`".to_owned());
                None
            }
        };
        let keys = source.map(|source| Arc::new(IssuerKeys::new(source)));
        if let (Some(keys), Some(_)) = (&keys, &config.jwks_file) {
            match keys.fetch().await {
                Err(problem) => add_error(".jwks_file", problem),
                Ok(()) if keys.current().is_empty() => {
                    add_error(".jwks_file", "contains no key for signatures".to_owned());
                }
                Ok(()) => {}
            }
        }
        match keys {
            Some(keys) if errors.is_empty() => Ok(Self { config: config.clone(), keys, seen: DashMap::new() }),
            _ => Err(errors),
        }
    }

    /// Takes over the keys of the same URL.
    pub(super) fn keep_keys_of(&mut self, before: &Self) {
        if self.config.jwks_url.is_some() && self.config.jwks_url == before.config.jwks_url {
            self.keys = Arc::clone(&before.keys);
        }
    }

    /// `digest` is the token's, the key of the cache.
    pub(super) async fn verify(&self, token: &str, digest: &SecretDigest) -> Result<Arc<Caller>, Refusal> {
        let generation = self.keys.current().generation;
        if let Some(seen) = self.seen.get(digest)
            && seen.generation == generation
            && now() < seen.until
        {
            return Ok(seen.caller.clone());
        }
        let header = decode_header(token).map_err(|error| refusal(error.kind()))?;
        check_header(&header)?;
        let (claims, generation) = self.check_signature(token, &header, &self.config.audience).await?;
        let caller = self.caller(&claims)?;
        let caller = Arc::new(Caller::clone(&caller).with_token(self.subject_token(token, &claims, &caller)));
        self.remember(*digest, Seen { caller: caller.clone(), generation, until: self.until(&claims) });
        Ok(caller)
    }

    /// The caller of an ID token for this client (OpenID Connect Core 1.0 §3.1.3.7), and until when its sign-in counts: the
    /// token itself says only when the caller signed in.
    pub(super) async fn verify_id_token(
        &self,
        token: &str,
        client: &str,
        nonce: &str,
    ) -> Result<(Arc<Caller>, Lifetime), Refusal> {
        let header = decode_header(token).map_err(|error| refusal(error.kind()))?;
        check_header(&header)?;
        let (claims, _generation) = self.check_signature(token, &header, client).await?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let is_nonce = text("nonce").is_some_and(|found| bool::from(found.as_bytes().ct_eq(nonce.as_bytes())));
        if !is_nonce {
            return Err(Refusal("the ID token is of another sign-in; sign in again"));
        }
        let is_shared = claims.get("aud").and_then(Value::as_array).is_some_and(|audiences| audiences.len() > 1);
        if (is_shared || claims.contains_key("azp")) && text("azp") != Some(client) {
            return Err(Refusal("the ID token was issued to another client (`azp`)"));
        }
        Ok((self.caller(&claims)?, Lifetime { issuer: self.config.issuer.clone(), until: u64::MAX }))
    }

    /// How long a token that was just verified is valid.
    pub(super) fn lifetime(&self, digest: &SecretDigest) -> Option<Lifetime> {
        Some(Lifetime { issuer: self.config.issuer.clone(), until: self.seen.get(digest)?.until })
    }

    pub(super) fn is_within(&self, lifetime: &Lifetime) -> bool {
        lifetime.issuer == self.config.issuer && now() < lifetime.until
    }

    async fn check_signature(&self, token: &str, header: &Header, audience: &str) -> Result<(Claims, u64), Refusal> {
        let id = header.kid.as_deref();
        let (mut keys, mut failure) = (self.keys.current(), None);
        if keys.find(id, header.alg).is_none() {
            (keys, failure) = self.keys.renewed().await;
        }
        let unknown = "the token is signed with a key or algorithm that its issuer does not publish; get a new token";
        let key = keys.find(id, header.alg);
        let key = key.ok_or_else(|| Refusal(failure.map_or(unknown, KeyFetchFailure::message)))?;
        let data = decode::<Claims>(token, key, &self.validation(header.alg, audience))
            .map_err(|error| refusal(error.kind()))?;
        Ok((data.claims, keys.generation))
    }

    fn validation(&self, algorithm: Algorithm, audience: &str) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&[audience]);
        validation.leeway = self.config.leeway_seconds;
        validation.validate_nbf = true;
        validation
    }

    fn caller(&self, claims: &Claims) -> Result<Arc<Caller>, Refusal> {
        // The library also accepts a list of issuers, which RFC 7519 does not define.
        if claims.get("iss").and_then(Value::as_str) != Some(&self.config.issuer) {
            return Err(refusal(&ErrorKind::InvalidIssuer));
        }
        let id = claims.get("sub").and_then(Value::as_str).ok_or(Refusal("the token's `sub` must be a string"))?;
        let tenant = match claims.get(&self.config.tenant_claim) {
            None | Some(Value::Null) => "default",
            Some(Value::String(tenant)) => tenant,
            Some(_) => return Err(Refusal("the token's tenant claim must be a string")),
        };
        let roles = roles(claims.get(&self.config.roles_claim))
            .ok_or(Refusal("the token's roles claim must be a list of strings, or one string separated by spaces"))?;
        identity::checked(Caller::of_issuer(&self.config.issuer, id, tenant, roles)).map_err(Refusal)
    }

    /// The token of a caller, verified before.
    fn subject_token(&self, token: &str, claims: &Claims, caller: &Caller) -> SubjectToken {
        let audiences = match claims.get("aud") {
            Some(Value::Array(audiences)) => audiences.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            audience => audience.and_then(Value::as_str).map(str::to_owned).into_iter().collect(),
        };
        SubjectToken {
            text: token.to_owned(),
            issuer: self.config.issuer.clone(),
            subject: caller.id.to_string(),
            audiences,
            expires: self.until(claims).saturating_sub(self.config.leeway_seconds),
        }
    }

    /// Verified before: `exp` exists and is a number.
    fn until(&self, claims: &Claims) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, which is meant")]
        let seconds = |number: f64| number as u64;
        let expiry = claims.get("exp").and_then(|exp| exp.as_u64().or_else(|| exp.as_f64().map(seconds)));
        expiry.unwrap_or(0).saturating_add(self.config.leeway_seconds)
    }

    fn remember(&self, digest: SecretDigest, seen: Seen) {
        if self.seen.len() >= MAX_SEEN {
            let now = now();
            self.seen.retain(|_, seen| now < seen.until);
            if self.seen.len() >= MAX_SEEN {
                self.seen.clear();
            }
        }
        self.seen.insert(digest, seen);
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tokens").field("issuer", &self.config.issuer).finish_non_exhaustive()
    }
}

/// The end of a token of an issuer.
#[derive(Debug, Clone)]
pub(super) struct Lifetime {
    issuer: String,
    /// Seconds since 1970.
    until: u64,
}

fn check_header(header: &Header) -> Result<(), Refusal> {
    if header.alg.family() == AlgorithmFamily::Hmac {
        return Err(Refusal("the token is not signed with a key pair (RS, PS, ES or EdDSA), the only accepted kind"));
    }
    if header.crit.is_some() {
        // RFC 7515, 4.1.11: unsupported extensions in this list must be refused.
        return Err(Refusal("the token requires extensions (`crit`) that this service does not support"));
    }
    Ok(())
}

/// `None` for anything but a list of strings or one string; no roles without the claim.
fn roles(claim: Option<&Value>) -> Option<Vec<String>> {
    match claim {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::String(roles)) => Some(roles.split_ascii_whitespace().map(str::to_owned).collect()),
        Some(Value::Array(roles)) => roles.iter().map(|role| role.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

fn refusal(kind: &ErrorKind) -> Refusal {
    Refusal(match kind {
        ErrorKind::ExpiredSignature => "the token has expired; get a new one",
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidIssuer => "the token is not from the issuer that this service trusts",
        ErrorKind::InvalidAudience => "the token is not meant for this service (its audience is another)",
        ErrorKind::InvalidSignature => "the token's signature is wrong",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks one of the claims `exp`, `iss`, `aud` and `sub`",
        _ => "the bearer is neither a valid API key nor a well-formed token",
    })
}

/// Seconds since 1970, by the clock that expiry dates are about.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
