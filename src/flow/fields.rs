//! The fields of a result: which parts of it a server fills, and which strangers write.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::Value;
use serde_json_path::JsonPath;

use crate::labels::{Returned, Trust};
use crate::rules::{RULES, words_of};
use crate::values::cut;

/// Structured texts are looked for so deep within one another.
const MAX_DEPTH: usize = 12;
/// A longer text is not read as JSON.
const MAX_JSON: usize = 64 << 10;
/// A longer text is not read as YAML, which takes ten times as long: about 50 µs a KiB.
const MAX_YAML: usize = 32 << 10;
/// A result has at most so many fields; the rest of each list and object is one text of strangers.
const MAX_FIELDS: usize = 2_000;
/// What stands under a longer path is one text of strangers.
const MAX_PATH: usize = 1 << 10;
/// The length of a label in a file that is looked at, and of the word behind it.
const MAX_LABEL: usize = 64;
const MAX_WORD: usize = 120;

/// A part of a result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// As a JSON pointer.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Strangers write it.
    pub(crate) is_authored: bool,
}

/// The fields of a result.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) list: Vec<Field>,
    /// The result has more text than they have.
    pub(crate) is_cut: bool,
}

/// The fields of a result, with at most `max` bytes of text together.
pub(crate) fn fields(result: &Value, returned: &Returned, max: usize) -> Fields {
    let mut reader =
        Reader { fields: Vec::new(), room: max, is_cut: false, authored: HashSet::new(), asserted: HashSet::new() };
    match mcp_parts(result) {
        Some(parts) => parts.into_iter().for_each(|part| reader.document(part, returned)),
        None => reader.document(result, returned),
    }
    Fields { list: reader.fields, is_cut: reader.is_cut }
}

/// The parts of a result of MCP: its texts and its structured content.
fn mcp_parts(result: &Value) -> Option<Vec<&Value>> {
    let members = result.as_object()?;
    let is_mcp = members.keys().all(|name| matches!(&**name, "content" | "structuredContent" | "isError" | "_meta"));
    let content = members.get("content")?.as_array()?;
    let are_parts = content.iter().all(|part| part.get("type").is_some_and(Value::is_string));
    let structured = members.get("structuredContent").filter(|structured| !structured.is_null());
    let texts = content.iter().filter_map(|part| part.get("text"));
    (is_mcp && are_parts).then(|| texts.chain(structured).collect())
}

/// A text that is a structure: JSON, or YAML as lists and objects are often written as.
fn structured(text: &str) -> Option<Value> {
    let first_line = text.trim_start().lines().next().unwrap_or_default();
    let is_block = first_line.starts_with("- ") || is_key_line(first_line);
    if !is_block {
        return bracketed(text);
    }
    let is_short = text.len() <= MAX_YAML;
    is_short.then(|| yaml_serde::from_str::<Value>(text).ok()).flatten().filter(is_structure)
}

/// A text in brackets that is a structure.
fn bracketed(text: &str) -> Option<Value> {
    let trimmed = text.trim();
    // An end that is cut off is told from others at once.
    let is_whole =
        trimmed.starts_with('{') && trimmed.ends_with('}') || trimmed.starts_with('[') && trimmed.ends_with(']');
    if !is_whole || text.len() > MAX_JSON {
        return None;
    }
    let value = serde_json::from_str(text).ok();
    let is_short = text.len() <= MAX_YAML;
    value.or_else(|| is_short.then(|| yaml_serde::from_str::<Value>(text).ok()).flatten()).filter(is_structure)
}

fn is_structure(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// `key: value` or `key:`.
fn is_key_line(line: &str) -> bool {
    let Some((key, rest)) = line.split_once(':') else { return false };
    (1..=40).contains(&key.len())
        && key.chars().all(|character| character.is_alphanumeric() || matches!(character, '_' | '-' | ' '))
        && (rest.is_empty() || rest.starts_with(' '))
}

/// The values behind labels in a file: of `Account Number: DE89` the one word behind the colon.
fn labelled(text: &str) -> Vec<(&str, &str)> {
    let said = text.match_indices(": ").filter_map(|(at, _)| {
        let before = &text[text.ceil_char_boundary(at.saturating_sub(MAX_LABEL))..at];
        let label = before.rsplit(['\n', '.', ',', ';', ':', '|']).next()?;
        let last = label.rsplit(' ').next().filter(|last| last.starts_with(char::is_uppercase))?;
        let line = cut(&text[at + 2..], MAX_WORD + 1).lines().next()?;
        let word = line.split_whitespace().next()?.trim_end_matches(['.', ',', ';']);
        (!word.is_empty() && word.len() <= MAX_WORD).then_some((last, word))
    });
    said.take(MAX_FIELDS).collect()
}

/// The parts of a list of a server: of lines `Hotels: Ritz, Savoy` those between the commas, where all are short.
fn listed(text: &str) -> Vec<(&str, &str)> {
    let mut said = Vec::new();
    for line in text.lines().filter(|line| is_key_line(line.trim_start())) {
        let Some((label, value)) = line.split_once(": ") else { continue };
        if value.split(", ").all(|part| part.len() <= 80 && part.split_whitespace().count() <= 6) {
            said.extend(value.split(", ").map(|part| (label.trim(), part)));
        }
        if said.len() >= MAX_FIELDS {
            break;
        }
    }
    said
}

struct Reader {
    fields: Vec<Field>,
    /// Bytes of text that there is room for.
    room: usize,
    is_cut: bool,
    /// Paths that the labels name.
    authored: HashSet<String>,
    asserted: HashSet<String>,
}

impl Reader {
    fn document(&mut self, result: &Value, returned: &Returned) {
        let parsed = result.as_str().map(structured);
        let (value, is_text) = match &parsed {
            Some(Some(value)) => (value, false),
            Some(None) => (result, true),
            None => (result, false),
        };
        let pointers = |paths: &[JsonPath]| -> HashSet<String> {
            let mut pointers = HashSet::new();
            for path in paths {
                pointers.extend(
                    path.query_located(value).locations().map(serde_json_path::NormalizedPath::to_json_pointer),
                );
            }
            pointers
        };
        self.authored = pointers(&returned.authored);
        self.asserted = pointers(&returned.asserted);
        match value {
            Value::String(text) if is_text && returned.has_lines => self.lines(text, labelled),
            Value::String(text) if is_text && returned.trust == Trust::Trusted => self.lines(text, listed),
            // Strangers write pages.
            Value::String(_) if is_text => self.value("", value, true, 0),
            _ => self.value("", value, false, 0),
        }
    }

    /// A text of lines, in which a server says short things, each with its label.
    fn lines(&mut self, text: &str, said: fn(&str) -> Vec<(&str, &str)>) {
        if !is_prose(text) {
            return self.push("", text, false);
        }
        for (label, value) in said(text) {
            self.push(&format!("/{label}"), value, false);
        }
        self.push("", text, true);
    }

    fn value(&mut self, path: &str, value: &Value, is_authored: bool, depth: usize) {
        let is_authored = self.is_authored(path, is_authored);
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => self.push(path, &number.to_string(), is_authored),
            Value::String(text) => self.string(path, text, is_authored, depth),
            _ if depth >= MAX_DEPTH || path.len() > MAX_PATH => self.push(path, &value.to_string(), true),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    if self.is_full() {
                        return self.rest(path, &items[index..]);
                    }
                    self.value(&format!("{path}/{index}"), item, is_authored, depth + 1);
                }
            }
            Value::Object(members) => {
                for (index, (name, member)) in members.iter().enumerate() {
                    if self.is_full() {
                        let rest: Vec<_> = members.iter().skip(index).collect();
                        return self.rest(path, &rest);
                    }
                    let is_data = name.len() > 24 || words_of(name).len() > 3 || name.contains(['@', '/', '.']);
                    let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                    if is_data {
                        self.push(&path, name, is_authored);
                    }
                    self.value(&path, member, is_authored || is_authored_name(name), depth + 1);
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.fields.len() >= MAX_FIELDS || self.is_cut
    }

    /// The rest of a list or an object is one text of strangers.
    fn rest(&mut self, path: &str, rest: &(impl Serialize + ?Sized)) {
        match serde_json::to_string(rest) {
            Ok(text) if !self.is_cut => self.push(path, &text, true),
            _ => self.is_cut = true,
        }
    }

    fn string(&mut self, path: &str, text: &str, is_authored: bool, depth: usize) {
        let is_read = depth < MAX_DEPTH && !is_authored && !path.is_empty();
        match is_read.then(|| bracketed(text)).flatten() {
            Some(inner) => self.value(path, &inner, is_authored, depth + 2),
            // A longer text is no field of an id or a state.
            None => self.push(path, text, is_authored || is_prose(text)),
        }
    }

    fn push(&mut self, path: &str, text: &str, is_authored: bool) {
        if text.trim().is_empty() {
            return;
        }
        let kept = cut(text, self.room);
        self.is_cut |= kept.len() < text.len();
        self.room -= kept.len();
        if !kept.is_empty() {
            self.fields.push(Field { path: path.to_owned(), text: kept.to_owned(), is_authored });
        }
    }

    fn is_authored(&self, path: &str, by_name: bool) -> bool {
        if self.asserted.contains(path) {
            return false;
        }
        by_name || self.authored.contains(path)
    }
}

/// Several lines, or a sentence.
fn is_prose(text: &str) -> bool {
    text.len() > 200 || text.trim().contains('\n') || text.split_whitespace().count() > 8
}

/// Whether strangers fill a member of this name.
fn is_authored_name(name: &str) -> bool {
    let words = words_of(name);
    let is_id =
        words.last().is_some_and(|word| matches!(word.as_str(), "id" | "ids" | "number" | "status" | "code" | "count"));
    !is_id && words.iter().any(|word| RULES.members.authored.contains(word))
}

#[cfg(test)]
mod tests;
