//! The content of a request to a model and of its answer, as an event of its span, for operators who ask for it. Findings of detectors
//! in its texts are masked.

use serde_json::{Value, json};
use tracing::Span;

use crate::message::{AssistantTurn, Message, RequestedCall, TurnPart, UserPart};
use crate::models::{ModelChunk, ModelError, ModelRequest};
use crate::prompts::beginning;
use sekisho_calls::transform::masked;
use sekisho_observe::telemetry;

/// Bytes of the messages in an event: the latest ones that fit.
const MAX_MESSAGES: usize = 65_536;

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
        let (mut input, mut bytes) = (Vec::new(), 0);
        for message in request.messages.iter().rev().filter_map(described) {
            bytes += message.to_string().len();
            if bytes > MAX_MESSAGES && !input.is_empty() {
                break;
            }
            input.push(message);
        }
        input.reverse();
        let prompts = request.messages.iter().filter_map(Message::as_system);
        Self { instructions: prompts.map(text).collect(), input, output: AssistantTurn::default() }
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

fn described(message: &Message) -> Option<Value> {
    let (role, parts) = match message {
        Message::System(_) => return None,
        Message::User(message) => {
            let texts = message.parts.iter().filter_map(|part| match part {
                UserPart::Text(said) => Some(text(said)),
                UserPart::Image(_) | UserPart::File(_) => None,
            });
            ("user", texts.collect())
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
    let call = |RequestedCall { id, tool, arguments, .. }: &RequestedCall| json!({"type": "tool_call", "id": id, "name": tool, "arguments": cut(arguments)});
    let part = |part: &TurnPart| match part {
        TurnPart::Text(said) => Some(text(said)),
        TurnPart::Call(requested) => Some(call(requested)),
        TurnPart::Thought(_) => None,
    };
    turn.parts.iter().filter_map(part).collect()
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
}
