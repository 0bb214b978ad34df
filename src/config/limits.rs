use schemars::JsonSchema;
use serde::Deserialize;

/// Rate and concurrency limits. Rates are calls a minute; zero is refused, leave a rate out for "no limit".
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// All calls of one caller together.
    pub caller_rate_limit: Option<u32>,
    /// All calls of one tenant together.
    pub tenant_rate_limit: Option<u32>,
    /// Calls running at once, over all tools.
    pub max_concurrent: u32,
    /// Calls of one tool running at once, unless the tool says otherwise.
    pub max_concurrent_per_tool: u32,
    /// Calls that may wait for a slot, for each of the two; beyond that `overloaded`.
    pub max_queued: u32,
    /// Calls of one batch run side by side (`TOOL_PARALLELISM`, E73).
    pub parallelism: u32,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            caller_rate_limit: None,
            tenant_rate_limit: None,
            max_concurrent: 1_024,
            max_concurrent_per_tool: 256,
            max_queued: 1_024,
            parallelism: 5,
        }
    }
}
