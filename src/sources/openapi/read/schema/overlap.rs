//! Alternatives of `oneOf` of which one contains another: every value of the narrower one fits both, so that by the
//! letter it could never be used. Generators write such as `oneOf: [integer, number]`.

use serde_json::{Map, Value};

use crate::sources::openapi::read::reference::References;

/// Pairs of schemas that are compared for one list of alternatives.
const MAX_COMPARED: usize = 5_000;

/// Deepest pair that is compared.
const MAX_DEPTH: usize = 8;

/// Whether one of the alternatives contains another.
pub(super) fn has_overlap(alternatives: &[Value], references: &References<'_>) -> bool {
    let mut comparison = Comparison { references, left: MAX_COMPARED };
    let indexes = 0..alternatives.len();
    indexes.clone().any(|wide| {
        indexes.clone().any(|narrow| {
            wide != narrow
                && alternatives
                    .get(wide)
                    .zip(alternatives.get(narrow))
                    .is_some_and(|(wide, narrow)| comparison.contains(wide, narrow, 0))
        })
    })
}

struct Comparison<'s, 'd> {
    references: &'s References<'d>,
    left: usize,
}

impl Comparison<'_, '_> {
    /// Whether all values that `narrow` describes fit `wide`; `false` where that is not obvious.
    fn contains(&mut self, wide: &Value, narrow: &Value, depth: usize) -> bool {
        let Some(left) = self.left.checked_sub(1).filter(|_| depth < MAX_DEPTH) else { return false };
        self.left = left;
        let (Ok(wide), Ok(narrow)) = (self.references.target(wide), self.references.target(narrow)) else {
            return false;
        };
        let whole = wide;
        let (Value::Object(wide), Value::Object(narrow)) = (wide, narrow) else { return false };
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(parts)) = narrow.get(keyword) {
                return parts.iter().all(|part| self.contains(whole, part, depth + 1));
            }
        }
        wide.iter().all(|(keyword, value)| match keyword.as_str() {
            "type" => has_kinds(wide, narrow),
            "enum" => value.as_array().is_some_and(|values| has_values(values, narrow)),
            "const" => has_values(std::slice::from_ref(value), narrow),
            "nullable" | "x-nullable" | "discriminator" => true,
            "required" => is_required(value, narrow),
            "properties" => self.contains_properties(value, narrow, depth),
            "additionalProperties" if *value == Value::Bool(false) => has_no_others(wide, narrow),
            "additionalProperties" if *value == Value::Bool(true) => true,
            "items" => narrow.get("items").is_some_and(|items| self.contains(value, items, depth + 1)),
            "title" | "description" | "format" | "example" | "examples" | "default" | "deprecated" | "externalDocs"
            | "xml" | "readOnly" | "writeOnly" => true,
            other => other.starts_with("x-") || narrow.get(other) == Some(value),
        })
    }

    fn contains_properties(&mut self, wide: &Value, narrow: &Map<String, Value>, depth: usize) -> bool {
        let Some(wide) = wide.as_object() else { return false };
        let narrow = narrow.get("properties").and_then(Value::as_object);
        wide.iter().all(|(name, wide)| {
            narrow.and_then(|narrow| narrow.get(name)).is_none_or(|narrow| self.contains(wide, narrow, depth + 1))
        })
    }
}

/// The types of a schema; those of `properties` and `items` where none are written.
fn kinds(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ if schema.contains_key("properties") || schema.contains_key("required") => vec!["object"],
        _ if schema.contains_key("items") => vec!["array"],
        _ => Vec::new(),
    }
}

fn has_kinds(wide: &Map<String, Value>, narrow: &Map<String, Value>) -> bool {
    let (wide, narrow) = (kinds(wide), kinds(narrow));
    let fits = |kind: &&str| wide.contains(kind) || (*kind == "integer" && wide.contains(&"number"));
    !narrow.is_empty() && narrow.iter().all(fits)
}

fn has_values(wide: &[Value], narrow: &Map<String, Value>) -> bool {
    match (narrow.get("enum"), narrow.get("const")) {
        (Some(Value::Array(values)), _) => values.iter().all(|value| wide.contains(value)),
        (_, Some(value)) => wide.contains(value),
        _ => false,
    }
}

fn is_required(names: &Value, narrow: &Map<String, Value>) -> bool {
    let required = narrow.get("required").and_then(Value::as_array);
    let is_required = |name| required.is_some_and(|required| required.contains(name));
    names.as_array().is_some_and(|names| names.iter().all(is_required))
}

fn has_no_others(wide: &Map<String, Value>, narrow: &Map<String, Value>) -> bool {
    let named = |schema: &Map<String, Value>, name: &str| {
        schema.get("properties").and_then(Value::as_object).is_some_and(|properties| properties.contains_key(name))
    };
    let properties = narrow.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| properties.keys().all(|name| named(wide, name)))
}
