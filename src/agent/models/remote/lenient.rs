//! Values of an answer that deviate from their provider's protocol, read as far as their meaning is clear. A deviation is
//! counted as an oddity, and fails no answer.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::TurnAssembler;
use crate::models::ModelError;

/// Where an answer deviates from its protocol. The names are labels of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(in crate::models) enum Oddity {
    /// JSON that the standard does not allow: `NaN`, or half of a surrogate pair.
    Json,
    /// The numbers of the usage.
    Usage,
    /// The index, the id or the function of a call.
    Call,
    /// The form of a text.
    Text,
    /// The form of the reasoning.
    Reasoning,
    /// A whole message beside the fragments, or in place of them.
    Message,
    /// An error that is empty, or outside of an event.
    Error,
    /// The last event.
    End,
}

impl Oddity {
    pub(in crate::models) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The JSON object of an event.
/// Errors: it is not an object, also after a repair.
pub(in crate::models) fn object(data: &[u8], turn: &mut TurnAssembler) -> Result<Map<String, Value>, ModelError> {
    let value = match serde_json::from_slice::<Value>(data) {
        Ok(value) => value,
        Err(_) => {
            let repaired = repaired(data).and_then(|text| serde_json::from_str::<Value>(&text).ok());
            turn.odd(Oddity::Json);
            repaired.ok_or_else(ModelError::foreign)?
        }
    };
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(ModelError::foreign()),
    }
}

/// A number of tokens. A float is rounded, and a text is read; `None` where there is no usable number.
pub(in crate::models) fn tokens(value: Option<&Value>, turn: &mut TurnAssembler) -> Option<u64> {
    let value = value.filter(|value| !value.is_null())?;
    if let Some(count) = value.as_u64() {
        return Some(count);
    }
    turn.odd(Oddity::Usage);
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse::<f64>().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite() && *number >= 0.0).map(rounded)
}

#[expect(clippy::cast_possible_truncation, reason = "a number of tokens; larger values become the largest")]
fn rounded(number: f64) -> u64 {
    number.round() as u64
}

/// The index of a block or a call: 0 where it is none.
pub(in crate::models) fn index(value: Option<&Value>, turn: &mut TurnAssembler) -> u64 {
    let Some(value) = value.filter(|value| !value.is_null()) else { return 0 };
    if let Some(index) = value.as_u64() {
        return index;
    }
    turn.odd(Oddity::Call);
    value.as_str().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// A text, also as a part, or as a list of texts and parts.
pub(in crate::models) fn text(value: &Value, kind: Oddity, turn: &mut TurnAssembler) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of_part).collect(),
        other => {
            turn.odd(kind);
            text_of_part(other)
        }
    }
}

/// The text of a part, in any of the members that servers use for it; empty if it has none.
fn text_of_part(part: &Value) -> String {
    const MEMBERS: [&str; 4] = ["text", "content", "thinking", "summary"];
    let member = || MEMBERS.iter().find_map(|name| part.get(name).and_then(Value::as_str));
    part.as_str().or_else(member).unwrap_or_default().to_owned()
}

/// A text without the escapes and words that JSON does not allow; `None` if it has none of them.
fn repaired(data: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(data);
    let mut is_changed = matches!(text, Cow::Owned(_));
    let (mut written, mut rest, mut in_string) = (String::with_capacity(text.len()), &*text, false);
    while !rest.is_empty() {
        let (length, replacement) = next_piece(rest, in_string);
        let (piece, after) = rest.split_at(length);
        in_string ^= piece == "\"";
        is_changed |= replacement.is_some();
        written.push_str(replacement.unwrap_or(piece));
        rest = after;
    }
    is_changed.then_some(written)
}

/// The length of the next piece of a JSON text, and its replacement where JSON does not allow it.
fn next_piece(rest: &str, in_string: bool) -> (usize, Option<&'static str>) {
    const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
    const REPLACEMENT: Option<&str> = Some("\\ufffd");
    let of_character = |text: &str| text.chars().next().map_or(0, char::len_utf8);
    if !in_string {
        let word = NO_NUMBERS.iter().find(|word| rest.starts_with(**word));
        return word.map_or_else(|| (of_character(rest), None), |word| (word.len(), Some("null")));
    }
    let (is_high, is_low) = (|unit: u32| unit >> 10 == 0xD800 >> 10, |unit: u32| unit >> 10 == 0xDC00 >> 10);
    match code_unit(rest) {
        Some(unit) if is_high(unit) => {
            let is_pair = rest.get(6..).and_then(code_unit).is_some_and(is_low);
            if is_pair { (12, None) } else { (6, REPLACEMENT) }
        }
        Some(unit) if is_low(unit) => (6, REPLACEMENT),
        Some(_) => (6, None),
        None if rest.starts_with('\\') => (1 + rest.get(1..).map_or(0, of_character), None),
        None => (of_character(rest), None),
    }
}

/// The UTF-16 unit of an escape, `\uXXXX`, with which a text begins.
fn code_unit(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_that_other_parsers_accept_is_repaired() {
        for (data, expected) in [
            (&br#"{"a": NaN, "b": [-Infinity, Infinity]}"#[..], Some(r#"{"a": null, "b": [null, null]}"#)),
            (br#"{"a": "NaN"}"#, None),
            (br#"{"a": "\ud83d"}"#, Some(r#"{"a": "\ufffd"}"#)),
            (br#"{"a": "\ude00\ud83d\ude00\u0041"}"#, Some(r#"{"a": "\ufffd\ud83d\ude00\u0041"}"#)),
            (br#"{"a": "\\ud83d \" NaN"}"#, None),
            (b"{\"a\": \"\xf0\x9f\"}", Some("{\"a\": \"\u{fffd}\"}")),
            (b"{no json}", None),
            (b"\"\\", None),
        ] {
            assert_eq!(repaired(data).as_deref(), expected, "{}", String::from_utf8_lossy(data));
        }
    }

    proptest! {
        #[test]
        fn valid_json_is_never_changed(text in ".*", number in any::<i32>()) {
            let valid = serde_json::json!({"text": text, "number": number, text: [null]}).to_string();
            prop_assert_eq!(repaired(valid.as_bytes()), None);
        }

        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            repaired(&bytes);
        }
    }
}
