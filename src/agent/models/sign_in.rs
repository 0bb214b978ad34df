//! Access tokens of a provider, by client credentials (RFC 6749 §4.4), with a secret or the token of a workload (RFC 7523 §2.2,
//! <https://learn.microsoft.com/en-us/entra/identity-platform/v2-oauth2-client-creds-grant-flow#third-case-access-token-request-with-a-federated-credential>),
//! or by a file of Google's tools.

mod google;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use url::{Url, form_urlencoded};

use super::ModelError;
use sekisho_config::{AgentProfile, SignInConfig};
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::Deadline;
use sekisho_core::redaction::SentSecrets;
use sekisho_outbound::{Outbound, OutboundRequest, Trust};

/// How long the token may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Tokens are replaced before they expire.
const MARGIN: Duration = Duration::from_secs(120);

/// The lifetime of a token whose answer has none.
const DEFAULT_LIFETIME: u64 = 300;

/// Maximum bytes of the service's answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Maximum sign-ins whose tokens are kept; then those that no request waits for go, or all. They are fetched again.
const MAX_SIGN_INS: usize = 1_000;

/// The tokens of all profiles, which live longer than a run. Whoever has the lock of one fetches it for all who wait.
static TOKENS: LazyLock<parking_lot::Mutex<BoundedMap<[String; 4], SharedToken>>> =
    LazyLock::new(|| parking_lot::Mutex::new(BoundedMap::new(MAX_SIGN_INS)));

type SharedToken = Arc<Mutex<Option<Token>>>;

struct Token {
    text: String,
    until: Instant,
}

/// The sign-in of a profile.
#[derive(Clone)]
pub(super) struct SignIn(SignInConfig);

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    /// Seconds: a number, or a text with one, as from the first version of Microsoft's service.
    expires_in: Option<Value>,
}

impl Granted {
    fn lifetime(&self) -> Duration {
        let number = |seconds: &Value| seconds.as_u64().or_else(|| seconds.as_str()?.parse().ok());
        Duration::from_secs(self.expires_in.as_ref().and_then(number).unwrap_or(DEFAULT_LIFETIME))
    }
}

impl SignIn {
    pub(super) fn of(profile: &AgentProfile) -> Option<Self> {
        profile.sign_in.clone().map(Self)
    }

    /// An access token, a new one if the last expires soon.
    /// Errors: the key file cannot be used, or the service gives no token.
    pub(super) async fn token(&self, outbound: &Outbound) -> Result<String, ModelError> {
        let shared = self.shared();
        // One request at a time: others wait for its token.
        let mut token = shared.lock().await;
        if let Some(token) = token.as_ref().filter(|token| token.until > Instant::now() + MARGIN) {
            return Ok(token.text.clone());
        }
        let granted = self.fetch(outbound).await?;
        let until = Instant::now().checked_add(granted.lifetime()).unwrap_or_else(Instant::now);
        *token = Some(Token { text: granted.access_token.clone(), until });
        Ok(granted.access_token)
    }

    fn shared(&self) -> SharedToken {
        let Self(config) = self;
        let shown = |file: &Option<PathBuf>| file.as_ref().map(|file| file.display().to_string());
        let secret = config.client_secret.as_ref().map(|secret| hex::encode(Sha256::digest(secret.expose())));
        let secret = secret.or_else(|| shown(&config.client_assertion_file));
        let file = shown(&config.service_account_file);
        let place = config.token_url.as_ref().map(Url::to_string).or(file).unwrap_or_default();
        let client = config.client_id.clone().unwrap_or_default();
        let key = [place, client, secret.unwrap_or_default(), config.scopes.join(" ")];
        let mut all = TOKENS.lock();
        if let Some(token) = all.get(&key) {
            return Arc::clone(token);
        }
        let token = SharedToken::default();
        all.insert_or_clear(key, Arc::clone(&token), |token| Arc::strong_count(token) == 1);
        token
    }

    async fn fetch(&self, outbound: &Outbound) -> Result<Granted, ModelError> {
        let Self(config) = self;
        let url = match (&config.service_account_file, &config.token_url) {
            (Some(file), _) => return google::token(outbound, file, &config.scopes).await,
            (None, Some(url)) => url,
            (None, None) => return Err(ModelError::Refused("the profile's `sign_in` has no `token_url`".into())),
        };
        let secret = match (&config.client_assertion_file, &config.client_secret) {
            (Some(file), _) => token_in(file).await?,
            (None, secret) => secret.as_ref().map(|secret| secret.expose().to_owned()).unwrap_or_default(),
        };
        granted(outbound, url.clone(), form_of(config, &secret), &secret).await
    }
}

/// The form of client credentials, with a secret or the token of a workload.
fn form_of(config: &SignInConfig, secret: &str) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    form.append_pair("client_id", config.client_id.as_deref().unwrap_or_default());
    form.append_pair("scope", &config.scopes.join(" "));
    if config.client_assertion_file.is_some() {
        form.append_pair("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        form.append_pair("client_assertion", secret);
    } else {
        form.append_pair("client_secret", secret);
    }
    form.finish()
}

/// A token that a platform keeps in a file, and renews there.
/// Errors: the file cannot be read, or is empty.
async fn token_in(file: &Path) -> Result<String, ModelError> {
    let refused = |problem: &str| ModelError::Refused(format!("the token in {}: {problem}", file.display()));
    let text = tokio::fs::read_to_string(file).await.map_err(|error| refused(&error.to_string()))?;
    match text.trim() {
        "" => Err(refused("the file is empty")),
        token => Ok(token.to_owned()),
    }
}

/// The token for a form with a secret.
/// Errors: the service gives none.
async fn granted(outbound: &Outbound, url: Url, form: String, secret: &str) -> Result<Granted, ModelError> {
    let answer = posted(outbound, url, ("application/x-www-form-urlencoded", form, None), secret).await?;
    serde_json::from_slice(&answer)
        .map_err(|_| ModelError::Garbled("the answer of the token service has no token".into()))
}

/// The answer of a token service to a body of this type, with a header `Authorization` or without.
/// Errors: the service cannot be reached, or refuses.
async fn posted(
    outbound: &Outbound,
    url: Url,
    (content_type, body, authorization): (&'static str, String, Option<HeaderValue>),
    secret: &str,
) -> Result<Bytes, ModelError> {
    let mut request = OutboundRequest {
        method: Method::POST,
        body: Some(Bytes::from(body)),
        secrets: Some(Arc::from([secret.to_owned()])),
        max_response_bytes: MAX_ANSWER_BYTES,
        trust: Trust::Operator,
        ..OutboundRequest::get(url, Deadline::after(TIMEOUT))
    };
    request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    request.headers.extend(authorization.map(|value| (header::AUTHORIZATION, value)));
    let answer = outbound
        .send(request)
        .await
        .map_err(|error| ModelError::Unavailable(format!("the access token cannot be had: {}", error.message())))?;
    if answer.status.is_success() {
        return Ok(answer.body);
    }
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // Google's other services have an object there.
    let error = &body["error"];
    let (name, why) = match error["message"].as_str() {
        Some(message) => (text(&error["status"]), message.to_owned()),
        None => (text(error), text(&body["error_description"])),
    };
    let said = format!("the access token: HTTP {}: {name} {why}", answer.status.as_u16());
    let mut secrets = SentSecrets::default();
    secrets.add(secret);
    let said: String = secrets.strike(&said).chars().take(500).collect();
    Err(if answer.status.is_server_error() { ModelError::Unavailable(said) } else { ModelError::Refused(said) })
}

impl fmt::Debug for SignIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SignIn")
    }
}

#[cfg(test)]
mod tests;
