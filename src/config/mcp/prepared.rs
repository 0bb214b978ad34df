//! Prepared servers: how common servers are started, marks of their tools that no server gives itself, and shapes with which their answers are
//! smaller.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use crate::check::Findings;
use crate::labels::{SinkKindSetting, SinkSettings};

/// A common server. Its marks can only make tools stricter, and its shapes answers smaller.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PreparedServer {
    /// Its description, in a sentence.
    pub about: String,
    /// The package or program, and the version, whose tools these are.
    pub read_from: String,
    pub command: Option<String>,
    pub args: Vec<String>,
    pub url: Option<String>,
    /// Variables that a program needs; of a URL the one with the token.
    pub variables: Vec<String>,
    /// What its user writes behind `args`, in words.
    pub arguments: Option<String>,
    /// `sandbox.network` of a program.
    pub network: Option<Value>,
    /// Tools whose results strangers can write.
    untrusted: Vec<String>,
    dangerous: Vec<String>,
    /// Tools of which a person must approve each call.
    approval: Vec<String>,
    sinks: Sinks,
    shapes: Vec<PreparedShape>,
}

/// A form of arguments and results, where no override says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PreparedShape {
    pub tools: Vec<String>,
    pub defaults: BTreeMap<String, Value>,
    pub project: Option<String>,
}

/// Tools by the effect of their calls.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Sinks {
    send: Vec<String>,
    pay: Vec<String>,
    delete: Vec<String>,
    publish: Vec<String>,
    fetch: Vec<String>,
    write: Vec<String>,
}

/// The marks of one tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PreparedTool {
    pub is_untrusted: bool,
    pub is_dangerous: bool,
    pub needs_approval: bool,
    pub sink: Option<SinkSettings>,
    pub shape: Option<PreparedShape>,
}

const SHIPPED: &str = include_str!("prepared.yaml");

static SERVERS: LazyLock<BTreeMap<String, PreparedServer>> =
    LazyLock::new(|| serde_saphyr::from_str(SHIPPED).unwrap_or_default());

/// The prepared server of this name.
pub fn prepared_server(name: &str) -> Option<&'static PreparedServer> {
    SERVERS.get(name)
}

/// The names of all, in order.
pub fn prepared_names() -> impl Iterator<Item = &'static str> {
    SERVERS.keys().map(String::as_str)
}

/// An overlay that nobody has prepared would mark nothing.
pub(super) fn check_overlay(overlay: Option<&str>, setting: String, findings: &mut Findings) {
    if overlay.is_some_and(|name| prepared_server(name).is_none()) {
        let names = prepared_names().collect::<Vec<_>>().join(", ");
        findings.add(setting, "is no prepared server", format!("write one of {names}"));
    }
}

impl PreparedServer {
    /// The tools that it marks, by the names of the server.
    #[cfg(any(test, feature = "test-support"))]
    pub fn marked(&self) -> std::collections::BTreeSet<&str> {
        let effects = self.sinks.by_kind().into_iter().flat_map(|(_, tools)| tools);
        let marked = [&self.untrusted, &self.dangerous, &self.approval].into_iter().flatten();
        marked.chain(effects).map(String::as_str).collect()
    }

    /// The names of tools with their shapes.
    #[cfg(any(test, feature = "test-support"))]
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &PreparedShape)> {
        self.shapes.iter().flat_map(|shape| shape.tools.iter().map(move |tool| (tool.as_str(), shape)))
    }

    /// The marks of the tool that the server calls so.
    pub fn tool(&self, own: &str) -> PreparedTool {
        let has = |tools: &[String]| tools.iter().any(|tool| tool == own);
        let sink = self.sinks.by_kind().into_iter().find(|(_, tools)| has(tools));
        PreparedTool {
            is_untrusted: has(&self.untrusted),
            is_dangerous: has(&self.dangerous),
            needs_approval: has(&self.approval),
            sink: sink.map(|(kind, _)| SinkSettings { kind, destination: Vec::new() }),
            shape: self.shapes.iter().find(|shape| has(&shape.tools)).cloned(),
        }
    }
}

impl Sinks {
    fn by_kind(&self) -> [(SinkKindSetting, &[String]); 6] {
        use SinkKindSetting::{Delete, Fetch, Pay, Publish, Send, Write};
        let Self { send, pay, delete, publish, fetch, write } = self;
        [(Send, &**send), (Pay, pay), (Delete, delete), (Publish, publish), (Fetch, fetch), (Write, write)]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use url::Url;

    use super::*;
    use crate::McpSandbox;
    use crate::tools::is_tool_name;

    fn servers() -> BTreeMap<String, PreparedServer> {
        serde_saphyr::from_str(SHIPPED).unwrap()
    }

    #[test]
    fn each_prepared_server_can_be_added() {
        let servers = servers();
        assert!(servers.len() >= 20, "{}", servers.len());
        assert_eq!(prepared_names().collect::<Vec<_>>(), servers.keys().map(String::as_str).collect::<Vec<_>>());
        for (name, server) in &servers {
            assert!(is_tool_name(name) && !server.about.is_empty() && !server.read_from.is_empty(), "{name}");
            assert!(server.command.is_some() != server.url.is_some(), "{name} is a program or a URL");
            if let Some(url) = &server.url {
                assert_eq!(Url::parse(url).unwrap().scheme(), "https", "{name}");
                assert!(server.args.is_empty() && server.variables.len() <= 1 && server.network.is_none(), "{name}");
            } else {
                let sandbox = serde_json::json!({"network": server.network.clone().unwrap()});
                assert!(serde_json::from_value::<McpSandbox>(sandbox).is_ok(), "{name}");
            }
            let is_variable = |name: &String| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
            assert!(server.variables.iter().all(is_variable), "{name}");
        }
    }

    #[test]
    fn each_tool_has_each_mark_once_and_what_needs_approval_has_an_effect() {
        for (name, server) in servers() {
            for list in [&server.untrusted, &server.dangerous, &server.approval] {
                let set: BTreeSet<_> = list.iter().collect();
                assert!(set.len() == list.len() && list.iter().all(|tool| is_tool_name(tool)), "{name}: {list:?}");
            }
            let effects: Vec<_> = server.sinks.by_kind().into_iter().flat_map(|(_, tools)| tools).collect();
            let set: BTreeSet<_> = effects.iter().collect();
            assert!(set.len() == effects.len() && effects.iter().all(|tool| is_tool_name(tool)), "{name}: {effects:?}");
            let shaped: Vec<_> = server.shapes.iter().flat_map(|shape| &shape.tools).collect();
            let set: BTreeSet<_> = shaped.iter().collect();
            assert!(set.len() == shaped.len() && shaped.iter().all(|tool| is_tool_name(tool)), "{name}: {shaped:?}");
            for tool in server.dangerous.iter().chain(&server.approval) {
                assert!(effects.contains(&tool), "{name}: {tool} has no sink");
            }
        }
        let posted = prepared_server("slack").unwrap().tool("slack_post_message");
        assert_eq!(posted.sink.unwrap().kind, SinkKindSetting::Send);
        assert!(prepared_server("fetch").unwrap().tool("fetch").is_untrusted);
        assert_eq!(prepared_server("fetch").unwrap().tool("other"), PreparedTool::default());
    }
}
