//! Messages as the store has them: JSON with a version, with all parts and the data that providers require back.

use serde::{Deserialize, Serialize};

use crate::Message;
use crate::message::AssistantTurn;
use crate::plan::Used;

/// Grows when the form changes so that earlier programs cannot read it.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    message: &'a Message,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<&'a Used>,
}

/// The usage beside a turn, which earlier programs neither write nor read.
#[derive(Deserialize)]
struct ReadUsage {
    #[serde(default)]
    used: Option<Used>,
}

#[derive(Deserialize)]
struct Read {
    version: u32,
    message: Message,
}

pub fn write(message: &Message) -> String {
    write_turn(message, None)
}

/// A turn with its usage, where that is known.
pub(super) fn write_turn(message: &Message, used: Option<&Used>) -> String {
    // Never fails: a message has no map with keys that are not strings.
    serde_json::to_string(&Written { version: VERSION, message, used }).unwrap_or_default()
}

/// The usage of a turn; `None` where it is not known.
pub(super) fn read_usage(text: &str) -> Option<Used> {
    serde_json::from_str::<ReadUsage>(text).ok()?.used
}

/// Errors: why the text is no message that this program can read.
pub fn read(text: &str) -> Result<Message, String> {
    let Read { version, message } = serde_json::from_str(text).map_err(|problem| format!("a message: {problem}"))?;
    match version {
        VERSION => Ok(message),
        newer => Err(format!("a message has version {newer}, and this program reads {VERSION}")),
    }
}

/// Errors: as [`read`]; or it is no turn of a model.
pub fn read_turn(text: &str) -> Result<AssistantTurn, String> {
    match read(text)? {
        Message::Assistant(turn) => Ok(turn),
        _ => Err("a journaled turn is no turn of a model".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_ids::ProviderId;
    use crate::message::{Extras, Image, RequestedCall, Thought, ToolMessage, TurnPart, UserMessage, UserPart};

    #[test]
    fn every_part_of_a_message_comes_back_as_it_was() {
        let image = || Image { media_type: "image/png".into(), base64: "aGk=".into() };
        let call = RequestedCall {
            provider_id: Some(ProviderId { api: "a".into(), id: "functions.add:0".into() }),
            extras: Extras::from_iter([(
                "extra_content".to_owned(),
                serde_json::json!({"g": {"thought_signature": "x"}}),
            )]),
            ..RequestedCall::new("1".into(), "add".into(), "{\"a\": 1".into())
        };
        let parts = vec![
            TurnPart::Thought(Thought::Signed { text: "hm".into(), signature: "c2ln".into() }),
            TurnPart::Thought(Thought::Redacted("eHh4".into())),
            TurnPart::Thought(Thought::Unsigned { text: "so".into(), field: "reasoning_content" }),
            TurnPart::Thought(Thought::Details(vec![serde_json::json!({"type": "reasoning.text", "text": "so"})])),
            TurnPart::Text("関所".into()),
            TurnPart::Call(call),
        ];
        let answer = ToolMessage {
            call_id: "1".into(),
            tool: "add".into(),
            text: "3".into(),
            images: vec![image()],
            is_error: true,
        };
        for message in [
            Message::System("s".into()),
            Message::User(UserMessage { parts: vec![UserPart::Text("see".into()), UserPart::Image(image())] }),
            Message::Assistant(AssistantTurn { parts, api: Some("anthropic".into()) }),
            Message::Assistant(AssistantTurn::default()),
            Message::Tool(answer),
        ] {
            assert_eq!(read(&write(&message)), Ok(message));
        }
    }

    #[test]
    fn the_form_of_stored_messages_is_this_one() {
        let turn = AssistantTurn::new("It is", [RequestedCall::new("1".into(), "add".into(), "{}".into())]);
        let expected = r#"{"version":1,"message":{"assistant":{"parts":[{"text":"It is"},{"call":{"id":"1","tool":"add","arguments":"{}"}}]}}}"#;
        assert_eq!(write(&Message::Assistant(turn)), expected);
    }

    #[test]
    fn a_turn_is_read_with_and_without_its_usage() {
        let message = Message::Assistant(AssistantTurn::new("so", []));
        let used = Used { prompt_tokens: 7, cost_usd: "0.000001".parse().unwrap(), ..Used::default() };
        let with_usage = write_turn(&message, Some(&used));
        assert_eq!((read(&with_usage), read_usage(&with_usage)), (Ok(message.clone()), Some(used)));
        assert_eq!(read_usage(&write(&message)), None);
    }

    #[test]
    fn a_message_of_another_version_is_refused() {
        let newer = r#"{"version":2,"message":{"system":"s"}}"#;
        assert!(read(newer).unwrap_err().contains("version 2"));
        assert!(read("{}").is_err() && read_turn(&write(&Message::System("s".into()))).is_err());
        let unknown =
            r#"{"version":1,"message":{"assistant":{"parts":[{"thought":{"unsigned":{"text":"a","field":"x"}}}]}}}"#;
        assert!(read(unknown).unwrap_err().contains("\"x\""));
    }
}
