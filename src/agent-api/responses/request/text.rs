//! The form of the answer that a request asks for.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::openai::terms::schema_format;
use sekisho_agent::OutputFormat;
use sekisho_core::error::CallError;

#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
pub(super) struct TextOptions {
    pub(super) format: Option<TextFormat>,
    /// Refused unless `medium`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verbosity: Option<String>,
}

/// The form of the answer, which the gateway checks: an answer in another form is asked for once more, then refused with
/// `invalid_output`.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum TextFormat {
    Text,
    JsonObject,
    JsonSchema {
        name: String,
        #[schema(value_type = Object)]
        schema: Value,
        strict: Option<bool>,
    },
}

impl TextFormat {
    pub(super) fn read(self) -> Result<Option<OutputFormat>, CallError> {
        match self {
            Self::Text => Ok(None),
            Self::JsonObject => Ok(Some(OutputFormat::object())),
            Self::JsonSchema { name, schema, strict } => {
                schema_format("text.format.schema", name, schema, strict).map(Some)
            }
        }
    }
}
