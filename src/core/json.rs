//! Strict parsing of external JSON: input that two parsers could read differently is refused.
//!
//! An object with a duplicate key is refused, so that a policy never sees one value and the tool another. So are
//! bytes after the value, invalid UTF-8, lone surrogates, numbers outside the range of `f64`, and nesting beyond
//! [`MAX_DEPTH`]. Integers beyond 64 bits are never rounded: they are refused in requests, and become strings of
//! their digits in responses of upstreams.

mod canonical;
mod large;
mod reader;
mod size;
#[cfg(test)]
pub(crate) mod tests;

use serde::de::{Deserialize, DeserializeOwned, DeserializeSeed, Deserializer};
use serde_json::{Map, Value};
use thiserror::Error;

use self::large::LargeInteger;

pub use self::canonical::digest;
pub use self::large::{Exact, LARGE_NUMBERS, exact, with_numbers};
pub(crate) use self::reader::{Rules, ValueReader};
pub(crate) use self::size::approximate_size;

/// Maximum nesting of arrays and objects (the limit of `serde_json`).
pub const MAX_DEPTH: usize = 127;

/// Where and why a text is not accepted as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message} (line {line}, column {column})")]
pub struct InvalidJson {
    pub message: String,
    /// Counted from 1.
    pub line: usize,
    /// In bytes, counted from 1; 0 when the error is at the preceding line break.
    pub column: usize,
    /// JSON Pointer to an integer beyond 64 bits, if that is the error.
    pub large_integer: Option<String>,
}

/// Parses one JSON value of a request.
///
/// # Errors
/// [`InvalidJson`] with the position, for everything this module refuses.
pub fn parse(bytes: &[u8]) -> Result<Value, InvalidJson> {
    let Strict(value) = parse_as(bytes)?;
    match large::find(bytes).into_iter().next() {
        None => Ok(value),
        Some(large) => Err(InvalidJson::too_large(bytes, large)),
    }
}

/// Parses one JSON value of an upstream's response: integers beyond 64 bits become strings of their digits. Returns
/// their paths too.
///
/// # Errors
/// As [`parse`].
pub fn parse_answer(bytes: &[u8]) -> Result<(Value, Vec<String>), InvalidJson> {
    let Strict(value) = parse_as(bytes)?;
    let Exact { text, paths } = exact(bytes, |_| true);
    if paths.is_empty() {
        return Ok((value, paths));
    }
    parse_as(&text).map(|Strict(value)| (value, paths))
}

/// Parses a body of a known type in one pass. Its free-form fields should be [`Strict`]; `serde`'s derive refuses
/// duplicate fields of structs itself.
///
/// # Errors
/// As [`parse`], and where the text does not match `T`.
pub fn parse_as<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, InvalidJson> {
    serde_json::from_slice(bytes).map_err(InvalidJson::from)
}

/// Approximate memory of a value in bytes: a list of small numbers takes many times its text.
pub fn footprint(value: &Value) -> usize {
    let beyond = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(footprint).sum(),
        Value::Object(members) => footprint_of_members(members),
    };
    size_of::<Value>() + beyond
}

fn footprint_of_members(members: &Map<String, Value>) -> usize {
    members.iter().map(|(key, member)| size_of::<String>() + key.len() + footprint(member)).sum()
}

/// JSON alone, of any size: what limits a body limits its values.
#[derive(Debug, Clone, Copy)]
struct StrictJson;

impl Rules for StrictJson {
    const IS_YAML: bool = false;

    fn spend<E>(self, _text_bytes: usize) -> Result<(), E> {
        Ok(())
    }
}

/// Any JSON value without duplicate keys: for fields of structs that are deserialized.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Strict(pub Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ValueReader::new(StrictJson).deserialize(deserializer).map(Self)
    }
}

impl InvalidJson {
    fn too_large(text: &[u8], LargeInteger { path, place }: LargeInteger) -> Self {
        let before = &text[..place.start];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = place.start - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) + 1;
        let shown: String = path.chars().take(300).collect();
        let message = format!("the integer at {shown:?} does not fit into 64 bits; send it as a string");
        Self { message, line, column, large_integer: Some(path) }
    }
}

impl From<serde_json::Error> for InvalidJson {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let mut message = error.to_string();
        if let Some(bare) = message.strip_suffix(&format!(" at line {line} column {column}")) {
            message.truncate(bare.len());
        }
        if message == "recursion limit exceeded" {
            message = format!("nested more than {MAX_DEPTH} levels deep; send it flatter");
        }
        Self { message, line, column, large_integer: None }
    }
}
