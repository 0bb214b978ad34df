//! The terms that OpenAI's two APIs share.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use sekisho_agent::{OutputFormat, ToolChoice};
use sekisho_config::{Effort, Thinking};
use sekisho_core::error::CallError;

#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolChoiceMode {
    Auto,
    None,
    Required,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReasoningEffort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl From<ToolChoiceMode> for ToolChoice {
    fn from(mode: ToolChoiceMode) -> Self {
        match mode {
            ToolChoiceMode::Auto => Self::Auto,
            ToolChoiceMode::None => Self::None,
            ToolChoiceMode::Required => Self::Required,
        }
    }
}

impl ReasoningEffort {
    pub(crate) fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// Nothing for `none`: the gateway asks for no thinking then, also where the profile does.
    pub(crate) fn thinking(self) -> Option<Thinking> {
        let effort = match self {
            Self::None => return None,
            Self::Minimal => Effort::Minimal,
            Self::Low => Effort::Low,
            Self::Medium => Effort::Medium,
            Self::High => Effort::High,
            Self::Xhigh => Effort::Xhigh,
            Self::Max => Effort::Max,
        };
        Some(Thinking::Effort(effort))
    }
}

/// The form of an answer by a schema; `place` is where the request has it.
/// Errors: `invalid_request`: it is not a valid JSON Schema.
pub(crate) fn schema_format(
    place: &str,
    name: String,
    schema: Value,
    strict: Option<bool>,
) -> Result<OutputFormat, CallError> {
    OutputFormat::of_schema(name, schema, strict.unwrap_or_default())
        .map_err(|error| CallError::invalid(format!("`{place}`: {error}")))
}
