//! Parses requests of OpenAI clients into the gateway's own form.

mod options;

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use self::options::RequestOptions;
use crate::model_api::client_tools::{self, DescribedTool};
use crate::model_api::{ClientRun, content};
use sekisho_agent::message::{AssistantTurn, RequestedCall, ToolMessage, UserMessage, UserPart};
use sekisho_agent::{Message, PausedCall};
use sekisho_core::error::CallError;

/// `POST /v1/chat/completions`. What it asks of the answer is kept, or refused by name. Fields that are not listed here
/// (`user`, `metadata`, `store`, …) change no answer, and are ignored.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionRequest {
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
        /// As the answer of a run that is paused has them: the run goes on.
        approvals: Option<Vec<PausedCall>>,
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
    /// `text`, and in a message of the user `image_url` or `file`; other types are refused.
    r#type: String,
    text: Option<String>,
    image_url: Option<ImageUrl>,
    file: Option<AttachedFile>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct ImageUrl {
    /// A data URL (RFC 2397) in base64: the gateway fetches no addresses for callers.
    #[schema(pattern = "^data:image/")]
    url: String,
}

/// It goes to the workspace of the thread's session.
#[derive(Debug, Deserialize, ToSchema)]
struct AttachedFile {
    filename: Option<String>,
    /// A data URL in base64, or base64 alone. Required: the gateway keeps no uploaded files (`file_id`).
    file_data: Option<String>,
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
    function: Option<FunctionDescription>,
}

#[derive(Debug, Deserialize, ToSchema)]
struct FunctionDescription {
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    name: String,
    description: Option<String>,
    #[schema(value_type = Option<Object>)]
    parameters: Option<Value>,
}

impl CompletionRequest {
    pub(crate) fn streams(&self) -> bool {
        self.stream.unwrap_or_default()
    }

    pub(crate) fn includes_usage(&self) -> bool {
        self.stream_options.as_ref().and_then(|options| options.include_usage).unwrap_or_default()
    }

    /// Errors: `invalid_request`, with the location.
    pub(crate) fn into_run(self) -> Result<ClientRun, CallError> {
        if self.n.is_some_and(|choices| choices != 1) {
            return Err(CallError::invalid("`n` must be 1: an agent returns one answer"));
        }
        let mut messages = Vec::with_capacity(self.messages.len());
        for (index, message) in self.messages.into_iter().enumerate() {
            let message = message
                .convert(&messages)
                .map_err(|problem| CallError::invalid(format!("`messages[{index}]`: {problem}")))?;
            messages.push(message);
        }
        if !messages.iter().any(|message| matches!(message, Message::User(_))) {
            return Err(CallError::invalid(
                "`messages` has no message with the role `user`; add one that describes the task",
            ));
        }
        let options = self.options.read()?;
        let tools = self.tools.unwrap_or_default();
        let client_tools = client_tools::read(tools.into_iter().map(RequestTool::described))?;
        Ok(ClientRun { messages, client_tools, options })
    }
}

impl RequestMessage {
    fn convert(self, earlier: &[Message]) -> Result<Message, String> {
        Ok(match self {
            Self::System { content } => Message::System(content.into_text()?),
            Self::User { content } => Message::User(content.into_message()?),
            Self::Assistant { content, tool_calls, approvals } => {
                let text = content.map(Content::into_text).transpose()?.unwrap_or_default();
                let calls = tool_calls.unwrap_or_default().into_iter().map(RequestCall::convert);
                let paused = approvals.unwrap_or_default().into_iter();
                let paused = paused.map(|call| RequestedCall::paused(call.call_id, call.tool, call.id));
                Message::Assistant(AssistantTurn::new(text, calls.chain(paused)))
            }
            Self::Tool { content, tool_call_id } => {
                let call = client_tools::call_of(earlier, &tool_call_id);
                let call = call.ok_or("its `tool_call_id` matches no call of an earlier message")?;
                let (call_id, tool) = (call.id.clone(), call.tool.clone());
                Message::Tool(ToolMessage { call_id, tool, text: content.into_text()?, ..ToolMessage::default() })
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
        match (self.r#type.as_str(), self.image_url, self.file) {
            ("image_url", Some(ImageUrl { url }), _) => {
                content::image_of_url("image_url.url", &url).map(UserPart::Image)
            }
            ("image_url", None, _) => Err("a part of the type `image_url` has no `image_url`".into()),
            ("file", _, Some(AttachedFile { filename, file_data: Some(data) })) => {
                content::file("file.file_data", filename.as_deref(), &data)
            }
            ("file", ..) => Err("a part of the type `file` has no `file.file_data`; send the file within it".into()),
            (_, image_url, file) => {
                Part { image_url, file, ..self }.into_text().map(|text| UserPart::Text(text.into()))
            }
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

impl RequestTool {
    fn described(self) -> DescribedTool {
        let Self { r#type, function } = self;
        match function {
            Some(FunctionDescription { name, description, parameters }) if r#type == "function" => {
                Ok((name, description, parameters))
            }
            Some(_) | None if r#type != "function" => Err(client_tools::not_of_the_client(&r#type, "`function`")),
            _ => Err("it has no `function`".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use sekisho_agent::toolbox::ToolDescription;
    use sekisho_core::error::ErrorCode;

    fn read(body: Value) -> Result<(Vec<Message>, Vec<ToolDescription>), CallError> {
        let request = serde_json::from_value::<CompletionRequest>(body).unwrap();
        request.into_run().map(|run| (run.messages, run.client_tools))
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
                ..ToolMessage::default()
            }),
        ];
        assert_eq!(messages, expected);
        assert_eq!((tools[0].name.as_str(), tools[0].description.as_str()), ("click", "Clicks."));
        assert_eq!(tools[0].parameters["type"], "object");
    }

    #[test]
    fn the_calls_of_a_paused_run_are_read_as_they_were_sent() {
        let call =
            json!({"id": "p", "call_id": "a", "tool": "pay", "expires_at": "later", "url": "https://gateway.test/p"});
        let paused = json!({"role": "assistant", "content": "Let me see.", "approvals": [call]});
        let (messages, _) = read(json!({"messages": [{"role": "user", "content": "Pay."}, paused]})).unwrap();
        let call = RequestedCall::paused("a".into(), "pay".into(), "p");
        assert_eq!(messages[1], Message::Assistant(AssistantTurn::new("Let me see.", [call])));
    }

    #[test]
    fn files_of_the_user_are_read() {
        let file = json!({"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}});
        let (messages, _) = read(json!({"messages": [{"role": "user", "content": [file]}]})).unwrap();
        let Message::User(message) = &messages[0] else { panic!("{messages:?}") };
        let UserPart::File(file) = &message.parts[0] else { panic!("{message:?}") };
        assert_eq!((file.name.as_str(), file.bytes), ("a.txt", 2));
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
            (
                json!({"messages": [user], "tools": [{"type": "custom", "custom": {"name": "a"}}]}),
                "\"custom\" is not a tool",
            ),
            (json!({"messages": [user], "tools": [{"type": "function"}]}), "`tools[0]`: it has no `function`"),
            (json!({"messages": [part(json!({"type": "file", "file": {"file_id": "f"}}))]}), "`file.file_data`"),
            (json!({"messages": [user], "tools": vec![tool("a"); 129]}), "128"),
        ] {
            let mut body = body;
            body["model"] = "weather".into();
            let error = read(body).unwrap_err();
            assert!(error.code() == ErrorCode::InvalidRequest && error.message().contains(place), "{place}: {error}");
        }
    }
}
