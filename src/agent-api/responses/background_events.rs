//! The events of a response in the background. Their numbers follow only from its texts: a delta has the number of its last character.
//! So any process can send the events after any number, also once the response has ended.

use serde_json::Value;

use super::events::EventEncoder;
use super::response::{ResponseBody, Status};
use crate::model_api::encoder::Encoder;
use crate::model_api::output::{DeltaKind, OutputChange, OutputPart};
use sekisho_agent::Message;
use sekisho_agent::event_log::{GAP, LoggedEvent};
use sekisho_api::event_stream::NamedEvent;

/// The texts of a response so far. One after a call of the gateway is another one than that before it.
#[derive(Debug, Default)]
pub(super) struct Texts {
    texts: Vec<String>,
    /// Whether there were calls since the last text.
    is_next: bool,
    /// Whether only the last one counts: an answer in a form that was asked for is shown once it has it.
    is_one: bool,
}

impl Texts {
    /// `is_one`: whether only the last text counts.
    pub(super) fn new(is_one: bool) -> Self {
        Self { is_one, ..Self::default() }
    }

    pub(super) fn add_message(&mut self, message: &Message) {
        match message {
            Message::Assistant(turn) => {
                if self.is_one {
                    self.texts.clear();
                }
                self.add(&turn.text());
                self.is_next |= turn.calls().next().is_some();
            }
            Message::Tool(_) => self.is_next = true,
            Message::System(_) | Message::User(_) => {}
        }
    }

    /// Adds an event of the run; `false` where events are no longer kept.
    pub(super) fn add_event(&mut self, event: &LoggedEvent) -> bool {
        match event.name {
            "text_delta" => {
                let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
                // Of the run itself, and not of a sub-agent.
                if data.get("parent_tool_use_id").is_none() {
                    self.add(data["text"].as_str().unwrap_or_default());
                }
            }
            "tool_use" | "tool_result" => self.is_next = true,
            _ => {}
        }
        event.name != GAP
    }

    fn add(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.texts.last_mut() {
            Some(last) if !self.is_next => last.push_str(text),
            _ => self.texts.push(text.to_owned()),
        }
        self.is_next = false;
    }

    /// As the parts of an answer.
    pub(super) fn parts(&self) -> Vec<OutputPart> {
        self.texts.iter().cloned().map(OutputPart::Text).collect()
    }
}

/// Turns the states and the texts of a response into its events after a number.
#[derive(Debug)]
pub(super) struct BackgroundEncoder {
    events: EventEncoder,
    /// The response without output.
    response: ResponseBody,
    /// The number of the last event that the client has.
    after: Option<u64>,
    /// How many texts have begun.
    begun: usize,
    /// Bytes of the last one that have their events.
    sent: usize,
}

impl BackgroundEncoder {
    pub(super) fn new(response: ResponseBody, after: Option<u64>) -> Self {
        Self { events: EventEncoder::new(response.clone()), response, after, begun: 0, sent: 0 }
    }

    /// The events by which the response comes to this status, before its texts.
    pub(super) fn state(&mut self, status: Status) -> Vec<NamedEvent> {
        let queued = self.response.clone().with_status(Status::Queued);
        let in_progress = self.response.clone().with_status(Status::InProgress);
        let mut events = Vec::new();
        if self.events.number() == 0 {
            events.extend(self.fresh(|encoder| encoder.of_response("response.created", &queued)));
            events.extend(self.fresh(|encoder| encoder.of_response("response.queued", &queued)));
        }
        if self.events.number() == 2 && status != Status::Queued {
            events.extend(self.fresh(|encoder| encoder.of_response("response.in_progress", &in_progress)));
        }
        events
    }

    /// The events of the texts that came since.
    pub(super) fn grown(&mut self, texts: &Texts) -> Vec<NamedEvent> {
        let texts = &texts.texts;
        let mut events = Vec::new();
        for (index, text) in texts.iter().enumerate().skip(self.begun.saturating_sub(1)) {
            if index == self.begun {
                events.extend(self.end_last(texts));
                let part = OutputPart::Text(String::new());
                events.extend(self.fresh(|encoder| encoder.encode(OutputChange::Began(index, part))));
                (self.begun, self.sent) = (index + 1, 0);
            }
            let mut from = self.sent.min(text.len());
            while !text.is_char_boundary(from) {
                from += 1;
            }
            let added = text.get(from..).unwrap_or_default();
            self.sent = self.sent.max(text.len());
            events.extend(self.grew(index, added));
        }
        events
    }

    /// The last events of a response that has ended. The very last one is sent whatever the client has: it has the whole response.
    pub(super) fn closing(&mut self, texts: &Texts, response: &ResponseBody) -> Vec<NamedEvent> {
        let mut events = self.grown(texts);
        events.extend(self.end_last(&texts.texts));
        let least = self.after.map_or(0, |after| after.saturating_add(1));
        self.events.skip(least.saturating_sub(self.events.number()));
        events.extend(self.events.end_of_response(response));
        events
    }

    fn end_last(&mut self, texts: &[String]) -> Vec<NamedEvent> {
        let Some(index) = self.begun.checked_sub(1) else { return Vec::new() };
        let Some(text) = texts.get(index) else { return Vec::new() };
        let part = OutputPart::Text(text.clone());
        self.fresh(|encoder| encoder.encode(OutputChange::Ended(index, part)))
    }

    /// The delta of a text, without the characters that the client has.
    fn grew(&mut self, index: usize, text: &str) -> Vec<NamedEvent> {
        let Some(last) = (text.chars().count() as u64).checked_sub(1) else { return Vec::new() };
        let known = self.after.map_or(0, |after| after.saturating_add(1).saturating_sub(self.events.number()));
        let rest: String = text.chars().skip(usize::try_from(known).unwrap_or(usize::MAX)).collect();
        self.events.skip(last);
        self.fresh(|encoder| encoder.encode(OutputChange::Grew(index, DeltaKind::Text, rest)))
    }

    /// The next events that the client does not have.
    fn fresh(&mut self, encode: impl FnOnce(&mut EventEncoder) -> Vec<NamedEvent>) -> Vec<NamedEvent> {
        let first = self.events.number();
        let events = encode(&mut self.events);
        let is_fresh = |(number, _): &(u64, NamedEvent)| self.after.is_none_or(|after| *number > after);
        (first..).zip(events).filter(is_fresh).map(|(_, event)| event).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::request::Asked;
    use super::*;
    use sekisho_agent::message::{AssistantTurn, RequestedCall, ToolMessage};

    fn response() -> ResponseBody {
        ResponseBody::in_background("weather", Asked::default(), ("resp_1", 0), Status::Queued)
    }

    fn texts(all: &[&str]) -> Texts {
        Texts { texts: all.iter().map(|text| (*text).to_owned()).collect(), ..Texts::default() }
    }

    fn bodies(events: &[NamedEvent]) -> Vec<Value> {
        events.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect()
    }

    /// All events after a number, of texts that grow in these steps.
    fn sent(after: Option<u64>, steps: &[&[&str]]) -> Vec<Value> {
        let mut encoder = BackgroundEncoder::new(response(), after);
        let mut events = encoder.state(Status::Queued);
        events.extend(encoder.state(Status::InProgress));
        events.extend(steps.iter().flat_map(|step| encoder.grown(&texts(step))));
        let ended = response().with_status(Status::Completed);
        events.extend(encoder.closing(&texts(steps.last().unwrap()), &ended));
        bodies(&events)
    }

    fn number(event: &Value) -> u64 {
        event["sequence_number"].as_u64().unwrap()
    }

    const STEPS: &[&[&str]] = &[&["Ich"], &["Ich prüfe"], &["Ich prüfe.", "关"], &["Ich prüfe.", "关所 ist zu."]];

    #[test]
    fn events_come_in_the_documented_order_with_growing_numbers() {
        let events = sent(None, STEPS);
        let names: Vec<_> =
            events.iter().filter_map(|event| event["type"].as_str()?.strip_prefix("response.")).collect();
        let (begun, ended) = (
            ["output_item.added", "content_part.added"],
            ["output_text.done", "content_part.done", "output_item.done"],
        );
        let delta = "output_text.delta";
        let expected = [
            &["created", "queued", "in_progress"][..],
            &begun,
            &[delta, delta, delta],
            &ended,
            &begun,
            &[delta, delta],
            &ended,
            &["completed"],
        ]
        .concat();
        assert_eq!(names, expected);
        assert!(events.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])), "{events:#?}");
        assert_eq!((number(&events[5]), number(&events[6])), (7, 13), "the last characters of the deltas");
        assert_eq!(events[8]["text"], "Ich prüfe.");
    }

    /// Whatever the client has, and however the texts grow the second time, it gets the rest of them and the end.
    #[test]
    fn a_client_goes_on_after_any_number() {
        let whole = sent(None, STEPS);
        let last = number(whole.last().unwrap());
        let deltas = |events: &[Value]| {
            let delta = |event: &Value| Some(event["delta"].as_str()?.to_owned());
            events.iter().filter_map(delta).collect::<String>()
        };
        let text = "Ich prüfe.关所 ist zu.";
        for after in 0..=last + 3 {
            for steps in [STEPS, &STEPS[3..]] {
                let rest = sent(Some(after), steps);
                assert!(rest.iter().all(|event| number(event) > after), "{after}");
                assert_eq!(rest.last().unwrap()["type"], "response.completed", "{after}");
                // Characters have the numbers 5 to 14 and 20 to 29.
                let known = after.saturating_sub(4).min(10) + after.saturating_sub(19).min(10);
                let expected: String = text.chars().skip(usize::try_from(known).unwrap()).collect();
                assert_eq!(deltas(&rest), expected, "{after}");
            }
        }
        let same = sent(Some(12), STEPS);
        let kept: Vec<_> = whole.iter().filter(|event| number(event) > 13).collect();
        assert_eq!(same[1..].iter().collect::<Vec<_>>(), kept, "whole events have the same numbers");
    }

    #[test]
    fn the_texts_of_messages_and_of_events_are_the_same() {
        let (mut stored, mut formed) = (Texts::default(), Texts::new(true));
        let call = RequestedCall::new("a".into(), "add".into(), "{}".into());
        let result = ToolMessage { call_id: "a".into(), tool: "add".into(), ..ToolMessage::default() };
        for message in [
            Message::User("hi".into()),
            Message::Assistant(AssistantTurn::new("One.", [call])),
            Message::Tool(result),
            Message::Assistant(AssistantTurn::new("Two.", [])),
        ] {
            stored.add_message(&message);
            formed.add_message(&message);
        }
        let mut live = Texts::default();
        for (name, data) in [
            ("system", json!({"subtype": "init"})),
            ("text_delta", json!({"text": "On"})),
            ("text_delta", json!({"text": "e."})),
            ("tool_use", json!({})),
            ("text_delta", json!({"text": "hm", "parent_tool_use_id": "a"})),
            ("tool_result", json!({})),
            ("text_delta", json!({"text": "Two."})),
        ] {
            assert!(live.add_event(&LoggedEvent { id: 1, name, data: data.to_string() }));
        }
        assert_eq!((&stored.texts, &live.texts), (&vec!["One.".to_owned(), "Two.".to_owned()], &stored.texts));
        assert_eq!(formed.texts, ["Two."]);
        assert!(!live.add_event(&LoggedEvent { id: 9, name: GAP, data: "{}".into() }));
    }
}
