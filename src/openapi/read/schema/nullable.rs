//! Schemas that allow null beside their other values.

use serde_json::{Map, Value, json};

use super::keyword::is_annotation;

/// The schema that allows null, too.
pub(super) fn with_null(mut lowered: Map<String, Value>) -> Value {
    let is_composed = |keyword: &str| matches!(keyword, "$ref" | "allOf" | "anyOf" | "oneOf" | "const" | "not" | "if");
    if lowered.keys().any(|keyword| is_composed(keyword)) {
        let is_about = |keyword: &str| is_annotation(keyword) || keyword == "examples";
        let (mut nullable, rest): (Map<_, _>, Map<_, _>) =
            lowered.into_iter().partition(|(keyword, _)| is_about(keyword));
        nullable.insert("anyOf".into(), json!([rest, {"type": "null"}]));
        return Value::Object(nullable);
    }
    if let Some(Value::Array(values)) = lowered.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match lowered.get_mut("type") {
        Some(Value::Array(kinds)) if !kinds.contains(&json!("null")) => kinds.push("null".into()),
        Some(kind @ Value::String(_)) if kind != "null" => *kind = json!([kind, "null"]),
        _ => {}
    }
    Value::Object(lowered)
}
