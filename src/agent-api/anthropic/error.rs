//! Errors in Anthropic's form (<https://docs.claude.com/en/api/errors>).

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::model_api::should_retry;
use sekisho_api::ErrorInfoBody;
use sekisho_api::reply::{self, ErrorReply};
use sekisho_calls::pipeline::Receipt;
use sekisho_core::error::CallError;

/// An error that both kinds of clients can read: a gateway reply, with Anthropic's object as its `error`.
#[derive(Debug)]
pub(crate) struct AnthropicError(CallError);

impl From<CallError> for AnthropicError {
    fn from(error: CallError) -> Self {
        Self(error)
    }
}

impl From<ErrorReply> for AnthropicError {
    fn from(reply: ErrorReply) -> Self {
        Self(reply.into())
    }
}

impl IntoResponse for AnthropicError {
    fn into_response(self) -> Response {
        let error = json!(AnthropicProblem::of(&self.0));
        should_retry::refused(self.0, |body| {
            body["type"] = "error".into();
            body["error"] = error;
        })
    }
}

/// The body of an error at `/v1/messages`: a reply whose `error` is the object that Anthropic's clients expect.
#[derive(Debug, ToSchema)]
#[schema(as = MessagesFault)]
#[expect(dead_code, reason = "only describes")]
pub(crate) struct AnthropicErrorBody {
    /// `error`.
    r#type: String,
    success: bool,
    text: String,
    error: AnthropicErrorDetail,
    error_info: ErrorInfoBody,
    receipt: Receipt,
}

#[derive(Debug, ToSchema)]
#[schema(as = MessagesFaultDetail)]
#[expect(dead_code, reason = "only describes")]
struct AnthropicErrorDetail {
    r#type: String,
    message: String,
}

/// Anthropic's object for an error.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AnthropicProblem {
    r#type: &'static str,
    message: String,
}

impl AnthropicProblem {
    pub(super) fn of(error: &CallError) -> Self {
        Self { r#type: kind(reply::status(error.code())), message: error.message().to_owned() }
    }
}

fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::PAYMENT_REQUIRED => "billing_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT => "timeout_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_core::error::ErrorCode;

    #[test]
    fn every_code_has_one_of_anthropics_types() {
        for (code, expected) in [
            (ErrorCode::InvalidRequest, "invalid_request_error"),
            (ErrorCode::Unauthenticated, "authentication_error"),
            (ErrorCode::BudgetExceeded, "billing_error"),
            (ErrorCode::Denied, "permission_error"),
            (ErrorCode::UnknownTool, "not_found_error"),
            (ErrorCode::TooLarge, "request_too_large"),
            (ErrorCode::RateLimited, "rate_limit_error"),
            (ErrorCode::Internal, "api_error"),
            (ErrorCode::Overloaded, "overloaded_error"),
            (ErrorCode::Timeout, "timeout_error"),
        ] {
            assert_eq!(AnthropicProblem::of(&CallError::new(code, "no")).r#type, expected);
        }
    }
}
