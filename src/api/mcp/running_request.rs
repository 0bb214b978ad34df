//! Serving a request that runs something: its news go to the client as they come, its questions are put to
//! the client, and when the client cancels or leaves, the work is dropped.

use std::fmt;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientResult, ErrorCode, ErrorData, GetPromptResponse, GetPromptResult,
    InputRequiredResult, LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion,
    ReadResourceResponse, ReadResourceResult, ServerRequest,
};
use rmcp::service::{Peer, RequestContext, ServiceError};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::client::{ClientEvent, ClientEvents, ClientQuestion, fits};
use super::parked_calls::{Binding, ParkedCalls};
use crate::core::call::Caller;
use crate::core::peer::{Answers, LogMessage, Question, QuestionMethod, Questions, Unanswered};

/// What a request comes to.
#[derive(Debug)]
pub(super) enum Outcome {
    Tool(CallToolResult),
    Prompt(GetPromptResult),
    Resource(ReadResourceResult),
    InputRequired(InputRequiredResult),
}

/// The work of a request, and what is heard of it. Dropped, the work is cancelled.
pub(super) struct Running {
    pub work: BoxFuture<'static, Result<Outcome, ErrorData>>,
    pub hearing: ClientEvents,
}

impl Running {
    /// Lets the work go on while no request is open for it.
    pub(super) fn in_background(self) -> Self {
        let work = AbortOnDropHandle::new(tokio::spawn(self.work));
        let work = async move {
            work.await.unwrap_or_else(|error| {
                tracing::error!(%error, "a call that had waited for its client did not end well");
                Err(ErrorData::internal_error("the call did not end well; the operators' log has the cause", None))
            })
        };
        Self { work: work.boxed(), ..self }
    }

    /// Runs for as long as nothing has to be told or asked; `None` when something has.
    pub(super) async fn run_until_event(&mut self) -> Option<Result<Outcome, ErrorData>> {
        let outcome = tokio::select! {
            biased;
            outcome = &mut self.work => outcome,
            () = self.hearing.news.arrived() => return None,
            () = self.hearing.asked.arrived() => return None,
        };
        if self.hearing.news.is_empty() {
            return Some(outcome);
        }
        self.ends_with(outcome);
        None
    }

    /// The work is done, and its last news come before its end.
    fn ends_with(&mut self, outcome: Result<Outcome, ErrorData>) {
        self.work = std::future::ready(outcome).boxed();
    }

    /// Runs to the end, or to a question that only a further request can answer.
    ///
    /// # Errors
    /// Those of the work, and one that nobody reads when the client has cancelled.
    pub(super) async fn serve(
        mut self,
        context: &RequestContext<RoleServer>,
        caller: &Caller,
        binding: &Binding,
        waiting: &ParkedCalls,
    ) -> Result<Outcome, ErrorData> {
        let answers_in_further_requests = is_sessionless(context);
        let mut asking = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    return Err(ErrorData::new(ErrorCode(-32800), "the request was cancelled", None));
                }
                Some(news) = self.hearing.news.recv() => notify(context, news).await,
                Some(asked) = self.hearing.asked.recv() => {
                    if answers_in_further_requests {
                        let asked = tokio::select! {
                            // What it asks side by side it goes on asking meanwhile.
                            outcome = &mut self.work => {
                                self.ends_with(outcome);
                                continue;
                            }
                            asked = self.hearing.with_others(asked) => asked,
                        };
                        match waiting.park(caller, binding, self, asked) {
                            Ok(result) => return Ok(Outcome::InputRequired(result)),
                            Err(running) => self = running,
                        }
                    } else {
                        asking.push(ask(&context.peer, asked));
                    }
                }
                Some(()) = asking.next() => {}
                outcome = &mut self.work => {
                    while let Some(news) = self.hearing.news.try_recv() {
                        notify(context, news).await;
                    }
                    return outcome;
                }
            }
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Running").field("hearing", &self.hearing).finish_non_exhaustive()
    }
}

impl Outcome {
    pub(super) fn of_tool(self) -> Result<CallToolResponse, ErrorData> {
        match self {
            Self::Tool(result) => Ok(result.into()),
            Self::InputRequired(result) => Ok(result.into()),
            Self::Prompt(_) | Self::Resource(_) => Err(not_this_kind()),
        }
    }

    pub(super) fn of_tool_alone(self) -> Result<CallToolResult, ErrorData> {
        match self {
            Self::Tool(result) => Ok(result),
            Self::InputRequired(_) | Self::Prompt(_) | Self::Resource(_) => Err(not_this_kind()),
        }
    }

    pub(super) fn of_prompt(self) -> Result<GetPromptResponse, ErrorData> {
        match self {
            Self::Prompt(result) => Ok(result.into()),
            Self::InputRequired(result) => Ok(result.into()),
            Self::Tool(_) | Self::Resource(_) => Err(not_this_kind()),
        }
    }

    pub(super) fn of_resource(self) -> Result<ReadResourceResponse, ErrorData> {
        match self {
            Self::Resource(result) => Ok(result.into()),
            Self::InputRequired(result) => Ok(result.into()),
            Self::Tool(_) | Self::Prompt(_) => Err(not_this_kind()),
        }
    }
}

/// A request state is bound to its method, so that no request can come to another's kind of result.
fn not_this_kind() -> ErrorData {
    ErrorData::internal_error("the call came to a result of another kind", None)
}

/// Whether the client speaks a revision in which a server may not send requests.
pub(super) fn is_sessionless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// A client that has gone need not be told: the request ends by its own cancellation.
async fn notify(context: &RequestContext<RoleServer>, news: ClientEvent) {
    let told = match news {
        ClientEvent::Progress(progress) => {
            let Some(token) = context.meta.get_progress_token() else { return };
            let mut told = ProgressNotificationParam::new(token, progress.progress);
            told.total = progress.total;
            told.message = progress.message;
            context.peer.notify_progress(told).await
        }
        ClientEvent::Log(message) => log(&context.peer, message).await,
    };
    if let Err(error) = told {
        tracing::debug!(%error, "a client was not told news of its call");
    }
}

/// Passes on a log message.
pub(super) async fn log(peer: &Peer<RoleServer>, message: LogMessage) -> Result<(), ServiceError> {
    let Ok(level) = serde_json::from_value(json!(message.level)) else { return Ok(()) };
    let mut told = LoggingMessageNotificationParam::new(level, message.data);
    told.logger = message.logger;
    peer.notify_logging_message(told).await
}

/// Puts questions to a client that takes requests, one after the other.
async fn ask(peer: &Peer<RoleServer>, asked: ClientQuestion) {
    let ClientQuestion { questions, mut answer } = asked;
    let answers = tokio::select! {
        // Nobody waits any more; the request to the client is dropped.
        () = answer.closed() => return,
        answers = ask_all(peer, questions) => answers,
    };
    _ = answer.send(answers);
}

/// The client's answers, under the keys of their questions.
pub(super) async fn ask_all(peer: &Peer<RoleServer>, questions: Questions) -> Result<Answers, Unanswered> {
    let mut answers = Answers::new();
    for (key, question) in questions {
        answers.insert(key, ask_one(peer, question).await?);
    }
    Ok(answers)
}

async fn ask_one(peer: &Peer<RoleServer>, question: Question) -> Result<Value, Unanswered> {
    let method = question.method;
    let not_in_protocol = |error: serde_json::Error| Unanswered::Refused {
        code: ErrorCode::INVALID_PARAMS.0,
        message: format!("the gateway cannot pass this question on: {error}"),
    };
    let question = json!(question);
    let request = match method {
        QuestionMethod::Elicitation => {
            ServerRequest::ElicitRequest(serde_json::from_value(question).map_err(not_in_protocol)?)
        }
        QuestionMethod::Sampling => {
            ServerRequest::CreateMessageRequest(serde_json::from_value(question).map_err(not_in_protocol)?)
        }
        QuestionMethod::Roots => {
            ServerRequest::ListRootsRequest(serde_json::from_value(question).map_err(not_in_protocol)?)
        }
    };
    let answer = peer.send_request(request).await.map_err(|error| match error {
        ServiceError::McpError(ErrorData { code, message, .. }) => {
            Unanswered::Refused { code: code.0, message: message.into_owned() }
        }
        _ => Unanswered::Gone,
    })?;
    let answer = match answer {
        ClientResult::CreateMessageResult(result) => json!(result),
        ClientResult::ListRootsResult(result) => json!(result),
        ClientResult::ElicitResult(result) => json!(result),
        ClientResult::CustomResult(result) => json!(result),
        _ => Value::Null,
    };
    if fits(method, &answer) {
        return Ok(answer);
    }
    let message = format!("what the client sent is not an answer to {}", json!(method));
    Err(Unanswered::Refused { code: ErrorCode::INVALID_PARAMS.0, message })
}
