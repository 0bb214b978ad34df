//! Anthropic's Messages (<https://docs.anthropic.com/en/api/messages>, streamed as in
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>).

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::remote::lenient::{self, Oddity};
use super::remote::{CallFragment, Event, MessageMerger, Reported, TurnAssembler};
use super::{ModelError, ModelRequest, StopReason, claude, tool_search};
use crate::message::{AssistantTurn, Image, Message, Thought, ToolMessage, TurnPart, UNSIGNED_THINKING, UserPart};
use crate::options::{ModelOptions, ToolChoice};
use crate::toolbox::ToolDescription;
use crate::user_file::{PDF, UserFile};
use sekisho_config::Thinking;

/// The value of the header `anthropic-version`.
pub(super) const VERSION: &str = "2023-06-01";

/// The value of the header `anthropic-beta` for models that think between their calls, too
/// (<https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking#interleaved-thinking>).
pub(super) const THINKING_BETWEEN_CALLS: &str = "interleaved-thinking-2025-05-14";

pub(super) fn body(model: &str, request: &ModelRequest) -> Value {
    let mut body = json!({
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": messages(request),
        "stream": true,
    });
    let system = request.system_prompts();
    if !system.is_empty() {
        body["system"] = system.join("\n\n").into();
    }
    let options = &request.options;
    let is_adaptive = claude::is_adaptive(model);
    let thinking = claude::thinking(request, is_adaptive);
    let asked = [
        // Thinking requires the default temperature, and hardly restricts `top_p`.
        ("temperature", options.temperature.filter(|_| thinking.is_none() && !is_adaptive).map(Value::from)),
        ("top_p", options.top_p.filter(|_| !is_adaptive).map(Value::from)),
        ("stop_sequences", (!options.stop.is_empty()).then(|| json!(options.stop))),
        ("thinking", thinking.map(|thinking| thinking_field(thinking, is_adaptive))),
        ("output_config", thinking.filter(|_| is_adaptive).map(|thinking| json!({"effort": claude::effort(thinking)}))),
    ];
    let with_tools = [("tools", Some(tools(&request.tools))), ("tool_choice", tool_choice(options))];
    let with_tools = with_tools.into_iter().filter(|_| !request.tools.is_empty());
    for (name, value) in asked.into_iter().chain(with_tools) {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    if request.is_continued() {
        mark_for_cache(&mut body);
    }
    body
}

/// Models of the newer generation leave their thoughts out unless they are asked for.
pub(super) fn thinking_field(thinking: Thinking, is_adaptive: bool) -> Value {
    match is_adaptive {
        true => json!({"type": "adaptive", "display": "summarized"}),
        false => json!({"type": "enabled", "budget_tokens": thinking.tokens()}),
    }
}

/// Marks the beginning of the conversation's next request, so that the provider reads it from its cache: the tools, the
/// system prompt, and the messages (<https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>). The last
/// mark but one is where the request before ended.
fn mark_for_cache(body: &mut Value) {
    const MARK: &str = "cache_control";
    let mark = || json!({"type": "ephemeral"});
    // An index would add the member as null where there are no tools.
    let tools = body.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten();
    // Deferred tools are no part of the beginning, and are refused with a mark.
    if let Some(tool) = tools.rev().find(|tool| tool.get(tool_search::DEFERRED).is_none()) {
        tool[MARK] = mark();
    }
    if let Some(system) = body["system"].as_str() {
        body["system"] = json!([{"type": "text", "text": system, MARK: mark()}]);
    }
    let messages = body.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten().rev();
    for message in messages.filter(|message| message["role"] == "user").take(2) {
        if let Some(part) = message.get_mut("content").and_then(Value::as_array_mut).and_then(|parts| parts.last_mut())
        {
            part[MARK] = mark();
        }
    }
}

fn tool_choice(options: &ModelOptions) -> Option<Value> {
    let is_single = options.parallel_tool_calls == Some(false);
    let mut choice = match &options.tool_choice {
        ToolChoice::Auto if !is_single => return None,
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::None => return Some(json!({"type": "none"})),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    };
    if is_single {
        choice["disable_parallel_tool_use"] = true.into();
    }
    Some(choice)
}

/// All messages but system prompts; consecutive messages of one role become one.
fn messages(request: &ModelRequest) -> Value {
    let mut messages = MessageMerger::default();
    for message in &request.messages {
        match message {
            Message::System(_) => {}
            Message::User(message) => messages.user(message.parts.iter().flat_map(user_parts)),
            Message::Assistant(turn) => messages.assistant(assistant_parts(turn, &request.tools)),
            Message::Tool(answer) => messages.user([answered(answer)]),
        }
    }
    messages.into_messages()
}

fn assistant_parts(turn: &AssistantTurn, tools: &[ToolDescription]) -> impl Iterator<Item = Value> {
    turn.parts.iter().filter_map(move |part| match part {
        // A text without a visible character is refused.
        TurnPart::Text(text) => (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text})),
        TurnPart::Thought(Thought::Signed { text, signature }) => {
            Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
        }
        TurnPart::Thought(Thought::Redacted(data)) => Some(json!({"type": "redacted_thinking", "data": data})),
        // Of a compatible server, which has no signatures.
        TurnPart::Thought(Thought::Unsigned { text, field }) if *field == UNSIGNED_THINKING => {
            Some(json!({"type": "thinking", "thinking": text, "signature": ""}))
        }
        TurnPart::Thought(Thought::Unsigned { .. }) => None,
        TurnPart::Thought(Thought::Details(blocks)) => tool_search::block_of_anthropic(blocks, turn, tools),
        TurnPart::Call(call) => {
            let input = call.parsed_arguments();
            Some(json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": input}))
        }
    })
}

fn user_parts(part: &UserPart) -> Vec<Value> {
    match part {
        UserPart::Text(text) => vec![json!({"type": "text", "text": text})],
        UserPart::Image(image) => vec![image_part(image)],
        UserPart::File(file) => {
            let description = json!({"type": "text", "text": file.description()});
            file.document().map(|data| document_part(file, data)).into_iter().chain([description]).collect()
        }
    }
}

/// <https://docs.anthropic.com/en/docs/build-with-claude/pdf-support>
fn document_part(file: &UserFile, data: &str) -> Value {
    let source = json!({"type": "base64", "media_type": PDF, "data": data});
    json!({"type": "document", "source": source, "title": file.name})
}

fn image_part(image: &Image) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.base64}})
}

fn answered(answer: &ToolMessage) -> Value {
    let content: Value = if answer.images.is_empty() {
        answer.text.as_str().into()
    } else {
        let text = Some(&answer.text).filter(|text| !text.trim().is_empty());
        let text = text.map(|text| json!({"type": "text", "text": text}));
        text.into_iter().chain(answer.images.iter().map(image_part)).collect()
    };
    let mut result = json!({"type": "tool_result", "tool_use_id": answer.call_id, "content": content});
    if answer.is_error {
        result["is_error"] = true.into();
    }
    result
}

/// The tool that searches the others comes first, if one of them is deferred.
fn tools(tools: &[ToolDescription]) -> Value {
    let search = tool_search::is_used(tools).then(tool_search::tool_of_anthropic);
    search.into_iter().chain(tools.iter().map(tool)).collect()
}

fn tool(tool: &ToolDescription) -> Value {
    let mut sent = json!({"name": tool.name, "description": tool.description, "input_schema": *tool.parameters});
    if tool.is_deferred {
        sent[tool_search::DEFERRED] = true.into();
    }
    sent
}

/// One event of an answer. Other types are ignored, as the protocol requires.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum StreamEvent {
    /// A whole answer, from a server that does not stream.
    Message {
        #[serde(default)]
        content: Vec<Block>,
        stop_reason: Option<String>,
        usage: Option<Value>,
    },
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: Value,
        content_block: Block,
    },
    ContentBlockDelta {
        index: Value,
        delta: Increment,
    },
    ContentBlockStop {
        index: Value,
    },
    MessageDelta {
        delta: End,
        usage: Option<Value>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    usage: Option<Value>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        signature: Option<String>,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        /// Empty if it arrives in fragments.
        #[serde(default)]
        input: Value,
    },
    /// A call that the provider answers itself.
    ServerToolUse(Map<String, Value>),
    ToolSearchToolResult(Map<String, Value>),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Increment {
    TextDelta {
        text: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct End {
    stop_reason: Option<String>,
}

/// # Errors
/// The event does not belong to the protocol, or reports an error.
pub(super) fn read(event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let fields = lenient::object(&event.data, turn)?;
    if !fields.contains_key("type") && fields.contains_key("error") {
        turn.odd(Oddity::Error);
        return Err(Reported::read(&Value::Object(fields)).in_answer());
    }
    match serde_json::from_value(Value::Object(fields)).map_err(|_| ModelError::foreign())? {
        StreamEvent::Message { content, stop_reason, usage } => {
            turn.odd(Oddity::Message);
            for (index, block) in (0_u64..).zip(content) {
                begin(index, block, turn)?;
                turn.end_block(index);
            }
            count(usage.as_ref(), turn);
            stop(stop_reason.as_deref().unwrap_or("end_turn"), turn);
            turn.end();
        }
        StreamEvent::MessageStart { message } => count(message.usage.as_ref(), turn),
        StreamEvent::ContentBlockStart { index, content_block } => {
            let index = lenient::index(Some(&index), turn);
            begin(index, content_block, turn)?;
        }
        StreamEvent::ContentBlockDelta { index, delta } => {
            let index = lenient::index(Some(&index), turn);
            extend(index, delta, turn)?;
        }
        StreamEvent::ContentBlockStop { index } => {
            let index = lenient::index(Some(&index), turn);
            turn.end_block(index);
        }
        StreamEvent::MessageDelta { delta, usage } => {
            count(usage.as_ref(), turn);
            if let Some(reason) = delta.stop_reason {
                stop(&reason, turn);
            }
        }
        StreamEvent::MessageStop => turn.end(),
        StreamEvent::Error { error } => return Err(Reported::read(&json!({"error": error})).in_answer()),
        StreamEvent::Other => {}
    }
    Ok(())
}

fn stop(reason: &str, turn: &mut TurnAssembler) {
    turn.stop(match reason {
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Pause,
        _ => StopReason::Stop,
    });
}

fn extend(index: u64, delta: Increment, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    match delta {
        Increment::TextDelta { text } => turn.text(text),
        Increment::ThinkingDelta { thinking } => turn.thinking(index, thinking),
        Increment::SignatureDelta { signature } => turn.signature(index, &signature),
        // Of a tool that runs at the provider.
        Increment::InputJsonDelta { .. } if turn.is_skipped(index) => Ok(()),
        Increment::InputJsonDelta { partial_json } if turn.has_block(index) => {
            turn.input_of_block(index, &partial_json)
        }
        Increment::InputJsonDelta { partial_json } => {
            turn.call(CallFragment { place: index, arguments: partial_json, ..CallFragment::default() })
        }
        Increment::Other => Ok(()),
    }
}

fn begin(index: u64, block: Block, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    match block {
        Block::Text { text } => turn.text(text),
        Block::Thinking { thinking, signature } => {
            turn.thinking(index, thinking)?;
            turn.signature(index, &signature.unwrap_or_default())
        }
        Block::RedactedThinking { data } => turn.redacted(index, &data),
        Block::ToolUse { id, name, input } => {
            let whole = input.as_object().filter(|input| !input.is_empty());
            let arguments = whole.map(|_| input.to_string()).unwrap_or_default();
            turn.call(CallFragment {
                place: index,
                id: Some(id),
                tool: Some(name),
                arguments,
                ..CallFragment::default()
            })
        }
        Block::ServerToolUse(block) if is_search(&block) => turn.begin_block(index, typed("server_tool_use", block)),
        Block::ToolSearchToolResult(block) => turn.whole_thought(index, typed("tool_search_tool_result", block)),
        Block::ServerToolUse(_) | Block::Other => {
            turn.skip(index);
            Ok(())
        }
    }
}

fn is_search(block: &Map<String, Value>) -> bool {
    block.get("name").and_then(Value::as_str).is_some_and(tool_search::is_of_search)
}

/// A block with its type, as it goes back.
fn typed(kind: &str, mut block: Map<String, Value>) -> Value {
    block.insert("type".to_owned(), kind.into());
    Value::Object(block)
}

/// The tokens of the cache are not included in the input tokens.
fn count(usage: Option<&Value>, turn: &mut TurnAssembler) {
    let Some(usage) = usage.filter(|usage| !usage.is_null()) else { return };
    if !usage.is_object() {
        turn.odd(Oddity::Usage);
    }
    let written = lenient::tokens(usage.get("cache_creation_input_tokens"), turn);
    let read = lenient::tokens(usage.get("cache_read_input_tokens"), turn);
    let input = lenient::tokens(usage.get("input_tokens"), turn);
    let output = lenient::tokens(usage.get("output_tokens"), turn);
    let prompt = input.map(|tokens| [written, read].into_iter().flatten().fold(tokens, u64::saturating_add));
    turn.used(prompt, output);
    turn.cached(read, written);
}
