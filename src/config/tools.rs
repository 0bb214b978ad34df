use std::collections::BTreeMap;
use std::path::PathBuf;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::Secret;

/// What tools there are and how each is told apart from its defaults.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsConfig {
    /// Mend arguments that differ from the schema only in form ("3" for 3). Each change stands in the receipt.
    pub coerce_arguments: bool,
    /// Overrides by tool name, on top of what the tool says of itself.
    pub overrides: BTreeMap<String, ToolOverride>,
    pub web_fetch: WebFetchConfig,
    pub web_search: WebSearchConfig,
    pub workspace: WorkspaceConfig,
}

impl Default for ToolsConfig {
    fn default() -> Self {
        Self {
            coerce_arguments: true,
            overrides: BTreeMap::new(),
            web_fetch: WebFetchConfig::default(),
            web_search: WebSearchConfig::default(),
            workspace: WorkspaceConfig::default(),
        }
    }
}

/// Every field is optional: what is not said stays as the tool has it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolOverride {
    /// Offer the tool under another name.
    pub rename: Option<String>,
    pub description: Option<String>,
    /// Do not offer the tool at all: to callers it does not exist.
    pub hidden: Option<bool>,
    /// Price of one call in USD (E13).
    #[schemars(with = "Option<String>")]
    pub cost_per_use: Option<Decimal>,
    /// Calls a minute for each caller (E12).
    pub rate_limit: Option<u32>,
    /// Longest run of one call, in seconds (E10).
    pub timeout_seconds: Option<u32>,
    /// Bytes one call may hold, in MiB (E11).
    pub memory_limit_mb: Option<u32>,
    /// Calls of this tool running at once, over all callers.
    pub max_concurrent: Option<u32>,
    /// Largest `text`, in tokens: what the budget reserves for one call.
    pub max_text_tokens: Option<u64>,
    /// Largest output, in bytes.
    pub max_output_bytes: Option<usize>,
    /// What happens when an output does not fit the tool's output schema.
    pub output_schema: Option<OutputCheck>,
    /// The caller must hold one of these roles.
    pub roles: Option<Vec<String>>,
    pub labels: Option<Vec<String>>,
    pub dangerous: Option<bool>,
    pub requires_auth: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputCheck {
    /// A misfit is `invalid_output`.
    Enforce,
    /// A misfit stands in the receipt and in a metric.
    Report,
    Off,
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebFetchConfig {
    /// Bytes read of a page.
    pub max_bytes: usize,
    /// Deepest nesting of tags that is still converted.
    pub max_depth: usize,
    /// Redirects followed, each checked like the first address.
    pub max_redirects: usize,
    /// Hosts that may be fetched (`example.com` means its subdomains too). Empty: every public host.
    pub allowed_domains: Vec<String>,
}

impl Default for WebFetchConfig {
    fn default() -> Self {
        Self { max_bytes: 2 << 20, max_depth: 256, max_redirects: 5, allowed_domains: Vec::new() }
    }
}

/// `web_search` is offered once a provider is named here.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebSearchConfig {
    pub provider: Option<SearchProvider>,
    /// The provider's key; `searxng` needs none.
    pub api_key: Option<Secret>,
    /// The provider's address; needed for `searxng`, otherwise the public one.
    pub base_url: Option<Url>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchProvider {
    Searxng,
    Brave,
    Tavily,
    Serper,
}

/// Where the file tools work: one folder for each session of each caller.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceConfig {
    /// Default: `workspaces` in the state directory.
    pub directory: Option<PathBuf>,
    /// Bytes all files of one workspace may take together.
    pub quota_bytes: u64,
    /// Files and folders in one workspace.
    pub max_files: u64,
    /// Largest file that is read or written.
    pub max_file_bytes: u64,
}

impl Default for WorkspaceConfig {
    fn default() -> Self {
        Self { directory: None, quota_bytes: 64 << 20, max_files: 1_000, max_file_bytes: 8 << 20 }
    }
}
