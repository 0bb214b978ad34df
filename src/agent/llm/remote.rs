//! Models of a provider on the network, through the library `genai`.
//!
//! What a provider writes into its errors is neither shown nor logged: it may repeat what it was sent.

use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures_util::stream::{BoxStream, StreamExt};
use genai::adapter::AdapterKind;
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, ContentPart, MessageContent, StreamEnd, Tool, ToolCall,
    ToolResponse, Usage,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::{Model, ModelChunk, ModelError, ModelRequest, ModelUsage, StopReason};
use crate::agent::message::{AssistantTurn, Message, RequestedCall, ToolMessage};
use crate::agent::toolbox::ToolDescription;
use crate::config::Secret;

/// A longer answer is not believed: `max_tokens` bounds an honest one far below.
const LONGEST_ANSWER_BYTES: usize = 4 << 20;

/// Calls of one turn, for the same reason.
const MOST_CALLS: usize = 256;

/// Whose protocol is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// <https://docs.anthropic.com/en/api/messages>
    Anthropic,
    /// <https://platform.openai.com/docs/api-reference/chat>
    Openai,
}

/// One model of one provider.
#[derive(Debug)]
pub struct Remote {
    client: Client,
    protocol: Protocol,
    model: String,
    base_url: String,
    key: Secret,
}

impl Remote {
    /// `http` connects; `base_url` is what `messages` or `chat/completions` is appended to.
    ///
    /// # Errors
    /// The library's client cannot be set up.
    pub fn new(
        http: reqwest::Client,
        protocol: Protocol,
        model: &str,
        base_url: Option<&str>,
        key: Secret,
    ) -> Result<Self, ModelError> {
        let mut base_url = base_url.unwrap_or_else(|| protocol.own_base_url()).to_owned();
        if !base_url.ends_with('/') {
            base_url.push('/');
        }
        let client = Client::builder().with_reqwest(http).build();
        let client = client.map_err(|_| ModelError::Refused("the client cannot be set up".into()))?;
        Ok(Self { client, protocol, model: model.to_owned(), base_url, key })
    }

    fn target(&self) -> ServiceTarget {
        ServiceTarget {
            model: ModelIden::new(self.protocol.adapter(), self.model.clone()),
            endpoint: Endpoint::from_owned(self.base_url.clone()),
            auth: AuthData::from_single(self.key.expose()),
        }
    }
}

impl Model for Remote {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        stream! {
            let options = ChatOptions { max_tokens: Some(request.max_tokens), temperature: request.temperature, ..ChatOptions::default() }
                .with_capture_usage(true);
            let asked = self.client.exec_chat_stream(self.target(), chat_request(&request), Some(&options)).await;
            let mut events = match asked {
                Ok(answer) => answer.stream,
                Err(error) => {
                    yield Err(failure(&error));
                    return;
                }
            };
            let mut joined = Joined::new(self.protocol);
            while let Some(event) = events.next().await {
                match event.map_err(|error| failure(&error)).and_then(|event| joined.take(event)) {
                    Ok(pieces) => for piece in pieces { yield Ok(piece) },
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                }
            }
        }
        .boxed()
    }
}

impl Protocol {
    fn adapter(self) -> AdapterKind {
        match self {
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Openai => AdapterKind::OpenAI,
        }
    }

    pub(super) fn key_variable(self) -> &'static str {
        match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Openai => "OPENAI_API_KEY",
        }
    }

    fn own_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Openai => "https://api.openai.com/v1/",
        }
    }
}

/// A turn's calls, joined from their fragments, which the library gives on differently for each protocol.
#[derive(Debug)]
struct Joined {
    protocol: Protocol,
    calls: Vec<RequestedCall>,
    bytes: usize,
}

impl Joined {
    fn new(protocol: Protocol) -> Self {
        Self { protocol, calls: Vec::new(), bytes: 0 }
    }

    fn take(&mut self, event: ChatStreamEvent) -> Result<Vec<ModelChunk>, ModelError> {
        Ok(match event {
            ChatStreamEvent::Chunk(chunk) => {
                self.count(chunk.content.len())?;
                vec![ModelChunk::Text(chunk.content)]
            }
            ChatStreamEvent::ReasoningChunk(chunk) => {
                self.count(chunk.content.len())?;
                vec![ModelChunk::Thinking(chunk.content)]
            }
            ChatStreamEvent::ToolCallChunk(chunk) => {
                self.join(chunk.tool_call)?;
                Vec::new()
            }
            ChatStreamEvent::End(end) => {
                let end = turn_end(end, self.calls.is_empty());
                self.calls.drain(..).map(ModelChunk::Call).chain([end]).collect()
            }
            ChatStreamEvent::Start | ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Heartbeat => {
                Vec::new()
            }
        })
    }

    fn join(&mut self, fragment: ToolCall) -> Result<(), ModelError> {
        let ToolCall { call_id: id, fn_name: tool, fn_arguments, .. } = fragment;
        let Value::String(arguments) = fn_arguments else {
            return Err(ModelError::Garbled("a tool call's arguments are no text".into()));
        };
        let known = match self.calls.iter().position(|call| call.id == id) {
            None if tool.is_empty() => self.by_index(&id),
            found => found,
        };
        if let Some(call) = known.and_then(|index| self.calls.get_mut(index)) {
            let before = call.arguments.len();
            match self.protocol {
                // These fragments come with everything before them.
                Protocol::Anthropic => call.arguments = arguments,
                Protocol::Openai => call.arguments.push_str(&arguments),
            }
            let more = call.arguments.len().saturating_sub(before);
            return self.count(more);
        }
        if tool.is_empty() {
            return Err(ModelError::Garbled("a piece of a tool call that never began".into()));
        }
        if self.calls.len() >= MOST_CALLS {
            return Err(ModelError::Garbled(format!("it has more than {MOST_CALLS} tool calls")));
        }
        let bytes = arguments.len();
        self.calls.push(RequestedCall { id, tool, arguments });
        self.count(bytes)
    }

    /// OpenAI's later fragments name their call by its place alone; the library makes `call_<index>` of it.
    fn by_index(&self, id: &str) -> Option<usize> {
        id.strip_prefix("call_")?.parse().ok().filter(|index| *index < self.calls.len())
    }

    fn count(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > LONGEST_ANSWER_BYTES {
            return Err(ModelError::Garbled(format!("it is longer than {LONGEST_ANSWER_BYTES} bytes")));
        }
        Ok(())
    }
}

fn turn_end(end: StreamEnd, without_calls: bool) -> ModelChunk {
    use genai::chat::StopReason as Theirs;
    let stop = match end.captured_stop_reason {
        Some(Theirs::MaxTokens(_)) => StopReason::Length,
        Some(Theirs::ContentFilter(_)) => StopReason::Refusal,
        _ if without_calls => StopReason::Stop,
        _ => StopReason::ToolCalls,
    };
    let Usage { prompt_tokens, completion_tokens, .. } = end.captured_usage.unwrap_or_default();
    let tokens = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    let usage = ModelUsage { prompt_tokens: tokens(prompt_tokens), completion_tokens: tokens(completion_tokens) };
    ModelChunk::End { stop, usage }
}

fn chat_request(request: &ModelRequest) -> ChatRequest {
    let mut messages: Vec<ChatMessage> = Vec::with_capacity(request.messages.len());
    let mut answers: Vec<ContentPart> = Vec::new();
    for message in &request.messages {
        // All answers of a turn are one message, and one without answers to the turn's calls is refused.
        if !matches!(message, Message::Tool(_)) && !answers.is_empty() {
            messages.push(ChatMessage::tool(MessageContent::from_parts(std::mem::take(&mut answers))));
        }
        match message {
            Message::System(text) => messages.push(ChatMessage::system(text.clone())),
            Message::User(text) => messages.push(ChatMessage::user(text.clone())),
            Message::Assistant(turn) => messages.push(ChatMessage::assistant(said(turn))),
            Message::Tool(ToolMessage { call_id, text, .. }) => {
                answers.push(ContentPart::ToolResponse(ToolResponse::new(call_id.clone(), text.clone())));
            }
        }
    }
    if !answers.is_empty() {
        messages.push(ChatMessage::tool(MessageContent::from_parts(answers)));
    }
    let mut chat = ChatRequest::new(messages);
    if !request.tools.is_empty() {
        chat.tools = Some(request.tools.iter().map(tool).collect());
    }
    chat
}

fn said(turn: &AssistantTurn) -> MessageContent {
    let text = (!turn.text.is_empty()).then(|| ContentPart::Text(turn.text.clone()));
    let calls = turn.calls.iter().map(|call| {
        // Arguments that were no JSON went back to the model as an error; providers take only JSON.
        let fn_arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| Value::Object(Default::default()));
        let (call_id, fn_name) = (call.id.clone(), call.tool.clone());
        ContentPart::ToolCall(ToolCall { call_id, fn_name, fn_arguments, thought_signatures: None })
    });
    MessageContent::from_parts(text.into_iter().chain(calls).collect::<Vec<_>>())
}

fn tool(described: &ToolDescription) -> Tool {
    Tool::new(described.name.clone())
        .with_description(described.description.clone())
        .with_schema(described.parameters.clone())
}

fn failure(error: &genai::Error) -> ModelError {
    use genai::Error as E;
    match error {
        E::HttpError { status, headers, .. } => refusal(*status, headers),
        E::WebModelCall { webc_error, .. } | E::WebAdapterCall { webc_error, .. } => web_failure(webc_error),
        E::WebStream { error, .. } => match (error.downcast_ref::<E>(), error.downcast_ref::<genai::webc::Error>()) {
            (Some(inner), _) => failure(inner),
            (None, Some(inner)) => web_failure(inner),
            (None, None) => ModelError::Unavailable("the connection failed".into()),
        },
        // An error in the midst of the stream: overload, for the most part.
        E::ChatResponse { .. } => ModelError::Unavailable("it reported an error in its answer".into()),
        _ => ModelError::Garbled("it does not keep to the provider's protocol".into()),
    }
}

fn web_failure(error: &genai::webc::Error) -> ModelError {
    match error.status() {
        Some(status) => refusal(status, error.headers().unwrap_or(&HeaderMap::new())),
        None => ModelError::Unavailable("the connection failed".into()),
    }
}

/// 529 is Anthropic's "overloaded" (A65).
fn refusal(status: StatusCode, headers: &HeaderMap) -> ModelError {
    match status.as_u16() {
        529 => ModelError::Overloaded { retry_after: retry_after(headers) },
        429 | 500.. => ModelError::Unavailable(format!("HTTP {}", status.as_u16())),
        401 | 403 => ModelError::Refused(format!("HTTP {}; check the profile's api_key", status.as_u16())),
        404 => ModelError::Refused("HTTP 404; check the profile's model and base_url".into()),
        other => ModelError::Refused(format!("HTTP {other}")),
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
