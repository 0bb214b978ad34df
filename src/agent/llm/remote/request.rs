//! What a model is sent.

use genai::chat::{ChatMessage, ChatRequest, ContentPart, MessageContent, Tool, ToolCall, ToolResponse};
use serde_json::Value;

use super::Protocol;
use crate::agent::llm::ModelRequest;
use crate::agent::message::{AssistantTurn, Message, ToolMessage};
use crate::agent::toolbox::{ToolDescription, ToolImage};

/// The request in the library's form.
pub(super) fn chat_request(protocol: Protocol, request: &ModelRequest) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(request.messages.len());
    let mut answers: Vec<&ToolMessage> = Vec::new();
    for message in &request.messages {
        // All answers of a turn are one message, and one without answers to the turn's calls is refused.
        if !matches!(message, Message::Tool(_)) {
            messages.extend(answered(protocol, &std::mem::take(&mut answers)));
        }
        match message {
            Message::System(text) => messages.push(ChatMessage::system(text.clone())),
            Message::User(text) => messages.push(ChatMessage::user(text.clone())),
            Message::Assistant(turn) => messages.push(ChatMessage::assistant(said(turn))),
            Message::Tool(answer) => answers.push(answer),
        }
    }
    messages.extend(answered(protocol, &answers));
    let mut chat = ChatRequest::new(messages);
    if !request.tools.is_empty() {
        chat.tools = Some(request.tools.iter().map(tool).collect());
    }
    chat
}

/// What the tools of a turn answered; images after the texts.
fn answered(protocol: Protocol, answers: &[&ToolMessage]) -> Vec<ChatMessage> {
    if answers.is_empty() {
        return Vec::new();
    }
    let texts = answers
        .iter()
        .map(|answer| ContentPart::ToolResponse(ToolResponse::new(answer.call_id.clone(), answer.text.clone())));
    let texts: Vec<_> = texts.collect();
    let images: Vec<_> = answers.iter().flat_map(|answer| images(answer)).collect();
    match protocol {
        _ if images.is_empty() => vec![ChatMessage::tool(MessageContent::from_parts(texts))],
        // Its tool messages take text alone.
        Protocol::Openai => vec![
            ChatMessage::tool(MessageContent::from_parts(texts)),
            ChatMessage::user(MessageContent::from_parts(images)),
        ],
        // Theirs are parts of the user's message, and Bedrock refuses two of the user's in a row.
        Protocol::Anthropic | Protocol::Bedrock => {
            let parts: Vec<_> = texts.into_iter().chain(images).collect();
            vec![ChatMessage::user(MessageContent::from_parts(parts))]
        }
    }
}

/// The images of an answer, under a line that says whose they are.
fn images(answer: &ToolMessage) -> Vec<ContentPart> {
    if answer.images.is_empty() {
        return Vec::new();
    }
    let title = ContentPart::Text(format!("Images that `{}` gave (call {}):", answer.tool, answer.call_id));
    let image =
        |image: &ToolImage| ContentPart::from_binary_base64(image.media_type.clone(), image.base64.as_str(), None);
    [title].into_iter().chain(answer.images.iter().map(image)).collect()
}

fn said(turn: &AssistantTurn) -> MessageContent {
    let text = (!turn.text.is_empty()).then(|| ContentPart::Text(turn.text.clone()));
    let calls = turn.calls.iter().map(|call| {
        // Arguments that were no JSON went back to the model as an error; providers take only JSON.
        let fn_arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::Object(Default::default()));
        let (call_id, fn_name) = (call.id.clone(), call.tool.clone());
        ContentPart::ToolCall(ToolCall { call_id, fn_name, fn_arguments, thought_signatures: None })
    });
    let thinking = turn.thinking.iter().filter_map(|block| serde_json::from_value(block.clone()).ok());
    MessageContent::from_parts(thinking.chain(text).chain(calls).collect::<Vec<_>>())
}

fn tool(described: &ToolDescription) -> Tool {
    Tool::new(described.name.clone())
        .with_description(described.description.clone())
        .with_schema(described.parameters.clone())
}
