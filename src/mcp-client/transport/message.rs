//! JSON-RPC messages: how ours are written, how a server's are read, and why a request has no result.

use rmcp::model::{ErrorData, JsonRpcRequest, RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::large_numbers;
use super::message_id::MessageIdReader;
use sekisho_core::error::{Blame, CallError, ErrorCode};

/// The member of `params` that describes the request and its client.
const META: &str = "_meta";

/// Why a request to a server has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server's JSON-RPC error.
    Refused(ErrorData),
    /// The connection ended before the answer.
    Lost,
    /// The answer is not valid.
    Invalid,
    /// The request was not sent or not accepted, or its client did not give the input that the server required.
    Call(CallError),
}

/// A message of a server.
#[derive(Debug)]
pub(crate) enum Message {
    Answer(Answer),
    Notification(ServerNotification),
    Request(JsonRpcRequest<ServerRequest>),
}

/// The answer to a request. Its result is not interpreted here.
#[derive(Debug)]
pub(crate) struct Answer {
    id: Option<RequestId>,
    pub(crate) outcome: Result<Value, Failure>,
}

#[derive(Deserialize)]
struct AnswerMembers {
    jsonrpc: Value,
    id: Option<RequestId>,
    result: Option<Value>,
    error: Option<ErrorData>,
}

impl Message {
    /// `None` if it is not a message. An answer that cannot be parsed fails its request.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        if let Some(answer) = Answer::of(text) {
            return Some(Self::Answer(answer));
        }
        match serde_json::from_slice(text) {
            Ok(ServerJsonRpcMessage::Request(request)) => Some(Self::Request(request)),
            Ok(ServerJsonRpcMessage::Notification(notification)) => Some(Self::Notification(notification.notification)),
            Ok(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)) | Err(_) => {
                let id = MessageIdReader::of(text).answered()?;
                Some(Self::Answer(Answer::failed(id, Failure::Call(unreadable(text)))))
            }
        }
    }

    /// A message, or a batch of them (2025-03-26).
    pub(crate) fn all(text: &[u8]) -> Vec<Self> {
        if text.first() != Some(&b'[') {
            return Self::of(text).into_iter().collect();
        }
        let batch: Vec<&RawValue> = serde_json::from_slice(text).unwrap_or_default();
        batch.into_iter().filter_map(|message| Self::of(message.get().as_bytes())).collect()
    }
}

impl Answer {
    /// `None` if it is not an answer.
    pub(crate) fn of(message: &[u8]) -> Option<Self> {
        let AnswerMembers { jsonrpc, id, result, error } =
            serde_json::from_slice(&large_numbers::exact(message)).ok()?;
        let outcome = match (result, error) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(Failure::Refused(error)),
            _ => return None,
        };
        (jsonrpc == "2.0").then_some(Self { id, outcome })
    }

    pub(super) fn failed(id: i64, failure: Failure) -> Self {
        Self { id: Some(RequestId::Number(id)), outcome: Err(failure) }
    }

    /// The number of the request that it answers; some servers write numbers as text.
    pub(crate) fn number(&self) -> Option<i64> {
        match self.id.as_ref()? {
            RequestId::Number(id) => Some(*id),
            RequestId::String(id) => id.parse().ok(),
        }
    }

    /// Whether it answers the request that it was sent for: an error may have no id.
    pub(crate) fn is_to(&self, asked: i64) -> bool {
        match self.id {
            Some(_) => self.number() == Some(asked),
            None => self.outcome.is_err(),
        }
    }
}

/// A message is longer than `max` bytes.
pub(super) fn too_large(max: usize) -> CallError {
    let message = format!("the MCP server sent a message of more than {max} bytes (max_message_bytes)");
    CallError::new(ErrorCode::OutputTooLarge, message)
}

/// A line is longer than `bytes`, after which it is not read to its end.
pub(super) fn endless_line(bytes: usize) -> CallError {
    let message = format!("it sent a line of more than {bytes} bytes, much more than `max_message_bytes`");
    CallError::new(ErrorCode::OutputTooLarge, message)
}

fn unreadable(text: &[u8]) -> CallError {
    let why = match (str::from_utf8(text), serde_json::from_slice::<Value>(text)) {
        (Err(_), _) => "it is not UTF-8",
        (_, Err(_)) => "it is not JSON, or nested too deeply",
        (_, Ok(_)) => "it is not a JSON-RPC 2.0 message with either a result or an error",
    };
    let message = format!("the MCP server's answer cannot be read: {why}");
    CallError::new(ErrorCode::UpstreamError, message).blaming(Blame::Upstream)
}

#[derive(Serialize)]
struct RequestMembers<'a> {
    jsonrpc: &'static str,
    id: i64,
    method: &'a str,
    params: Params<'a>,
}

/// The parameters, with other metadata than their own.
struct Params<'a> {
    own: &'a Map<String, Value>,
    meta: &'a Map<String, Value>,
}

impl Serialize for Params<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        for (name, value) in self.own.iter().filter(|(name, _)| *name != META) {
            members.serialize_entry(name, value)?;
        }
        if !self.meta.is_empty() {
            members.serialize_entry(META, self.meta)?;
        }
        members.end()
    }
}

/// A request. `meta` is sent in addition to the metadata in `params`.
pub(super) fn request(id: i64, method: &str, params: &Map<String, Value>, mut meta: Map<String, Value>) -> Vec<u8> {
    if let Some(Value::Object(own)) = params.get(META) {
        for (name, value) in own {
            meta.entry(name).or_insert_with(|| value.clone());
        }
    }
    written(&RequestMembers { jsonrpc: "2.0", id, method, params: Params { own: params, meta: &meta } })
}

pub(super) fn notification(method: &str, params: Option<Value>) -> Vec<u8> {
    let mut message = serde_json::json!({"jsonrpc": "2.0", "method": method});
    if let Some(params) = params {
        message["params"] = params;
    }
    written(&message)
}

/// The answer to a request of the server.
pub(super) fn reply(id: &RequestId, outcome: Result<Value, ErrorData>) -> Vec<u8> {
    match outcome {
        Ok(result) => written(&serde_json::json!({"jsonrpc": "2.0", "id": id, "result": result})),
        Err(error) => written(&serde_json::json!({"jsonrpc": "2.0", "id": id, "error": error})),
    }
}

/// Maps with text as keys can always be written.
fn written(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(message: &Value) -> Option<Answer> {
        Answer::of(message.to_string().as_bytes())
    }

    fn code(failure: &Failure) -> i32 {
        if let Failure::Refused(error) = failure { error.code.0 } else { 0 }
    }

    #[test]
    fn an_answer_that_cannot_be_read_fails_its_request_with_the_reason() {
        let deep = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}{}}}"#, "[".repeat(20_000), "]".repeat(20_000));
        for (text, expected) in [
            (&b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xff\"}"[..], "not UTF-8"),
            (deep.as_bytes(), "nested too deeply"),
            (br#"{"jsonrpc":"2.0","id":7}"#, "either a result or an error"),
            (
                br#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"m"}}"#,
                "either a result or an error",
            ),
            (br#"{"jsonrpc":"2.0","id":7,"result":{"#, "not JSON"),
        ] {
            let Some(Message::Answer(answer)) = Message::of(text) else { panic!("an answer: {expected}") };
            assert!(answer.is_to(7));
            let Err(Failure::Call(error)) = answer.outcome else { panic!("a failure: {expected}") };
            assert!(error.message().contains(expected), "{error}");
        }
        assert!(
            Message::of(br#"{"jsonrpc":"2.0","id":7,"method":"unknown"}"#)
                .is_none_or(|message| !matches!(message, Message::Answer(_)))
        );
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
            let found = answer(&message).map(|found| (found.is_to(7), found.outcome.map_err(|failure| code(&failure))));
            assert_eq!(found, expected, "{message}");
        }
    }

    #[test]
    fn the_metadata_of_a_client_is_sent_with_ours_and_never_twice() {
        let params = json!({"name": "t", "_meta": {"mine": 1, "progressToken": "theirs"}});
        let meta = Map::from_iter([("progressToken".to_owned(), json!(3))]);
        let sent = request(3, "tools/call", params.as_object().unwrap(), meta);
        let text = String::from_utf8(sent).unwrap();
        assert_eq!(text.matches("_meta").count(), 1, "{text}");
        let sent: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(sent["params"], json!({"name": "t", "_meta": {"progressToken": 3, "mine": 1}}));
        let plain = request(4, "ping", &Map::new(), Map::new());
        assert_eq!(String::from_utf8(plain).unwrap(), r#"{"jsonrpc":"2.0","id":4,"method":"ping","params":{}}"#);
    }

    #[test]
    fn a_batch_is_read_message_by_message() {
        let batch = br#"[{"jsonrpc":"2.0","id":1,"result":{}},7,{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
        let read = Message::all(batch);
        assert!(matches!(&read[..], [Message::Answer(_), Message::Request(_)]), "{read:?}");
        assert!(Message::all(b"[").is_empty() && Message::all(b"hello").is_empty());
    }
}
