use schemars::JsonSchema;
use serde::Deserialize;

/// Names of tools; a final `*` matches any rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolFilter {
    /// Empty: all.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}

impl ToolFilter {
    pub fn admits(&self, name: &str) -> bool {
        let is_in = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.include.is_empty() || is_in(&self.include)) && !is_in(&self.exclude)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |beginning| name.starts_with(beginning))
}
