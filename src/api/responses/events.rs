//! A run as the events of a streamed response
//! (<https://platform.openai.com/docs/api-reference/responses-streaming>).

use serde_json::{Value, json};

use super::response::{OutputItem, OutputText, ResponseBody, Status, SummaryText, item_id};
use crate::event_stream::NamedEvent;
use crate::model_api::output::{Output, OutputChange, OutputPart};
use sekisho_agent::Event;

/// Turns the events of one run into those of a response.
#[derive(Debug)]
pub(super) struct EventEncoder {
    response: ResponseBody,
    output: Output,
    sequence_number: u64,
}

impl EventEncoder {
    pub(super) fn new(response: ResponseBody) -> Self {
        Self { response, output: Output::new(), sequence_number: 0 }
    }

    /// The first events: the response without output.
    pub(super) fn opening(&mut self) -> Vec<NamedEvent> {
        let response = json!(self.response);
        vec![
            self.event("response.created", json!({"response": response})),
            self.event("response.in_progress", json!({"response": response})),
        ]
    }

    /// The events of what changed; none for calls that the gateway makes.
    pub(super) fn events(&mut self, event: Event) -> Vec<NamedEvent> {
        let mut events = Vec::new();
        for change in self.output.add(event) {
            let bodies = match change {
                OutputChange::Began(index) => self.began(index),
                OutputChange::Grew(index, text) => self.grew(index, &text),
                OutputChange::Ended(index) => self.ended(index),
            };
            events.extend(bodies.into_iter().map(|(name, body)| self.event(name, body)));
        }
        events
    }

    /// The last event, with the whole response.
    pub(super) fn closing(&mut self) -> NamedEvent {
        let response = self.response.ended(&self.output);
        let name = match response.status() {
            Status::Failed => "response.failed",
            Status::Incomplete => "response.incomplete",
            Status::Completed | Status::InProgress => "response.completed",
        };
        self.event(name, json!({"response": response}))
    }

    /// What the run answered.
    pub(super) fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    fn began(&self, index: usize) -> Vec<(&'static str, Value)> {
        let Some(part) = self.output.parts.get(index) else { return Vec::new() };
        let item = OutputItem::begun(&self.response, index, part);
        let added = ("response.output_item.added", json!({"output_index": index, "item": item}));
        match part {
            OutputPart::Thinking(_) => {
                let body = self.in_item(index, part, "summary_index", "part", &json!(SummaryText::new("")));
                vec![added, ("response.reasoning_summary_part.added", body)]
            }
            OutputPart::Text(_) => {
                let body = self.in_item(index, part, "content_index", "part", &json!(OutputText::new("")));
                vec![added, ("response.content_part.added", body)]
            }
            OutputPart::Call { .. } => vec![added],
        }
    }

    fn grew(&self, index: usize, text: &str) -> Vec<(&'static str, Value)> {
        let Some(part) = self.output.parts.get(index) else { return Vec::new() };
        vec![match part {
            OutputPart::Thinking(_) => {
                let body = self.in_item(index, part, "summary_index", "delta", &json!(text));
                ("response.reasoning_summary_text.delta", body)
            }
            OutputPart::Text(_) => {
                let mut body = self.in_item(index, part, "content_index", "delta", &json!(text));
                body["logprobs"] = json!([]);
                ("response.output_text.delta", body)
            }
            OutputPart::Call { .. } => {
                let item_id = item_id(&self.response.id, index, part);
                let body = json!({"item_id": item_id, "output_index": index, "delta": text});
                ("response.function_call_arguments.delta", body)
            }
        }]
    }

    fn ended(&self, index: usize) -> Vec<(&'static str, Value)> {
        let Some(part) = self.output.parts.get(index) else { return Vec::new() };
        let item = OutputItem::of(&self.response, index, part);
        let done = ("response.output_item.done", json!({"output_index": index, "item": item}));
        match part {
            OutputPart::Thinking(text) => {
                let body = |field, value: Value| self.in_item(index, part, "summary_index", field, &value);
                vec![
                    ("response.reasoning_summary_text.done", body("text", json!(text))),
                    ("response.reasoning_summary_part.done", body("part", json!(SummaryText::new(text)))),
                    done,
                ]
            }
            OutputPart::Text(text) => {
                let body = |field, value: Value| self.in_item(index, part, "content_index", field, &value);
                let mut whole = body("text", json!(text));
                whole["logprobs"] = json!([]);
                let content = body("part", json!(OutputText::new(text)));
                vec![("response.output_text.done", whole), ("response.content_part.done", content), done]
            }
            OutputPart::Call { name, arguments, .. } => {
                let item_id = item_id(&self.response.id, index, part);
                let body = json!({"item_id": item_id, "output_index": index, "name": name, "arguments": arguments});
                vec![("response.function_call_arguments.done", body), done]
            }
        }
    }

    /// The body of an event about the only part of an item.
    fn in_item(&self, index: usize, part: &OutputPart, place: &str, field: &str, value: &Value) -> Value {
        let item_id = item_id(&self.response.id, index, part);
        json!({"item_id": item_id, "output_index": index, place: 0, field: value})
    }

    fn event(&mut self, name: &'static str, mut body: Value) -> NamedEvent {
        body["type"] = name.into();
        body["sequence_number"] = self.sequence_number.into();
        self.sequence_number += 1;
        NamedEvent::new(name, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Asked;
    use super::*;
    use sekisho_agent::models::ModelError;
    use sekisho_agent::{FinishReason, RunError};

    /// Names and bodies, with a fixed id of the response.
    fn sent(run: Vec<Event>) -> Vec<(String, Value)> {
        let mut response = ResponseBody::begun("weather", Asked::default());
        response.id = "resp_1".into();
        let mut encoder = EventEncoder::new(response);
        let mut events = encoder.opening();
        events.extend(run.into_iter().flat_map(|event| encoder.events(event)).collect::<Vec<_>>());
        events.push(encoder.closing());
        events.iter().map(NamedEvent::parts).collect()
    }

    fn names(events: &[(String, Value)]) -> Vec<&str> {
        events.iter().map(|(name, _)| name.trim_start_matches("response.")).collect()
    }

    #[test]
    fn a_text_and_a_call_are_sent_in_the_documented_order() {
        let events = sent(vec![
            Event::Content { text: "Let me ".into() },
            Event::Content { text: "click.".into() },
            Event::ClientToolCall { id: "a".into(), tool_name: "click".into(), arguments: "{}".into() },
            Event::Finished { reason: FinishReason::ToolCalls, messages: Vec::new() },
        ]);
        let expected = [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ];
        assert_eq!(names(&events), expected);
        for (number, (name, body)) in events.iter().enumerate() {
            assert_eq!((&body["type"], &body["sequence_number"]), (&json!(name), &json!(number)));
        }
        let delta = json!({"type": "response.output_text.delta", "sequence_number": 4, "item_id": "msg_1_0",
            "output_index": 0, "content_index": 0, "delta": "Let me ", "logprobs": []});
        assert_eq!(events[4].1, delta);
        assert_eq!((&events[6].1["text"], &events[11].1["name"]), (&json!("Let me click."), &json!("click")));
        assert_eq!(events[9].1["item"]["arguments"], "");
        assert_eq!(events[13].1["response"]["output"][1]["call_id"], "a");
    }

    #[test]
    fn reasoning_is_sent_as_a_summary() {
        let events = sent(vec![Event::Thinking { text: "Hm.".into() }, Event::Content { text: "Yes.".into() }]);
        let expected = [
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
        ];
        assert_eq!(names(&events)[2..9], expected);
        assert_eq!((&events[4].1["delta"], &events[4].1["summary_index"]), (&json!("Hm."), &json!(0)));
    }

    #[test]
    fn a_run_that_fails_or_is_cut_ends_with_that() {
        let finished = |reason| Event::Finished { reason, messages: Vec::new() };
        let failed = Event::Error(RunError::from(&ModelError::Timeout));
        let events = sent(vec![Event::Content { text: "It".into() }, failed, finished(FinishReason::Error)]);
        let (name, body) = events.last().unwrap();
        assert_eq!((name.as_str(), &body["response"]["error"]["code"]), ("response.failed", &json!("timeout")));
        assert_eq!(body["response"]["output"][0]["content"][0]["text"], "It");
        assert_eq!(names(&sent(vec![finished(FinishReason::Length)])).last(), Some(&"incomplete"));
    }
}
