//! Reads the events of an answer, also from servers that keep to the protocol only in part.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::message::Extras;
use crate::models::remote::{CallFragment, Event, Reported, TurnAssembler};
use crate::models::{ModelError, StopReason};

/// The last event of an answer.
const DONE: &[u8] = b"[DONE]";

/// The field in which Gemini's API puts the data that it requires back with a call
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures#openai>).
const EXTRA_CONTENT: &str = "extra_content";

/// One event of an answer, or a whole answer from a server that does not stream. Other fields are ignored.
#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    /// Some servers send a whole message.
    #[serde(alias = "message")]
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

/// Reasoning has two names, and some servers send both of them with the same text.
#[derive(Deserialize)]
struct Delta {
    /// A text, or a list of parts.
    content: Option<Value>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    /// The same in blocks, which a router requires back (<https://openrouter.ai/docs/use-cases/reasoning-tokens>).
    reasoning_details: Option<Vec<Value>>,
    tool_calls: Option<Vec<Fragment>>,
    /// The form before `tool_calls`.
    function_call: Option<Function>,
}

#[derive(Deserialize)]
struct Fragment {
    index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
    extra_content: Option<Value>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    /// JSON in a text; some servers send an object.
    arguments: Option<Value>,
}

/// A part of a content list. A thought holds a list of parts itself.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text {
        text: String,
    },
    Thinking {
        thinking: Vec<Part>,
    },
    #[serde(other)]
    Other,
}

/// Cached tokens are included in the prompt's.
#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
    /// DeepSeek's name of the cached tokens (<https://api-docs.deepseek.com/guides/kv_cache>).
    prompt_cache_hit_tokens: Option<u64>,
    /// Kimi's.
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    /// `OpenRouter` tells it of Anthropic's models.
    cache_write_tokens: Option<u64>,
}

/// # Errors
/// The event does not belong to the protocol, or reports an error.
pub(in crate::models) fn read(event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    if event.data == DONE {
        turn.end();
        return Ok(());
    }
    let chunk: Chunk = serde_json::from_slice(&event.data).map_err(|_| ModelError::foreign())?;
    if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
        return Err(Reported::read(&json!({"error": error})).in_answer());
    }
    for Choice { delta, finish_reason } in chunk.choices.unwrap_or_default().into_iter().take(1) {
        if let Some(delta) = delta {
            handle(delta, turn)?;
        }
        if let Some(reason) = finish_reason.filter(|reason| !reason.is_empty()) {
            finish(&reason, turn)?;
        }
    }
    if let Some(usage) = chunk.usage {
        turn.used(usage.prompt_tokens, usage.completion_tokens);
        turn.reasoned(usage.completion_tokens_details.and_then(|details| details.reasoning_tokens));
        let details = usage.prompt_tokens_details;
        let cached = details.as_ref().and_then(|details| details.cached_tokens);
        let cached = cached.or(usage.prompt_cache_hit_tokens).or(usage.cached_tokens);
        turn.cached(cached, details.and_then(|details| details.cache_write_tokens));
    }
    Ok(())
}

/// Besides OpenAI's own reasons the reasons of other vendors: a full context is `model_length` at Mistral and
/// `model_context_window_exceeded` at GLM; DeepSeek, GLM, Mistral and routers name failures; Gemini adds a detail after
/// a colon.
fn finish(reason: &str, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let name = reason.split_once(':').map_or(reason, |(name, _)| name);
    match name {
        "length" | "model_length" | "max_tokens" | "model_context_window_exceeded" => turn.stop(StopReason::Length),
        "content_filter" | "sensitive" => turn.stop(StopReason::Refusal),
        "error" | "insufficient_system_resource" | "network_error" => {
            return Err(ModelError::Unavailable(format!("it ended its answer with {name:?}")));
        }
        // Gemini could not read the call that its model wrote.
        "function_call_filter" => {
            let shown: String = reason.chars().take(100).collect();
            return Err(ModelError::Garbled(format!("it ended with {shown:?}")));
        }
        _ => turn.stop(StopReason::Stop),
    }
    Ok(())
}

fn handle(delta: Delta, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    match (filled(delta.reasoning_content), filled(delta.reasoning)) {
        (Some(text), _) => turn.reasoning("reasoning_content", text)?,
        (None, Some(text)) => turn.reasoning("reasoning", text)?,
        (None, None) => {}
    }
    for block in delta.reasoning_details.unwrap_or_default() {
        turn.detail(block)?;
    }
    match delta.content {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => {
            if !text.is_empty() {
                turn.end_thought(0);
            }
            turn.text(text)?;
        }
        Some(parts) => {
            let parts: Vec<Part> = serde_json::from_value(parts).map_err(|_| ModelError::foreign())?;
            parts.into_iter().try_for_each(|part| handle_part(part, turn))?;
        }
    }
    if let Some(refusal) = delta.refusal {
        turn.text(refusal)?;
        turn.stop(StopReason::Refusal);
    }
    if let Some(function) = delta.function_call {
        turn.call(fragment_of(None, Some(function)))?;
    }
    for Fragment { index, id, function, extra_content } in delta.tool_calls.unwrap_or_default() {
        let extras: Extras = extra_content.into_iter().map(|extra| (EXTRA_CONTENT.to_owned(), extra)).collect();
        turn.call(CallFragment { place: index.unwrap_or_default(), extras, ..fragment_of(id, function) })?;
    }
    Ok(())
}

fn handle_part(part: Part, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    match part {
        Part::Text { text } => turn.text(text),
        Part::Thinking { thinking } => {
            let text = thinking.into_iter().filter_map(|part| match part {
                Part::Text { text } => Some(text),
                Part::Thinking { .. } | Part::Other => None,
            });
            turn.thinking(0, text.collect())
        }
        Part::Other => Ok(()),
    }
}

fn fragment_of(id: Option<String>, function: Option<Function>) -> CallFragment {
    let (tool, arguments) = function.map(|function| (function.name, function.arguments)).unwrap_or_default();
    let arguments = match arguments {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    CallFragment { id, tool, arguments, ..CallFragment::default() }
}
