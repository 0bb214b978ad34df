//! The events of a run of a conversation: the closed list that `/openapi.json` describes.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::live::UnknownCall;
use crate::{PausedCall, RunError, RunUsage};
use sekisho_core::error::{CallError, ErrorCode, NeededApproval};

/// One event of a run. The name of a server-sent event is its `type`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema, strum::IntoStaticStr)]
#[serde(tag = "type", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RunEvent {
    /// The run begins (`init`), or has ended and is stored (`finish`).
    System {
        subtype: SystemSubtype,
        run_id: String,
        conversation_id: String,
        session_id: String,
        /// The run's number in its conversation, from 1.
        turn: i64,
    },
    /// A piece of the answer.
    TextDelta {
        text: String,
        /// The call of `Task` whose sub-agent says it; missing for the run's own answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_tool_use_id: Option<String>,
    },
    /// A piece of what the model thinks, if its provider shows it.
    Thinking {
        thinking: String,
    },
    /// A tool is about to be called.
    ToolUse {
        tool_use_id: String,
        tool_name: String,
        #[schema(value_type = Object)]
        tool_input: Map<String, Value>,
    },
    ToolResult {
        tool_use_id: String,
        content: String,
        is_error: bool,
    },
    /// The run has ended.
    Result {
        /// The last text; part of one where the run was stopped.
        result: String,
        is_error: bool,
        errors: Vec<String>,
        usage: EventUsage,
        total_cost_usd: f64,
        num_turns: u32,
        duration_ms: u64,
        session_id: String,
    },
    /// The run cannot begin or go on.
    Error {
        code: EventErrorCode,
        /// The error code of REST bodies.
        error_code: String,
        message: String,
        retryable: bool,
    },
    /// Another run of the conversation is on; this one waits for it.
    Queued {
        wait_seconds: u64,
    },
    /// A request to the model's provider failed and is sent again.
    Retry {
        message: String,
    },
    /// A decision about a call is needed. With `approval` it is an approver's, and the run pauses; otherwise the run waits for
    /// `POST /api/runs/{id}/resolve` with this call id.
    Approval {
        call_id: String,
        tool_name: String,
        /// The arguments as the model wrote them.
        tool_input: String,
        reason: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        approval: Option<NeededApproval>,
    },
    /// The conversation was shortened for the model.
    Compacted {
        /// Results of tools that became one line each.
        results: usize,
        /// Messages that a summary replaced.
        messages: usize,
        /// Estimated tokens of the request.
        tokens_before: u64,
        tokens_after: u64,
        /// The session that the session of the run continues; it stays as it is. Missing where the messages are only shorter in
        /// this run.
        #[serde(skip_serializing_if = "Option::is_none")]
        earlier_session_id: Option<String>,
    },
    /// A sub-agent begins, for the `Task` call of that id.
    SubagentBegin {
        tool_use_id: String,
        subagent_type: String,
        model: String,
    },
    SubagentEnd {
        tool_use_id: String,
        is_error: bool,
        usage: EventUsage,
    },
    /// The plan of the run is another one.
    PlanChanged {
        #[schema(value_type = Object)]
        plan: Value,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemSubtype {
    Init,
    Finish,
}

/// The kinds of errors that clients tell apart (C37–C39).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EventErrorCode {
    ConversationLocked,
    /// The agent or its model failed; the message has the provider's sentence.
    SdkError,
    /// The message is a general one.
    InternalError,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct EventUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub tool_calls: u32,
}

impl From<UnknownCall> for RunEvent {
    fn from(UnknownCall { call_id, tool_name, tool_input, reason }: UnknownCall) -> Self {
        Self::Approval { call_id, tool_name, tool_input, reason, approval: None }
    }
}

impl From<PausedCall> for RunEvent {
    fn from(PausedCall { id, call_id, tool, arguments, expires_at, url }: PausedCall) -> Self {
        Self::Approval {
            call_id,
            tool_name: tool,
            tool_input: arguments,
            reason: format!("a person must approve the call at {url}"),
            approval: Some(NeededApproval { id, expires_at, url }),
        }
    }
}

impl From<&RunUsage> for EventUsage {
    fn from(used: &RunUsage) -> Self {
        Self { input_tokens: used.prompt_tokens, output_tokens: used.completion_tokens, tool_calls: used.tool_calls }
    }
}

impl RunEvent {
    /// The name of the event.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Why a run did not begin, or failed.
    pub fn error(error: &CallError) -> Self {
        let code = match error.code() {
            ErrorCode::ConversationLocked => EventErrorCode::ConversationLocked,
            ErrorCode::Internal => EventErrorCode::InternalError,
            _ => EventErrorCode::SdkError,
        };
        Self::Error {
            code,
            error_code: error.code().as_str().to_owned(),
            message: error.message().to_owned(),
            retryable: error.retryable(),
        }
    }
}

/// An internal error's own message is for the log.
pub(super) fn general(error: &RunError) -> CallError {
    match error.code {
        ErrorCode::Internal => CallError::internal(&error.message),
        _ => CallError::from(error.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_named_by_its_type_and_errors_by_their_kind() {
        for (code, expected) in [
            (ErrorCode::ConversationLocked, "CONVERSATION_LOCKED"),
            (ErrorCode::ModelRefused, "SDK_ERROR"),
            (ErrorCode::Internal, "INTERNAL_ERROR"),
        ] {
            let event = RunEvent::error(&CallError::new(code, "m"));
            let data = serde_json::to_value(&event).unwrap();
            assert_eq!((&data["type"], &data["code"]), (&json!(event.name()), &json!(expected)));
        }
        let secret =
            RunError { code: ErrorCode::Internal, message: "secret".into(), retryable: false, retry_after_ms: None };
        assert!(!general(&secret).message().contains("secret"));
    }
}
