//! The canonical form of JSON (RFC 8785), for hashing: the same value has the same digest, regardless of the order of
//! its keys and the notation of its numbers and strings.

use std::io::{self, Write};

use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

use crate::call::Arguments;

/// SHA-256 of the canonical form.
///
/// One deviation from RFC 8785: an integer that `f64` cannot represent keeps all its digits. The RFC would round it,
/// and two calls with different ids would have the same digest.
pub fn digest(arguments: &Arguments) -> [u8; 32] {
    Sha256::digest(canonical(arguments)).into()
}

/// The canonical form itself, with the same deviation.
pub fn canonical(arguments: &Arguments) -> Vec<u8> {
    let mut text = Vec::with_capacity(256);
    // Writing to memory cannot fail, and every JSON value has a canonical form.
    let written = write_object(&mut text, arguments);
    debug_assert!(written.is_ok());
    text
}

fn write_value(out: &mut Vec<u8>, value: &Value) -> io::Result<()> {
    match value {
        Value::Null => out.write_all(b"null"),
        Value::Bool(true) => out.write_all(b"true"),
        Value::Bool(false) => out.write_all(b"false"),
        Value::Number(number) => write_number(out, number),
        // serde_json escapes exactly as RFC 8785 §3.2.2.2 requires.
        Value::String(text) => Ok(serde_json::to_writer(out, text)?),
        Value::Array(items) => write_list(out, b"[]", items, write_value),
        Value::Object(members) => write_object(out, members),
    }
}

fn write_object(out: &mut Vec<u8>, members: &Map<String, Value>) -> io::Result<()> {
    let mut sorted: Vec<_> = members.iter().collect();
    // By UTF-16 code units (RFC 8785 §3.2.3), which is not the order of UTF-8 bytes.
    sorted.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    write_list(out, b"{}", sorted, |out, (key, value)| {
        serde_json::to_writer(&mut *out, key)?;
        out.push(b':');
        write_value(out, value)
    })
}

fn write_list<I: IntoIterator>(
    out: &mut Vec<u8>,
    brackets: &[u8; 2],
    items: I,
    write_item: impl Fn(&mut Vec<u8>, I::Item) -> io::Result<()>,
) -> io::Result<()> {
    out.push(brackets[0]);
    for (position, item) in items.into_iter().enumerate() {
        if position > 0 {
            out.push(b',');
        }
        write_item(out, item)?;
    }
    out.push(brackets[1]);
    Ok(())
}

fn write_number(out: &mut Vec<u8>, number: &Number) -> io::Result<()> {
    if number.is_f64() {
        // ECMAScript's shortest form, the hard part of RFC 8785.
        return Ok(serde_json_canonicalizer::to_writer(number, out)?);
    }
    Ok(serde_json::to_writer(out, number)?)
}
