//! Files in bodies: wherever a multipart body has binary content, the argument is a file.

use std::cell::Cell;
use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{invalid_argument, is_json};
use crate::call::arguments::whole_definition;
use sekisho_core::error::CallError;

/// The schema of a file argument, with a media type where the document leaves it open.
pub(super) fn file_schema(description: &str, is_typed: bool) -> Value {
    let description = if description.is_empty() { "A file" } else { description };
    let mut schema = json!({
        "type": "object",
        "description": format!("{description} (give `content_base64`, or `text` for a text file)"),
        "properties": {
            "filename": {"type": "string"},
            "content_base64": {"type": "string", "contentEncoding": "base64", "description": "The bytes in base64 (RFC 4648, with padding)."},
            "text": {"type": "string"}
        },
        "oneOf": [{"required": ["content_base64"]}, {"required": ["text"]}],
        "additionalProperties": false
    });
    if is_typed {
        schema["properties"]["content_type"] =
            json!({"type": "string", "pattern": MEDIA_TYPE, "description": "Its media type, such as image/png."});
    }
    schema
}

/// RFC 9110 §8.3.1, without parameters.
const MEDIA_TYPE: &str = "^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$";

/// A file argument.
pub(super) struct File<'a> {
    pub(super) filename: Option<&'a str>,
    pub(super) content_type: Option<&'a str>,
    pub(super) bytes: Vec<u8>,
}

impl<'a> File<'a> {
    pub(super) fn read(argument: &str, value: &'a Value) -> Result<Self, CallError> {
        let field = |name: &str| value.get(name).and_then(Value::as_str);
        let bytes = match (field("content_base64"), field("text")) {
            (Some(encoded), None) => STANDARD.decode(encoded).map_err(|error| {
                invalid_argument(format!("`{argument}.content_base64` is not base64 (RFC 4648, with padding): {error}"))
            })?,
            (None, Some(text)) => text.as_bytes().to_vec(),
            _ => return Err(invalid_argument(format!("`{argument}` needs either `content_base64` or `text`"))),
        };
        Ok(Self { filename: field("filename"), content_type: field("content_type"), bytes })
    }
}

/// Whether a value is the value of a file argument, where the document allows other values in the same place.
pub(super) fn is_file(value: &Value) -> bool {
    const FIELDS: [&str; 4] = ["filename", "content_type", "content_base64", "text"];
    value.as_object().is_some_and(|members| {
        members.contains_key("content_base64") != members.contains_key("text")
            && members.iter().all(|(name, value)| FIELDS.contains(&name.as_str()) && value.is_string())
    })
}

/// The members of a multipart body that may be files, or contain some.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FileMembers {
    names: BTreeSet<String>,
    /// Members that the document does not name may be files.
    others: bool,
    /// The members that are objects with files in them.
    nested: BTreeSet<String>,
}

impl FileMembers {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.others
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name) || self.others
    }

    /// Whether one of these members is a file, a list of them, or contains one.
    pub(super) fn are_in(&self, members: &Map<String, Value>) -> bool {
        members.iter().any(|(name, value)| self.contains(name) && has_file(value))
    }

    /// How files within objects are sent, which no version of OpenAPI defines.
    pub(super) fn nested_note(&self) -> Option<String> {
        let name = self.nested.first()?;
        Some(format!("a file within `{name}` is sent as a part called `{name}[…]`, and the rest of it as JSON"))
    }
}

pub(super) fn has_file(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_file),
        Value::Object(members) => is_file(value) || members.values().any(has_file),
        _ => false,
    }
}

/// Rewrites the schemas of one body.
pub(super) struct Offering<'d> {
    definitions: &'d Map<String, Value>,
    /// Schemas that may still be visited: references may lead in circles.
    budget: Cell<usize>,
}

/// Most schemas visited for one body.
const MAX_VISITED: usize = 5_000;

/// Deepest schema that is visited.
const MAX_DEPTH: usize = 16;

const COMPOSED: [&str; 3] = ["allOf", "anyOf", "oneOf"];

impl<'d> Offering<'d> {
    pub(super) fn new(definitions: &'d Map<String, Value>) -> Self {
        Self { definitions, budget: Cell::new(MAX_VISITED) }
    }

    /// The schema with file arguments in place of binary content; `None` if it has none.
    pub(super) fn offered(&self, schema: &Value) -> Option<Value> {
        self.offered_at(schema, 0)
    }

    /// The members of a body's schema that may be files, in all its parts and alternatives.
    pub(super) fn members(&self, schema: &Value) -> FileMembers {
        let mut found = FileMembers::default();
        self.collect_members(schema, 0, &mut found);
        found
    }

    fn collect_members(&self, schema: &Value, depth: usize, found: &mut FileMembers) {
        if depth > MAX_DEPTH || !self.spend() {
            return;
        }
        if let Some(target) = self.target(schema) {
            self.collect_members(target, depth + 1, found);
        }
        for part in COMPOSED.iter().filter_map(|keyword| schema.get(*keyword)?.as_array()).flatten() {
            self.collect_members(part, depth + 1, found);
        }
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if self.offered(property).is_some() {
                found.names.insert(name.clone());
                if self.has_nested(property, depth) {
                    found.nested.insert(name.clone());
                }
            }
        }
        found.others |= schema.get("additionalProperties").is_some_and(|others| self.offered(others).is_some());
    }

    /// Whether the binary content is a member of an object.
    fn has_nested(&self, schema: &Value, depth: usize) -> bool {
        if depth > MAX_DEPTH || !self.spend() {
            return false;
        }
        let parts = COMPOSED.iter().filter_map(|keyword| schema.get(*keyword)?.as_array()).flatten();
        let mut below = parts.chain(self.target(schema)).chain(schema.get("items"));
        let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        own.into_iter().any(|(_, property)| self.offered(property).is_some())
            || below.any(|part| self.has_nested(part, depth + 1))
    }

    fn offered_at(&self, schema: &Value, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH || !self.spend() {
            return None;
        }
        if self.is_binary(schema, depth) {
            return Some(file_or_null(schema));
        }
        let keywords = schema.as_object()?;
        let mut changed = Map::new();
        for keyword in COMPOSED {
            if let Some(list) = keywords.get(keyword).and_then(Value::as_array) {
                let offered: Vec<_> = list.iter().map(|part| self.offered_at(part, depth + 1)).collect();
                if offered.iter().any(Option::is_some) {
                    let parts = offered.into_iter().zip(list).map(|(new, old)| new.unwrap_or_else(|| old.clone()));
                    changed.insert(keyword.to_owned(), parts.collect());
                }
            }
        }
        for keyword in ["items", "additionalProperties"] {
            let offered = keywords.get(keyword).and_then(|below| self.offered_at(below, depth + 1));
            changed.extend(offered.map(|offered| (keyword.to_owned(), offered)));
        }
        if let Some(properties) = keywords.get("properties").and_then(Value::as_object) {
            let offered =
                |(name, property): (&String, &Value)| Some((name.clone(), self.offered_at(property, depth + 1)?));
            let offered: Map<_, _> = properties.iter().filter_map(offered).collect();
            if !offered.is_empty() {
                let mut all = properties.clone();
                all.extend(offered);
                changed.insert("properties".to_owned(), all.into());
            }
        }
        let target = self.target(schema).and_then(|target| self.offered_at(target, depth + 1));
        if changed.is_empty() && target.is_none() {
            return None;
        }
        let mut whole = keywords.clone();
        whole.extend(changed);
        if let Some(target) = target {
            whole.shift_remove("$ref");
            inline(target, &mut whole);
        }
        Some(whole.into())
    }

    /// Whether its values are bytes. Text in an encoding, and JSON in a text, stay text.
    fn is_binary(&self, schema: &Value, depth: usize) -> bool {
        let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
        let is_content = || {
            text("contentEncoding").is_none() && text("contentMediaType").is_some_and(|media_type| !is_json(media_type))
        };
        let is_part = |part: &Value| {
            let target = self.target(part).unwrap_or(part);
            depth < MAX_DEPTH && self.spend() && self.is_binary(target, depth + 1)
        };
        text("format") == Some("binary")
            || is_content()
            || schema.get("allOf").and_then(Value::as_array).is_some_and(|parts| parts.iter().any(is_part))
    }

    fn target(&self, schema: &Value) -> Option<&'d Value> {
        let name = whole_definition(schema.get("$ref")?.as_str()?)?;
        self.definitions.get(&name)
    }

    fn spend(&self) -> bool {
        let left = self.budget.get().checked_sub(1);
        self.budget.set(left.unwrap_or_default());
        left.is_some()
    }
}

/// A schema in place of the reference to it; members beside the reference have precedence.
fn inline(target: Value, into: &mut Map<String, Value>) {
    let Value::Object(target) = target else { return };
    if into
        .keys()
        .all(|keyword| matches!(keyword.as_str(), "title" | "description" | "default" | "examples" | "deprecated"))
    {
        for (keyword, value) in target {
            into.entry(keyword).or_insert(value);
        }
        return;
    }
    let parts = into.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(parts) = parts {
        parts.push(target.into());
    }
}

fn file_or_null(schema: &Value) -> Value {
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let file = file_schema(description, true);
    let may_be_null = schema.get("type").and_then(Value::as_array).is_some_and(|kinds| kinds.contains(&json!("null")));
    if may_be_null { json!({"anyOf": [file, {"type": "null"}]}) } else { file }
}
