//! The content of a request to a model and of its answer, as an event of its span, for operators who ask for it. Findings of detectors
//! in its texts are masked.

use serde_json::{Value, json};
use tracing::Span;

use crate::message::{AssistantTurn, Message, RequestedCall, TurnPart, UserPart};
use crate::models::{ModelChunk, ModelError, ModelRequest};
use crate::prompts::beginning;
use sekisho_calls::transform::masked;
use sekisho_observe::telemetry;

/// Bytes of the prompts, of the latest messages, and of the parts of one: those that fit.
const MAX_BYTES: usize = 65_536;

/// Characters of a text in an event.
const MAX_TEXT: usize = 16_384;

/// The content of one request, by the semantic conventions for generative AI. Thoughts, images and files are left out.
#[derive(Debug)]
pub(super) struct TracedContent {
    instructions: Vec<Value>,
    input: Vec<Value>,
    output: AssistantTurn,
}

impl TracedContent {
    pub(super) fn of(request: &ModelRequest) -> Self {
        let prompts = request.messages.iter().filter_map(Message::as_system);
        let mut input = fitting(request.messages.iter().rev().filter_map(described));
        input.reverse();
        Self { instructions: fitting(prompts.map(text)), input, output: AssistantTurn::default() }
    }

    /// Adds a piece of the answer; its end writes the event.
    pub(super) fn add(&mut self, span: &Span, piece: &Result<ModelChunk, ModelError>) {
        match piece {
            Ok(ModelChunk::Text(text)) => self.output.push_text(text),
            Ok(ModelChunk::Call(call)) => self.output.parts.push(TurnPart::Call(call.clone())),
            Ok(ModelChunk::End { stop, .. }) => {
                let answer =
                    json!([{"role": "assistant", "parts": parts(&self.output), "finish_reason": stop.as_str()}]);
                let [instructions, input] = [&self.instructions, &self.input].map(|list| json!(list).to_string());
                telemetry::content_event(span, instructions, input, answer.to_string());
            }
            _ => {}
        }
    }
}

/// The first ones that fit, and at least one.
fn fitting(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut bytes = 0;
    let fits = |(place, value): &(usize, Value)| {
        bytes += value.to_string().len();
        *place == 0 || bytes <= MAX_BYTES
    };
    values.enumerate().take_while(fits).map(|(_, value)| value).collect()
}

fn described(message: &Message) -> Option<Value> {
    let (role, parts) = match message {
        Message::System(_) => return None,
        Message::User(message) => {
            let texts = message.parts.iter().filter_map(|part| match part {
                UserPart::Text(said) => Some(text(said)),
                UserPart::Image(_) | UserPart::File(_) => None,
            });
            ("user", fitting(texts))
        }
        Message::Assistant(turn) => ("assistant", parts(turn)),
        Message::Tool(result) => {
            let response = json!({"type": "tool_call_response", "id": result.call_id, "response": cut(&result.text)});
            ("tool", vec![response])
        }
    };
    Some(json!({"role": role, "parts": parts}))
}

fn parts(turn: &AssistantTurn) -> Vec<Value> {
    let call = |call: &RequestedCall| {
        let (name, arguments) = (cut(&call.tool), cut(&call.arguments));
        json!({"type": "tool_call", "id": call.id, "name": name, "arguments": arguments})
    };
    let part = |part: &TurnPart| match part {
        TurnPart::Text(said) => Some(text(said)),
        TurnPart::Call(requested) => Some(call(requested)),
        TurnPart::Thought(_) => None,
    };
    fitting(turn.parts.iter().filter_map(part))
}

fn text(said: &str) -> Value {
    json!({"type": "text", "content": cut(said)})
}

/// Masked before it is cut: a part of a secret is none that a detector finds.
fn cut(text: &str) -> String {
    beginning(&masked(text), MAX_TEXT).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_messages_are_kept_and_long_texts_are_cut() {
        let said = |number: usize| Message::User(format!("{number} {}", "x".repeat(20_000)).as_str().into());
        let messages = [vec![Message::System("be brief".into())], (0..10).map(said).collect()].concat();
        let content = TracedContent::of(&ModelRequest { messages, ..ModelRequest::default() });
        assert_eq!(content.instructions, [json!({"type": "text", "content": "be brief"})]);
        assert_eq!(content.input.len(), 3, "as many as fit");
        let last = content.input[2]["parts"][0]["content"].as_str().unwrap();
        assert!(last.starts_with("9 ") && last.len() == MAX_TEXT, "{}", last.len());
    }

    #[test]
    fn names_and_arguments_of_calls_are_masked_and_as_many_as_fit_are_kept() {
        let arguments = r#"{"password": "correct-horse"}"#;
        let call = |number: usize| RequestedCall::new(number.to_string(), "ann@example.com".into(), arguments.into());
        let calls = parts(&AssistantTurn::new("", (0..2_000).map(call)));
        let masked = r#"{"password": "[masked]"}"#;
        assert_eq!(calls[0], json!({"type": "tool_call", "id": "0", "name": "[masked]", "arguments": masked}));
        assert!((100..2_000).contains(&calls.len()), "{}", calls.len());
    }
}
