//! Replies and errors as HTTP: the only module that maps error codes to status codes.

use std::any::Any;
use std::fmt::Write;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use sekisho_calls::pipeline::{Answered, Reply};
use sekisho_core::call::{CallContext, Caller, RateState, Via};
use sekisho_core::error::{CallError, ErrorCode, NeededSignIn};

const RATE_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const RATE_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RATE_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The scheme of the challenge of callers who must sign in to an upstream.
const SIGN_IN_SCHEME: &str = "Sekisho-Sign-In";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Every error code's status, from the table of the specification.
pub fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::InvalidRequest
        | ErrorCode::InvalidArguments
        | ErrorCode::ContextLengthExceeded
        | ErrorCode::ModelRefused => StatusCode::BAD_REQUEST,
        ErrorCode::Unauthenticated | ErrorCode::SignInRequired => StatusCode::UNAUTHORIZED,
        ErrorCode::BudgetExceeded | ErrorCode::TokenLimitExceeded => StatusCode::PAYMENT_REQUIRED,
        ErrorCode::Denied
        | ErrorCode::ApprovalRequired
        | ErrorCode::ApprovalDenied
        | ErrorCode::ApprovalExpired
        | ErrorCode::ApprovalMismatch
        | ErrorCode::ToolChanged => StatusCode::FORBIDDEN,
        ErrorCode::UnknownTool | ErrorCode::UnknownSession | ErrorCode::UnknownResult | ErrorCode::NotFound => {
            StatusCode::NOT_FOUND
        }
        ErrorCode::ConversationLocked
        | ErrorCode::IdempotencyConflict
        | ErrorCode::UnknownOutcome
        | ErrorCode::ReplayDiverged
        | ErrorCode::SessionLost
        | ErrorCode::ApprovalLost
        | ErrorCode::NameTaken => StatusCode::CONFLICT,
        ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorCode::InvalidOutput => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        // The client of a cancelled call has disconnected; nobody reads the status.
        ErrorCode::Internal | ErrorCode::Cancelled => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::UpstreamError | ErrorCode::TokenExchangeFailed | ErrorCode::OutputTooLarge => {
            StatusCode::BAD_GATEWAY
        }
        ErrorCode::Overloaded | ErrorCode::CircuitOpen | ErrorCode::WarmingUp => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Timeout | ErrorCode::SandboxTimeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::ToolError | ErrorCode::SandboxMemory | ErrorCode::SandboxOutput | ErrorCode::SandboxTrap => {
            StatusCode::OK
        }
    }
}

/// The reply of a call.
pub(crate) fn call_reply(reply: &Reply) -> Response {
    let error = reply.outcome.as_ref().err();
    let mut response = json(error.map_or(StatusCode::OK, |error| status(error.code())), reply);
    let headers = response.headers_mut();
    if let Some(rate) = reply.receipt.rate {
        rate_headers(headers, rate);
    }
    if let Some(error) = error {
        retry_after(headers, error);
        if let Some(challenge) = challenge(error) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
    }
    response
}

/// The reply of a call that may have been answered before.
pub(crate) fn answered_reply(answered: &Answered) -> Response {
    let mut response = call_reply(&answered.reply);
    if answered.replayed {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// An error before or outside a tool call, in the form of an execute reply.
#[derive(Debug)]
pub struct ErrorReply(CallError);

impl From<CallError> for ErrorReply {
    fn from(error: CallError) -> Self {
        Self(error)
    }
}

impl From<ErrorReply> for CallError {
    fn from(reply: ErrorReply) -> Self {
        reply.0
    }
}

impl IntoResponse for ErrorReply {
    fn into_response(self) -> Response {
        call_reply(&refusal(self.0))
    }
}

/// An error's reply, changed for clients that expect another form.
pub fn refused_as(error: CallError, change: impl FnOnce(&mut Value)) -> Response {
    let reply = refusal(error);
    let mut response = call_reply(&reply);
    match serde_json::to_value(&reply) {
        Ok(mut body) => {
            change(&mut body);
            *response.body_mut() = json(StatusCode::OK, &body).into_body();
        }
        Err(error) => tracing::error!(%error, "a reply could not be serialized as JSON"),
    }
    response
}

/// Initial capacity for a reply with its receipt, so that serializing it does not reallocate.
const TYPICAL_REPLY_BYTES: usize = 2_048;

/// Headers of the reply with the most, a refusal by a rate: more than an empty map makes room for at first.
const MAX_HEADERS: usize = 8;

/// Any serialisable body.
pub fn json(status: StatusCode, body: &(impl Serialize + ?Sized)) -> Response {
    let mut bytes = Vec::with_capacity(TYPICAL_REPLY_BYTES);
    match serde_json::to_writer(&mut bytes, body) {
        Ok(()) => {
            let mut response = Response::new(Body::from(bytes));
            *response.status_mut() = status;
            response.headers_mut().reserve(MAX_HEADERS);
            response.headers_mut().insert(CONTENT_TYPE, JSON);
            response
        }
        // Only a map with keys that are not strings could fail, and no reply has one.
        Err(error) => {
            tracing::error!(%error, "a reply could not be serialized as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

pub(super) async fn no_such_route(uri: Uri) -> Response {
    let shown: String = uri.path().chars().take(100).collect();
    let error = CallError::new(ErrorCode::InvalidRequest, format!("no route matches {shown}; see /openapi.json"));
    with_status(StatusCode::NOT_FOUND, error)
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Response {
    let shown: String = uri.path().chars().take(100).collect();
    let error =
        CallError::new(ErrorCode::InvalidRequest, format!("{shown} does not support {method}; see /openapi.json"));
    with_status(StatusCode::METHOD_NOT_ALLOWED, error)
}

/// A handler panicked outside of any tool call.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text, "a request handler panicked");
    ErrorReply(CallError::internal("a request handler panicked")).into_response()
}

fn with_status(status: StatusCode, error: CallError) -> Response {
    let mut response = ErrorReply(error).into_response();
    *response.status_mut() = status;
    response
}

fn refusal(error: CallError) -> Reply {
    if let Some(cause) = error.cause() {
        let code = error.code().as_str();
        // A client's error is not an operator's problem, and must not be able to flood the log.
        match error.code() {
            ErrorCode::Internal => tracing::error!(code, cause, "a request failed"),
            _ => tracing::debug!(code, cause, "a request was refused"),
        }
    }
    Reply::without_a_run(&CallContext::new(String::new(), Caller::anonymous().into(), Via::Rest), error)
}

fn rate_headers(headers: &mut HeaderMap, rate: RateState) {
    let RateState { limit, remaining, reset_seconds } = rate;
    let numbers = [(RATE_LIMIT, limit.into()), (RATE_REMAINING, remaining.into()), (RATE_RESET, reset_seconds)];
    // One text for all three: a value that is made of a number takes memory twice.
    let mut text = String::with_capacity(32);
    let places = numbers.map(|(name, number): (HeaderName, u64)| {
        let start = text.len();
        let _ = write!(text, "{number}");
        (name, start..text.len())
    });
    let text = Bytes::from(text);
    for (name, place) in places {
        // Digits are valid in a header.
        if let Ok(value) = HeaderValue::from_maybe_shared(text.slice(place)) {
            headers.insert(name, value);
        }
    }
}

/// How the caller can get further with other credentials (RFC 9110 §15.5.2, RFC 6750 §3).
fn challenge(error: &CallError) -> Option<HeaderValue> {
    match error.code() {
        ErrorCode::Unauthenticated => Some(HeaderValue::from_static("Bearer")),
        ErrorCode::SignInRequired => Some(sign_in_challenge(error.sign_in())),
        _ => scope_challenge(error.scopes()),
    }
}

/// Each 401 has a challenge (RFC 9110 §11.6.1). The credentials for the gateway are right: after `Bearer`, clients
/// would sign in to the gateway anew. They ignore a scheme that they do not know.
fn sign_in_challenge(needed: Option<&NeededSignIn>) -> HeaderValue {
    let named = needed.map(|needed| format!("{SIGN_IN_SCHEME} source=\"{}\"", needed.source));
    let named = named.and_then(|named| HeaderValue::try_from(named).ok());
    named.unwrap_or(HeaderValue::from_static(SIGN_IN_SCHEME))
}

/// Asks for a token with these scopes (RFC 6750 §3.1). The configuration refuses names of scopes that a header cannot have.
pub(super) fn scope_challenge(scopes: &[String]) -> Option<HeaderValue> {
    let named = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", scopes.join(" "));
    HeaderValue::try_from(named).ok().filter(|_| !scopes.is_empty())
}

/// RFC 9110 §10.2.3 uses whole seconds: rounded up, so that a retry after them succeeds.
fn retry_after(headers: &mut HeaderMap, error: &CallError) {
    if let Some(wait) = error.retry_wait() {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_a_rate_have_its_numbers() {
        let mut headers = HeaderMap::new();
        rate_headers(&mut headers, RateState { limit: u32::MAX, remaining: 0, reset_seconds: 61 });
        let found = [RATE_LIMIT, RATE_REMAINING, RATE_RESET].map(|name| headers[name].to_str().unwrap().to_owned());
        assert_eq!(found, ["4294967295", "0", "61"]);
    }
}
