use schemars::JsonSchema;
use serde::Deserialize;

use sekisho_core::call::READ_RESULT;
use sekisho_core::tool_scope::matches;

/// The tool of agents that loads a skill.
pub const SKILL: &str = "Skill";

/// The tool of agents that starts a sub-agent.
pub const TASK: &str = "Task";

/// The tool of agents that calls a tool which came after the session began.
pub const CALL_TOOL: &str = "CallTool";

/// The tool of agents that waits, between two questions about a job.
pub const WAIT: &str = "Wait";

/// Names of tools; a final `*` matches any rest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolFilter {
    /// Empty: all.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}

impl ToolFilter {
    /// Whether a tool is left. The one that reads stored results need not be included.
    pub fn admits(&self, name: &str) -> bool {
        let is_in = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        (self.include.is_empty() || name == READ_RESULT || is_in(&self.include)) && !is_in(&self.exclude)
    }
}
