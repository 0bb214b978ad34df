mod rules;

use schemars::JsonSchema;
use serde::Deserialize;

pub(super) use self::rules::RuleMatch;
pub use self::rules::{LimitRule, RuleSubject};
use super::check::Findings;
use super::overrides::Overrides;

/// Rate and concurrency limits. Rates are calls per minute; zero is refused, omit a rate for "no limit".
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// One tool of an MCP server, for each caller, unless its override sets another (`MCP_RATE_LIMIT_DEFAULT`, E46).
    pub mcp_tool_rate_limit: u32,
    /// All calls of one caller together.
    pub caller_rate_limit: Option<u32>,
    /// All calls of one tenant together.
    pub tenant_rate_limit: Option<u32>,
    /// Calls running at once, over all tools.
    pub max_concurrent: u32,
    /// Calls of one tool running at once, unless the tool's override sets another.
    pub max_concurrent_per_tool: u32,
    /// Calls that may wait for a slot, for each of the two; further ones are refused with `overloaded`.
    pub max_queued: u32,
    /// Calls of one batch that run concurrently (`TOOL_PARALLELISM`, E73).
    pub parallelism: u32,
    /// For chosen calls, beside these limits.
    pub rules: Vec<LimitRule>,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            mcp_tool_rate_limit: 60,
            caller_rate_limit: None,
            tenant_rate_limit: None,
            max_concurrent: 1_024,
            max_concurrent_per_tool: 256,
            max_queued: 1_024,
            parallelism: 5,
            rules: Vec::new(),
        }
    }
}

impl LimitsConfig {
    pub(super) fn override_from(&mut self, environment: &mut Overrides<'_>) {
        environment.apply("MCP_RATE_LIMIT_DEFAULT", "limits.mcp_tool_rate_limit", &mut self.mcp_tool_rate_limit);
        environment.apply("TOOL_PARALLELISM", "limits.parallelism", &mut self.parallelism);
    }

    pub(super) fn check(&self, findings: &mut Findings) {
        findings.above_zero("limits.mcp_tool_rate_limit", self.mcp_tool_rate_limit);
        findings.above_zero_or_none("limits.caller_rate_limit", self.caller_rate_limit);
        findings.above_zero_or_none("limits.tenant_rate_limit", self.tenant_rate_limit);
        findings.above_zero("limits.max_concurrent", self.max_concurrent);
        findings.above_zero("limits.max_concurrent_per_tool", self.max_concurrent_per_tool);
        findings.above_zero("limits.parallelism", self.parallelism);
        rules::check(&self.rules, findings);
    }
}
