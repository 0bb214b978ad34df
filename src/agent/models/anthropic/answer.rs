//! Reads the events of a streamed answer (<https://docs.anthropic.com/en/docs/build-with-claude/streaming>).

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::models::remote::lenient::{self, Oddity};
use crate::models::remote::{CallFragment, Event, Reported, TurnAssembler};
use crate::models::{ModelError, StopReason, tool_search};

/// One event of an answer. Other types are ignored, as the protocol requires. Servers with Anthropic's API leave members out,
/// or send null in their place.
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
        message: Option<Start>,
    },
    ContentBlockStart {
        index: Option<Value>,
        content_block: Block,
    },
    ContentBlockDelta {
        index: Option<Value>,
        delta: Increment,
    },
    ContentBlockStop {
        index: Option<Value>,
    },
    MessageDelta {
        delta: Option<End>,
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
        text: Option<String>,
    },
    Thinking {
        thinking: Option<String>,
        signature: Option<String>,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: Option<String>,
        name: String,
        /// Empty if it arrives in fragments. Some servers send the whole object here, also as a text.
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
        text: Option<String>,
    },
    ThinkingDelta {
        thinking: Option<String>,
    },
    SignatureDelta {
        signature: Option<String>,
    },
    InputJsonDelta {
        partial_json: Option<String>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct End {
    stop_reason: Option<String>,
    stop_details: Option<Value>,
}

/// Errors: the event does not belong to the protocol, or reports an error.
pub(in crate::models) fn read(event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    // Of gateways that have OpenAI's API, too.
    if event.data.trim_ascii() == b"[DONE]" {
        turn.odd(Oddity::End);
        turn.end();
        return Ok(());
    }
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
        StreamEvent::MessageStart { message } => count(message.and_then(|message| message.usage).as_ref(), turn),
        StreamEvent::ContentBlockStart { index, content_block } => {
            let index = lenient::index(index.as_ref(), turn);
            begin(index, content_block, turn)?;
        }
        StreamEvent::ContentBlockDelta { index, delta } => {
            let index = lenient::index(index.as_ref(), turn);
            extend(index, delta, turn)?;
        }
        StreamEvent::ContentBlockStop { index } => {
            let index = lenient::index(index.as_ref(), turn);
            turn.end_block(index);
        }
        StreamEvent::MessageDelta { delta, usage } => {
            count(usage.as_ref(), turn);
            let Some(End { stop_reason: Some(reason), stop_details }) = delta else { return Ok(()) };
            // A refusal without a word would not say why.
            let explanation = stop_details.as_ref().and_then(|details| details.get("explanation")?.as_str());
            if let Some(explanation) = explanation.filter(|_| reason == "refusal" && turn.is_silent()) {
                turn.text(explanation.to_owned())?;
            }
            stop(&reason, turn);
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
        Increment::TextDelta { text } => turn.text(text.unwrap_or_default()),
        Increment::ThinkingDelta { thinking } => turn.thinking(index, thinking.unwrap_or_default()),
        Increment::SignatureDelta { signature } => turn.signature(index, &signature.unwrap_or_default()),
        // Of a tool that runs at the provider.
        Increment::InputJsonDelta { .. } if turn.is_skipped(index) => Ok(()),
        Increment::InputJsonDelta { partial_json } if turn.has_block(index) => {
            turn.input_of_block(index, &partial_json.unwrap_or_default())
        }
        Increment::InputJsonDelta { partial_json } => {
            let arguments = partial_json.unwrap_or_default();
            turn.call(CallFragment { place: index, arguments, ..CallFragment::default() })
        }
        Increment::Other => Ok(()),
    }
}

fn begin(index: u64, block: Block, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    match block {
        Block::Text { text } => turn.text(text.unwrap_or_default()),
        Block::Thinking { thinking, signature } => {
            turn.thinking(index, thinking.unwrap_or_default())?;
            turn.signature(index, &signature.unwrap_or_default())
        }
        Block::RedactedThinking { data } => turn.redacted(index, &data),
        Block::ToolUse { id, name, input } => {
            let arguments = match input {
                Value::Object(input) if !input.is_empty() => Value::Object(input).to_string(),
                Value::String(text) => text,
                _ => String::new(),
            };
            turn.call(CallFragment { place: index, id, tool: Some(name), arguments, ..CallFragment::default() })
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
