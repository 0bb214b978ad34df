//! Anthropic's Messages (<https://docs.anthropic.com/en/api/messages>, streamed as in
//! <https://docs.anthropic.com/en/docs/build-with-claude/streaming>).

mod answer;

use std::collections::HashSet;

use serde_json::{Value, json};

use super::remote::MessageMerger;
use super::{ModelRequest, claude, tool_search};
use crate::message::{AssistantTurn, Image, Message, Thought, ToolMessage, TurnPart, UNSIGNED_THINKING, UserPart};
use crate::options::{ModelOptions, ToolChoice};
use crate::toolbox::ToolDescription;
use crate::user_file::{PDF, UserFile};
use sekisho_config::Thinking;

pub(super) use self::answer::read;

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
    let searches = tool_search::searches_of_anthropic(request);
    for message in &request.messages {
        match message {
            Message::System(_) => {}
            Message::User(message) => messages.user(message.parts.iter().flat_map(user_parts)),
            Message::Assistant(turn) => messages.assistant(assistant_parts(turn, &searches)),
            Message::Tool(answer) => messages.user([answered(answer)]),
        }
    }
    messages.into_messages()
}

fn assistant_parts(turn: &AssistantTurn, searches: &HashSet<&str>) -> impl Iterator<Item = Value> {
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
        TurnPart::Thought(Thought::Details(blocks)) => tool_search::block_of_anthropic(blocks, searches),
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
