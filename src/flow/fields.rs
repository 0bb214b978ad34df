//! The fields of a result: which parts of it a server fills, and which strangers write.

use std::collections::HashSet;

use serde_json::Value;
use serde_json_path::JsonPath;

use crate::labels::{Returned, Trust};
use crate::rules::{RULES, words_of};

/// Structured texts are looked for so deep within one another.
const MAX_DEPTH: usize = 12;
/// A longer text is not read as structured.
const MAX_STRUCTURED: usize = 64 << 10;
/// A result has at most so many fields; the rest of it is one text of strangers.
const MAX_FIELDS: usize = 2_000;

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
pub(crate) fn fields(result: &Value, returned: &Returned) -> Vec<Field> {
    let mut reader = Reader { fields: Vec::new(), authored: HashSet::new(), asserted: HashSet::new() };
    match mcp_parts(result) {
        Some(parts) => parts.into_iter().for_each(|part| reader.document(part, returned)),
        None => reader.document(result, returned),
    }
    reader.fields
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

/// Whether a text can be a structure: only then it is parsed.
fn structured(text: &str) -> Option<Value> {
    let trimmed = text.trim_start();
    let is_flow = trimmed.starts_with(['{', '[']);
    let first_line = trimmed.lines().next().unwrap_or_default();
    let is_block = first_line.starts_with("- ") || is_key_line(first_line);
    if !(is_flow || is_block) || text.len() > MAX_STRUCTURED {
        return None;
    }
    let value = serde_json::from_str(text).ok().or_else(|| yaml_serde::from_str::<Value>(text).ok());
    value.filter(|value| value.is_object() || value.is_array())
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
        let label = text[..at].rsplit(['\n', '.', ',', ';', ':', '|']).next()?;
        let last = label.rsplit(' ').next().filter(|last| last.starts_with(char::is_uppercase))?;
        let rest = text[at + 2..].lines().next()?;
        let word = rest.split_whitespace().next()?.trim_end_matches(['.', ',', ';']);
        (!word.is_empty() && word.len() <= 120).then_some((last, word))
    });
    said.collect()
}

/// The parts of a list of a server: of lines `Hotels: Ritz, Savoy` those between the commas, where all are short.
fn listed(text: &str) -> Vec<(&str, &str)> {
    let mut said = Vec::new();
    for line in text.lines().filter(|line| is_key_line(line.trim_start())) {
        let Some((label, value)) = line.split_once(": ") else { continue };
        if value.split(", ").all(|part| part.len() <= 80 && part.split_whitespace().count() <= 6) {
            said.extend(value.split(", ").map(|part| (label.trim(), part)));
        }
    }
    said
}

struct Reader {
    fields: Vec<Field>,
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
            return self.push("", text.to_owned(), false);
        }
        for (label, value) in said(text).into_iter().take(MAX_FIELDS) {
            self.push(&format!("/{label}"), value.to_owned(), false);
        }
        self.push("", text.to_owned(), true);
    }

    fn value(&mut self, path: &str, value: &Value, is_authored: bool, depth: usize) {
        let is_authored = self.is_authored(path, is_authored);
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => self.push(path, number.to_string(), is_authored),
            Value::String(text) => self.string(path, text, is_authored, depth),
            _ if depth >= MAX_DEPTH || self.fields.len() >= MAX_FIELDS => {
                self.push(path, value.to_string(), true);
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(&format!("{path}/{index}"), item, is_authored, depth + 1);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    let is_data = name.len() > 24 || words_of(name).len() > 3 || name.contains(['@', '/', '.']);
                    let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                    if is_data {
                        self.push(&path, name.clone(), is_authored);
                    }
                    self.value(&path, member, is_authored || is_authored_name(name), depth + 1);
                }
            }
        }
    }

    fn string(&mut self, path: &str, text: &str, is_authored: bool, depth: usize) {
        let inner = (depth < MAX_DEPTH && !is_authored && !path.is_empty()).then(|| structured(text)).flatten();
        match inner.filter(|_| text.trim_start().starts_with(['{', '['])) {
            Some(inner) => self.value(path, &inner, is_authored, depth + 2),
            // A longer text is no field of an id or a state.
            None => self.push(path, text.to_owned(), is_authored || is_prose(text)),
        }
    }

    fn push(&mut self, path: &str, text: String, is_authored: bool) {
        if text.trim().is_empty() {
            return;
        }
        self.fields.push(Field { path: path.to_owned(), text, is_authored });
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
