//! The name of a workload in its certificate (SPIFFE ID).

use std::fmt;
use std::sync::Arc;

const SCHEME: &str = "spiffe://";

/// Longest of its parts, by the specification.
const MAX_BYTES: usize = 2_048;
const MAX_DOMAIN: usize = 255;

/// `spiffe://TRUST-DOMAIN/PATH`, with a path: without one it would be an authority's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpiffeId(Arc<str>);

impl SpiffeId {
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, path) = text.strip_prefix(SCHEME)?.split_once('/')?;
        let is_of_domain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_segment = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(is_of_path);
        let is_domain = (1..=MAX_DOMAIN).contains(&domain.len()) && domain.bytes().all(is_of_domain);
        let is_valid = text.len() <= MAX_BYTES && is_domain && path.split('/').all(is_segment);
        is_valid.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its beginning, which all names of one trust domain have.
    pub fn trust_domain(&self) -> &str {
        let domain = self.0[SCHEME.len()..].find('/').unwrap_or_default();
        &self.0[..SCHEME.len() + domain]
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_trust_domain_and_a_path_in_one_spelling() {
        for (text, domain) in [
            ("spiffe://example.org/agents/one", Some("spiffe://example.org")),
            ("spiffe://a_b-1/X", Some("spiffe://a_b-1")),
            ("spiffe://example.org", None),
            ("spiffe://example.org/", None),
            ("spiffe:///agents", None),
            ("spiffe://Example.org/agents", None),
            ("SPIFFE://example.org/agents", None),
            ("spiffe://user@example.org/agents", None),
            ("spiffe://example.org:443/agents", None),
            ("spiffe://example.org/agents/../admin", None),
            ("spiffe://example.org/agents/./admin", None),
            ("spiffe://example.org//agents", None),
            ("spiffe://example.org/agents/", None),
            ("spiffe://example.org/agents%2Fone", None),
            ("spiffe://example.org/agents?x", None),
            ("spiffe://example.org/agents#x", None),
            ("spiffe://example.org/agents/*", None),
            ("spiffe://example.org/agents one", None),
            ("https://example.org/agents", None),
            ("", None),
        ] {
            assert_eq!(SpiffeId::parse(text).as_ref().map(SpiffeId::trust_domain), domain, "{text}");
        }
        assert_eq!(SpiffeId::parse(&format!("spiffe://example.org/{}", "a".repeat(2_048))), None);
        assert_eq!(SpiffeId::parse(&format!("spiffe://{}/a", "a".repeat(256))), None);
    }
}
