//! Amazon Bedrock's ConverseStream
//! (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html>).

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::remote::lenient;
use super::remote::{CallFragment, Event, MessageMerger, Reported, TurnAssembler};
use super::{ModelError, ModelRequest, StopReason, anthropic, claude};
use crate::message::{AssistantTurn, Image, Message, Thought, ToolMessage, TurnPart, UserPart};
use crate::options::ToolChoice;
use crate::toolbox::ToolDescription;
use crate::user_file::UserFile;

/// Sent in place of an empty tool result, which the API refuses.
const NOTHING: &str = "(nothing)";

/// The model is part of the URL, too.
pub(super) fn body(model: &str, request: &ModelRequest) -> Value {
    let mut body = json!({
        "messages": messages(&request.messages, takes_status(model)),
        "inferenceConfig": {"maxTokens": request.max_tokens},
    });
    let system = request.system_prompts();
    if !system.is_empty() {
        body["system"] = system.into_iter().map(|text| json!({"text": text})).collect();
    }
    let options = &request.options;
    let is_adaptive = claude::is_adaptive(model);
    let thinking = claude::thinking(request, is_adaptive);
    let asked = [
        ("temperature", options.temperature.filter(|_| thinking.is_none() && !is_adaptive).map(Value::from)),
        ("topP", options.top_p.filter(|_| !is_adaptive).map(Value::from)),
        ("stopSequences", (!options.stop.is_empty()).then(|| json!(options.stop))),
    ];
    for (name, value) in asked {
        if let Some(value) = value {
            body["inferenceConfig"][name] = value;
        }
    }
    if let Some(thinking) = thinking {
        let mut fields = json!({"thinking": anthropic::thinking_field(thinking, is_adaptive)});
        if is_adaptive {
            fields["output_config"] = json!({"effort": claude::effort(thinking)});
        }
        body["additionalModelRequestFields"] = fields;
    }
    if !request.tools.is_empty() {
        body["toolConfig"] = json!({"tools": request.tools.iter().map(tool).collect::<Vec<_>>()});
        if let Some(choice) = tool_choice(&options.tool_choice) {
            body["toolConfig"]["toolChoice"] = choice;
        }
    }
    if let Some(caching) = Caching::of(model).filter(|_| request.is_continued()) {
        mark_for_cache(&mut body, caching);
    }
    body
}

/// The parts of a request that a model keeps in its cache; others refuse marks for it
/// (<https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caching {
    Everything,
    AllButTools,
}

impl Caching {
    /// By the name of the model, with or without a geography.
    fn of(model: &str) -> Option<Self> {
        /// Anthropic's models from before.
        const WITHOUT: [&str; 7] = ["3-haiku", "3-sonnet", "3-opus", "3-5-sonnet", "instant", "v1", "v2"];
        let name = |vendor| model.split_once(vendor).map(|(_, name)| name);
        if let Some(name) = name("anthropic.claude-") {
            return (!WITHOUT.iter().any(|old| name.starts_with(old))).then_some(Self::Everything);
        }
        let is_known = |name: &str| ["micro", "lite", "pro", "premier"].iter().any(|known| name.starts_with(known));
        name("amazon.nova-").filter(|name| is_known(name)).map(|_| Self::AllButTools)
    }
}

/// Marks the beginning of the conversation's next request: the tools, the system prompt, and the messages. The last
/// mark but one is where the request before ended.
fn mark_for_cache(body: &mut Value, caching: Caching) {
    let mark = || json!({"cachePoint": {"type": "default"}});
    if caching == Caching::Everything
        && let Some(tools) = body.pointer_mut("/toolConfig/tools").and_then(Value::as_array_mut)
    {
        tools.push(mark());
    }
    if let Some(system) = body.get_mut("system").and_then(Value::as_array_mut) {
        system.push(mark());
    }
    let messages = body.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten().rev();
    for message in messages.filter(|message| message["role"] == "user").take(2) {
        if let Some(parts) = message.get_mut("content").and_then(Value::as_array_mut) {
            parts.push(mark());
        }
    }
}

/// The API has no choice of no tool; [`ModelOptions::check`](crate::ModelOptions::check) refuses it.
fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto | ToolChoice::None => None,
        ToolChoice::Required => Some(json!({"any": {}})),
        ToolChoice::Tool(name) => Some(json!({"tool": {"name": name}})),
    }
}

/// All messages but system prompts. The API refuses two consecutive messages of one role, so they become one.
fn messages(conversation: &[Message], with_status: bool) -> Value {
    let mut messages = MessageMerger::default();
    for message in conversation {
        match message {
            Message::System(_) => {}
            Message::User(message) => messages.user(message.parts.iter().flat_map(user_parts)),
            Message::Assistant(turn) => messages.assistant(assistant_parts(turn)),
            Message::Tool(answer) => messages.user([answered(answer, with_status)]),
        }
    }
    messages.into_messages()
}

fn assistant_parts(turn: &AssistantTurn) -> impl Iterator<Item = Value> {
    turn.parts.iter().filter_map(|part| match part {
        TurnPart::Text(text) => (!text.trim().is_empty()).then(|| json!({"text": text})),
        TurnPart::Thought(Thought::Signed { text, signature }) => {
            Some(json!({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}))
        }
        TurnPart::Thought(Thought::Redacted(data)) => Some(json!({"reasoningContent": {"redactedContent": data}})),
        TurnPart::Thought(Thought::Unsigned { .. } | Thought::Details(_)) => None,
        TurnPart::Call(call) => {
            let input = call.parsed_arguments();
            Some(json!({"toolUse": {"toolUseId": call.id, "name": call.tool, "input": input}}))
        }
    })
}

fn user_parts(part: &UserPart) -> Vec<Value> {
    match part {
        UserPart::Text(text) => vec![json!({"text": text})],
        UserPart::Image(image) => vec![image_part(image)],
        UserPart::File(file) => {
            let description = json!({"text": file.description()});
            file.document().map(|data| document_part(file, data)).into_iter().chain([description]).collect()
        }
    }
}

/// A name may have letters, digits, spaces, hyphens and brackets, and no other document of the request may have it
/// (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_DocumentBlock.html>).
fn document_part(file: &UserFile, data: &str) -> Value {
    let stem = file.name.rsplit_once('.').map_or(&*file.name, |(stem, _)| stem);
    let kept = stem.chars().map(|character| if character.is_ascii_alphanumeric() { character } else { '-' });
    let name: String = kept.chain(['-']).chain(file.digest().chars().take(8)).collect();
    json!({"document": {"format": "pdf", "name": name, "source": {"bytes": data}}})
}

fn image_part(image: &Image) -> Value {
    let format = image.media_type.trim_start_matches("image/");
    json!({"image": {"format": format, "source": {"bytes": image.base64}}})
}

/// Whether a model knows failed calls by a field; others refuse it
/// (<https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolResultBlock.html>).
fn takes_status(model: &str) -> bool {
    ["anthropic.claude", "amazon.nova"].iter().any(|name| model.contains(name))
}

fn answered(answer: &ToolMessage, with_status: bool) -> Value {
    let text = if answer.text.trim().is_empty() { NOTHING } else { &answer.text };
    let content: Vec<_> = [json!({"text": text})].into_iter().chain(answer.images.iter().map(image_part)).collect();
    let mut result = json!({"toolUseId": answer.call_id, "content": content});
    if with_status && answer.is_error {
        result["status"] = "error".into();
    }
    json!({"toolResult": result})
}

fn tool(tool: &ToolDescription) -> Value {
    let description = if tool.description.is_empty() { &tool.name } else { &tool.description };
    json!({"toolSpec": {"name": tool.name, "description": description, "inputSchema": {"json": *tool.parameters}}})
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
#[serde(rename_all = "camelCase")]
struct BlockStop {
    content_block_index: u64,
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
    usage: Option<Value>,
}

/// Errors: the event does not belong to the protocol, or reports an error.
pub(super) fn read(event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    if event.failed {
        let payload = serde_json::from_slice(&event.data).unwrap_or_default();
        return Err(Reported::read(&payload).also_named(&event.name).in_answer());
    }
    match event.name.as_str() {
        "contentBlockStart" => {
            let BlockStart { content_block_index, start } = parsed(event)?;
            if let Some(ToolUse { tool_use_id, name }) = start.and_then(|start| start.tool_use) {
                let (place, id, tool) = (content_block_index, Some(tool_use_id), Some(name));
                turn.call(CallFragment { place, id, tool, ..CallFragment::default() })?;
            }
        }
        "contentBlockDelta" => handle(parsed(event)?, turn)?,
        "contentBlockStop" => turn.end_block(parsed::<BlockStop>(event)?.content_block_index),
        "messageStop" => turn.stop(match parsed::<Stop>(event)?.stop_reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
            Some("guardrail_intervened" | "content_filtered") => StopReason::Refusal,
            // The model wrote something that the service could not read: the same request may succeed.
            Some(reason @ ("malformed_model_output" | "malformed_tool_use")) => {
                return Err(ModelError::Unavailable(format!("it ended its answer with {reason:?}")));
            }
            _ => StopReason::Stop,
        }),
        // The usage arrives after the stop, as the last event.
        "metadata" => {
            count(parsed::<Metadata>(event)?.usage.as_ref(), turn);
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
        turn.call(CallFragment { place, arguments: input, ..CallFragment::default() })?;
    }
    if let Some(Reasoning { text, signature, redacted_content }) = delta.reasoning_content {
        turn.thinking(place, text.unwrap_or_default())?;
        turn.signature(place, signature.as_deref().unwrap_or_default())?;
        turn.redacted(place, redacted_content.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

/// The tokens of the cache are not included in the input tokens.
fn count(usage: Option<&Value>, turn: &mut TurnAssembler) {
    let Some(usage) = usage else { return };
    let read = lenient::tokens(usage.get("cacheReadInputTokens"), turn);
    let written = lenient::tokens(usage.get("cacheWriteInputTokens"), turn);
    let input = lenient::tokens(usage.get("inputTokens"), turn);
    let output = lenient::tokens(usage.get("outputTokens"), turn);
    let prompt = input.map(|tokens| [read, written].into_iter().flatten().fold(tokens, u64::saturating_add));
    turn.used(prompt, output);
    turn.cached(read, written);
}

fn parsed<T: DeserializeOwned>(event: &Event) -> Result<T, ModelError> {
    serde_json::from_slice(&event.data).map_err(|_| ModelError::foreign())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_call_is_marked_for_the_models_that_know_it() {
        let failed = ToolMessage { is_error: true, text: "Error: no".into(), ..ToolMessage::default() };
        let messages = vec![Message::Tool(failed), Message::Tool(ToolMessage::default())];
        let request = ModelRequest { messages, ..ModelRequest::default() };
        for (model, expected) in [
            ("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", json!("error")),
            ("amazon.nova-pro-v1:0", json!("error")),
            ("meta.llama3-1-70b-instruct-v1:0", Value::Null),
        ] {
            let body = body(model, &request);
            let content = &body["messages"][0]["content"];
            assert_eq!(content[0]["toolResult"]["status"], expected, "{model}");
            assert_eq!(content[1]["toolResult"].get("status"), None, "{model}");
        }
    }
}
