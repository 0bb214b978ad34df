//! The client of a request, for the running call: a [`ClientPeer`] that passes everything on to the task that serves
//! the request.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rmcp::model::{
    LoggingMessageNotification, LoggingMessageNotificationParam, ProgressNotification, ProgressNotificationParam,
    ProgressToken, ServerNotification,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::session::McpSession;
use sekisho_core::call::OpenTime;
use sekisho_core::caller::Owner;
use sekisho_core::peer::{
    ANSWER_TIMEOUT, Answers, ClientPeer, LogLevel, LogMessage, Progress, Question, QuestionMethod, Questions,
    Unanswered,
};

/// Events that may queue for a slow client; further ones are dropped.
const MAX_QUEUED_EVENTS: usize = 64;

/// Concurrent questions of one call that may queue.
const MAX_QUEUED_QUESTIONS: usize = 8;

/// How long a question waits for other concurrent questions of its call.
const ASKED_TOGETHER: Duration = Duration::from_millis(20);

/// A running call's handle to its client.
#[derive(Debug)]
pub(super) struct Client {
    owner: Owner,
    capabilities: Value,
    /// Names the request in its notifications of progress; `None` if the client requested none.
    progress_token: Option<ProgressToken>,
    log_level: Option<LogLevel>,
    /// Answers that the request contained, before any question.
    given: Mutex<Answers>,
    /// A capability that the client lacks and a question needed.
    missing: Mutex<Option<Value>>,
    asking: OpenTime,
    /// The session, and how long it had waited for the client's answers before the call.
    session: Option<(Arc<McpSession>, Duration)>,
    events: mpsc::Sender<ServerNotification>,
    questions: mpsc::Sender<ClientQuestion>,
    /// Cancelled when the upstream runs the call as a task.
    task_created: CancellationToken,
}

/// The receiving side of a call's events and questions, held by the task that serves the request.
#[derive(Debug)]
pub(super) struct ClientEvents {
    pub events: mpsc::Receiver<ServerNotification>,
    pub questions: mpsc::Receiver<ClientQuestion>,
    /// Cancelled when the upstream runs the call as a task.
    pub task_created: CancellationToken,
}

/// A question to the client. Its channel is closed when the call no longer waits.
#[derive(Debug)]
pub(super) struct ClientQuestion {
    pub questions: Questions,
    pub answer: oneshot::Sender<Result<Answers, Unanswered>>,
}

impl Client {
    pub(super) fn new(
        owner: &Owner,
        capabilities: Value,
        progress_token: Option<ProgressToken>,
        log_level: Option<LogLevel>,
        given: Answers,
    ) -> (Self, ClientEvents) {
        let (events, event_receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        let (questions, question_receiver) = mpsc::channel(MAX_QUEUED_QUESTIONS);
        let client = Self {
            owner: owner.clone(),
            capabilities,
            progress_token,
            log_level,
            given: Mutex::new(given),
            missing: Mutex::default(),
            asking: OpenTime::default(),
            session: None,
            events,
            questions,
            task_created: CancellationToken::new(),
        };
        let task_created = client.task_created.clone();
        (client, ClientEvents { events: event_receiver, questions: question_receiver, task_created })
    }

    /// Counts the time of the session's own questions too: this call may have caused them.
    pub(super) fn in_session(self, session: &Arc<McpSession>) -> Self {
        Self { session: Some((Arc::clone(session), session.time_asking())), ..self }
    }

    /// The session of the request, if it has one.
    pub(super) fn session(&self) -> Option<&Arc<McpSession>> {
        self.session.as_ref().map(|(session, _)| session)
    }

    /// The client capabilities (`ClientCapabilities`) whose absence prevented a question.
    pub(super) fn missing(&self) -> Option<Value> {
        self.missing.lock().clone()
    }

    /// Sends the client a notification, after the notifications before it.
    pub(super) async fn notify(&self, notification: ServerNotification) {
        // The receiver is dropped when the client has gone.
        _ = self.events.send(notification).await;
    }

    /// Moves matching answers that arrived in advance out of `questions`.
    fn given(&self, questions: &mut Questions) -> Answers {
        let mut given = self.given.lock();
        let mut answers = Answers::new();
        questions.retain(|key, question| match given.remove(key) {
            Some(answer) if fits(question.method, &answer) => {
                answers.insert(key.clone(), answer);
                false
            }
            _ => true,
        });
        answers
    }

    async fn wait(&self, mut questions: Questions) -> Result<Answers, Unanswered> {
        let unanswerable = questions.values().find(|question| !is_answered_by(&self.capabilities, question));
        if let Some(question) = unanswerable {
            *self.missing.lock() = Some(capability_for(question));
            return Err(Unanswered::Unsupported);
        }
        let mut answers = self.given(&mut questions);
        if !questions.is_empty() {
            let (answer, answered) = oneshot::channel();
            let _open = self.asking.open();
            self.questions.send(ClientQuestion { questions, answer }).await.map_err(|_closed| Unanswered::Gone)?;
            answers.extend(answered.await.map_err(|_dropped| Unanswered::Gone)??);
        }
        Ok(answers)
    }
}

impl ClientEvents {
    /// The client of a request that names none.
    pub(super) fn none() -> Self {
        let ((_, events), (_, questions)) = (mpsc::channel(1), mpsc::channel(1));
        Self { events, questions, task_created: CancellationToken::new() }
    }

    /// The questions that are asked together with `first`: a server of an older revision sends each question
    /// separately, and a client of the newer one gets all of them in one request.
    pub(super) async fn with_others(&mut self, first: ClientQuestion) -> Vec<ClientQuestion> {
        let until = Instant::now() + ASKED_TOGETHER;
        let mut all = vec![first];
        while let Ok(Some(next)) = tokio::time::timeout_at(until, self.questions.recv()).await {
            all.push(next);
        }
        all
    }
}

impl ClientPeer for Client {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn capabilities(&self) -> &Value {
        &self.capabilities
    }

    fn wants_progress(&self) -> bool {
        self.progress_token.is_some()
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.log_level
    }

    fn time_asking(&self) -> Duration {
        let of_session = self.session.as_ref().map(|(session, before)| session.time_asking().saturating_sub(*before));
        self.asking.total() + of_session.unwrap_or_default()
    }

    fn task_created(&self) {
        self.task_created.cancel();
    }

    fn progress(&self, progress: Progress) {
        let Some(token) = self.progress_token.clone() else { return };
        let mut params = ProgressNotificationParam::new(token, progress.progress);
        params.total = progress.total;
        params.message = progress.message;
        // A client that is too slow misses some of them.
        _ = self.events.try_send(ServerNotification::ProgressNotification(ProgressNotification::new(params)));
    }

    fn elicitation_complete(&self, id: &str) {
        if let Some((session, _)) = &self.session {
            session.elicitation_complete(id);
        }
    }

    fn log(&self, message: LogMessage) {
        if self.log_level.is_none_or(|least| message.level < least) {
            return;
        }
        match self.events.try_reserve() {
            Ok(place) => {
                if let Some(notification) = log_notification(message) {
                    place.send(notification);
                }
            }
            // A client that is too slow misses some of them.
            Err(TrySendError::Full(())) => {}
            // The request ended while its server sent the message, which belongs to the session then.
            Err(TrySendError::Closed(())) => {
                if let Some((session, _)) = &self.session {
                    session.log(message);
                }
            }
        }
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, Unanswered>> {
        async move {
            let answers = tokio::time::timeout(ANSWER_TIMEOUT, self.wait(questions)).await;
            answers.unwrap_or(Err(Unanswered::TimedOut))
        }
        .boxed()
    }
}

/// `notifications/message`.
pub(super) fn log_notification(message: LogMessage) -> Option<ServerNotification> {
    let level = serde_json::from_value(json!(message.level)).ok()?;
    let mut params = LoggingMessageNotificationParam::new(level, message.data);
    params.logger = message.logger;
    Some(ServerNotification::LoggingMessageNotification(LoggingMessageNotification::new(params)))
}

/// Whether a client with these capabilities answers the question. An elicitation needs the capability `form` unless
/// it is a `url` elicitation, which has a capability of its own; tools in sampling have one too.
pub(super) fn is_answered_by(capabilities: &Value, question: &Question) -> bool {
    let declares = |pointer: &str| capabilities.pointer(pointer).is_some_and(Value::is_object);
    match question.method {
        QuestionMethod::Elicitation if question.params["mode"] == "url" => declares("/elicitation/url"),
        QuestionMethod::Elicitation => {
            declares("/elicitation") && (declares("/elicitation/form") || !declares("/elicitation/url"))
        }
        QuestionMethod::Sampling if question.params.get("tools").is_some() => declares("/sampling/tools"),
        QuestionMethod::Sampling => declares("/sampling"),
        QuestionMethod::Roots => declares("/roots"),
    }
}

fn capability_for(question: &Question) -> Value {
    match question.method {
        QuestionMethod::Elicitation if question.params["mode"] == "url" => json!({"elicitation": {"url": {}}}),
        QuestionMethod::Elicitation => json!({"elicitation": {}}),
        QuestionMethod::Sampling if question.params.get("tools").is_some() => json!({"sampling": {"tools": {}}}),
        QuestionMethod::Sampling => json!({"sampling": {}}),
        QuestionMethod::Roots => json!({"roots": {}}),
    }
}

/// Whether an answer has the fields that the protocol requires for the question.
pub(super) fn fits(method: QuestionMethod, answer: &Value) -> bool {
    match method {
        QuestionMethod::Elicitation => {
            let content = answer.get("content").is_none_or(Value::is_object);
            matches!(answer["action"].as_str(), Some("accept" | "decline" | "cancel")) && content
        }
        QuestionMethod::Sampling => {
            answer["role"].is_string() && answer["model"].is_string() && !answer["content"].is_null()
        }
        QuestionMethod::Roots => answer["roots"].is_array(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions(method: QuestionMethod, params: Value) -> Questions {
        Questions::from([("key".into(), Question { method, params })])
    }

    fn client(capabilities: Value, given: Value) -> (Client, ClientEvents) {
        let given = serde_json::from_value(given).expect("answers");
        Client::new(Owner::gateway(), capabilities, None, Some(LogLevel::Warning), given)
    }

    #[tokio::test]
    async fn questions_that_the_client_does_not_support_are_not_asked() {
        let url = json!({"mode": "url"});
        let with_tools = json!({"tools": []});
        for (capabilities, method, params, is_asked) in [
            (json!({}), QuestionMethod::Elicitation, json!({}), false),
            (json!({"elicitation": {}}), QuestionMethod::Elicitation, json!({}), true),
            (json!({"elicitation": {}}), QuestionMethod::Elicitation, url.clone(), false),
            (json!({"elicitation": {"url": {}}}), QuestionMethod::Elicitation, url, true),
            (json!({"elicitation": {"url": {}}}), QuestionMethod::Elicitation, json!({}), false),
            (json!({"sampling": {}}), QuestionMethod::Sampling, json!({}), true),
            (json!({"sampling": {}}), QuestionMethod::Sampling, with_tools.clone(), false),
            (json!({"sampling": {"tools": {}}}), QuestionMethod::Sampling, with_tools, true),
            (json!({"sampling": {}}), QuestionMethod::Roots, json!({}), false),
        ] {
            let (client, client_events) = client(capabilities.clone(), json!({}));
            drop(client_events);
            let expected = if is_asked { Unanswered::Gone } else { Unanswered::Unsupported };
            let answer = client.ask(questions(method, params)).await;
            assert_eq!(answer, Err(expected), "{capabilities} {method:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_given_in_advance_is_used_for_its_question() {
        let accepted = json!({"action": "accept", "content": {}});
        let (client, client_events) = client(json!({"elicitation": {}}), json!({"key": accepted, "other": 5}));
        let answers = client.ask(questions(QuestionMethod::Elicitation, json!({}))).await.expect("answers");
        assert_eq!(answers["key"], accepted);
        drop(client_events);
        let again = client.ask(questions(QuestionMethod::Elicitation, json!({}))).await;
        assert_eq!(again, Err(Unanswered::Gone), "an answer is used once");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unanswered_question_ends_after_two_minutes() {
        let (client, _events) = client(json!({"roots": {}}), json!({}));
        let before = tokio::time::Instant::now();
        assert_eq!(client.ask(questions(QuestionMethod::Roots, json!({}))).await, Err(Unanswered::TimedOut));
        assert_eq!(before.elapsed(), ANSWER_TIMEOUT);
    }

    #[test]
    fn a_client_receives_only_requested_events_and_blocks_no_call() {
        let (client, mut client_events) = client(json!({}), json!({}));
        let message = |level| LogMessage { level, logger: None, data: json!("text") };
        client.log(message(LogLevel::Info));
        assert!(client_events.events.try_recv().is_err(), "less severe than requested");
        for _ in 0..MAX_QUEUED_EVENTS * 2 {
            client.log(message(LogLevel::Error));
        }
        let mut received = 0;
        while client_events.events.try_recv().is_ok() {
            received += 1;
        }
        assert_eq!(received, MAX_QUEUED_EVENTS);
    }
}
