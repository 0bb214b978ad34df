//! The messages of a request and their blocks.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::model_api::{client_tools, content};
use sekisho_agent::Message;
use sekisho_agent::message::{
    AssistantTurn, Image, RequestedCall, Thought, ToolMessage, TurnPart, UserMessage, UserPart,
};

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = MessagesMessage)]
pub(super) struct RequestMessage {
    role: Role,
    content: Content,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MessagesRole)]
enum Role {
    User,
    Assistant,
    System,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = MessagesContent)]
pub(super) enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = MessagesBlock)]
pub(super) struct Block {
    /// Of the user `text`, `image`, `document`, `search_result` or `tool_result`; of the assistant `text`, `tool_use`, `server_tool_use`,
    /// `thinking` or `redacted_thinking`. Others are refused.
    r#type: String,
    text: Option<String>,
    /// Of an `image` or `document` its data, of a `search_result` its address.
    source: Option<BlockSource>,
    /// Of a `document`: its file name. Of a `search_result`: its title.
    title: Option<String>,
    /// Of a `document` or `search_result`. Refused where it is enabled.
    #[schema(value_type = Option<Object>)]
    citations: Option<Value>,
    /// Of a `tool_use` or `server_tool_use`.
    id: Option<String>,
    name: Option<String>,
    #[schema(value_type = Option<Object>)]
    input: Option<Value>,
    /// Of a `tool_result`.
    tool_use_id: Option<String>,
    /// Of a `tool_result` or `search_result`. Read when the block is: so that blocks within blocks within blocks are not read at all.
    #[schema(value_type = Option<Content>, no_recursion)]
    content: Option<Value>,
    is_error: Option<bool>,
    /// Of `thinking`, with its `signature`.
    thinking: Option<String>,
    signature: Option<String>,
    /// Of `redacted_thinking`.
    data: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = MessagesBlockSource)]
enum BlockSource {
    Data(Source),
    Address(String),
}

/// The gateway fetches no addresses for callers, and keeps no uploaded files.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = MessagesSource)]
struct Source {
    /// `base64`, or for a document `text`.
    r#type: String,
    media_type: Option<String>,
    data: Option<String>,
}

impl RequestMessage {
    /// Adds its content to the messages before it.
    /// Errors: why it cannot be read.
    pub(super) fn add_to(self, messages: &mut Vec<Message>) -> Result<(), String> {
        match self.role {
            Role::System => messages.push(Message::System(self.content.into_text()?)),
            Role::Assistant => {
                let parts = self.content.into_blocks().into_iter().map(Block::into_turn_part);
                let parts = parts.filter_map(Result::transpose).collect::<Result<_, _>>()?;
                messages.push(Message::Assistant(AssistantTurn { parts, api: None }));
            }
            Role::User => {
                let (results, others): (Vec<_>, Vec<_>) =
                    self.content.into_blocks().into_iter().partition(|block| block.r#type == "tool_result");
                for result in results {
                    messages.push(Message::Tool(result.into_tool_message(messages)?));
                }
                let parts = others.into_iter().map(Block::into_user_part).collect::<Result<Vec<_>, _>>()?;
                if !parts.is_empty() {
                    messages.push(Message::User(UserMessage { parts }));
                }
            }
        }
        Ok(())
    }
}

impl Content {
    /// Errors: a block that is no text.
    pub(super) fn into_text(self) -> Result<String, String> {
        let texts: Vec<_> = self.into_blocks().into_iter().map(Block::into_text).collect::<Result<_, _>>()?;
        Ok(texts.join("\n\n"))
    }

    fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Text(text) => vec![Block::of_text(text)],
            Self::Blocks(blocks) => blocks,
        }
    }
}

impl Block {
    fn of_text(text: String) -> Self {
        Self {
            r#type: "text".to_owned(),
            text: Some(text),
            source: None,
            title: None,
            citations: None,
            id: None,
            name: None,
            input: None,
            tool_use_id: None,
            content: None,
            is_error: None,
            thinking: None,
            signature: None,
            data: None,
        }
    }

    fn into_text(self) -> Result<String, String> {
        match (self.r#type.as_str(), self.text) {
            ("text", Some(text)) => Ok(text),
            ("text", None) => Err("a block of the type `text` has no `text`".into()),
            (other, _) => Err(unsupported(other)),
        }
    }

    fn into_user_part(self) -> Result<UserPart, String> {
        let is_cited = self.citations.as_ref().and_then(|citations| citations.get("enabled")).and_then(Value::as_bool);
        if is_cited == Some(true) {
            return Err("`citations` cannot be kept: an agent's answer has nothing like it; leave it out".into());
        }
        match self.r#type.as_str() {
            "search_result" => self.into_search_result().map(|text| UserPart::Text(text.into())),
            "image" => {
                let (media_type, data) = data_of(self.source, "an `image`")?.into_base64()?;
                content::image("source.data", &media_type, &data).map(UserPart::Image)
            }
            "document" => {
                let title = self.title.as_deref();
                let source = data_of(self.source, "a `document`")?;
                // It is part of the message, however long it is.
                if source.r#type == "text" {
                    let text = source.data.ok_or("a `source` of the type `text` has no `data`")?;
                    let title = title.map(|title| format!("[Document `{title}`:]\n")).unwrap_or_default();
                    return Ok(UserPart::Text(format!("{title}{text}").into()));
                }
                let (media_type, data) = source.into_base64()?;
                let name = title.unwrap_or(if media_type == "application/pdf" { "document.pdf" } else { "document" });
                content::file_of("source.data", Some(name), Some(&media_type), &data)
            }
            _ => self.into_text().map(|text| UserPart::Text(text.into())),
        }
    }

    /// The text of a result of the client's own search, after its title and address.
    fn into_search_result(self) -> Result<String, String> {
        let content = self.content.ok_or("a `search_result` has no `content`")?;
        let content = serde_json::from_value::<Content>(content);
        let text = content.map_err(|_| "the `content` of a `search_result` is no list of texts")?.into_text()?;
        let address = match self.source {
            Some(BlockSource::Address(address)) => format!(" ({address})"),
            Some(BlockSource::Data(_)) | None => String::new(),
        };
        Ok(format!("[Search result `{}`{address}:]\n{text}", self.title.unwrap_or_default()))
    }

    /// `None` for a thought without the provider's signature, as the gateway shows it: it goes back to the model from the runs that
    /// the gateway keeps. One with a signature goes back as it is.
    fn into_turn_part(self) -> Result<Option<TurnPart>, String> {
        match self.r#type.as_str() {
            "thinking" => {
                let signature = self.signature.filter(|signature| !signature.is_empty());
                let text = self.thinking.unwrap_or_default();
                let signed = signature.map(|signature| Thought::Signed { text, signature });
                Ok(signed.map(TurnPart::Thought))
            }
            "redacted_thinking" => Ok(self.data.map(Thought::Redacted).map(TurnPart::Thought)),
            "tool_use" => {
                let (Some(id), Some(name), Some(input)) = (self.id, self.name, self.input) else {
                    return Err("a `tool_use` needs `id`, `name` and `input`".into());
                };
                Ok(Some(TurnPart::Call(RequestedCall::new(id, name, input.to_string()))))
            }
            // A call for which a run paused. The run that goes on knows its approval.
            "server_tool_use" => {
                let (Some(id), Some(name)) = (self.id, self.name) else {
                    return Err("a `server_tool_use` needs `id` and `name`".into());
                };
                Ok(Some(TurnPart::Call(RequestedCall::paused(id, name, ""))))
            }
            _ => self.into_text().map(|text| Some(TurnPart::Text(text))),
        }
    }

    fn into_tool_message(self, earlier: &[Message]) -> Result<ToolMessage, String> {
        let call_id = self.tool_use_id.ok_or("a `tool_result` needs a `tool_use_id`")?;
        let call = client_tools::call_of(earlier, &call_id).ok_or("its `tool_use_id` matches no earlier call")?;
        let tool = call.tool.clone();
        let (mut texts, mut images) = (Vec::new(), Vec::<Image>::new());
        let content = self.content.map(serde_json::from_value::<Content>).transpose();
        let content = content.map_err(|_| "the `content` of a `tool_result` is neither a text nor a list of blocks")?;
        for block in content.map(Content::into_blocks).unwrap_or_default() {
            match block.into_user_part()? {
                UserPart::Text(text) => texts.push(text),
                UserPart::Image(image) => images.push(image),
                UserPart::File(_) => return Err("a `tool_result` may have texts and images, but no files".into()),
            }
        }
        let text = texts.join("\n");
        let is_error = self.is_error == Some(true);
        let text = if is_error { format!("Error: {text}") } else { text };
        Ok(ToolMessage { call_id, tool, text, images, is_error })
    }
}

/// Errors: a block of this kind has none.
fn data_of(source: Option<BlockSource>, kind: &str) -> Result<Source, String> {
    match source {
        Some(BlockSource::Data(source)) => Ok(source),
        Some(BlockSource::Address(_)) | None => Err(format!("{kind} has no `source`")),
    }
}

impl Source {
    fn into_base64(self) -> Result<(String, String), String> {
        match (self.r#type.as_str(), self.media_type, self.data) {
            ("base64", Some(media_type), Some(data)) => Ok((media_type, data)),
            ("base64", ..) => Err("a `source` of the type `base64` needs `media_type` and `data`".into()),
            (other, ..) => {
                let shown: String = other.chars().take(40).collect();
                Err(format!("a `source` of the type {shown:?} is not supported; send the content as `base64`"))
            }
        }
    }
}

fn unsupported(kind: &str) -> String {
    let shown: String = kind.chars().take(40).collect();
    format!("blocks of the type {shown:?} are not supported here")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(messages: Value) -> Result<Vec<Message>, String> {
        let mut read = Vec::new();
        for message in serde_json::from_value::<Vec<RequestMessage>>(messages).unwrap() {
            message.add_to(&mut read)?;
        }
        Ok(read)
    }

    #[test]
    fn a_conversation_with_tools_is_read() {
        let png = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}});
        let messages = read(json!([
            {"role": "user", "content": "Click it."},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "a", "name": "click", "input": {"x": 1}}]},
            {"role": "user", "content": [
                {"type": "text", "text": "And?"},
                {"type": "tool_result", "tool_use_id": "a", "is_error": true, "content": [
                    {"type": "text", "text": "no button"}, png]}]},
        ]))
        .unwrap();
        let call = RequestedCall::new("a".into(), "click".into(), "{\"x\":1}".into());
        let image = Image { media_type: "image/png".into(), base64: "aGk=".into() };
        let (call_id, tool, text) = ("a".into(), "click".into(), "Error: no button".into());
        let expected = [
            Message::User("Click it.".into()),
            Message::Assistant(AssistantTurn::new("Let me see.", [call])),
            Message::Tool(ToolMessage { call_id, tool, text, images: vec![image], is_error: true }),
            Message::User("And?".into()),
        ];
        assert_eq!(messages, expected);
    }

    #[test]
    fn thoughts_with_a_signature_are_kept_as_they_are() {
        let messages = read(json!([{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": "ZGF0YQ=="},
            {"type": "thinking", "thinking": "Shown by the gateway.", "signature": ""},
            {"type": "text", "text": "Yes."},
        ]}]))
        .unwrap();
        let thoughts =
            [Thought::Signed { text: "Hm.".into(), signature: "c2ln".into() }, Thought::Redacted("ZGF0YQ==".into())];
        let parts = thoughts.into_iter().map(TurnPart::Thought).chain([TurnPart::Text("Yes.".into())]).collect();
        assert_eq!(messages, [Message::Assistant(AssistantTurn { parts, api: None })]);
    }

    #[test]
    fn documents_are_files_or_texts() {
        let document = |source: Value| {
            json!([{"role": "user", "content": [
            {"type": "document", "title": "a.pdf", "source": source}]}])
        };
        let part = |source: Value| match read(document(source)).unwrap().pop() {
            Some(Message::User(mut message)) => message.parts.pop().unwrap(),
            other => panic!("{other:?}"),
        };
        let pdf = part(json!({"type": "base64", "media_type": "application/pdf", "data": "aGk="}));
        assert!(matches!(pdf, UserPart::File(file) if file.name == "a.pdf"));
        let text = part(json!({"type": "text", "media_type": "text/plain", "data": "hi"}));
        assert_eq!(text, UserPart::Text("[Document `a.pdf`:]\nhi".into()));
    }

    #[test]
    fn a_search_result_is_a_text_with_its_address() {
        let block = json!({"type": "search_result", "source": "https://a.example", "title": "A",
            "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "citations": {"enabled": false}});
        let messages = read(json!([{"role": "user", "content": [block]}])).unwrap();
        assert_eq!(messages, [Message::User("[Search result `A` (https://a.example):]\none\n\ntwo".into())]);
    }

    #[test]
    fn blocks_that_cannot_be_read_are_refused() {
        let document = |source: Value| json!({"type": "document", "source": source});
        for (role, block, problem) in [
            ("user", json!({"type": "search_result"}), "`search_result`"),
            ("user", json!({"type": "text", "text": "a", "citations": {"enabled": true}}), "`citations`"),
            ("user", json!({"type": "tool_use", "id": "a", "name": "b", "input": {}}), "\"tool_use\""),
            ("user", json!({"type": "image", "source": {"type": "url", "url": "https://example.com"}}), "\"url\""),
            ("user", json!({"type": "image"}), "`source`"),
            ("user", document(json!({"type": "file", "file_id": "f"})), "\"file\""),
            ("user", document(json!({"type": "base64"})), "`media_type`"),
            ("user", json!({"type": "tool_result", "tool_use_id": "b"}), "no earlier call"),
            ("assistant", json!({"type": "server_tool_use"}), "`server_tool_use`"),
            ("assistant", json!({"type": "tool_use", "id": "a"}), "`input`"),
        ] {
            let error = read(json!([{"role": role, "content": [block]}])).unwrap_err();
            assert!(error.contains(problem), "{problem}: {error}");
        }
        let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]});
        let result = json!({"type": "tool_result", "tool_use_id": "a", "content": 1});
        let error = read(json!([call, {"role": "user", "content": [result]}])).unwrap_err();
        assert!(error.contains("neither a text"), "{error}");
    }
}
