//! The names and URIs of a server's tools, prompts and resources in this gateway.

use std::borrow::Cow;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use sekisho_calls::tool::{ToolName, qualified_name, qualified_prefix};

/// The scheme of the resources that MCP Apps are made of. Clients recognize them by it, so it stays.
const APP_SCHEME: &str = "ui://";

/// Members of `_meta` that name an app's resource: `ui.resourceUri`, its older form, and the form of the Apps SDK.
const APP_MEMBERS: [&str; 2] = ["ui/resourceUri", "openai/outputTemplate"];

/// The prefix of one server, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    prefix: Option<String>,
    /// The prefix of URIs, including its `+`.
    scheme: String,
    /// The prefix of URIs of apps: `ui://`, and the server as the first segment.
    app_prefix: String,
}

impl Names {
    pub(super) fn new(prefix: Option<&str>) -> Self {
        let name = prefix.map(scheme);
        let app_prefix = name.as_ref().map_or_else(|| APP_SCHEME.to_owned(), |name| format!("{APP_SCHEME}{name}/"));
        let scheme = name.map(|name| format!("{name}+")).unwrap_or_default();
        Self { prefix: prefix.map(str::to_owned), scheme, app_prefix }
    }

    /// The beginning of the names of its tools, before the separator.
    pub(super) fn prefix(&self) -> Option<&str> {
        self.prefix.as_deref()
    }

    pub(super) fn is_prefixed(&self) -> bool {
        self.prefix.is_some()
    }

    /// Whether a tool of this name here would be the server's: never without a prefix.
    pub(super) fn is_prefix_of(&self, tool: &str) -> bool {
        self.prefix.as_deref().is_some_and(|prefix| tool.starts_with(qualified_prefix(prefix).as_str()))
    }

    /// The name of a tool or prompt; `None` if the server's own name must be kept but is not valid here.
    pub(super) fn qualified(&self, name: &str) -> Option<ToolName> {
        match &self.prefix {
            Some(prefix) => Some(qualified_name(prefix, name)),
            None => ToolName::parse(name).ok(),
        }
    }

    /// A URI or URI template with the prefix: `time+file:///a` is `file:///a` of the server `time`, and
    /// `ui://time/a` is its `ui://a`.
    pub(super) fn uri(&self, uri: &str) -> String {
        match strip_prefix(uri, APP_SCHEME) {
            Some(path) => format!("{}{path}", self.app_prefix),
            None => format!("{}{uri}", self.scheme),
        }
    }

    /// The server's own URI for a URI with the prefix; `None` if it belongs to another server.
    pub(super) fn own_uri<'a>(&self, uri: &'a str) -> Option<Cow<'a, str>> {
        if let Some(path) = strip_prefix(uri, &self.app_prefix) {
            return Some(format!("{APP_SCHEME}{path}").into());
        }
        strip_prefix(uri, &self.scheme).map(Cow::Borrowed)
    }

    /// Adds the prefix to the URIs of a content block, so that they can be read through this gateway.
    pub(super) fn adopt(&self, block: &mut Value) {
        let holder = match block.get("type").and_then(Value::as_str) {
            Some("resource_link") => Some(&mut *block),
            Some("resource") => block.get_mut("resource"),
            _ => None,
        };
        if let Some(holder) = holder {
            self.adopt_uri(holder);
            self.adopt_app(holder);
        }
        self.adopt_app(block);
    }

    /// Adds the prefix to the member `uri`.
    pub(super) fn adopt_uri(&self, holder: &mut Value) {
        if let Some(Value::String(uri)) = holder.get_mut("uri") {
            *uri = self.uri(uri);
        }
    }

    /// Adds the prefix to the app's URI in the `_meta` of a tool, result, resource or content block.
    pub(super) fn adopt_app(&self, holder: &mut Value) {
        let Some(meta) = holder.get_mut("_meta").filter(|_| self.is_prefixed()).and_then(Value::as_object_mut) else {
            return;
        };
        for member in APP_MEMBERS {
            self.adopt_member(meta, member);
        }
        if let Some(ui) = meta.get_mut("ui").and_then(Value::as_object_mut) {
            self.adopt_member(ui, "resourceUri");
        }
    }

    fn adopt_member(&self, holder: &mut Map<String, Value>, member: &str) {
        if let Some(Value::String(uri)) = holder.get_mut(member) {
            *uri = self.uri(uri);
        }
    }
}

/// The URI of the app that shows the results of a tool, with these `_meta`.
pub(super) fn app_of(meta: &Value) -> Option<&str> {
    let named = APP_MEMBERS.iter().map(|member| meta.get(member));
    [meta.pointer("/ui/resourceUri")].into_iter().chain(named).flatten().find_map(Value::as_str)
}

/// The rest after the prefix. Schemes and the names of servers are case-insensitive (RFC 3986 §3.1).
fn strip_prefix<'a>(uri: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = uri.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
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
            assert_eq!(names.own_uri(expected).as_deref(), Some("file:///a"));
            assert_eq!(names.own_uri(&expected.to_uppercase()).as_deref(), Some("FILE:///A"));
            assert_eq!(names.own_uri("other+file:///a"), None);
            assert_eq!(names.own_uri("é"), None);
        }
        assert_eq!(Names::new(None).uri("file:///a"), "file:///a");
    }

    #[test]
    fn the_scheme_of_apps_stays() {
        let names = Names::new(Some("a_b"));
        assert_eq!(names.uri("ui://app/main.html"), "ui://a-b-648fa9b3/app/main.html");
        assert_eq!(names.uri("UI://app/{page}"), "ui://a-b-648fa9b3/app/{page}");
        for uri in ["ui://a-b-648fa9b3/app/main.html", "UI://A-B-648FA9B3/app/main.html"] {
            assert_eq!(names.own_uri(uri).as_deref(), Some("ui://app/main.html"), "{uri}");
        }
        for uri in ["ui://app/main.html", "ui://a-b-648fa9b3", "ui://a-b-648fa9b3x/app"] {
            assert_eq!(names.own_uri(uri), None, "{uri}");
        }
        let plain = Names::new(None);
        assert_eq!(plain.uri("ui://app/main.html"), "ui://app/main.html");
        assert_eq!(plain.own_uri("ui://app/main.html").as_deref(), Some("ui://app/main.html"));
    }

    #[test]
    fn metadata_names_the_app_as_it_is_read_here() {
        let uri = "ui://app/main.html";
        let tool = json!({"name": "t", "_meta": {"ui": {"resourceUri": uri, "visibility": ["app"]}, "mine": uri,
            "ui/resourceUri": uri, "openai/outputTemplate": uri}});
        let mut adopted = tool.clone();
        Names::new(Some("s")).adopt_app(&mut adopted);
        let here = "ui://s/app/main.html";
        let expected = json!({"ui": {"resourceUri": here, "visibility": ["app"]}, "mine": uri,
            "ui/resourceUri": here, "openai/outputTemplate": here});
        assert_eq!((&adopted["_meta"], app_of(&adopted["_meta"])), (&expected, Some(here)));
        let mut kept = tool.clone();
        Names::new(None).adopt_app(&mut kept);
        assert_eq!(kept, tool);
        for mut odd in [json!({"_meta": 7}), json!({"_meta": {"ui": "ui://x", "ui/resourceUri": 7}}), json!(null)] {
            let before = odd.clone();
            Names::new(Some("s")).adopt_app(&mut odd);
            assert_eq!((odd["_meta"].clone(), app_of(&odd["_meta"])), (before["_meta"].clone(), None));
        }
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
