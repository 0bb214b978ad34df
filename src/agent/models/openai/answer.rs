//! Reads the events of an answer, also from servers that keep to the protocol only in part: each member by itself, so that
//! an odd one fails no answer.

use serde_json::{Map, Value, json};

use crate::message::Extras;
use crate::models::remote::lenient::{self, Oddity};
use crate::models::remote::{CallFragment, Event, Reported, TurnAssembler};
use crate::models::{ModelError, StopReason};

/// The last event of an answer.
const DONE: &[u8] = b"[DONE]";

/// The field in which Gemini's API puts the data that it requires back with a call
/// (<https://ai.google.dev/gemini-api/docs/thought-signatures#openai>).
const EXTRA_CONTENT: &str = "extra_content";

/// The names of the reasoning. Some servers send both of them with the same text.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

/// One event of an answer, or a whole answer from a server that does not stream. Unknown fields are ignored.
/// Errors: the event does not belong to the protocol, or reports an error.
pub(in crate::models) fn read(event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    if event.data.trim_ascii() == DONE {
        if event.data != DONE {
            turn.odd(Oddity::End);
        }
        turn.end();
        return Ok(());
    }
    let mut chunk = lenient::object(&event.data, turn)?;
    fail(chunk.remove("error"), turn)?;
    if event.name == "error" || chunk.get("object").is_some_and(|kind| *kind == "error") {
        turn.odd(Oddity::Error);
        return Err(Reported::read(&Value::Object(chunk)).in_answer());
    }
    let choice = match chunk.remove("choices") {
        None | Some(Value::Null) => None,
        Some(Value::Array(choices)) => choices.into_iter().next(),
        Some(choice @ Value::Object(_)) => {
            turn.odd(Oddity::Message);
            Some(choice)
        }
        Some(_) => return Err(ModelError::foreign()),
    };
    // Kimi's API has the usage in the choice.
    let in_choice = choice.map(|choice| handle_choice(choice, turn)).transpose()?.flatten();
    // Groq's has the usage, and the error that cut an answer short, in a member of its own.
    let mut of_groq = fields(chunk.remove("x_groq")).unwrap_or_default();
    for usage in [in_choice, of_groq.remove("usage"), chunk.remove("usage")].into_iter().flatten() {
        count(&usage, turn);
    }
    fail(of_groq.remove("error"), turn)
}

/// Errors: it is an error, and not an empty one.
fn fail(error: Option<Value>, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    match error {
        None | Some(Value::Null) => Ok(()),
        Some(error) if is_empty(&error) => {
            turn.odd(Oddity::Error);
            Ok(())
        }
        Some(error) => Err(Reported::read(&json!({"error": error})).in_answer()),
    }
}

/// Reads a choice, and returns its usage.
fn handle_choice(choice: Value, turn: &mut TurnAssembler) -> Result<Option<Value>, ModelError> {
    let Value::Object(mut choice) = choice else {
        turn.odd(Oddity::Message);
        return Ok(None);
    };
    // Some servers send a whole message in place of the fragment, others beside it.
    let delta = match (fields(choice.remove("delta")), fields(choice.remove("message"))) {
        (Some(delta), Some(message)) => {
            turn.odd(Oddity::Message);
            if delta.is_empty() && turn.is_silent() { message } else { delta }
        }
        (Some(fields), None) | (None, Some(fields)) => fields,
        (None, None) => Map::new(),
    };
    handle(delta, turn)?;
    // `OpenRouter` has the error of a model's own provider here.
    fail(choice.remove("error"), turn)?;
    if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
        finish(reason, turn)?;
    }
    Ok(choice.remove("usage"))
}

/// Cached tokens are included in the prompt's.
fn count(usage: &Value, turn: &mut TurnAssembler) {
    if usage.is_null() {
        return;
    }
    if !usage.is_object() {
        turn.odd(Oddity::Usage);
    }
    let detail = |of: &str, name: &str| usage.get(of).and_then(|details| details.get(name));
    let prompt = lenient::tokens(usage.get("prompt_tokens"), turn);
    let completion = lenient::tokens(usage.get("completion_tokens"), turn);
    let total = lenient::tokens(usage.get("total_tokens"), turn);
    let reasoning = lenient::tokens(detail("completion_tokens_details", "reasoning_tokens"), turn);
    turn.used(prompt, with_reasoning(prompt, completion, total, reasoning));
    turn.reasoned(reasoning);
    let cached = detail("prompt_tokens_details", "cached_tokens")
        // DeepSeek's name of the cached tokens (<https://api-docs.deepseek.com/guides/kv_cache>), and Kimi's.
        .or_else(|| usage.get("prompt_cache_hit_tokens"))
        .or_else(|| usage.get("cached_tokens"));
    let cached = lenient::tokens(cached, turn);
    // `OpenRouter` tells it of Anthropic's models.
    let written = lenient::tokens(detail("prompt_tokens_details", "cache_write_tokens"), turn);
    turn.cached(cached, written);
}

/// The tokens that the provider generated. xAI and Gemini count the reasoning beside the completion: it is in the total,
/// or it is more than the completion.
fn with_reasoning(
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    reasoning: Option<u64>,
) -> Option<u64> {
    let of_total = prompt.zip(total).map(|(prompt, total)| total.saturating_sub(prompt));
    let Some(completion) = completion else { return of_total };
    let beside = reasoning.filter(|reasoning| *reasoning > completion);
    let generated = of_total.unwrap_or_else(|| completion.saturating_add(beside.unwrap_or_default()));
    Some(generated.max(completion))
}

/// Besides OpenAI's own reasons the reasons of other vendors: a full context is `model_length` at Mistral and
/// `model_context_window_exceeded` at GLM; DeepSeek, GLM, Mistral and routers name failures; Gemini adds a detail after
/// a colon. Gateways to Gemini and Cohere write theirs in capitals.
fn finish(reason: &str, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let name = reason.split_once(':').map_or(reason, |(name, _)| name).to_ascii_lowercase();
    match name.as_str() {
        "length" | "model_length" | "max_tokens" | "model_context_window_exceeded" => turn.stop(StopReason::Length),
        "content_filter" | "sensitive" | "safety" | "recitation" => turn.stop(StopReason::Refusal),
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

fn handle(mut delta: Map<String, Value>, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    for field in REASONING {
        let text = delta.get(field).map(|value| lenient::text(value, Oddity::Reasoning, turn)).unwrap_or_default();
        if !text.is_empty() {
            turn.reasoning(field, text)?;
            break;
        }
    }
    // The reasoning in blocks, which a router requires back (<https://openrouter.ai/docs/use-cases/reasoning-tokens>).
    for block in list(delta.remove("reasoning_details"), Oddity::Reasoning, turn) {
        turn.detail(block)?;
    }
    match delta.remove("content") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => {
            if !text.is_empty() {
                turn.end_thought(0);
            }
            turn.tagged_text(&text)?;
        }
        parts => list(parts, Oddity::Text, turn).into_iter().try_for_each(|part| handle_part(&part, turn))?,
    }
    let refusal = delta.get("refusal").map(|value| lenient::text(value, Oddity::Text, turn)).unwrap_or_default();
    if !refusal.is_empty() {
        turn.text(refusal)?;
        turn.stop(StopReason::Refusal);
    }
    // The form before `tool_calls`.
    if let Some(function) = fields(delta.remove("function_call")) {
        turn.call(fragment_of(String::new(), function))?;
    }
    list(delta.remove("tool_calls"), Oddity::Call, turn).into_iter().try_for_each(|call| handle_call(call, turn))
}

/// A part of a content list: a text, or a thought, which is a text or holds a list of parts itself.
fn handle_part(part: &Value, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let kind = part.get("type").and_then(Value::as_str);
    match (part, kind) {
        (Value::String(text), _) => {
            turn.odd(Oddity::Text);
            turn.text(text.clone())
        }
        (_, Some("thinking")) => {
            let thought = part.get("thinking").unwrap_or(&Value::Null);
            let thought = lenient::text(thought, Oddity::Reasoning, turn);
            turn.thinking(0, thought)
        }
        (_, Some("text" | "output_text") | None) => {
            turn.text(part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned())
        }
        _ => Ok(()),
    }
}

fn handle_call(fragment: Value, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let Value::Object(mut fragment) = fragment else {
        turn.odd(Oddity::Call);
        return Ok(());
    };
    let place = lenient::index(fragment.get("index"), turn);
    let id = match fragment.remove("id") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(id)) => id,
        Some(other) => {
            turn.odd(Oddity::Call);
            other.to_string()
        }
    };
    let extra = fragment.remove(EXTRA_CONTENT).filter(|extra| !extra.is_null());
    let extras: Extras = extra.into_iter().map(|extra| (EXTRA_CONTENT.to_owned(), extra)).collect();
    let function = fragment.remove("function");
    if function.as_ref().is_some_and(|function| !function.is_object()) {
        turn.odd(Oddity::Call);
    }
    // Some servers leave out the level of the function.
    let function = fields(function).unwrap_or(fragment);
    turn.call(CallFragment { place, extras, ..fragment_of(id, function) })
}

fn fragment_of(id: String, mut function: Map<String, Value>) -> CallFragment {
    let tool = function.remove("name").and_then(|name| name.as_str().map(str::to_owned));
    // JSON in a text; some servers send an object.
    let arguments = match function.remove("arguments") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    CallFragment { id: Some(id), tool, arguments, ..CallFragment::default() }
}

fn fields(value: Option<Value>) -> Option<Map<String, Value>> {
    match value {
        Some(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

/// The items of a list. Anything else is an oddity, and the only item.
fn list(value: Option<Value>, kind: Oddity, turn: &mut TurnAssembler) -> Vec<Value> {
    match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(other) => {
            turn.odd(kind);
            vec![other]
        }
    }
}

/// Some servers send an error in each event, which is empty where there is none.
fn is_empty(error: &Value) -> bool {
    match error {
        Value::String(text) => text.trim().is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(is_error) => !is_error,
        Value::Null => true,
        Value::Number(code) => code.as_u64() == Some(0),
    }
}
