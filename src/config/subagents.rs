use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::Findings;
use super::tool_filter::ToolFilter;
use super::tools::{TOOL_NAME_RULE, is_tool_name};

/// Agents that other agents start with the tool `Task`, in profiles that name them in `subagents` (C24).
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SubAgentsConfig {
    /// By the name that `Task` gets as `subagent_type`.
    pub types: BTreeMap<String, SubAgentType>,
    /// A folder with further types: Markdown files with the front matter `name`, `description`, `tools` and `model`. The
    /// text after it is the prompt.
    pub directory: Option<PathBuf>,
    /// The model of a sub-agent for which neither the call nor its type names one: a name of `agent.models` or
    /// `agent.profiles`, or a model's id with the provider of the agent that starts it. Default: that agent's model.
    pub model: Option<String>,
}

/// One type of sub-agent. Limits that are not set are those of the agent that starts it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SubAgentType {
    /// When to use it: models select types by this.
    pub description: String,
    /// Its system prompt.
    pub prompt: String,
    /// The tools that it may use, of those of the agent that starts it.
    pub tools: ToolFilter,
    /// A name of `agent.models` or `agent.profiles`; `inherit` for the model of the agent that starts it.
    pub model: Option<String>,
    /// Types that it may start itself.
    pub subagents: Vec<String>,
    pub max_turns: Option<u32>,
    pub max_tool_calls: Option<u32>,
    pub max_run_seconds: Option<f64>,
    pub run_tokens: Option<u64>,
}

impl SubAgentsConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        for (name, kind) in &self.types {
            let at = format!("agent.subagents.types.{name}");
            if !is_tool_name(name) {
                findings.add(&at, "is not a valid name of a sub-agent type", TOOL_NAME_RULE);
            }
            kind.check(&at, findings);
        }
    }
}

impl SubAgentType {
    fn check(&self, at: &str, findings: &mut Findings) {
        if self.description.trim().is_empty() {
            let advice = "describe when to use it: models select types by it";
            findings.add(format!("{at}.description"), "is empty", advice);
        }
        if self.prompt.trim().is_empty() {
            findings.add(format!("{at}.prompt"), "is empty", "set its system prompt");
        }
        findings.above_zero_or_none(&format!("{at}.max_turns"), self.max_turns);
        findings.above_zero_or_none(&format!("{at}.run_tokens"), self.run_tokens);
        if let Some(seconds) = self.max_run_seconds {
            findings.duration(&format!("{at}.max_run_seconds"), seconds);
        }
    }
}
