//! Rates and concurrency: refused with the time to wait, never delayed.

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::json;

use crate::app::{TestApp, code};

/// Fault 3: limits skipped at 60 a minute and above, or without a session; sleeping instead of 429.
#[tokio::test]
async fn sixty_a_minute_is_a_limit_for_a_caller_without_a_session() {
    let app = TestApp::with("tools: {overrides: {echo: {rate_limit: 60}}}").await;
    for left in (0..60).rev() {
        let response = app.post("/tools/echo/execute").json(&json!({"arguments": {}})).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["x-ratelimit-limit"], "60");
        let remaining: u32 = response.headers()["x-ratelimit-remaining"].to_str().unwrap().parse().unwrap();
        // A call or two may have come back meanwhile: one a second does.
        assert!((left..=left + 10).contains(&remaining), "{remaining} remain, {left} expected");
    }
    let mut refused = None;
    for _ in 0..20 {
        let response = app.post("/tools/echo/execute").json(&json!({"arguments": {}})).send().await.unwrap();
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            refused = Some(response);
            break;
        }
    }
    let refused = refused.expect("the 81st call within a few seconds was let through");
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(refused.headers()["x-ratelimit-remaining"], "0");
    let body: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(code(&body), "rate_limited");
    assert_eq!(body["error_info"]["retryable"], true);
}

#[tokio::test]
async fn a_tool_full_to_its_queue_refuses_at_once() {
    let app = TestApp::with(
        "{limits: {max_queued: 1}, tools: {overrides: {sleep: {max_concurrent: 1, timeout_seconds: 5}}}}",
    )
    .await;
    let calls = (0..6).map(|_| app.call("sleep", json!({"ms": 300})));
    let replies = join_all(calls).await;
    let count = |wanted: StatusCode| replies.iter().filter(|(status, _)| *status == wanted).count();
    assert_eq!(count(StatusCode::OK), 2, "one runs, one waits for it");
    assert_eq!(count(StatusCode::SERVICE_UNAVAILABLE), 4);
    assert!(replies.iter().filter(|(status, _)| !status.is_success()).all(|(_, reply)| code(reply) == "overloaded"));
}

#[tokio::test]
async fn a_caller_has_a_limit_over_all_tools_when_configured() {
    let app = TestApp::with("limits: {caller_rate_limit: 2}").await;
    let mut statuses = Vec::new();
    for tool in ["echo", "sleep", "echo"] {
        statuses.push(app.call(tool, json!({"ms": 1})).await.0);
    }
    assert_eq!(statuses, [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS]);
}
