//! The events of a run while it goes on (D10–D15).

use serde::Serialize;
use serde_json::{Map, Value};

use super::message::Message;

pub use crate::core::record::{FinishReason, RunUsage};

/// One step of a run, in the order things happen. As JSON: `{"type": "content", …}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Text of the answer, as the model streams it.
    Content {
        text: String,
    },
    /// The model's reasoning, if the provider shows any.
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
    /// The tool failed or was refused; `error` was returned to the model.
    ToolError {
        id: String,
        tool_name: String,
        error: String,
    },
    /// A call of a tool that the client runs itself: the run ends after this turn.
    ClientToolCall {
        id: String,
        tool_name: String,
        arguments: String,
    },
    /// The run cannot continue. The content sent before remains valid.
    Error {
        code: String,
        message: String,
    },
    /// `aborted`, or the limit that ended the run.
    Status {
        status: String,
        message: String,
    },
    /// The run is over.
    Finished {
        reason: FinishReason,
        /// The messages that the run added to the conversation, including those before a failure.
        #[serde(skip)]
        messages: Vec<Message>,
    },
    /// Tokens and cost of the whole run; always the last event.
    Usage(RunUsage),
}
