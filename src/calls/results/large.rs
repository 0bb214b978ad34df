//! A result that is too large for a model, and the form in which it is stored.

use std::borrow::Cow;

use serde_json::Value;

use super::new_handle;
use crate::transform::json_of_text;

/// The kind of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultKind {
    Json,
    Text,
}

/// A large result of a call. A call that has it whole answers with its preview.
#[derive(Debug)]
pub struct LargeResult {
    pub handle: String,
    pub kind: ResultKind,
    /// The stored text: JSON or plain text.
    pub text: String,
    /// The JSON; null for text.
    pub value: Value,
}

impl LargeResult {
    /// The large result of an output and its text. The one of the two that says more is stored. A text that is an
    /// object or a list of JSON, as many MCP servers send it, is JSON.
    pub fn new(output: &Value, text: &str) -> Self {
        let whole = match output {
            Value::Null => Cow::Borrowed(text),
            Value::String(output) => Cow::Borrowed(output.as_str()),
            output => Cow::Owned(output.to_string()),
        };
        let (kind, text, value) = if !matches!(output, Value::Null | Value::String(_)) && whole.len() >= text.len() {
            (ResultKind::Json, whole.into_owned(), output.clone())
        } else {
            let text = if whole.len() >= text.len() { whole } else { Cow::Borrowed(text) };
            match json_of_text(&text) {
                Some(value) => (ResultKind::Json, text.into_owned(), value),
                None => (ResultKind::Text, text.into_owned(), Value::Null),
            }
        };
        Self { handle: new_handle(), kind, text, value }
    }
}

impl ResultKind {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Text => "text/plain",
        }
    }

    pub(super) fn of_content_type(content_type: &str) -> Self {
        if content_type == Self::Json.content_type() { Self::Json } else { Self::Text }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_form_that_says_more_is_stored() {
        let rows = json!([{"a": 1}, {"a": 2}]);
        for (output, text, kind, stored) in [
            (rows.clone(), rows.to_string(), ResultKind::Json, rows.to_string()),
            (rows.clone(), "two rows".to_owned(), ResultKind::Json, rows.to_string()),
            (
                json!({"ok": true}),
                "a long report about it".to_owned(),
                ResultKind::Text,
                "a long report about it".to_owned(),
            ),
            (json!("plain"), "plain".to_owned(), ResultKind::Text, "plain".to_owned()),
            (json!(" {\"a\": 1}"), String::new(), ResultKind::Json, " {\"a\": 1}".to_owned()),
            (json!("[not json"), String::new(), ResultKind::Text, "[not json".to_owned()),
            (Value::Null, "only text".to_owned(), ResultKind::Text, "only text".to_owned()),
        ] {
            let large = LargeResult::new(&output, &text);
            assert_eq!((large.kind, large.text.as_str()), (kind, stored.as_str()), "{output}");
            assert_eq!(large.value.is_null(), kind == ResultKind::Text);
            assert_eq!(ResultKind::of_content_type(kind.content_type()), kind);
        }
        let large = LargeResult::new(&json!("[12345678901234567890123]"), "");
        assert_eq!(large.value, json!(["12345678901234567890123"]), "no digit is lost");
    }
}
