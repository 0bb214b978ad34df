//! What an issuer publishes about itself: OpenID Connect Discovery 1.0, and OAuth 2.0 Authorization Server Metadata (RFC 8414).

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::issuer_client::{IssuerClient, IssuerError, IssuerFailure, IssuerRequest};
use crate::core::json;
use crate::infra::outbound::Trust;

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

/// What is used of an issuer's metadata.
#[derive(Debug, Deserialize)]
pub(super) struct IssuerMetadata {
    issuer: String,
    #[serde(default)]
    jwks_uri: Option<Url>,
    #[serde(default)]
    introspection_endpoint: Option<Url>,
}

impl Discovery {
    pub(super) fn new(issuer: &str, client: Arc<dyn IssuerClient>) -> Self {
        Self { issuer: issuer.to_owned(), client, last: Mutex::default() }
    }

    /// The key set.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn keys(&self) -> Result<Vec<u8>, IssuerError> {
        let metadata = self.metadata().await?;
        let url = metadata.jwks_uri.clone().ok_or_else(|| IssuerError::wrong("its metadata has no `jwks_uri`"))?;
        let trust = self.trust_in(&url);
        self.client.ask(IssuerRequest::get(url, trust)).await
    }

    /// Where the issuer is asked about tokens, and whether that address is as trusted as its own.
    ///
    /// # Errors
    /// Why that is not known.
    pub(super) async fn introspection(&self) -> Result<(Url, Trust), IssuerError> {
        let metadata = self.metadata().await?;
        let url = metadata.introspection_endpoint.clone();
        let url = url.ok_or_else(|| IssuerError::wrong("its metadata has no `introspection_endpoint`"))?;
        let trust = self.trust_in(&url);
        Ok((url, trust))
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

/// The addresses of an issuer's metadata; none of what is no address.
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

/// # Errors
/// The document is not the metadata of this issuer, or names addresses at which anybody in between could answer.
fn read(issuer: &str, document: &[u8]) -> Result<IssuerMetadata, IssuerError> {
    let metadata: IssuerMetadata =
        json::parse_as(document).map_err(|error| IssuerError::wrong(format!("not metadata of an issuer: {error}")))?;
    // RFC 8414 §3.3, OpenID Connect Discovery 1.0 §4.3.
    if metadata.issuer != issuer {
        return Err(IssuerError::wrong(format!("it is of the issuer {:?}", metadata.issuer)));
    }
    let is_secure = |url: &Url| url.scheme() == "https" || (url.scheme() == "http" && issuer.starts_with("http://"));
    let are_secure = [&metadata.jwks_uri, &metadata.introspection_endpoint].into_iter().flatten().all(is_secure);
    are_secure.then_some(metadata).ok_or_else(|| IssuerError::wrong("an address in it is not https"))
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
            (json!({"jwks_uri": "keys"}), "not metadata"),
        ] {
            let problem = read(changes.clone()).unwrap_err();
            assert!(problem.contains(why), "{changes}: {problem}");
        }
        let twice = br#"{"issuer": "https://login.example/tenant", "issuer": "https://login.example/tenant"}"#;
        assert!(super::read("https://login.example/tenant", twice).is_err());
    }

    #[test]
    fn hostile_bytes_as_metadata() {
        let seed = document(&json!({}));
        crate::core::fuzz::feed(&[&seed[..]], |bytes| {
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
