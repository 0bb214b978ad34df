//! A part of a turn that its provider takes back as it is: a thought, or a block of a tool that runs at the provider.

use serde_json::Value;

use crate::message::Thought;

/// The fields with the text of a block of `reasoning_details`, which arrives in fragments.
const BLOCK_TEXTS: [&str; 2] = ["text", "summary"];

/// A thought at the index that its fragments name.
#[derive(Debug, Default)]
pub(super) struct PartialThought {
    pub(super) place: u64,
    pub(super) text: String,
    pub(super) signature: String,
    pub(super) redacted: String,
    /// The field of its text, if the provider takes unsigned reasoning back.
    pub(super) field: Option<&'static str>,
    /// The blocks of `reasoning_details`.
    pub(super) details: Vec<Value>,
}

impl PartialThought {
    /// As the provider takes it back; `None` if it does not.
    pub(super) fn whole(self) -> Option<Thought> {
        let Self { text, signature, redacted, field, details, .. } = self;
        match field {
            _ if !details.is_empty() => Some(Thought::Details(details)),
            _ if !redacted.is_empty() => Some(Thought::Redacted(redacted)),
            _ if !signature.is_empty() => Some(Thought::Signed { text, signature }),
            Some(field) if !text.is_empty() => Some(Thought::Unsigned { text, field }),
            Some(_) | None => None,
        }
    }
}

/// Whether a block continues the one before it, a text: it has the same kind, place and id.
pub(super) fn is_fragment_of(last: &Value, block: &Value) -> bool {
    let has_text = BLOCK_TEXTS.into_iter().any(|name| last.get(name).is_some());
    let is_same = |name: &str| last.get(name) == block.get(name);
    let id = |block: &Value| block.get("id").filter(|id| !id.is_null()).cloned();
    let has_other_id = id(block).is_some_and(|id_of_block| id(last) != Some(id_of_block));
    has_text && is_same("type") && is_same("index") && !has_other_id
}

/// Appends the texts of a fragment; its other members come last with a value.
pub(super) fn extend_block(last: &mut Value, fragment: Value) {
    let (Value::Object(last), Value::Object(fragment)) = (last, fragment) else { return };
    for (name, value) in fragment {
        match (last.get_mut(&name), value) {
            (_, Value::Null) => {}
            (Some(Value::String(text)), Value::String(more)) if BLOCK_TEXTS.contains(&&*name) => text.push_str(&more),
            (Some(known), value) => *known = value,
            (None, value) => {
                last.insert(name, value);
            }
        }
    }
}
