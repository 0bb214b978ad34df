//! A run as the events of a streamed message (<https://docs.claude.com/en/docs/build-with-claude/streaming>).

use std::future::ready;

use futures_util::{Stream, StreamExt};
use serde_json::{Value, json};

use super::error::AnthropicProblem;
use super::message::{ContentBlock, MessageBody, StopReason, Usage};
use crate::model_api::encoder::Encoder;
use crate::model_api::output::{DeltaKind, Output, OutputChange, OutputPart};
use sekisho_agent::Event;
use sekisho_api::event_stream::NamedEvent;

/// Keeps a silent connection open.
pub(super) const PING: &str = "event: ping\ndata: {\"type\": \"ping\"}\n\n";

/// Turns the output of one run into the events of a message.
#[derive(Debug)]
pub(super) struct EventEncoder {
    /// Without content.
    pub(super) message: MessageBody,
}

impl Encoder for EventEncoder {
    type Item = NamedEvent;

    /// The first event: the message without content.
    fn opening(&mut self) -> Vec<NamedEvent> {
        vec![event("message_start", json!({"message": self.message}))]
    }

    fn encode(&mut self, change: OutputChange) -> Vec<NamedEvent> {
        match change {
            OutputChange::Began(index, part) => {
                // Never fails: without arguments there is an empty object.
                let block = json!(ContentBlock::of(part).ok());
                vec![event("content_block_start", json!({"index": index, "content_block": block}))]
            }
            OutputChange::Grew(index, kind, text) => {
                let grown = match kind {
                    DeltaKind::Thinking => json!({"type": "thinking_delta", "thinking": text}),
                    DeltaKind::Text | DeltaKind::Notice => json!({"type": "text_delta", "text": text}),
                    DeltaKind::Arguments => json!({"type": "input_json_delta", "partial_json": text}),
                };
                vec![delta(index, &grown)]
            }
            OutputChange::Ended(index, part) => {
                let signature = matches!(part, OutputPart::Thinking(_))
                    .then(|| delta(index, &json!({"type": "signature_delta", "signature": ""})));
                signature.into_iter().chain([event("content_block_stop", json!({"index": index}))]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The last events: the reason of the end and the usage, or the error of a run that failed.
    fn closing(&mut self, output: &Output) -> Vec<NamedEvent> {
        if let Some(failure) = &output.failure {
            return vec![event("error", json!({"error": AnthropicProblem::of(failure)}))];
        }
        let mut events = Vec::new();
        for (index, call) in (output.parts.len()..).zip(&output.approvals) {
            // At once: its arguments are known.
            let block = json!(ContentBlock::paused(call));
            events.push(event("content_block_start", json!({"index": index, "content_block": block})));
            events.push(event("content_block_stop", json!({"index": index})));
        }
        let delta = json!({"stop_reason": StopReason::of(output.finish), "stop_sequence": null});
        let mut last = json!({"delta": delta, "usage": Usage::of(&output.usage)});
        if !output.approvals.is_empty() {
            last["approvals"] = json!(output.approvals);
        }
        events.extend([event("message_delta", last), event("message_stop", json!({}))]);
        events
    }
}

/// The events of a run, without the model's thoughts unless the client asked for them.
pub(super) fn shown(events: impl Stream<Item = Event>, shows_thinking: bool) -> impl Stream<Item = Event> {
    events.filter(move |event| ready(shows_thinking || !matches!(event, Event::Thinking { .. })))
}

fn delta(index: usize, delta: &Value) -> NamedEvent {
    event("content_block_delta", json!({"index": index, "delta": delta}))
}

fn event(name: &'static str, mut body: Value) -> NamedEvent {
    body["type"] = name.into();
    NamedEvent::new(name, &body)
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};

    use super::*;
    use crate::model_api::encoder::encoded_events;
    use sekisho_agent::models::ModelError;
    use sekisho_agent::{FinishReason, RunError};

    fn sent(shows_thinking: bool, run: Vec<Event>) -> Vec<(String, Value)> {
        let run = shown(stream::iter(run), shows_thinking).collect::<Vec<_>>().now_or_never().unwrap();
        encoded_events(EventEncoder { message: MessageBody::begun("weather") }, run)
    }

    #[test]
    fn blocks_are_sent_in_the_documented_order() {
        let run = vec![
            Event::Thinking { text: "Hm.".into() },
            Event::Content { text: "Let me ".into() },
            Event::Content { text: "click.".into() },
            Event::ClientToolCall { id: "a".into(), tool_name: "click".into(), arguments: "{}".into() },
            Event::Finished { reason: FinishReason::ToolCalls, messages: Vec::new() },
        ];
        let events = sent(true, run.clone());
        let start = |index: u32, block: Value| {
            ("content_block_start", json!({"type": "content_block_start", "index": index, "content_block": block}))
        };
        let delta = |index: u32, delta: Value| {
            ("content_block_delta", json!({"type": "content_block_delta", "index": index, "delta": delta}))
        };
        let stop = |index: u32| ("content_block_stop", json!({"type": "content_block_stop", "index": index}));
        let expected = [
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "Hm."})),
            delta(0, json!({"type": "signature_delta", "signature": ""})),
            stop(0),
            start(1, json!({"type": "text", "text": ""})),
            delta(1, json!({"type": "text_delta", "text": "Let me "})),
            delta(1, json!({"type": "text_delta", "text": "click."})),
            stop(1),
            start(2, json!({"type": "tool_use", "id": "a", "name": "click", "input": {}})),
            delta(2, json!({"type": "input_json_delta", "partial_json": "{}"})),
            stop(2),
        ];
        let blocks: Vec<_> = events.iter().map(|(name, body)| (name.as_str(), body.clone())).collect();
        assert_eq!(blocks[1..12], expected);
        assert_eq!((&events[0].1["message"]["content"], events[13].0.as_str()), (&json!([]), "message_stop"));
        assert_eq!(events[12].1["delta"], json!({"stop_reason": "tool_use", "stop_sequence": null}));
        let hidden = sent(false, run);
        assert_eq!(hidden[1].1["content_block"]["type"], "text", "a client that did not ask for it gets no thinking");
    }

    #[test]
    fn the_calls_of_a_paused_run_are_the_last_blocks() {
        let call =
            json!({"id": "p", "call_id": "a", "tool": "pay", "expires_at": "later", "url": "https://gateway.test/p"});
        let paused = Event::Approval(serde_json::from_value(call.clone()).unwrap());
        let finished = Event::Finished { reason: FinishReason::ApprovalRequired, messages: Vec::new() };
        let events = sent(false, vec![Event::Content { text: "Let me see.".into() }, paused, finished]);
        let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["content_block_start", "content_block_stop", "message_delta", "message_stop"];
        assert_eq!(names[4..], expected, "{events:?}");
        let block = json!({"type": "server_tool_use", "id": "a", "name": "pay", "input": {}});
        assert_eq!((&events[4].1["index"], &events[4].1["content_block"]), (&json!(1), &block));
        assert_eq!(events[6].1["delta"]["stop_reason"], "pause_turn");
        assert_eq!(events[6].1["approvals"], json!([call]));
    }

    #[test]
    fn a_run_that_fails_ends_with_an_error() {
        let failed = Event::Error(RunError::from(&ModelError::Timeout));
        let events = sent(false, vec![Event::Content { text: "It".into() }, failed]);
        let (name, body) = events.last().unwrap();
        assert_eq!((name.as_str(), &body["error"]["type"]), ("error", &json!("timeout_error")));
        assert_eq!(events[events.len() - 2].0, "content_block_stop");
    }
}
