//! Serves a request that runs work: sends its events to the client, asks the client its questions, and drops the work
//! when the client cancels or disconnects.

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

/// The result of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    Tool(CallToolResult),
    Prompt(GetPromptResult),
    Resource(ReadResourceResult),
    InputRequired(InputRequiredResult),
}

/// The work of a request, and its events. Dropping it cancels the work.
pub(super) struct Running {
    pub work: BoxFuture<'static, Result<Outcome, ErrorData>>,
    pub client_events: ClientEvents,
}

impl Running {
    /// Runs the work while no request is open for it.
    pub(super) fn in_background(self) -> Self {
        let work = AbortOnDropHandle::new(tokio::spawn(self.work));
        let work = async move {
            work.await.unwrap_or_else(|error| {
                tracing::error!(%error, "a parked call panicked");
                Err(ErrorData::internal_error("the call failed; the operators' log has the cause", None))
            })
        };
        Self { work: work.boxed(), ..self }
    }

    /// Runs until the work sends an event or a question; `None` if it did.
    pub(super) async fn run_until_event(&mut self) -> Option<Result<Outcome, ErrorData>> {
        let outcome = tokio::select! {
            biased;
            outcome = &mut self.work => outcome,
            () = self.client_events.events.arrived() => return None,
            () = self.client_events.questions.arrived() => return None,
        };
        if self.client_events.events.is_empty() {
            return Some(outcome);
        }
        self.ends_with(outcome);
        None
    }

    /// The work is done; its last events are sent before the result.
    fn ends_with(&mut self, outcome: Result<Outcome, ErrorData>) {
        self.work = std::future::ready(outcome).boxed();
    }

    /// Runs to the end, or to a question that only a further request can answer.
    ///
    /// # Errors
    /// Those of the work, and one that nobody reads if the client has cancelled.
    pub(super) async fn serve(
        mut self,
        context: &RequestContext<RoleServer>,
        caller: &Caller,
        binding: &Binding,
        parked: &ParkedCalls,
    ) -> Result<Outcome, ErrorData> {
        let answers_in_further_requests = is_sessionless(context);
        let mut asking = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = context.ct.cancelled() => {
                    return Err(ErrorData::new(ErrorCode(-32800), "the request was cancelled", None));
                }
                Some(event) = self.client_events.events.recv() => notify(context, event).await,
                Some(question) = self.client_events.questions.recv() => {
                    if answers_in_further_requests {
                        let question = tokio::select! {
                            // Meanwhile the work may ask further questions.
                            outcome = &mut self.work => {
                                self.ends_with(outcome);
                                continue;
                            }
                            question = self.client_events.with_others(question) => question,
                        };
                        match parked.park(caller, binding, self, question) {
                            Ok(result) => return Ok(Outcome::InputRequired(result)),
                            Err(running) => self = running,
                        }
                    } else {
                        asking.push(ask(&context.peer, question));
                    }
                }
                Some(()) = asking.next() => {}
                outcome = &mut self.work => {
                    while let Some(event) = self.client_events.events.try_recv() {
                        notify(context, event).await;
                    }
                    return outcome;
                }
            }
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Running").field("hearing", &self.client_events).finish_non_exhaustive()
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

/// A request state is bound to its method, so a request cannot get the result of another method.
fn not_this_kind() -> ErrorData {
    ErrorData::internal_error("the call has a result of another type", None)
}

/// Whether the client uses a revision in which a server must not send requests.
pub(super) fn is_sessionless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// A client that has disconnected needs no notification: its own cancellation ends the request.
async fn notify(context: &RequestContext<RoleServer>, event: ClientEvent) {
    let sent = match event {
        ClientEvent::Progress(progress) => {
            let Some(token) = context.meta.get_progress_token() else { return };
            let mut sent = ProgressNotificationParam::new(token, progress.progress);
            sent.total = progress.total;
            sent.message = progress.message;
            context.peer.notify_progress(sent).await
        }
        ClientEvent::Log(message) => log(&context.peer, message).await,
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "a client could not be notified of an event of its call");
    }
}

/// Forwards a log message.
pub(super) async fn log(peer: &Peer<RoleServer>, message: LogMessage) -> Result<(), ServiceError> {
    let Ok(level) = serde_json::from_value(json!(message.level)) else { return Ok(()) };
    let mut params = LoggingMessageNotificationParam::new(level, message.data);
    params.logger = message.logger;
    peer.notify_logging_message(params).await
}

/// Asks a client that accepts requests, one question after the other.
async fn ask(peer: &Peer<RoleServer>, question: ClientQuestion) {
    let ClientQuestion { questions, mut answer } = question;
    let answers = tokio::select! {
        // The call no longer waits; the request to the client is dropped.
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
        message: format!("the gateway cannot forward this question: {error}"),
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
    let message = format!("the client's result is not an answer to {}", json!(method));
    Err(Unanswered::Refused { code: ErrorCode::INVALID_PARAMS.0, message })
}
