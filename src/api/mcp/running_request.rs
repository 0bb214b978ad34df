//! A request that runs: its work, and the work's messages and questions to the client.
//!
//! A client with a session is asked in requests of ours, and cancels with a notification. A client of 2026-07-28 is
//! asked in the result of its request, and cancels by disconnecting.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::model::{ErrorData, RequestId, ServerJsonRpcMessage, ServerNotification, ServerResult};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::McpServer;
use super::client::{ClientEvents, ClientQuestion};
use super::event_stream::EventStream;
use super::headers::Era;
use super::methods::StartedRequest;
use super::parked_calls::Binding;
use super::result;
use super::session::McpSession;
use super::tasks::{self, TaskOwner};
use sekisho_core::bounded::BoundedFutures;
use sekisho_core::call::Caller;
use sekisho_core::peer::ClientSession;

/// A call of a client that supports tasks becomes one when it takes longer, or when its upstream makes it one.
const TASK_AFTER: Duration = Duration::from_millis(500);

/// Maximum questions of one request that its client was sent and has not answered. Further questions wait for these.
pub(super) const MAX_OPEN_QUESTIONS: usize = 64;

/// The result of a request.
pub(super) type Outcome = Result<ServerResult, ErrorData>;

/// The work of a request, and its events. Dropping it cancels the work.
pub(super) struct RunningRequest {
    pub work: BoxFuture<'static, Outcome>,
    pub client_events: ClientEvents,
}

/// The next step of a running request.
#[derive(Debug)]
pub(super) enum Step {
    Notify(ServerNotification),
    Ask(ClientQuestion),
    /// The last step.
    End(Outcome),
}

impl RunningRequest {
    /// Notifications come before the outcome that follows them. Cancel-safe. Must not be called after the end.
    pub(super) async fn next(&mut self) -> Step {
        self.next_with(true).await
    }

    /// As [`next`](Self::next); questions stay where they are unless `takes_questions`.
    pub(super) async fn next_with(&mut self, takes_questions: bool) -> Step {
        let outcome = tokio::select! {
            biased;
            Some(notification) = self.client_events.events.recv() => return Step::Notify(notification),
            Some(question) = self.client_events.questions.recv(), if takes_questions => return Step::Ask(question),
            outcome = &mut self.work => outcome,
        };
        self.work = std::future::ready(outcome).boxed();
        // Another task may be sending a notification now: it still comes, or its sender learns that it is too late.
        self.client_events.events.close();
        match self.client_events.events.recv().await {
            Some(notification) => Step::Notify(notification),
            None => Step::End((&mut self.work).await),
        }
    }

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

    /// Runs to the end on a stream of the session, from the step `first`. Sends nothing more if the client cancels
    /// the request.
    pub(super) async fn finish_in_session(
        mut self,
        id: RequestId,
        first: Option<Step>,
        session: &McpSession,
        stream: &EventStream,
    ) {
        let mut asking = BoundedFutures::new(MAX_OPEN_QUESTIONS);
        let mut step = first;
        loop {
            match step.take() {
                Some(Step::Notify(notification)) => {
                    stream.send(&ServerJsonRpcMessage::notification(notification));
                }
                // There is room: questions are taken only then.
                Some(Step::Ask(question)) => _ = asking.push(ask(session, stream, question)),
                Some(Step::End(outcome)) => {
                    return stream.finish(&result::message(Era::Sessions, id, outcome));
                }
                None => {}
            }
            let has_room = asking.has_room();
            tokio::select! {
                biased;
                () = session.cancelled.until(&id) => return,
                () = session.ended().cancelled() => return,
                Some(()) = asking.next() => {}
                next = self.next_with(has_room) => step = Some(next),
            }
        }
    }

    /// All questions that are asked together with `first`. `None` if the work ended before.
    async fn gather(&mut self, first: ClientQuestion) -> Option<Vec<ClientQuestion>> {
        tokio::select! {
            outcome = &mut self.work => {
                self.work = std::future::ready(outcome).boxed();
                None
            }
            questions = self.client_events.with_others(first) => Some(questions),
        }
    }
}

impl fmt::Debug for RunningRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RunningRequest").field("client_events", &self.client_events).finish_non_exhaustive()
    }
}

/// Asks a client that accepts requests.
pub(super) async fn ask(session: &McpSession, stream: &EventStream, question: ClientQuestion) {
    let ClientQuestion { questions, mut answer } = question;
    let answers = tokio::select! {
        // The call no longer waits.
        () = answer.closed() => return,
        answers = session.ask_on(stream, questions) => answers,
    };
    _ = answer.send(answers);
}

/// A request of 2026-07-28. Dropping it cancels it.
#[derive(Debug)]
pub(super) struct StatelessRequest {
    running: Option<RunningRequest>,
    caller: Arc<Caller>,
    /// `None` if its client answers no questions.
    binding: Option<Binding>,
    /// The owner of the task that it becomes, and when, if its client supports tasks.
    task: Option<(TaskOwner, Instant)>,
}

/// The next message to the client.
#[derive(Debug)]
pub(super) enum Sent {
    Notification(ServerNotification),
    /// The last message.
    Outcome(Outcome),
}

impl StatelessRequest {
    pub(super) fn new(started: StartedRequest, caller: &Arc<Caller>) -> Self {
        let StartedRequest { running, binding, task } = started;
        let task = task.map(|owner| (owner, Instant::now() + TASK_AFTER));
        Self { running: Some(running), caller: Arc::clone(caller), binding, task }
    }

    /// A question ends the request: the client answers it in a further one. Must not be called after the outcome.
    pub(super) async fn next(&mut self, server: &McpServer) -> Sent {
        loop {
            let Some(running) = &mut self.running else {
                return Sent::Outcome(Err(ErrorData::internal_error("the request has ended", None)));
            };
            let step = match &self.task {
                None => Some(running.next().await),
                Some((_, at)) => {
                    let task_created = running.client_events.task_created.clone();
                    tokio::select! {
                        biased;
                        step = running.next() => Some(step),
                        () = task_created.cancelled() => None,
                        () = tokio::time::sleep_until(*at) => None,
                    }
                }
            };
            let question = match step {
                Some(Step::Notify(notification)) => return Sent::Notification(notification),
                Some(Step::End(outcome)) => return Sent::Outcome(outcome),
                Some(Step::Ask(question)) => question,
                None => match self.become_task(server) {
                    Some(created) => return Sent::Outcome(Ok(created)),
                    None => continue,
                },
            };
            let Some(binding) = &self.binding else { continue };
            let Some(questions) = running.gather(question).await else { continue };
            let Some(running) = self.running.take() else { continue };
            match server.parked.park(&self.caller, binding, running, questions) {
                Ok(result) => return Sent::Outcome(Ok(ServerResult::InputRequiredResult(result))),
                Err(running) => self.running = Some(running),
            }
        }
    }

    /// Has the request run on as a task. If there are too many, it remains a request.
    fn become_task(&mut self, server: &McpServer) -> Option<ServerResult> {
        let ((owner, _), running) = (self.task.take()?, self.running.take()?);
        match server.tasks.start(&owner, None, running) {
            Ok(state) => Some(tasks::created(&state)),
            Err(running) => {
                self.running = Some(running);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use futures_util::future::join_all;
    use serde_json::json;

    use super::super::client::Client;
    use super::super::event_log::EventLog;
    use super::*;
    use sekisho_core::caller::Owner;
    use sekisho_core::peer::{Answers, ClientPeer, LogLevel, LogMessage, Question, QuestionMethod, Questions};

    fn line(text: &str) -> LogMessage {
        LogMessage { level: LogLevel::Warning, logger: None, data: json!(text) }
    }

    #[tokio::test]
    async fn a_log_line_that_comes_after_the_end_of_its_call_is_for_the_session() {
        let session = McpSession::new(Owner::gateway(), EventLog::default());
        let level = Some(LogLevel::Info);
        let (client, client_events) = Client::new(Owner::gateway(), json!({}), None, level, Answers::new());
        let client = client.in_session(&session);
        let work = std::future::ready(Ok(ServerResult::empty(()))).boxed();
        let mut running = RunningRequest { work, client_events };
        client.log(line("during the call"));
        assert!(matches!(running.next().await, Step::Notify(_)));
        assert!(matches!(running.next().await, Step::End(Ok(_))));
        client.log(line("late"));
        drop(running);
        client.log(line("later"));
        let mut of_session = session.is_ready().unwrap();
        let received: Vec<_> = std::iter::from_fn(|| of_session.try_recv().ok()).collect();
        assert_eq!(received, [line("late"), line("later")]);
    }

    #[tokio::test]
    async fn a_call_that_asks_without_end_has_a_bounded_number_of_open_questions() {
        let session = McpSession::new(Owner::gateway(), EventLog::default());
        let (client, client_events) = Client::new(Owner::gateway(), json!({"roots": {}}), None, None, Answers::new());
        let running = RunningRequest { work: std::future::pending().boxed(), client_events };
        let question = || Question { method: QuestionMethod::Roots, params: json!({}) };
        let asking =
            join_all((0..3 * MAX_OPEN_QUESTIONS).map(|_| client.ask(Questions::from([("q".into(), question())]))));
        let stream = EventStream::new(Arc::clone(&session.events), session.events.open());
        let mut received = Box::pin(stream.connect().expect("a stream"));
        stream.begin();
        let first = received.next().await.and_then(|event| event.id).expect("an id").to_string();
        let quiet = async {
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = asking => panic!("nobody answers"),
            () = running.finish_in_session(RequestId::Number(1), None, &session, &stream) => panic!("it runs"),
            () = quiet => {}
        }
        stream.close();
        let sent = session.events.replay_after(&first).expect("the events").count().await;
        assert_eq!(sent, MAX_OPEN_QUESTIONS);
    }
}
