//! The meaning of an upstream's status for the call, the breaker and the retries (fault 2 of the specification).

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use serde_json::Value;

use super::OutboundResponse;
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_core::redaction::SentSecrets;

/// Success, or the error for the status: 5xx is the upstream's own failure, 429 requests a pause, every other status
/// is a response to this call and is not counted.
/// Errors: `upstream_error` for 5xx and 429 (with the upstream's `Retry-After`), `tool_error` otherwise.
pub fn check_status(response: &OutboundResponse) -> Result<(), CallError> {
    let status = response.status;
    if status.is_success() {
        return Ok(());
    }
    let host = response.url.host_str().unwrap_or_default();
    let (code, blame) = match status {
        StatusCode::TOO_MANY_REQUESTS => (ErrorCode::UpstreamError, Blame::Call),
        _ if status.is_server_error() => (ErrorCode::UpstreamError, Blame::Upstream),
        _ => (ErrorCode::ToolError, Blame::Call),
    };
    let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
    let secrets = response.sent.secrets();
    let reported = upstream_message(&response.body, &secrets).map(|message| format!(": {message}")).unwrap_or_default();
    let redirect = refused_redirect(response).unwrap_or_default();
    let message = format!("{host} answered {}{reason}{redirect}{reported}", status.as_u16());
    let error = CallError::new(code, message).blaming(blame).answered_with(status.as_u16()).redacted(&secrets);
    match retry_after(&response.headers, Timestamp::now()) {
        Some(wait) if code == ErrorCode::UpstreamError => Err(error.retry_after(wait)),
        _ => Err(error),
    }
}

/// Maximum wait that an upstream may request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// `Retry-After` in either of its forms, seconds or a date (RFC 9110 §10.2.3).
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        value.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs)
    } else {
        let date = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
        Duration::try_from(date.duration_since(now)).unwrap_or_default()
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

/// Maximum characters of an upstream's explanation that are passed on.
const MAX_MESSAGE: usize = 2_000;

/// The explanation in an error body: its text, or the JSON with all its fields.
fn upstream_message(body: &[u8], secrets: &SentSecrets) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let text = text.trim_start_matches('\u{feff}').trim();
    let message = match serde_json::from_str::<Value>(text) {
        Ok(json) => explanation(&json)?,
        // A page for a browser adds nothing to its status.
        Err(_) if is_page(text) => return None,
        Err(_) => text.to_owned(),
    };
    // Before it is truncated: a part of a secret would no longer be recognised.
    let message = secrets.strike(&message);
    let readable = |character: char| if character.is_control() { ' ' } else { character };
    let shown: String = message.chars().map(readable).take(MAX_MESSAGE).collect();
    (!shown.trim().is_empty()).then_some(shown)
}

/// Only the text where the body has nothing else, otherwise the whole body: a caller corrects its arguments by the
/// fields that the body names.
fn explanation(json: &Value) -> Option<String> {
    match json {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) if items.is_empty() => None,
        Value::Object(members) if members.is_empty() => None,
        Value::Object(members) if members.len() == 1 => match members.iter().next() {
            Some((name, inner @ (Value::String(_) | Value::Object(_)))) if MESSAGE_FIELDS.contains(&name.as_str()) => {
                explanation(inner)
            }
            _ => Some(json.to_string()),
        },
        other => Some(other.to_string()),
    }
}

/// Where most services put the message.
const MESSAGE_FIELDS: [&str; 5] = ["message", "error", "detail", "title", "error_description"];

fn is_page(text: &str) -> bool {
    let start: String = text.chars().take(500).collect::<String>().to_ascii_lowercase();
    start.starts_with('<') && (start.contains("<html") || start.contains("<!doctype html"))
}

/// The target of a redirect that was not followed, without its query, which may contain a key.
fn refused_redirect(response: &OutboundResponse) -> Option<String> {
    let location = response.headers.get(header::LOCATION).filter(|_| response.status.is_redirection())?;
    let target = response.url.join(location.to_str().ok()?).ok()?;
    Some(format!(", a redirect to {}, which is not followed", &target[..url::Position::AfterPath]))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;
    use url::Url;

    use super::*;
    use crate::SentCredentials;

    fn answer(status: u16, retry_after: Option<&str>, body: &'static str) -> OutboundResponse {
        let mut headers = HeaderMap::new();
        if let Some(value) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_str(value).unwrap());
        }
        OutboundResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            url: Url::parse("https://api.example/v1?key=secret").unwrap(),
            body: Bytes::from_static(body.as_bytes()),
            cut: false,
            remote_addr: None,
            sent: SentCredentials::default(),
        }
    }

    #[test]
    fn what_is_repeated_of_a_credential_is_struck_out_also_where_the_message_is_cut() {
        let mut key = HeaderValue::from_static("Bearer S3CRET-token");
        key.set_sensitive(true);
        let mut sent =
            SentCredentials { secrets: Some(vec!["k3y in the query".to_owned()].into()), ..Default::default() };
        sent.headers.insert(header::AUTHORIZATION, key);
        let padding = "x".repeat(MAX_MESSAGE - 5);
        for (body, says) in [
            ("denied for Bearer S3CRET-token".to_owned(), "denied for [redacted]"),
            (r#"{"error": {"message": "denied for S3CRET-token"}}"#.to_owned(), "denied for [redacted]"),
            ("denied for ?key=k3y+in+the+query".to_owned(), "denied for ?key=[redacted]"),
            (format!("{padding}S3CRET-token"), "x[reda"),
        ] {
            let response = OutboundResponse { body: body.into(), sent: sent.clone(), ..answer(401, None, "") };
            let error = check_status(&response).unwrap_err();
            assert!(error.message().ends_with(says), "{error}");
            assert!(!error.message().contains("S3C"), "{error}");
        }
    }

    #[test]
    fn each_status_blames_whom_it_should() {
        for status in [200, 201, 204] {
            assert!(check_status(&answer(status, None, "")).is_ok());
        }
        for (status, code, blame, wait) in [
            (500, ErrorCode::UpstreamError, Blame::Upstream, Some(7)),
            (503, ErrorCode::UpstreamError, Blame::Upstream, Some(7)),
            (429, ErrorCode::UpstreamError, Blame::Call, Some(7)),
            (400, ErrorCode::ToolError, Blame::Call, None),
            (404, ErrorCode::ToolError, Blame::Call, None),
            (302, ErrorCode::ToolError, Blame::Call, None),
        ] {
            let error = check_status(&answer(status, Some("7"), "")).unwrap_err();
            assert_eq!((error.code(), error.blame()), (code, blame), "{status}");
            assert_eq!(error.wait(), wait.map(Duration::from_secs), "{status}");
        }
    }

    #[test]
    fn the_message_quotes_the_upstream_but_not_the_query() {
        for (body, expected) in [
            (r#"{"error": {"message": "no such user"}}"#, "api.example answered 404 Not Found: no such user"),
            (r#"{"detail": "gone"}"#, "api.example answered 404 Not Found: gone"),
            (r#"{"error": true}"#, r#"api.example answered 404 Not Found: {"error":true}"#),
            (
                r#"{"detail": [{"loc": ["body", "colour"], "msg": "must be blue"}]}"#,
                r#"api.example answered 404 Not Found: {"detail":[{"loc":["body","colour"],"msg":"must be blue"}]}"#,
            ),
            (
                r#"{"message": "no such field", "code": 7, "field": "colour"}"#,
                r#"api.example answered 404 Not Found: {"message":"no such field","code":7,"field":"colour"}"#,
            ),
            (r#"["a", "b"]"#, r#"api.example answered 404 Not Found: ["a","b"]"#),
            (
                "<Error><Code>NoSuchKey</Code></Error>",
                "api.example answered 404 Not Found: <Error><Code>NoSuchKey</Code></Error>",
            ),
            ("{}", "api.example answered 404 Not Found"),
            ("plain\nwords", "api.example answered 404 Not Found: plain words"),
            ("<html>nothing</html>", "api.example answered 404 Not Found"),
            ("", "api.example answered 404 Not Found"),
        ] {
            assert_eq!(check_status(&answer(404, None, body)).unwrap_err().message(), expected);
        }
    }

    #[test]
    fn a_long_explanation_is_passed_on_up_to_its_limit() {
        let list: Vec<_> = (0..100).map(|at| format!("field {at} is missing")).collect();
        let body = serde_json::json!({ "errors": list }).to_string();
        let response = OutboundResponse { body: body.clone().into(), ..answer(422, None, "") };
        let message = check_status(&response).unwrap_err().message().to_owned();
        assert_eq!(message, format!("api.example answered 422 Unprocessable Entity: {}", &body[..MAX_MESSAGE]));
    }

    #[test]
    fn a_redirect_that_is_not_followed_names_its_target() {
        let mut response = answer(307, None, "");
        response.headers.insert(header::LOCATION, HeaderValue::from_static("/v2/?key=secret"));
        let expected =
            "api.example answered 307 Temporary Redirect, a redirect to https://api.example/v2/, which is not followed";
        assert_eq!(check_status(&response).unwrap_err().message(), expected);
    }

    #[test]
    fn retry_after_is_read_in_both_forms_and_capped() {
        let now: Timestamp = "1994-11-06T08:49:37Z".parse().unwrap();
        for (value, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 5 ", Some(5)),
            ("86400", Some(3_600)),
            ("99999999999999999999999999", Some(3_600)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Sat, 06 Nov 2094 08:00:00 GMT", Some(3_600)),
            ("-5", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            let headers = answer(503, Some(value), "").headers;
            assert_eq!(retry_after(&headers, now), seconds.map(Duration::from_secs), "{value:?}");
        }
    }
}
