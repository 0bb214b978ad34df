use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;

/// The policies, and who may call dangerous tools.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// A folder of `.rego` files that replaces the whole default set. The built-in default set has no rules of its
    /// own.
    pub directory: Option<PathBuf>,
    /// A caller with one of these roles may call tools that are `dangerous`; policies may restrict further. At least
    /// one.
    pub dangerous_roles: Vec<String>,
    /// A longer evaluation denies the call, in milliseconds.
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
            let advice = "set a role, or permit a single tool with `dangerous: false` in `tools.overrides`";
            findings.add("policy.dangerous_roles", "is empty, so that no caller could use a dangerous tool", advice);
        }
        findings.names("policy.dangerous_roles", &self.dangerous_roles);
        findings.above_zero("policy.timeout_ms", self.timeout_ms);
        if self.timeout_ms > 60_000 {
            findings.add("policy.timeout_ms", "is longer than a minute", "set milliseconds; 50 is the default");
        }
    }
}
