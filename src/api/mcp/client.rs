//! The client behind a request, as a running call sees it: a [`ClientPeer`] that hands everything on to
//! whoever serves the request at the moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::sessions::SessionState;
use crate::core::call::OpenTime;
use crate::core::peer::{
    ANSWER_TIMEOUT, Answers, ClientPeer, LogLevel, LogMessage, Progress, Question, QuestionMethod, Questions,
    Unanswered,
};

/// ClientEvent that may wait for a slow client before more of it is left out.
const NEWS_KEPT: usize = 64;

/// Questions of one call that may wait at once, asked side by side by one upstream.
const QUESTIONS_KEPT: usize = 8;

/// How long a question waits for others that are asked side by side with it.
const ASKED_TOGETHER: Duration = Duration::from_millis(20);

/// What a running call holds of its client.
#[derive(Debug)]
pub(super) struct Client {
    capabilities: Value,
    wants_progress: bool,
    log_level: Option<LogLevel>,
    /// Answers that came with the request, before anything was asked.
    given: Mutex<Answers>,
    /// A capability that a question would have needed.
    missing: Mutex<Option<Value>>,
    asking: OpenTime,
    /// Its session, and for how long that had asked the client before the call.
    session: Option<(Arc<SessionState>, Duration)>,
    news: mpsc::Sender<ClientEvent>,
    asked: mpsc::Sender<ClientQuestion>,
}

/// What whoever serves the request hears of the call.
#[derive(Debug)]
pub(super) struct ClientEvents {
    pub news: PeekReceiver<ClientEvent>,
    pub asked: PeekReceiver<ClientQuestion>,
}

/// What came from a call, in its order.
#[derive(Debug)]
pub(super) struct PeekReceiver<T> {
    receiver: mpsc::Receiver<T>,
    /// The next one, where somebody has looked.
    next: Option<Box<T>>,
}

/// Something to tell the client.
#[derive(Debug)]
pub(super) enum ClientEvent {
    Progress(Progress),
    Log(LogMessage),
}

/// Something to ask the client. Closed when the call no longer waits for it.
#[derive(Debug)]
pub(super) struct ClientQuestion {
    pub questions: Questions,
    pub answer: oneshot::Sender<Result<Answers, Unanswered>>,
}

impl Client {
    pub(super) fn new(
        capabilities: Value,
        wants_progress: bool,
        log_level: Option<LogLevel>,
        given: Answers,
    ) -> (Self, ClientEvents) {
        let (news, heard_news) = mpsc::channel(NEWS_KEPT);
        let (asked, heard_asked) = mpsc::channel(QUESTIONS_KEPT);
        let client = Self {
            capabilities,
            wants_progress,
            log_level,
            given: Mutex::new(given),
            missing: Mutex::default(),
            asking: OpenTime::default(),
            session: None,
            news,
            asked,
        };
        (client, ClientEvents { news: PeekReceiver::new(heard_news), asked: PeekReceiver::new(heard_asked) })
    }

    /// A question that the session puts to the client may be this call's.
    pub(super) fn in_session(self, session: &Arc<SessionState>) -> Self {
        Self { session: Some((Arc::clone(session), session.time_asking())), ..self }
    }

    /// The capabilities (`ClientCapabilities`) for want of which something was not asked.
    pub(super) fn missing(&self) -> Option<Value> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Moves answers that came in advance, and fit their questions, out of `questions`.
    fn given(&self, questions: &mut Questions) -> Answers {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
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
            *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = Some(capability_for(question));
            return Err(Unanswered::Unsupported);
        }
        let mut answers = self.given(&mut questions);
        if !questions.is_empty() {
            let (answer, answered) = oneshot::channel();
            let _open = self.asking.open();
            self.asked.send(ClientQuestion { questions, answer }).await.map_err(|_closed| Unanswered::Gone)?;
            answers.extend(answered.await.map_err(|_dropped| Unanswered::Gone)??);
        }
        Ok(answers)
    }
}

impl<T> PeekReceiver<T> {
    fn new(receiver: mpsc::Receiver<T>) -> Self {
        Self { receiver, next: None }
    }

    /// `None` when nothing more can come. Nothing is lost when the future is dropped.
    pub(super) async fn recv(&mut self) -> Option<T> {
        match self.next.take() {
            Some(next) => Some(*next),
            None => self.receiver.recv().await,
        }
    }

    pub(super) fn try_recv(&mut self) -> Option<T> {
        self.next.take().map(|next| *next).or_else(|| self.receiver.try_recv().ok())
    }

    /// Waits until something can be received, for ever where nothing comes.
    pub(super) async fn arrived(&mut self) {
        if self.next.is_none() {
            self.next = self.receiver.recv().await.map(Box::new);
        }
        if self.next.is_none() {
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.next = self.try_recv().map(Box::new);
        self.next.is_none()
    }
}

impl ClientEvents {
    /// What is asked with `first`: a server of an older revision puts each question for itself, and a client of the
    /// newer one is asked all of them at once.
    pub(super) async fn with_others(&mut self, first: ClientQuestion) -> Vec<ClientQuestion> {
        let until = Instant::now() + ASKED_TOGETHER;
        let mut all = vec![first];
        while let Ok(Some(asked)) = tokio::time::timeout_at(until, self.asked.recv()).await {
            all.push(asked);
        }
        all
    }
}

impl ClientPeer for Client {
    fn capabilities(&self) -> &Value {
        &self.capabilities
    }

    fn wants_progress(&self) -> bool {
        self.wants_progress
    }

    fn log_level(&self) -> Option<LogLevel> {
        self.log_level
    }

    fn time_asking(&self) -> Duration {
        let of_session = self.session.as_ref().map(|(session, before)| session.time_asking().saturating_sub(*before));
        self.asking.total() + of_session.unwrap_or_default()
    }

    fn progress(&self, progress: Progress) {
        if self.wants_progress {
            // A client that does not keep up misses some of it.
            _ = self.news.try_send(ClientEvent::Progress(progress));
        }
    }

    fn log(&self, message: LogMessage) {
        if self.log_level.is_some_and(|least| message.level >= least) {
            _ = self.news.try_send(ClientEvent::Log(message));
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

/// Whether a client with such capabilities answers such a question. An elicitation is by form unless it says
/// `url`, which is a capability of its own; so are tools in sampling.
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

/// Whether an answer has the fields that the protocol demands of one to such a question.
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
        Client::new(capabilities, true, Some(LogLevel::Warning), given)
    }

    #[tokio::test]
    async fn what_the_client_does_not_declare_is_not_asked() {
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
            let (client, hearing) = client(capabilities.clone(), json!({}));
            drop(hearing);
            let expected = if is_asked { Unanswered::Gone } else { Unanswered::Unsupported };
            let answer = client.ask(questions(method, params)).await;
            assert_eq!(answer, Err(expected), "{capabilities} {method:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_given_in_advance_is_used_where_it_fits() {
        let accepted = json!({"action": "accept", "content": {}});
        let (client, hearing) = client(json!({"elicitation": {}}), json!({"key": accepted, "other": 5}));
        let answers = client.ask(questions(QuestionMethod::Elicitation, json!({}))).await.expect("answers");
        assert_eq!(answers["key"], accepted);
        drop(hearing);
        let again = client.ask(questions(QuestionMethod::Elicitation, json!({}))).await;
        assert_eq!(again, Err(Unanswered::Gone), "an answer is for one question");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_nobody_answers_ends_after_two_minutes() {
        let (client, _hearing) = client(json!({"roots": {}}), json!({}));
        let before = tokio::time::Instant::now();
        assert_eq!(client.ask(questions(QuestionMethod::Roots, json!({}))).await, Err(Unanswered::TimedOut));
        assert_eq!(before.elapsed(), ANSWER_TIMEOUT);
    }

    #[test]
    fn a_client_hears_only_what_it_asked_for_and_slows_nobody_down() {
        let (client, mut hearing) = client(json!({}), json!({}));
        let message = |level| LogMessage { level, logger: None, data: json!("text") };
        client.log(message(LogLevel::Info));
        assert!(hearing.news.is_empty(), "less severe than asked for");
        for _ in 0..NEWS_KEPT * 2 {
            client.log(message(LogLevel::Error));
        }
        let mut heard = 0;
        while hearing.news.try_recv().is_some() {
            heard += 1;
        }
        assert_eq!(heard, NEWS_KEPT);
    }
}
