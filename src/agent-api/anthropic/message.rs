//! A run in the form of Anthropic's Messages (<https://docs.claude.com/en/api/messages>).

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::model_api::output::{Output, OutputPart};
use sekisho_agent::{FinishReason, PausedCall, RunUsage};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json;

/// An answer, whole or as far as it is.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = MessagesReply)]
pub(crate) struct MessageBody {
    pub(super) id: String,
    r#type: &'static str,
    role: &'static str,
    /// The agent's name.
    model: String,
    content: Vec<ContentBlock>,
    /// An extension: the calls for which the run is paused until a person decides. `content` has each as `server_tool_use`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    approvals: Vec<PausedCall>,
    stop_reason: Option<StopReason>,
    /// Always `null`: models do not say which text ended the answer.
    stop_sequence: Option<String>,
    usage: Usage,
}

/// What the agent answered. Calls of the gateway's own tools are not part of it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = MessagesReplyBlock)]
pub(super) enum ContentBlock {
    /// What the model shows of its reasoning. The signature is empty: the gateway keeps that of the model.
    Thinking {
        thinking: String,
        signature: &'static str,
    },
    Text {
        text: String,
    },
    /// A call of a tool that the client runs itself.
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
    /// A call of a tool of the gateway for which the run is paused. Sent back as it is, it continues the run.
    ServerToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum StopReason {
    EndTurn,
    /// Also for the limits of the agent's profile.
    MaxTokens,
    ToolUse,
    /// The run is paused until a person decides about a call.
    PauseTurn,
    Refusal,
}

#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
#[schema(as = MessagesUsage)]
pub(super) struct Usage {
    /// Without those of the cache.
    input_tokens: u64,
    output_tokens: u64,
    /// Written to the provider's cache.
    cache_creation_input_tokens: u64,
    /// Read from it.
    cache_read_input_tokens: u64,
}

/// The reply of `POST /v1/messages/count_tokens`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenCount {
    /// An estimate, with the prompt and tools of the gateway.
    pub input_tokens: u64,
}

impl MessageBody {
    /// An answer without content.
    pub(super) fn begun(model: &str) -> Self {
        Self {
            id: format!("msg_{}", Uuid::new_v4().simple()),
            r#type: "message",
            role: "assistant",
            model: model.to_owned(),
            content: Vec::new(),
            approvals: Vec::new(),
            stop_reason: None,
            stop_sequence: None,
            usage: Usage::default(),
        }
    }

    /// The output of a whole run.
    /// Errors: `invalid_output`: the arguments of a call are no JSON object.
    pub(super) fn of(model: &str, output: Output) -> Result<Self, CallError> {
        let (stop_reason, usage) = (Some(StopReason::of(output.finish)), Usage::of(&output.usage));
        let mut content: Vec<_> = output.parts.into_iter().map(ContentBlock::of).collect::<Result<_, _>>()?;
        content.extend(output.approvals.iter().map(ContentBlock::paused));
        Ok(Self { content, approvals: output.approvals, stop_reason, usage, ..Self::begun(model) })
    }
}

impl ContentBlock {
    pub(super) fn of(part: OutputPart) -> Result<Self, CallError> {
        Ok(match part {
            OutputPart::Thinking(thinking) => Self::Thinking { thinking, signature: "" },
            OutputPart::Text(text) => Self::Text { text },
            OutputPart::Call { id, name, arguments } => {
                let input = input_of(&arguments).ok_or_else(|| {
                    let message =
                        format!("the model called `{name}` with arguments that are no JSON object; try again");
                    CallError::new(ErrorCode::InvalidOutput, message)
                })?;
                Self::ToolUse { id, name, input }
            }
        })
    }

    /// A call that waits. The run has found that its arguments are an object.
    pub(super) fn paused(call: &PausedCall) -> Self {
        let input = input_of(&call.arguments).unwrap_or_else(|| Value::Object(Map::new()));
        Self::ServerToolUse { id: call.call_id.clone(), name: call.tool.clone(), input }
    }
}

impl StopReason {
    pub(super) fn of(reason: FinishReason) -> Self {
        match reason {
            // An abort is already in the text, and a failure an event of its own.
            FinishReason::Stop | FinishReason::Aborted | FinishReason::Error => Self::EndTurn,
            FinishReason::Length | FinishReason::Limit => Self::MaxTokens,
            FinishReason::ToolCalls => Self::ToolUse,
            FinishReason::ApprovalRequired => Self::PauseTurn,
            FinishReason::Refusal => Self::Refusal,
        }
    }
}

/// The arguments of a call, if they are a JSON object.
fn input_of(arguments: &str) -> Option<Value> {
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    json::parse(text.as_bytes()).ok().filter(Value::is_object)
}

impl Usage {
    pub(super) fn of(run: &RunUsage) -> Self {
        Self {
            input_tokens: run.prompt_tokens.saturating_sub(run.cached_tokens).saturating_sub(run.cache_write_tokens),
            output_tokens: run.completion_tokens,
            cache_creation_input_tokens: run.cache_write_tokens,
            cache_read_input_tokens: run.cached_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_agent::Event;

    fn call(arguments: &str) -> Event {
        Event::ClientToolCall { id: "a".into(), tool_name: "click".into(), arguments: arguments.into() }
    }

    fn message(events: Vec<Event>) -> Result<Value, CallError> {
        let body = MessageBody::of("weather", Output::whole(events).unwrap())?;
        Ok(serde_json::to_value(body).unwrap())
    }

    #[test]
    fn an_answer_has_the_blocks_of_its_output() {
        let message = message(vec![
            Event::Thinking { text: "Hm.".into() },
            Event::Content { text: "Let me click.".into() },
            call("{\"x\": 1}"),
            call(""),
            Event::Finished { reason: FinishReason::ToolCalls, messages: Vec::new() },
            Event::Usage(RunUsage { prompt_tokens: 7, completion_tokens: 5, cached_tokens: 3, ..RunUsage::default() }),
        ])
        .unwrap();
        let expected = json!([
            {"type": "thinking", "thinking": "Hm.", "signature": ""},
            {"type": "text", "text": "Let me click."},
            {"type": "tool_use", "id": "a", "name": "click", "input": {"x": 1}},
            {"type": "tool_use", "id": "a", "name": "click", "input": {}},
        ]);
        assert_eq!((&message["content"], &message["stop_reason"]), (&expected, &json!("tool_use")));
        let usage = json!({"input_tokens": 4, "output_tokens": 5, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 3});
        assert_eq!(message["usage"], usage);
    }

    #[test]
    fn a_call_that_waits_for_an_approver_is_a_block_of_the_server() {
        let mut paused: PausedCall = serde_json::from_value(json!({
            "id": "p", "call_id": "a", "tool": "pay", "expires_at": "later", "url": "https://gateway.test/p"}))
        .unwrap();
        paused.arguments = "{\"sum\": 3}".to_owned();
        let finished = Event::Finished { reason: FinishReason::ApprovalRequired, messages: Vec::new() };
        let message = message(vec![Event::Approval(paused), finished]).unwrap();
        let block = json!({"type": "server_tool_use", "id": "a", "name": "pay", "input": {"sum": 3}});
        assert_eq!((&message["content"], &message["stop_reason"]), (&json!([block]), &json!("pause_turn")));
        assert_eq!(message["approvals"][0]["url"], "https://gateway.test/p");
    }

    #[test]
    fn what_ended_an_answer_is_its_stop_reason() {
        for (reason, expected) in [
            (FinishReason::Stop, StopReason::EndTurn),
            (FinishReason::Aborted, StopReason::EndTurn),
            (FinishReason::Length, StopReason::MaxTokens),
            (FinishReason::Limit, StopReason::MaxTokens),
            (FinishReason::ToolCalls, StopReason::ToolUse),
            (FinishReason::ApprovalRequired, StopReason::PauseTurn),
            (FinishReason::Refusal, StopReason::Refusal),
        ] {
            assert_eq!(StopReason::of(reason), expected);
        }
    }

    #[test]
    fn arguments_that_are_no_object_are_an_error() {
        for arguments in ["{\"x\":", "[1]", "\"x\""] {
            assert_eq!(message(vec![call(arguments)]).unwrap_err().code(), ErrorCode::InvalidOutput, "{arguments}");
        }
    }
}
