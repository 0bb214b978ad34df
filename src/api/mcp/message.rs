//! Messages of a client, read from a body or a line (JSON-RPC 2.0, §4 and §5; RFC 8259).

use rmcp::model::{ErrorCode, ErrorData, MetaObject, RequestId, RequestMetaObject};
use serde_json::{Map, Value, json};

use crate::body::HeldMemory;
use sekisho_core::json::{self, InvalidJson, InvalidJsonKind};

/// One message of a client.
#[derive(Debug)]
pub(super) enum Message {
    Request(Request),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// The answer to a request of ours: a result, or an error.
    Answer {
        id: RequestId,
        answer: Result<Value, ErrorData>,
    },
    /// The answer to no request: an error of a client that could not read an id, or an id that we never use.
    AnswerToNothing,
}

/// A request of a client, before its parameters are read.
#[derive(Debug)]
pub(super) struct Request {
    pub id: RequestId,
    pub method: String,
    /// Without `_meta`.
    pub params: Map<String, Value>,
    pub meta: RequestMetaObject,
    /// Their share of the memory for bodies.
    pub memory: HeldMemory,
}

/// Why a body is not one message, and the id of the intended message.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) error: ErrorData,
    /// Unreadable requests have no id to answer; the protocol's schema omits it then.
    pub(super) id: Option<RequestId>,
}

impl Refusal {
    pub(super) fn new(error: ErrorData, id: Option<RequestId>) -> Box<Self> {
        Box::new(Self { error, id })
    }

    fn invalid(message: &str, id: Option<RequestId>) -> Box<Self> {
        Self::new(ErrorData::invalid_request(message.to_owned(), None), id)
    }
}

/// Errors: [`Refusal`] if it is not one message.
pub(super) fn from_json(message: Value, memory: HeldMemory) -> Result<Message, Box<Refusal>> {
    let Value::Object(mut fields) = message else {
        return Err(Refusal::invalid("a message must be an object; send each message in a request of its own", None));
    };
    if let Some(violation) = violation_of(&fields) {
        return Err(Refusal::invalid(violation, fields.get("id").and_then(id_of)));
    }
    let id = fields.get("id").and_then(id_of);
    let Some(Value::String(method)) = fields.remove("method") else { return Ok(answer(id, fields)) };
    let mut params = match fields.remove("params") {
        Some(Value::Object(params)) => params,
        _ => Map::new(),
    };
    let Some(id) = id else { return Ok(Message::Notification { method, params }) };
    let meta = match params.remove("_meta") {
        None => Map::new(),
        Some(Value::Object(meta)) => meta,
        Some(_) => {
            return Err(Refusal::new(ErrorData::invalid_params("`_meta` must be an object", None), Some(id)));
        }
    };
    Ok(Message::Request(Request { id, method, params, meta: RequestMetaObject(MetaObject(meta)), memory }))
}

/// The message that answers it.
impl From<Box<Refusal>> for Value {
    fn from(refusal: Box<Refusal>) -> Self {
        let mut message = json!({"jsonrpc": "2.0", "error": refusal.error});
        if let Some(id) = refusal.id {
            message["id"] = json!(id);
        }
        message
    }
}

fn answer(id: Option<RequestId>, mut fields: Map<String, Value>) -> Message {
    let Some(id) = id else { return Message::AnswerToNothing };
    let answer = match fields.remove("error") {
        Some(error) => Err(serde_json::from_value(error)
            .unwrap_or_else(|_| ErrorData::internal_error("the client's error is malformed", None))),
        None => Ok(fields.remove("result").unwrap_or_default()),
    };
    Message::Answer { id, answer }
}

/// Why a text is not acceptable JSON, for the id in it.
pub(super) fn unacceptable(body: &[u8], problem: &InvalidJson) -> Box<Refusal> {
    let message = format!("the body is not acceptable JSON: {problem}");
    if !matches!(problem.kind, InvalidJsonKind::LargeInteger { .. }) {
        return Refusal::new(ErrorData::new(ErrorCode::PARSE_ERROR, message, None), None);
    }
    // The rest can be parsed, including the id of a request.
    let id = match json::parse_answer(body) {
        Ok((Value::Object(fields), large)) if fields.contains_key("method") && !large.iter().any(|at| at == "/id") => {
            fields.get("id").and_then(id_of)
        }
        _ => None,
    };
    Refusal::new(ErrorData::invalid_params(message, None), id)
}

fn violation_of(message: &Map<String, Value>) -> Option<&'static str> {
    let is_answer = message.contains_key("result") || message.contains_key("error");
    if message.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return Some("`jsonrpc` is not \"2.0\"");
    }
    // An error may answer a message whose id could not be read.
    let is_of_nothing = |id: &Value| id.is_null() && message.contains_key("error");
    if message.get("id").is_some_and(|id| id_of(id).is_none() && !is_of_nothing(id)) {
        return Some("`id` must be a string or an integer");
    }
    match message.get("method") {
        Some(method) if !method.is_string() => Some("`method` must be a string"),
        None if !is_answer => Some("`method` or `result` is missing"),
        _ if message.get("params").is_some_and(|params| !params.is_object()) => Some("`params` must be an object"),
        _ => None,
    }
}

fn id_of(id: &Value) -> Option<RequestId> {
    match id {
        Value::String(id) => Some(RequestId::String(id.as_str().into())),
        Value::Number(id) => id.as_i64().map(RequestId::Number),
        _ => None,
    }
}
