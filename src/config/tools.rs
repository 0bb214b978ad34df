use std::collections::BTreeMap;
use std::path::PathBuf;

use rust_decimal::Decimal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::Secret;
use super::approvals::ApprovalRule;
use super::audit::AuditArguments;
use super::check::Findings;
use super::guards::GuardsConfig;
use super::labels::{Labels, SinkSettings};
use super::overrides::Overrides;
use super::schema::Money;
use super::shape::{Enumerate, OverrideCase, Summary};
use super::transform::TransformConfig;

/// The tools, and the overrides of their defaults.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsConfig {
    /// Coerce arguments of the wrong JSON type ("3" to 3). The receipt lists each change.
    pub coerce_arguments: bool,
    /// The approved definition of every tool (`sekisho lock`). A configured file must exist; by default `tools.lock`
    /// beside the configuration file, or in the state directory without one, is used if it exists.
    pub lock: Option<PathBuf>,
    /// The table of embeddings with which tools are searched by meaning too; scripts/tool-embeddings makes one. Without it, or
    /// where it cannot be read, tools are searched by words only.
    pub embeddings: Option<PathBuf>,
    /// Overrides by tool name, on top of the tool's own definition.
    pub overrides: BTreeMap<String, ToolOverride>,
    /// Changes arguments before they are sent, and results before they are returned.
    pub transform: TransformConfig,
    /// Looks at arguments, answers and descriptions, and records, masks or stops findings.
    pub guards: GuardsConfig,
    pub web_fetch: WebFetchConfig,
    pub web_search: WebSearchConfig,
    pub workspace: WorkspaceConfig,
}

impl Default for ToolsConfig {
    fn default() -> Self {
        Self {
            coerce_arguments: true,
            lock: None,
            embeddings: None,
            overrides: BTreeMap::new(),
            transform: TransformConfig::default(),
            guards: GuardsConfig::default(),
            web_fetch: WebFetchConfig::default(),
            web_search: WebSearchConfig::default(),
            workspace: WorkspaceConfig::default(),
        }
    }
}

impl ToolsConfig {
    /// Whether the source marks the tool as dangerous and the operator does not.
    pub fn opens(&self, tool: &str) -> bool {
        self.overrides.get(tool).is_some_and(|changes| changes.dangerous == Some(false))
    }

    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        for (variable, tool) in [
            ("WEB_SEARCH_RATE_LIMIT", "web_search"),
            ("CALCULATOR_RATE_LIMIT", "calculator"),
            ("PYTHON_EXECUTOR_RATE_LIMIT", "python_executor"),
        ] {
            if environment.is_set(variable) {
                let tool_override = self.overrides.entry(tool.to_owned()).or_default();
                environment.apply(
                    variable,
                    &format!("tools.overrides.{tool}.rate_limit"),
                    &mut tool_override.rate_limit,
                );
            }
        }
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        for (tool, changes) in &self.overrides {
            let setting = format!("tools.overrides.{tool}");
            if !is_tool_name(tool) {
                findings.add(&setting, "is not the name of a tool", TOOL_NAME_RULE);
            }
            changes.check(&setting, findings);
        }
        self.transform.check(findings);
        self.guards.check(findings);
        self.web_fetch.check(findings);
        self.web_search.check(findings);
        self.workspace.check(findings);
    }
}

pub(super) const TOOL_NAME_RULE: &str = "use 1 to 64 letters, digits, `_` and `-`: model APIs accept no more";

pub(super) fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// The highest limit of calls at once that replicas count together.
const MAX_GLOBAL: u32 = 1_000;

/// Every field is optional: an omitted one leaves the tool's own value.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolOverride {
    /// Offer the tool under another name.
    pub rename: Option<String>,
    pub description: Option<String>,
    /// Do not offer the tool: for callers it does not exist.
    pub hidden: Option<bool>,
    /// Price of one call in USD (E13).
    #[schemars(with = "Option<Money>")]
    pub cost_per_use: Option<Decimal>,
    /// Calls per minute for each caller (E12).
    pub rate_limit: Option<u32>,
    /// Maximum duration of one call, in seconds (E10).
    pub timeout_seconds: Option<u32>,
    /// Maximum memory of one call, in MiB (E11).
    pub memory_limit_mb: Option<u32>,
    /// Calls of this tool running at once, over all callers.
    pub max_concurrent: Option<u32>,
    /// Count `max_concurrent`, at most 1 000 then, over all replicas (`cluster.enabled`). A gateway that is no replica counts its own.
    pub max_concurrent_global: Option<bool>,
    /// Maximum `text`, in tokens: the amount that the budget reserves for one call.
    pub max_text_tokens: Option<u64>,
    /// Maximum output, in bytes.
    pub max_output_bytes: Option<usize>,
    /// What happens when an output does not match the tool's output schema.
    pub output_schema: Option<OutputCheck>,
    /// The caller must have one of these roles.
    pub roles: Option<Vec<String>>,
    /// Labels for policies, or a mapping with them and with where its results come from.
    pub labels: Option<Labels>,
    /// What its calls do outside of their session.
    pub sink: Option<SinkSettings>,
    pub dangerous: Option<bool>,
    pub requires_auth: Option<bool>,
    /// What the audit trail has of a call's arguments (`digest`).
    pub audit_arguments: Option<AuditArguments>,
    /// Which calls a person must approve, beside those that a policy asks for (`never`).
    pub approval: Option<ApprovalRule>,
    /// How many distinct persons must approve a call that needs approval: 1 or 2.
    pub approvals_needed: Option<u8>,
    /// The tool of the same source that finds the effect of a call whose answer was lost.
    pub found_by: Option<String>,
    /// Values of arguments that are sent with each call. The tool is offered without these arguments.
    pub fix: BTreeMap<String, Value>,
    /// Values of arguments that a call leaves out.
    pub defaults: BTreeMap<String, Value>,
    /// Arguments whose values are read from the answers of other tools, and offered as `enum`.
    pub enumerate: BTreeMap<String, Enumerate>,
    /// The part of a result that is answered: a JMESPath expression.
    pub project: Option<String>,
    /// The form in which a model gets a result of more than 1 KiB. The whole is stored.
    pub summarise: Option<Summary>,
    /// Cases of this override, for `sekisho tools test`.
    pub cases: Vec<OverrideCase>,
}

impl ToolOverride {
    fn check(&self, tool: &str, findings: &mut Findings) {
        let setting = |key: &str| format!("{tool}.{key}");
        if self.rename.as_ref().is_some_and(|name| !is_tool_name(name)) {
            findings.add(setting("rename"), "is not a valid name for a tool", TOOL_NAME_RULE);
        }
        if self.description.as_ref().is_some_and(|text| text.trim().is_empty()) {
            findings.add(setting("description"), "is empty", "describe what the tool does: models choose tools by it");
        }
        if self.cost_per_use.is_some_and(|cost| cost < Decimal::ZERO) {
            findings.add(setting("cost_per_use"), "must not be below zero", "set an amount in USD, such as 0.001");
        }
        if self.approvals_needed.is_some_and(|needed| !(1..=2).contains(&needed)) {
            findings.add(setting("approvals_needed"), "is neither 1 nor 2", "set how many persons must approve a call");
        }
        findings.above_zero_or_none(&setting("rate_limit"), self.rate_limit);
        findings.above_zero_or_none(&setting("timeout_seconds"), self.timeout_seconds);
        findings.at_most_a_year(&setting("timeout_seconds"), self.timeout_seconds.unwrap_or_default().into());
        findings.above_zero_or_none(&setting("memory_limit_mb"), self.memory_limit_mb);
        findings.above_zero_or_none(&setting("max_concurrent"), self.max_concurrent);
        if self.max_concurrent_global == Some(true) && self.max_concurrent.is_none_or(|most| most > MAX_GLOBAL) {
            let problem = format!("needs `max_concurrent`, of {MAX_GLOBAL} at most");
            findings.add(setting("max_concurrent_global"), problem, "set `max_concurrent` beside it");
        }
        findings.above_zero_or_none(&setting("max_text_tokens"), self.max_text_tokens);
        findings.above_zero_or_none(&setting("max_output_bytes"), self.max_output_bytes);
        findings.names(&setting("roles"), self.roles.as_deref().unwrap_or_default());
        if let Some(labels) = &self.labels {
            labels.check(&setting("labels"), findings);
        }
        if let Some(sink) = &self.sink {
            sink.check(&setting("sink"), findings);
        }
        self.check_shape(setting, findings);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum OutputCheck {
    /// A violation fails the call with `invalid_output`.
    Enforce,
    /// A violation is listed in the receipt and counted by a metric.
    Report,
    Off,
}

#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebFetchConfig {
    /// Maximum bytes read of a page.
    pub max_bytes: usize,
    /// Maximum nesting of tags that is converted.
    pub max_depth: usize,
    /// Maximum redirects; each target is checked like the first address.
    pub max_redirects: usize,
    /// Permitted hosts (`example.com` includes its subdomains). Empty: every public host.
    pub allowed_domains: Vec<String>,
    /// Non-public addresses and address ranges (CIDR) that every caller may fetch.
    pub allow_networks: Vec<String>,
    /// Permitted ports in addition to 80 and 443.
    pub allow_ports: Vec<u16>,
}

impl Default for WebFetchConfig {
    fn default() -> Self {
        Self {
            max_bytes: 2 << 20,
            max_depth: 256,
            max_redirects: 5,
            allowed_domains: Vec::new(),
            allow_networks: Vec::new(),
            allow_ports: Vec::new(),
        }
    }
}

impl WebFetchConfig {
    fn check(&self, findings: &mut Findings) {
        findings.above_zero("tools.web_fetch.max_bytes", self.max_bytes);
        findings.above_zero("tools.web_fetch.max_depth", self.max_depth);
        findings.domains("tools.web_fetch.allowed_domains", &self.allowed_domains, false);
        findings.networks("tools.web_fetch.allow_networks", &self.allow_networks);
        for (index, port) in self.allow_ports.iter().enumerate() {
            findings.above_zero(&format!("tools.web_fetch.allow_ports[{index}]"), *port);
        }
    }
}

/// `web_search` is offered once a provider is set here.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WebSearchConfig {
    pub provider: Option<SearchProvider>,
    /// The provider's key; `searxng` needs none.
    pub api_key: Option<Secret>,
    /// The provider's URL; required for `searxng`, otherwise the public one.
    pub base_url: Option<Url>,
}

impl WebSearchConfig {
    /// A missing key is not an error: the tool is then not offered, and reports why.
    fn check(&self, findings: &mut Findings) {
        match &self.base_url {
            None if self.provider == Some(SearchProvider::Searxng) => findings.add(
                "tools.web_search.base_url",
                "is missing, and `searxng` has no public address",
                "set the URL of your instance, such as https://searx.example.com",
            ),
            Some(url) if !matches!(url.scheme(), "http" | "https") => findings.add(
                "tools.web_search.base_url",
                "is not an http or https address",
                "write it like https://searx.example.com",
            ),
            _ => {}
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SearchProvider {
    Searxng,
    Brave,
    Tavily,
    Serper,
}

/// The workspaces of the file tools: one folder for each session of each caller.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceConfig {
    /// Default: `workspaces` in the state directory.
    pub directory: Option<PathBuf>,
    /// Maximum size of all files of one workspace, in bytes.
    pub quota_bytes: u64,
    /// Maximum files and folders in one workspace.
    pub max_files: u64,
    /// Maximum size of a file that is read or written.
    pub max_file_bytes: u64,
}

impl Default for WorkspaceConfig {
    fn default() -> Self {
        Self { directory: None, quota_bytes: 64 << 20, max_files: 1_000, max_file_bytes: 8 << 20 }
    }
}

impl WorkspaceConfig {
    fn check(&self, findings: &mut Findings) {
        findings.above_zero("tools.workspace.quota_bytes", self.quota_bytes);
        findings.above_zero("tools.workspace.max_files", self.max_files);
        findings.above_zero("tools.workspace.max_file_bytes", self.max_file_bytes);
    }
}
