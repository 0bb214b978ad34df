//! A conversation in the gateway's own form, independent of the provider.

use serde_json::{Map, Value};

use super::call_ids::ProviderId;
use super::toolbox::ToolImage;
use crate::core::call::Arguments;
use crate::core::json;

/// One message of a conversation, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    System(String),
    User(String),
    Assistant(AssistantTurn),
    Tool(ToolMessage),
}

impl Message {
    /// The text of a system prompt.
    pub(super) fn as_system(&self) -> Option<&str> {
        match self {
            Self::System(text) => Some(text),
            Self::User(_) | Self::Assistant(_) | Self::Tool(_) => None,
        }
    }

    /// Estimated memory, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::System(text) | Self::User(text) => text.len(),
            Self::Assistant(turn) => {
                let thinking = turn.thoughts.iter().map(Thought::bytes).sum::<usize>();
                turn.text.len() + thinking + turn.calls.iter().map(|call| call.arguments.len()).sum::<usize>()
            }
            Self::Tool(result) => {
                result.text.len() + result.images.iter().map(|image| image.base64.len()).sum::<usize>()
            }
        }
    }
}

/// The model's output of one turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AssistantTurn {
    pub text: String,
    pub calls: Vec<RequestedCall>,
    /// Signed or redacted reasoning: the provider requires it back unchanged.
    pub thoughts: Vec<Thought>,
}

/// A part of the model's reasoning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thought {
    pub text: String,
    /// The provider's signature of the text.
    pub signature: String,
    /// Instead of text and signature: reasoning that the provider sends encrypted.
    pub redacted: String,
}

impl Thought {
    /// Whether the provider accepts it back.
    pub fn can_be_sent_back(&self) -> bool {
        !self.signature.is_empty() || !self.redacted.is_empty()
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.signature.len() + self.redacted.len()
    }
}

/// A tool call requested by the model.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedCall {
    /// In a model's output the provider's id; in a conversation ours, or the one in the client's transcript.
    pub id: String,
    pub tool: String,
    /// The text as received; the run checks whether it is a JSON object.
    pub arguments: String,
    /// The provider's id, if `id` is ours.
    pub provider_id: Option<ProviderId>,
}

impl RequestedCall {
    pub fn new(id: String, tool: String, arguments: String) -> Self {
        Self { id, tool, arguments, provider_id: None }
    }

    /// The call's arguments. Models send an empty text for a tool without parameters.
    ///
    /// # Errors
    /// The text is not a JSON object, or not one that the gateway accepts.
    pub(super) fn read_arguments(&self) -> Result<Arguments, String> {
        let text = if self.arguments.trim().is_empty() { "{}" } else { &self.arguments };
        match json::parse(text.as_bytes()) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(_) => Err("it is not an object".to_owned()),
            Err(problem) => Err(problem.to_string()),
        }
    }

    /// Whether a token limit that ended the turn may have cut this call off: true of the last call, and of each whose
    /// arguments are missing or incomplete.
    pub(super) fn may_be_cut(&self, is_last: bool) -> bool {
        is_last || self.arguments.trim().is_empty() || self.read_arguments().is_err()
    }

    /// The arguments as providers accept them back: an object, empty if the model sent none.
    pub(super) fn parsed_arguments(&self) -> Value {
        let parsed =
            json::parse_answer(self.arguments.as_bytes()).ok().map(|(parsed, _)| parsed).filter(Value::is_object);
        parsed.unwrap_or_else(|| Value::Object(Map::new()))
    }
}

/// The result of one call (D16).
#[derive(Debug, Clone, PartialEq)]
pub struct ToolMessage {
    pub call_id: String,
    pub tool: String,
    pub text: String,
    pub images: Vec<ToolImage>,
}
