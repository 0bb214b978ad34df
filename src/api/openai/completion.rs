//! A run in the form of OpenAI's chat completions
//! (<https://platform.openai.com/docs/api-reference/chat>): streamed as chunks, or complete.

use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::model_api::output::{Output, OutputPart, notice};
use crate::openai::OpenAiProblem;
use sekisho_agent::prompts::beginning;
use sekisho_agent::{Event, PausedCall, RunUsage};
use sekisho_core::error::CallError;

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

/// Turns the events of one run into chunks.
#[derive(Debug)]
pub(crate) struct ChunkEncoder {
    heading: Heading,
    include_usage: bool,
    calls: usize,
    approvals: Vec<PausedCall>,
    finish: FinishReason,
    failure: Option<CallError>,
    usage: Usage,
}

impl ChunkEncoder {
    pub(crate) fn new(model: &str, include_usage: bool) -> Self {
        Self {
            heading: heading("chat.completion.chunk", model),
            include_usage,
            calls: 0,
            approvals: Vec::new(),
            finish: FinishReason::Stop,
            failure: None,
            usage: Usage::default(),
        }
    }

    /// The first chunk, with the role.
    pub(crate) fn opening(&self) -> Chunk {
        self.chunk(Delta { role: Some("assistant"), content: Some(String::new()), ..Delta::default() })
    }

    /// An empty chunk, so that the connection is not idle (A33).
    pub(crate) fn keep_alive(&self) -> Chunk {
        self.chunk(Delta { content: Some(String::new()), ..Delta::default() })
    }

    /// The chunks of an event; none for calls that the gateway makes.
    pub(crate) fn chunks(&mut self, event: Event) -> Vec<Chunk> {
        match event {
            Event::Content { text } => self.text(&text),
            Event::ClientToolCall { id, tool_name, arguments } => {
                let call = ToolCall { index: Some(self.calls), ..tool_call(id, tool_name, arguments) };
                self.calls += 1;
                vec![self.chunk(Delta { tool_calls: vec![call], ..Delta::default() })]
            }
            // A70: the content sent before remains valid, and the reader gets the reason for the end.
            Event::Error(error) => {
                let notice = self.text(&notice(&error.message));
                self.failure = Some(error.into());
                notice
            }
            Event::Status { message, .. } => self.text(&notice(&message)),
            Event::Approval(call) => {
                self.approvals.push(call);
                Vec::new()
            }
            Event::Finished { reason, .. } => {
                self.finish = FinishReason::of(reason);
                // A run that ended otherwise does not go on with them.
                self.approvals.retain(|_| reason.is_pause());
                Vec::new()
            }
            Event::Usage(usage) => {
                self.usage = Usage::of(&usage);
                Vec::new()
            }
            Event::Thinking { .. }
            | Event::Resumed { .. }
            | Event::Compacted { .. }
            | Event::Retry { .. }
            | Event::ToolInput { .. }
            | Event::ToolResult { .. }
            | Event::ToolError { .. }
            | Event::SubAgentBegin { .. }
            | Event::SubAgentText { .. }
            | Event::SubAgentEnd { .. }
            | Event::PartFailed(_)
            | Event::Plan { .. }
            | Event::Step { .. }
            | Event::Evaluation { .. }
            | Event::Node { .. } => Vec::new(),
        }
    }

    /// The last chunks: the reason of the end with all calls that wait, which clients do not join from several chunks; and, if
    /// requested, the usage.
    pub(crate) fn closing(&self) -> Vec<Chunk> {
        let delta = Delta { approvals: self.approvals.clone(), ..Delta::default() };
        let mut last = Chunk { error: self.failure.as_ref().map(OpenAiProblem::of), ..self.chunk(delta) };
        for choice in &mut last.choices {
            choice.finish_reason = Some(self.finish);
        }
        let usage = self.include_usage.then(|| Chunk {
            heading: self.heading.clone(),
            choices: Vec::new(),
            error: None,
            usage: Some(Some(self.usage)),
        });
        [last].into_iter().chain(usage).collect()
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
