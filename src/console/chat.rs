//! The messages of a conversation. A tool call opens its arguments, its answer, and its path.

use std::collections::HashMap;
use std::sync::Arc;

use maud::{Markup, html};
use serde_json::Value;

use super::call_path::CallPath;
use super::text::Texts;
use super::try_it;
use super::visit::Visit;
use super::{Console, approvals, format};
use sekisho_agent::conversation::MAY_HAVE_HAPPENED;
use sekisho_agent_api::MessageBody;
use sekisho_core::error::CallError;
use sekisho_core::record::CallSummary;

/// The records of calls, by their ids in an agent's run.
pub(super) type Receipts = HashMap<String, Arc<CallSummary>>;

/// The records of the calls of messages that the visitor may see.
/// Errors: the index cannot be read.
pub(super) async fn receipts(
    console: &Console,
    visit: &Visit,
    messages: &[MessageBody],
) -> Result<Receipts, CallError> {
    let turns = messages.iter().filter_map(|message| message.message.get("assistant"));
    let ids = turns.flat_map(parts).filter_map(|part| part["call"]["id"].as_str().map(str::to_owned));
    console.gateway.history().calls_of_agent(&visit.caller, ids.collect()).await
}

/// The messages, oldest first.
pub(super) fn draw(visit: &Visit, receipts: &Receipts, messages: &[MessageBody]) -> Markup {
    let texts = visit.texts();
    let answers = answers(messages);
    html! {
        @if !messages.is_empty() {
            ol.chat aria-label=(texts.get("chat-label")) {
                @for message in messages {
                    @if let Some(user) = message.message.get("user") { (from_user(&texts, user)) }
                    @else if let Some(turn) = message.message.get("assistant") {
                        (from_agent(visit, receipts, turn, message.incomplete, &answers))
                    }
                }
            }
        }
    }
}

/// The answers of tools by the ids of their calls.
fn answers(messages: &[MessageBody]) -> HashMap<&str, &Value> {
    let answers = messages.iter().filter_map(|message| message.message.get("tool"));
    answers.filter_map(|answer| Some((answer["call_id"].as_str()?, answer))).collect()
}

fn parts(message: &Value) -> impl Iterator<Item = &Value> {
    message["parts"].as_array().into_iter().flatten()
}

fn from_user(texts: &Texts, message: &Value) -> Markup {
    html! {
        li.message.user {
            p.who-says { (texts.get("chat-you")) }
            @for part in parts(message) {
                @if let Some(text) = part["text"].as_str() { div.prose { (format::text(text)) } }
                @else if let Some(picture) = picture(&part["image"]) { img.picture src=(picture) alt=(texts.get("chat-picture")); }
                @else { p.quiet { (texts.get("chat-file")) } }
            }
        }
    }
}

fn from_agent(
    visit: &Visit,
    receipts: &Receipts,
    turn: &Value,
    incomplete: bool,
    answers: &HashMap<&str, &Value>,
) -> Markup {
    let texts = visit.texts();
    html! {
        li.message.assistant {
            p.who-says { (texts.get("chat-agent")) @if incomplete { " " span.tag.warn { "▲ " (texts.get("chat-incomplete")) } } }
            @for part in parts(turn) {
                @if let Some(text) = part["text"].as_str() { div.prose { (format::text(text)) } }
                @else if let Some(call) = part.get("call") {
                    (tool_call(visit, receipts, call, call["id"].as_str().and_then(|id| answers.get(id)).copied()))
                }
                @else if let Some(thought) = thought(part) {
                    details.thought { summary { (texts.get("chat-thought")) } div.prose.quiet { (format::text(thought)) } }
                }
            }
        }
    }
}

/// The readable part of a thought.
fn thought(part: &Value) -> Option<&str> {
    let thought = &part["thought"];
    let text = ["signed", "unsigned"].into_iter().find_map(|kind| thought[kind]["text"].as_str());
    text.filter(|text| !text.trim().is_empty())
}

fn tool_call(visit: &Visit, receipts: &Receipts, call: &Value, answer: Option<&Value>) -> Markup {
    let texts = visit.texts();
    let name = call["tool"].as_str().unwrap_or_default();
    let recent = call["id"].as_str().and_then(|id| receipts.get(id));
    let (sign, class) = outcome(answer);
    html! {
        details.tool-call {
            summary {
                span class=(class) { (sign) } " " (format::name(name))
                @if let Some(recent) = recent { span.quiet { " " (format::duration(recent.duration)) } }
            }
            p.who-says { (texts.get("schema-title")) }
            pre tabindex="0" { code { (pretty(call["arguments"].as_str().unwrap_or_default())) } }
            @if let Some(answer) = answer {
                p.who-says { (texts.get("chat-answer")) }
                (try_it::shown(&texts, "reply-text", &format::text(answer["text"].as_str().unwrap_or_default()), true))
                @for image in answer["images"].as_array().into_iter().flatten() {
                    @if let Some(picture) = picture(image) { img.picture src=(picture) alt=(texts.get("reply-picture")); }
                }
            }
            @if let Some(approval) = call["approval"].as_str().filter(|_| answer.is_none()) {
                p { a href=(approvals::path_of(approval)) { (texts.get("chat-approval")) } }
            }
            @match recent {
                Some(recent) => {
                    (CallPath::of_recent(recent).draw(&texts))
                    p { a href={ "/console/calls/" (recent.id) } { (texts.get("chat-receipt")) } }
                },
                None => p.quiet { (texts.get("chat-no-receipt")) },
            }
        }
    }
}

/// The sign of how a call ended, and its class, from the answer as it is stored: the receipt is gone after a restart.
fn outcome(answer: Option<&Value>) -> (&'static str, &'static str) {
    let Some(answer) = answer else { return ("…", "quiet") };
    let text = answer["text"].as_str().unwrap_or_default();
    match answer["is_error"].as_bool() {
        Some(true) if text != MAY_HAVE_HAPPENED => ("✕", "bad-text"),
        // Messages of earlier versions say only in their text that the call failed.
        None | Some(false) if !text.starts_with("Error: ") => ("✓", "good-text"),
        _ => ("?", "warn-text"),
    }
}

/// JSON in lines; a text that is none as it is.
pub(super) fn pretty(json: &str) -> String {
    let read = serde_json::from_str::<Value>(json);
    let text = read.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| json.to_owned());
    format::text(&text).into_owned()
}

fn picture(image: &Value) -> Option<String> {
    try_it::picture(image["media_type"].as_str()?, image["base64"].as_str()?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_agent::Message;
    use sekisho_agent::message::ToolMessage;

    #[test]
    fn how_a_call_ended_is_read_from_its_stored_answer() {
        let stored = |text: &str, is_error| {
            let message = Message::Tool(ToolMessage { text: text.into(), is_error, ..ToolMessage::default() });
            serde_json::to_value(message).unwrap()["tool"].clone()
        };
        for (answer, expected) in [
            (Some(stored("3", false)), "✓"),
            (Some(stored("Error: 503", true)), "✕"),
            (Some(stored("any text", true)), "✕"),
            (Some(stored(MAY_HAVE_HAPPENED, true)), "?"),
            (Some(json!({"text": "Error: of an earlier version"})), "?"),
            (None, "…"),
        ] {
            assert_eq!(outcome(answer.as_ref()).0, expected, "{answer:?}");
        }
    }
}
