//! The challenge in `WWW-Authenticate` (RFC 6750 §3, RFC 9728 §5.1).

use http::{HeaderMap, header};
use rmcp::transport::auth::WWWAuthenticateParams;
use url::Url;

/// Longest header that is read, in bytes; real ones have a few hundred.
const MAX_BYTES: usize = 4_096;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// As received, the start of discovery.
    pub(super) header: Option<String>,
    /// Scopes with single spaces between them.
    pub(super) scope: Option<String>,
    pub(super) insufficient_scope: bool,
}

impl Challenge {
    /// The first challenge for a bearer token; an empty one where there is none.
    pub(super) fn of(headers: &HeaderMap, server: &Url) -> Self {
        let values = headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let mut bearer = values.filter(|value| value.len() <= MAX_BYTES && is_bearer(value));
        let Some(header) = bearer.next() else { return Self::default() };
        let received = WWWAuthenticateParams::parse(header, server);
        let scope = received.scope.as_deref().map(|scope| scope.split_whitespace().collect::<Vec<_>>().join(" "));
        Self {
            header: Some(header.to_owned()),
            scope: scope.filter(|scope| !scope.is_empty()),
            insufficient_scope: received.is_insufficient_scope(),
        }
    }
}

fn is_bearer(value: &str) -> bool {
    value.trim_start().get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_challenge_for_a_bearer_token_is_found_among_others() {
        let long = format!("Bearer scope=\"{}\"", "x".repeat(MAX_BYTES));
        for (values, scope, insufficient_scope) in [
            (&["Bearer scope=\"read  write\""][..], Some("read write"), false),
            (&["bearer error=\"insufficient_scope\", scope=\"admin\""], Some("admin"), true),
            (&["Basic realm=\"scope=read\"", "Bearer scope=read"], Some("read"), false),
            (&["Bearer"], None, false),
            (&["Bearer scope=\" \""], None, false),
            (&["Basic realm=x"], None, false),
            (&[&long], None, false),
            (&["Bé"], None, false),
            (&[], None, false),
        ] {
            let headers = values
                .iter()
                .map(|value| (header::WWW_AUTHENTICATE, HeaderValue::from_bytes(value.as_bytes()).unwrap()));
            let mut all = HeaderMap::new();
            headers.for_each(|(name, value)| _ = all.append(name, value));
            let challenge = Challenge::of(&all, &Url::parse("https://mcp.example.com/mcp").unwrap());
            assert_eq!((challenge.scope.as_deref(), challenge.insufficient_scope), (scope, insufficient_scope));
        }
    }
}
