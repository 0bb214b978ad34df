//! Bounded implementations of builtins, which replace regorus' own.

use regorus::Value;
use serde_json::Value as Json;

use super::measure::bits;
use super::{Checked, MAX_BYTES_READ, allow_bytes, allow_elements, allow_work, checks, original};
use crate::policy::input;

/// `numbers.range(from, to)` and `numbers.range_step(from, to, step)`, upwards or downwards.
pub(super) fn range(arguments: &[Value]) -> Checked<Value> {
    let [from, to, step @ ..] = arguments else { return Err("takes two or three numbers".to_owned()) };
    let (from, to) = (integer(from)?, integer(to)?);
    let step = step.first().map_or(Ok(1), integer)?;
    if step <= 0 {
        return Err("the step must be above zero".to_owned());
    }
    let last = (to - from).abs() / step;
    let count = usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1);
    allow_elements(count)?;
    let step = if to < from { -step } else { step };
    Ok((0..=last).map(|index| Value::from(from + index * step)).collect::<Vec<_>>().into())
}

/// An integer of 64 bits, so that sums and products of two do not overflow.
fn integer(value: &Value) -> Checked<i128> {
    let integer = if let Value::Number(number) = value { number.as_i64() } else { None };
    integer.map(i128::from).ok_or_else(|| "takes integers of 64 bits".to_owned())
}

/// Regorus' own is undefined where a number is a float, such as 1e3.
pub(super) fn shift_left(arguments: &[Value]) -> Checked<Value> {
    let [value, by] = arguments else { return Err("takes two numbers".to_owned()) };
    let shift = match by {
        Value::Number(number) => number.as_u64().ok_or("the second number must be an integer from 0 on")?,
        _ => return Err("takes two numbers".to_owned()),
    };
    let result = usize::try_from(bits(value).saturating_add(shift) / 8).unwrap_or(usize::MAX);
    allow_bytes(result, 0)?;
    match original("bits.lsh", &[value.clone(), Value::from(shift)])? {
        Value::Undefined => Err("the first number is not an exact integer".to_owned()),
        shifted => Ok(shifted),
    }
}

/// The character at which a text first occurs in another, or -1.
pub(super) fn index_of(arguments: &[Value]) -> Checked<Value> {
    let (text, part) = two_texts(arguments)?;
    let found = if text.is_empty() { None } else { text.find(part) };
    let before = found.and_then(|at| text.get(..at));
    Ok(before.map_or(Value::from(-1_i64), |before| Value::from(before.chars().count())))
}

/// All positions, in characters, at which a text occurs in another, including overlapping ones.
pub(super) fn indexes_of(arguments: &[Value]) -> Checked<Value> {
    let (text, part) = two_texts(arguments)?;
    let mut indexes = Vec::new();
    let (mut characters, mut counted_to) = (0, 0);
    each_occurrence(text, part, |at| {
        characters += text.get(counted_to..at).unwrap_or_default().chars().count();
        counted_to = at;
        indexes.push(Value::from(characters));
        allow_elements(indexes.len())
    })?;
    Ok(indexes.into())
}

pub(super) fn count_of(arguments: &[Value]) -> Checked<Value> {
    let (text, part) = two_texts(arguments)?;
    if part.is_empty() {
        return Err("the text to count is empty".to_owned());
    }
    let mut count = 0_usize;
    each_occurrence(text, part, |_| {
        count += 1;
        Ok(())
    })?;
    Ok(count.into())
}

fn two_texts(arguments: &[Value]) -> Checked<(&str, &str)> {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok((text, part)),
        _ => Err("takes two texts".to_owned()),
    }
}

/// Where `part` occurs, in bytes.
fn each_occurrence(text: &str, part: &str, mut found: impl FnMut(usize) -> Checked<()>) -> Checked<()> {
    /// Cost of starting a search, in bytes read.
    const SEARCH: usize = 16;
    let (mut from, mut read) = (0, 0_usize);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find(part)) {
        let at = from + at;
        // An empty text also occurs after the last character, which is not a valid position.
        let Some(character) = text.get(at..).and_then(|rest| rest.chars().next()) else { break };
        found(at)?;
        read = read.saturating_add(part.len() + SEARCH);
        allow_work(read, MAX_BYTES_READ)?;
        from = at + character.len_utf8();
    }
    Ok(())
}

/// `strings.replace_n`: applies the replacements one after the other, each to the result of the one before.
pub(super) fn replace_all(arguments: &[Value]) -> Checked<Value> {
    let [Value::Object(replacements), Value::String(text)] = arguments else {
        return Err("takes an object and a text".to_owned());
    };
    let mut text = text.clone();
    let mut read = 0_usize;
    for (old, new) in replacements.iter_sorted() {
        let (Value::String(from), Value::String(to)) = (old, new) else {
            return Err("takes an object of texts".to_owned());
        };
        checks::replace(&[Value::String(text.clone()), old.clone(), new.clone()])?;
        read = read.saturating_add(text.len());
        allow_work(read, MAX_BYTES_READ)?;
        text = text.replace(&**from, to).into();
    }
    Ok(Value::String(text))
}

/// Regorus' own function reads `{"$serde_json::private::Number": "1e999999999"}` as an integer with that many digits.
pub(super) fn parse_json(arguments: &[Value]) -> Checked<Value> {
    let [Value::String(text)] = arguments else { return Err("takes a text".to_owned()) };
    input::converted(&read(text)?, 1)
}

pub(super) fn is_json(arguments: &[Value]) -> Checked<Value> {
    let [Value::String(text)] = arguments else { return Err("takes a text".to_owned()) };
    Ok(Value::Bool(read(text).is_ok()))
}

pub(super) fn to_number(arguments: &[Value]) -> Checked<Value> {
    match arguments {
        [Value::Null | Value::Bool(false)] => Ok(Value::from(0_u64)),
        [Value::Bool(true)] => Ok(Value::from(1_u64)),
        [number @ Value::Number(_)] => Ok(number.clone()),
        [Value::String(text)] => match read(text) {
            Ok(number @ Json::Number(_)) => input::converted(&number, 1),
            _ => Err("the text is not a number".to_owned()),
        },
        _ => Err("takes a number, a text, a boolean or null".to_owned()),
    }
}

fn read(text: &str) -> Checked<Json> {
    serde_json::from_str(text).map_err(|error| format!("the text is not JSON: {error}"))
}
