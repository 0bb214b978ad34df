//! The approximate length of a value's JSON text, without writing it.

use serde_json::Value;

/// The length of the value's JSON, escapes not counted.
pub fn approximate_size(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(truth) => 5 - usize::from(*truth),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(unsigned), _) => digits(unsigned),
            (None, Some(signed)) => 1 + digits(signed.unsigned_abs()),
            // Between `0.5` and seventeen digits.
            (None, None) => 8,
        },
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| approximate_size(item) + 1).sum::<usize>(),
        Value::Object(members) => {
            2 + members.iter().map(|(key, member)| key.len() + approximate_size(member) + 4).sum::<usize>()
        }
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |power| power as usize + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_are_those_of_the_json() {
        for value in [
            json!(null),
            json!(true),
            json!(false),
            json!(0),
            json!(-10),
            json!(u64::MAX),
            json!(i64::MIN),
            json!("ab"),
        ] {
            assert_eq!(approximate_size(&value), value.to_string().len(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn the_size_is_near_that_of_the_json(value in crate::json::arbitrary::any_json()) {
            let (approximate, exact) = (approximate_size(&value), value.to_string().len());
            prop_assert!(approximate <= exact * 3 + 8 && exact <= approximate * 6, "{} {}", approximate, exact);
        }
    }
}
