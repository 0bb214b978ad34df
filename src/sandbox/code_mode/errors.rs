//! The JSON that a program gets: values, and errors as `host.call` has them.

use serde_json::{Value, json};

use sekisho_calls::pipeline::ErrorInfo;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::json::InvalidJson;
use sekisho_guest_protocol::{MAX_NESTING, MAX_VALUE_BYTES};

/// The kind of an error that no other one fits.
const TOOL_ERROR: &str = "tool_error";

/// Maximum bytes of an error's message.
const MAX_MESSAGE: usize = 64 << 10;

/// Errors: `output_too_large`: it is longer, or nested deeper, than a program can take.
pub(super) fn value_json(value: &Value) -> Result<String, CallError> {
    let too_large =
        |what: &str| CallError::new(ErrorCode::OutputTooLarge, format!("the result {what}; request less at a time"));
    if is_nested_deeper(value, MAX_NESTING) {
        return Err(too_large(&format!("is nested deeper than {MAX_NESTING} levels")));
    }
    let json = serde_json::to_string(value).map_err(CallError::internal)?;
    match json.len() > MAX_VALUE_BYTES {
        true => Err(too_large(&format!("has {} bytes, and a program gets {MAX_VALUE_BYTES}", json.len()))),
        false => Ok(json),
    }
}

/// The kind is the nearest kind that interpreters know; the message is JSON with all that replies say of the error.
/// Only the caller gets the address at which it signs in to an upstream.
pub(super) fn error_json(error: &CallError) -> String {
    let mut info = serde_json::to_value(ErrorInfo::from(error)).unwrap_or_default();
    if let Some(fields) = info.as_object_mut() {
        fields.remove("sign_in");
        let message = error.message();
        if message.len() > MAX_MESSAGE {
            fields.insert("message".to_owned(), message[..message.floor_char_boundary(MAX_MESSAGE)].into());
        }
    }
    json!({"kind": kind(error.code()), "message": info.to_string()}).to_string()
}

/// Whether an error may repeat a tool's text: it is neither a refusal nor a limit.
pub(super) fn is_of_tool(json: &str) -> bool {
    let error = serde_json::from_str::<Value>(json);
    !error.is_ok_and(|error| error["kind"].as_str().is_some_and(|kind| kind != TOOL_ERROR))
}

pub(super) fn invalid_json(error: &InvalidJson) -> CallError {
    CallError::new(ErrorCode::InvalidArguments, format!("the arguments of a tool are JSON: {error}"))
}

pub(super) fn no_more_calls(max: u32) -> CallError {
    let message = format!(
        "the program, with all that it runs, has made {max} calls, as many as it may (`sandbox.code_mode.max_calls`); make fewer \
         calls, or several runs"
    );
    CallError::new(ErrorCode::BudgetExceeded, message)
}

/// Recursion is bounded by the depth that parsed JSON may have.
fn is_nested_deeper(value: &Value, most: usize) -> bool {
    let is_over = |inner: &Value| most == 0 || is_nested_deeper(inner, most - 1);
    match value {
        Value::Array(items) => most == 0 || items.iter().any(is_over),
        Value::Object(members) => most == 0 || members.values().any(is_over),
        _ => false,
    }
}

fn kind(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::UnknownTool | ErrorCode::NotFound => "unknown_tool",
        ErrorCode::InvalidRequest | ErrorCode::InvalidArguments | ErrorCode::UnsupportedMediaType => {
            "invalid_arguments"
        }
        ErrorCode::Unauthenticated
        | ErrorCode::SignInRequired
        | ErrorCode::Denied
        | ErrorCode::ApprovalRequired
        | ErrorCode::ApprovalDenied
        | ErrorCode::ApprovalExpired
        | ErrorCode::ApprovalMismatch
        | ErrorCode::ToolChanged => "denied",
        ErrorCode::BudgetExceeded
        | ErrorCode::TokenLimitExceeded
        | ErrorCode::RateLimited
        | ErrorCode::Overloaded
        | ErrorCode::CircuitOpen
        | ErrorCode::WarmingUp => "budget_exceeded",
        ErrorCode::TooLarge | ErrorCode::OutputTooLarge => "too_large",
        ErrorCode::Timeout | ErrorCode::SandboxTimeout => "timeout",
        ErrorCode::Cancelled => "cancelled",
        _ => TOOL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use sekisho_core::error::NeededSignIn;

    #[test]
    fn an_error_has_its_code_and_wait_and_not_where_to_sign_in() {
        let sign_in = NeededSignIn {
            url: "https://gateway.example/sign-in".into(),
            code: "s3cret".into(),
            expires_at: "2026-01-01T00:00:00Z".into(),
            source: "mcp:far".into(),
        };
        let error = CallError::new(ErrorCode::SignInRequired, "sign in").signing_in_at(sign_in);
        let text = error_json(&error);
        assert!(text.contains("sign_in_required") && !text.contains("s3cret"), "{text}");
        let error =
            CallError::new(ErrorCode::RateLimited, "é".repeat(MAX_MESSAGE)).retry_after(Duration::from_millis(1_500));
        let frame: Value = serde_json::from_str(&error_json(&error)).unwrap();
        let info: Value = serde_json::from_str(frame["message"].as_str().unwrap()).unwrap();
        assert_eq!((&frame["kind"], &info["code"]), (&json!("budget_exceeded"), &json!("rate_limited")));
        assert_eq!((&info["retry_after_ms"], info["message"].as_str().unwrap().len()), (&json!(1_500), MAX_MESSAGE));
    }

    #[test]
    fn what_a_tool_said_is_known_from_refusals() {
        for (code, is_of_tool) in [
            (ErrorCode::ToolError, true),
            (ErrorCode::UpstreamError, true),
            (ErrorCode::UnknownOutcome, true),
            (ErrorCode::Denied, false),
            (ErrorCode::UnknownTool, false),
            (ErrorCode::InvalidArguments, false),
            (ErrorCode::RateLimited, false),
        ] {
            assert_eq!(super::is_of_tool(&error_json(&CallError::new(code, "x"))), is_of_tool, "{code}");
        }
        assert!(super::is_of_tool("") && super::is_of_tool("{}"));
    }

    #[test]
    fn values_have_a_depth_and_a_length() {
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(value_json(&nested(MAX_NESTING)).is_ok());
        assert_eq!(value_json(&nested(MAX_NESTING + 1)).unwrap_err().code(), ErrorCode::OutputTooLarge);
        assert_eq!(value_json(&json!("x".repeat(MAX_VALUE_BYTES))).unwrap_err().code(), ErrorCode::OutputTooLarge);
    }
}
