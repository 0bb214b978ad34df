//! `x-should-retry`: the packages of OpenAI and Anthropic repeat a request by it, else only by the status.

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use serde_json::Value;

use sekisho_api::reply;
use sekisho_core::error::CallError;

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The reply to a request that failed: the gateway's reply, changed to the form of an API.
pub(crate) fn refused(error: CallError, change: impl FnOnce(&mut Value)) -> Response {
    let should_retry = HeaderValue::from_static(if error.retryable() { "true" } else { "false" });
    let mut response = reply::refused_as(error, change);
    response.headers_mut().insert(SHOULD_RETRY, should_retry);
    response
}
