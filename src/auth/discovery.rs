//! The metadata of an issuer: OpenID Connect Discovery 1.0, and OAuth 2.0 Authorization Server Metadata (RFC 8414).

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::issuer_client::{IssuerClient, IssuerError, IssuerFailure, IssuerRequest};
use sekisho_config::is_secure;
use sekisho_core::json;
use sekisho_outbound::Trust;

/// Where an issuer publishes its metadata: behind its path (OpenID Connect Discovery 1.0 §4), and before it (RFC 8414 §3).
const OPEN_ID: &str = "/.well-known/openid-configuration";
const OAUTH: &str = "/.well-known/oauth-authorization-server";

/// Metadata of this age is fetched again.
const OLD: Duration = Duration::from_secs(15 * 60);

/// Pause after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The metadata of one issuer, fetched when it is needed.
pub(super) struct Discovery {
    issuer: String,
    client: Arc<dyn IssuerClient>,
    /// Held during a fetch, so that one fetch serves all.
    last: Mutex<Option<Last>>,
}

/// The last result, and how long it counts.
struct Last {
    result: Result<Arc<IssuerMetadata>, IssuerError>,
    until: Instant,
}

/// The fields of an issuer's metadata that are used.
#[derive(Debug, Deserialize)]
pub(super) struct IssuerMetadata {
    issuer: String,
    #[serde(default)]
    jwks_uri: Option<Url>,
    #[serde(default)]
    introspection_endpoint: Option<Url>,
    /// Texts: an issuer that signs nobody in may write something that is no address.
    #[serde(default)]
    authorization_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint: Option<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

/// Where an issuer signs people in (OpenID Connect Discovery 1.0 §3).
#[derive(Debug, Clone)]
pub struct SignInEndpoints {
    pub issuer: String,
    pub authorization: Url,
    pub token: Url,
    /// It names itself in the address by which a browser comes back (RFC 9207).
    pub names_issuer: bool,
}

impl Discovery {
    pub(super) fn new(issuer: &str, client: Arc<dyn IssuerClient>) -> Self {
        Self { issuer: issuer.to_owned(), client, last: Mutex::default() }
    }

    /// The key set.
    pub(super) async fn keys(&self) -> Result<Vec<u8>, IssuerError> {
        let metadata = self.metadata().await?;
        let url = metadata.jwks_uri.clone().ok_or_else(|| IssuerError::wrong("its metadata has no `jwks_uri`"))?;
        let trust = self.trust_in(&url);
        self.client.ask(IssuerRequest::get(url, trust)).await
    }

    /// Where the issuer is asked about tokens, and whether that address is as trusted as its own.
    pub(super) async fn introspection(&self) -> Result<(Url, Trust), IssuerError> {
        let metadata = self.metadata().await?;
        let url = metadata.introspection_endpoint.clone();
        let url = url.ok_or_else(|| IssuerError::wrong("its metadata has no `introspection_endpoint`"))?;
        let trust = self.trust_in(&url);
        Ok((url, trust))
    }

    /// Where the issuer signs people in.
    pub(super) async fn sign_in(&self) -> Result<SignInEndpoints, IssuerError> {
        let metadata = self.metadata().await?;
        let endpoint = |name: &str, text: Option<&String>| {
            let url = text.and_then(|text| Url::parse(text).ok()).filter(|url| is_permitted(url, &self.issuer));
            url.ok_or_else(|| IssuerError::wrong(format!("its metadata has no `{name}` that is an https address")))
        };
        Ok(SignInEndpoints {
            authorization: endpoint("authorization_endpoint", metadata.authorization_endpoint.as_ref())?,
            token: endpoint("token_endpoint", metadata.token_endpoint.as_ref())?,
            issuer: metadata.issuer.clone(),
            names_issuer: metadata.authorization_response_iss_parameter_supported,
        })
    }

    /// If there is no new metadata, the earlier one counts.
    async fn metadata(&self) -> Result<Arc<IssuerMetadata>, IssuerError> {
        let mut last = self.last.lock().await;
        if let Some(Last { result, until }) = &*last
            && Instant::now() < *until
        {
            return result.clone();
        }
        let fetched = self.fetch().await;
        if let Err(error) = &fetched {
            tracing::warn!(issuer = &*self.issuer, %error, "the metadata of a token issuer could not be fetched");
        }
        let pause = if fetched.is_ok() { OLD } else { RETRY_PAUSE };
        let result = match (fetched, last.take()) {
            (Err(_), Some(Last { result: Ok(known), .. })) => Ok(known),
            (fetched, _) => fetched.map(Arc::new),
        };
        *last = Some(Last { result: result.clone(), until: Instant::now() + pause });
        result
    }

    async fn fetch(&self) -> Result<IssuerMetadata, IssuerError> {
        let mut problems = Vec::new();
        for url in addresses(&self.issuer) {
            let answer = self.client.ask(IssuerRequest::get(url.clone(), Trust::Operator)).await;
            match answer.and_then(|document| read(&self.issuer, &document)) {
                Ok(metadata) => return Ok(metadata),
                // There is none at this address; the other one may have it.
                Err(IssuerError { kind: IssuerFailure::WrongAnswer, cause }) => {
                    problems.push(format!("{url}: {cause}"));
                }
                Err(error) => return Err(error),
            }
        }
        Err(IssuerError::wrong(format!("no metadata of the issuer was found: {}", problems.join("; "))))
    }

    /// The operator chose the issuer, and with it its origin; another one that it names must be public, or permitted.
    fn trust_in(&self, url: &Url) -> Trust {
        let is_own = Url::parse(&self.issuer).is_ok_and(|issuer| issuer.origin() == url.origin());
        if is_own { Trust::Operator } else { Trust::Caller }
    }
}

/// The addresses of an issuer's metadata; none if the issuer is no address.
fn addresses(issuer: &str) -> Vec<Url> {
    let Ok(issuer) = Url::parse(issuer) else { return Vec::new() };
    let path = issuer.path().trim_end_matches('/');
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url
    };
    vec![at(format!("{path}{OPEN_ID}")), at(format!("{OAUTH}{path}"))]
}

/// Errors: the document is not the metadata of this issuer, or names addresses at which anybody in between could
/// answer.
fn read(issuer: &str, document: &[u8]) -> Result<IssuerMetadata, IssuerError> {
    let metadata: IssuerMetadata =
        json::parse_as(document).map_err(|error| IssuerError::wrong(format!("not metadata of an issuer: {error}")))?;
    // RFC 8414 §3.3, OpenID Connect Discovery 1.0 §4.3.
    if metadata.issuer != issuer {
        return Err(IssuerError::wrong(format!("it is of the issuer {:?}", metadata.issuer)));
    }
    let addresses = [&metadata.jwks_uri, &metadata.introspection_endpoint];
    let are_permitted = addresses.into_iter().flatten().all(|url| is_permitted(url, issuer));
    are_permitted.then_some(metadata).ok_or_else(|| IssuerError::wrong("an address in it is not https"))
}

/// Whether an issuer may name this address: over TLS, or like the issuer itself on this machine.
fn is_permitted(url: &Url, issuer: &str) -> bool {
    url.scheme() == "https" || (issuer.starts_with("http://") && is_secure(url))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn document(changes: &serde_json::Value) -> Vec<u8> {
        let mut document = json!({
            "issuer": "https://login.example/tenant", "jwks_uri": "https://keys.example/keys",
            "introspection_endpoint": "https://login.example/introspect", "token_endpoint": "https://login.example/token",
        });
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        document.to_string().into_bytes()
    }

    #[test]
    fn metadata_is_behind_the_path_of_an_issuer_or_before_it() {
        let of = |issuer| addresses(issuer).iter().map(ToString::to_string).collect::<Vec<_>>();
        for issuer in ["https://login.example/", "https://login.example"] {
            let expected = [
                "https://login.example/.well-known/openid-configuration",
                "https://login.example/.well-known/oauth-authorization-server",
            ];
            assert_eq!(of(issuer), expected);
        }
        for issuer in ["https://login.example/a/b", "https://login.example/a/b/"] {
            let expected = [
                "https://login.example/a/b/.well-known/openid-configuration",
                "https://login.example/.well-known/oauth-authorization-server/a/b",
            ];
            assert_eq!(of(issuer), expected);
        }
        assert_eq!(of("login.example"), [""; 0]);
    }

    #[test]
    fn metadata_counts_for_its_own_issuer_and_names_addresses_that_nobody_in_between_can_answer() {
        let read = |changes| read("https://login.example/tenant", &document(&changes)).map_err(|error| error.cause);
        assert_eq!(read(json!({})).unwrap().jwks_uri.unwrap().as_str(), "https://keys.example/keys");
        assert!(read(json!({"jwks_uri": null, "introspection_endpoint": null})).is_ok(), "neither need be there");
        for (changes, why) in [
            (json!({"issuer": "https://login.example/tenant/"}), "it is of the issuer"),
            (json!({"issuer": "https://evil.example"}), "it is of the issuer"),
            (json!({"issuer": 1}), "not metadata"),
            (json!({"jwks_uri": "http://login.example/keys"}), "not https"),
            (json!({"introspection_endpoint": "http://login.example/introspect"}), "not https"),
            (json!({"jwks_uri": "file:///etc/passwd"}), "not https"),
            (json!({"jwks_uri": "http://127.0.0.1/keys"}), "not https"),
            (json!({"jwks_uri": "keys"}), "not metadata"),
        ] {
            let problem = read(changes.clone()).unwrap_err();
            assert!(problem.contains(why), "{changes}: {problem}");
        }
        let twice = br#"{"issuer": "https://login.example/tenant", "issuer": "https://login.example/tenant"}"#;
        assert!(super::read("https://login.example/tenant", twice).is_err());
    }

    /// An issuer that answers with one document, and counts how often it is asked.
    struct Publishing(Vec<u8>, std::sync::atomic::AtomicUsize);

    impl IssuerClient for Publishing {
        fn ask(&self, _request: IssuerRequest) -> futures_util::future::BoxFuture<'_, Result<Vec<u8>, IssuerError>> {
            self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Box::pin(async { Ok(self.0.clone()) })
        }
    }

    fn publishing(issuer: &str, changes: &serde_json::Value) -> (Arc<Publishing>, Discovery) {
        let mut all = json!({"issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize")});
        changes.as_object().unwrap().iter().for_each(|(name, value)| all[name] = value.clone());
        let client = Arc::new(Publishing(document(&all), std::sync::atomic::AtomicUsize::default()));
        (Arc::clone(&client), Discovery::new(issuer, client))
    }

    #[tokio::test]
    async fn a_browser_is_sent_to_an_encrypted_address_or_one_of_this_machine() {
        let (of_web, of_machine) = ("https://login.example", "http://127.0.0.1:8080");
        for (issuer, endpoint, is_permitted) in [
            (of_web, "https://login.example/authorize", true),
            (of_web, "https://other.example/authorize", true),
            (of_web, "http://login.example/authorize", false),
            (of_web, "http://127.0.0.1/authorize", false),
            (of_web, "javascript:alert(1)", false),
            (of_machine, "http://127.0.0.1:9090/authorize", true),
            (of_machine, "http://[::1]/authorize", true),
            (of_machine, "http://localhost/authorize", true),
            (of_machine, "https://login.example/authorize", true),
            (of_machine, "http://login.example/authorize", false),
            (of_machine, "http://10.0.0.1/authorize", false),
            (of_machine, "javascript:alert(1)", false),
            (of_machine, "JavaScript://127.0.0.1/%0Aalert(1)", false),
            (of_machine, "file:///etc/passwd", false),
            (of_machine, "data:text/html,<script>alert(1)</script>", false),
            (of_machine, "/authorize", false),
            (of_machine, "", false),
        ] {
            for name in ["authorization_endpoint", "token_endpoint"] {
                let (_, discovery) = publishing(issuer, &json!({name: endpoint}));
                let found = discovery.sign_in().await;
                assert_eq!(found.is_ok(), is_permitted, "{issuer}: {name}: {endpoint}: {found:?}");
            }
        }
        let (_, discovery) = publishing(of_web, &json!({"authorization_endpoint": null}));
        assert!(discovery.sign_in().await.unwrap_err().cause.contains("authorization_endpoint"));
    }

    #[tokio::test(start_paused = true)]
    async fn metadata_is_fetched_once_for_many_sign_ins_and_again_after_minutes() {
        let (client, discovery) = publishing("https://login.example", &json!({}));
        let fetched = || client.1.load(std::sync::atomic::Ordering::SeqCst);
        for _ in 0..1_000 {
            discovery.sign_in().await.unwrap();
        }
        assert_eq!(fetched(), 1);
        tokio::time::advance(OLD).await;
        discovery.sign_in().await.unwrap();
        assert_eq!(fetched(), 2);
    }

    #[test]
    fn hostile_bytes_as_metadata() {
        let seed = document(&json!({}));
        sekisho_core::fuzz::feed(&[&seed[..]], |bytes| {
            let _ = super::read("https://login.example/tenant", bytes);
        });
    }

    proptest! {
        #[test]
        fn whatever_an_issuer_is_its_metadata_is_on_its_origin(path in "(/{1,2}[a-zA-Z0-9._~-]{1,8}){0,4}/?", port in 1_u16..) {
            let issuer = format!("https://login.example:{port}{path}");
            let origin = Url::parse(&issuer).unwrap().origin();
            let found = addresses(&issuer);
            prop_assert_eq!(found.len(), 2);
            for url in found {
                prop_assert_eq!(url.origin(), origin.clone());
                prop_assert!(url.path().contains("/.well-known/") && url.query().is_none());
            }
        }
    }
}
