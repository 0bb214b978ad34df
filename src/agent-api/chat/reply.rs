//! The reply of `/api/chat`, gathered from the events of its run.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::model_api::output::{DeltaKind, Output, OutputChange};
use sekisho_agent::{Event, PausedCall, RunUsage};
use sekisho_core::error::CallError;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatReply {
    pub(super) reply: String,
    /// Send it with the next message.
    session_id: String,
    /// The tool calls made for the reply, in order.
    pub(super) tool_calls: Vec<ToolCallMade>,
    /// A summary of the calls by the model, in at most three short items.
    pub(super) summary: Vec<String>,
    /// The calls for which the run is paused until a person decides. The next message continues it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    approvals: Vec<PausedCall>,
    #[schema(value_type = Object)]
    usage: RunUsage,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct ToolCallMade {
    pub(super) name: String,
    /// `null` if the model wrote no JSON object.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Map<String, Value>>,
    pub(super) success: bool,
    pub(super) text: String,
}

impl ChatReply {
    /// Errors: the run's own error, with the content before it as its output.
    pub(super) fn of(session_id: String, events: Vec<Event>) -> Result<Self, CallError> {
        let (mut output, mut reply) = (Output::new(), String::new());
        let (mut requested, mut tool_calls) = (Vec::new(), Vec::new());
        for event in events {
            for change in output.add(event) {
                match change {
                    OutputChange::Grew(_, DeltaKind::Text, text) => reply.push_str(&text),
                    OutputChange::Grew(_, DeltaKind::Notice, text) => {
                        reply = [reply.trim_end(), &text].concat().trim_start().to_owned();
                    }
                    OutputChange::Called { id, arguments } => {
                        // Text before a call is not part of the answer.
                        reply.clear();
                        requested.push((id, arguments));
                    }
                    OutputChange::Answered { id, tool, success, text } => {
                        let index = requested.iter().position(|(requested, _)| *requested == id);
                        let arguments = index.map(|index| requested.remove(index).1);
                        tool_calls.push(ToolCallMade { name: tool, arguments, success, text });
                    }
                    _ => {}
                }
            }
        }
        let Output { approvals, usage, .. } = output.or_failure(&reply)?;
        Ok(Self { reply, session_id, tool_calls, summary: Vec::new(), approvals, usage })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_agent::RunError;
    use sekisho_agent::models::ModelError;
    use sekisho_core::error::ErrorCode;

    fn content(text: &str) -> Event {
        Event::Content { text: text.into() }
    }

    fn input(id: &str, x: u32) -> Event {
        let Value::Object(arguments) = json!({"x": x}) else { panic!("an object") };
        Event::ToolInput { id: id.into(), tool_name: "add".into(), arguments }
    }

    fn result(id: &str, result: &str) -> Event {
        Event::ToolResult { id: id.into(), tool_name: "add".into(), result: result.into() }
    }

    fn reply(events: Vec<Event>) -> Result<ChatReply, CallError> {
        ChatReply::of("s".into(), events)
    }

    #[test]
    fn the_reply_is_the_last_text_and_each_call_has_its_arguments() {
        let broken = Event::ToolError { id: "z".into(), tool_name: "add".into(), error: "no JSON".into() };
        let events = vec![
            content("Let me see."),
            input("a", 1),
            input("b", 2),
            result("a", "1"),
            result("b", "2"),
            // A model may repeat the id in its next turn.
            input("a", 3),
            result("a", "3"),
            broken,
            content("It is "),
            content("six."),
        ];
        let reply = serde_json::to_value(reply(events).unwrap()).unwrap();
        assert_eq!(reply["reply"], "It is six.");
        let call = |arguments: Value, success: bool, text: &str| json!({"name": "add", "arguments": arguments, "success": success, "text": text});
        let expected = json!([
            call(json!({"x": 1}), true, "1"),
            call(json!({"x": 2}), true, "2"),
            call(json!({"x": 3}), true, "3"),
            call(Value::Null, false, "no JSON"),
        ]);
        assert_eq!(reply["tool_calls"], expected);
    }

    #[test]
    fn an_error_carries_the_text_so_far_and_a_limit_is_added_after_it() {
        let error = Event::Error(RunError::from(&ModelError::Timeout));
        let failed = reply(vec![content("It is"), error]).unwrap_err();
        assert_eq!((failed.code(), failed.output()), (ErrorCode::Timeout, Some(&json!("It is"))));
        let limit = || Event::Status { status: "max_turns".into(), message: "50 turns".into() };
        assert_eq!(reply(vec![content("It is"), limit()]).unwrap().reply, "It is\n\n[50 turns]");
        assert_eq!(reply(vec![limit()]).unwrap().reply, "[50 turns]");
    }
}
