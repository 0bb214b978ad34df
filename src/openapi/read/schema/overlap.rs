//! Alternatives of `oneOf` of which one contains another: every value of the narrower one fits both, so that by the
//! letter it could never be used. Generators write such as `oneOf: [integer, number]`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::read::reference::References;

/// Pairs of schemas that are compared for one list of alternatives.
const MAX_COMPARED: usize = 5_000;

/// Compositions (`allOf`) that are put together for one list of alternatives.
const MAX_COMPOSITIONS: usize = 200;

/// Deepest pair that is compared.
const MAX_DEPTH: usize = 8;

/// Whether one of the alternatives contains another.
pub(super) fn has_overlap(alternatives: &[Value], references: &References<'_>) -> bool {
    let mut comparison = Comparison { references, left: MAX_COMPARED, compositions_left: MAX_COMPOSITIONS };
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
    compositions_left: usize,
}

impl<'d> Comparison<'_, 'd> {
    /// Whether all values that `narrow` describes fit `wide`; `false` where that is not obvious.
    fn contains(&mut self, wide: &Value, narrow: &Value, depth: usize) -> bool {
        let Some(left) = self.left.checked_sub(1).filter(|_| depth < MAX_DEPTH) else { return false };
        self.left = left;
        let whole = wide;
        let (Some(wide), Some(narrow)) = (self.flat(wide, depth), self.flat(narrow, depth)) else { return false };
        let (wide, narrow) = (&*wide, &*narrow);
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

    /// The object that a schema is, or refers to, with the parts of its `allOf` put together.
    fn flat<'v>(&mut self, schema: &'v Value, depth: usize) -> Option<Cow<'v, Map<String, Value>>>
    where
        'd: 'v,
    {
        let members = self.references.target(schema).ok()?.as_object()?;
        let Some(parts) = members.get("allOf").and_then(Value::as_array) else { return Some(Cow::Borrowed(members)) };
        self.compositions_left = self.compositions_left.checked_sub(1).filter(|_| depth < MAX_DEPTH)?;
        let mut whole = members.clone();
        whole.shift_remove("allOf");
        for part in parts {
            for (keyword, value) in self.flat(part, depth + 1)?.iter() {
                match (whole.get_mut(keyword), value) {
                    (None, _) => _ = whole.insert(keyword.clone(), value.clone()),
                    (Some(Value::Object(known)), Value::Object(more)) if keyword == "properties" => {
                        more.iter().for_each(|(name, one)| _ = known.entry(name).or_insert_with(|| one.clone()));
                    }
                    (Some(Value::Array(known)), Value::Array(more)) if keyword == "required" => {
                        known.extend(more.iter().cloned());
                    }
                    _ => {}
                }
            }
        }
        Some(Cow::Owned(whole))
    }

    fn contains_properties(&mut self, wide: &Value, narrow: &Map<String, Value>, depth: usize) -> bool {
        let Some(wide) = wide.as_object() else { return false };
        let narrow = narrow.get("properties").and_then(Value::as_object);
        wide.iter().all(|(name, wide)| {
            narrow.and_then(|narrow| narrow.get(name)).is_none_or(|narrow| self.contains(wide, narrow, depth + 1))
        })
    }
}

/// The types of a schema; where none are written, the types that `properties` and `items` imply.
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
