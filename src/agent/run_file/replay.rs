//! Plays the run of an agent again: the loop as it is, with the answers of the file in place of its model and its tools. Without
//! [`Further`] nothing is sent.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use super::profile::profile_of;
use super::{answer_of, request_digest, run_end};
use crate::call_ids::CallIds;
use crate::message::AssistantTurn;
use crate::models::{Model, ModelChunk, ModelError, ModelRequest};
use crate::toolbox::{ToolAnswer, ToolboxCall, ToolboxUnreachable};
use crate::{Agent, Event, FinishReason, Message, RunInput, Summarizer, ToolDescription, Toolbox};
use sekisho_core::error::ErrorCode;
use sekisho_core::run_file::{AgentInput, ModelAnswer, RunFile, RunLine, ToolCall, ToolOutput};

/// Differences that are told; all are counted.
const MAX_TOLD: usize = 20;

/// Another answer to a call than the one in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The id of the call in its run.
    pub call: String,
    pub output: ToolOutput,
}

/// Who answers requests and calls that have no answer in the file. By default nobody: the run ends there.
#[derive(Default)]
pub struct Further {
    pub model: Option<Arc<dyn Model>>,
    /// Whether that model gets all requests, in place of the recorded answers.
    pub replaces_model: bool,
    pub toolbox: Option<Arc<dyn Toolbox>>,
}

/// A run that was played again.
#[derive(Debug, Clone, Serialize)]
pub struct Replayed {
    /// Whether its requests, its calls and its result are equal to the file's.
    pub equal: bool,
    pub reason: String,
    pub result_sha256: String,
    /// In the file.
    pub expected_sha256: Option<String>,
    /// Requests to models, and of them those that were not answered from the file. Without [`Further`] these were not sent.
    pub requests: usize,
    pub further_requests: usize,
    pub calls: usize,
    pub further_calls: usize,
    /// The first ones.
    pub differences: Vec<Difference>,
    /// The text of the last turn.
    pub answer: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Error)]
#[serde(tag = "differs", rename_all = "snake_case")]
pub enum Difference {
    /// From 1.
    #[error("request {number} to the model is not the one in the file")]
    Request { number: usize },
    #[error("the call {id} of {tool} is not in the file")]
    Call { id: String, tool: String },
    #[error("the answers to {requests} requests and {calls} calls of the file were not used")]
    Unused { requests: usize, calls: usize },
    #[error("the result has another digest than the one in the file")]
    Result,
}

/// Why a file cannot be played.
#[derive(Debug, Error)]
pub enum NotReplayable {
    #[error("it is no run of an agent: its first line after the header is no `agent_input`")]
    OtherKind,
    #[error("`{part}`: {problem}")]
    Malformed { part: &'static str, problem: serde_json::Error },
    #[error("the run has no call {call:?}; its calls are: {known}")]
    UnknownCall { call: String, known: String },
}

#[derive(Debug, Default)]
struct Log {
    requests: usize,
    further_requests: usize,
    calls: usize,
    further_calls: usize,
    differences: Vec<Difference>,
}

struct RecordedModel {
    answers: Mutex<VecDeque<ModelAnswer>>,
    further: Option<Arc<dyn Model>>,
    replaces_model: bool,
    log: Arc<Mutex<Log>>,
}

struct RecordedTools {
    tools: Vec<ToolDescription>,
    /// Those that were not made again yet.
    calls: Mutex<Vec<ToolCall>>,
    further: Option<Arc<dyn Toolbox>>,
    log: Arc<Mutex<Log>>,
}

/// Plays a run.
/// Errors: the file is no run of an agent, or has no call that is to be changed.
pub async fn replay(file: &RunFile, changes: &[Change], further: Further) -> Result<Replayed, NotReplayable> {
    let Some(RunLine::AgentInput(input)) = file.lines.first() else { return Err(NotReplayable::OtherKind) };
    let log = Arc::new(Mutex::new(Log::default()));
    let answers = file.lines.iter().filter_map(|line| match line {
        RunLine::ModelAnswer(answer) => Some(answer.clone()),
        _ => None,
    });
    let Further { model: further_model, replaces_model, toolbox: further_tools } = further;
    let model = Arc::new(RecordedModel {
        answers: Mutex::new(if replaces_model { VecDeque::new() } else { answers.collect() }),
        further: further_model,
        replaces_model,
        log: Arc::clone(&log),
    });
    let tools = Arc::new(RecordedTools {
        tools: read_all(&input.tools, "tools")?,
        calls: Mutex::new(changed(file, changes)?),
        further: further_tools,
        log: Arc::clone(&log),
    });
    let (agent, run) = prepared(input, &model, &tools)?;
    let mut ended = None;
    let mut events = agent.run(run).boxed();
    while let Some(event) = events.next().await {
        if let Event::Finished { reason, messages } = event {
            ended = Some((reason, messages));
        }
    }
    // The last but one event of each run.
    let (reason, messages) = ended.unwrap_or((FinishReason::Aborted, Vec::new()));
    let end = run_end(reason, &messages);
    let unused = (model.answers.lock().len(), tools.calls.lock().len());
    let mut log = std::mem::take(&mut *log.lock());
    if unused != (0, 0) {
        log.differ(Difference::Unused { requests: unused.0, calls: unused.1 });
    }
    let expected_sha256 = file.end.result_sha256.clone();
    if end.result_sha256 != expected_sha256 {
        log.differ(Difference::Result);
    }
    let Log { requests, further_requests, calls, further_calls, differences } = log;
    Ok(Replayed {
        equal: differences.is_empty(),
        reason: end.reason,
        result_sha256: end.result_sha256.unwrap_or_default(),
        expected_sha256,
        requests,
        further_requests,
        calls,
        further_calls,
        differences,
        answer: messages.iter().rev().find_map(Message::as_assistant).map(AssistantTurn::text).unwrap_or_default(),
    })
}

fn prepared(
    input: &AgentInput,
    model: &Arc<RecordedModel>,
    tools: &Arc<RecordedTools>,
) -> Result<(Agent, RunInput), NotReplayable> {
    let malformed = |part| move |problem| NotReplayable::Malformed { part, problem };
    let profile = Arc::new(profile_of(&input.profile).map_err(malformed("profile"))?);
    let summarizer = match &input.summarizer {
        None => None,
        Some(summarizer) => Some(Summarizer {
            model: Arc::<RecordedModel>::clone(model),
            profile: Arc::new(profile_of(&summarizer["profile"]).map_err(malformed("summarizer"))?),
            prompt: summarizer["prompt"].as_str().unwrap_or_default().into(),
        }),
    };
    let (model, toolbox) = (Arc::<RecordedModel>::clone(model), Arc::<RecordedTools>::clone(tools));
    let run = RunInput {
        messages: read_all(&input.messages, "messages")?,
        client_tools: read_all(&input.client_tools, "client_tools")?,
        options: serde_json::from_value(input.options.clone()).map_err(malformed("options"))?,
        pauses: input.pauses,
        call_ids: CallIds::seeded(&input.call_ids_seed),
        ..RunInput::default()
    };
    Ok((Agent { model, toolbox, profile, summarizer }, run))
}

fn read_all<T: DeserializeOwned>(values: &[Value], part: &'static str) -> Result<Vec<T>, NotReplayable> {
    let read = values.iter().map(|value| serde_json::from_value(value.clone()));
    read.collect::<Result<_, _>>().map_err(|problem| NotReplayable::Malformed { part, problem })
}

/// The calls of the file, with the changed answers.
fn changed(file: &RunFile, changes: &[Change]) -> Result<Vec<ToolCall>, NotReplayable> {
    let mut calls: Vec<_> = file.tool_calls().cloned().collect();
    for Change { call, output } in changes {
        match calls.iter_mut().find(|known| known.id == *call) {
            Some(known) => known.answer = output.clone(),
            None => {
                let known: Vec<_> = calls.iter().map(|known| format!("{} ({})", known.id, known.tool)).collect();
                return Err(NotReplayable::UnknownCall { call: call.clone(), known: known.join(", ") });
            }
        }
    }
    Ok(calls)
}

impl Log {
    fn differ(&mut self, difference: Difference) {
        if self.differences.len() < MAX_TOLD {
            self.differences.push(difference);
        }
    }
}

impl Model for RecordedModel {
    fn stream(&self, request: Arc<ModelRequest>) -> BoxStream<'_, Result<ModelChunk, ModelError>> {
        let digest = request_digest(&request);
        let found = {
            let mut answers = self.answers.lock();
            let is_next = answers.front().is_some_and(|answer| answer.request_sha256 == digest);
            if is_next { answers.pop_front() } else { None }
        };
        let mut log = self.log.lock();
        log.requests += 1;
        let number = log.requests;
        if let Some(answer) = found {
            return stream::iter(pieces_of(answer)).boxed();
        }
        log.further_requests += 1;
        if !self.replaces_model {
            log.differ(Difference::Request { number });
        }
        match &self.further {
            Some(model) => {
                // The rest of the run is another one.
                self.answers.lock().clear();
                model.stream(request)
            }
            None => {
                let message = format!("request {number} to the model is not the one in the file, and was not sent");
                stream::iter([Err(ModelError::NotSent { code: ErrorCode::ReplayDiverged, message })]).boxed()
            }
        }
    }
}

fn pieces_of(answer: ModelAnswer) -> Vec<Result<ModelChunk, ModelError>> {
    let read = |chunk| serde_json::from_value(chunk).map_err(|problem| ModelError::Garbled(problem.to_string()));
    let mut pieces: Vec<_> = answer.chunks.into_iter().map(read).collect();
    pieces.extend(answer.error.map(|error| {
        Err(match error.code {
            // After which the run shortens its conversation.
            ErrorCode::ContextLengthExceeded => ModelError::ContextLength(error.message),
            code => ModelError::NotSent { code, message: error.message },
        })
    }));
    pieces
}

impl Toolbox for RecordedTools {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async { Ok(self.tools.clone()) })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        let found = self.take(&call);
        {
            let mut log = self.log.lock();
            log.calls += 1;
            if found.is_none() {
                log.further_calls += 1;
                log.differ(Difference::Call { id: call.id.clone(), tool: call.tool.clone() });
            }
        }
        Box::pin(async move {
            match (found, &self.further) {
                (Some(recorded), _) => answer_of(&recorded.answer)
                    .unwrap_or_else(|problem| refused(&format!("the answer in the file is not readable: {problem}"))),
                (None, Some(toolbox)) => toolbox.call(call).await,
                (None, None) => refused("this call is not in the recorded run, and was not sent"),
            }
        })
    }
}

impl RecordedTools {
    /// The recorded call with this id; for another model, one of the tool with the same arguments.
    fn take(&self, call: &ToolboxCall) -> Option<ToolCall> {
        let mut calls = self.calls.lock();
        let is_same = |known: &ToolCall| known.tool == call.tool && known.arguments == call.arguments;
        let by_id = calls.iter().position(|known| known.id == call.id && is_same(known));
        let place = by_id.or_else(|| calls.iter().position(is_same))?;
        Some(calls.remove(place))
    }
}

fn refused(message: &str) -> ToolAnswer {
    let code = ErrorCode::ReplayDiverged.as_str();
    let error_info = Some(json!({"code": code, "message": message, "retryable": false}));
    ToolAnswer { success: false, text: message.to_owned(), error_info, images: Vec::new() }
}

impl fmt::Debug for Further {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Further").field("replaces_model", &self.replaces_model).finish_non_exhaustive()
    }
}

impl fmt::Debug for RecordedModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RecordedModel").finish_non_exhaustive()
    }
}

impl fmt::Debug for RecordedTools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RecordedTools").finish_non_exhaustive()
    }
}
