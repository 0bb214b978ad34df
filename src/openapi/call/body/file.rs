//! Files in bodies: wherever a multipart body has binary content, the argument is a file.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::shape::{is_annotation, is_untyped, may_be_bytes, resolved};
use super::{Format, format_of, invalid_argument, is_json};
use crate::call::arguments::whole_definition;
use crate::read::operation::PropertyEncoding;
use sekisho_core::error::CallError;

/// The schema of a file argument. `media_types`: those that it may have; empty for any.
pub(super) fn file_schema(description: &str, media_types: &[&str]) -> Value {
    let description = if description.is_empty() { "A file" } else { description };
    let content_type = match media_types {
        [] => {
            json!({"type": "string", "pattern": MEDIA_TYPE, "description": "Its media type, such as image/png."})
        }
        _ => json!({"type": "string", "enum": media_types}),
    };
    json!({
        "type": "object",
        "description": format!("{description} (give `content_base64`, or `text` for a text file)"),
        "properties": {
            "filename": {"type": "string"},
            "content_base64": {"type": "string", "contentEncoding": "base64", "description": "The bytes in base64 (RFC 4648, with padding)."},
            "text": {"type": "string"},
            "content_type": content_type
        },
        "oneOf": [{"required": ["content_base64"]}, {"required": ["text"]}],
        "additionalProperties": false
    })
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

/// Where a schema stands. Without a type, a member of a multipart body is bytes, as OpenAPI 3.1 writes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// The body itself, or a part of its composition: its properties are the members.
    Body,
    Member,
    /// Within the value of a member, which is JSON.
    Inner,
}

/// Rewrites the schemas of one body.
pub(super) struct Offering<'d> {
    definitions: &'d Map<String, Value>,
    encoding: &'d BTreeMap<String, PropertyEncoding>,
    /// Whether members without a type may be files.
    untyped: bool,
    /// Schemas that may still be visited: references may lead in circles.
    budget: Cell<usize>,
}

/// Most schemas visited for one body.
const MAX_VISITED: usize = 5_000;

/// Deepest schema that is visited.
const MAX_DEPTH: usize = 16;

const COMPOSED: [&str; 3] = ["allOf", "anyOf", "oneOf"];

impl<'d> Offering<'d> {
    pub(super) fn new(
        definitions: &'d Map<String, Value>,
        encoding: &'d BTreeMap<String, PropertyEncoding>,
        untyped: bool,
    ) -> Self {
        Self { definitions, encoding, untyped, budget: Cell::new(MAX_VISITED) }
    }

    /// The schema of a body with file arguments in place of binary content; `None` if it has none.
    pub(super) fn offered(&self, schema: &Value) -> Option<Value> {
        self.offered_at(schema, Level::Body, 0)
    }

    /// The same for the schema of one member.
    pub(super) fn offered_member(&self, name: &str, schema: &Value) -> Option<Value> {
        self.member_at(name, schema, 0)
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
            if self.offered_member(name, property).is_some() {
                found.names.insert(name.clone());
                if self.has_nested(property, depth) {
                    found.nested.insert(name.clone());
                }
            }
        }
        found.others |= match schema.get("additionalProperties") {
            Some(others) => self.offered_at(others, Level::Inner, 0).is_some(),
            // A multipart body whose members the document does not describe.
            None => self.untyped && depth == 0 && self.is_undescribed(schema),
        };
    }

    /// Whether the binary content is a member of an object.
    fn has_nested(&self, schema: &Value, depth: usize) -> bool {
        if depth > MAX_DEPTH || !self.spend() {
            return false;
        }
        let parts = COMPOSED.iter().filter_map(|keyword| schema.get(*keyword)?.as_array()).flatten();
        let mut below = parts.chain(self.target(schema)).chain(schema.get("items"));
        let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        own.into_iter().any(|(_, property)| self.offered_at(property, Level::Inner, 0).is_some())
            || below.any(|part| self.has_nested(part, depth + 1))
    }

    /// A member whose encoding says that it is bytes, or that it is JSON; otherwise its schema decides.
    fn member_at(&self, name: &str, schema: &Value, depth: usize) -> Option<Value> {
        let media_types = self.encoding.get(name).and_then(|encoding| encoding.content_type.as_deref());
        let mut media_types = media_types.into_iter().flat_map(|declared| declared.split(',')).map(str::trim);
        let (is_bytes, is_json) = media_types.clone().fold((false, false), |(bytes, json), media_type| {
            let is_any = media_type == "*/*" || media_type.is_empty();
            (bytes || (!is_any && format_of(media_type) == Format::Binary), json || is_json(media_type))
        });
        match media_types.next() {
            Some(_) if is_bytes => self.bytes_at(schema).or_else(|| self.offered_at(schema, Level::Member, depth)),
            Some(_) if is_json => self.offered_at(schema, Level::Inner, depth),
            _ => self.offered_at(schema, Level::Member, depth),
        }
    }

    /// A text, or a value without a type, as a file; or a list of them.
    fn bytes_at(&self, schema: &Value) -> Option<Value> {
        let target = resolved(schema, self.definitions);
        let is_text =
            |schema: &Value| may_be_bytes(schema, self.definitions) && schema.get("contentEncoding").is_none();
        if is_text(target) {
            return Some(file_or_null(target));
        }
        let items =
            target.get("items").map(|items| resolved(items, self.definitions)).filter(|items| is_text(items))?;
        let mut list = target.clone();
        list["items"] = file_or_null(items);
        Some(list)
    }

    fn is_untyped(&self, schema: &Value) -> bool {
        is_untyped(schema, self.definitions)
    }

    /// An object of any members.
    fn is_undescribed(&self, schema: &Value) -> bool {
        let is_open =
            |(keyword, value): (&String, &Value)| is_annotation(keyword) || keyword == "type" && value == "object";
        match resolved(schema, self.definitions) {
            Value::Object(keywords) => keywords.iter().all(is_open),
            schema => *schema == Value::Bool(true),
        }
    }

    fn offered_at(&self, schema: &Value, level: Level, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH || !self.spend() {
            return None;
        }
        if self.is_binary(schema, depth) {
            return Some(file_or_null(schema));
        }
        if level == Level::Member && self.untyped && self.is_untyped(schema) {
            return Some(file_or_text(resolved(schema, self.definitions)));
        }
        let keywords = schema.as_object()?;
        let mut changed = Map::new();
        for keyword in COMPOSED {
            // All parts apply to the value: one without a type does not make it bytes.
            let level = if keyword == "allOf" && level == Level::Member { Level::Inner } else { level };
            if let Some(list) = keywords.get(keyword).and_then(Value::as_array) {
                let offered: Vec<_> = list.iter().map(|part| self.offered_at(part, level, depth + 1)).collect();
                if offered.iter().any(Option::is_some) {
                    let parts = offered.into_iter().zip(list).map(|(new, old)| new.unwrap_or_else(|| old.clone()));
                    changed.insert(keyword.to_owned(), parts.collect());
                }
            }
        }
        for (keyword, level) in [("items", level), ("additionalProperties", Level::Inner)] {
            let offered = keywords.get(keyword).and_then(|below| self.offered_at(below, level, depth + 1));
            changed.extend(offered.map(|offered| (keyword.to_owned(), offered)));
        }
        if let Some(properties) = keywords.get("properties").and_then(Value::as_object) {
            let at = |name: &str, property: &Value| match level {
                Level::Body => self.member_at(name, property, depth + 1),
                Level::Member | Level::Inner => self.offered_at(property, Level::Inner, depth + 1),
            };
            let offered = |(name, property): (&String, &Value)| Some((name.clone(), at(name, property)?));
            let offered: Map<_, _> = properties.iter().filter_map(offered).collect();
            if !offered.is_empty() {
                let mut all = properties.clone();
                all.extend(offered);
                changed.insert("properties".to_owned(), all.into());
            }
        }
        let target = self.target(schema).and_then(|target| self.offered_at(target, level, depth + 1));
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
    let file = file_schema(description, &[]);
    let may_be_null = schema.get("type").and_then(Value::as_array).is_some_and(|kinds| kinds.contains(&json!("null")));
    if may_be_null { json!({"anyOf": [file, {"type": "null"}]}) } else { file }
}

/// The value of a member without a type: bytes, or a text for a form's field.
fn file_or_text(schema: &Value) -> Value {
    let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    json!({"anyOf": [file_schema(description, &[]), {"type": ["string", "number", "boolean"]}]})
}
