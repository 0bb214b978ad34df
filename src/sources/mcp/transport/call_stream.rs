//! The event stream of one call: the server's notifications and requests until its answer. If the connection breaks,
//! the stream is resumed after the last event with an id.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use rmcp::model::{
    ErrorData, JsonRpcRequest, ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest,
};
use rmcp::service::ServiceError;
use serde::Deserialize;
use serde_json::Value;
use sse_stream::Sse;

use super::http::{Events, HttpClient};
use crate::infra::outbound::OutboundStream;
use crate::sources::mcp::server::connect::{STREAM_RETRIES, call_error};
use crate::sources::mcp::server::large_numbers;
use crate::sources::mcp::server::output;
use crate::sources::mcp::server::session::Failure;

/// Delay before a broken stream is reopened, doubled each time, unless the server sends a delay.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Maximum delay that a server can set.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long a stream is read to its end after the answer, so that its connection can be reused.
const DRAINED_TIMEOUT: Duration = Duration::from_millis(50);

pub(crate) struct CallStream {
    client: HttpClient,
    revision: ProtocolVersion,
    events: Option<Events>,
    last_event: Option<String>,
    /// As the server wants it.
    wait: Option<Duration>,
    /// Times in a row that it was opened again and nothing came.
    tries: usize,
}

/// What comes over the stream.
pub(crate) enum Message {
    Answer(Answer),
    Notification(ServerNotification),
    Request(JsonRpcRequest<ServerRequest>),
}

/// An answer as JSON-RPC has it. Its result is not looked into here.
#[derive(Debug)]
pub(crate) struct Answer {
    id: Option<RequestId>,
    pub(crate) outcome: Result<Value, ErrorData>,
}

#[derive(Deserialize)]
struct Wire {
    jsonrpc: Value,
    id: Option<RequestId>,
    result: Option<Value>,
    error: Option<ErrorData>,
}

impl CallStream {
    pub(crate) fn new(client: HttpClient, revision: &ProtocolVersion, answer: OutboundStream) -> Self {
        let events = Some(client.events(answer));
        Self { client, revision: revision.clone(), events, last_event: None, wait: None, tries: 0 }
    }

    /// The next message. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// The stream has ended for good, or an event is too large.
    pub(crate) async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            let Some(events) = &mut self.events else {
                self.open_again().await?;
                continue;
            };
            match events.next().await {
                Some(Ok(event)) => {
                    self.tries = 0;
                    self.wait = event.retry.map(Duration::from_millis).or(self.wait);
                    if let Some(message) = message(&event) {
                        self.last_event = event.id.or(self.last_event.take());
                        return Ok(message);
                    }
                    self.last_event = event.id.or(self.last_event.take());
                }
                Some(Err(error)) => match call_error(&error) {
                    Some(error) => return Err(Failure::Call(output::again(error))),
                    None => self.events = None,
                },
                None => self.events = None,
            }
        }
    }

    /// Reads the rest of the stream after the answer.
    pub(crate) fn drain(mut self) {
        let Some(mut rest) = self.events.take() else { return };
        if !matches!(rest.next().now_or_never(), Some(None)) {
            tokio::spawn(tokio::time::timeout(DRAINED_TIMEOUT, async move { while rest.next().await.is_some() {} }));
        }
    }

    async fn open_again(&mut self) -> Result<(), Failure> {
        let lost = || Failure::Service(ServiceError::TransportClosed);
        let last_event = self.last_event.as_deref().filter(|_| self.tries < STREAM_RETRIES).ok_or_else(lost)?;
        let wait = self.wait.unwrap_or(FIRST_WAIT * (1 << self.tries));
        self.tries += 1;
        tokio::time::sleep(wait.min(MAX_WAIT)).await;
        self.events = self.client.resume(&self.revision, last_event).await.ok();
        Ok(())
    }
}

fn message(event: &Sse) -> Option<Message> {
    if !matches!(event.event.as_deref(), None | Some("" | "message")) {
        return None;
    }
    let data = event.data.as_deref().filter(|data| !data.is_empty())?;
    let message = Message::of(data);
    if message.is_none() {
        tracing::debug!("an MCP server sent an event that is not a message");
    }
    message
}

impl Message {
    /// `None` for what is no message.
    pub(crate) fn of(data: &str) -> Option<Self> {
        if let Some(answer) = Answer::of(data.as_bytes()) {
            return Some(Self::Answer(answer));
        }
        match serde_json::from_str(data).ok()? {
            ServerJsonRpcMessage::Request(request) => Some(Self::Request(request)),
            ServerJsonRpcMessage::Notification(notification) => Some(Self::Notification(notification.notification)),
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => None,
        }
    }
}

impl Answer {
    /// `None` for what is none.
    pub(crate) fn of(message: &[u8]) -> Option<Self> {
        let Wire { jsonrpc, id, result, error } = serde_json::from_slice(&large_numbers::exact(message)).ok()?;
        let outcome = match (result, error) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(error),
            _ => return None,
        };
        (jsonrpc == "2.0").then_some(Self { id, outcome })
    }

    /// Whether it answers the request of this id. Some servers answer in text, and an error may have no id.
    pub(crate) fn is_to(&self, asked: i64) -> bool {
        match &self.id {
            Some(RequestId::Number(id)) => *id == asked,
            Some(RequestId::String(id)) => id.parse() == Ok(asked),
            None => self.outcome.is_err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(message: &Value) -> Option<Answer> {
        Answer::of(message.to_string().as_bytes())
    }

    #[test]
    fn an_answer_has_a_result_or_an_error_and_nothing_else_is_one() {
        let error = json!({"code": -1, "message": "no"});
        for (message, expected) in [
            (json!({"jsonrpc": "2.0", "id": 7, "result": {"a": 1}}), Some((true, Ok(json!({"a": 1}))))),
            (json!({"jsonrpc": "2.0", "id": "7", "result": {}}), Some((true, Ok(json!({}))))),
            (json!({"jsonrpc": "2.0", "id": 8, "result": {}}), Some((false, Ok(json!({}))))),
            (json!({"jsonrpc": "2.0", "result": {}}), Some((false, Ok(json!({}))))),
            (json!({"jsonrpc": "2.0", "id": 7, "error": error}), Some((true, Err(-1)))),
            (json!({"jsonrpc": "2.0", "id": null, "error": error}), Some((true, Err(-1)))),
            (json!({"jsonrpc": "2.0", "id": 7, "error": error, "result": {}}), None),
            (json!({"jsonrpc": "2.0", "id": 7}), None),
            (json!({"jsonrpc": "1.0", "id": 7, "result": {}}), None),
            (json!({"id": 7, "result": {}}), None),
            (json!([]), None),
        ] {
            let found = answer(&message).map(|found| (found.is_to(7), found.outcome.map_err(|error| error.code.0)));
            assert_eq!(found, expected, "{message}");
        }
    }

    #[test]
    fn events_are_answers_news_or_questions() {
        let event = |name: Option<&str>, data: &str| {
            message(&Sse { event: name.map(Into::into), data: Some(data.into()), id: None, retry: None })
        };
        let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        assert!(matches!(event(None, answer), Some(Message::Answer(_))));
        assert!(matches!(event(Some("message"), answer), Some(Message::Answer(_))));
        assert!(event(Some("ping"), answer).is_none());
        let news = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert!(matches!(event(None, news), Some(Message::Notification(_))));
        let question = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert!(matches!(event(None, question), Some(Message::Request(_))));
        assert!(event(None, "{").is_none() && event(None, "").is_none());
    }
}
