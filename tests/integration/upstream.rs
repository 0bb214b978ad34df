//! Failing upstreams: circuit breakers and retries.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::json;

use crate::app::{TestApp, code};
use crate::slack::slack;

/// Fault 1: an open circuit that is slow, counts its own refusals, or lets everything through afterwards.
#[tokio::test]
async fn five_failures_open_the_circuit_and_it_answers_at_once() {
    let app = TestApp::with("breaker: {recovery_seconds: 1}").await;
    for _ in 0..5 {
        let (status, reply) = app.call("upstream", json!({"answer": "down"})).await;
        assert_eq!((status, code(&reply)), (StatusCode::BAD_GATEWAY, "upstream_error"));
    }
    let response = app.post("/tools/upstream/execute").json(&json!({"arguments": {}})).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    let reply: serde_json::Value = response.json().await.unwrap();
    assert_eq!(code(&reply), "circuit_open");
    assert_eq!(app.metric("shannon_circuit_breaker_state{base_url=\"https://upstream.test:443\"}").await, 2.0);
    // Another host is none of its business.
    assert_eq!(app.call("upstream", json!({"host": "other.test"})).await.0, StatusCode::OK);
    // Requests continue while it is open, and it closes all the same.
    let opened = Instant::now();
    loop {
        let (status, _) = app.call("upstream", json!({})).await;
        if status == StatusCode::OK {
            break;
        }
        assert!(opened.elapsed() < slack(Duration::from_secs(10)), "the circuit never closed again under traffic");
    }
    assert_eq!(app.metric("shannon_circuit_breaker_state{base_url=\"https://upstream.test:443\"}").await, 0.0);
}

/// Fault 2: 4xx replies counted as outages.
#[tokio::test]
async fn replies_that_blame_the_call_never_open_a_circuit() {
    let app = TestApp::start().await;
    for _ in 0..30 {
        let (status, reply) = app.call("upstream", json!({"answer": "not_found"})).await;
        assert_eq!((status, code(&reply)), (StatusCode::OK, "tool_error"));
    }
    assert_eq!(app.call("upstream", json!({})).await.0, StatusCode::OK);
    assert_eq!(app.metric("shannon_circuit_breaker_failures_total{base_url=\"https://upstream.test:443\"}").await, 0.0);
}

#[tokio::test]
async fn an_idempotent_tool_is_tried_three_times_and_has_one_outcome() {
    let app = TestApp::with("execution: {backoff_base_seconds: 0.01}").await;
    let (status, reply) = app.call("flaky", json!({})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(reply["receipt"]["attempts"], 3);
    assert_eq!(app.metric("shannon_circuit_breaker_failures_total{base_url=\"https://upstream.test:443\"}").await, 0.0);
    let (_, reply) = app.call("upstream", json!({"answer": "down"})).await;
    assert_eq!(reply["receipt"]["attempts"], 1, "a tool that is not idempotent is tried once");
}

#[tokio::test]
async fn refusals_do_not_hold_a_slot_or_money() {
    let app = TestApp::start().await;
    join_all((0..50).map(|_| app.call("upstream", json!({"answer": "down"})))).await;
    assert_eq!(app.gateway.pipeline.limits.in_flight(), 0);
    assert_eq!(app.gateway.pipeline.budget.held().tokens, 0);
}
