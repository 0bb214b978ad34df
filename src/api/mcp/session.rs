//! One session: the state that a client's requests share, and the messages to the client outside its requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, WeakShared};
use parking_lot::Mutex;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::McpServer;
use super::auto_list::KeptList;
use super::cancelled::Cancelled;
use super::client::{fits, is_answered_by};
use super::event_log::{EventLog, STANDALONE};
use super::event_stream::EventStream;
use super::message::Message;
use super::subscriptions::{self, Subscriptions};
use sekisho_core::call::{Caller, OpenTime};
use sekisho_core::caller::Owner;
use sekisho_core::peer::{
    ANSWER_TIMEOUT, Answers, ClientPeer, ClientSession, ELICITATION_COMPLETE, LogLevel, LogMessage, Progress, Question,
    Questions, Unanswered,
};

/// Log messages that may queue for a slow client; further ones are dropped.
const MAX_PENDING_LOGS: usize = 64;

#[derive(Debug)]
pub(super) struct McpSession {
    /// Unique in this process, and known only to it.
    number: u64,
    owner: Owner,
    /// The events of its streams, over HTTP.
    pub(super) events: Arc<EventLog>,
    /// The way to the client outside its requests.
    pub(super) outside: Arc<EventStream>,
    /// The requests that the client has cancelled.
    pub(super) cancelled: Cancelled,
    pub(super) subscriptions: Subscriptions,
    pub(super) listed: KeptList,
    /// `ClientCapabilities`, once the client has initialized.
    capabilities: OnceLock<Value>,
    /// The client has sent `notifications/initialized`, and accepts requests.
    ready: AtomicBool,
    /// The level set by `logging/setLevel`.
    log_level: Mutex<LogLevel>,
    questions: OpenQuestions,
    /// The question about its calls that wait for approvers, while it is open.
    about_approvals: Mutex<Option<WeakShared<Wait>>>,
    asking: OpenTime,
    activity: Activity,
    ended: CancellationToken,
    logs: mpsc::Sender<LogMessage>,
    /// Taken by the task that sends them.
    pending_logs: Mutex<Option<mpsc::Receiver<LogMessage>>>,
}

/// Requests of ours that wait for the client's answer.
#[derive(Debug, Default)]
struct OpenQuestions {
    last_id: AtomicI64,
    waiting: Mutex<HashMap<i64, oneshot::Sender<Result<Value, ErrorData>>>>,
}

/// How long calls wait for an approver, as the client's user decides; `None` if the client has gone.
type Wait = BoxFuture<'static, Option<Duration>>;

/// When the client was last served.
#[derive(Debug)]
struct Activity {
    running: AtomicUsize,
    last: Mutex<Instant>,
}

/// A request of the session is being served until this is dropped.
#[derive(Debug)]
pub(super) struct Active(Arc<McpSession>);

impl McpSession {
    pub(super) fn new(owner: &Owner, events: EventLog) -> Arc<Self> {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
        let events = Arc::new(events);
        let (logs, pending_logs) = mpsc::channel(MAX_PENDING_LOGS);
        Arc::new(Self {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            owner: owner.clone(),
            outside: EventStream::new(Arc::clone(&events), STANDALONE),
            events,
            cancelled: Cancelled::default(),
            subscriptions: Subscriptions::default(),
            listed: KeptList::default(),
            capabilities: OnceLock::new(),
            ready: AtomicBool::new(false),
            // The protocol lets the server choose the level until the client sets one.
            log_level: Mutex::new(LogLevel::Info),
            questions: OpenQuestions::default(),
            about_approvals: Mutex::default(),
            asking: OpenTime::default(),
            activity: Activity { running: AtomicUsize::new(0), last: Mutex::new(Instant::now()) },
            ended: CancellationToken::new(),
            logs,
            pending_logs: Mutex::new(Some(pending_logs)),
        })
    }

    /// The client has introduced itself with these `ClientCapabilities`.
    pub(super) fn initialize(&self, capabilities: Value) {
        _ = self.capabilities.set(capabilities);
    }

    /// The client accepts requests from now on. Returns the log messages to send; `None` if they were taken before.
    pub(super) fn is_ready(&self) -> Option<mpsc::Receiver<LogMessage>> {
        self.ready.store(true, Ordering::Relaxed);
        self.pending_logs.lock().take()
    }

    pub(super) fn level(&self) -> LogLevel {
        *self.log_level.lock()
    }

    pub(super) fn set_level(&self, level: LogLevel) {
        *self.log_level.lock() = level;
    }

    /// Ends the session: its requests, subscriptions and streams.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// Keeps the session from being idle.
    pub(super) fn active(self: &Arc<Self>) -> Active {
        self.activity.running.fetch_add(1, Ordering::Relaxed);
        Active(Arc::clone(self))
    }

    /// Whether it serves no request.
    pub(super) fn is_idle(&self) -> bool {
        self.activity.running.load(Ordering::Relaxed) == 0
    }

    /// How long until the session has been idle for `idle`; `None` if it has.
    pub(super) fn time_left(&self, idle: Duration) -> Option<Duration> {
        if !self.is_idle() {
            return Some(idle);
        }
        let left = idle.saturating_sub(self.activity.last.lock().elapsed());
        (!left.is_zero()).then_some(left)
    }

    /// Handles a message that needs no answer.
    pub(super) fn receive(self: &Arc<Self>, server: &Arc<McpServer>, caller: &Arc<Caller>, message: Message) {
        match message {
            Message::Notification { method, mut params } => match method.as_str() {
                "notifications/initialized" => {
                    let (server, caller) = (Arc::clone(server), Arc::clone(caller));
                    tokio::spawn(subscriptions::notify_session(server, caller, Arc::clone(self)));
                }
                "notifications/cancelled" => {
                    let id = params.remove("requestId").and_then(|id| serde_json::from_value(id).ok());
                    if let Some(id) = id {
                        self.cancelled.record(id);
                    }
                }
                // Progress, and changes that this server does not use.
                _ => {}
            },
            Message::Answer { id, answer } => self.answered(&id, answer),
            Message::AnswerToNothing | Message::Request(_) => {}
        }
    }

    /// How long a call of the session waits for an approver. Its user is asked once for the calls that come while the question is open:
    /// its page has all of them. Where the call whose question it was is cancelled, another one asks.
    pub(super) async fn ask_about_approvals(&self, ask: impl Fn() -> Wait) -> Duration {
        loop {
            let (asked, is_own) = {
                let mut open = self.about_approvals.lock();
                let known = open.as_ref().and_then(WeakShared::upgrade);
                match known.filter(|asked| asked.peek().is_none()) {
                    Some(asked) => (asked, false),
                    None => {
                        let asked = ask().shared();
                        *open = asked.downgrade();
                        (asked, true)
                    }
                }
            };
            match asked.await {
                Some(wait) => return wait,
                None if is_own => return Duration::ZERO,
                None => {}
            }
        }
    }

    /// Passes the client's answer on. An answer to no open question is ignored, as JSON-RPC has no reply to it.
    fn answered(&self, id: &RequestId, answer: Result<Value, ErrorData>) {
        let RequestId::Number(id) = id else { return };
        if let Some(waiting) = self.questions.waiting.lock().remove(id) {
            _ = waiting.send(answer);
        }
    }

    /// Asks the client on `stream`, one question after the other. The answers have the keys of their questions.
    pub(super) async fn ask_on(&self, stream: &EventStream, questions: Questions) -> Result<Answers, Unanswered> {
        let mut answers = Answers::new();
        for (key, question) in questions {
            answers.insert(key, self.ask_one(stream, question).await?);
        }
        Ok(answers)
    }

    async fn ask_one(&self, stream: &EventStream, question: Question) -> Result<Value, Unanswered> {
        let id = self.questions.last_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.questions.waiting.lock().insert(id, sender);
        let _forget = Forget { questions: &self.questions, id };
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": question.method});
        if question.params.is_object() {
            message["params"] = question.params;
        }
        stream.send(&message);
        let refused = |code: i32, message| Unanswered::Refused { code, message };
        match answer.await {
            Ok(Ok(answer)) if fits(question.method, &answer) => Ok(answer),
            Ok(Ok(_)) => {
                let message = format!("the client's result is not an answer to {}", json!(question.method));
                Err(refused(ErrorCode::INVALID_PARAMS.0, message))
            }
            Ok(Err(ErrorData { code, message, .. })) => Err(refused(code.0, message.into_owned())),
            Err(_dropped) => Err(Unanswered::Gone),
        }
    }
}

/// Forgets a question that is no longer waited for.
struct Forget<'a> {
    questions: &'a OpenQuestions,
    id: i64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.questions.waiting.lock().remove(&self.id);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        *self.0.activity.last.lock() = Instant::now();
        self.0.activity.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ClientSession for McpSession {
    fn id(&self) -> u64 {
        self.number
    }

    fn is_initialized(&self) -> bool {
        self.capabilities.get().is_some()
    }

    fn ended(&self) -> &CancellationToken {
        &self.ended
    }
}

impl ClientPeer for McpSession {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn capabilities(&self) -> &Value {
        self.capabilities.get().unwrap_or(&Value::Null)
    }

    /// Progress belongs to a call.
    fn wants_progress(&self) -> bool {
        false
    }

    fn log_level(&self) -> Option<LogLevel> {
        Some(self.level())
    }

    fn time_asking(&self) -> Duration {
        self.asking.total()
    }

    fn progress(&self, _progress: Progress) {}

    fn elicitation_complete(&self, id: &str) {
        let opens_pages = ClientPeer::capabilities(self).pointer("/elicitation/url").is_some_and(Value::is_object);
        if opens_pages && self.ready.load(Ordering::Relaxed) {
            let params = json!({"elicitationId": id});
            self.outside.send(&json!({"jsonrpc": "2.0", "method": ELICITATION_COMPLETE, "params": params}));
        }
    }

    fn log(&self, message: LogMessage) {
        if message.level >= self.level() {
            // A client that is too slow misses some of them.
            _ = self.logs.try_send(message);
        }
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, Unanswered>> {
        let asking = async move {
            if questions.values().any(|question| !is_answered_by(ClientPeer::capabilities(self), question)) {
                return Err(Unanswered::Unsupported);
            }
            if !self.ready.load(Ordering::Relaxed) {
                return Err(Unanswered::Gone);
            }
            let _open = self.asking.open();
            tokio::select! {
                answers = tokio::time::timeout(ANSWER_TIMEOUT, self.ask_on(&self.outside, questions)) => {
                    answers.unwrap_or(Err(Unanswered::TimedOut))
                }
                () = self.ended.cancelled() => Err(Unanswered::Gone),
            }
        };
        asking.boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;
    use sekisho_core::peer::QuestionMethod;

    fn roots() -> Questions {
        Questions::from([("key".into(), Question { method: QuestionMethod::Roots, params: json!({}) })])
    }

    #[tokio::test]
    async fn a_session_has_its_own_log_level_and_asks_only_supported_questions() {
        let (quiet, other) = (
            McpSession::new(Owner::gateway(), EventLog::default()),
            McpSession::new(Owner::gateway(), EventLog::default()),
        );
        assert_ne!(quiet.id(), other.id());
        quiet.set_level(LogLevel::Error);
        for session in [&quiet, &other] {
            session.log(LogMessage { level: LogLevel::Warning, logger: None, data: json!("text") });
        }
        let received = |session: &McpSession| session.is_ready().expect("the messages").try_recv().is_ok();
        assert!(!quiet.is_initialized());
        assert_eq!(quiet.ask(roots()).await, Err(Unanswered::Unsupported));
        quiet.initialize(json!({"roots": {}}));
        assert!(quiet.is_initialized());
        assert_eq!(quiet.ask(roots()).await, Err(Unanswered::Gone), "it is not ready");
        assert_eq!((received(&quiet), received(&other)), (false, true));
    }

    #[tokio::test]
    async fn an_answer_reaches_its_own_question_once() {
        let session = McpSession::new(Owner::gateway(), EventLog::default());
        let mut sent = Box::pin(session.outside.connect().expect("a stream"));
        session.initialize(json!({"roots": {}}));
        session.is_ready();
        let asking = session.ask(roots());
        let answering = async {
            let question: Value =
                serde_json::from_str(&sent.next().await.and_then(|event| event.message).expect("a question"))
                    .expect("JSON");
            assert_eq!(question["method"], "roots/list");
            session.answered(&RequestId::Number(7), Ok(json!({"roots": ["of another question"]})));
            session.answered(&RequestId::String("0".into()), Ok(json!({"roots": ["of a string"]})));
            let id = RequestId::Number(question["id"].as_i64().expect("an id"));
            session.answered(&id, Ok(json!({"roots": []})));
            session.answered(&id, Ok(json!({"roots": ["again"]})));
        };
        let (answers, ()) = tokio::join!(asking, answering);
        assert_eq!(answers.expect("answers")["key"], json!({"roots": []}));
        assert!(session.questions.waiting.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_idle_when_no_request_was_served_for_a_while() {
        let session = McpSession::new(Owner::gateway(), EventLog::default());
        let idle = Duration::from_secs(40);
        let active = session.active();
        tokio::time::advance(2 * idle).await;
        assert_eq!(session.time_left(idle), Some(idle), "a request is being served");
        drop(active);
        tokio::time::advance(idle / 4).await;
        assert_eq!(session.time_left(idle), Some(idle / 4 * 3));
        tokio::time::advance(idle / 4 * 3).await;
        assert_eq!(session.time_left(idle), None);
    }

    #[tokio::test]
    async fn its_user_is_asked_once_for_calls_that_wait_for_approvers_together() {
        let session = McpSession::new(Owner::gateway(), EventLog::default());
        let (asked, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let ask = || {
            let (sender, answer) = oneshot::channel();
            asked.fetch_add(1, Ordering::Relaxed);
            answers.lock().push(sender);
            answer.map(|answer| answer.ok().flatten()).boxed()
        };
        let answer = async |wait: Option<Duration>| {
            tokio::task::yield_now().await;
            while answers.lock().is_empty() {
                tokio::task::yield_now().await;
            }
            for sender in std::mem::take(&mut *answers.lock()) {
                sender.send(wait).unwrap();
            }
        };
        let minute = Duration::from_secs(60);
        let of_call = || session.ask_about_approvals(ask);
        let (one, other, ()) = tokio::join!(of_call(), of_call(), answer(Some(minute)));
        assert_eq!((one, other, asked.load(Ordering::Relaxed)), (minute, minute, 1));
        // A later call is asked about anew.
        let (later, ()) = tokio::join!(of_call(), answer(Some(Duration::ZERO)));
        assert_eq!((later, asked.load(Ordering::Relaxed)), (Duration::ZERO, 2));
        // The call whose question it was is gone: the other one asks.
        let (gone, stays, ()) = tokio::join!(of_call(), of_call(), async {
            answer(None).await;
            answer(Some(minute)).await;
        });
        assert_eq!((gone, stays, asked.load(Ordering::Relaxed)), (Duration::ZERO, minute, 4));
    }
}
