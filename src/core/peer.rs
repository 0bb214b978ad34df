//! The client of a call, if it can be contacted while the call runs.
//!
//! Only MCP has such clients. Messages are passed on as the protocol defines them
//! (<https://modelcontextprotocol.io/specification>): JSON that neither side of this interface interprets.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::caller::Owner;

/// How long a client may take to answer a question; a person may have to read it.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The protocol's code for a request that needs its user to open a page first (2025-11-25).
pub const URL_ELICITATION_REQUIRED: i32 = -32042;

/// The protocol's notification that the user has finished on a page.
pub const ELICITATION_COMPLETE: &str = "notifications/elicitation/complete";

/// The messages and questions that a running call may send to its client.
pub trait ClientPeer: fmt::Debug + Send + Sync {
    /// The owner of resources that are held for the client.
    fn owner(&self) -> &Owner;

    /// The protocol's `ClientCapabilities`: the kinds of questions that [`ClientPeer::ask`] may send.
    fn capabilities(&self) -> &Value;

    /// Whether the client requested progress. Otherwise [`ClientPeer::progress`] does nothing.
    fn wants_progress(&self) -> bool;

    /// The minimum severity of log messages that the client requested; `None` for no messages.
    fn log_level(&self) -> Option<LogLevel>;

    /// How long questions have been open so far: this is not counted as the tool's time.
    fn time_asking(&self) -> Duration;

    /// Reports progress. Never waits; messages that arrive too fast are dropped.
    fn progress(&self, progress: Progress);

    /// Says that the upstream runs the call as a task: a client that supports tasks may get one too.
    fn task_created(&self) {}

    /// Passes on a log message of the tool, if the client requested such messages. Never waits.
    fn log(&self, message: LogMessage);

    /// Says that the user has finished on a page (`notifications/elicitation/complete`), to a client of a revision with that
    /// notification. Never waits.
    fn elicitation_complete(&self, _id: &str) {}

    /// Sends the client all `questions` at once and waits for all answers, at most [`ANSWER_TIMEOUT`]. Answers have
    /// the keys of their questions. Dropping the future withdraws the questions.
    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, Unanswered>>;
}

/// A session of a client. Sessions with upstream servers that belong to it start with its first call and end with it.
/// As a [`ClientPeer`] it receives messages that belong to none of its calls.
pub trait ClientSession: ClientPeer {
    /// Unique for every session of this process.
    fn id(&self) -> u64;

    /// Whether the client's revision starts with a handshake. Only such a client accepts requests.
    fn is_initialized(&self) -> bool;

    /// Cancelled when the session ends.
    fn ended(&self) -> &CancellationToken;
}

/// Questions under keys chosen by the asking side.
pub type Questions = BTreeMap<String, Question>;

/// The protocol's results (`ElicitResult`, `CreateMessageResult`, `ListRootsResult`), as the client sent them.
pub type Answers = BTreeMap<String, Value>;

/// One request of a server to a client, as the protocol defines it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub method: QuestionMethod,
    #[serde(default)]
    pub params: Value,
}

/// The questions that a server may ask a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuestionMethod {
    #[serde(rename = "elicitation/create")]
    Elicitation,
    #[serde(rename = "sampling/createMessage")]
    Sampling,
    #[serde(rename = "roots/list")]
    Roots,
}

/// `notifications/progress`, without its token.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Increases with every message.
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// `notifications/message`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogMessage {
    pub level: LogLevel,
    pub logger: Option<String>,
    pub data: Value,
}

/// Severities of RFC 5424 §6.2.1, from the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unanswered {
    #[error("the client does not answer questions of this kind")]
    Unsupported,
    #[error("the client did not answer within {} s", ANSWER_TIMEOUT.as_secs())]
    TimedOut,
    #[error("too many calls wait for answers of their clients")]
    TooMany,
    #[error("the client is gone")]
    Gone,
    /// The client's JSON-RPC error.
    #[error("the client refused: {message}")]
    Refused { code: i32, message: String },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_is_written_as_the_protocol_writes_it() {
        let written = json!({"method": "elicitation/create", "params": {"message": "Which branch?"}});
        let question: Question = serde_json::from_value(written.clone()).expect("a question");
        assert_eq!(question.method, QuestionMethod::Elicitation);
        assert_eq!(serde_json::to_value(question).expect("JSON"), written);
    }

    #[test]
    fn severities_are_ordered_as_syslog_orders_them() {
        assert!(LogLevel::Debug < LogLevel::Warning && LogLevel::Error < LogLevel::Emergency);
        assert_eq!(serde_json::to_value(LogLevel::Notice).expect("JSON"), json!("notice"));
    }
}
