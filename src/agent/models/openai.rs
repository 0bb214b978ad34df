//! OpenAI's Chat Completions (<https://platform.openai.com/docs/api-reference/chat>) and compatible APIs.

use serde::Deserialize;
use serde_json::{Value, json};

use super::remote::{Event, TurnAssembler, provider_error};
use super::{ModelError, ModelRequest, StopReason};
use crate::agent::message::{AssistantTurn, Message, RequestedCall, ToolMessage};
use crate::agent::toolbox::ToolDescription;

/// The last event of an answer.
const DONE: &[u8] = b"[DONE]";

/// A request. OpenAI requires `max_completion_tokens` for its newer models; other servers support only `max_tokens`.
pub(super) fn body(model: &str, request: &ModelRequest, is_openai: bool) -> Value {
    let limit_field = if is_openai { "max_completion_tokens" } else { "max_tokens" };
    let mut body = json!({
        "model": model,
        "messages": messages(&request.messages),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    body[limit_field] = request.max_tokens.into();
    if let Some(temperature) = request.temperature {
        body["temperature"] = temperature.into();
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body
}

fn messages(conversation: &[Message]) -> Vec<Value> {
    let mut messages = Vec::with_capacity(conversation.len());
    let mut images = Vec::new();
    for message in conversation {
        // A tool message holds only text, and the results of a turn must be consecutive: images follow them.
        if !matches!(message, Message::Tool(_)) {
            messages.extend(shown(&mut images));
        }
        messages.push(match message {
            Message::System(text) => json!({"role": "system", "content": text}),
            Message::User(text) => json!({"role": "user", "content": text}),
            Message::Assistant(turn) => assistant_message(turn),
            Message::Tool(answer) => {
                images.extend(images_of(answer));
                json!({"role": "tool", "tool_call_id": answer.call_id, "content": answer.text})
            }
        });
    }
    messages.extend(shown(&mut images));
    messages
}

fn assistant_message(turn: &AssistantTurn) -> Value {
    let mut message = json!({"role": "assistant", "content": turn.text});
    if !turn.calls.is_empty() {
        let call = |call: &RequestedCall| {
            // Arguments that are not JSON went back to the model as an error; some servers parse them.
            let arguments = call.parsed_arguments().to_string();
            let function = json!({"name": call.tool, "arguments": arguments});
            json!({"id": call.id, "type": "function", "function": function})
        };
        message["tool_calls"] = turn.calls.iter().map(call).collect();
        if turn.text.is_empty() {
            message["content"] = Value::Null;
        }
    }
    message
}

fn shown(images: &mut Vec<Value>) -> Option<Value> {
    (!images.is_empty()).then(|| json!({"role": "user", "content": std::mem::take(images)}))
}

/// The images of a tool result, after a line that names the call.
fn images_of(answer: &ToolMessage) -> Vec<Value> {
    if answer.images.is_empty() {
        return Vec::new();
    }
    let title = format!("Images returned by `{}` (call {}):", answer.tool, answer.call_id);
    let images = answer.images.iter().map(|image| {
        let url = format!("data:{};base64,{}", image.media_type, image.base64);
        json!({"type": "image_url", "image_url": {"url": url}})
    });
    [json!({"type": "text", "text": title})].into_iter().chain(images).collect()
}

fn tool(tool: &ToolDescription) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
    json!({"type": "function", "function": function})
}

/// One event of an answer. Other fields are ignored.
#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
    error: Option<Problem>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    /// Reasoning, under the two names that servers other than OpenAI's use.
    #[serde(alias = "reasoning")]
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<Fragment>>,
}

#[derive(Deserialize)]
struct Fragment {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

/// Cached tokens are included in the prompt's.
#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

/// Some servers send `code` as a number.
#[derive(Deserialize)]
struct Problem {
    code: Option<Value>,
    r#type: Option<Value>,
}

/// # Errors
/// The event does not belong to the protocol, or reports an error.
pub(super) fn read(event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    if event.data == DONE {
        turn.end();
        return Ok(());
    }
    let chunk: Chunk = serde_json::from_slice(&event.data).map_err(|_| ModelError::foreign())?;
    if let Some(Problem { code, r#type }) = chunk.error {
        let called = [&code, &r#type].into_iter().flatten().find_map(Value::as_str);
        return Err(provider_error(called.unwrap_or_default()));
    }
    for Choice { delta, finish_reason } in chunk.choices.unwrap_or_default().into_iter().take(1) {
        if let Some(delta) = delta {
            handle(delta, turn)?;
        }
        match finish_reason.as_deref() {
            None | Some("") => {}
            // `model_length` is Mistral's name for a full context.
            Some("length" | "model_length" | "max_tokens") => turn.stop(StopReason::Length),
            Some("content_filter") => turn.stop(StopReason::Refusal),
            Some(_) => turn.stop(StopReason::Stop),
        }
    }
    if let Some(usage) = chunk.usage {
        turn.used(usage.prompt_tokens, usage.completion_tokens);
        turn.cached(usage.prompt_tokens_details.and_then(|details| details.cached_tokens), None);
    }
    Ok(())
}

fn handle(delta: Delta, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    if let Some(thinking) = delta.reasoning_content {
        turn.thinking(0, thinking)?;
    }
    if let Some(text) = delta.content {
        turn.text(text)?;
    }
    if let Some(refusal) = delta.refusal {
        turn.text(refusal)?;
        turn.stop(StopReason::Refusal);
    }
    for Fragment { index, id, function } in delta.tool_calls.unwrap_or_default() {
        let (name, arguments) = function.map(|function| (function.name, function.arguments)).unwrap_or_default();
        turn.call(index.unwrap_or_default(), id, name, &arguments.unwrap_or_default())?;
    }
    Ok(())
}
