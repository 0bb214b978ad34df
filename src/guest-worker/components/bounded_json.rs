//! JSON that is no longer than it may be: a text of control characters has six times its bytes in it.

use std::io;

use serde_json::Value;

/// The JSON of a value; `None` where it has more bytes.
pub(super) fn json_within(value: &Value, max_bytes: u64) -> Option<String> {
    let left = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let mut bounded = Bounded { bytes: Vec::new(), left };
    serde_json::to_writer(&mut bounded, value).ok()?;
    String::from_utf8(bounded.bytes).ok()
}

struct Bounded {
    bytes: Vec<u8>,
    left: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(more.len()).ok_or_else(|| io::Error::other("it is too long"))?;
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_has_its_json_or_none() {
        let value = json!({"value": ["関所", 1.5, null]});
        let text = value.to_string();
        assert_eq!(json_within(&value, text.len() as u64), Some(text.clone()));
        assert_eq!(json_within(&value, text.len() as u64 - 1), None);
        assert_eq!(json_within(&Value::String("\u{1}".repeat(1 << 20)), 1 << 20), None);
    }
}
