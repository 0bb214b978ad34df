//! Merges consecutive messages of one role, for protocols whose roles must alternate.

use serde_json::{Value, json};

/// Messages of the form `{"role": …, "content": […]}`, or of another protocol's with the same parts.
#[derive(Debug)]
pub(in crate::models) struct MessageMerger {
    messages: Vec<(&'static str, Vec<Value>)>,
    /// The role of the model.
    model: &'static str,
    /// The member with the parts.
    content: &'static str,
}

impl Default for MessageMerger {
    fn default() -> Self {
        Self { messages: Vec::new(), model: "assistant", content: "content" }
    }
}

impl MessageMerger {
    /// `{"role": …, "parts": […]}`, with the role `model`.
    pub(in crate::models) fn for_gemini() -> Self {
        Self { messages: Vec::new(), model: "model", content: "parts" }
    }

    pub(in crate::models) fn user(&mut self, parts: impl IntoIterator<Item = Value>) {
        self.push("user", parts);
    }

    pub(in crate::models) fn assistant(&mut self, parts: impl IntoIterator<Item = Value>) {
        self.push(self.model, parts);
    }

    pub(in crate::models) fn into_messages(self) -> Value {
        let content = self.content;
        let message = |(role, parts)| json!({"role": role, content: Value::Array(parts)});
        self.messages.into_iter().map(message).collect()
    }

    fn push(&mut self, role: &'static str, parts: impl IntoIterator<Item = Value>) {
        let mut parts = parts.into_iter().peekable();
        match self.messages.last_mut() {
            Some((last, content)) if *last == role => content.extend(parts),
            // A message without parts is refused.
            _ if parts.peek().is_none() => {}
            _ => self.messages.push((role, parts.collect())),
        }
    }
}
