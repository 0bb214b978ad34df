//! A conversation in our own form, whatever provider it is sent to.

use serde_json::Value;

use super::toolbox::ToolImage;

/// One message of a conversation, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    System(String),
    User(String),
    Assistant(AssistantTurn),
    Tool(ToolMessage),
}

impl Message {
    /// How much memory it takes, roughly.
    pub fn bytes(&self) -> usize {
        match self {
            Self::System(text) | Self::User(text) => text.len(),
            Self::Assistant(turn) => {
                let thinking = turn.thinking.iter().map(|block| block.to_string().len()).sum::<usize>();
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
    /// Thinking, as the model's file keeps it: the provider wants it back unchanged.
    pub thinking: Vec<Value>,
}

/// A tool call as the model asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedCall {
    pub id: String,
    pub tool: String,
    /// The text as it came: whether it is a JSON object is for the loop to find out.
    pub arguments: String,
}

/// The answer to one call (D16).
#[derive(Debug, Clone, PartialEq)]
pub struct ToolMessage {
    pub call_id: String,
    pub tool: String,
    pub text: String,
    pub images: Vec<ToolImage>,
}
