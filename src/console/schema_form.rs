//! A form made from a JSON Schema, and arguments made from its fields. The arguments are checked by the call itself:
//! here is no second check.

mod controls;
mod fields;
mod reading;

pub(super) use self::fields::draw;
pub(super) use self::reading::{arguments, attach, filled_with, grow, is_json};

use serde_json::Value;

use self::controls::{Control, control};
use super::schema_table::resolved;

/// Names of fields begin so, so that none is the name of a token. The place of the argument follows, as a JSON Pointer
/// without the first `/`.
const PREFIX: &str = "argument.";

/// Names of fields with files.
const FILE_PREFIX: &str = "file.";

/// Hidden fields with the number of entries that a list shows.
const COUNT_PREFIX: &str = "count.";

/// The button that adds an entry to the list at its value.
pub(super) const MORE: &str = "more";

/// The field with all arguments as JSON, instead of the others.
const AS_JSON: &str = "json";

/// Maximum arguments that have fields; the arguments of a tool with more are written as JSON.
const MAX_ARGUMENTS: usize = 60;

/// Maximum fields, with fields of nested objects; further values are written as JSON.
const MAX_FIELDS: usize = 200;

/// Objects and lists in one another; deeper values are written as JSON.
const MAX_DEPTH: usize = 5;

/// Maximum entries of a list.
const MAX_ENTRIES: usize = 20;

/// The filled-in fields: names and texts of a form.
pub(super) type Filled = [(String, String)];

/// A value in the arguments, and how it is entered.
#[derive(Debug)]
struct Part<'a> {
    /// A JSON Pointer: names may be any text.
    path: String,
    /// Its number in the form, which is its id there.
    id: usize,
    name: String,
    schema: &'a Value,
    is_required: bool,
    control: Control,
    /// The parts of an object or a list.
    parts: Vec<Part<'a>>,
}

/// Makes the parts of a schema.
struct Layout<'a> {
    whole: &'a Value,
    filled: &'a Filled,
    /// Fields so far.
    count: usize,
}

/// A place in the schema.
struct Place<'a> {
    path: String,
    name: String,
    schema: &'a Value,
    is_required: bool,
    depth: usize,
}

/// The arguments that have fields of their own.
fn parts<'a>(schema: &'a Value, filled: &'a Filled) -> Vec<Part<'a>> {
    let top = resolved(schema, schema);
    if members(top).count() > MAX_ARGUMENTS {
        return Vec::new();
    }
    Layout { whole: schema, filled, count: 0 }.members(top, "", 0)
}

/// Whether there may be arguments that no field is for.
fn takes_any(schema: &Value) -> bool {
    let top = resolved(schema, schema);
    let count = members(top).count();
    (count == 0 || count > MAX_ARGUMENTS) && top["additionalProperties"] != false
}

fn members(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

impl<'a> Layout<'a> {
    fn members(&mut self, schema: &'a Value, path: &str, depth: usize) -> Vec<Part<'a>> {
        let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        members(schema)
            .map(|(name, member)| {
                let path = format!("{path}/{}", escaped(name));
                let is_required = required.contains(&name.as_str());
                self.part(Place { path, name: name.clone(), schema: member, is_required, depth })
            })
            .collect()
    }

    fn part(&mut self, place: Place<'a>) -> Part<'a> {
        let Place { path, name, schema, is_required, depth } = place;
        let schema = without_null(self.whole, resolved(self.whole, schema));
        let id = self.count;
        self.count += 1;
        let control = match control(self.whole, &name, schema) {
            Control::Object | Control::List if depth + 1 >= MAX_DEPTH || self.count >= MAX_FIELDS => Control::Json,
            control => control,
        };
        let parts = match control {
            Control::Object => self.members(schema, &path, depth + 1),
            Control::List => self.entries(schema, &path, &name, depth + 1),
            _ => Vec::new(),
        };
        Part { path, id, name, schema, is_required, control, parts }
    }

    fn entries(&mut self, schema: &'a Value, path: &str, name: &str, depth: usize) -> Vec<Part<'a>> {
        let count = entries_shown(self.filled, path, schema);
        let entry = |at| Place {
            path: format!("{path}/{at}"),
            name: format!("{name} {}", at + 1),
            schema: &schema["items"],
            is_required: false,
            depth,
        };
        (0..count).map(|at| self.part(entry(at))).collect()
    }
}

/// How many entries of a list have fields.
fn entries_shown(filled: &Filled, path: &str, schema: &Value) -> usize {
    let wanted = value_of(filled, &field_name(COUNT_PREFIX, path)).and_then(|count| count.parse().ok());
    let least = schema["minItems"].as_u64().and_then(|least| usize::try_from(least).ok()).unwrap_or(1);
    wanted.unwrap_or(least).clamp(1, MAX_ENTRIES)
}

/// A value that may be null is entered like one that may not: an empty field is left out.
fn without_null<'a>(whole: &'a Value, schema: &'a Value) -> &'a Value {
    let variants = ["anyOf", "oneOf"].into_iter().find_map(|key| schema[key].as_array());
    if schema.get("type").is_some() || schema.get("properties").is_some() {
        return schema;
    }
    let mut others = variants.into_iter().flatten().filter(|variant| variant["type"] != "null");
    match (others.next(), others.next()) {
        (Some(only), None) => resolved(whole, only),
        _ => schema,
    }
}

/// A name in a JSON Pointer (RFC 6901 §3).
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn field_name(prefix: &str, path: &str) -> String {
    format!("{prefix}{}", path.trim_start_matches('/'))
}

fn value_of<'a>(filled: &'a Filled, name: &str) -> Option<&'a str> {
    filled.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests;
