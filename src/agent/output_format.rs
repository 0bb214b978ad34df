//! The form that a client asks of an answer: JSON, or JSON that fits a schema.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use sekisho_calls::tool::schema::{InvalidSchema, OutputSchema};
use sekisho_core::json;

/// Maximum violations in a message for a model or a client.
const MAX_TOLD: usize = 5;

/// The form of an answer. Providers that have a mode for it are asked for it; the others find it in the system prompt. The
/// run checks the answer in both cases.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "WrittenFormat", into = "WrittenFormat")]
pub struct OutputFormat {
    /// `None`: any JSON object.
    schema: Option<NamedSchema>,
}

/// A schema, under the name that the client gave it.
#[derive(Debug, Clone)]
pub(super) struct NamedSchema {
    pub(super) name: String,
    /// Whether the provider is to keep the model from anything else, where it can.
    pub(super) is_strict: bool,
    pub(super) checked: Arc<OutputSchema>,
}

impl OutputFormat {
    /// Any JSON object.
    pub fn object() -> Self {
        Self { schema: None }
    }

    /// Errors: the schema is not a valid JSON Schema.
    pub fn of_schema(name: String, schema: Value, is_strict: bool) -> Result<Self, InvalidSchema> {
        let checked = Arc::new(OutputSchema::compile(schema)?);
        Ok(Self { schema: Some(NamedSchema { name, is_strict, checked }) })
    }

    pub(super) fn schema(&self) -> Option<&NamedSchema> {
        self.schema.as_ref()
    }

    /// For providers that have no mode for it.
    pub(super) fn instruction(&self) -> String {
        let start = "Answer with one JSON object and nothing else: no other text, no Markdown.";
        match &self.schema {
            None => start.to_owned(),
            Some(schema) => {
                format!("{start} It must be valid against this JSON Schema:\n{}", schema.checked.whole())
            }
        }
    }

    /// The JSON of an answer, without the Markdown fence that many models write around it.
    /// Errors: why it is not in this form.
    pub(super) fn read(&self, answer: &str) -> Result<String, String> {
        let text = unfenced(answer.trim());
        let value = json::parse(text.as_bytes()).map_err(|problem| format!("it is not JSON: {problem}"))?;
        let Some(schema) = &self.schema else {
            return if value.is_object() { Ok(text.to_owned()) } else { Err("it is not a JSON object".to_owned()) };
        };
        let violations = schema.checked.violations(&value);
        if violations.is_empty() {
            return Ok(text.to_owned());
        }
        let told: Vec<_> = violations.into_iter().take(MAX_TOLD).map(|violation| violation.message).collect();
        Err(told.join("; "))
    }
}

/// A format in a file; without a schema, any JSON object.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFormat {
    name: Option<String>,
    schema: Option<Value>,
    strict: bool,
}

impl From<OutputFormat> for WrittenFormat {
    fn from(format: OutputFormat) -> Self {
        let Some(NamedSchema { name, is_strict, checked }) = format.schema else {
            return Self { name: None, schema: None, strict: false };
        };
        Self { name: Some(name), schema: Some(checked.whole()), strict: is_strict }
    }
}

impl TryFrom<WrittenFormat> for OutputFormat {
    type Error = InvalidSchema;

    fn try_from(written: WrittenFormat) -> Result<Self, InvalidSchema> {
        match (written.name, written.schema) {
            (Some(name), Some(schema)) => Self::of_schema(name, schema, written.strict),
            _ => Ok(Self::object()),
        }
    }
}

impl PartialEq for OutputFormat {
    fn eq(&self, other: &Self) -> bool {
        let parts = |format: &Self| {
            format.schema.as_ref().map(|schema| (schema.name.clone(), schema.is_strict, schema.checked.whole()))
        };
        parts(self) == parts(other)
    }
}

/// A text without the Markdown fence around it.
pub(super) fn unfenced(text: &str) -> &str {
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else { return text };
    inner.strip_prefix("json").unwrap_or(inner).trim()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_must_be_json_and_fit_the_schema() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let numbers = OutputFormat::of_schema("numbers".into(), schema, true).unwrap();
        assert!(numbers.instruction().contains("\"required\":[\"n\"]"));
        for (format, answer, expected) in [
            (&numbers, "{\"n\": 1}", Ok("{\"n\": 1}")),
            (&numbers, " ```json\n{\"n\": 1}\n``` ", Ok("{\"n\": 1}")),
            (&numbers, "```\n{\"n\": 1}\n```", Ok("{\"n\": 1}")),
            (&numbers, "{\"n\": \"1\"}", Err("n")),
            (&numbers, "{}", Err("n")),
            (&numbers, "Here you are: {\"n\": 1}", Err("it is not JSON")),
            (&OutputFormat::object(), "{}", Ok("{}")),
            (&OutputFormat::object(), "[]", Err("it is not a JSON object")),
        ] {
            match (format.read(answer), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read, expected),
                (Err(problem), Err(expected)) => assert!(problem.contains(expected), "{answer}: {problem}"),
                (read, _) => panic!("{answer}: {read:?}"),
            }
        }
        assert!(OutputFormat::of_schema("broken".into(), json!({"type": "strin"}), false).is_err());
    }
}
