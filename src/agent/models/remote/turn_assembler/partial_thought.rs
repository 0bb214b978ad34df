//! A part of a turn that its provider takes back as it is: a thought, or a block of a tool that runs at the provider.

use serde_json::Value;

use super::{MAX_PARTS, TurnAssembler};
use crate::message::Thought;
use crate::models::ModelError;

/// The fields with the text of a block of `reasoning_details`, which arrives in fragments.
const BLOCK_TEXTS: [&str; 2] = ["text", "summary"];

/// The member with the input of a block.
const INPUT: &str = "input";

/// The place of the blocks of `reasoning_details`, beside the place of the reasoning's text.
const DETAILS: u64 = u64::MAX;

/// A thought at the index that its fragments name.
#[derive(Debug, Default)]
pub(super) struct PartialThought {
    pub(super) place: u64,
    pub(super) text: String,
    pub(super) signature: String,
    pub(super) redacted: String,
    /// The field of its text, if the provider takes unsigned reasoning back.
    pub(super) field: Option<&'static str>,
    /// The blocks of `reasoning_details`, an item of OpenAI's, or a block of a tool that runs at the provider, whose input is the text.
    pub(super) details: Vec<Value>,
}

impl TurnAssembler {
    /// A block of `reasoning_details`, or a fragment of the last one. They are sent back as they are.
    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`](super::MAX_ANSWER_BYTES), or has too many of them.
    pub(in crate::models) fn detail(&mut self, block: Value) -> Result<(), ModelError> {
        self.count(block.to_string().len())?;
        let blocks = &mut self.thought(DETAILS)?.details;
        let count = blocks.len();
        match blocks.last_mut().filter(|last| is_fragment_of(last, &block)) {
            Some(last) => extend_block(last, block),
            None if count >= MAX_PARTS => {
                return Err(ModelError::Garbled(format!("it has more than {MAX_PARTS} blocks of reasoning")));
            }
            None => blocks.push(block),
        }
        Ok(())
    }

    /// A thought that arrives as a whole, to be sent back as it is.
    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`](super::MAX_ANSWER_BYTES), or has too many of them.
    pub(in crate::models) fn whole_thought(&mut self, place: u64, block: Value) -> Result<(), ModelError> {
        self.count(block.to_string().len())?;
        self.thought(place)?.details.push(block);
        self.end_thought(place);
        Ok(())
    }

    /// A block of a tool that runs at the provider begins. It is sent back as it is, with the input that follows.
    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`](super::MAX_ANSWER_BYTES), or has too many of them.
    pub(in crate::models) fn begin_block(&mut self, place: u64, block: Value) -> Result<(), ModelError> {
        self.count(block.to_string().len())?;
        self.thought(place)?.details.push(block);
        Ok(())
    }

    pub(in crate::models) fn has_block(&self, place: u64) -> bool {
        self.thoughts.iter().any(|thought| thought.place == place && !thought.details.is_empty())
    }

    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`](super::MAX_ANSWER_BYTES).
    pub(in crate::models) fn input_of_block(&mut self, place: u64, fragment: &str) -> Result<(), ModelError> {
        self.count(fragment.len())?;
        self.thought(place)?.text.push_str(fragment);
        Ok(())
    }
}

impl PartialThought {
    /// As the provider takes it back; `None` if it does not.
    pub(super) fn whole(self) -> Option<Thought> {
        let Self { text, signature, redacted, field, mut details, .. } = self;
        if let [block] = details.as_mut_slice()
            && block.get(INPUT).is_some()
            && let Ok(input @ Value::Object(_)) = serde_json::from_str(&text)
        {
            block[INPUT] = input;
        }
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
fn is_fragment_of(last: &Value, block: &Value) -> bool {
    let has_text = BLOCK_TEXTS.into_iter().any(|name| last.get(name).is_some());
    let is_same = |name: &str| last.get(name) == block.get(name);
    let id = |block: &Value| block.get("id").filter(|id| !id.is_null()).cloned();
    let has_other_id = id(block).is_some_and(|id_of_block| id(last) != Some(id_of_block));
    has_text && is_same("type") && is_same("index") && !has_other_id
}

/// Appends the texts of a fragment; its other members come last with a value.
fn extend_block(last: &mut Value, fragment: Value) {
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
