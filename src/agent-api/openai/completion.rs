//! A run in the form of OpenAI's chat completions
//! (<https://platform.openai.com/docs/api-reference/chat>): streamed as chunks, or complete.

use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::model_api::encoder::Encoder;
use crate::model_api::output::{DeltaKind, Output, OutputChange, OutputPart, notice};
use crate::openai::OpenAiProblem;
use sekisho_agent::prompts::beginning;
use sekisho_agent::{PausedCall, RunUsage};

/// Maximum characters of text in one chunk: proxies forward small chunks at once (A32).
const MAX_PIECE: usize = 50;

/// The common fields of every chunk of one completion, and of the completion itself.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Heading {
    id: String,
    object: &'static str,
    /// Seconds since 1970.
    created: i64,
    model: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Chunk {
    #[serde(flatten)]
    heading: Heading,
    choices: Vec<ChunkChoice>,
    /// In the last chunk of a run that failed after its first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<OpenAiProblem>,
    /// `null` except in the last chunk; sent only if requested with `stream_options.include_usage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Debug, Serialize, ToSchema)]
struct ChunkChoice {
    index: u32,
    delta: Delta,
    finish_reason: Option<FinishReason>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    /// An extension: the calls for which the run is paused until a person decides. A client sends the message back with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<PausedCall>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Completion {
    #[serde(flatten)]
    heading: Heading,
    choices: Vec<Choice>,
    usage: Usage,
}

#[derive(Debug, Serialize, ToSchema)]
struct Choice {
    index: u32,
    message: ReplyMessage,
    finish_reason: FinishReason,
}

#[derive(Debug, Serialize, ToSchema)]
struct ReplyMessage {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall>,
    /// An extension: the calls for which the run is paused until a person decides. A client sends the message back with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    approvals: Vec<PausedCall>,
}

/// A call of a tool that the client runs itself.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct ToolCall {
    /// Only in chunks: the call that a fragment belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    id: String,
    r#type: &'static str,
    function: Function,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct Function {
    name: String,
    /// JSON in a text, as the model wrote it.
    arguments: String,
}

#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
// The replies of tools have a usage of their own.
#[schema(as = CompletionUsage)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptTokensDetails,
}

#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
struct PromptTokensDetails {
    /// Read from the provider's cache.
    cached_tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FinishReason {
    Stop,
    Length,
    ToolCalls,
    ContentFilter,
    /// The run is paused: see `approvals`. OpenAI has no name for it.
    ApprovalRequired,
    /// The run failed; OpenAI has no name for it.
    Error,
}

/// Turns the output of one run into chunks.
#[derive(Debug)]
pub(crate) struct ChunkEncoder {
    heading: Heading,
    include_usage: bool,
    /// The number of calls of the client's tools so far.
    calls: usize,
}

impl Encoder for ChunkEncoder {
    type Item = Chunk;

    /// The first chunk, with the role.
    fn opening(&mut self) -> Vec<Chunk> {
        vec![self.chunk(Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() })]
    }

    fn encode(&mut self, change: OutputChange) -> Vec<Chunk> {
        match change {
            OutputChange::Grew(_, DeltaKind::Text | DeltaKind::Notice, text) => self.text(&text),
            OutputChange::Separated(separator) => self.text(separator),
            OutputChange::Ended(_, OutputPart::Call { id, name, arguments }) => {
                let call = ToolCall { index: Some(self.calls), ..tool_call(id, name, arguments) };
                self.calls += 1;
                vec![self.chunk(Delta { tool_calls: vec![call], ..Delta::default() })]
            }
            // A70: the content sent before remains valid, and the reader gets the reason for the end.
            OutputChange::Failed(message) => self.text(&notice(&message)),
            _ => Vec::new(),
        }
    }

    /// The last chunks: the reason of the end with all calls that wait, which clients do not join from several chunks; and, if
    /// requested, the usage.
    fn closing(&mut self, output: &Output) -> Vec<Chunk> {
        let delta = Delta { approvals: output.approvals.clone(), ..Delta::default() };
        let choices = vec![ChunkChoice { index: 0, delta, finish_reason: Some(FinishReason::of(output.finish)) }];
        let error = output.failure.as_ref().map(OpenAiProblem::of);
        let last = Chunk { choices, error, ..self.chunk(Delta::default()) };
        let usage = self.include_usage.then(|| {
            let usage = Some(Some(Usage::of(&output.usage)));
            Chunk { choices: Vec::new(), usage, ..self.chunk(Delta::default()) }
        });
        [last].into_iter().chain(usage).collect()
    }
}

impl ChunkEncoder {
    pub(crate) fn new(model: &str, include_usage: bool) -> Self {
        Self { heading: heading("chat.completion.chunk", model), include_usage, calls: 0 }
    }

    /// An empty chunk, so that the connection is not idle (A33).
    pub(crate) fn keep_alive(&self) -> Chunk {
        self.chunk(Delta { content: Some(String::new()), ..Delta::default() })
    }

    fn text(&self, text: &str) -> Vec<Chunk> {
        pieces(text).map(|piece| self.chunk(Delta { content: Some(piece.into()), ..Delta::default() })).collect()
    }

    fn chunk(&self, delta: Delta) -> Chunk {
        Chunk {
            heading: self.heading.clone(),
            choices: vec![ChunkChoice { index: 0, delta, finish_reason: None }],
            error: None,
            usage: self.include_usage.then_some(None),
        }
    }
}

impl Completion {
    /// The output of a whole run.
    pub(crate) fn of(model: &str, output: Output) -> Self {
        let (text, finish_reason, usage) = (output.text(), FinishReason::of(output.finish), Usage::of(&output.usage));
        let calls = output.parts.into_iter().filter_map(|part| match part {
            OutputPart::Call { id, name, arguments } => Some(tool_call(id, name, arguments)),
            OutputPart::Text(_) | OutputPart::Thinking(_) => None,
        });
        let tool_calls: Vec<_> = calls.collect();
        let content = (tool_calls.is_empty() || !text.is_empty()).then_some(text);
        let message = ReplyMessage { role: "assistant", content, tool_calls, approvals: output.approvals };
        Self {
            heading: heading("chat.completion", model),
            choices: vec![Choice { index: 0, message, finish_reason }],
            usage,
        }
    }
}

impl FinishReason {
    fn of(reason: sekisho_agent::FinishReason) -> Self {
        match reason {
            // An abort is already in the text.
            sekisho_agent::FinishReason::Stop | sekisho_agent::FinishReason::Aborted => Self::Stop,
            sekisho_agent::FinishReason::Error => Self::Error,
            sekisho_agent::FinishReason::Length | sekisho_agent::FinishReason::Limit => Self::Length,
            sekisho_agent::FinishReason::ToolCalls => Self::ToolCalls,
            sekisho_agent::FinishReason::ApprovalRequired => Self::ApprovalRequired,
            sekisho_agent::FinishReason::Refusal => Self::ContentFilter,
        }
    }
}

impl Usage {
    fn of(run: &RunUsage) -> Self {
        let RunUsage { prompt_tokens, completion_tokens, cached_tokens, .. } = *run;
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            prompt_tokens_details: PromptTokensDetails { cached_tokens },
        }
    }
}

fn heading(object: &'static str, model: &str) -> Heading {
    let id = format!("chatcmpl-{}", Uuid::now_v7().simple());
    Heading { id, object, created: jiff::Timestamp::now().as_second(), model: model.to_owned() }
}

fn tool_call(id: String, name: String, arguments: String) -> ToolCall {
    ToolCall { index: None, id, r#type: "function", function: Function { name, arguments } }
}

fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let piece = beginning(rest, MAX_PIECE);
        rest = rest.get(piece.len()..).unwrap_or_default();
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests;
