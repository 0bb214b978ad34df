//! The texts of an answer: each once, though an answer often says the same as value, text and content.

use std::borrow::Cow;

use serde_json::{Map, Value};

use sekisho_core::call::{Arguments, ToolOutput};

/// Members of blocks of content that are no text, where they have no sentence.
const OPAQUE: [&str; 4] = ["blob", "data", "mimeType", "type"];

pub(crate) fn texts_of(output: &ToolOutput) -> Vec<Cow<'_, str>> {
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
pub(crate) fn texts_of_value(value: &Value) -> Vec<Cow<'_, str>> {
    let mut texts = Vec::new();
    add_value(value, &mut texts);
    texts
}

/// The texts of arguments, their names included.
pub(crate) fn texts_of_arguments(arguments: &Arguments) -> Vec<Cow<'_, str>> {
    let mut texts = Vec::new();
    add_members(arguments, &[], &mut texts);
    texts
}

fn add_value<'v>(value: &'v Value, texts: &mut Vec<Cow<'v, str>>) {
    match value {
        Value::String(text) => add(text, texts),
        Value::Array(items) => items.iter().for_each(|item| add_value(item, texts)),
        Value::Object(members) => add_members(members, &[], texts),
        // A card number may be an integer.
        Value::Number(number) if number.as_u64().is_some_and(|number| number >= MIN_NUMBER) => {
            texts.push(number.to_string().into());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn add_members<'v>(members: &'v Map<String, Value>, opaque: &[&str], texts: &mut Vec<Cow<'v, str>>) {
    for (name, member) in members {
        if opaque.contains(&name.as_str()) && is_opaque(member) {
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

/// The letters of Base64, of types and of names: a sentence has others.
fn is_opaque(member: &Value) -> bool {
    let is_of = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'.');
    member.as_str().is_some_and(|text| text.bytes().all(is_of))
}

/// Smaller numbers are none of a card or a person.
const MIN_NUMBER: u64 = 1_000_000_000;
/// Shorter texts say nothing that is looked for.
const MIN_LENGTH: usize = 6;

fn add<'v>(text: &'v str, texts: &mut Vec<Cow<'v, str>>) {
    // Compared only with the last long ones: an answer has few.
    if text.len() >= MIN_LENGTH && !texts.iter().rev().take(4).any(|known| *known == text) {
        texts.push(text.into());
    }
}
