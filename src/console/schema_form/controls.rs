//! How the value of an argument is entered.

use serde_json::Value;

use crate::schema_table::resolved;

/// Maximum choices that are shown beside each other.
const MAX_CHOICES: usize = 24;

/// The field of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Text,
    LongText,
    Number,
    /// One of some values.
    Select,
    /// Several of some values.
    Choices,
    /// Bytes in base64.
    File,
    Object,
    List,
    Json,
}

/// The control for a schema.
pub(super) fn control(whole: &Value, name: &str, schema: &Value) -> Control {
    let is_choice = choices(schema).is_some_and(|values| values.iter().all(is_scalar));
    if is_choice {
        return Control::Select;
    }
    match kind(schema) {
        "boolean" => Control::Select,
        "integer" | "number" => Control::Number,
        "string" if schema["contentEncoding"] == "base64" || schema["format"] == "byte" => Control::File,
        "string" if is_long(name, schema) => Control::LongText,
        "string" => Control::Text,
        "array" => list(whole, &schema["items"]),
        "object" if schema["properties"].as_object().is_some_and(|members| !members.is_empty()) => Control::Object,
        _ => Control::Json,
    }
}

/// The values of a select or of choices.
pub(super) fn options(whole: &Value, schema: &Value) -> Vec<Value> {
    let of_entries = || choices(resolved(whole, &schema["items"]));
    choices(schema).or_else(of_entries).unwrap_or_else(|| vec![Value::Bool(true), Value::Bool(false)])
}

/// The values that a schema lists: in `enum`, as `const`, or by one of both in each of its variants.
fn choices(schema: &Value) -> Option<Vec<Value>> {
    if let Some(values) = schema["enum"].as_array() {
        return Some(values.clone());
    }
    if let Some(value) = schema.get("const") {
        return Some(vec![value.clone()]);
    }
    let variants = ["oneOf", "anyOf"].into_iter().find_map(|key| schema[key].as_array())?;
    let listed = variants.iter().map(|variant| match variant.get("const") {
        Some(value) => Some(vec![value.clone()]),
        None => variant["enum"].as_array().cloned(),
    });
    Some(listed.collect::<Option<Vec<_>>>()?.concat())
}

/// A value as a field has it.
pub(super) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn list(whole: &Value, items: &Value) -> Control {
    let items = resolved(whole, items);
    match choices(items) {
        Some(values) if values.len() <= MAX_CHOICES && values.iter().all(is_scalar) => Control::Choices,
        _ if items.as_object().is_some_and(|items| !items.is_empty()) => Control::List,
        _ => Control::Json,
    }
}

/// The one type beside null.
fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(kind) => kind,
        Value::Array(kinds) => {
            let others: Vec<_> = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect();
            match others[..] {
                [only] => only,
                // A value that is no number is a text.
                ["number", "string"] | ["string", "number"] => "number",
                _ => "",
            }
        }
        _ if schema["properties"].is_object() => "object",
        _ => "",
    }
}

fn is_scalar(value: &Value) -> bool {
    value.is_string() || value.is_number() || value.is_boolean()
}

/// Texts like code have more than a line.
fn is_long(name: &str, schema: &Value) -> bool {
    const WORDS: [&str; 9] =
        ["code", "script", "query", "content", "body", "text", "prompt", "expression", "instructions"];
    let is_bounded = schema["maxLength"].as_u64().is_some_and(|max| max <= 200);
    let is_free = schema["format"].is_null() && schema["pattern"].is_null();
    is_free && !is_bounded && WORDS.iter().any(|word| name.to_lowercase().contains(word))
}
