//! The items of a request's input.

use serde::Deserialize;
use utoipa::ToSchema;

use super::request::name_in;
use super::response::APPROVAL;
use crate::model_api::output::OutputPart;
use crate::model_api::{client_tools, content};
use sekisho_agent::Message;
use sekisho_agent::message::{AssistantTurn, Image, RequestedCall, ToolMessage, TurnPart, UserMessage, UserPart};
use sekisho_core::error::CallError;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ResponseInput)]
pub(super) enum Input {
    /// A message of the user.
    Text(String),
    Items(Vec<Item>),
}

/// A message, a call of a client's function, or its output.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = InputItem)]
pub(super) struct Item {
    /// `message` (the default), `function_call`, `function_call_output`, `reasoning`, `item_reference`, or `approval` as the
    /// response of a run that is paused has it; others are refused.
    r#type: Option<String>,
    /// Of a message: `user`, `assistant`, `system` or `developer`.
    role: Option<String>,
    /// Of a message.
    content: Option<Content>,
    /// Of an `item_reference`: an item of a response that is kept. Of an `approval` its own.
    id: Option<String>,
    call_id: Option<String>,
    /// Of a `function_call`.
    name: Option<String>,
    /// Of a `function_call` in a namespace.
    namespace: Option<String>,
    /// Of a `function_call`: JSON in a text.
    arguments: Option<String>,
    /// Of a `function_call_output`.
    output: Option<Content>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = InputContent)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = InputPart)]
struct Part {
    /// `input_text`, `input_image` or `input_file`; in a message of the assistant `output_text` or `refusal`.
    r#type: String,
    text: Option<String>,
    refusal: Option<String>,
    /// A data URL in base64: the gateway fetches no addresses for callers.
    image_url: Option<String>,
    /// A data URL in base64, or base64 alone. It goes to the workspace of the conversation.
    file_data: Option<String>,
    filename: Option<String>,
}

/// Adds the items of an input to the messages before it.
pub(super) struct InputReader<F> {
    messages: Vec<Message>,
    /// The number of messages before the input.
    given: usize,
    /// Finds the part of a kept response by its item's id.
    find_item: F,
}

impl<F: Fn(&str) -> Option<OutputPart>> InputReader<F> {
    pub(super) fn new(earlier: Vec<Message>, find_item: F) -> Self {
        Self { given: earlier.len(), messages: earlier, find_item }
    }

    /// All messages.
    /// Errors: `invalid_request` with the place of an item that cannot be read.
    pub(super) fn read(mut self, input: Input) -> Result<Vec<Message>, CallError> {
        match input {
            Input::Text(text) => self.messages.push(Message::User(text.into())),
            Input::Items(items) => {
                for (index, item) in items.into_iter().enumerate() {
                    self.add(item).map_err(|problem| CallError::invalid(format!("`input[{index}]`: {problem}")))?;
                }
            }
        }
        Ok(self.messages)
    }

    fn add(&mut self, item: Item) -> Result<(), String> {
        match item.r#type.as_deref() {
            None | Some("message") => self.add_message(item.role.as_deref(), item.content),
            Some("function_call") => {
                let required = "a `function_call` needs `call_id`, `name` and `arguments`";
                let (Some(id), Some(name), Some(arguments)) = (item.call_id, item.name, item.arguments) else {
                    return Err(required.to_owned());
                };
                let name = item.namespace.map_or(name.clone(), |namespace| name_in(&namespace, &name));
                self.add_to_turn(TurnPart::Call(RequestedCall::new(id, name, arguments)));
                Ok(())
            }
            Some("function_call_output") => self.add_output(item),
            // The thoughts of a model go back to it from the runs that the gateway keeps.
            Some("reasoning") => Ok(()),
            Some(APPROVAL) => {
                let (Some(call), Some(approval)) = (item.call_id, item.id) else {
                    return Err("an `approval` needs `call_id` and `id`".into());
                };
                self.add_to_turn(TurnPart::Call(RequestedCall::paused(call, String::new(), approval)));
                Ok(())
            }
            Some("item_reference") => self.add_kept(item.id.as_deref().ok_or("an `item_reference` needs an `id`")?),
            Some(other) => Err(unsupported("items", other)),
        }
    }

    fn add_message(&mut self, role: Option<&str>, content: Option<Content>) -> Result<(), String> {
        let content = content.ok_or("a message needs `content`")?;
        match role {
            Some("user") => self.messages.push(Message::User(content.into_user_message()?)),
            Some("system" | "developer") => self.messages.push(Message::System(content.into_text()?)),
            Some("assistant") => self.add_to_turn(TurnPart::Text(content.into_text()?)),
            Some(_) | None => return Err("its `role` must be `user`, `assistant`, `system` or `developer`".into()),
        }
        Ok(())
    }

    fn add_output(&mut self, item: Item) -> Result<(), String> {
        let (Some(call_id), Some(output)) = (item.call_id, item.output) else {
            return Err("a `function_call_output` needs `call_id` and `output`".into());
        };
        let call = client_tools::call_of(&self.messages, &call_id).ok_or("its `call_id` matches no earlier call")?;
        let tool = call.tool.clone();
        let (text, images) = output.into_text_and_images()?;
        self.messages.push(Message::Tool(ToolMessage { call_id, tool, text, images, is_error: false }));
        Ok(())
    }

    fn add_kept(&mut self, id: &str) -> Result<(), String> {
        match (self.find_item)(id) {
            Some(OutputPart::Text(text)) => self.add_to_turn(TurnPart::Text(text)),
            Some(OutputPart::Call { id, name, arguments }) => {
                self.add_to_turn(TurnPart::Call(RequestedCall::new(id, name, arguments)));
            }
            Some(OutputPart::Thinking(_)) => {}
            None => return Err("the item is not kept (any more); send the item itself".into()),
        }
        Ok(())
    }

    /// Items of the assistant that follow each other are one turn.
    fn add_to_turn(&mut self, part: TurnPart) {
        match self.messages.get_mut(self.given..).and_then(<[Message]>::last_mut) {
            Some(Message::Assistant(turn)) => {
                let is_second_text = matches!((turn.parts.last(), &part), (Some(TurnPart::Text(_)), TurnPart::Text(_)));
                if is_second_text {
                    turn.push_text("\n\n");
                }
                turn.parts.push(part);
            }
            _ => self.messages.push(Message::Assistant(AssistantTurn { parts: vec![part], api: None })),
        }
    }
}

impl Content {
    fn into_text(self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Parts(parts) => parts.into_iter().map(Part::into_text).collect(),
        }
    }

    fn into_user_message(self) -> Result<UserMessage, String> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Parts(parts) => {
                let parts = parts.into_iter().map(Part::into_user_part).collect::<Result<_, _>>()?;
                Ok(UserMessage { parts })
            }
        }
    }

    fn into_text_and_images(self) -> Result<(String, Vec<Image>), String> {
        let (mut text, mut images) = (String::new(), Vec::new());
        for part in self.into_user_message()?.parts {
            match part {
                UserPart::Text(piece) => text.push_str(&piece),
                UserPart::Image(image) => images.push(image),
                UserPart::File(_) => return Err("the output of a call may have texts and images, but no files".into()),
            }
        }
        Ok((text, images))
    }
}

impl Part {
    fn into_user_part(self) -> Result<UserPart, String> {
        match self.r#type.as_str() {
            "input_image" => {
                let url = self.image_url.ok_or("an `input_image` needs an `image_url`; uploaded files are not kept")?;
                content::image_of_url("image_url", &url).map(UserPart::Image)
            }
            "input_file" => {
                let data = self.file_data.ok_or("an `input_file` needs `file_data`; send the file within it")?;
                content::file("file_data", self.filename.as_deref(), &data)
            }
            _ => self.into_text().map(|text| UserPart::Text(text.into())),
        }
    }

    fn into_text(self) -> Result<String, String> {
        match self.r#type.as_str() {
            "input_text" | "output_text" | "text" => self.text.ok_or_else(|| "a part has no `text`".into()),
            "refusal" => self.refusal.ok_or_else(|| "a part has no `refusal`".into()),
            other => Err(unsupported("parts", other)),
        }
    }
}

fn unsupported(what: &str, kind: &str) -> String {
    let shown: String = kind.chars().take(40).collect();
    format!("{what} of the type {shown:?} are not supported")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(items: Value) -> Result<Vec<Message>, String> {
        let kept = |id: &str| match id {
            "msg_1_0" => Some(OutputPart::Text("Let me see.".into())),
            "fc_1_1" => Some(OutputPart::Call { id: "a".into(), name: "click".into(), arguments: "{}".into() }),
            "rs_1_2" => Some(OutputPart::Thinking("Hm.".into())),
            _ => None,
        };
        let reader = InputReader::new(vec![Message::System("Be brief.".into())], kept);
        reader.read(serde_json::from_value(items).unwrap()).map_err(|error| error.message().to_owned())
    }

    fn expected() -> Vec<Message> {
        let call = RequestedCall::new("a".into(), "click".into(), "{}".into());
        let parts = vec![TurnPart::Text("Let me see.".into()), TurnPart::Call(call)];
        let (call_id, tool, text) = ("a".into(), "click".into(), "clicked".into());
        vec![
            Message::System("Be brief.".into()),
            Message::User("Click it.".into()),
            Message::Assistant(AssistantTurn { parts, api: None }),
            Message::Tool(ToolMessage { call_id, tool, text, ..ToolMessage::default() }),
        ]
    }

    #[test]
    fn a_call_that_waits_for_an_approver_is_of_the_turn_before() {
        let items = json!([
            {"role": "user", "content": "Pay."},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            {"type": "approval", "id": "p", "call_id": "a", "tool": "pay", "expires_at": "later", "url": "https://gateway.test/p"},
        ]);
        let call = RequestedCall::paused("a".into(), String::new(), "p");
        let turn = AssistantTurn::new("Let me see.", [call]);
        assert_eq!(read(items).unwrap()[2], Message::Assistant(turn));
        assert!(read(json!([{"type": "approval", "id": "p"}])).unwrap_err().contains("`call_id`"));
    }

    #[test]
    fn items_of_the_assistant_that_follow_each_other_are_one_turn() {
        let output = json!({"type": "function_call_output", "call_id": "a", "output": "clicked"});
        let whole = json!([
            {"role": "user", "content": "Click it."},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "click", "arguments": "{}"},
            output,
        ]);
        assert_eq!(read(whole).unwrap(), expected());
        let reference = |id: &str| json!({"type": "item_reference", "id": id});
        let user = json!({"type": "message", "role": "user", "content": "Click it."});
        let by_reference = [user, reference("rs_1_2"), reference("msg_1_0"), reference("fc_1_1"), output];
        assert_eq!(read(by_reference.to_vec().into()).unwrap(), expected());
    }

    #[test]
    fn images_and_files_are_read() {
        let messages = read(json!([{"role": "user", "content": [
            {"type": "input_text", "text": "What is it?"},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
            {"type": "input_file", "filename": "a.csv", "file_data": "data:text/csv;base64,aGk="},
        ]}]))
        .unwrap();
        let Message::User(message) = &messages[1] else { panic!("{messages:?}") };
        assert!(matches!(
            &message.parts[..],
            [UserPart::Text(_), UserPart::Image(_), UserPart::File(file)] if file.name == "a.csv"
        ));
    }

    #[test]
    fn items_that_cannot_be_read_are_refused_with_their_place() {
        let part = |part: Value| json!({"role": "user", "content": [part]});
        for (item, problem) in [
            (json!({"type": "computer_call"}), "`input[0]`: items of the type \"computer_call\""),
            (json!({"role": "tool", "content": ""}), "`role`"),
            (json!({"role": "user"}), "`content`"),
            (json!({"type": "function_call", "call_id": "a"}), "`arguments`"),
            (json!({"type": "function_call_output", "call_id": "b", "output": ""}), "no earlier call"),
            (json!({"type": "item_reference", "id": "msg_9_0"}), "not kept"),
            (part(json!({"type": "input_audio"})), "parts of the type \"input_audio\""),
            (part(json!({"type": "input_image", "file_id": "f"})), "`image_url`"),
            (part(json!({"type": "input_file", "file_url": "https://example.com"})), "`file_data`"),
        ] {
            let error = read(json!([item])).unwrap_err();
            assert!(error.contains(problem), "{problem}: {error}");
        }
    }
}
