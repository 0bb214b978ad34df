//! Assembles a turn from a provider's events.

mod partial_thought;

use self::partial_thought::PartialThought;
use super::lenient::Oddity;
use super::think_tags::{TaggedPiece, ThinkTags};
use crate::message::{Extras, RequestedCall};
use crate::meter::tokens_of;
use crate::models::{ModelChunk, ModelError, StopReason};
use sekisho_calls::budget::ModelUsage;

/// Maximum bytes of an answer; `max_tokens` limits a valid one far below.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Maximum number of calls, and of thoughts, in one turn.
const MAX_PARTS: usize = 256;

/// The place of reasoning between tags.
const TAGGED: u64 = u64::MAX - 1;

/// Takes the output of a provider's decoder, in the order of its events, and emits chunks as early as possible.
#[derive(Debug)]
pub(in crate::models) struct TurnAssembler {
    pieces: Vec<ModelChunk>,
    /// The calls that are not emitted yet.
    calls: Vec<PartialToolCall>,
    /// How many were.
    released: usize,
    thoughts: Vec<PartialThought>,
    bytes: usize,
    has_text: bool,
    stop: Option<StopReason>,
    over: bool,
    usage: ModelUsage,
    /// Estimated tokens of the request, for servers that report no usage.
    prompt_tokens: u64,
    /// Maximum tokens of the turn.
    max_tokens: u32,
    /// Of a server that may leave the reasoning in the text.
    tags: ThinkTags,
    /// The field of thoughts without a signature, where the provider takes them back.
    unsigned: Option<&'static str>,
    /// The places of blocks of an unknown type.
    skipped: Vec<u64>,
    /// How the answer deviates from its protocol, each kind once.
    oddities: Vec<Oddity>,
    /// How many of these were taken.
    taken_oddities: usize,
}

/// A call, and the index that its fragments name.
#[derive(Debug)]
struct PartialToolCall {
    place: u64,
    call: RequestedCall,
    /// Whether its block has ended.
    ended: bool,
    /// Whether arguments may have begun again.
    examined: bool,
}

/// A fragment of a call, as a provider's decoder reads it.
#[derive(Debug, Default)]
pub(in crate::models) struct CallFragment {
    pub(in crate::models) place: u64,
    pub(in crate::models) id: Option<String>,
    pub(in crate::models) tool: Option<String>,
    pub(in crate::models) arguments: String,
    pub(in crate::models) extras: Extras,
}

impl TurnAssembler {
    pub(super) fn new(prompt_tokens: u64, max_tokens: u32) -> Self {
        Self {
            pieces: Vec::new(),
            calls: Vec::new(),
            released: 0,
            thoughts: Vec::new(),
            bytes: 0,
            has_text: false,
            stop: None,
            over: false,
            usage: ModelUsage::default(),
            prompt_tokens,
            max_tokens,
            tags: ThinkTags::default(),
            unsigned: None,
            skipped: Vec::new(),
            oddities: Vec::new(),
            taken_oddities: 0,
        }
    }

    /// For a provider that takes thoughts without a signature back, in the field of this name.
    pub(super) fn with_unsigned(self, unsigned: Option<&'static str>) -> Self {
        Self { unsigned, ..self }
    }

    /// The answer deviates from its protocol.
    pub(in crate::models) fn odd(&mut self, oddity: Oddity) {
        if !self.oddities.contains(&oddity) {
            self.oddities.push(oddity);
        }
    }

    /// The oddities since the last time.
    pub(super) fn take_oddities(&mut self) -> Vec<Oddity> {
        let fresh = self.oddities.get(self.taken_oddities..).unwrap_or_default().to_vec();
        self.taken_oddities = self.oddities.len();
        fresh
    }

    /// Whether nothing of an answer has arrived yet.
    pub(in crate::models) fn is_silent(&self) -> bool {
        self.bytes == 0
    }

    /// Whether some of the text has arrived.
    pub(in crate::models) fn has_text(&self) -> bool {
        self.has_text
    }

    /// A block of a type that is not known begins: its fragments are no call's.
    pub(in crate::models) fn skip(&mut self, place: u64) {
        if self.skipped.len() < MAX_PARTS {
            self.skipped.push(place);
        }
    }

    pub(in crate::models) fn is_skipped(&self, place: u64) -> bool {
        self.skipped.contains(&place)
    }

    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`].
    pub(in crate::models) fn text(&mut self, text: String) -> Result<(), ModelError> {
        self.count(text.len())?;
        if !text.is_empty() {
            self.has_text = true;
            self.release_ended_calls();
            self.pieces.push(ModelChunk::Text(text));
        }
        Ok(())
    }

    /// A text that may begin with reasoning between `<think>` and `</think>`.
    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`].
    pub(in crate::models) fn tagged_text(&mut self, text: &str) -> Result<(), ModelError> {
        for piece in self.tags.feed(text) {
            match piece {
                TaggedPiece::Text(text) => self.text(text)?,
                TaggedPiece::Thinking(text) => self.thinking(TAGGED, text)?,
            }
        }
        Ok(())
    }

    /// Reasoning that is shown, and stored in the thought at its index.
    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`].
    pub(in crate::models) fn thinking(&mut self, place: u64, text: String) -> Result<(), ModelError> {
        self.count(text.len())?;
        self.thought(place)?.text.push_str(&text);
        if !text.is_empty() {
            self.pieces.push(ModelChunk::Thinking(text));
        }
        Ok(())
    }

    /// Reasoning that is shown, and sent back in the field of this name.
    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`].
    pub(in crate::models) fn reasoning(&mut self, field: &'static str, text: String) -> Result<(), ModelError> {
        self.thinking(0, text)?;
        self.thought(0)?.field = Some(field);
        Ok(())
    }

    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`].
    pub(in crate::models) fn signature(&mut self, place: u64, fragment: &str) -> Result<(), ModelError> {
        self.count(fragment.len())?;
        self.thought(place)?.signature.push_str(fragment);
        Ok(())
    }

    /// Encrypted reasoning, to be sent back to the provider.
    /// Errors: the answer is longer than [`MAX_ANSWER_BYTES`].
    pub(in crate::models) fn redacted(&mut self, place: u64, fragment: &str) -> Result<(), ModelError> {
        self.count(fragment.len())?;
        self.thought(place)?.redacted.push_str(fragment);
        Ok(())
    }

    /// A block of the answer has ended: a thought or a call, with its place among the others.
    pub(in crate::models) fn end_block(&mut self, place: u64) {
        if let Some(call) = self.calls.iter_mut().rfind(|joining| joining.place == place) {
            call.ended = true;
        }
        self.end_thought(place);
    }

    /// A thought is complete. It keeps its place before the text that follows it.
    pub(in crate::models) fn end_thought(&mut self, place: u64) {
        if let Some(index) = self.thoughts.iter().position(|thought| thought.place == place) {
            let thought = self.thoughts.remove(index).whole();
            if thought.is_some() {
                self.release_ended_calls();
            }
            self.pieces.extend(thought.map(ModelChunk::Thought));
        }
    }

    /// A fragment of the call at an index. Without a name it continues the call there, preferably the one with its id. A new
    /// call begins with a different id, since some servers give every call the same index; or, where the server sends no ids,
    /// with a name after complete arguments. A name may arrive in several fragments, or after the id.
    /// Errors: the call never began, or the answer is longer than [`MAX_ANSWER_BYTES`].
    pub(in crate::models) fn call(&mut self, fragment: CallFragment) -> Result<(), ModelError> {
        let CallFragment { place, id, tool, arguments, extras } = fragment;
        let (id, tool) = (id.unwrap_or_default(), tool.unwrap_or_default());
        let extra: usize = extras.values().map(|extra| extra.to_string().len()).sum();
        self.count(id.len() + tool.len() + arguments.len() + extra)?;
        let bytes = arguments.len();
        let count = self.calls.len() + self.released;
        let last = |id: Option<&str>| {
            let is_it = |joining: &PartialToolCall| id.is_none_or(|id| joining.call.id == id);
            self.calls.iter().rposition(|joining| joining.place == place && is_it(joining))
        };
        let index = last(Some(id.as_str()).filter(|id| !id.is_empty())).or_else(|| last(None));
        let known = index.and_then(|index| self.calls.get_mut(index));
        match known {
            Some(joining) if tool.is_empty() || continues(&joining.call, &id) => {
                let oddity = joining.extend(&tool, &arguments, extras);
                oddity.into_iter().for_each(|oddity| self.odd(oddity));
            }
            // It has nothing but its place.
            _ if tool.is_empty() && id.is_empty() && arguments.is_empty() => {}
            _ if tool.is_empty() && id.is_empty() => {
                return Err(ModelError::Garbled("a piece of a tool call that never began".into()));
            }
            _ if count >= MAX_PARTS => {
                return Err(ModelError::Garbled(format!("it has more than {MAX_PARTS} tool calls")));
            }
            _ => {
                let call = RequestedCall { extras, ..RequestedCall::new(id, tool, arguments) };
                self.calls.push(PartialToolCall { place, call, ended: false, examined: false });
            }
        }
        // An empty fragment does not show that the model is working.
        if bytes > 0 {
            self.pieces.push(ModelChunk::Fragment { bytes });
        }
        Ok(())
    }

    /// Whether arguments of the call with this id have arrived at an index, where some servers put several calls.
    pub(in crate::models) fn has_arguments(&self, place: u64, id: &str) -> bool {
        let is_it = |joining: &&PartialToolCall| joining.place == place && (!joining.ended || joining.call.id == id);
        self.calls.iter().filter(is_it).any(|joining| !joining.call.arguments.is_empty())
    }

    /// Whether a call has begun at an index, and none of its arguments have arrived.
    pub(in crate::models) fn lacks_arguments(&self, place: u64) -> bool {
        let last = self.calls.iter().rfind(|joining| joining.place == place);
        last.is_some_and(|joining| !joining.ended && joining.call.arguments.is_empty())
    }

    /// The stop reason: after it only usage follows.
    pub(in crate::models) fn stop(&mut self, reason: StopReason) {
        // A refusal is not replaced by a later reason.
        if self.stop != Some(StopReason::Refusal) {
            self.stop = Some(reason);
        }
    }

    /// Usage so far; a later report replaces an earlier one.
    pub(in crate::models) fn used(&mut self, prompt_tokens: Option<u64>, completion_tokens: Option<u64>) {
        self.usage.prompt_tokens = prompt_tokens.unwrap_or(self.usage.prompt_tokens);
        self.usage.completion_tokens = completion_tokens.unwrap_or(self.usage.completion_tokens);
    }

    /// Prompt tokens read from the provider's cache and written to it; a later report replaces an earlier one.
    pub(in crate::models) fn cached(&mut self, read: Option<u64>, written: Option<u64>) {
        self.usage.cached_tokens = read.unwrap_or(self.usage.cached_tokens);
        self.usage.cache_write_tokens = written.unwrap_or(self.usage.cache_write_tokens);
    }

    /// The part of the completion's tokens that is reasoning; a later report replaces an earlier one.
    pub(in crate::models) fn reasoned(&mut self, tokens: Option<u64>) {
        self.usage.reasoning_tokens = tokens.unwrap_or(self.usage.reasoning_tokens);
    }

    /// The end of the stream, by the protocol.
    pub(in crate::models) fn end(&mut self) {
        self.over = true;
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the stop reason has arrived, even if the end of the stream has not.
    pub(super) fn is_complete(&self) -> bool {
        self.over || self.stop.is_some()
    }

    /// The chunks that can be emitted now.
    pub(super) fn take_pieces(&mut self) -> impl Iterator<Item = ModelChunk> + use<> {
        std::mem::take(&mut self.pieces).into_iter()
    }

    /// The remaining chunks: the chunks emitted only when complete, and the end. A call whose name never arrived is none.
    pub(super) fn finish(mut self) -> impl Iterator<Item = ModelChunk> {
        self.calls.retain(|joining| !joining.call.tool.is_empty());
        let last = self.tags.rest().map(|piece| match piece {
            TaggedPiece::Text(text) => ModelChunk::Text(text),
            TaggedPiece::Thinking(text) => ModelChunk::Thinking(text),
        });
        let stop = match self.stop {
            Some(stop @ (StopReason::Length | StopReason::Refusal | StopReason::Pause)) => stop,
            _ if self.calls.is_empty() && self.released == 0 => StopReason::Stop,
            // Some servers send `tool_calls` also if the token limit cut them off.
            _ if self.usage.completion_tokens == u64::from(self.max_tokens) => StopReason::Length,
            _ => StopReason::ToolCalls,
        };
        let (prompt_tokens, completion_tokens) = (self.prompt_tokens, tokens_of(self.bytes));
        let guess = ModelUsage { prompt_tokens, completion_tokens, ..ModelUsage::default() };
        // A turn without reported usage is not free.
        let usage = if self.usage == ModelUsage::default() { guess } else { self.usage };
        let thoughts = self.thoughts.into_iter().filter_map(PartialThought::whole);
        let calls = self.calls.into_iter().map(|joining| ModelChunk::Call(joining.call));
        last.into_iter().chain(thoughts.map(ModelChunk::Thought)).chain(calls).chain([ModelChunk::End { stop, usage }])
    }

    /// The calls of ended blocks keep their place before a thought or text that follows them: providers refuse a turn that
    /// comes back in another order. Others wait for the end of the turn, since an answer that is cut off is asked for again.
    fn release_ended_calls(&mut self) {
        let (ended, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.calls).into_iter().partition(|call| call.ended);
        self.calls = open;
        self.released += ended.len();
        self.pieces.extend(ended.into_iter().map(|joining| ModelChunk::Call(joining.call)));
    }

    fn thought(&mut self, place: u64) -> Result<&mut PartialThought, ModelError> {
        let known = self.thoughts.iter().position(|thought| thought.place == place);
        let index = match known {
            Some(index) => index,
            None if self.thoughts.len() >= MAX_PARTS => {
                return Err(ModelError::Garbled(format!("it has more than {MAX_PARTS} thoughts")));
            }
            None => {
                self.thoughts.push(PartialThought { place, field: self.unsigned, ..PartialThought::default() });
                self.thoughts.len() - 1
            }
        };
        Ok(&mut self.thoughts[index])
    }

    fn count(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_ANSWER_BYTES {
            return Err(ModelError::Garbled(format!("it is longer than {MAX_ANSWER_BYTES} bytes")));
        }
        Ok(())
    }
}

impl PartialToolCall {
    /// Adds a fragment. Returns how it deviates from the protocol.
    fn extend(&mut self, tool: &str, arguments: &str, extras: Extras) -> Option<Oddity> {
        let begins_again = self.begins_again(tool, arguments);
        if begins_again {
            self.call.arguments.clear();
        }
        if self.call.arguments.is_empty() && self.call.tool != tool {
            self.call.tool.push_str(tool);
        }
        self.call.arguments.push_str(arguments);
        self.call.extras.extend(extras);
        begins_again.then_some(Oddity::Call)
    }

    /// Whether a fragment follows complete arguments and replaces them: some servers send `{}` first, or the whole arguments
    /// before or after their fragments.
    fn begins_again(&mut self, tool: &str, arguments: &str) -> bool {
        let known = &self.call.arguments;
        // Examined once: a text within arguments may look the same, and a call has many fragments.
        if !(known.ends_with('}') && arguments.starts_with('{')) || std::mem::replace(&mut self.examined, true) {
            return false;
        }
        (tool.is_empty() || known == "{}" || known == arguments) && self.call.read_arguments().is_ok()
    }
}

/// Whether a fragment with a tool's name and this id belongs to the call at its index.
fn continues(call: &RequestedCall, id: &str) -> bool {
    match id {
        "" => call.arguments.is_empty() || call.read_arguments().is_err(),
        id => call.id == id,
    }
}
