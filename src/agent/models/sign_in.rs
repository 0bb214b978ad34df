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
///
/// # Errors
/// The file cannot be read.
async fn token_in(file: &Path) -> Result<String, ModelError> {
    let text = tokio::fs::read_to_string(file).await;
    let text = text.map_err(|error| ModelError::Refused(format!("the token in {}: {error}", file.display())))?;
    Ok(text.trim().to_owned())
}

/// The token for a form with a secret.
///
/// # Errors
/// The service gives none.
async fn granted(outbound: &Outbound, url: Url, form: String, secret: &str) -> Result<Granted, ModelError> {
    let answer = posted(outbound, url, ("application/x-www-form-urlencoded", form, None), secret).await?;
    serde_json::from_slice(&answer)
        .map_err(|_| ModelError::Garbled("the answer of the token service has no token".into()))
}

/// The answer of a token service to a body of this type, with a header `Authorization` or without.
///
/// # Errors
/// The service cannot be reached, or refuses.
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
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let said =
        format!("the access token: HTTP {}: {} {}", answer.status.as_u16(), text("error"), text("error_description"));
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
mod tests {
    use std::collections::HashMap;

    use axum::Router;
    use axum::response::{IntoResponse, Response};
    use jsonwebtoken::Algorithm;
    use sekisho_config::{OutboundConfig, Secret};
    use sekisho_core::checkout::checkout;
    use sekisho_outbound::test_server;
    use serde_json::json;

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
            ..SignInConfig::default()
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

    /// The platform renews the token in its file: each request to the service has the one of then.
    #[tokio::test]
    async fn a_workload_of_azure_shows_the_token_of_its_file_in_place_of_a_secret() {
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let (url, forms) = service(60).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("azure-identity-token");
        let config =
            SignInConfig { client_secret: None, client_assertion_file: Some(file.clone()), ..client(&url, "").0 };
        let sign_in = SignIn(config);
        let refused = sign_in.token(&outbound).await.unwrap_err();
        assert!(matches!(&refused, ModelError::Refused(said) if said.contains("azure-identity-token")), "{refused}");
        for (number, token) in ["eyJ.one.s", "eyJ.two.s"].into_iter().enumerate() {
            std::fs::write(&file, format!("{token}\n")).unwrap();
            assert_eq!(sign_in.token(&outbound).await.unwrap(), format!("token-{}", number + 1));
            let form = forms.lock()[number].clone();
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            assert_eq!((&*form["client_assertion"], &*form["client_assertion_type"]), (token, kind));
            assert!(form["grant_type"] == "client_credentials" && !form.contains_key("client_secret"), "{form:?}");
        }
    }

    /// As Google's tools write the file: for the pool alone, and for a service account.
    #[tokio::test]
    async fn a_workload_of_another_platform_exchanges_its_token_at_google() {
        let outbound = Outbound::new(&OutboundConfig::default()).unwrap();
        let (url, forms) = service(3_600).await;
        let impersonated = Arc::<parking_lot::Mutex<Vec<(String, Value)>>>::default();
        let seen = Arc::clone(&impersonated);
        let generate = move |headers: http::HeaderMap, body: Bytes| async move {
            let bearer = headers["authorization"].to_str().unwrap().to_owned();
            seen.lock().push((bearer, serde_json::from_slice(&body).unwrap()));
            json!({"accessToken": "of-the-account", "expireTime": "2999-01-01T00:00:00Z"}).to_string()
        };
        let account = test_server::serve(Router::new().fallback(generate)).await;
        let folder = tempfile::tempdir().unwrap();
        let (file, token) = (folder.path().join("google.json"), folder.path().join("token"));
        let audience = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/k";
        for (number, (text, source, impersonates, expected)) in [
            ("eyJ.sub.s\n", json!({"file": token}), false, Ok("token-1")),
            (
                r#"{"t": "eyJ.sub.s"}"#,
                json!({"file": token, "format": {"type": "json", "subject_token_field_name": "t"}}),
                true,
                Ok("of-the-account"),
            ),
            (
                "{}",
                json!({"file": token, "format": {"type": "json", "subject_token_field_name": "t"}}),
                false,
                Err("no member"),
            ),
            ("", json!({"url": "http://169.254.169.254/token"}), false, Err("only tokens in files")),
        ]
        .into_iter()
        .enumerate()
        {
            std::fs::write(&token, text).unwrap();
            let mut credentials = json!({"type": "external_account", "audience": audience, "token_url": url,
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": source});
            if impersonates {
                credentials["service_account_impersonation_url"] =
                    format!("http://{account}/a:generateAccessToken").into();
            }
            std::fs::write(&file, credentials.to_string()).unwrap();
            // Another key of the kept tokens for each.
            let scopes = vec![format!("scope-{number}")];
            let config = SignInConfig {
                service_account_file: Some(file.clone()),
                scopes: scopes.clone(),
                ..SignInConfig::default()
            };
            match (SignIn(config).token(&outbound).await, expected) {
                (Ok(token), Ok(expected)) => assert_eq!(token, expected),
                (Err(ModelError::Refused(said)), Err(part)) => assert!(said.contains(part), "{said}"),
                (found, _) => panic!("{number}: {found:?}"),
            }
            let Some(form) = forms.lock().get(number).cloned() else { continue };
            assert_eq!(
                (&*form["grant_type"], &*form["subject_token"]),
                ("urn:ietf:params:oauth:grant-type:token-exchange", "eyJ.sub.s")
            );
            assert_eq!(form["audience"], audience);
            let scope =
                if impersonates { "https://www.googleapis.com/auth/cloud-platform" } else { scopes[0].as_str() };
            assert_eq!(form["scope"], scope);
        }
        let expected = ("Bearer token-2".to_owned(), json!({"scope": ["scope-1"], "lifetime": "3600s"}));
        assert_eq!(*impersonated.lock(), [expected]);
    }
}
