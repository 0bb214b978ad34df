//! Tokens that only their issuer can read: the gateway asks the issuer about them (token introspection, RFC 7662).

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::Refusal;
use super::claims::{self, Claims};
use super::discovery::Discovery;
use super::issuer_client::{IssuerClient, IssuerError, IssuerFailure, IssuerRequest, TokenQuestion};
use super::jwt::refusal;
use super::seen::now;
use sekisho_config::{IntrospectionConfig, JwtConfig};
use sekisho_core::caller::Owner;
use sekisho_core::json;
use sekisho_core::share::{Lease, Share};
use sekisho_outbound::Trust;

/// How long an answer counts, so that a revoked token is soon refused.
pub(super) const ANSWER_TTL: Duration = Duration::from_secs(30);

/// Maximum time that a request waits for the issuer, and for its turn to ask.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Questions under way at once. A client that sends made-up tokens delays only its own requests.
const MAX_QUESTIONS: u64 = 16;

/// Failures are logged once in this time: each request with an unknown token may cause one.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// The questions to one issuer.
pub(super) struct Introspection {
    client: Arc<dyn IssuerClient>,
    config: IntrospectionConfig,
    discovery: Option<Arc<Discovery>>,
    questions: Arc<Share>,
    /// When a failure was logged last.
    logged: Mutex<Option<Instant>>,
}

/// The right to ask the issuer, until it is dropped.
pub(super) struct Turn {
    _lease: Lease,
    until: Instant,
}

impl Introspection {
    /// `discovery` finds the address where the configuration has none.
    pub(super) fn new(
        config: &IntrospectionConfig,
        client: Arc<dyn IssuerClient>,
        discovery: Option<Arc<Discovery>>,
    ) -> Self {
        let (config, questions) = (config.clone(), Share::new(MAX_QUESTIONS));
        Self { client, config, discovery, questions, logged: Mutex::default() }
    }

    /// Waits for the turn of this owner.
    /// Errors: its turn did not come in time.
    pub(super) async fn turn(&self, owner: &Owner) -> Result<Turn, Refusal> {
        let until = Instant::now() + ASK_TIMEOUT;
        let lease = self.questions.acquire(owner, 1, usize::MAX, until).await;
        let lease = lease.map_err(|_| Refusal(message(IssuerFailure::NoAnswer)))?;
        Ok(Turn { _lease: lease, until })
    }

    /// The issuer's answer about an active token.
    /// Errors: the token is not active, or nobody knows.
    pub(super) async fn ask(&self, token: &str, turn: &Turn) -> Result<Claims, Refusal> {
        let asked = timeout_at(turn.until, self.answer(token)).await;
        let answer = asked.unwrap_or_else(|_| Err(IssuerError::late(ASK_TIMEOUT)));
        match answer.and_then(|text| read(&text)) {
            Ok(Some(claims)) => Ok(claims),
            Ok(None) => Err(Refusal("the token is not active: it has expired or was revoked; get a new one")),
            Err(error) => {
                self.log(&error);
                Err(Refusal(message(error.kind)))
            }
        }
    }

    async fn answer(&self, token: &str) -> Result<Vec<u8>, IssuerError> {
        let (url, trust) = self.address().await?;
        let question = Some(TokenQuestion::new(&self.config, token));
        self.client.ask(IssuerRequest { url, trust, question }).await
    }

    async fn address(&self) -> Result<(Url, Trust), IssuerError> {
        match (&self.config.url, &self.discovery) {
            (Some(url), _) => Ok((url.clone(), Trust::Operator)),
            (None, Some(discovery)) => discovery.introspection().await,
            (None, None) => Err(IssuerError::wrong("`introspection.url` is not set")),
        }
    }

    fn log(&self, error: &IssuerError) {
        let mut logged = self.logged.lock();
        if logged.is_none_or(|at| at.elapsed() >= LOG_PAUSE) {
            *logged = Some(Instant::now());
            tracing::warn!(%error, "the issuer of a token could not be asked about it; the token is refused");
        }
    }
}

/// Checks the claims of an active token. `iss` and `exp` may be missing (RFC 7662 §2.2): its issuer says that it is active.
/// Errors: it is not for this service, or not of this moment.
pub(super) fn check(claims: &Claims, config: &JwtConfig) -> Result<(), Refusal> {
    let present = |name: &str| claims.get(name).filter(|claim| !claim.is_null());
    if present("iss").is_some_and(|issuer| issuer.as_str() != Some(&config.issuer)) {
        return Err(refusal(&ErrorKind::InvalidIssuer));
    }
    if !claims::audiences(claims).iter().any(|audience| config.audience.iter().any(|own| own == audience)) {
        return Err(refusal(&ErrorKind::InvalidAudience));
    }
    let is_bearer = |kind: &Value| kind.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
    if present("token_type").is_some_and(|kind| !is_bearer(kind)) {
        return Err(Refusal("the token is not a bearer token (`token_type`)"));
    }
    let (now, leeway) = (now(), config.leeway_seconds);
    // A claim that is there and is no moment is refused.
    let moment = |name: &str| present(name).map(|claim| claims::seconds(Some(claim)));
    if moment("exp").is_some_and(|exp| exp.is_none_or(|exp| exp.saturating_add(leeway) <= now)) {
        return Err(refusal(&ErrorKind::ExpiredSignature));
    }
    if moment("nbf").is_some_and(|nbf| nbf.is_none_or(|nbf| nbf > now.saturating_add(leeway))) {
        return Err(refusal(&ErrorKind::ImmatureSignature));
    }
    Ok(())
}

/// The claims of an active token; `None` for one that is not active.
/// Errors: not an answer of RFC 7662 §2.2.
fn read(answer: &[u8]) -> Result<Option<Claims>, IssuerError> {
    let claims: Claims = json::parse_as(answer)
        .map_err(|error| IssuerError::wrong(format!("not an introspection response: {error}")))?;
    match claims.get("active") {
        Some(Value::Bool(true)) => Ok(Some(claims)),
        Some(Value::Bool(false)) => Ok(None),
        _ => Err(IssuerError::wrong("the introspection response has no `active`")),
    }
}

fn message(failure: IssuerFailure) -> &'static str {
    match failure {
        IssuerFailure::NoConnection => {
            "the token's issuer could not be asked about it: connection failed; \
             the token was not checked; try again in a moment"
        }
        IssuerFailure::NoAnswer => {
            "the token's issuer could not be asked about it: no response in time; \
             the token was not checked; try again in a moment"
        }
        IssuerFailure::WrongAnswer => {
            "the token's issuer could not be asked about it: its response says nothing of the token; \
             the token was not checked; try again in a moment"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_that_is_said_to_be_active_has_claims() {
        let said = |text: &str| read(text.as_bytes()).map(|claims| claims.map(|claims| claims["sub"].clone()));
        assert_eq!(said(r#"{"active": true, "sub": "ann"}"#), Ok(Some("ann".into())));
        assert_eq!(said(r#"{"active": false, "sub": "ann"}"#), Ok(None));
        for nonsense in [
            "",
            "true",
            "[]",
            "{}",
            r#"{"sub": "ann"}"#,
            r#"{"active": "true", "sub": "ann"}"#,
            r#"{"active": 1, "sub": "ann"}"#,
            r#"{"active": null, "sub": "ann"}"#,
            r#"{"active": false, "active": true, "sub": "ann"}"#,
            "<html>",
        ] {
            assert!(said(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn hostile_bytes_as_an_introspection_response() {
        let seed: &[u8] = br#"{"active": true, "sub": "ann", "aud": ["a", "b"], "exp": 1.5e9, "scope": "read write"}"#;
        sekisho_core::fuzz::feed(&[seed], |bytes| {
            if let Ok(Some(claims)) = read(bytes) {
                assert_eq!(claims["active"], true);
            }
        });
    }
}
