//! Clients: registered (RFC 7591), or described at the address that is their id (OAuth Client ID Metadata Document). All are public.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::{Host, Url};

use super::error::{OAuthError, OAuthErrorCode};
use super::redirect;
use sekisho_core::visible_text::is_hidden;

const MAX_REDIRECTS: usize = 10;
const MAX_NAME: usize = 100;

/// Longest address of a client's own document.
const MAX_ID: usize = 512;

/// A client, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) redirects: Vec<String>,
}

/// Statements of a client about itself. Unknown members are ignored (RFC 7591 §2).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    client_id: Option<String>,
    client_name: Option<String>,
    redirect_uris: Vec<String>,
    grant_types: Option<Vec<String>>,
    response_types: Option<Vec<String>>,
}

impl Client {
    /// The client of a registration, or of a document.
    /// Errors: `invalid_client_metadata`, `invalid_redirect_uri`.
    pub(crate) fn read(metadata: Value, permitted: &[String]) -> Result<Self, OAuthError> {
        let invalid = |why: String| OAuthError::new(OAuthErrorCode::InvalidClientMetadata, why);
        let metadata: Metadata =
            serde_json::from_value(metadata).map_err(|error| invalid(format!("not metadata of a client: {error}")))?;
        if metadata.redirect_uris.is_empty() || metadata.redirect_uris.len() > MAX_REDIRECTS {
            let why = format!("`redirect_uris` must have 1 to {MAX_REDIRECTS} addresses");
            return Err(OAuthError::new(OAuthErrorCode::InvalidRedirectUri, why));
        }
        for address in &metadata.redirect_uris {
            redirect::check(address, permitted)?;
        }
        let names = |list: &Option<Vec<String>>, wanted: &str| {
            list.as_ref().is_none_or(|list| list.iter().any(|one| one == wanted))
        };
        if !names(&metadata.grant_types, "authorization_code") || !names(&metadata.response_types, "code") {
            return Err(invalid("the only flow is the authorization code (`code`)".to_owned()));
        }
        let name: String = metadata.client_name.unwrap_or_default();
        let name = name.chars().filter(|c| !c.is_control() && !is_hidden(*c)).take(MAX_NAME).collect();
        Ok(Self { name, redirects: metadata.redirect_uris })
    }

    /// The client of the document at the address that is its id.
    /// Errors: as [`read`](Self::read), and for a document of another client, or one with a secret.
    pub(crate) fn read_document(id: &str, metadata: Value, permitted: &[String]) -> Result<Self, OAuthError> {
        let is_own = metadata.get("client_id").and_then(Value::as_str) == Some(id);
        if !is_own || metadata.get("client_secret").is_some() {
            let why = "the document at the client's address is of another client, or has a secret";
            return Err(OAuthError::new(OAuthErrorCode::InvalidClientMetadata, why));
        }
        Self::read(metadata, permitted)
    }

    /// The answer to a registration (RFC 7591 §3.2.1). Another authentication that the client asked for is replaced by `none`.
    pub(crate) fn registered(&self, id: &str, issued_at: i64) -> Value {
        let mut answer = json!({
            "client_id": id,
            "client_id_issued_at": issued_at,
            "redirect_uris": self.redirects,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        });
        if !self.name.is_empty() {
            answer["client_name"] = self.name.clone().into();
        }
        answer
    }

    pub(crate) fn has_redirect(&self, requested: &str) -> bool {
        self.redirects.iter().any(|registered| redirect::is_registered(registered, requested))
    }
}

/// The address of a client whose id is one: `https`, a host name, a path, and nothing that two programs read differently.
pub(crate) fn document_address(id: &str) -> Option<Url> {
    let url = Url::parse(id).ok().filter(|url| url.scheme() == "https" && url.as_str() == id && id.len() <= MAX_ID)?;
    let is_plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    let has_name = matches!(url.host(), Some(Host::Domain(_)));
    (is_plain && has_name && url.path() != "/").then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "https://client.example/oauth/metadata.json";

    #[test]
    fn a_client_is_public_and_has_addresses_and_a_code() {
        let redirects = json!(["https://app.example/cb"]);
        for (metadata, is_accepted) in [
            (json!({"redirect_uris": redirects}), true),
            (json!({"redirect_uris": redirects, "token_endpoint_auth_method": "client_secret_post", "x": 1}), true),
            (json!({"redirect_uris": redirects, "grant_types": ["authorization_code", "refresh_token"]}), true),
            (json!({"redirect_uris": redirects, "grant_types": ["client_credentials"]}), false),
            (json!({"redirect_uris": redirects, "response_types": ["token"]}), false),
            (json!({"redirect_uris": []}), false),
            (json!({"redirect_uris": ["javascript:alert(1)"]}), false),
            (json!({"redirect_uris": ["https://app.example/cb", "javascript:alert(1)"]}), false),
            (json!({"redirect_uris": vec!["https://app.example/cb"; 11]}), false),
            (json!({"redirect_uris": "https://app.example/cb"}), false),
            (json!({}), false),
            (json!([]), false),
        ] {
            assert_eq!(Client::read(metadata.clone(), &[]).is_ok(), is_accepted, "{metadata}");
        }
        let named = json!({"redirect_uris": redirects, "client_name": "An\u{7} ed\u{202e}itor"});
        let client = Client::read(named, &[]).unwrap();
        let answer = client.registered("c", 7);
        assert_eq!(
            (&answer["client_name"], &answer["token_endpoint_auth_method"]),
            (&json!("An editor"), &json!("none"))
        );
        assert_eq!(answer.get("client_secret"), None);
    }

    #[test]
    fn a_document_is_of_the_client_whose_address_it_has() {
        let redirects = json!(["https://client.example/cb"]);
        for (document, is_accepted) in [
            (json!({"client_id": DOCUMENT, "redirect_uris": redirects}), true),
            (json!({"client_id": "https://client.example/other", "redirect_uris": redirects}), false),
            (json!({"redirect_uris": redirects}), false),
            (json!({"client_id": DOCUMENT, "redirect_uris": redirects, "client_secret": "s"}), false),
            (json!({"client_id": DOCUMENT}), false),
        ] {
            assert_eq!(Client::read_document(DOCUMENT, document.clone(), &[]).is_ok(), is_accepted, "{document}");
        }
    }

    #[test]
    fn the_address_of_a_client_is_a_public_looking_https_address_with_a_path() {
        for (id, is_address) in [
            (DOCUMENT, true),
            ("https://client.example:8443/c", true),
            ("http://client.example/c", false),
            ("https://client.example/", false),
            ("https://client.example", false),
            ("https://127.0.0.1/c", false),
            ("https://[::1]/c", false),
            ("https://169.254.169.254/latest/meta-data", false),
            ("https://2130706433/c", false),
            ("https://user@client.example/c", false),
            ("https://client.example/c#x", false),
            ("https://client.example/a/../c", false),
            ("https://CLIENT.example/c", false),
            ("file:///etc/passwd", false),
            ("0a1b", false),
        ] {
            assert_eq!(document_address(id).is_some(), is_address, "{id}");
        }
    }
}
