//! The run of an agent as a file: the answers of its model and its tools are recorded while it runs, and played again.

mod profile;
mod replay;

use std::fmt;
use std::sync::Arc;

use async_stream::stream;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::message::Image;
use super::models::{ModelChunk, ModelError, ModelRequest};
use super::toolbox::{ToolAnswer, ToolboxCall, ToolboxUnreachable};
use super::{CallIds, FinishReason, Message, ModelOptions, Summarizer, ToolDescription, Toolbox};
use sekisho_config::AgentProfile;
use sekisho_core::run_file::{
    AgentInput, ModelAnswer, RecordedError, RunEnd, RunHeader, RunLine, RunLines, ToolCall, ToolOutput, digest_of,
};

pub use self::replay::{Change, Difference, Further, NotReplayable, Replayed, replay};

/// The key of the line with the input.
const INPUT: &str = "input";

/// The record of one run while it goes on.
pub struct RunRecord {
    /// Complete once the tools are listed.
    input: Mutex<AgentInput>,
    lines: Mutex<RunLines>,
}

/// The beginning of a run that is recorded.
#[derive(Debug, Clone, Copy)]
pub struct RecordedBeginning<'a> {
    pub profile: &'a AgentProfile,
    pub summarizer: Option<&'a Summarizer>,
    pub messages: &'a [Message],
    pub options: &'a ModelOptions,
    pub client_tools: &'a [ToolDescription],
    pub pauses: bool,
}

impl RunRecord {
    /// At most so many bytes: a run with more is not kept.
    pub fn new(begun: RecordedBeginning<'_>, max_bytes: usize) -> Arc<Self> {
        let summarizer = begun.summarizer.map(
            |Summarizer { profile, prompt, .. }| json!({"profile": profile::settings_of(profile), "prompt": prompt}),
        );
        let input = AgentInput {
            profile: profile::settings_of(begun.profile),
            summarizer,
            messages: begun.messages.iter().map(value_of).collect(),
            options: value_of(begun.options),
            tools: Vec::new(),
            client_tools: begun.client_tools.iter().map(value_of).collect(),
            pauses: begun.pauses,
            call_ids_seed: format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()),
        };
        let mut lines = RunLines::new(max_bytes);
        lines.put(INPUT.to_owned(), &RunLine::AgentInput(input.clone()));
        Arc::new(Self { input: Mutex::new(input), lines: Mutex::new(lines) })
    }

    /// The ids of its calls.
    pub fn call_ids(&self) -> CallIds {
        CallIds::seeded(&self.input.lock().call_ids_seed)
    }

    /// The answer to a request, recorded as it comes. Of one that is sent again, the last answer counts.
    pub(super) fn answers<'a>(
        self: Arc<Self>,
        request: &ModelRequest,
        mut pieces: BoxStream<'a, Result<ModelChunk, ModelError>>,
    ) -> BoxStream<'a, Result<ModelChunk, ModelError>> {
        let request_sha256 = request_digest(request);
        let cut = RecordedError { code: ModelError::Timeout.code(), message: "the answer was cut off".to_owned() };
        let mut answer = ModelAnswer { request_sha256, chunks: Vec::new(), error: Some(cut) };
        self.put_answer(&answer);
        stream! {
            let mut text = Joined::default();
            while let Some(piece) = pieces.next().await {
                match &piece {
                    Ok(chunk) => answer.chunks.extend(text.add(chunk).iter().map(value_of)),
                    Err(error) => {
                        answer.chunks.extend(text.take().iter().map(value_of));
                        answer.error = Some(RecordedError { code: error.code(), message: error.to_string() });
                        self.put_answer(&answer);
                    }
                }
                if matches!(piece, Ok(ModelChunk::End { .. })) {
                    answer.error = None;
                    self.put_answer(&answer);
                }
                yield piece;
            }
            if answer.error.is_some() {
                answer.chunks.extend(text.take().iter().map(value_of));
                self.put_answer(&answer);
            }
        }
        .boxed()
    }

    fn put_answer(&self, answer: &ModelAnswer) {
        let key = format!("request {}", answer.request_sha256);
        self.lines.lock().put(key, &RunLine::ModelAnswer(answer.clone()));
    }

    /// A toolbox whose list and whose answers are recorded.
    pub fn over(self: &Arc<Self>, toolbox: Arc<dyn Toolbox>) -> Arc<dyn Toolbox> {
        Arc::new(Recorded { toolbox, record: Arc::clone(self) })
    }

    /// The text of the file, once; `None` if the run is too large.
    pub fn end(&self, header: RunHeader, reason: FinishReason, messages: &[Message]) -> Option<String> {
        self.lines.lock().end(header, run_end(reason, messages))
    }
}

/// Joins the chunks of a text.
#[derive(Debug, Default)]
struct Joined(Option<ModelChunk>);

impl Joined {
    /// The chunks that are complete by now.
    fn add(&mut self, chunk: &ModelChunk) -> Vec<ModelChunk> {
        match (&mut self.0, chunk) {
            // They only show that the model is at work.
            (_, ModelChunk::Fragment { .. } | ModelChunk::Retry { .. }) => return Vec::new(),
            (Some(ModelChunk::Text(text)), ModelChunk::Text(more))
            | (Some(ModelChunk::Thinking(text)), ModelChunk::Thinking(more)) => {
                text.push_str(more);
                return Vec::new();
            }
            _ => {}
        }
        let before = self.0.replace(chunk.clone());
        let last = matches!(chunk, ModelChunk::End { .. }).then(|| self.0.take()).flatten();
        before.into_iter().chain(last).collect()
    }

    fn take(&mut self) -> Vec<ModelChunk> {
        self.0.take().into_iter().collect()
    }
}

struct Recorded {
    toolbox: Arc<dyn Toolbox>,
    record: Arc<RunRecord>,
}

impl Toolbox for Recorded {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async move {
            let listed = self.toolbox.list().await;
            if let Ok(tools) = &listed {
                let mut input = self.record.input.lock();
                input.tools = tools.iter().map(value_of).collect();
                self.record.lines.lock().put(INPUT.to_owned(), &RunLine::AgentInput(input.clone()));
            }
            listed
        })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        Box::pin(async move {
            let (id, tool, arguments) = (call.id.clone(), call.tool.clone(), call.arguments.clone());
            let answer = self.toolbox.call(call).await;
            let line = ToolCall { id, tool, arguments, answer: output_of(&answer) };
            self.record.lines.lock().put(format!("call {}", line.id), &RunLine::ToolCall(line));
            answer
        })
    }
}

/// The digest of a request to a model: of all that its provider gets.
fn request_digest(request: &ModelRequest) -> String {
    let ModelRequest { purpose, messages, tools, options, max_tokens, accepted: _ } = request;
    digest_of(&(purpose, messages, tools, options, max_tokens))
}

/// The end of a run, with the digest of the messages that it added.
fn run_end(reason: FinishReason, messages: &[Message]) -> RunEnd {
    let result_sha256 = Some(digest_of(&(reason.as_str(), messages)));
    RunEnd { reason: reason.as_str().to_owned(), result_sha256 }
}

fn output_of(answer: &ToolAnswer) -> ToolOutput {
    let ToolAnswer { success, text, error_info, images } = answer;
    let images = images.iter().map(value_of).collect();
    ToolOutput { success: *success, text: text.clone(), error_info: error_info.clone(), images }
}

/// Errors: an image that is none.
fn answer_of(output: &ToolOutput) -> Result<ToolAnswer, serde_json::Error> {
    let ToolOutput { success, text, error_info, images } = output.clone();
    let images = images.into_iter().map(serde_json::from_value).collect::<Result<Vec<Image>, _>>()?;
    Ok(ToolAnswer { success, text, error_info, images })
}

/// Never fails for the types of this crate: no map of theirs has keys that are not strings.
fn value_of(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

impl fmt::Debug for RunRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RunRecord").finish_non_exhaustive()
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Recorded").finish_non_exhaustive()
    }
}
