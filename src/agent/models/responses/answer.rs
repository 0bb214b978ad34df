//! Reads the events of a response
//! (<https://platform.openai.com/docs/api-reference/responses-streaming>).

use serde_json::{Map, Value, json};

use super::NAMESPACE;
use crate::message::Extras;
use crate::models::remote::lenient::{self, Oddity};
use crate::models::remote::{CallFragment, Event, Reported, TurnAssembler};
use crate::models::{ModelError, StopReason, tool_search};

/// Errors: the event does not belong to the protocol, or reports an error.
pub(in crate::models) fn read(event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    if event.data.trim_ascii() == b"[DONE]" {
        turn.end();
        return Ok(());
    }
    let mut fields = lenient::object(&event.data, turn)?;
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let place = lenient::index(fields.get("output_index"), turn);
    let mut delta = || match fields.remove("delta") {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    match kind.as_str() {
        "response.output_text.delta" => turn.text(delta()),
        "response.refusal.delta" => {
            turn.stop(StopReason::Refusal);
            turn.text(delta())
        }
        // Some servers send a text, or arguments, only as a whole.
        "response.output_text.done" if !turn.has_text() => match fields.remove("text") {
            Some(Value::String(text)) => turn.text(text),
            _ => Ok(()),
        },
        "response.function_call_arguments.done" if turn.lacks_arguments(place) => {
            let arguments = arguments_of(&fields);
            turn.call(CallFragment { place, arguments, ..CallFragment::default() })
        }
        "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => turn.thinking(place, delta()),
        "response.function_call_arguments.delta" => {
            turn.call(CallFragment { place, arguments: delta(), ..CallFragment::default() })
        }
        "response.output_item.added" => match fields.remove("item") {
            Some(Value::Object(item)) if is(&item, "function_call") => begin_call(place, &item, turn),
            _ => Ok(()),
        },
        "response.output_item.done" => match fields.remove("item") {
            Some(Value::Object(item)) => finish_item(place, item, turn),
            _ => Ok(()),
        },
        "response.completed" | "response.done" | "response.incomplete" | "response.failed" => {
            match fields.remove("response") {
                // Some servers send the output only here.
                Some(Value::Object(response)) if turn.is_silent() && has_output(&response) => whole(response, turn),
                Some(Value::Object(response)) => finish(&response, turn),
                _ => Err(ModelError::foreign()),
            }
        }
        "error" => Err(Reported::read(&Value::Object(fields)).in_answer()),
        // A whole response, from a server that does not stream.
        _ if fields.get("output").is_some_and(Value::is_array) => whole(fields, turn),
        _ if fields.get("error").is_some_and(|error| !error.is_null()) => {
            turn.odd(Oddity::Error);
            Err(Reported::read(&Value::Object(fields)).in_answer())
        }
        "" => Err(ModelError::foreign()),
        _ => Ok(()),
    }
}

fn whole(mut response: Map<String, Value>, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    turn.odd(Oddity::Message);
    let Some(Value::Array(output)) = response.remove("output") else { return Err(ModelError::foreign()) };
    for (place, item) in (0_u64..).zip(output) {
        if let Value::Object(item) = item {
            // The text of each message, not of the first one only.
            if is(&item, "message") {
                texts(&item).try_for_each(|text| turn.text(text))?;
            } else {
                finish_item(place, item, turn)?;
            }
        }
    }
    finish(&response, turn)
}

fn has_output(response: &Map<String, Value>) -> bool {
    response.get("output").and_then(Value::as_array).is_some_and(|output| !output.is_empty())
}

/// The id of a call, by which its result goes back.
fn id_of(item: &Map<String, Value>) -> Option<String> {
    ["call_id", "id"].iter().find_map(|name| item.get(*name)?.as_str().map(str::to_owned))
}

/// JSON in a text; some servers send an object.
fn arguments_of(fields: &Map<String, Value>) -> String {
    match fields.get("arguments") {
        Some(Value::String(text)) => text.clone(),
        Some(object @ Value::Object(_)) => object.to_string(),
        _ => String::new(),
    }
}

fn begin_call(place: u64, item: &Map<String, Value>, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let text = |name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
    let namespace = item.get(NAMESPACE).filter(|namespace| namespace.is_string());
    let extras: Extras = namespace.map(|namespace| (NAMESPACE.to_owned(), namespace.clone())).into_iter().collect();
    turn.call(CallFragment { place, id: id_of(item), tool: text("name"), arguments: arguments_of(item), extras })
}

/// An item is complete: it has all that its fragments had.
fn finish_item(place: u64, item: Map<String, Value>, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let kind = item.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind.as_deref() {
        Some("function_call") if !turn.has_arguments(place, &id_of(&item).unwrap_or_default()) => {
            begin_call(place, &item, turn)?;
        }
        Some("message") if !turn.has_text() => texts(&item).try_for_each(|text| turn.text(text))?,
        Some("reasoning") if item.get("encrypted_content").is_some_and(Value::is_string) => {
            turn.whole_thought(place, as_input(item))?;
        }
        Some(kind) if tool_search::is_of_search(kind) => {
            turn.whole_thought(place, tool_search::item_of_openai(item))?;
        }
        _ => {}
    }
    turn.end_block(place);
    Ok(())
}

/// A reasoning item as the provider takes it back: without members of answers.
fn as_input(mut item: Map<String, Value>) -> Value {
    item.retain(|name, value| {
        matches!(name.as_str(), "type" | "id" | "summary" | "encrypted_content") && !value.is_null()
    });
    if !item.contains_key("summary") {
        item.insert("summary".to_owned(), json!([]));
    }
    Value::Object(item)
}

/// The texts of a message.
fn texts(item: &Map<String, Value>) -> impl Iterator<Item = String> + use<> {
    let parts = item.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
    parts.into_iter().filter_map(|part| {
        let text = part.get("text").or_else(|| part.get("refusal"))?;
        text.as_str().map(str::to_owned)
    })
}

/// The end of the response: its usage, and why it ended.
fn finish(response: &Map<String, Value>, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    if let Some(usage) = response.get("usage") {
        count(usage, turn);
    }
    let error = response.get("error").filter(|error| !error.is_null());
    if let Some(error) = error {
        return Err(Reported::read(&json!({"error": error})).in_answer());
    }
    let reason = response.get("incomplete_details").and_then(|details| details.get("reason")).and_then(Value::as_str);
    match (response.get("status").and_then(Value::as_str), reason) {
        (Some("failed" | "cancelled"), _) => {
            return Err(ModelError::Unavailable("it ended its answer as failed".into()));
        }
        (_, Some("content_filter")) => turn.stop(StopReason::Refusal),
        (_, Some(_)) | (Some("incomplete"), None) => turn.stop(StopReason::Length),
        _ => turn.stop(StopReason::Stop),
    }
    turn.end();
    Ok(())
}

/// The output tokens include the reasoning.
fn count(usage: &Value, turn: &mut TurnAssembler) {
    let detail = |of: &str, name: &str| usage.get(of).and_then(|details| details.get(name));
    let prompt = lenient::tokens(usage.get("input_tokens"), turn);
    let completion = lenient::tokens(usage.get("output_tokens"), turn);
    let cached = lenient::tokens(detail("input_tokens_details", "cached_tokens"), turn);
    let written = lenient::tokens(detail("input_tokens_details", "cache_write_tokens"), turn);
    let reasoning = lenient::tokens(detail("output_tokens_details", "reasoning_tokens"), turn);
    turn.used(prompt, completion);
    turn.reasoned(reasoning);
    turn.cached(cached, written);
}

fn is(item: &Map<String, Value>, kind: &str) -> bool {
    item.get("type").is_some_and(|known| *known == kind)
}
