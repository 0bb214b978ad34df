use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::Findings;
use crate::server::McpToolListing;
use sekisho_core::caller::Caller;

/// A virtual MCP server at `/mcp/NAME`: a part of the tools. What a caller may do at all is a matter of its key and of policies.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpEndpoint {
    /// Names of the tools that are seen and called there; a final `*` matches any rest. Empty: all.
    pub tools: Vec<String>,
    /// The caller must have one of these roles; for others there is no such endpoint. Empty: none required.
    pub roles: Vec<String>,
    /// What clients are told about it, before the instructions of the servers behind it.
    pub instructions: Option<String>,
    /// Whether clients that do not choose get three search tools in place of the list; without it as `server.mcp.tools`.
    pub search: Option<bool>,
    /// Whether such clients get `search_tools` and `run_python`, whose programs call the endpoint's tools. `python_executor` must be one
    /// of those.
    pub code_mode: bool,
    /// How clients get large results.
    pub results: McpResults,
    /// Maximum characters of a tool's name, for clients that add a prefix of their own; by default 64. A longer name is
    /// its beginning and a digest there.
    pub max_name_length: Option<usize>,
}

/// The shortest maximum of a name: some letters, and a digest.
const MIN_NAME_LENGTH: usize = 16;

/// Maximum characters of a tool's name.
const MAX_NAME_LENGTH: usize = 64;

/// How an endpoint's clients get large results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpResults {
    /// Whole, and their text within the token limit of the tool.
    #[default]
    Whole,
    /// As a preview with a handle, which the tool `read_result` reads.
    Handles,
}

impl McpEndpoint {
    pub fn is_for(&self, caller: &Caller) -> bool {
        self.roles.is_empty() || caller.has_one_of(&self.roles)
    }

    /// How tools are listed for clients that do not choose, if the endpoint sets it.
    pub fn listing(&self) -> Option<McpToolListing> {
        match (self.code_mode, self.search) {
            (true, _) => Some(McpToolListing::CodeMode),
            (false, Some(true)) => Some(McpToolListing::Search),
            (false, Some(false)) => Some(McpToolListing::All),
            (false, None) => None,
        }
    }

    /// The caller with the tools that are left at this endpoint.
    pub fn narrow(&self, caller: &Arc<Caller>) -> Arc<Caller> {
        match self.tools.is_empty() {
            true => Arc::clone(caller),
            false => Arc::new(Caller { tools: caller.tools.narrowed(self.tools.clone()), ..Caller::clone(caller) }),
        }
    }

    pub(super) fn check(&self, name: &str, findings: &mut Findings) {
        let setting = format!("mcp.endpoints.{name}");
        let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if name.is_empty() || name.len() > 64 || !is_name(name) {
            findings.add(
                &setting,
                "is no name",
                "use up to 64 letters, digits, `_` and `-`, since it is a part of the address",
            );
        }
        findings.names(&format!("{setting}.tools"), &self.tools);
        findings.names(&format!("{setting}.roles"), &self.roles);
        if self.code_mode && self.search == Some(true) {
            let problem = "is set beside `search: true`, and clients get one of both lists";
            findings.add(format!("{setting}.code_mode"), problem, "leave one of them out");
        }
        if self.max_name_length.is_some_and(|max| !(MIN_NAME_LENGTH..=MAX_NAME_LENGTH).contains(&max)) {
            let advice = "set a number from 16 to 64, such as 50 for a client that adds `mcp__sekisho__`";
            findings.add(format!("{setting}.max_name_length"), "is no maximum that names can have", advice);
        }
        let has_inner_star = |pattern: &String| pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
        if self.tools.iter().any(has_inner_star) {
            findings.add(format!("{setting}.tools"), "has a `*` that is not at the end", "write `crm__*`");
        }
    }
}
