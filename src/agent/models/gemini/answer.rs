//! Reads the pieces of an answer of Gemini.

use serde_json::{Map, Value};

use super::SIGNATURE;
use crate::message::Extras;
use crate::models::remote::lenient::{self, Oddity};
use crate::models::remote::{CallFragment, Event, Reported, TurnAssembler};
use crate::models::{ModelError, StopReason};

/// The reasons of answers that are of no use, also after a text.
const FAILURES: [&str; 5] =
    ["OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"];

/// Errors: the event does not belong to the protocol, reports an error, or says that the prompt is blocked.
pub(in crate::models) fn read(event: &Event, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let mut piece = lenient::object(&event.data, turn)?;
    if piece.get("error").is_some_and(|error| !error.is_null()) || event.name == "error" {
        return Err(Reported::read(&Value::Object(piece)).in_answer());
    }
    if let Some(usage) = piece.get("usageMetadata") {
        count(usage, turn);
    }
    if let Some(reason) = piece.get("promptFeedback").and_then(|feedback| block_reason(feedback, "blockReason")) {
        return Err(ModelError::Refused(format!("the prompt was blocked: {reason}")));
    }
    let candidate = match piece.remove("candidates") {
        Some(Value::Array(candidates)) => candidates.into_iter().next(),
        _ => None,
    };
    let Some(Value::Object(candidate)) = candidate else { return Ok(()) };
    let parts = candidate.get("content").and_then(|content| content.get("parts")).and_then(Value::as_array);
    parts.into_iter().flatten().try_for_each(|part| handle_part(part, turn))?;
    finish(candidate, turn)
}

fn handle_part(part: &Value, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let signature = part.get(SIGNATURE).and_then(Value::as_str);
    if let Some(function) = part.get("functionCall") {
        let extra = signature.map(|signature| (SIGNATURE.to_owned(), signature.into()));
        let extras: Extras = extra.into_iter().collect();
        let text = |name: &str| function.get(name).and_then(Value::as_str).map(str::to_owned);
        let arguments =
            function.get("args").filter(|args| args.is_object()).map_or_else(|| "{}".to_owned(), Value::to_string);
        return turn.call(CallFragment { place: 0, id: text("id"), tool: text("name"), arguments, extras });
    }
    let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
    if part.get("thought").is_some_and(|is_thought| *is_thought == true) {
        return turn.thinking(0, text.to_owned());
    }
    turn.text(text.to_owned())?;
    match signature {
        Some(signature) => {
            turn.signature(1, signature)?;
            turn.end_thought(1);
            Ok(())
        }
        None => Ok(()),
    }
}

/// The reason stands in the last piece, and of some models in each: the answer ends with its connection.
/// <https://ai.google.dev/api/generate-content#FinishReason>
fn finish(candidate: Map<String, Value>, turn: &mut TurnAssembler) -> Result<(), ModelError> {
    let candidate = Value::Object(candidate);
    let Some(reason) = candidate.get("finishReason").and_then(Value::as_str) else { return Ok(()) };
    match reason {
        "STOP" => turn.stop(StopReason::Stop),
        "MAX_TOKENS" => turn.stop(StopReason::Length),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION"
        | "MODEL_ARMOR" => {
            // An answer without a word would not say why.
            if turn.is_silent() {
                let named = block_reason(&candidate, "finishReason").unwrap_or_default();
                turn.text(format!("The provider withheld the answer: {named}."))?;
            }
            turn.stop(StopReason::Refusal);
        }
        // The model wrote something that the provider could not read: the same request may succeed.
        other if turn.is_silent() || FAILURES.contains(&other) => {
            let shown: String = other.chars().take(100).collect();
            return Err(ModelError::Unavailable(format!("it ended its answer with {shown:?}")));
        }
        _ => turn.stop(StopReason::Stop),
    }
    Ok(())
}

/// The reason in a member of this name, with the categories that are blocked, or likely.
fn block_reason(value: &Value, name: &str) -> Option<String> {
    let reason = value.get(name)?.as_str()?;
    let ratings = value.get("safetyRatings").and_then(Value::as_array).into_iter().flatten();
    let is_cause = |rating: &&Value| {
        rating.get("blocked").is_some_and(|blocked| *blocked == true)
            || matches!(rating.get("probability").and_then(Value::as_str), Some("MEDIUM" | "HIGH"))
    };
    let categories: Vec<_> = ratings.filter(is_cause).filter_map(|rating| rating.get("category")?.as_str()).collect();
    let shown = match categories.is_empty() {
        true => reason.to_owned(),
        false => format!("{reason} ({})", categories.join(", ")),
    };
    Some(shown.chars().take(500).collect())
}

/// The thoughts are counted beside the candidates, and the cache within the prompt.
fn count(usage: &Value, turn: &mut TurnAssembler) {
    if !usage.is_object() {
        turn.odd(Oddity::Usage);
    }
    let mut tokens = |name: &str| lenient::tokens(usage.get(name), turn);
    let prompt = tokens("promptTokenCount")
        .map(|prompt| prompt.saturating_add(tokens("toolUsePromptTokenCount").unwrap_or_default()));
    let (candidates, thoughts) = (tokens("candidatesTokenCount"), tokens("thoughtsTokenCount"));
    let completion = candidates.or(thoughts.map(|_| 0)).map(|all| all.saturating_add(thoughts.unwrap_or_default()));
    let cached = tokens("cachedContentTokenCount");
    turn.used(prompt, completion);
    turn.reasoned(thoughts);
    turn.cached(cached, None);
}
