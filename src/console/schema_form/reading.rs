//! Arguments from the fields of a form, and the fields from arguments.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::controls::{Control, options, shown};
use super::{
    AS_JSON, COUNT_PREFIX, FILE_PREFIX, Filled, MAX_ENTRIES, MORE, PREFIX, Part, entries_shown, escaped, field_name,
    parts, value_of,
};
use sekisho_api::UploadedFile;
use sekisho_core::call::Arguments;
use sekisho_core::error::Detail;
use sekisho_core::json;

/// The arguments that were filled in. Empty fields are left out.
/// Errors: fields that are no JSON where JSON is needed.
pub(crate) fn arguments(schema: &Value, filled: &Filled) -> Result<Arguments, Vec<Detail>> {
    let whole = value_of(filled, AS_JSON).unwrap_or_default();
    if !whole.trim().is_empty() {
        return match json::parse(whole.as_bytes()) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(_) => Err(vec![problem("", "it must be one JSON object: {\"name\": value}".to_owned())]),
            Err(error) => Err(vec![problem("", error.to_string())]),
        };
    }
    let mut reader = Reader { whole: schema, filled, problems: Vec::new() };
    let arguments = reader.members(&parts(schema, filled));
    if reader.problems.is_empty() { Ok(arguments) } else { Err(reader.problems) }
}

/// The form as these arguments fill it in: without the empty entries of lists, so that a problem is at its field.
pub(crate) fn filled_with(schema: &Value, arguments: &Arguments) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    for (name, value) in arguments {
        count_entries(&format!("/{}", escaped(name)), value, &mut fields);
    }
    let counts = fields.clone();
    for part in parts(schema, &counts) {
        if let Some(value) = arguments.get(&part.name) {
            fill(&part, value, &mut fields);
        }
    }
    fields
}

/// Whether the arguments were written as JSON.
pub(crate) fn is_json(filled: &Filled) -> bool {
    value_of(filled, AS_JSON).is_some_and(|json| !json.trim().is_empty())
}

/// Adds an empty entry to the list whose button was pressed. `false`: it was none.
pub(crate) fn grow(schema: &Value, filled: &mut Vec<(String, String)>) -> bool {
    let Some(path) = value_of(filled, MORE).map(str::to_owned) else { return false };
    let all = parts(schema, filled);
    let Some(list) = find(&all, &path).filter(|part| part.control == Control::List) else { return true };
    let count = (entries_shown(filled, &path, list.schema) + 1).min(MAX_ENTRIES).to_string();
    let name = field_name(COUNT_PREFIX, &path);
    filled.retain(|(known, _)| *known != name);
    filled.push((name, count));
    true
}

/// Files become the content of their fields; their names and media types fill the empty fields beside them that are for
/// these.
pub(crate) fn attach(filled: &mut Vec<(String, String)>, files: Vec<UploadedFile>) {
    for file in files {
        let Some(place) = file.field.strip_prefix(FILE_PREFIX).map(str::to_owned) else { continue };
        let beside = |name: &str| match place.rsplit_once('/') {
            Some((parent, _)) => format!("{PREFIX}{parent}/{name}"),
            None => format!("{PREFIX}{name}"),
        };
        for (name, value) in [(beside("filename"), file.name), (beside("content_type"), file.media_type)] {
            if let Some((_, empty)) = filled.iter_mut().find(|(known, value)| *known == name && value.is_empty()) {
                *empty = value;
            }
        }
        let name = format!("{PREFIX}{place}");
        filled.retain(|(known, _)| *known != name);
        filled.push((name, STANDARD.encode(&file.content)));
    }
}

/// The part at a JSON Pointer.
pub(super) fn find<'p, 'a>(parts: &'p [Part<'a>], path: &str) -> Option<&'p Part<'a>> {
    let part = parts.iter().find(|part| is_within(path, &part.path))?;
    if part.path == path { Some(part) } else { find(&part.parts, path) }
}

/// The deepest part that a problem is at or in.
pub(super) fn nearest<'p, 'a>(parts: &'p [Part<'a>], path: &str) -> Option<&'p Part<'a>> {
    let part = parts.iter().find(|part| is_within(path, &part.path))?;
    Some(nearest(&part.parts, path).unwrap_or(part))
}

fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

struct Reader<'a> {
    whole: &'a Value,
    filled: &'a Filled,
    problems: Vec<Detail>,
}

impl Reader<'_> {
    fn members(&mut self, parts: &[Part<'_>]) -> Map<String, Value> {
        parts.iter().filter_map(|part| Some((part.name.clone(), self.value(part)?))).collect()
    }

    fn value(&mut self, part: &Part<'_>) -> Option<Value> {
        match part.control {
            Control::Object => Some(self.members(&part.parts)).filter(|members| !members.is_empty()).map(Value::Object),
            Control::List => {
                let entries: Vec<_> = part.parts.iter().filter_map(|entry| self.value(entry)).collect();
                Some(entries).filter(|entries| !entries.is_empty()).map(Value::Array)
            }
            Control::Choices => {
                let name = field_name(PREFIX, &part.path);
                let chosen = self.filled.iter().filter(|(known, _)| *known == name);
                let chosen: Vec<_> = chosen.map(|(_, text)| self.option(part.schema, text)).collect();
                Some(chosen).filter(|chosen| !chosen.is_empty()).map(Value::Array)
            }
            _ => self.text(part),
        }
    }

    fn text(&mut self, part: &Part<'_>) -> Option<Value> {
        let text = value_of(self.filled, &field_name(PREFIX, &part.path)).filter(|text| !text.is_empty())?;
        match part.control {
            // The call refuses a value that is no number, with the rule that it violates.
            Control::Number => Some(json::parse(text.trim().as_bytes()).unwrap_or_else(|_| Value::from(text))),
            Control::Select => Some(self.option(part.schema, text)),
            Control::Json => match json::parse(text.as_bytes()) {
                Ok(value) => Some(value),
                Err(error) => {
                    self.problems.push(problem(&part.path, error.to_string()));
                    None
                }
            },
            _ => Some(Value::from(text.replace("\r\n", "\n"))),
        }
    }

    fn option(&self, schema: &Value, text: &str) -> Value {
        let found = options(self.whole, schema).into_iter().find(|value| shown(value) == text);
        found.unwrap_or_else(|| Value::from(text))
    }
}

fn count_entries(path: &str, value: &Value, fields: &mut Vec<(String, String)>) {
    match value {
        Value::Array(entries) => {
            fields.push((field_name(COUNT_PREFIX, path), entries.len().to_string()));
            for (at, entry) in entries.iter().enumerate() {
                count_entries(&format!("{path}/{at}"), entry, fields);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                count_entries(&format!("{path}/{}", escaped(name)), member, fields);
            }
        }
        _ => {}
    }
}

fn fill(part: &Part<'_>, value: &Value, fields: &mut Vec<(String, String)>) {
    let name = field_name(PREFIX, &part.path);
    match (part.control, value) {
        (Control::Object, Value::Object(members)) => {
            for member in &part.parts {
                if let Some(value) = members.get(&member.name) {
                    fill(member, value, fields);
                }
            }
        }
        (Control::List, Value::Array(entries)) => {
            for (entry, value) in part.parts.iter().zip(entries) {
                fill(entry, value, fields);
            }
        }
        (Control::Choices, Value::Array(values)) => {
            fields.extend(values.iter().map(|value| (name.clone(), shown(value))));
        }
        (_, Value::Null) => {}
        (Control::Json, value) => fields.push((name, value.to_string())),
        (_, value) => fields.push((name, shown(value))),
    }
}

fn problem(path: &str, message: String) -> Detail {
    Detail { path: path.to_owned(), rule: "json".into(), message }
}
