use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;

/// Results that are too large for a model.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResultsConfig {
    /// A longer result is stored, and the model gets a preview with a handle of it.
    pub max_inline_bytes: usize,
    /// How long it is stored.
    pub lifetime_seconds: u64,
}

/// Room for a preview that says something.
const MIN_INLINE_BYTES: usize = 1_024;

impl Default for ResultsConfig {
    fn default() -> Self {
        Self { max_inline_bytes: 32_768, lifetime_seconds: 86_400 }
    }
}

impl ResultsConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        if self.max_inline_bytes < MIN_INLINE_BYTES {
            let problem = format!("is below {MIN_INLINE_BYTES}");
            findings.add("results.max_inline_bytes", problem, "set a number of bytes, such as 32768");
        }
        findings.seconds("results.lifetime_seconds", self.lifetime_seconds);
    }
}
