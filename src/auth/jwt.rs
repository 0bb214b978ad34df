//! The tokens of one issuer. For a JSON Web Token (RFC 7519) signature, issuer, audience and expiry are always checked.
//! The algorithm comes from our list and from the key, never only from the token (RFC 8725). About any other token the
//! issuer is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, AlgorithmFamily, Header, Validation, decode, decode_header};
use serde_json::Value;
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::claims::{self, Claims};
use super::discovery::Discovery;
use super::introspection::{self, ANSWER_TTL, Introspection};
use super::issuer_client::IssuerClient;
use super::jwks::{IssuerKeys, KeySource, message};
use super::seen::{Basis, SeenTokens, now};
use super::token_kind::TypeCheck;
use super::{AuthConfigError, Refusal, SecretDigest, identity, token_kind};
use sekisho_config::{AuthConfig, JwtConfig};
use sekisho_core::call::Caller;
use sekisho_core::caller::{DEFAULT_TENANT, Owner, SubjectToken};
use sekisho_core::token_scopes::TokenScopes;

pub(super) struct Tokens {
    config: JwtConfig,
    /// By scope, the tools that need it.
    needed_scopes: BTreeMap<String, Vec<String>>,
    /// Others may have the same subjects.
    is_one_of_several: bool,
    keys: Arc<IssuerKeys>,
    /// The metadata of an issuer that is an address.
    discovery: Option<Arc<Discovery>>,
    introspection: Option<Introspection>,
    /// Of the gateway's own tokens: where their sessions are looked up.
    sessions: Option<Arc<dyn IssuerClient>>,
    seen: SeenTokens,
}

/// A problem of an issuer's configuration: its place within the settings of the issuer, and its text.
type Problem = (&'static str, String);

/// How long a session counts as going on after it was looked up.
const SESSION_TTL: Duration = Duration::from_secs(5);

/// Clocks that differ by more must be corrected.
const MAX_LEEWAY_SECONDS: u64 = 3_600;

impl Tokens {
    /// `index`: the issuer's place in `auth.jwt`.
    pub(super) async fn new(
        auth: &AuthConfig,
        index: usize,
        client: Option<&Arc<dyn IssuerClient>>,
    ) -> Result<Self, Vec<AuthConfigError>> {
        let config = &auth.jwt[index];
        let mut problems = problems_of(config);
        let discovery = client.filter(|_| config.is_address());
        let discovery = discovery.map(|client| Arc::new(Discovery::new(&config.issuer, Arc::clone(client))));
        let keys = match key_source(config, discovery.as_ref(), client) {
            Ok(source) => Some(Arc::new(IssuerKeys::new(source))),
            Err(problem) => {
                problems.push(problem);
                None
            }
        };
        if let (Some(keys), Some(_)) = (&keys, &config.jwks_file) {
            problems.extend(problem_of_file(keys).await);
        }
        let introspection = match (&config.introspection, client) {
            (Some(settings), Some(client)) => Some(Introspection::new(settings, Arc::clone(client), discovery.clone())),
            (Some(_), None) => {
                problems.push((".introspection", "the issuer cannot be asked here; remove it".to_owned()));
                None
            }
            (None, _) => None,
        };
        match keys {
            Some(keys) if problems.is_empty() => Ok(Self {
                config: config.clone(),
                needed_scopes: auth.scopes.clone(),
                is_one_of_several: auth.jwt.iter().map(JwtConfig::subjects).collect::<BTreeSet<_>>().len() > 1,
                keys,
                discovery,
                introspection,
                sessions: client.filter(|_| config.subjects_of.is_some()).cloned(),
                seen: SeenTokens::default(),
            }),
            _ => {
                let setting = auth.setting_of_issuer(index);
                let placed =
                    |(place, problem): Problem| AuthConfigError { place: format!("{setting}{place}"), problem };
                Err(problems.into_iter().map(placed).collect())
            }
        }
    }

    pub(super) fn issuer(&self) -> &str {
        &self.config.issuer
    }

    /// The issuer's metadata.
    pub(super) fn discovery(&self) -> Option<&Discovery> {
        self.discovery.as_deref()
    }

    /// Itself, with the way to ask the issuer, if it is asked about tokens.
    pub(super) fn introspection(&self) -> Option<(&Self, &Introspection)> {
        self.introspection.as_ref().map(|introspection| (self, introspection))
    }

    /// Takes over the keys of the same address.
    pub(super) fn keep_keys_of(&mut self, before: &Self) {
        let (own, earlier) = (&self.config, &before.config);
        let are_fetched = own.jwks_file.is_none() && earlier.jwks_file.is_none();
        if are_fetched && (&own.issuer, &own.jwks_url) == (&earlier.issuer, &earlier.jwks_url) {
            self.keys = Arc::clone(&before.keys);
        }
    }

    /// The caller of a JSON Web Token. `digest` is the token's, the key of the cache.
    pub(super) async fn verify(&self, token: &str, digest: &SecretDigest) -> Result<Arc<Caller>, Refusal> {
        if let Some(caller) = self.remembered(digest) {
            return Ok(caller);
        }
        let header = decode_header(token).map_err(|error| refusal(error.kind()))?;
        check_header(&header)?;
        token_kind::check_type(&header)?;
        let (claims, generation) = self.check_signature(token, &header, &self.config.audience).await?;
        token_kind::check_claims(&header, &claims)?;
        let caller = self.caller(&claims, self.scopes(&claims))?;
        let basis = match &self.sessions {
            Some(sessions) => basis_of_session(sessions.as_ref(), &claims).await?,
            None => Basis::Keys(generation),
        };
        Ok(self.remember(token, *digest, caller, &claims, basis))
    }

    /// Whether a token may be ended before it expires.
    pub(super) fn has_sessions(&self) -> bool {
        self.sessions.is_some()
    }

    /// The caller of a token that only the issuer can read. While others ask about theirs, `owner` waits for its turn.
    pub(super) async fn introspect(
        &self,
        introspection: &Introspection,
        token: &str,
        digest: &SecretDigest,
        owner: &Owner,
    ) -> Result<Arc<Caller>, Refusal> {
        if let Some(caller) = self.remembered(digest) {
            return Ok(caller);
        }
        let turn = introspection.turn(owner).await?;
        // Another request with this token may have asked meanwhile.
        if let Some(caller) = self.remembered(digest) {
            return Ok(caller);
        }
        let claims = introspection.ask(token, &turn).await?;
        introspection::check(&claims, &self.config)?;
        let caller = self.caller(&claims, self.scopes(&claims))?;
        Ok(self.remember(token, *digest, caller, &claims, Basis::Answer(Instant::now() + ANSWER_TTL)))
    }

    /// The caller of an ID token for this client (OpenID Connect Core 1.0 §3.1.3.7), and until when its sign-in counts:
    /// the token itself says only when the caller signed in. It has no scopes: they restrict clients, and the console
    /// is ours.
    pub(super) async fn verify_id_token(
        &self,
        token: &str,
        client: &str,
        nonce: &str,
    ) -> Result<(Arc<Caller>, Lifetime), Refusal> {
        let claims = self.id_token_claims(token, client, Some(nonce)).await?;
        let caller = self.caller(&claims, TokenScopes::default())?;
        Ok((caller, Lifetime { issuer: self.config.issuer.clone(), until: u64::MAX }))
    }

    /// The claims of an ID token for this client. Without a `nonce` it comes from the refresh of a sign-in (OpenID Connect Core 1.0 §12.2).
    pub(super) async fn id_token_claims(
        &self,
        token: &str,
        client: &str,
        nonce: Option<&str>,
    ) -> Result<Claims, Refusal> {
        let claims = self.claims_for(token, client, |_| Ok(())).await?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let is_equal = |found: &str, nonce: &str| bool::from(found.as_bytes().ct_eq(nonce.as_bytes()));
        if nonce.is_some_and(|nonce| text("nonce").is_none_or(|found| !is_equal(found, nonce))) {
            return Err(Refusal("the ID token is of another sign-in; sign in again"));
        }
        let is_shared = claims.get("aud").and_then(Value::as_array).is_some_and(|audiences| audiences.len() > 1);
        if (is_shared || claims.contains_key("azp")) && text("azp") != Some(client) {
            return Err(Refusal("the ID token was issued to another client (`azp`)"));
        }
        Ok(claims)
    }

    /// The claims of a token for one audience, of a type that is accepted.
    pub(super) async fn claims_for(&self, token: &str, audience: &str, check: TypeCheck) -> Result<Claims, Refusal> {
        let header = decode_header(token).map_err(|error| refusal(error.kind()))?;
        check_header(&header)?;
        check(&header)?;
        Ok(self.check_signature(token, &header, &[audience.to_owned()]).await?.0)
    }

    /// How long a token that was just verified is valid.
    pub(super) fn lifetime(&self, digest: &SecretDigest) -> Option<Lifetime> {
        Some(Lifetime { issuer: self.config.issuer.clone(), until: self.seen.until(digest)? })
    }

    pub(super) fn is_within(&self, lifetime: &Lifetime) -> bool {
        lifetime.issuer == self.config.issuer && now() < lifetime.until
    }

    async fn check_signature(
        &self,
        token: &str,
        header: &Header,
        audiences: &[String],
    ) -> Result<(Claims, u64), Refusal> {
        let id = header.kid.as_deref();
        let (mut keys, mut failure) = (self.keys.current(), None);
        if keys.find(id, header.alg).is_none() {
            (keys, failure) = self.keys.renewed().await;
        }
        let unknown = "the token is signed with a key or algorithm that its issuer does not publish; get a new token";
        let key = keys.find(id, header.alg);
        let key = key.ok_or_else(|| Refusal(failure.map_or(unknown, message)))?;
        let data = decode::<Claims>(token, key, &self.validation(header.alg, audiences))
            .map_err(|error| refusal(error.kind()))?;
        // The library also accepts a list of issuers, which RFC 7519 does not define.
        if data.claims.get("iss").and_then(Value::as_str) != Some(&self.config.issuer) {
            return Err(refusal(&ErrorKind::InvalidIssuer));
        }
        Ok((data.claims, keys.generation))
    }

    fn validation(&self, algorithm: Algorithm, audiences: &[String]) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(audiences);
        validation.leeway = self.config.leeway_seconds;
        validation.validate_nbf = true;
        validation
    }

    fn scopes(&self, claims: &Claims) -> TokenScopes {
        TokenScopes::new(&self.needed_scopes, &claims::scopes(claims))
    }

    fn caller(&self, claims: &Claims, scopes: TokenScopes) -> Result<Arc<Caller>, Refusal> {
        let subject = claims.get("sub").and_then(Value::as_str).ok_or(Refusal("the token's `sub` must be a string"))?;
        let tenant = match claims.get(&self.config.tenant_claim) {
            None | Some(Value::Null) => DEFAULT_TENANT,
            Some(Value::String(tenant)) => tenant,
            Some(_) => return Err(Refusal("the token's tenant claim must be a string")),
        };
        let roles = claims::roles(claims.get(&self.config.roles_claim))
            .ok_or(Refusal("the token's roles claim must be a list of strings, or one string separated by spaces"))?;
        let caller = Caller::of_issuer(self.config.subjects(), subject, tenant, roles).with_scopes(scopes);
        let caller = identity::checked(caller).map_err(Refusal)?;
        match self.is_one_of_several {
            true => identity::checked(Arc::unwrap_or_clone(caller).named_with_issuer()).map_err(Refusal),
            false => Ok(caller),
        }
    }

    /// Removes the cached data of expired tokens.
    pub(super) fn forget_expired(&self) {
        self.seen.forget_expired();
    }

    fn remembered(&self, digest: &SecretDigest) -> Option<Arc<Caller>> {
        self.seen.get(digest, || self.keys.current().generation)
    }

    /// Remembers a verified token: its caller, with the token for upstreams that are called with one made of it.
    fn remember(
        &self,
        token: &str,
        digest: SecretDigest,
        caller: Arc<Caller>,
        claims: &Claims,
        basis: Basis,
    ) -> Arc<Caller> {
        let expires = claims::seconds(claims.get("exp")).unwrap_or_else(|| now() + ANSWER_TTL.as_secs());
        let subject = SubjectToken {
            text: token.to_owned(),
            issuer: self.config.issuer.clone(),
            subject: claims.get("sub").and_then(Value::as_str).unwrap_or_default().to_owned(),
            audiences: claims::audiences(claims).into_iter().map(str::to_owned).collect(),
            expires,
            session: claims::session(claims, self.sessions.as_ref()),
        };
        let caller = Arc::new(Arc::unwrap_or_clone(caller).with_token(subject));
        let until = expires.saturating_add(self.config.leeway_seconds);
        self.seen.insert(digest, Arc::clone(&caller), basis, until);
        caller
    }
}

/// For seconds a token counts by its session; then that is looked up again.
async fn basis_of_session(sessions: &dyn IssuerClient, claims: &Claims) -> Result<Basis, Refusal> {
    let until = Instant::now() + SESSION_TTL;
    let session = claims.get("sid").and_then(Value::as_str).unwrap_or_default();
    match sessions.has_session(session).await {
        Ok(true) => Ok(Basis::Answer(until)),
        Ok(false) => Err(Refusal("the session of the token has ended; sign in again")),
        Err(error) => {
            tracing::warn!(%error, "the session of a token could not be looked up; the token is refused");
            Err(Refusal("the session of the token cannot be looked up now; try again in a moment"))
        }
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

fn problems_of(config: &JwtConfig) -> Vec<Problem> {
    let mut problems = Vec::new();
    if config.issuer.is_empty() {
        problems.push((".issuer", "must not be empty".to_owned()));
    }
    if config.issuer.chars().any(char::is_control) {
        problems.push((".issuer", "must not contain control characters".to_owned()));
    }
    if config.audience.is_empty() || config.audience.iter().any(String::is_empty) {
        problems.push((".audience", "must not be empty".to_owned()));
    }
    if config.leeway_seconds > MAX_LEEWAY_SECONDS {
        problems.push((".leeway_seconds", format!("must be at most {MAX_LEEWAY_SECONDS}")));
    }
    problems
}

fn key_source(
    config: &JwtConfig,
    discovery: Option<&Arc<Discovery>>,
    client: Option<&Arc<dyn IssuerClient>>,
) -> Result<KeySource, Problem> {
    match (&config.jwks_file, &config.jwks_url, client, discovery) {
        (Some(file), None, ..) => Ok(KeySource::File(file.clone())),
        (None, Some(url), Some(client), _) => Ok(KeySource::Url(url.clone(), Arc::clone(client))),
        (None, Some(_), None, _) => Err((".jwks_url", "cannot be fetched here; set `jwks_file`".to_owned())),
        (None, None, _, Some(discovery)) => Ok(KeySource::Discovered(Arc::clone(discovery))),
        _ => Err(("", "set either `jwks_url` or `jwks_file`".to_owned())),
    }
}

/// Reads the keys of a file, at once.
async fn problem_of_file(keys: &Arc<IssuerKeys>) -> Option<Problem> {
    match keys.fetch().await {
        Err(problem) => Some((".jwks_file", problem)),
        Ok(()) if keys.current().is_empty() => Some((".jwks_file", "contains no key for signatures".to_owned())),
        Ok(()) => None,
    }
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

pub(super) fn refusal(kind: &ErrorKind) -> Refusal {
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
