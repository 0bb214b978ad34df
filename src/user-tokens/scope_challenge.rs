//! The scopes that a 403 asks for (RFC 6750 §3.1).

use http::{HeaderMap, HeaderValue, header};

/// Longest header that is read, in bytes; real ones have a few hundred.
const MAX_BYTES: usize = 4_096;

/// The scopes that a token lacks, with spaces between them; `None` if that is not why the request was refused.
pub(super) fn missing_scope(headers: &HeaderMap) -> Option<String> {
    let values = headers.get_all(header::WWW_AUTHENTICATE).iter();
    let texts = values.filter(|value| value.len() <= MAX_BYTES).filter_map(|value: &HeaderValue| value.to_str().ok());
    let mut challenges = texts.filter(|text| text.contains("insufficient_scope"));
    let (_, scope) = challenges.next()?.split_once("scope=")?;
    let scope = match scope.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => scope.split([',', ' ']).next(),
    };
    let scope = scope?.split_whitespace().collect::<Vec<_>>().join(" ");
    (!scope.is_empty()).then_some(scope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_lack_of_scopes_names_them() {
        for (challenge, expected) in [
            ("Bearer error=\"insufficient_scope\", scope=\"read  write\"", Some("read write")),
            ("Bearer scope=read, error=\"insufficient_scope\"", Some("read")),
            ("Bearer error=\"insufficient_scope\"", None),
            ("Bearer error=\"insufficient_scope\", scope=\"\"", None),
            ("Bearer error=\"invalid_token\", scope=\"read\"", None),
        ] {
            let headers = HeaderMap::from_iter([(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))]);
            assert_eq!(missing_scope(&headers).as_deref(), expected, "{challenge}");
        }
        assert_eq!(missing_scope(&HeaderMap::new()), None);
    }
}
