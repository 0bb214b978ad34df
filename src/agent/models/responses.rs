//! OpenAI's Responses (<https://platform.openai.com/docs/api-reference/responses>), without state at the provider: nothing is
//! stored there, and the reasoning comes back encrypted.

mod answer;

use serde_json::{Value, json};

use super::openai::is_reasoning;
use super::{ModelRequest, tool_search};
use crate::message::{AssistantTurn, Image, Message, RequestedCall, Thought, ToolMessage, TurnPart, UserPart};
use crate::options::ToolChoice;
use crate::output_format::OutputFormat;
use crate::toolbox::ToolDescription;
use crate::user_file::{PDF, UserFile};
use sekisho_config::Effort;

pub(super) use self::answer::read;

/// The member that asks for summaries of the reasoning. Accounts that are not verified are refused them.
pub(super) const SUMMARY: &str = "summary";

/// The member of a call that names the group of its tool, if the model found it by a search.
const NAMESPACE: &str = "namespace";

/// `reasons`: whether the model thinks without being asked to.
pub(super) fn body(model: &str, request: &ModelRequest, reasons: bool) -> Value {
    let mut body = json!({
        "model": model,
        "input": input(request),
        "max_output_tokens": request.max_tokens,
        "store": false,
        "stream": true,
    });
    let options = &request.options;
    let reasons = reasons || is_reasoning(model);
    let instructions = leading_prompts(&request.messages).join("\n\n");
    let asked = [
        ("instructions", (!instructions.is_empty()).then(|| instructions.into())),
        // Other models refuse it.
        ("include", reasons.then(|| json!(["reasoning.encrypted_content"]))),
        ("reasoning", options.thinking.map(|thinking| reasoning(thinking.effort()))),
        ("temperature", options.temperature.filter(|_| !reasons).map(Value::from)),
        ("top_p", options.top_p.filter(|_| !reasons).map(Value::from)),
        ("text", options.output.as_ref().map(|format| json!({"format": text_format(format)}))),
    ];
    let with_tools = [
        ("tools", Some(tools(&request.tools))),
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

fn text_format(format: &OutputFormat) -> Value {
    match format.schema() {
        None => json!({"type": "json_object"}),
        Some(schema) => json!({
            "type": "json_schema",
            "name": schema.name,
            "strict": schema.is_strict,
            "schema": schema.checked.whole(),
        }),
    }
}

fn reasoning(effort: Effort) -> Value {
    match effort {
        Effort::None => json!({"effort": "none"}),
        effort => json!({"effort": effort.as_str(), SUMMARY: "auto"}),
    }
}

/// The system prompts with which the conversation begins. Later ones stay in their place.
fn leading_prompts(conversation: &[Message]) -> Vec<&str> {
    conversation.iter().map_while(Message::as_system).collect()
}

fn input(request: &ModelRequest) -> Vec<Value> {
    let leading = leading_prompts(&request.messages).len();
    let items = |message: &Message| match message {
        Message::System(text) => vec![json!({"type": "message", "role": "developer", "content": text})],
        Message::User(message) => {
            let content: Vec<_> = message.parts.iter().flat_map(user_parts).collect();
            vec![json!({"type": "message", "role": "user", "content": content})]
        }
        Message::Assistant(turn) => assistant_items(turn, &request.tools),
        Message::Tool(answer) => vec![answered(answer)],
    };
    request.messages.iter().skip(leading).flat_map(items).collect()
}

/// In the order of the model's output. Reasoning without an item after it is refused. A provider that searches tools of the request takes
/// its earlier searches back.
fn assistant_items(turn: &AssistantTurn, tools: &[ToolDescription]) -> Vec<Value> {
    let searches = tool_search::is_used(tools);
    let is_item = |part: &TurnPart| !matches!(part, TurnPart::Thought(_));
    let last = turn.parts.iter().rposition(is_item).map_or(0, |index| index + 1);
    let items = |part: &TurnPart| match part {
        TurnPart::Text(text) if text.is_empty() => Vec::new(),
        TurnPart::Text(text) => vec![json!({"type": "message", "role": "assistant", "content": text})],
        TurnPart::Thought(Thought::Details(items)) => {
            items.iter().filter(|item| searches || !is_of_search(item)).cloned().collect()
        }
        TurnPart::Thought(Thought::Signed { .. } | Thought::Redacted(_) | Thought::Unsigned { .. }) => Vec::new(),
        TurnPart::Call(call) => vec![function_call(call, tools)],
    };
    turn.parts.iter().take(last).flat_map(items).collect()
}

fn is_of_search(item: &Value) -> bool {
    item["type"].as_str().is_some_and(tool_search::is_of_search)
}

/// With the group of its tool, if the request has it there: another session may show the tool.
fn function_call(call: &RequestedCall, tools: &[ToolDescription]) -> Value {
    let arguments = call.parsed_arguments().to_string();
    let mut item = json!({"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": arguments});
    let is_grouped = || tools.iter().any(|tool| tool.is_deferred && tool.name == call.tool);
    if let Some(namespace) = call.extras.get(NAMESPACE).filter(|_| is_grouped()) {
        item[NAMESPACE] = namespace.clone();
    }
    item
}

fn answered(answer: &ToolMessage) -> Value {
    let output: Value = if answer.images.is_empty() {
        answer.text.as_str().into()
    } else {
        let text = json!({"type": "input_text", "text": answer.text});
        [text].into_iter().chain(answer.images.iter().map(image_part)).collect()
    };
    json!({"type": "function_call_output", "call_id": answer.call_id, "output": output})
}

fn user_parts(part: &UserPart) -> Vec<Value> {
    let text = |text: &str| json!({"type": "input_text", "text": text});
    match part {
        UserPart::Text(content) => vec![text(content)],
        UserPart::Image(image) => vec![image_part(image)],
        UserPart::File(file) => {
            let document = file.document().map(|data| document_part(file, data));
            document.into_iter().chain([text(&file.description())]).collect()
        }
    }
}

fn document_part(file: &UserFile, data: &str) -> Value {
    json!({"type": "input_file", "filename": file.name, "file_data": format!("data:{PDF};base64,{data}")})
}

fn image_part(image: &Image) -> Value {
    let url = format!("data:{};base64,{}", image.media_type, image.base64);
    json!({"type": "input_image", "detail": "auto", "image_url": url})
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Tool(name) => Some(json!({"type": "function", "name": name})),
    }
}

/// The deferred ones come last, with the tool that searches them.
fn tools(tools: &[ToolDescription]) -> Value {
    let shown: Vec<_> = tools.iter().filter(|tool| !tool.is_deferred).map(tool).collect();
    let deferred = tool_search::namespaces_of_openai(tools, shown.len(), tool);
    shown.into_iter().chain(deferred).collect()
}

/// Not strict: that needs schemas whose members are all required.
fn tool(tool: &ToolDescription) -> Value {
    let mut sent = json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": *tool.parameters,
        "strict": false,
    });
    if tool.is_deferred {
        sent[tool_search::DEFERRED] = true.into();
    }
    sent
}
