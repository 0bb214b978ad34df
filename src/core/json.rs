//! Strict parsing of external JSON: input that two parsers could read differently is refused.
//!
//! An object with a duplicate key is refused, so that a policy never sees one value and the tool another. So are
//! bytes after the value, invalid UTF-8, lone surrogates, numbers outside the range of `f64`, nesting beyond
//! [`MAX_DEPTH`], and more than [`MAX_VALUES`] values. Integers beyond 64 bits are never rounded: they are refused in requests, and become strings of
//! their digits in responses of upstreams.

#[cfg(any(test, feature = "test-support"))]
pub mod arbitrary;
mod canonical;
mod check;
mod large;
mod reader;
mod size;
#[cfg(test)]
mod tests;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};
use thiserror::Error;

use self::check::Counts;
use self::large::LargeInteger;

pub use self::canonical::{canonical, digest};
pub use self::large::{Exact, LARGE_NUMBERS, exact, with_numbers};
pub use self::reader::{Rules, ValueReader};
pub use self::size::approximate_size;

/// Maximum nesting of arrays and objects (the limit of `serde_json`).
pub const MAX_DEPTH: usize = 127;

/// Maximum JSON values in one text: a small number takes 72 bytes of memory and two of text.
pub const MAX_VALUES: usize = 500_000;

/// Memory of one value while its container grows.
const VALUE_BYTES: usize = 2 * size_of::<Value>();

/// Memory of an object besides its values: its index, and space for three members.
const OBJECT_BYTES: usize = 384;

/// Where and why a text is not accepted as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}{}", place(*line, *column))]
pub struct InvalidJson {
    pub message: String,
    /// Counted from 1; 0 for a value that was read before.
    pub line: usize,
    /// In bytes, counted from 1; 0 when the error is at the preceding line break.
    pub column: usize,
    pub kind: InvalidJsonKind,
}

fn place(line: usize, column: usize) -> String {
    if line == 0 { String::new() } else { format!(" (line {line}, column {column})") }
}

/// The reason why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidJsonKind {
    /// Not JSON, a duplicate key, or another form than expected.
    Malformed,
    TooManyValues,
    /// An integer beyond 64 bits.
    LargeInteger {
        /// JSON Pointer (RFC 6901).
        path: String,
    },
}

/// A text that is JSON without duplicate keys, and has a bounded number of values. No value is built yet.
#[derive(Debug, Clone, Copy)]
pub struct CheckedJson<'t> {
    text: &'t [u8],
    counts: Counts,
}

impl<'t> CheckedJson<'t> {
    /// Errors: [`InvalidJson`] with the position.
    pub fn new(text: &'t [u8], max_values: usize) -> Result<Self, InvalidJson> {
        match check::count_values(text, max_values) {
            Ok(counts) => Ok(Self { text, counts }),
            Err((error, true)) => Err(InvalidJson { kind: InvalidJsonKind::TooManyValues, ..error.into() }),
            Err((error, false)) => Err(error.into()),
        }
    }

    /// Refuses integers beyond 64 bits: reading would round them.
    /// Errors: [`InvalidJson`] with the position of the first.
    pub fn without_large_integers(self) -> Result<Self, InvalidJson> {
        match large::find(self.text).into_iter().next() {
            None => Ok(self),
            Some(large) => Err(InvalidJson::large_integer(self.text, large)),
        }
    }

    /// Maximum memory of the value, in bytes.
    pub fn memory(&self) -> usize {
        let Counts { values, objects } = self.counts;
        self.text.len() + values * VALUE_BYTES + objects * OBJECT_BYTES
    }

    /// Errors: [`InvalidJson`] where the text does not match `T`.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, InvalidJson> {
        serde_json::from_slice(self.text).map_err(InvalidJson::from)
    }
}

/// Parses one JSON value of a request.
/// Errors: [`InvalidJson`] with the position, for everything this module refuses.
pub fn parse(text: &[u8]) -> Result<Value, InvalidJson> {
    CheckedJson::new(text, MAX_VALUES)?.without_large_integers()?.read()
}

/// Parses one JSON value of an upstream's response: integers beyond 64 bits become strings of their digits. Returns
/// their paths too.
/// Errors: as [`parse`].
pub fn parse_answer(text: &[u8]) -> Result<(Value, Vec<String>), InvalidJson> {
    let checked = CheckedJson::new(text, MAX_VALUES)?;
    let Exact { text, paths } = exact(text, |_| true);
    match paths.is_empty() {
        true => checked.read(),
        false => CheckedJson { text: &text, ..checked }.read(),
    }
    .map(|value| (value, paths))
}

/// Reads a text of a tool that is JSON, whatever else this module refuses: the last of several members with one name
/// counts. Integers beyond 64 bits become strings of their digits.
/// Errors: it is no JSON, or nested beyond [`MAX_DEPTH`].
pub fn lenient(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str::<IgnoredAny>(text)?;
    serde_json::from_slice(&exact(text.as_bytes(), |_| true).text)
}

/// Parses a text of a known type.
/// Errors: as [`parse`], and where the text does not match `T`.
pub fn parse_as<T: DeserializeOwned>(text: &[u8]) -> Result<T, InvalidJson> {
    CheckedJson::new(text, MAX_VALUES)?.read()
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

impl InvalidJson {
    fn large_integer(text: &[u8], LargeInteger { path, place }: LargeInteger) -> Self {
        let before = &text[..place.start];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = place.start - before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) + 1;
        let shown: String = path.chars().take(300).collect();
        let message = format!(
            "the integer at {shown:?} does not fit into 64 bits; send it as a string, if the tool takes one there"
        );
        Self { message, line, column, kind: InvalidJsonKind::LargeInteger { path } }
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
        Self { message, line, column, kind: InvalidJsonKind::Malformed }
    }
}
