//! Parses requests of OpenAI clients into the gateway's own form.

mod options;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use self::options::RequestOptions;
use crate::agent::message::{AssistantTurn, Image, RequestedCall, ToolMessage, UserMessage, UserPart};
use crate::agent::toolbox::ToolDescription;
use crate::agent::{Message, ModelOptions};
use crate::core::error::{CallError, ErrorCode};

/// `POST /v1/chat/completions`. What it asks of the answer is kept, or refused by name. Fields that are not listed here
/// (`user`, `metadata`, `store`, …) change no answer, and are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(in crate::api) struct CompletionRequest {
    /// The name of an agent's profile; by default that of the configuration.
    pub model: Option<String>,
    messages: Vec<RequestMessage>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// Tools that the client runs itself.
    tools: Option<Vec<RequestTool>>,
    #[schema(minimum = 1, maximum = 1)]
    n: Option<u32>,
    #[serde(flatten)]
    options: RequestOptions,
}

#[derive(Debug, Deserialize, ToSchema)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
enum RequestMessage {
    #[serde(alias = "developer")]
    System {
        content: Content,
    },
    User {
        content: Content,
    },
    Assistant {
        content: Option<Content>,
        tool_calls: Option<Vec<RequestCall>>,
    },
    Tool {
        content: Content,
        tool_call_id: String,
    },
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize, ToSchema)]
struct Part {
    /// `text`, and in a message of the user `image_url`; other types are refused.
    r#type: String,
    text: Option<String>,
    image_url: Option<ImageUrl>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ImageUrl {
    /// A data URL (RFC 2397) in base64: the gateway fetches no addresses for callers.
    #[schema(pattern = "^data:image/")]
    url: String,
}

#[derive(Debug, Deserialize, ToSchema)]
struct RequestCall {
    id: String,
    function: RequestFunction,
}

#[derive(Debug, Deserialize, ToSchema)]
struct RequestFunction {
    name: String,
    arguments: String,
}

#[derive(Debug, Deserialize, ToSchema)]
struct RequestTool {
    /// `function` is the only type.
    r#type: String,
    function: FunctionDescription,
}

#[derive(Debug, Deserialize, ToSchema)]
struct FunctionDescription {
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    name: String,
    description: Option<String>,
    #[schema(value_type = Option<Object>)]
    parameters: Option<Value>,
}

/// Maximum number of tools of a client.
const MAX_TOOLS: usize = 128;

/// What all providers read.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Maximum bytes of a tool's name; models accept no longer one.
const MAX_NAME: usize = 64;

impl CompletionRequest {
    pub(in crate::api) fn streams(&self) -> bool {
        self.stream.unwrap_or_default()
    }

    pub(in crate::api) fn includes_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or_default()
    }

    /// The conversation so far, the tools that the client runs itself, and what it asks of the answer.
    ///
    /// # Errors
    /// `invalid_request`, with the location.
    pub(in crate::api) fn into_conversation(
        self,
    ) -> Result<(Vec<Message>, Vec<ToolDescription>, ModelOptions), CallError> {
        if self.n.is_some_and(|choices| choices != 1) {
            return Err(invalid("`n` must be 1: an agent returns one answer"));
        }
        let mut messages = Vec::with_capacity(self.messages.len());
        for (index, message) in self.messages.into_iter().enumerate() {
            let message =
                message.convert(&messages).map_err(|problem| invalid(format!("`messages[{index}]`: {problem}")))?;
            messages.push(message);
        }
        if !messages.iter().any(|message| matches!(message, Message::User(_))) {
            return Err(invalid("`messages` has no message with the role `user`; add one that describes the task"));
        }
        let options = self.options.read()?;
        Ok((messages, client_tools(self.tools.unwrap_or_default())?, options))
    }
}

impl RequestMessage {
    fn convert(self, earlier: &[Message]) -> Result<Message, String> {
        Ok(match self {
            Self::System { content } => Message::System(content.into_text()?),
            Self::User { content } => Message::User(content.into_message()?),
            Self::Assistant { content, tool_calls } => {
                let text = content.map(Content::into_text).transpose()?.unwrap_or_default();
                let calls = tool_calls.unwrap_or_default().into_iter().map(RequestCall::convert);
                Message::Assistant(AssistantTurn::new(text, calls))
            }
            Self::Tool { content, tool_call_id } => {
                let earlier_turns = earlier.iter().rev().filter_map(|message| match message {
                    Message::Assistant(turn) => Some(turn),
                    _ => None,
                });
                let call = earlier_turns.flat_map(AssistantTurn::calls).find(|call| call.id == tool_call_id);
                let call = call.ok_or("its `tool_call_id` matches no call of an earlier message")?;
                let (call_id, tool) = (call.id.clone(), call.tool.clone());
                Message::Tool(ToolMessage { call_id, tool, text: content.into_text()?, images: Vec::new() })
            }
        })
    }
}

impl Content {
    fn into_text(self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Parts(parts) => parts.into_iter().map(Part::into_text).collect(),
        }
    }

    fn into_message(self) -> Result<UserMessage, String> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Parts(parts) => {
                let parts = parts.into_iter().map(Part::into_user_part).collect::<Result<_, _>>()?;
                Ok(UserMessage { parts })
            }
        }
    }
}

impl Part {
    fn into_user_part(self) -> Result<UserPart, String> {
        match (self.r#type.as_str(), self.image_url) {
            ("image_url", Some(ImageUrl { url })) => Ok(UserPart::Image(image(&url)?)),
            ("image_url", None) => Err("a part of the type `image_url` has no `image_url`".into()),
            (_, image_url) => Part { image_url, ..self }.into_text().map(UserPart::Text),
        }
    }

    fn into_text(self) -> Result<String, String> {
        match (self.r#type.as_str(), self.text) {
            ("text", Some(text)) => Ok(text),
            ("text", None) => Err("a part of the type `text` has no `text`".into()),
            (other, _) => {
                let shown: String = other.chars().take(40).collect();
                Err(format!("parts of the type {shown:?} are not supported; send `text`"))
            }
        }
    }
}

impl RequestCall {
    fn convert(self) -> RequestedCall {
        RequestedCall::new(self.id, self.function.name, self.function.arguments)
    }
}

fn client_tools(tools: Vec<RequestTool>) -> Result<Vec<ToolDescription>, CallError> {
    if tools.len() > MAX_TOOLS {
        return Err(invalid(format!("`tools` has {} tools; at most {MAX_TOOLS} are allowed", tools.len())));
    }
    let mut described: Vec<ToolDescription> = Vec::with_capacity(tools.len());
    for (index, tool) in tools.into_iter().enumerate() {
        let RequestTool { r#type, function: FunctionDescription { name, description, parameters } } = tool;
        let problem = if r#type != "function" {
            "its `type` must be `function`"
        } else if !is_name(&name) {
            "its name must be 1 to 64 letters, digits, `_` or `-`"
        } else if described.iter().any(|earlier| earlier.name == name) {
            "an earlier tool has the same name"
        } else {
            let description = description.unwrap_or_default();
            let parameters = parameters.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
            described.push(ToolDescription { name, description, parameters });
            continue;
        };
        return Err(invalid(format!("`tools[{index}]`: {problem}")));
    }
    Ok(described)
}

fn image(url: &str) -> Result<Image, String> {
    let data = url.strip_prefix("data:").ok_or(
        "`image_url.url` is an address; the gateway fetches none for callers: send the image as a data URL \
         (`data:image/png;base64,…`)",
    )?;
    let (media_type, base64) = data.split_once(";base64,").ok_or("`image_url.url` is a data URL without `;base64,`")?;
    if !IMAGE_TYPES.contains(&media_type) {
        return Err(format!("`image_url.url` is not one of {}", IMAGE_TYPES.join(", ")));
    }
    if base64.is_empty() || BASE64_STANDARD.decode(base64).is_err() {
        return Err("`image_url.url` is not valid base64".into());
    }
    Ok(Image { media_type: media_type.to_owned(), base64: base64.to_owned() })
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits)
}

fn invalid(message: impl Into<String>) -> CallError {
    CallError::new(ErrorCode::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<(Vec<Message>, Vec<ToolDescription>), CallError> {
        let request = serde_json::from_value::<CompletionRequest>(body).unwrap();
        request.into_conversation().map(|(messages, tools, _)| (messages, tools))
    }

    #[test]
    fn a_conversation_with_tools_is_read() {
        let (messages, tools) = read(json!({
            "model": "weather", "temperature": 0.1, "user": "ignored",
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Click "}, {"type": "text", "text": "it."}]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "click", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "a", "content": "clicked"},
            ],
            "tools": [{"type": "function", "function": {"name": "click", "description": "Clicks."}}],
        }))
        .unwrap();
        let call = RequestedCall::new("a".into(), "click".into(), "{}".into());
        let expected = [
            Message::System("Be brief.".into()),
            Message::User(UserMessage { parts: vec![UserPart::Text("Click ".into()), UserPart::Text("it.".into())] }),
            Message::Assistant(AssistantTurn::new("", [call])),
            Message::Tool(ToolMessage {
                call_id: "a".into(),
                tool: "click".into(),
                text: "clicked".into(),
                images: Vec::new(),
            }),
        ];
        assert_eq!(messages, expected);
        assert_eq!((tools[0].name.as_str(), tools[0].description.as_str()), ("click", "Clicks."));
        assert_eq!(tools[0].parameters["type"], "object");
    }

    #[test]
    fn unsupported_requests_are_refused_with_their_location() {
        let user = json!({"role": "user", "content": "hi"});
        let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
        let part = |part: Value| json!({"role": "user", "content": [part]});
        let image = |url: &str| part(json!({"type": "image_url", "image_url": {"url": url}}));
        let sound = part(json!({"type": "input_audio", "input_audio": {}}));
        for (body, place) in [
            (json!({"messages": []}), "`messages`"),
            (json!({"messages": [{"role": "system", "content": "hi"}]}), "`user`"),
            (json!({"messages": [user, sound]}), "`messages[1]`: parts of the type \"input_audio\""),
            (json!({"messages": [image("https://example.com/a.png")]}), "`messages[0]`: `image_url.url` is an address"),
            (json!({"messages": [image("data:image/tiff;base64,AAAA")]}), "image/png"),
            (json!({"messages": [image("data:image/png;base64,-")]}), "valid base64"),
            (json!({"messages": [part(json!({"type": "image_url"}))]}), "has no `image_url`"),
            (json!({"messages": [user, {"role": "tool", "tool_call_id": "x", "content": ""}]}), "`messages[1]`"),
            (json!({"messages": [user], "n": 2}), "`n`"),
            (json!({"messages": [user], "tools": [tool("a"), tool("a")]}), "`tools[1]`: an earlier"),
            (json!({"messages": [user], "tools": [tool("a b")]}), "`tools[0]`: its name"),
            (json!({"messages": [user], "tools": [{"type": "custom", "function": {"name": "a"}}]}), "`tools[0]`"),
            (json!({"messages": [user], "tools": vec![tool("a"); 129]}), "128"),
        ] {
            let mut body = body;
            body["model"] = "weather".into();
            let error = read(body).unwrap_err();
            assert!(error.code() == ErrorCode::InvalidRequest && error.message().contains(place), "{place}: {error}");
        }
    }
}
