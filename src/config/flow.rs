use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check::Findings;

/// Maximum days for which a destination is known: ten years.
const MAX_DAYS: u32 = 3_660;

/// The treatment of a call with a destination or a secret that a stranger may have written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowMode {
    /// No values are kept, and nothing is looked up.
    #[default]
    Off,
    /// The call runs; receipts, metrics and `sekisho flow report` say what would have been asked.
    Observe,
    /// A person must approve it, unless the destination is known.
    Enforce,
}

/// Where the values of calls come from and go to; `policy.flow` switches it on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FlowConfig {
    pub history: FlowHistoryConfig,
}

/// The destinations that are known from calls of before.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FlowHistoryConfig {
    /// How long a destination is known after its last call.
    pub days: u32,
    /// For whom it is known.
    pub scope: HistoryScope,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistoryScope {
    /// For all callers of the tenant whose call went there.
    #[default]
    Tenant,
    /// Only for the caller.
    Caller,
}

impl Default for FlowHistoryConfig {
    fn default() -> Self {
        Self { days: 90, scope: HistoryScope::Tenant }
    }
}

impl FlowConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        findings.above_zero("flow.history.days", self.history.days);
        if self.history.days > MAX_DAYS {
            findings.add("flow.history.days", "is longer than ten years", "set fewer days");
        }
    }
}
