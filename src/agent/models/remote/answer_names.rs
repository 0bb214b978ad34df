//! The id of an answer, and the model that made it, as its provider names them: for traces.

use serde_json::Value;

use super::Event;
use crate::prompts::beginning;

/// Events that may have them: they are in the first one.
const FIRST_EVENTS: u8 = 2;

/// Characters that are kept of a name.
const MAX_NAME: usize = 256;

/// The names of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AnswerNames {
    pub(crate) id: Option<String>,
    pub(crate) model: Option<String>,
}

/// Finds the names in the first events of an answer.
#[derive(Debug)]
pub(super) struct NameFinder {
    events_left: u8,
}

impl Default for NameFinder {
    fn default() -> Self {
        Self { events_left: FIRST_EVENTS }
    }
}

impl NameFinder {
    pub(super) fn read(&mut self, event: &Event) -> Option<AnswerNames> {
        self.events_left = self.events_left.checked_sub(1)?;
        let found = names(&serde_json::from_slice(&event.data).ok()?)?;
        self.events_left = 0;
        Some(found)
    }
}

/// Anthropic and the Responses of OpenAI have them in a member, Chat Completions and Gemini at the top.
fn names(data: &Value) -> Option<AnswerNames> {
    let members = ["message", "response"].into_iter().filter_map(|name| data.get(name));
    let place = members.chain([data]).find(|place| place.is_object())?;
    let text = |names: [&str; 2]| {
        let found = names.into_iter().find_map(|name| place[name].as_str()).filter(|text| !text.is_empty());
        found.map(|text| beginning(text, MAX_NAME).to_owned())
    };
    let names = AnswerNames { id: text(["id", "responseId"]), model: text(["model", "modelVersion"]) };
    (names != AnswerNames::default()).then_some(names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(data: &Value) -> Event {
        Event { data: data.to_string().into_bytes(), ..Event::default() }
    }

    #[test]
    fn each_api_names_its_answers() {
        for data in [
            json!({"type": "message_start", "message": {"id": "a", "model": "m", "role": "assistant"}}),
            json!({"id": "a", "object": "chat.completion.chunk", "model": "m", "choices": []}),
            json!({"type": "response.created", "response": {"id": "a", "model": "m"}}),
            json!({"candidates": [], "responseId": "a", "modelVersion": "m"}),
        ] {
            let expected = AnswerNames { id: Some("a".into()), model: Some("m".into()) };
            assert_eq!(NameFinder::default().read(&event(&data)), Some(expected), "{data}");
        }
    }

    #[test]
    fn only_the_first_events_are_read() {
        let (without, with) = (event(&json!({"type": "ping", "id": 1})), event(&json!({"id": "a"})));
        let mut finder = NameFinder::default();
        assert_eq!(finder.read(&without), None);
        assert!(finder.read(&with).is_some_and(|names| names.id.as_deref() == Some("a") && names.model.is_none()));
        assert_eq!(finder.read(&with), None, "they are found once");
        let mut late = NameFinder::default();
        assert_eq!([&without, &without, &with].map(|event| late.read(event)), [None, None, None]);
        let long = event(&json!({"id": "x".repeat(1_000)}));
        assert!(NameFinder::default().read(&long).is_some_and(|names| names.id.is_some_and(|id| id.len() == MAX_NAME)));
    }
}
