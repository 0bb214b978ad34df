use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;

/// Where the policies stand, and who may call dangerous tools.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// A folder of `.rego` files that replaces the default set whole. Without one the built-in set applies, which
    /// has no rules of its own.
    pub directory: Option<PathBuf>,
    /// A caller with one of these roles may call tools that are `dangerous`, whatever the policies add. At least one.
    pub dangerous_roles: Vec<String>,
    /// An evaluation that takes longer denies, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self { directory: None, dangerous_roles: vec!["operator".to_owned()], timeout_ms: 50 }
    }
}

impl PolicyConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        if self.dangerous_roles.is_empty() {
            let advice = "name a role, or open a single tool with `dangerous: false` in `tools.overrides`";
            findings.add("policy.dangerous_roles", "is empty, so that nobody could call a dangerous tool", advice);
        }
        findings.names("policy.dangerous_roles", &self.dangerous_roles);
        findings.above_zero("policy.timeout_ms", self.timeout_ms);
        if self.timeout_ms > 60_000 {
            findings.add("policy.timeout_ms", "is longer than a minute", "give milliseconds; 50 is the default");
        }
    }
}
