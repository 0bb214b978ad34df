//! What a run tells while it goes on (D10–D15).

use serde::Serialize;
use serde_json::{Map, Value};

use super::message::Message;

pub use crate::core::record::{FinishReason, RunUsage};

/// One step of a run, in the order things happen. As JSON: `{"type": "content", …}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Text of the answer, as the model gives it.
    Content {
        text: String,
    },
    /// The model's reasoning, where it shows any.
    Thinking {
        text: String,
    },
    /// A tool is about to be called.
    ToolInput {
        id: String,
        tool_name: String,
        arguments: Map<String, Value>,
    },
    ToolResult {
        id: String,
        tool_name: String,
        result: String,
    },
    /// The tool failed or was refused; `error` went back to the model.
    ToolError {
        id: String,
        tool_name: String,
        error: String,
    },
    /// A tool that the client runs itself: the run ends after this turn.
    ClientToolCall {
        id: String,
        tool_name: String,
        arguments: String,
    },
    /// The run cannot go on. What was said so far stands.
    Error {
        code: String,
        message: String,
    },
    /// `aborted`, or a limit that ended the run.
    Status {
        status: String,
        message: String,
    },
    /// The run is over.
    Finished {
        reason: FinishReason,
        /// What the run added to the conversation, for whoever keeps it. What was said before a failure is in it.
        #[serde(skip)]
        messages: Vec<Message>,
    },
    /// Tokens and money of the whole run; last.
    Usage(RunUsage),
}
