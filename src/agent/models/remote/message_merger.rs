//! Merges consecutive messages of one role, for protocols whose roles must alternate.

use serde_json::{Value, json};

/// Messages of the form `{"role": …, "content": […]}`.
#[derive(Debug, Default)]
pub(in crate::models) struct MessageMerger(Vec<(&'static str, Vec<Value>)>);

impl MessageMerger {
    pub(in crate::models) fn user(&mut self, parts: impl IntoIterator<Item = Value>) {
        self.push("user", parts);
    }

    pub(in crate::models) fn assistant(&mut self, parts: impl IntoIterator<Item = Value>) {
        self.push("assistant", parts);
    }

    pub(in crate::models) fn into_messages(self) -> Value {
        let message = |(role, parts)| json!({"role": role, "content": Value::Array(parts)});
        self.0.into_iter().map(message).collect()
    }

    fn push(&mut self, role: &'static str, parts: impl IntoIterator<Item = Value>) {
        let mut parts = parts.into_iter().peekable();
        match self.0.last_mut() {
            Some((last, content)) if *last == role => content.extend(parts),
            // A message without parts is refused.
            _ if parts.peek().is_none() => {}
            _ => self.0.push((role, parts.collect())),
        }
    }
}
