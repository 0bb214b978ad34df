use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;

/// Where the policies stand.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// A folder of `.rego` files that replaces the default set whole. Without one the built-in set applies.
    pub directory: Option<PathBuf>,
    /// An evaluation that takes longer denies, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self { directory: None, timeout_ms: 50 }
    }
}

impl PolicyConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        findings.above_zero("policy.timeout_ms", self.timeout_ms);
        if self.timeout_ms > 60_000 {
            findings.add("policy.timeout_ms", "is longer than a minute", "give milliseconds; 50 is the default");
        }
    }
}
