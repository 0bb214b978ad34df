//! The events of a run while it goes on (D10–D15).

use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::message::{Message, RequestedCall, ToolMessage};
use super::models::ModelError;
use super::plan::{Node, Step};
use sekisho_core::error::{CallError, ErrorCode, NeededApproval};

pub use sekisho_core::record::{FinishReason, RunUsage};

/// One step of a run, in the order things happen. As JSON: `{"type": "content", …}`.
#[derive(Debug, Clone, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "type", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Event {
    /// Text of the answer, as the model streams it.
    Content {
        #[serde(flatten, serialize_with = "text_and_content")]
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
        #[serde(flatten, serialize_with = "error_and_content")]
        error: String,
    },
    /// A call of a tool that the client runs itself: the run ends after this turn.
    ClientToolCall {
        id: String,
        tool_name: String,
        arguments: String,
    },
    /// A person must approve a call: the run pauses after the other calls of its turn.
    Approval(PausedCall),
    /// A call for which an earlier run paused has an answer, which belongs to that run's turn.
    Resumed {
        #[serde(skip)]
        answer: ToolMessage,
    },
    /// A request to the model's provider failed and is sent again.
    Retry {
        message: String,
    },
    /// The conversation is longer than the model can read: from here on it gets a shorter form.
    Compacted {
        /// Results of tools that became one line each.
        results: usize,
        /// Messages that a summary replaced.
        messages: usize,
        /// Estimated tokens of the request.
        tokens_before: u64,
        tokens_after: u64,
    },
    /// A call of `Task` started a sub-agent (C24).
    SubAgentBegin {
        /// The call's id.
        tool_use_id: String,
        subagent_type: String,
        /// The provider's id.
        model: String,
    },
    /// A piece of a sub-agent's text.
    SubAgentText {
        /// The call that started it.
        tool_use_id: String,
        text: String,
    },
    /// It has ended, also where the run was stopped. Its answer is the call's result.
    SubAgentEnd {
        tool_use_id: String,
        subagent_type: String,
        model: String,
        success: bool,
        /// With the usage of its own sub-agents.
        usage: RunUsage,
    },
    /// The plan of an agent that plans, as it is made or changed.
    Plan {
        plan_id: Arc<str>,
        steps: Vec<Step>,
        success_criteria: String,
    },
    /// A step of the plan has another status. `attempt`: which one at this step.
    Step {
        step: Step,
        attempt: u32,
    },
    /// The result of the current step's evaluation.
    Evaluation {
        passed: bool,
        reason: String,
        need_replan: bool,
    },
    /// The node that the plan comes to.
    Node {
        node: Node,
    },
    /// A part of the plan failed, and the plan goes on (A71).
    #[serde(rename = "error")]
    #[strum(serialize = "error")]
    PartFailed(RunError),
    /// The run cannot continue. The content sent before remains valid.
    Error(RunError),
    /// `aborted`, or the limit that ended the run.
    Status {
        status: String,
        #[serde(flatten, serialize_with = "message_and_content")]
        message: String,
    },
    /// The run is over.
    Finished {
        reason: FinishReason,
        /// The messages that the run added to the conversation, including those before a failure.
        #[serde(skip)]
        messages: Vec<Message>,
    },
    /// Tokens and cost of the whole run with its sub-agents; always the last event.
    Usage(RunUsage),
}

fn text_and_content<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    and_content("text", text, serializer)
}

fn error_and_content<S: Serializer>(error: &str, serializer: S) -> Result<S::Ok, S::Error> {
    and_content("error", error, serializer)
}

fn message_and_content<S: Serializer>(message: &str, serializer: S) -> Result<S::Ok, S::Error> {
    and_content("message", message, serializer)
}

/// A text by its name, and as `content`, which clients of D10 and D13–D15 read.
fn and_content<S: Serializer>(name: &'static str, text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let mut members = serializer.serialize_map(Some(2))?;
    members.serialize_entry(name, text)?;
    members.serialize_entry("content", text)?;
    members.end()
}

impl Event {
    /// The value of `type`.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// A call for which a run pauses: a person must approve it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PausedCall {
    /// Of the approval.
    #[schema(value_type = String)]
    pub id: Arc<str>,
    pub call_id: String,
    pub tool: String,
    /// As the model wrote them.
    #[serde(skip)]
    pub arguments: String,
    /// RFC 3339: when it can no longer be approved, or be made.
    pub expires_at: String,
    /// The page where an approver decides.
    pub url: String,
}

impl PausedCall {
    pub(super) fn new(call: &RequestedCall, needed: NeededApproval) -> Self {
        let NeededApproval { id, expires_at, url } = needed;
        let RequestedCall { id: call_id, tool, arguments, .. } = call.clone();
        Self { id, call_id, tool, arguments, expires_at, url }
    }
}

/// Why a run cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunError {
    pub code: ErrorCode,
    #[serde(flatten, serialize_with = "message_and_content")]
    pub message: String,
    /// Whether the same request may succeed later without a change by anyone.
    pub retryable: bool,
    /// How long to wait before it, if the model's provider said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl From<&ModelError> for RunError {
    fn from(error: &ModelError) -> Self {
        let wait = error.retry_after().map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        Self {
            code: error.code(),
            message: error.to_string(),
            retryable: error.code().retryable() && !error.is_permanent(),
            retry_after_ms: wait,
        }
    }
}

impl From<&CallError> for RunError {
    fn from(error: &CallError) -> Self {
        let (code, message) = (error.code(), error.message().to_owned());
        let retry_after_ms = error.wait().map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        Self { code, message, retryable: error.retryable(), retry_after_ms }
    }
}

impl From<RunError> for CallError {
    fn from(RunError { code, message, retryable, retry_after_ms }: RunError) -> Self {
        let error = Self::new(code, message);
        let error = if retryable { error } else { error.permanently() };
        match retry_after_ms {
            Some(wait) => error.retry_after(Duration::from_millis(wait)),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// B18.
    #[test]
    fn the_nodes_of_a_plan_have_the_names_of_the_specification() {
        for (node, name) in [
            (Node::PlannerInit, "Planner_Init"),
            (Node::ExecutorDispatch, "Executor_Dispatch"),
            (Node::ExecutorRunMcp, "Executor_RunMCP"),
            (Node::ExecutorProcessResult, "Executor_ProcessResult"),
            (Node::MemoryUpdate, "Memory_Update"),
            (Node::PlannerEvaluate, "Planner_Evaluate"),
            (Node::PlannerReplanning, "Planner_Replanning"),
        ] {
            let event = serde_json::to_value(Event::Node { node }).unwrap();
            assert_eq!(event, json!({"type": "node", "node": name}));
        }
    }

    #[test]
    fn texts_of_events_are_called_content_too() {
        let failed = || RunError {
            code: ErrorCode::ModelRefused,
            message: "no key".into(),
            retryable: false,
            retry_after_ms: None,
        };
        let (id, tool_name) = ("a".to_owned(), "add".to_owned());
        let error = json!({"type": "error", "code": "model_refused", "message": "no key", "content": "no key", "retryable": false});
        for (event, expected) in [
            (Event::Content { text: "Hi".into() }, json!({"type": "content", "text": "Hi", "content": "Hi"})),
            (
                Event::ToolError { id, tool_name, error: "no".into() },
                json!({"type": "tool_error", "id": "a", "tool_name": "add", "error": "no", "content": "no"}),
            ),
            (Event::Error(failed()), error.clone()),
            (Event::PartFailed(failed()), error),
            (
                Event::Status { status: "aborted".into(), message: "It was aborted.".into() },
                json!({"type": "status", "status": "aborted", "message": "It was aborted.", "content": "It was aborted."}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&event).unwrap(), expected);
        }
    }
}
