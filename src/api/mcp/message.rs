//! Checks that a body is a message at all, before its method is read (JSON-RPC 2.0, §4 and §5; RFC 8259).

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::api::reply;
use crate::core::json;
use crate::core::json::InvalidJson;

const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;
const INVALID_PARAMS: i32 = -32_602;

/// Why a body is not one message, and the id of the intended message.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: i32,
    pub(super) message: String,
    /// Unreadable requests have no id to answer; the protocol's schema omits it then.
    pub(super) id: Option<Value>,
}

/// The message's fields.
///
/// # Errors
/// [`Refusal`] if the body is not acceptable JSON, or not one message.
pub(super) fn read(body: &[u8]) -> Result<Map<String, Value>, Refusal> {
    // Parsers that use the first of two keys would see another request than those that use the last.
    let message = json::parse(body).map_err(|problem| unacceptable(body, &problem))?;
    let refused = |message: &str, id| Refusal { code: INVALID_REQUEST, message: message.to_owned(), id };
    let Value::Object(fields) = message else {
        return Err(refused("a message must be an object; send each message in a request of its own", None));
    };
    match violation_of(&fields) {
        Some(violation) => Err(refused(violation, fields.get("id").filter(|id| is_id(id)).cloned())),
        None => Ok(fields),
    }
}

/// Refuses a message before a parser would round an integer in it; `None` for nearly every message.
pub(super) fn refusal_of_large_integer(message: &[u8]) -> Option<Refusal> {
    if json::exact(message, |_| true).paths.is_empty() {
        return None;
    }
    let problem = json::parse(message).err().filter(|problem| problem.large_integer.is_some())?;
    Some(unacceptable(message, &problem))
}

fn unacceptable(body: &[u8], problem: &InvalidJson) -> Refusal {
    let message = format!("the body is not acceptable JSON: {problem}");
    if problem.large_integer.is_none() {
        return Refusal { code: PARSE_ERROR, message, id: None };
    }
    // The rest can be parsed, including the id of a request.
    let id = match json::parse_answer(body) {
        Ok((Value::Object(mut fields), large))
            if fields.contains_key("method") && !large.iter().any(|at| at == "/id") =>
        {
            fields.remove("id").filter(is_id)
        }
        _ => None,
    };
    Refusal { code: INVALID_PARAMS, message, id }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut body = json!({"jsonrpc": "2.0", "error": {"code": self.code, "message": self.message}});
        if let Some(id) = self.id {
            body["id"] = id;
        }
        let mut response = reply::json(StatusCode::BAD_REQUEST, &body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

fn violation_of(message: &Map<String, Value>) -> Option<&'static str> {
    let is_answer = message.contains_key("result") || message.contains_key("error");
    if message.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return Some("`jsonrpc` is not \"2.0\"");
    }
    // An error may answer a message whose id could not be read.
    let is_of_nothing = |id: &Value| id.is_null() && message.contains_key("error");
    if message.get("id").is_some_and(|id| !is_id(id) && !is_of_nothing(id)) {
        return Some("`id` must be a string or a number");
    }
    match message.get("method") {
        Some(method) if !method.is_string() => Some("`method` must be a string"),
        None if !is_answer => Some("`method` or `result` is missing"),
        _ if message.get("params").is_some_and(|params| !params.is_object()) => Some("`params` must be an object"),
        _ => None,
    }
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_number()
}
