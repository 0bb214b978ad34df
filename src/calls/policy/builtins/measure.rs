//! The size of values.

use regorus::Value;

/// The elements of an array or a set; none of any other value.
pub(super) fn items(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Set(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

/// The value and all within it, without the keys of objects.
pub(super) fn values(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Set(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.iter().map(|(_, value)| values(value)).sum(),
        _ => 0_usize,
    }
}

/// Whether it contains at max `max` values. Stops counting there.
pub(super) fn has_at_most(value: &Value, max: usize) -> bool {
    fn take(value: &Value, left: &mut usize) -> bool {
        let Some(fewer) = left.checked_sub(1) else { return false };
        *left = fewer;
        match value {
            Value::Array(items) => items.iter().all(|item| take(item, left)),
            Value::Set(items) => items.iter().all(|item| take(item, left)),
            Value::Object(fields) => fields.iter().all(|(_, value)| take(value, left)),
            _ => true,
        }
    }
    take(value, &mut { max })
}

/// The bytes of all texts in it.
pub(super) fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Set(items) => items.iter().map(bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| bytes(key) + bytes(value)).sum(),
        _ => 0,
    }
}

/// The bits of a number.
pub(super) fn bits(value: &Value) -> u64 {
    const FLOAT: u64 = 64;
    match value {
        Value::Number(number) => number.as_big().map_or(FLOAT, |integer| integer.bits()),
        _ => 0,
    }
}
