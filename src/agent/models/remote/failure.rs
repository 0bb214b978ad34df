//! Failures of a provider, as the loop knows them.
//!
//! Of what a provider writes into its errors only words of a list of ours are told: the rest may repeat what it was
//! sent, a key among it.

use std::time::Duration;

use futures_util::StreamExt;
use http::{HeaderMap, header};
use serde_json::Value;

use crate::agent::models::ModelError;
use crate::core::error::{CallError, ErrorCode};
use crate::infra::outbound::OutboundStream;

/// Most bytes of an error's body that are looked at.
const MAX_ERROR_BYTES: usize = 16 << 10;

/// How long an error's body is waited for: what the status says is known already.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// What providers call their errors, for those that their readers can do something about
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

/// What an answer that is no success means.
pub(super) async fn refused(answer: OutboundStream) -> ModelError {
    let (status, wait) = (answer.status.as_u16(), retry_after(&answer.headers));
    match (ModelError::of_status(status, wait), status) {
        // No address is asked that the configuration does not name, and a key goes nowhere else.
        (_, 300..400) => ModelError::Refused(format!("HTTP {status}, a redirect; check the profile's base_url")),
        (ModelError::Refused(told), _) => match word(&body(answer).await) {
            Some(word) => ModelError::Refused(format!("{told} ({word})")),
            None => ModelError::Refused(told),
        },
        (error, _) => error,
    }
}

/// What an answer means that is a success by its status, and none of the protocol's.
pub(super) async fn foreign(answer: OutboundStream, expected: &'static str) -> ModelError {
    let body = body(answer).await;
    let is_error = serde_json::from_slice::<Value>(&body).is_ok_and(|body| body.get("error").is_some());
    if is_error { reported(word(&body)) } else { ModelError::Garbled(format!("it is not of the type {expected}")) }
}

/// An error that came as part of an answer, by what the provider calls it.
pub(in crate::agent::models) fn of_provider_error(called: &str) -> ModelError {
    reported(listed(called))
}

/// What kept us from an answer, or from the rest of it.
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

/// The first bytes of a body, as far as they come soon.
async fn body(answer: OutboundStream) -> Vec<u8> {
    let mut body = Vec::new();
    let mut pieces = std::pin::pin!(answer.pieces());
    let reading = async {
        while let Some(Ok(piece)) = pieces.next().await {
            let room = MAX_ERROR_BYTES - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if body.len() == MAX_ERROR_BYTES {
                break;
            }
        }
    };
    // What came until then may say enough.
    _ = tokio::time::timeout(ERROR_BODY_TIMEOUT, reading).await;
    body
}

/// The word of our list that the body calls its error; the narrower one where it has two.
fn word(body: &[u8]) -> Option<&'static str> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let places = ["/error/code", "/error/type", "/code", "/type", "/__type"];
    places.iter().filter_map(|place| body.pointer(place)?.as_str()).find_map(listed)
}

/// AWS writes the same name with a small letter in its streams.
fn listed(called: &str) -> Option<&'static str> {
    WORDS.into_iter().find(|word| word.eq_ignore_ascii_case(called))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
