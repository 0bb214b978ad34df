//! Access tokens of a provider, by client credentials (RFC 6749 §4.4) or as a service account of Google (RFC 7523,
//! <https://developers.google.com/identity/protocols/oauth2/service-account#httprest>).

use std::fmt;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, header};
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Deserialize;
use serde_json::{Value, json};
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

/// Seconds for which a service account asks: Google's maximum.
const ASSERTION_SECONDS: i64 = 3_600;

/// The scope of a service account that names none.
const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

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

/// The key file of a service account.
#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    token_uri: Url,
}

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
    ///
    /// # Errors
    /// The key file cannot be used, or the service gives no token.
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
        let secret = config.client_secret.as_ref().map(|secret| hex::encode(Sha256::digest(secret.expose())));
        let file = config.service_account_file.as_ref().map(|file| file.display().to_string());
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
        let (url, form, secret) = match (&config.service_account_file, &config.token_url) {
            (Some(file), _) => assertion_of(file, &config.scopes).await?,
            (None, Some(url)) => {
                let secret = config.client_secret.as_ref().map(|secret| secret.expose().to_owned()).unwrap_or_default();
                let form = form_urlencoded::Serializer::new(String::new())
                    .append_pair("grant_type", "client_credentials")
                    .append_pair("client_id", config.client_id.as_deref().unwrap_or_default())
                    .append_pair("client_secret", &secret)
                    .append_pair("scope", &config.scopes.join(" "))
                    .finish();
                (url.clone(), form, secret)
            }
            (None, None) => return Err(ModelError::Refused("the profile's `sign_in` has no `token_url`".into())),
        };
        let mut request = OutboundRequest {
            method: Method::POST,
            body: Some(Bytes::from(form)),
            secrets: Some(Arc::from([secret.clone()])),
            max_response_bytes: MAX_ANSWER_BYTES,
            trust: Trust::Operator,
            ..OutboundRequest::get(url, Deadline::after(TIMEOUT))
        };
        let content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers.insert(header::CONTENT_TYPE, content_type);
        let answer = outbound
            .send(request)
            .await
            .map_err(|error| ModelError::Unavailable(format!("the access token cannot be had: {}", error.message())))?;
        if answer.status.is_success() {
            let granted = serde_json::from_slice(&answer.body);
            return granted.map_err(|_| ModelError::Garbled("the answer of the token service has no token".into()));
        }
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let said = format!(
            "the access token: HTTP {}: {} {}",
            answer.status.as_u16(),
            text("error"),
            text("error_description")
        );
        let mut secrets = SentSecrets::default();
        secrets.add(&secret);
        let said: String = secrets.strike(&said).chars().take(500).collect();
        Err(if answer.status.is_server_error() { ModelError::Unavailable(said) } else { ModelError::Refused(said) })
    }
}

/// The address, the form, and the signed assertion in it.
///
/// # Errors
/// The file cannot be read, or has no key of RSA.
async fn assertion_of(file: &Path, scopes: &[String]) -> Result<(Url, String, String), ModelError> {
    let refused = |problem: &str| ModelError::Refused(format!("the service account {}: {problem}", file.display()));
    let text = tokio::fs::read(file).await.map_err(|error| refused(&error.to_string()))?;
    let account: ServiceAccount = serde_json::from_slice(&text).map_err(|_| refused("it is no key file in JSON"))?;
    let key = EncodingKey::from_rsa_pem(account.private_key.as_bytes()).map_err(|_| refused("it has no key of RSA"))?;
    let scope = if scopes.is_empty() { CLOUD_PLATFORM.to_owned() } else { scopes.join(" ") };
    let issued = Timestamp::now().as_second();
    let claims = json!({
        "iss": account.client_email,
        "scope": scope,
        "aud": account.token_uri,
        "iat": issued,
        "exp": issued.saturating_add(ASSERTION_SECONDS),
    });
    let header = Header { kid: account.private_key_id, ..Header::new(Algorithm::RS256) };
    let assertion = jsonwebtoken::encode(&header, &claims, &key).map_err(|_| refused("its key cannot sign"))?;
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
        .append_pair("assertion", &assertion)
        .finish();
    Ok((account.token_uri, form, assertion))
}

impl fmt::Debug for SignIn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SignIn")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use axum::Router;
    use axum::response::{IntoResponse, Response};
    use sekisho_config::{OutboundConfig, Secret};
    use sekisho_core::checkout::checkout;
    use sekisho_outbound::test_server;

    use super::*;

    type Forms = Arc<parking_lot::Mutex<Vec<HashMap<String, String>>>>;

    /// A token service, and the forms that it got. Its tokens have a number.
    async fn service(lifetime: u64) -> (Url, Forms) {
        let forms = Forms::default();
        let seen = Arc::clone(&forms);
        let respond = move |body: Bytes| async move {
            let form: HashMap<_, _> = form_urlencoded::parse(&body).into_owned().collect();
            let mut seen = seen.lock();
            let is_known = form.get("client_secret").is_none_or(|secret| secret == "s3cret-of-the-client");
            seen.push(form);
            respond_with(is_known.then_some((seen.len(), lifetime)))
        };
        let address = test_server::serve(Router::new().fallback(respond)).await;
        (Url::parse(&format!("http://{address}/token")).unwrap(), forms)
    }

    fn respond_with(granted: Option<(usize, u64)>) -> Response {
        match granted {
            Some((number, lifetime)) => {
                json!({"access_token": format!("token-{number}"), "expires_in": lifetime}).to_string().into_response()
            }
            None => {
                let body = json!({"error": "invalid_client", "error_description": "wrong: no-secret-at-all"});
                (http::StatusCode::UNAUTHORIZED, body.to_string()).into_response()
            }
        }
    }

    fn client(token_url: &Url, secret: &str) -> SignIn {
        SignIn(SignInConfig {
            token_url: Some(token_url.clone()),
            client_id: Some("gateway".into()),
            client_secret: Some(Secret::new(secret)),
            scopes: vec!["a".into(), "b".into()],
            service_account_file: None,
        })
    }

    #[tokio::test]
    async fn a_token_of_client_credentials_is_kept_until_it_expires() {
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        for (lifetime, expected) in [(3_600, ["token-1", "token-1"]), (60, ["token-1", "token-2"])] {
            let (url, forms) = service(lifetime).await;
            let sign_in = client(&url, "s3cret-of-the-client");
            let tokens = [sign_in.token(&outbound).await.unwrap(), sign_in.token(&outbound).await.unwrap()];
            assert_eq!(tokens, expected, "{lifetime}");
            let form = forms.lock()[0].clone();
            assert_eq!((&*form["grant_type"], &*form["client_id"]), ("client_credentials", "gateway"));
            assert_eq!(form["scope"], "a b");
        }
        let (url, _) = service(3_600).await;
        let refused = client(&url, "no-secret-at-all").token(&outbound).await.unwrap_err();
        let expected = "the access token: HTTP 401: invalid_client wrong: [redacted]";
        assert_eq!(refused, ModelError::Refused(expected.into()));
    }

    #[test]
    fn the_lifetime_of_a_token_is_a_number_or_a_text() {
        for (seconds, expected) in
            [(json!(3_600), 3_600), (json!("3599"), 3_599), (json!("soon"), 300), (json!(null), 300)]
        {
            let granted: Granted = serde_json::from_value(json!({"access_token": "t", "expires_in": seconds})).unwrap();
            assert_eq!(granted.lifetime().as_secs(), expected, "{seconds}");
        }
    }

    #[tokio::test]
    async fn a_service_account_signs_an_assertion_with_its_key() {
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let (url, forms) = service(3_600).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("account.json");
        let sign_in = SignIn(SignInConfig { service_account_file: Some(file.clone()), ..SignInConfig::default() });
        assert!(matches!(sign_in.token(&outbound).await, Err(ModelError::Refused(_))), "no file");
        let key = std::fs::read_to_string(checkout().join("tests/fixtures/auth/rsa.pem")).unwrap();
        let account = json!({"type": "service_account", "client_email": "a@b.example", "private_key": key,
            "private_key_id": "k1", "token_uri": url});
        std::fs::write(&file, account.to_string()).unwrap();
        assert_eq!(sign_in.token(&outbound).await.unwrap(), "token-1");
        let form = forms.lock()[0].clone();
        assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
        let header = jsonwebtoken::decode_header(&form["assertion"]).unwrap();
        assert_eq!((header.alg, header.kid.as_deref()), (Algorithm::RS256, Some("k1")));
    }
}
