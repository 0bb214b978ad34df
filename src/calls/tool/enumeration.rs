//! Values of an argument that are read from the answer of another tool (`enumerate` of `tools.overrides`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::projection::{InvalidProjection, Projection};
use crate::transform::json_of_text;
use sekisho_config::Enumerate;
use sekisho_core::administration::Ownership;
use sekisho_core::visible_text::is_visible;

/// The values that are known now, by the name that its source gives a tool.
pub type EnumeratedValues = BTreeMap<String, ToolValues>;

/// The values of a tool's arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolValues {
    /// The owner of the tool for which they were read: another tenant's tool may get the same name later.
    pub owner: Ownership,
    pub by_argument: BTreeMap<String, Vec<Value>>,
}

/// Maximum values of an argument.
const MAX_VALUES: usize = 200;

/// Maximum bytes of all of them. They are in each list of the tools.
const MAX_BYTES: usize = 8 << 10;

/// Maximum bytes of a text among them: a name or an id, and no message to a model.
const MAX_TEXT_BYTES: usize = 128;

/// Maximum bytes that the expression may walk over and build.
const MEMORY: usize = 32 << 20;

/// Errors: an expression that is no JMESPath.
pub(super) fn path(tool: &str, argument: &str, from: &Enumerate) -> Result<Projection, InvalidProjection> {
    Projection::compile(&format!("tools.overrides.{tool}.enumerate.{argument}.path"), &from.path)
}

/// The values of an argument in an answer, each once.
/// Errors: the expression fails on the answer, or selects something else than a list of a bounded number of short texts, numbers
/// and truth values.
pub fn enumerated_values(tool: &str, argument: &str, from: &Enumerate, answer: &Value) -> Result<Vec<Value>, String> {
    let path = path(tool, argument, from).map_err(|error| error.to_string())?;
    let parsed = answer.as_str().and_then(json_of_text);
    let selected = path.of(parsed.as_ref().unwrap_or(answer), MEMORY, MAX_BYTES);
    let selected = selected.map_err(|error| format!("`path` fails on the answer: {}", error.message()))?;
    let Value::Array(found) = selected else {
        return Err(format!("`path` selects no list in the answer of {}", from.tool));
    };
    let mut values = Vec::new();
    for value in found {
        if !is_usable(&value) {
            return Err(format!(
                "`path` selects something else than numbers, truth values and texts of at most {MAX_TEXT_BYTES} visible bytes"
            ));
        }
        if !values.contains(&value) {
            values.push(value);
        }
        // A part of them would refuse the others.
        if values.len() > MAX_VALUES {
            return Err(format!(
                "`path` selects more than {MAX_VALUES} values; narrow it, or the arguments of the call"
            ));
        }
    }
    if values.is_empty() {
        return Err(format!("`path` selects nothing in the answer of {}", from.tool));
    }
    Ok(values)
}

fn is_usable(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() <= MAX_TEXT_BYTES && is_visible(text),
        Value::Number(_) | Value::Bool(_) => true,
        _ => false,
    }
}

/// Whether the schema of an argument has a type for each of the values; without them each call would be refused.
pub fn has_types_of(schema: &Value, values: &[Value]) -> bool {
    if let Some(alternatives) = ["anyOf", "oneOf"].into_iter().find_map(|key| schema[key].as_array()) {
        return alternatives.iter().any(|alternative| has_types_of(alternative, values));
    }
    let Some(schema) = schema.as_object().filter(|schema| schema.contains_key("type")) else { return true };
    if is(schema, "array") {
        return schema.get("items").is_none_or(|items| has_types_of(items, values));
    }
    values.iter().all(|value| match value {
        Value::String(_) => is(schema, "string"),
        Value::Bool(_) => is(schema, "boolean"),
        Value::Number(number) => is(schema, "number") || (is(schema, "integer") && !number.is_f64()),
        _ => false,
    })
}

/// Sets the values in the schema of the argument: of a list in the schema of its items, and in each alternative but null.
pub(super) fn offer(schema: &mut Map<String, Value>, values: &[Value]) {
    if let Some(key) = ["anyOf", "oneOf"].into_iter().find(|key| schema.contains_key(*key)) {
        let alternatives = schema.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
        for alternative in alternatives.filter_map(Value::as_object_mut).filter(|one| !is(one, "null")) {
            offer(alternative, values);
        }
    } else if is(schema, "array") {
        let items = schema.entry("items").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(items) = items {
            offer(items, values);
        }
    } else {
        let null = is(schema, "null").then_some(Value::Null);
        schema.insert("enum".to_owned(), values.iter().cloned().chain(null).collect());
    }
}

fn is(schema: &Map<String, Value>, wanted: &str) -> bool {
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
        kind => kind.is_some_and(|kind| kind == wanted),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_offered_where_the_schema_has_them_and_null_stays() {
        for (schema, offered) in [
            (json!({"type": "string"}), json!({"type": "string", "enum": ["a"]})),
            (json!({"type": ["string", "null"]}), json!({"type": ["string", "null"], "enum": ["a", null]})),
            (json!({"type": "array"}), json!({"type": "array", "items": {"enum": ["a"]}})),
            (
                json!({"type": ["array", "null"], "items": {"type": "string"}}),
                json!({"type": ["array", "null"], "items": {"type": "string", "enum": ["a"]}}),
            ),
            // As servers in Python have arguments that may be left out.
            (
                json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": null}),
                json!({
                    "anyOf": [{"type": "array", "items": {"type": "string", "enum": ["a"]}}, {"type": "null"}],
                    "default": null
                }),
            ),
        ] {
            let mut found = schema.as_object().cloned().unwrap();
            offer(&mut found, &[json!("a")]);
            assert_eq!(Value::Object(found), offered, "{schema}");
        }
    }

    #[test]
    fn values_have_a_type_of_their_argument() {
        for (schema, value, expected) in [
            (json!({"type": "string"}), json!("a"), true),
            (json!({"type": "string"}), json!(5), false),
            (json!({"type": ["integer", "null"]}), json!(5), true),
            (json!({"type": "integer"}), json!(5.5), false),
            (json!({"type": "array", "items": {"type": "number"}}), json!(5.5), true),
            (json!({"type": "array", "items": {"type": "number"}}), json!("5"), false),
            (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!(true), false),
            (json!({"anyOf": [{"type": "boolean"}, {"type": "null"}]}), json!(true), true),
            (json!({"type": "array"}), json!("a"), true),
            (json!({}), json!("a"), true),
        ] {
            assert_eq!(has_types_of(&schema, &[value]), expected, "{schema}");
        }
    }
}
