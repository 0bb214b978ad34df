//! A conversation in our own form, whatever provider it is sent to.

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

    /// How much memory it takes, roughly.
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

/// What the model said in one turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AssistantTurn {
    pub text: String,
    pub calls: Vec<RequestedCall>,
    /// Signed or redacted: the provider wants it back unchanged.
    pub thoughts: Vec<Thought>,
}

/// A piece of the model's thinking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thought {
    pub text: String,
    /// The provider's proof that the text is the model's own.
    pub signature: String,
    /// Instead of both: thinking that the provider shows to nobody.
    pub redacted: String,
}

impl Thought {
    /// Whether the provider can know it again.
    pub fn is_wanted_back(&self) -> bool {
        !self.signature.is_empty() || !self.redacted.is_empty()
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.signature.len() + self.redacted.len()
    }
}

/// A tool call as the model asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedCall {
    /// Of a model's own words the provider's; in a conversation ours, or what a client's transcript says.
    pub id: String,
    pub tool: String,
    /// The text as it came: whether it is a JSON object is for the loop to find out.
    pub arguments: String,
    /// The provider's id of a call whose `id` is ours.
    pub provider_id: Option<ProviderId>,
}

impl RequestedCall {
    pub fn new(id: String, tool: String, arguments: String) -> Self {
        Self { id, tool, arguments, provider_id: None }
    }

    /// What the tool is called with. Models write nothing at all for a tool without parameters.
    ///
    /// # Errors
    /// What is wrong with them: the text is no JSON object, or one that the gateway does not take.
    pub(super) fn read_arguments(&self) -> Result<Arguments, String> {
        let text = if self.arguments.trim().is_empty() { "{}" } else { &self.arguments };
        match json::parse(text.as_bytes()) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(_) => Err("it is another value".to_owned()),
            Err(problem) => Err(problem.to_string()),
        }
    }

    /// Whether a token limit that ended the turn may have cut this call: the last one, and any whose arguments are not
    /// there or not whole.
    pub(super) fn may_be_cut(&self, is_last: bool) -> bool {
        is_last || self.arguments.trim().is_empty() || self.read_arguments().is_err()
    }

    /// The arguments as providers take them back: an object, empty where the model wrote none.
    pub(super) fn parsed_arguments(&self) -> Value {
        let parsed =
            json::parse_answer(self.arguments.as_bytes()).ok().map(|(parsed, _)| parsed).filter(Value::is_object);
        parsed.unwrap_or_else(|| Value::Object(Map::new()))
    }
}

/// The answer to one call (D16).
#[derive(Debug, Clone, PartialEq)]
pub struct ToolMessage {
    pub call_id: String,
    pub tool: String,
    pub text: String,
    pub images: Vec<ToolImage>,
}
