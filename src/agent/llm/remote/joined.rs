//! What the library tells of an answer, joined into the pieces of a turn.

use genai::chat::{ChatStreamEvent, ContentPart, CustomPart, MessageContent, StreamEnd, ToolCall, Usage};
use serde_json::Value;

use super::Protocol;
use crate::agent::llm::{ModelChunk, ModelError, ModelUsage, StopReason};
use crate::agent::message::RequestedCall;
use crate::agent::meter::tokens_of;

/// A longer answer is not believed: `max_tokens` bounds an honest one far below.
const LONGEST_ANSWER_BYTES: usize = 4 << 20;

/// Calls of one turn, for the same reason.
const MOST_CALLS: usize = 256;

/// A turn's calls, joined from their fragments, which the library gives on differently for each protocol.
#[derive(Debug)]
pub(super) struct Joined {
    protocol: Protocol,
    calls: Vec<RequestedCall>,
    bytes: usize,
    /// Roughly, for servers that do not say what was used.
    prompt_tokens: u64,
}

impl Joined {
    pub(super) fn new(protocol: Protocol, prompt_tokens: u64) -> Self {
        Self { protocol, calls: Vec::new(), bytes: 0, prompt_tokens }
    }

    pub(super) fn take(&mut self, event: ChatStreamEvent) -> Result<Vec<ModelChunk>, ModelError> {
        Ok(match event {
            ChatStreamEvent::Chunk(chunk) => {
                self.count(chunk.content.len())?;
                vec![ModelChunk::Text(chunk.content)]
            }
            ChatStreamEvent::ReasoningChunk(chunk) => {
                self.count(chunk.content.len())?;
                vec![ModelChunk::Thinking(chunk.content)]
            }
            ChatStreamEvent::ToolCallChunk(chunk) => {
                self.join(chunk.tool_call)?;
                Vec::new()
            }
            // It comes once more, whole, with the end.
            ChatStreamEvent::ThoughtSignatureChunk(chunk) => {
                self.count(chunk.content.len())?;
                Vec::new()
            }
            ChatStreamEvent::End(mut end) => {
                let guess = ModelUsage { prompt_tokens: self.prompt_tokens, completion_tokens: tokens_of(self.bytes) };
                let thinking = thinking_blocks(end.captured_content.take()).map(ModelChunk::ThinkingBlock);
                let end = turn_end(end, self.calls.is_empty(), guess);
                thinking.chain(self.calls.drain(..).map(ModelChunk::Call)).chain([end]).collect()
            }
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat => Vec::new(),
        })
    }

    fn join(&mut self, fragment: ToolCall) -> Result<(), ModelError> {
        let ToolCall { call_id: id, fn_name: tool, fn_arguments, .. } = fragment;
        let Value::String(arguments) = fn_arguments else {
            return Err(ModelError::Garbled("a tool call's arguments are no text".into()));
        };
        let known = match self.calls.iter().position(|call| call.id == id) {
            None if tool.is_empty() => self.by_index(&id),
            found => found,
        };
        if let Some(call) = known.and_then(|index| self.calls.get_mut(index)) {
            let before = call.arguments.len();
            match self.protocol {
                // These fragments come with everything before them.
                Protocol::Anthropic | Protocol::Bedrock => call.arguments = arguments,
                Protocol::Openai => call.arguments.push_str(&arguments),
            }
            let more = call.arguments.len().saturating_sub(before);
            return self.count(more);
        }
        if tool.is_empty() {
            return Err(ModelError::Garbled("a piece of a tool call that never began".into()));
        }
        if self.calls.len() >= MOST_CALLS {
            return Err(ModelError::Garbled(format!("it has more than {MOST_CALLS} tool calls")));
        }
        let bytes = arguments.len();
        self.calls.push(RequestedCall { id, tool, arguments });
        self.count(bytes)
    }

    /// OpenAI's later fragments name their call by its place alone; the library makes `call_<index>` of it.
    fn by_index(&self, id: &str) -> Option<usize> {
        id.strip_prefix("call_")?.parse().ok().filter(|index| *index < self.calls.len())
    }

    fn count(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > LONGEST_ANSWER_BYTES {
            return Err(ModelError::Garbled(format!("it is longer than {LONGEST_ANSWER_BYTES} bytes")));
        }
        Ok(())
    }
}

/// Signed and redacted thinking, in order, in the library's form of each part: providers want it back
/// unchanged.
fn thinking_blocks(captured: Option<MessageContent>) -> impl Iterator<Item = Value> {
    let thinking = |part: ContentPart| match part {
        // The library does not read again the model's name that it writes here.
        ContentPart::Custom(block) => Some(ContentPart::Custom(CustomPart { model_iden: None, ..block })),
        ContentPart::ThoughtSignature(_) | ContentPart::ReasoningContent(_) => Some(part),
        _ => None,
    };
    let parts = captured.map(MessageContent::into_parts).unwrap_or_default();
    parts.into_iter().filter_map(thinking).filter_map(|part| serde_json::to_value(part).ok())
}

fn turn_end(end: StreamEnd, without_calls: bool, guess: ModelUsage) -> ModelChunk {
    use genai::chat::StopReason as Theirs;
    let stop = match end.captured_stop_reason {
        Some(Theirs::MaxTokens(_)) => StopReason::Length,
        Some(Theirs::ContentFilter(_)) => StopReason::Refusal,
        _ if without_calls => StopReason::Stop,
        _ => StopReason::ToolCalls,
    };
    let Usage { prompt_tokens, completion_tokens, .. } = end.captured_usage.unwrap_or_default();
    let tokens = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
    let said = ModelUsage { prompt_tokens: tokens(prompt_tokens), completion_tokens: tokens(completion_tokens) };
    // Not saying is not free.
    let usage = if said == ModelUsage::default() { guess } else { said };
    ModelChunk::End { stop, usage }
}
