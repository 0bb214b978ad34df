//! The texts of an answer: each once, though an answer often says the same as value, text and content.

use serde_json::{Map, Value};

use sekisho_core::call::ToolOutput;

/// Members of blocks of content that are no text.
const OPAQUE: [&str; 4] = ["blob", "data", "mimeType", "type"];

pub(crate) fn texts_of(output: &ToolOutput) -> Vec<&str> {
    let mut texts = Vec::new();
    add_value(&output.value, &mut texts);
    let ToolOutput { text, mcp, metadata, .. } = output;
    if let Some(text) = text {
        add(text, &mut texts);
    }
    add_members(metadata, &[], &mut texts);
    if let Some(mcp) = mcp {
        for block in &mcp.content {
            match block {
                Value::Object(members) => add_members(members, &OPAQUE, &mut texts),
                other => add_value(other, &mut texts),
            }
        }
        add_members(&mcp.meta, &[], &mut texts);
        add_members(&mcp.other, &[], &mut texts);
    }
    texts
}

/// The texts of a value, names of members included.
pub(crate) fn texts_of_value(value: &Value) -> Vec<&str> {
    let mut texts = Vec::new();
    add_value(value, &mut texts);
    texts
}

fn add_value<'v>(value: &'v Value, texts: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => add(text, texts),
        Value::Array(items) => items.iter().for_each(|item| add_value(item, texts)),
        Value::Object(members) => add_members(members, &[], texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn add_members<'v>(members: &'v Map<String, Value>, opaque: &[&str], texts: &mut Vec<&'v str>) {
    for (name, member) in members {
        if opaque.contains(&name.as_str()) {
            continue;
        }
        add(name, texts);
        match member {
            // A resource within a block.
            Value::Object(inner) if !opaque.is_empty() => add_members(inner, opaque, texts),
            other => add_value(other, texts),
        }
    }
}

/// Shorter texts say nothing that is looked for.
const MIN_LENGTH: usize = 6;

fn add<'v>(text: &'v str, texts: &mut Vec<&'v str>) {
    // Compared only with the last long ones: an answer has few.
    if text.len() >= MIN_LENGTH && !texts.iter().rev().take(4).any(|known| *known == text) {
        texts.push(text);
    }
}
