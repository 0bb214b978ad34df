//! The request of a client for an authorization, and the two sealed texts that carry it through the browser: the form of the consent page,
//! and the cookie of a browser that is at the provider. Nothing is stored before a user has signed in.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;
use url::Url;

use super::error::{OAuthError, OAuthErrorCode};

/// How long a user may take, for each of the two.
pub(crate) const SIGN_IN_SECONDS: i64 = 600;

/// Longest value of a parameter: an access token that is revoked.
const MAX_VALUE: usize = 4_096;

/// Longest identity assertion: one of a user in hundreds of groups.
const MAX_ASSERTION: usize = 16 << 10;

/// The beginning of a `state` at the provider. Other sign-ins have the same redirect address.
const STATE_PREFIX: &str = "sekisho-broker.";

/// The request of a client, as it was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuthorizationRequest {
    pub(crate) client: String,
    pub(crate) client_name: String,
    pub(crate) redirect: String,
    pub(crate) state: Option<String>,
    /// The PKCE challenge, by S256.
    pub(crate) challenge: String,
    /// With a space between them.
    pub(crate) scope: String,
    pub(crate) resource: Option<String>,
}

/// The request that a consent page shows.
#[derive(Serialize, Deserialize)]
pub(crate) struct AskedConsent {
    pub(crate) request: AuthorizationRequest,
    /// The name of the browser's cookie ends with it.
    pub(crate) id: String,
    /// The digest of the cookie: the page is shown to one browser, and answered by it.
    pub(crate) browser: String,
    pub(crate) until: i64,
}

/// A request whose browser is at the provider.
#[derive(Serialize, Deserialize)]
pub(crate) struct PendingAuthorization {
    pub(crate) request: AuthorizationRequest,
    pub(crate) state: String,
    pub(crate) nonce: String,
    pub(crate) verifier: String,
    pub(crate) until: i64,
}

/// Most fields of a query or a form.
const MAX_FIELDS: usize = 50;

/// Fields of a query or a form, each at most once (RFC 6749 §3.1). No `Debug`: they hold tokens.
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Errors: `invalid_request`: too many fields, or one that is sent twice or too long.
    pub(crate) fn new(fields: Vec<(String, String)>) -> Result<Self, OAuthError> {
        if fields.len() > MAX_FIELDS {
            return Err(OAuthError::invalid_request(format!("there are more than {MAX_FIELDS} fields")));
        }
        for (at, (name, value)) in fields.iter().enumerate() {
            let shown: String = name.chars().filter(char::is_ascii_graphic).take(40).collect();
            if fields[..at].iter().any(|(other, _)| other == name) {
                return Err(OAuthError::invalid_request(format!("`{shown}` is sent twice")));
            }
            let max = if name == "assertion" { MAX_ASSERTION } else { MAX_VALUE };
            if value.len() > max {
                return Err(OAuthError::invalid_request(format!("`{shown}` is longer than {max} bytes")));
            }
        }
        Ok(Self(fields))
    }

    /// An empty one counts as missing.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(crate) fn need(&self, name: &str) -> Result<&str, OAuthError> {
        self.get(name).ok_or_else(|| OAuthError::invalid_request(format!("`{name}` is missing")))
    }
}

/// Errors: `unsupported_response_type`, `invalid_request`: the flow is another one, or has no proof key by SHA-256.
pub(crate) fn challenge(fields: &Fields) -> Result<String, OAuthError> {
    if fields.need("response_type")? != "code" {
        let why = "the only `response_type` is `code`";
        return Err(OAuthError::new(OAuthErrorCode::UnsupportedResponseType, why));
    }
    let challenge = fields.need("code_challenge")?;
    // Without the method, the challenge would be the verifier itself (RFC 7636 §4.3).
    if fields.get("code_challenge_method") != Some("S256") || !is_challenge(challenge) {
        let why = "`code_challenge_method` must be `S256`, and `code_challenge` a SHA-256 in 43 characters of Base64 (RFC 7636)";
        return Err(OAuthError::invalid_request(why));
    }
    Ok(challenge.to_owned())
}

fn is_challenge(text: &str) -> bool {
    text.len() == 43 && BASE64_URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == 32)
}

/// Whether the challenge is the digest of a client's verifier (RFC 7636 §4.6).
pub(crate) fn is_proven(challenge: &str, verifier: &str) -> bool {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_verifier = (43..=128).contains(&verifier.len()) && verifier.bytes().all(is_unreserved);
    let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
    is_verifier && bool::from(digest.as_bytes().ct_eq(challenge.as_bytes()))
}

/// Whether a resource (RFC 8707) is the gateway: its address, or the address of an MCP endpoint of it.
pub(crate) fn is_own_resource(issuer: &str, resource: &str) -> bool {
    let Some(path) = resource.strip_prefix(issuer) else { return false };
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    match path.strip_suffix('/').unwrap_or(path) {
        "" | "/mcp" => true,
        path => path.strip_prefix("/mcp/").is_some_and(is_name),
    }
}

/// A `state` for the provider, in which the browser's cookie is named.
pub(crate) fn provider_state(id: &str) -> String {
    format!("{STATE_PREFIX}{id}.{}", random())
}

/// The id in a `state` that was begun here.
pub fn id_of_state(state: &str) -> Option<&str> {
    let (id, _) = state.strip_prefix(STATE_PREFIX)?.split_once('.')?;
    (id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

pub(crate) fn is_equal(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

/// 256 random bits.
pub(crate) fn random() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

pub(crate) fn digest(secret: &str) -> String {
    hex::encode(Sha256::digest(secret))
}

/// The client's redirect address with the answer to its request. The gateway names itself (RFC 9207).
pub(crate) fn answer(request: &AuthorizationRequest, issuer: &str, outcome: Result<&str, &OAuthError>) -> Option<Url> {
    let mut url = Url::parse(&request.redirect).ok()?;
    {
        let mut query = url.query_pairs_mut();
        match outcome {
            Ok(code) => query.append_pair("code", code),
            Err(error) => {
                query.append_pair("error", error.code.as_str()).append_pair("error_description", &error.description)
            }
        };
        if let Some(state) = &request.state {
            query.append_pair("state", state);
        }
        query.append_pair("iss", issuer);
    }
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Result<Fields, OAuthError> {
        Fields::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// RFC 7636, appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    #[test]
    fn a_request_has_a_proof_key_by_sha_256_and_asks_for_a_code() {
        let code = ("response_type", "code");
        for (pairs, is_accepted) in [
            (&[code, ("code_challenge", CHALLENGE), ("code_challenge_method", "S256")][..], true),
            (&[code, ("code_challenge", CHALLENGE), ("code_challenge_method", "plain")], false),
            (&[code, ("code_challenge", CHALLENGE)], false),
            (&[code, ("code_challenge", ""), ("code_challenge_method", "S256")], false),
            (&[code, ("code_challenge", "short"), ("code_challenge_method", "S256")], false),
            (&[code], false),
            (&[("response_type", "token"), ("code_challenge", CHALLENGE), ("code_challenge_method", "S256")], false),
            (
                &[("response_type", "code token"), ("code_challenge", CHALLENGE), ("code_challenge_method", "S256")],
                false,
            ),
        ] {
            assert_eq!(challenge(&fields(pairs).unwrap()).is_ok(), is_accepted, "{pairs:?}");
        }
        assert!(fields(&[("redirect_uri", "a"), ("redirect_uri", "b")]).is_err(), "a field counts once");
        assert!(fields(&[("state", &"s".repeat(5_000))]).is_err());
        let many: Vec<_> = (0..51).map(|number| (number.to_string(), String::new())).collect();
        assert!(Fields::new(many[..50].to_vec()).is_ok() && Fields::new(many).is_err());
    }

    #[test]
    fn a_verifier_proves_its_challenge_alone() {
        assert!(is_proven(CHALLENGE, VERIFIER));
        for verifier in ["", &VERIFIER[1..], CHALLENGE, &VERIFIER.to_uppercase(), &format!("{VERIFIER}\n")] {
            assert!(!is_proven(CHALLENGE, verifier), "{verifier}");
        }
        assert!(!is_proven(VERIFIER, VERIFIER), "the method `plain`");
    }

    #[test]
    fn a_resource_is_this_gateway_and_no_other() {
        let issuer = "https://gateway.example";
        for (resource, is_own) in [
            ("https://gateway.example", true),
            ("https://gateway.example/", true),
            ("https://gateway.example/mcp", true),
            ("https://gateway.example/mcp/", true),
            ("https://gateway.example/mcp/finance", true),
            ("https://gateway.example.evil.example/mcp", false),
            ("https://gateway.example@evil.example/", false),
            ("https://gateway.example/mcp/a/b", false),
            ("https://gateway.example/other", false),
            ("https://gateway.example/mcp?x", false),
            ("http://gateway.example/mcp", false),
            ("https://other.example/mcp", false),
        ] {
            assert_eq!(is_own_resource(issuer, resource), is_own, "{resource}");
        }
    }

    #[test]
    fn an_answer_keeps_the_query_of_the_address_and_names_the_gateway() {
        let request = AuthorizationRequest {
            client: "c".into(),
            client_name: String::new(),
            redirect: "cursor://a/cb?x=1".into(),
            state: Some("s&t".into()),
            challenge: CHALLENGE.into(),
            scope: String::new(),
            resource: None,
        };
        let url = answer(&request, "https://gateway.example", Ok("abc")).unwrap();
        assert_eq!(url.as_str(), "cursor://a/cb?x=1&code=abc&state=s%26t&iss=https%3A%2F%2Fgateway.example");
        let denied = OAuthError::new(OAuthErrorCode::AccessDenied, "no");
        let url = answer(&request, "https://gateway.example", Err(&denied)).unwrap();
        assert!(url.as_str().contains("error=access_denied") && !url.as_str().contains("code="), "{url}");
    }

    #[test]
    fn a_state_names_the_cookie_of_its_browser() {
        let state = provider_state("0123456789abcdef");
        assert_eq!(id_of_state(&state), Some("0123456789abcdef"));
        for other in
            ["", "sekisho-broker.", "sekisho-broker.0123456789abcdef", "x.y", "sekisho-broker.../../.x", &state[1..]]
        {
            assert_eq!(id_of_state(other), None, "{other}");
        }
    }
}
