//! The schema keywords that are kept, and the values they must have.

use serde_json::{Map, Value, json};

/// The type of a keyword's value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Schema,
    Schemas,
    Named,
    Patterned,
    Items,
    Example,
    Type,
    Enum,
    Bound,
    Pattern,
    Text,
    Flag,
    Count,
    Divisor,
    Names,
    List,
    Any,
}

impl Form {
    /// The keywords that are kept; others do not constrain values or differ from 2020-12.
    pub(super) fn of(keyword: &str) -> Option<Self> {
        Some(match keyword {
            "additionalProperties"
            | "propertyNames"
            | "unevaluatedProperties"
            | "unevaluatedItems"
            | "contains"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contentSchema" => Self::Schema,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => Self::Schemas,
            "properties" | "dependentSchemas" => Self::Named,
            "patternProperties" => Self::Patterned,
            "items" => Self::Items,
            "example" => Self::Example,
            "type" => Self::Type,
            "enum" => Self::Enum,
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => Self::Bound,
            "pattern" => Self::Pattern,
            "title" | "description" | "format" | "contentEncoding" | "contentMediaType" => Self::Text,
            "uniqueItems" | "deprecated" => Self::Flag,
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minContains"
            | "maxContains" => Self::Count,
            "multipleOf" => Self::Divisor,
            "required" => Self::Names,
            "examples" => Self::List,
            "default" | "const" => Self::Any,
            _ => return None,
        })
    }
}

pub(super) fn is_annotation(keyword: &str) -> bool {
    matches!(keyword, "title" | "description" | "deprecated" | "default" | "example")
}

pub(super) fn insert_example(value: &Value, lowered: &mut Map<String, Value>) {
    lowered.entry("examples").or_insert_with(|| json!([value]));
}

/// The values of a string `enum` may be written as numbers or booleans, above all in YAML.
pub(super) fn values_of(value: &Value, members: &Map<String, Value>) -> Option<Value> {
    let values = value.as_array().filter(|values| !values.is_empty())?;
    let text = members.get("type").is_some_and(|kind| kind == "string");
    let read = |value: &Value| match value {
        Value::Number(number) if text => Value::String(number.to_string()),
        Value::Bool(flag) if text => Value::String(flag.to_string()),
        other => other.clone(),
    };
    Some(Value::Array(values.iter().map(read).collect()))
}

pub(super) fn types(value: &Value) -> Option<Value> {
    const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];
    match value {
        Value::String(name) if TYPES.contains(&name.as_str()) => Some(value.clone()),
        Value::String(name) => meant(name).map(Into::into),
        Value::Array(names) => {
            let mut known: Vec<Value> = Vec::new();
            for name in names {
                if TYPES.iter().any(|known| name == known) && !known.contains(name) {
                    known.push(name.clone());
                }
            }
            (!known.is_empty() && known.len() == names.len()).then_some(Value::Array(known))
        }
        _ => None,
    }
}

/// The intended type for names that no version of OpenAPI has. (`file` is one of 2.0.)
fn meant(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "int" | "int32" | "int64" | "long" | "integer" => "integer",
        "float" | "double" | "decimal" | "number" => "number",
        "bool" | "boolean" => "boolean",
        "file" | "str" | "text" | "date" | "datetime" | "date-time" | "uuid" | "string" => "string",
        "list" | "array" => "array",
        "dict" | "map" | "object" => "object",
        _ => return None,
    })
}

pub(super) fn names_in(value: &Value) -> Option<Value> {
    let mut names: Vec<&str> = Vec::new();
    for name in value.as_array()? {
        let name = name.as_str()?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Some(json!(names))
}
