//! One of the clients that call at once: what it sends, and what the call under way was answered.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use super::gateway::{SoakGateway, key_of};
use super::sorts::Sort;
use crate::slack::slack;

/// Calls at once, each over a connection that is kept.
pub(super) const LANES: usize = 64;

/// Callers with keys of their own, who take turns: so few that each has called each tool in the first half, and is known to every
/// cache by then.
pub(super) const CALLERS: usize = 40;

/// What a call of the gateway has not answered by then is never answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Characters of an answer that are shown with a surprise.
const MAX_SHOWN: usize = 300;

/// How the metrics count a call that succeeded.
pub(super) const SUCCESS: &str = "success";

/// How the reply to a call with a key is counted that was sent before: it is no further call.
pub(super) const REPLAYED: &str = "replayed";

/// Whether a call went as it must; otherwise what was wrong.
pub(super) type Outcome = Result<(), String>;

/// One lane of the load.
pub(super) struct Client {
    pub(super) gateway: Arc<SoakGateway>,
    http: reqwest::Client,
    /// Names what one call at a time may use, such as a session.
    pub(super) lane: usize,
    /// Of the call under way; no other call has it.
    pub(super) number: usize,
    answers: Vec<String>,
    settled: Vec<String>,
    last: String,
}

/// What the gateway answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
    /// The text as JSON; null if it is none.
    pub(super) body: Value,
}

/// A call that has ended.
pub(super) struct Played {
    /// To each of its requests.
    pub(super) answers: Vec<String>,
    /// How the metrics count each call of a tool: an error code, or [`SUCCESS`].
    pub(super) settled: Vec<String>,
    /// What was not as it must be.
    pub(super) surprise: Option<String>,
}

impl Client {
    pub(super) fn new(gateway: &Arc<SoakGateway>, http: &reqwest::Client, lane: usize) -> Self {
        Self {
            gateway: Arc::clone(gateway),
            http: http.clone(),
            lane,
            number: 0,
            answers: Vec::new(),
            settled: Vec::new(),
            last: String::new(),
        }
    }

    /// Makes one call of a sort.
    pub(super) async fn play(&mut self, sort: &Sort, number: usize) -> Played {
        self.number = number;
        let outcome = (sort.play)(self).await;
        let (answers, settled) = (mem::take(&mut self.answers), mem::take(&mut self.settled));
        let surprise = match outcome {
            Err(surprise) => Some(surprise),
            Ok(()) if sort.admits(&answers) => None,
            Ok(()) => Some(format!("answered {answers:?}, at last {}", self.last)),
        };
        Played { answers, settled, surprise }
    }

    /// The key of the caller whose turn it is.
    pub(super) fn key(&self) -> String {
        // Numbers of one sort differ by whole rounds, so that their own remainders are few.
        let turn = (self.number.wrapping_mul(2_654_435_761) >> 16) % CALLERS;
        key_of(&format!("caller-{turn}"))
    }

    /// The key of the caller that nobody else uses meanwhile.
    pub(super) fn own_key(&self) -> String {
        key_of(&format!("lane-{}", self.lane))
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.gateway.url()))
    }

    pub(super) fn get(&self, key: &str, path: &str) -> RequestBuilder {
        self.request(Method::GET, path).bearer_auth(key)
    }

    pub(super) fn post(&self, key: &str, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).bearer_auth(key).json(body)
    }

    /// A call of a tool over REST.
    pub(super) fn execute(&self, key: &str, tool: &str, body: &Value) -> RequestBuilder {
        self.post(key, &format!("/tools/{tool}/execute"), body)
    }

    /// Sends a call of a tool over REST.
    pub(super) async fn run(&mut self, request: RequestBuilder) -> Result<Answer, String> {
        let sent = request.timeout(slack(ANSWER_TIMEOUT)).send().await;
        self.run_sent(sent).await
    }

    /// The same for a call that was sent.
    pub(super) async fn run_sent(&mut self, sent: reqwest::Result<Response>) -> Result<Answer, String> {
        let answer = self.read(sent).await?;
        let code = answer.body["error_info"]["code"].as_str().unwrap_or(SUCCESS).to_owned();
        self.settle(if answer.headers.contains_key("idempotency-replayed") { REPLAYED } else { &code });
        self.take_in(answer.status, &code);
        Ok(answer)
    }

    /// Sends a request that is no call of a tool.
    pub(super) async fn ask(&mut self, request: RequestBuilder) -> Result<Answer, String> {
        let sent = request.timeout(slack(ANSWER_TIMEOUT)).send().await;
        let answer = self.read(sent).await?;
        self.take_in(answer.status, answer.body["error_info"]["code"].as_str().unwrap_or(SUCCESS));
        Ok(answer)
    }

    /// Sends a request whose answer is a stream, which is left to whoever reads it, or drops it.
    pub(super) async fn open(&mut self, request: RequestBuilder) -> Result<Response, String> {
        let response = request.send().await.map_err(|error| format!("no answer: {error:?}"))?;
        self.take_in(response.status(), SUCCESS);
        Ok(response)
    }

    /// The metrics count one call of a tool that ended so.
    pub(super) fn settle(&mut self, code: &str) {
        self.settled.push(code.to_owned());
    }

    /// What was settled since the last call of a sort.
    pub(super) fn take_settled(&mut self) -> Vec<String> {
        mem::take(&mut self.settled)
    }

    async fn read(&mut self, sent: reqwest::Result<Response>) -> Result<Answer, String> {
        let response = sent.map_err(|error| format!("no answer: {error:?}"))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.map_err(|error| format!("half an answer: {error:?}"))?;
        self.last = text.chars().take(MAX_SHOWN).collect();
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Answer { status, headers, text, body })
    }

    fn take_in(&mut self, status: StatusCode, code: &str) {
        let status = status.as_u16();
        self.answers.push(if code == SUCCESS { status.to_string() } else { format!("{status} {code}") });
    }
}

impl Answer {
    /// A header that must be there.
    pub(super) fn header(&self, name: &str) -> Result<&str, String> {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.ok_or_else(|| format!("no header {name}: {}", self.shown()))
    }

    /// A text in the body that must be there, by its JSON Pointer.
    pub(super) fn text_at(&self, pointer: &str) -> Result<&str, String> {
        let text = self.body.pointer(pointer).and_then(Value::as_str);
        text.ok_or_else(|| format!("no text at {pointer}: {}", self.shown()))
    }

    /// Fails unless the body has this value there.
    pub(super) fn require(&self, pointer: &str, value: &Value) -> Outcome {
        match self.body.pointer(pointer) == Some(value) {
            true => Ok(()),
            false => Err(format!("not {value} at {pointer}: {}", self.shown())),
        }
    }

    pub(super) fn shown(&self) -> String {
        format!("{} {}", self.status, self.text.chars().take(MAX_SHOWN).collect::<String>())
    }
}

/// The arguments with which the calculator answers 42.
pub(super) fn calculation() -> Value {
    json!({"arguments": {"expression": "6*7"}})
}
