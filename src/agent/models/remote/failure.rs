//! Maps failures of a provider to [`ModelError`].
//!
//! Of a provider's error text only names on a fixed list are reported: the rest may repeat the request, including the
//! key.

use std::time::Duration;

use futures_util::StreamExt;
use http::{HeaderMap, header};
use serde_json::Value;

use crate::agent::models::ModelError;
use crate::core::error::{CallError, ErrorCode};
use crate::infra::outbound::OutboundStream;

/// Maximum bytes of an error's body that are read.
const MAX_ERROR_BYTES: usize = 16 << 10;

/// How long to wait for an error's body: the status is known already.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Error names of providers that a reader can act on
/// (<https://platform.openai.com/docs/guides/error-codes>, <https://docs.anthropic.com/en/api/errors>,
/// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html#API_runtime_ConverseStream_Errors>).
const WORDS: [&str; 24] = [
    "context_length_exceeded",
    "model_not_found",
    "invalid_api_key",
    "insufficient_quota",
    "unsupported_parameter",
    "unsupported_value",
    "invalid_value",
    "string_above_max_length",
    "array_above_max_length",
    "invalid_function_parameters",
    "content_policy_violation",
    "content_filter",
    "rate_limit_exceeded",
    "overloaded_error",
    "rate_limit_error",
    "timeout_error",
    "authentication_error",
    "permission_error",
    "billing_error",
    "not_found_error",
    "request_too_large",
    "ThrottlingException",
    "ValidationException",
    "AccessDeniedException",
];

/// The error of a response that is not a success.
pub(super) async fn refused(answer: OutboundStream) -> ModelError {
    let (status, wait) = (answer.status.as_u16(), retry_after(&answer.headers));
    match (ModelError::of_status(status, wait), status) {
        // Redirects are not followed: only configured addresses are contacted, and no other server gets the key.
        (_, 300..400) => ModelError::Refused(format!("HTTP {status}, a redirect; check the profile's base_url")),
        (ModelError::Refused(message), _) => match word(&body(answer).await) {
            Some(word) => ModelError::Refused(format!("{message} ({word})")),
            None => ModelError::Refused(message),
        },
        (error, _) => error,
    }
}

/// The error of a response with a success status that is not in the provider's protocol.
pub(super) async fn foreign(answer: OutboundStream, expected: &'static str) -> ModelError {
    let body = body(answer).await;
    let is_error = serde_json::from_slice::<Value>(&body).is_ok_and(|body| body.get("error").is_some());
    if is_error { reported(word(&body)) } else { ModelError::Garbled(format!("it is not of the type {expected}")) }
}

/// An error that arrived within an answer, by the provider's name for it.
pub(in crate::agent::models) fn of_provider_error(called: &str) -> ModelError {
    reported(listed(called))
}

/// Why the response, or the rest of it, did not arrive.
pub(super) fn lost(error: &CallError) -> ModelError {
    match error.code() {
        ErrorCode::Timeout => ModelError::Timeout,
        ErrorCode::UpstreamError | ErrorCode::Overloaded => ModelError::Unavailable(error.message().to_owned()),
        _ => ModelError::Refused(error.message().to_owned()),
    }
}

fn reported(word: Option<&'static str>) -> ModelError {
    match word {
        Some("overloaded_error") => ModelError::Overloaded { retry_after: None },
        Some("rate_limit_error" | "rate_limit_exceeded" | "ThrottlingException") => {
            ModelError::Limited { status: 429, retry_after: None }
        }
        Some("timeout_error") | None => ModelError::Unavailable("it reported an error in its answer".into()),
        Some(word) => ModelError::Refused(word.to_owned()),
    }
}

/// The first bytes of a body, as far as they arrive in time.
async fn body(answer: OutboundStream) -> Vec<u8> {
    let mut body = Vec::new();
    let mut pieces = std::pin::pin!(answer.pieces());
    let reading = async {
        while let Some(Ok(piece)) = pieces.next().await {
            let remaining = MAX_ERROR_BYTES - body.len();
            body.extend_from_slice(&piece[..piece.len().min(remaining)]);
            if body.len() == MAX_ERROR_BYTES {
                break;
            }
        }
    };
    // What has arrived may be enough.
    _ = tokio::time::timeout(ERROR_BODY_TIMEOUT, reading).await;
    body
}

/// The listed error name in the body; of two, the more specific one.
fn word(body: &[u8]) -> Option<&'static str> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let places = ["/error/code", "/error/type", "/code", "/type", "/__type"];
    places.iter().filter_map(|place| body.pointer(place)?.as_str()).find_map(listed)
}

/// AWS writes the name in lower camel case in its streams.
fn listed(called: &str) -> Option<&'static str> {
    WORDS.into_iter().find(|word| word.eq_ignore_ascii_case(called))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
