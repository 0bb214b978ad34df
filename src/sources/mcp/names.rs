//! The names and URIs of a server's tools, prompts and resources in this gateway.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::tool::{ToolName, qualified_name};

/// The prefix of one server, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    prefix: Option<String>,
    /// The prefix of URIs, including its `+`.
    scheme: String,
}

impl Names {
    pub(super) fn new(prefix: Option<&str>) -> Self {
        let scheme = prefix.map(|prefix| format!("{}+", scheme(prefix))).unwrap_or_default();
        Self { prefix: prefix.map(str::to_owned), scheme }
    }

    pub(super) fn is_prefixed(&self) -> bool {
        self.prefix.is_some()
    }

    /// The name of a tool or prompt; `None` if the server's own name must be kept but is not valid here.
    pub(super) fn qualified(&self, name: &str) -> Option<ToolName> {
        match &self.prefix {
            Some(prefix) => Some(qualified_name(prefix, name)),
            None => ToolName::parse(name).ok(),
        }
    }

    /// A URI or URI template with the prefix: `time+file:///a` is `file:///a` of the server `time`.
    pub(super) fn uri(&self, uri: &str) -> String {
        format!("{}{uri}", self.scheme)
    }

    /// The server's own URI for a URI with the prefix; `None` if it belongs to another server.
    pub(super) fn own_uri<'a>(&self, uri: &'a str) -> Option<&'a str> {
        let (head, rest) = uri.split_at_checked(self.scheme.len())?;
        // Schemes are case-insensitive (RFC 3986 §3.1).
        head.eq_ignore_ascii_case(&self.scheme).then_some(rest)
    }

    /// Adds the prefix to the URIs of content blocks, so that they can be read through this gateway.
    pub(super) fn adopt(&self, block: &mut Value) {
        let uri = match block.get("type").and_then(Value::as_str) {
            Some("resource_link") => block.get_mut("uri"),
            Some("resource") => block.pointer_mut("/resource/uri"),
            _ => None,
        };
        if let Some(Value::String(uri)) = uri {
            *uri = self.uri(uri);
        }
    }
}

/// A name as a URI scheme (RFC 3986 §3.1). If characters are lost, eight hex digits of the name's SHA-256 keep names
/// distinct.
fn scheme(name: &str) -> String {
    let mut scheme: String = name
        .chars()
        .map(|c| match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() || c == '-' => c,
            _ => '-',
        })
        .collect();
    if !scheme.starts_with(|first: char| first.is_ascii_alphabetic()) {
        scheme.insert(0, 'x');
    }
    if scheme != name {
        scheme.push('-');
        scheme.push_str(&hex::encode(&Sha256::digest(name)[..4]));
    }
    scheme
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn uris_are_known_under_the_prefix_and_found_again() {
        for (prefix, expected) in
            [("time", "time+file:///a"), ("a_b", "a-b-648fa9b3+file:///a"), ("9", "x9-19581e27+file:///a")]
        {
            let names = Names::new(Some(prefix));
            assert_eq!(names.uri("file:///a"), expected);
            assert_eq!(names.own_uri(expected), Some("file:///a"));
            assert_eq!(names.own_uri(&expected.to_uppercase()), Some("FILE:///A"));
            assert_eq!(names.own_uri("other+file:///a"), None);
            assert_eq!(names.own_uri("é"), None);
        }
        assert_eq!(Names::new(None).uri("file:///a"), "file:///a");
    }

    #[test]
    fn links_in_content_can_be_read_here() {
        let mut link = json!({"type": "resource_link", "uri": "demo://1", "name": "one"});
        let mut embedded = json!({"type": "resource", "resource": {"uri": "demo://2", "text": "two"}});
        let mut text = json!({"type": "text", "text": "demo://3"});
        let names = Names::new(Some("s"));
        for block in [&mut link, &mut embedded, &mut text] {
            names.adopt(block);
        }
        assert_eq!(link["uri"], "s+demo://1");
        assert_eq!(embedded["resource"]["uri"], "s+demo://2");
        assert_eq!(text["text"], "demo://3");
    }
}
