//! A run as the events of a streamed response
//! (<https://platform.openai.com/docs/api-reference/responses-streaming>).

use serde_json::{Value, json};

use super::response::{OutputItem, OutputText, ResponseBody, Status, SummaryText, item_id};
use crate::model_api::encoder::Encoder;
use crate::model_api::output::{DeltaKind, Output, OutputChange, OutputPart};
use sekisho_api::event_stream::NamedEvent;

/// Turns the output of one run into the events of a response.
#[derive(Debug)]
pub(super) struct EventEncoder {
    response: ResponseBody,
    /// The id of the item that grows.
    item_id: String,
    sequence_number: u64,
}

impl Encoder for EventEncoder {
    type Item = NamedEvent;

    /// The first events: the response without output.
    fn opening(&mut self) -> Vec<NamedEvent> {
        let response = json!(self.response);
        vec![
            self.event("response.created", json!({"response": response})),
            self.event("response.in_progress", json!({"response": response})),
        ]
    }

    fn encode(&mut self, change: OutputChange) -> Vec<NamedEvent> {
        let bodies = match change {
            OutputChange::Began(index, part) => self.began(index, &part),
            OutputChange::Grew(index, kind, text) => vec![self.grew(index, kind, &text)],
            OutputChange::Ended(index, part) => self.ended(index, &part),
            _ => Vec::new(),
        };
        bodies.into_iter().map(|(name, body)| self.event(name, body)).collect()
    }

    /// The last event, with the whole response.
    fn closing(&mut self, output: &Output) -> Vec<NamedEvent> {
        let response = self.response.ended(output);
        self.end_of_response(&response)
    }
}

impl EventEncoder {
    pub(super) fn new(response: ResponseBody) -> Self {
        Self { response, item_id: String::new(), sequence_number: 0 }
    }

    /// The number of the next event.
    pub(super) fn number(&self) -> u64 {
        self.sequence_number
    }

    /// Leaves out so many numbers.
    pub(super) fn skip(&mut self, count: u64) {
        self.sequence_number = self.sequence_number.saturating_add(count);
    }

    /// An event with a response.
    pub(super) fn of_response(&mut self, name: &'static str, response: &ResponseBody) -> Vec<NamedEvent> {
        vec![self.event(name, json!({"response": response}))]
    }

    /// The last event, by the status of the whole response.
    pub(super) fn end_of_response(&mut self, response: &ResponseBody) -> Vec<NamedEvent> {
        let name = match response.status() {
            Status::Failed => "response.failed",
            Status::Incomplete => "response.incomplete",
            Status::Completed | Status::InProgress | Status::Queued | Status::Cancelled => "response.completed",
        };
        self.of_response(name, response)
    }

    fn began(&mut self, index: usize, part: &OutputPart) -> Vec<(&'static str, Value)> {
        self.item_id = item_id(&self.response.id, index, part);
        let item = OutputItem::of(&self.response, index, part, Status::InProgress);
        let added = ("response.output_item.added", json!({"output_index": index, "item": item}));
        let (name, place, content) = match part {
            OutputPart::Thinking(_) => {
                ("response.reasoning_summary_part.added", "summary_index", json!(SummaryText::new("")))
            }
            OutputPart::Text(_) => ("response.content_part.added", "content_index", json!(OutputText::new(""))),
            OutputPart::Call { .. } => return vec![added],
        };
        vec![added, (name, self.in_item(index, place, "part", &content))]
    }

    fn grew(&self, index: usize, kind: DeltaKind, text: &str) -> (&'static str, Value) {
        match kind {
            DeltaKind::Thinking => {
                ("response.reasoning_summary_text.delta", self.in_item(index, "summary_index", "delta", &json!(text)))
            }
            DeltaKind::Text | DeltaKind::Notice => {
                let mut body = self.in_item(index, "content_index", "delta", &json!(text));
                body["logprobs"] = json!([]);
                ("response.output_text.delta", body)
            }
            DeltaKind::Arguments => {
                let body = json!({"item_id": self.item_id, "output_index": index, "delta": text});
                ("response.function_call_arguments.delta", body)
            }
        }
    }

    fn ended(&self, index: usize, part: &OutputPart) -> Vec<(&'static str, Value)> {
        let item = OutputItem::of(&self.response, index, part, Status::Completed);
        let done = ("response.output_item.done", json!({"output_index": index, "item": item}));
        match part {
            OutputPart::Thinking(text) => {
                let body = |field, value: Value| self.in_item(index, "summary_index", field, &value);
                vec![
                    ("response.reasoning_summary_text.done", body("text", json!(text))),
                    ("response.reasoning_summary_part.done", body("part", json!(SummaryText::new(text)))),
                    done,
                ]
            }
            OutputPart::Text(text) => {
                let body = |field, value: Value| self.in_item(index, "content_index", field, &value);
                let mut whole = body("text", json!(text));
                whole["logprobs"] = json!([]);
                let content = body("part", json!(OutputText::new(text)));
                vec![("response.output_text.done", whole), ("response.content_part.done", content), done]
            }
            OutputPart::Call { name, arguments, .. } => {
                let item_id = &self.item_id;
                let body = json!({"item_id": item_id, "output_index": index, "name": name, "arguments": arguments});
                vec![("response.function_call_arguments.done", body), done]
            }
        }
    }

    /// The body of an event about the only part of the item that grows.
    fn in_item(&self, index: usize, place: &str, field: &str, value: &Value) -> Value {
        json!({"item_id": self.item_id, "output_index": index, place: 0, field: value})
    }

    fn event(&mut self, name: &'static str, mut body: Value) -> NamedEvent {
        body["type"] = name.into();
        body["sequence_number"] = self.sequence_number.into();
        self.skip(1);
        NamedEvent::new(name, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Asked;
    use super::*;
    use crate::model_api::encoder::encoded_events;
    use sekisho_agent::models::ModelError;
    use sekisho_agent::{Event, FinishReason, RunError};

    /// Names and bodies, with a fixed id of the response.
    fn sent(run: Vec<Event>) -> Vec<(String, Value)> {
        let mut response = ResponseBody::begun("weather", Asked::default());
        response.id = "resp_1".into();
        encoded_events(EventEncoder::new(response), run)
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
