//! The arguments and the result of a call, as they are kept where `recording.content` wants it.

use std::fmt;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The arguments and the result of a call, after all rules that change them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CallContent {
    pub arguments: KeptValue,
    pub result: KeptValue,
}

/// A value of a call.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptValue {
    /// There is none.
    #[default]
    Absent,
    TooLarge,
    /// One line of JSON.
    Whole(Box<RawValue>),
}

impl CallContent {
    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        self.arguments.bytes() + self.result.bytes()
    }
}

impl KeptValue {
    /// A value of at most so many bytes. A larger one is not written to its end.
    pub fn of(value: &impl Serialize, max_bytes: usize) -> Self {
        let mut text = Bounded { text: Vec::new(), max_bytes };
        if serde_json::to_writer(&mut text, value).is_err() {
            return Self::TooLarge;
        }
        let text = String::from_utf8(text.text).ok().and_then(|text| RawValue::from_string(text).ok());
        text.map_or(Self::Absent, Self::Whole)
    }

    /// The value, if it was kept.
    pub fn value(&self) -> Option<Value> {
        match self {
            Self::Whole(text) => serde_json::from_str(text.get()).ok(),
            Self::Absent | Self::TooLarge => None,
        }
    }

    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::TooLarge)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Whole(text) => text.get().len(),
            Self::Absent | Self::TooLarge => 0,
        }
    }
}

/// Without the text, which must be in no log.
impl fmt::Debug for KeptValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => formatter.write_str("Absent"),
            Self::TooLarge => formatter.write_str("TooLarge"),
            Self::Whole(_) => write!(formatter, "Whole({} bytes)", self.bytes()),
        }
    }
}

/// A text that refuses to become longer.
struct Bounded {
    text: Vec<u8>,
    max_bytes: usize,
}

impl Write for Bounded {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.text.len() + part.len() > self.max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(part);
        Ok(part.len())
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
    fn values_are_kept_up_to_their_maximum_and_are_in_no_log() {
        let value = json!({"token": "hunter2", "n": 1.5});
        let bytes = value.to_string().len();
        assert!(KeptValue::of(&value, bytes - 1).is_too_large());
        let content = CallContent { arguments: KeptValue::of(&value, bytes), result: KeptValue::TooLarge };
        assert!(!format!("{content:?}").contains("hunter2"));
        let stored = serde_json::to_string(&content).unwrap();
        let read: CallContent = serde_json::from_str(&stored).unwrap();
        assert_eq!((read.arguments.value(), read.bytes()), (Some(value), bytes));
        assert!(read.result.is_too_large() && read.result.value().is_none());
        let none = serde_json::to_string(&CallContent::default()).unwrap();
        assert!(serde_json::from_str::<CallContent>(&none).unwrap().arguments.value().is_none());
    }
}
