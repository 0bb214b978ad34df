//! Hostile requests: each a clear typed error, the process unharmed.

use reqwest::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::app::{TestApp, answer, code};

struct Case {
    name: &'static str,
    body: Vec<u8>,
    status: StatusCode,
    code: &'static str,
}

fn case(name: &'static str, body: impl Into<Vec<u8>>, status: StatusCode, code: &'static str) -> Case {
    Case { name, body: body.into(), status, code }
}

fn cases() -> Vec<Case> {
    let bad = StatusCode::BAD_REQUEST;
    let deep = |n: usize| format!("{{\"arguments\":{}{}}}", "[".repeat(n), "]".repeat(n));
    vec![
        case("nothing at all", "", bad, "invalid_request"),
        case("malformed JSON", "{\"arguments\":", bad, "invalid_request"),
        case("trailing data", "{} {}", bad, "invalid_request"),
        case("a duplicate key outside", r#"{"arguments":{},"arguments":{}}"#, bad, "invalid_request"),
        case("a duplicate key inside", r#"{"arguments":{"expression":"1","expression":"2"}}"#, bad, "invalid_request"),
        case("an escaped duplicate key", r#"{"arguments":{"a":1,"\u0061":2}}"#, bad, "invalid_request"),
        case("an unknown field", r#"{"arguments":{},"extra":1}"#, bad, "invalid_request"),
        case("both words for arguments", r#"{"arguments":{},"parameters":{}}"#, bad, "invalid_request"),
        case("arguments that are no object", r#"{"arguments":[1]}"#, bad, "invalid_request"),
        case("a body that is no object", "[]", bad, "invalid_request"),
        case("invalid UTF-8", b"{\"arguments\":{\"expression\":\"\xff\"}}", bad, "invalid_request"),
        case("deep nesting", deep(100_000), bad, "invalid_request"),
        case("a number beyond reason", r#"{"arguments":{"expression":1e999999}}"#, bad, "invalid_request"),
        case("fifty megabytes", vec![b' '; 50 << 20], StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        case(
            "more values than the limit",
            format!(r#"{{"arguments":{{"expression":[{}0]}}}}"#, "0,".repeat(50_000)),
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
        ),
        case("a lone surrogate", r#"{"arguments":{"expression":"\ud800"}}"#, bad, "invalid_request"),
        case(
            "a long unknown argument",
            format!(r#"{{"arguments":{{"{}":1}}}}"#, "x".repeat(100_000)),
            bad,
            "invalid_arguments",
        ),
        case("a long unknown field", format!(r#"{{"{}":1}}"#, "x".repeat(100_000)), bad, "invalid_request"),
        case("a long text for a flag", format!(r#"{{"dry_run":"{}"}}"#, "x".repeat(100_000)), bad, "invalid_request"),
        case("an empty session id", r#"{"arguments":{"expression":"1"},"session_id":""}"#, bad, "invalid_request"),
    ]
}

#[tokio::test]
async fn a_body_in_a_content_coding_is_not_read_as_plain() {
    let app = TestApp::start().await;
    for (coding, expected) in [("compress", 415), ("gzip", 415), ("identity, zstd", 415), ("identity", 200), ("", 200)]
    {
        let call = app.post("/tools/calculator/execute").json(&json!({"arguments": {"expression": "6*7"}}));
        let response = call.header("content-encoding", coding).send().await.unwrap();
        let taken = response.headers().get("accept-encoding").map(|value| value.to_str().unwrap().to_owned());
        let refused = expected == 415;
        assert_eq!(
            (response.status().as_u16(), taken.as_deref()),
            (expected, refused.then_some("identity")),
            "{coding:?}"
        );
        let reply: serde_json::Value = response.json().await.unwrap();
        let expected = if refused { json!("unsupported_media_type") } else { json!(null) };
        assert_eq!(reply["error_info"]["code"], expected, "{reply}");
    }
}

#[tokio::test]
async fn every_bad_body_has_its_typed_error() {
    let app = TestApp::start().await;
    for case in cases() {
        let request = app.post("/tools/calculator/execute").header("content-type", "application/json").body(case.body);
        let (status, reply) = answer(request).await;
        assert_eq!((status, code(&reply)), (case.status, case.code), "{}: {reply}", case.name);
        assert_eq!(reply["success"], false, "{}", case.name);
        assert!(reply.to_string().len() < 20_000, "{}: the reply repeats what was sent", case.name);
    }
    let (status, reply) = app.call("calculator", json!({"expression": "6*7"})).await;
    assert_eq!((status, &reply["output"]), (StatusCode::OK, &json!(42)));
}

#[tokio::test]
async fn one_bad_call_of_a_batch_fails_alone() {
    let app = TestApp::start().await;
    let good = json!({"tool_name": "calculator", "arguments": {"expression": "6*7"}});
    let calls = json!([
        good,
        {"tool_name": "calculator", "arguments": {}, "parameters": {}},
        7,
        {"tool_name": "calculator", "arguments": {}, "extra": 1},
        {"tool_name": "calculator", "arguments": {}, "session_context": {"session_id": ""}},
        good
    ]);
    let (status, replies) = answer(app.post("/tools/batch-execute").json(&calls)).await;
    assert_eq!(status, StatusCode::OK, "{replies}");
    let replies = replies.as_array().unwrap();
    assert_eq!(replies.len(), 6);
    for (number, reply) in replies.iter().enumerate() {
        match number {
            0 | 5 => assert_eq!(reply["output"], 42, "{reply}"),
            _ => assert_eq!((&reply["success"], code(reply)), (&json!(false), "invalid_request"), "{reply}"),
        }
    }
}

/// The body is announced, and never sent.
#[tokio::test]
async fn a_large_body_of_a_caller_over_its_rate_is_refused_before_it_is_read() {
    let app = TestApp::with("limits: {caller_rate_limit: 1}").await;
    assert!(app.call("calculator", json!({"expression": "6*7"})).await.0.is_success());
    let head = "POST /tools/calculator/execute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 1000000\r\n\r\n";
    let mut stream = TcpStream::connect(app.url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 429");
}

#[tokio::test]
async fn odd_tool_names_are_unknown_tools() {
    let app = TestApp::start().await;
    let long = "x".repeat(5_000);
    for name in ["no_such_tool", "%2e%2e%2fetc", "%00", "%F0%9F%92%A9", "a%20b", long.as_str()] {
        let (status, reply) = app.call(name, json!({})).await;
        assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_tool"), "{name}");
        assert!(reply.to_string().len() < 2_000);
    }
    let (status, reply) = app.call("%ff", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_request"));
    let text = app.metrics().await;
    assert!(!text.contains("no_such_tool"), "an unknown name became a metric label");
    assert!(text.contains("tool_name=\"unknown\""));
}

#[tokio::test]
async fn unknown_routes_and_methods_answer_in_the_same_shape() {
    let app = TestApp::start().await;
    let (status, reply) = answer(app.get("/nowhere")).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "invalid_request"));
    let (status, reply) = answer(app.get("/tools/calculator/execute")).await;
    assert_eq!((status, code(&reply)), (StatusCode::METHOD_NOT_ALLOWED, "invalid_request"));
    let (status, reply) = answer(app.get("/tools/list?exclude_dangerous=perhaps")).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_request"));
}

#[tokio::test]
async fn ids_in_headers_must_be_readable() {
    let app = TestApp::start().await;
    let long = "x".repeat(1_000);
    for (name, value) in [("x-agent-id", "\u{e9}"), ("x-task-id", long.as_str()), ("idempotency-key", "")] {
        let request = app.post("/tools/echo/execute").header(name, value).json(&json!({}));
        let (status, reply) = answer(request).await;
        assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_request"), "{name}");
    }
}
