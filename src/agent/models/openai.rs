//! OpenAI's Chat Completions (<https://platform.openai.com/docs/api-reference/chat>) and compatible APIs.

mod answer;

use std::borrow::Cow;

use serde_json::{Value, json};

use super::ModelRequest;
use super::remote::Vendor;
use crate::call_ids;
use crate::message::{AssistantTurn, Image, Message, RequestedCall, Thought, ToolMessage, UserMessage, UserPart};
use crate::options::ToolChoice;
use crate::output_format::OutputFormat;
use crate::toolbox::ToolDescription;
use crate::user_file::{PDF, UserFile};

pub(super) use self::answer::read;

/// The field that asks for the usage of a streamed answer. Some servers refuse it.
pub(super) const STREAM_OPTIONS: &str = "stream_options";

/// A request. OpenAI requires `max_completion_tokens` for its newer models; other servers support only `max_tokens`.
pub(super) fn body(model: &str, request: &ModelRequest, vendor: Vendor) -> Value {
    let limit_field =
        if vendor == Vendor::Openai || is_reasoning(model) { "max_completion_tokens" } else { "max_tokens" };
    let conversation: Cow<'_, [Message]> = match takes_short_ids(model, vendor) {
        true => Cow::Owned(call_ids::with_short_ids(request.messages.clone())),
        false => Cow::Borrowed(&request.messages[..]),
    };
    let mut body = json!({"model": model, "messages": messages(&conversation, vendor), "stream": true});
    // Mistral refuses the field, and reports the usage without it.
    if vendor != Vendor::Mistral {
        body[STREAM_OPTIONS] = json!({"include_usage": true});
    }
    body[limit_field] = request.max_tokens.into();
    let options = &request.options;
    // Mistral refuses the other name (<https://docs.mistral.ai/api/endpoint/chat>).
    let seed_field = if vendor == Vendor::Mistral { "random_seed" } else { "seed" };
    let asked = [
        ("temperature", options.temperature.filter(|_| !is_reasoning(model)).map(Value::from)),
        ("top_p", options.top_p.map(Value::from)),
        ("presence_penalty", options.presence_penalty.map(Value::from)),
        ("frequency_penalty", options.frequency_penalty.map(Value::from)),
        (seed_field, options.seed.map(Value::from)),
        ("stop", (!options.stop.is_empty()).then(|| json!(options.stop))),
        ("response_format", options.output.as_ref().map(response_format)),
        ("reasoning_effort", options.thinking.map(|thinking| thinking.effort().as_str().into())),
    ];
    let with_tools = [
        ("tools", Some(request.tools.iter().map(tool).collect())),
        ("tool_choice", tool_choice(&options.tool_choice)),
        ("parallel_tool_calls", options.parallel_tool_calls.map(Value::from)),
    ];
    let with_tools = with_tools.into_iter().filter(|_| !request.tools.is_empty());
    for (name, value) in asked.into_iter().chain(with_tools) {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    body
}

/// Whether a model refuses ids of calls that have other than nine letters and digits. A router writes the vendor before its
/// name.
fn takes_short_ids(model: &str, vendor: Vendor) -> bool {
    const NAMES: [&str; 6] = ["mistral", "magistral", "ministral", "codestral", "devstral", "pixtral"];
    let name = model.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    vendor == Vendor::Mistral || NAMES.iter().any(|known| name.starts_with(known))
}

/// OpenAI's models that think refuse a temperature and the older name of the token limit
/// (<https://platform.openai.com/docs/guides/reasoning>). A router writes their vendor before their name.
pub(super) fn is_reasoning(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    let is_o = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()));
    let generation = name.strip_prefix("gpt-").and_then(|rest| rest.chars().next()?.to_digit(10));
    is_o || generation.is_some_and(|generation| generation >= 5) && !name.contains("chat")
}

fn response_format(format: &OutputFormat) -> Value {
    match format.schema() {
        None => json!({"type": "json_object"}),
        Some(schema) => {
            let schema = json!({"name": schema.name, "strict": schema.is_strict, "schema": schema.checked.whole()});
            json!({"type": "json_schema", "json_schema": schema})
        }
    }
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Tool(name) => Some(json!({"type": "function", "function": {"name": name}})),
    }
}

fn messages(conversation: &[Message], vendor: Vendor) -> Vec<Value> {
    let system: Vec<_> = conversation.iter().filter_map(Message::as_system).collect();
    // One, and first: the chat templates of many models accept no other.
    let mut messages: Vec<_> =
        (!system.is_empty()).then(|| json!({"role": "system", "content": system.join("\n\n")})).into_iter().collect();
    let mut images = Vec::new();
    // The reasoning that led to calls is required for all of them (<https://api-docs.deepseek.com/guides/thinking_mode>); other
    // reasoning is taken back about the last request.
    let asked = conversation.iter().rposition(|message| matches!(message, Message::User(_))).unwrap_or_default();
    for (index, message) in conversation.iter().enumerate() {
        // A tool message holds only text, and the results of a turn must be consecutive: images follow them.
        if !matches!(message, Message::Tool(_)) {
            messages.extend(shown(&mut images));
        }
        messages.push(match message {
            Message::System(_) => continue,
            Message::User(message) => json!({"role": "user", "content": user_content(message, vendor)}),
            Message::Assistant(turn) => assistant_message(turn, index > asked || turn.calls().next().is_some()),
            // Mistral refuses a message of the user directly after it, and takes the images here.
            Message::Tool(answer) if vendor == Vendor::Mistral && !answer.images.is_empty() => {
                let text = json!({"type": "text", "text": answer.text});
                let content: Value = [text].into_iter().chain(answer.images.iter().map(image_part)).collect();
                json!({"role": "tool", "tool_call_id": answer.call_id, "content": content})
            }
            Message::Tool(answer) => {
                images.extend(images_of(answer));
                json!({"role": "tool", "tool_call_id": answer.call_id, "content": answer.text})
            }
        });
    }
    messages.extend(shown(&mut images));
    messages
}

/// A message with only text is sent as a string: some servers accept nothing else.
fn user_content(message: &UserMessage, vendor: Vendor) -> Value {
    if message.parts.iter().all(|part| matches!(part, UserPart::Text(_))) {
        return message.text().into();
    }
    message.parts.iter().flat_map(|part| user_parts(part, vendor)).collect()
}

fn user_parts(part: &UserPart, vendor: Vendor) -> Vec<Value> {
    match part {
        UserPart::Text(text) => vec![json!({"type": "text", "text": text})],
        UserPart::Image(image) => vec![image_part(image)],
        UserPart::File(file) => {
            let description = json!({"type": "text", "text": file.description()});
            file.document().map(|data| document_part(file, data, vendor)).into_iter().chain([description]).collect()
        }
    }
}

/// <https://platform.openai.com/docs/guides/pdf-files>. Gemini takes inline data of any of its types where images are.
fn document_part(file: &UserFile, data: &str, vendor: Vendor) -> Value {
    let data = format!("data:{PDF};base64,{data}");
    if vendor == Vendor::Gemini {
        return json!({"type": "image_url", "image_url": {"url": data}});
    }
    json!({"type": "file", "file": {"filename": file.name, "file_data": data}})
}

/// Servers with reasoning models refuse the results of calls without the reasoning that led to them
/// (<https://api-docs.deepseek.com/guides/thinking_mode>); a router takes the blocks of all turns back, unchanged
/// (<https://openrouter.ai/docs/use-cases/reasoning-tokens>).
fn assistant_message(turn: &AssistantTurn, with_reasoning: bool) -> Value {
    let text = turn.text();
    let calls: Vec<_> = turn.calls().map(tool_call).collect();
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
        if text.is_empty() {
            message["content"] = Value::Null;
        }
    }
    // They have the whole reasoning: signatures too.
    let details: Vec<_> = turn.thoughts().filter_map(Thought::details).flatten().cloned().collect();
    if !details.is_empty() {
        message["reasoning_details"] = details.into();
        return message;
    }
    for thought in turn.thoughts().filter(|_| with_reasoning) {
        if let Thought::Unsigned { text, field } = thought {
            let before = message[*field].as_str().unwrap_or_default();
            message[*field] = format!("{before}{text}").into();
        }
    }
    message
}

fn tool_call(call: &RequestedCall) -> Value {
    // Arguments that are not JSON went back to the model as an error; some servers parse them.
    let arguments = call.parsed_arguments().to_string();
    let function = json!({"name": call.tool, "arguments": arguments});
    let mut sent = json!({"id": call.id, "type": "function", "function": function});
    for (name, value) in &call.extras {
        sent[name] = value.clone();
    }
    sent
}

fn image_part(image: &Image) -> Value {
    let url = format!("data:{};base64,{}", image.media_type, image.base64);
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn shown(images: &mut Vec<Value>) -> Option<Value> {
    (!images.is_empty()).then(|| json!({"role": "user", "content": std::mem::take(images)}))
}

/// The images of a tool result, after a line that names the call.
fn images_of(answer: &ToolMessage) -> Vec<Value> {
    if answer.images.is_empty() {
        return Vec::new();
    }
    let title = format!("Images returned by `{}` (call {}):", answer.tool, answer.call_id);
    [json!({"type": "text", "text": title})].into_iter().chain(answer.images.iter().map(image_part)).collect()
}

fn tool(tool: &ToolDescription) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": *tool.parameters});
    json!({"type": "function", "function": function})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_goes_to_gemini_as_inline_data() {
        let file = UserFile::new("q3.pdf", Some(PDF.into()), b"%PDF-1.7 q3".to_vec());
        let parts = user_parts(&UserPart::File(file.clone()), Vendor::Gemini);
        let expected =
            json!({"type": "image_url", "image_url": {"url": "data:application/pdf;base64,JVBERi0xLjcgcTM="}});
        assert_eq!((&parts[0], &parts[1]["text"]), (&expected, &json!(file.description())));
        assert_eq!(user_parts(&UserPart::File(file), Vendor::Openai)[0]["type"], "file");
    }
}
