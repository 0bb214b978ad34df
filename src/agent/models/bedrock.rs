//! Amazon Bedrock's ConverseStream
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>), with an API key.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::remote::{Event, MessageMerger, TurnAssembler, provider_error};
use super::{ModelError, ModelRequest, StopReason};
use crate::agent::message::{AssistantTurn, Message, Thought, ToolMessage};
use crate::agent::toolbox::{ToolDescription, ToolImage};

/// Sent in place of an empty tool result, which the API refuses.
const NOTHING: &str = "(nothing)";

/// The model is part of the URL.
pub(super) fn body(request: &ModelRequest) -> Value {
    let mut body = json!({
        "messages": messages(&request.messages),
        "inferenceConfig": {"maxTokens": request.max_tokens},
    });
    let system: Vec<_> = request.messages.iter().filter_map(Message::as_system).collect();
    if !system.is_empty() {
        body["system"] = system.into_iter().map(|text| json!({"text": text})).collect();
    }
    if let Some(temperature) = request.temperature {
        body["inferenceConfig"]["temperature"] = temperature.into();
    }
    if !request.tools.is_empty() {
        body["toolConfig"] = json!({"tools": request.tools.iter().map(tool).collect::<Vec<_>>()});
    }
    body
}

/// All messages but system prompts. The API refuses two consecutive messages of one role, so they become one.
fn messages(conversation: &[Message]) -> Value {
    let mut messages = MessageMerger::default();
    for message in conversation {
        match message {
            Message::System(_) => {}
            Message::User(text) => messages.user([json!({"text": text})]),
            Message::Assistant(turn) => messages.assistant(assistant_parts(turn)),
            Message::Tool(answer) => messages.user([answered(answer)]),
        }
    }
    messages.into_messages()
}

fn assistant_parts(turn: &AssistantTurn) -> impl Iterator<Item = Value> {
    let thoughts = turn.thoughts.iter().map(|Thought { text, signature, redacted }| {
        if redacted.is_empty() {
            json!({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}})
        } else {
            json!({"reasoningContent": {"redactedContent": redacted}})
        }
    });
    let text = Some(&turn.text).filter(|text| !text.trim().is_empty()).map(|text| json!({"text": text}));
    let calls = turn
        .calls
        .iter()
        .map(|call| json!({"toolUse": {"toolUseId": call.id, "name": call.tool, "input": call.parsed_arguments()}}));
    thoughts.chain(text).chain(calls)
}

fn answered(answer: &ToolMessage) -> Value {
    let image = |image: &ToolImage| {
        let format = image.media_type.trim_start_matches("image/");
        json!({"image": {"format": format, "source": {"bytes": image.base64}}})
    };
    let text = if answer.text.trim().is_empty() { NOTHING } else { &answer.text };
    let content: Vec<_> = [json!({"text": text})].into_iter().chain(answer.images.iter().map(image)).collect();
    json!({"toolResult": {"toolUseId": answer.call_id, "content": content}})
}

fn tool(tool: &ToolDescription) -> Value {
    let description = if tool.description.is_empty() { &tool.name } else { &tool.description };
    json!({"toolSpec": {"name": tool.name, "description": description, "inputSchema": {"json": tool.parameters}}})
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockStart {
    content_block_index: u64,
    start: Option<Started>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Started {
    tool_use: Option<ToolUse>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolUse {
    tool_use_id: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BlockDelta {
    content_block_index: u64,
    delta: Delta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delta {
    text: Option<String>,
    tool_use: Option<Input>,
    reasoning_content: Option<Reasoning>,
}

#[derive(Deserialize)]
struct Input {
    input: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reasoning {
    text: Option<String>,
    signature: Option<String>,
    redacted_content: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stop {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    usage: Option<Usage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    input_tokens: Option<u64>,
    /// Not included in the input tokens; neither are the next.
    cache_read_input_tokens: Option<u64>,
    cache_write_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// # Errors
/// The event does not belong to the protocol, or reports an error.
pub(super) fn read(event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    if event.failed {
        return Err(provider_error(&event.name));
    }
    match event.name.as_str() {
        "contentBlockStart" => {
            let BlockStart { content_block_index, start } = parsed(event)?;
            if let Some(ToolUse { tool_use_id, name }) = start.and_then(|start| start.tool_use) {
                turn.call(content_block_index, Some(tool_use_id), Some(name), "")?;
            }
        }
        "contentBlockDelta" => handle(parsed(event)?, turn)?,
        "messageStop" => turn.stop(match parsed::<Stop>(event)?.stop_reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
            Some("guardrail_intervened" | "content_filtered") => StopReason::Refusal,
            _ => StopReason::Stop,
        }),
        // The usage arrives after the stop, as the last event.
        "metadata" => {
            count(parsed::<Metadata>(event)?.usage, turn);
            turn.end();
        }
        _ => {}
    }
    Ok(())
}

fn handle(
    BlockDelta { content_block_index: place, delta }: BlockDelta,
    turn: &mut TurnAssembler,
) -> Result<(), ModelError> {
    if let Some(text) = delta.text {
        turn.text(text)?;
    }
    if let Some(Input { input }) = delta.tool_use {
        turn.call(place, None, None, &input)?;
    }
    if let Some(Reasoning { text, signature, redacted_content }) = delta.reasoning_content {
        turn.thinking(place, text.unwrap_or_default())?;
        turn.signature(place, signature.as_deref().unwrap_or_default())?;
        turn.redacted(place, redacted_content.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

fn count(usage: Option<Usage>, turn: &mut TurnAssembler) {
    let Some(usage) = usage else { return };
    let cached = [usage.cache_read_input_tokens, usage.cache_write_input_tokens];
    let prompt = usage.input_tokens.map(|tokens| cached.into_iter().flatten().fold(tokens, u64::saturating_add));
    turn.used(prompt, usage.output_tokens);
    turn.cached(usage.cache_read_input_tokens, usage.cache_write_input_tokens);
}

fn parsed<T: DeserializeOwned>(event: &Event) -> Result<T, ModelError> {
    serde_json::from_slice(&event.data).map_err(|_| ModelError::foreign())
}
