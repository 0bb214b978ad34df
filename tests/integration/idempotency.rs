//! The same call sent twice.

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::json;

use crate::app::{TestApp, answer, code};

#[tokio::test]
async fn the_same_key_and_body_run_once() {
    let app = TestApp::start().await;
    let send = || {
        app.post("/tools/echo/execute")
            .header("idempotency-key", "k-1")
            .json(&json!({"arguments": {"a": 1, "b": 2}}))
            .send()
    };
    let replies = join_all((0..10).map(|_| send())).await;
    let mut replayed = 0;
    for reply in replies {
        let reply = reply.unwrap();
        replayed += usize::from(reply.headers().contains_key("idempotency-replayed"));
        let body: serde_json::Value = reply.json().await.unwrap();
        assert_eq!(body["output"]["run"], 1);
    }
    assert_eq!(replayed, 9);
    // The order of keys is no part of the body's meaning.
    let reordered =
        app.post("/tools/echo/execute").header("idempotency-key", "k-1").header("content-type", "application/json");
    let (_, body) = answer(reordered.body(r#"{"arguments":{"b":2,"a":1}}"#)).await;
    assert_eq!(body["output"]["run"], 1);
}

#[tokio::test]
async fn the_same_key_with_another_body_is_a_conflict() {
    let app = TestApp::start().await;
    let send = |n: u32| {
        answer(app.post("/tools/echo/execute").header("idempotency-key", "k-1").json(&json!({"arguments": {"n": n}})))
    };
    assert_eq!(send(1).await.0, StatusCode::OK);
    let (status, reply) = send(2).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "idempotency_conflict"));
}

#[tokio::test]
async fn a_refusal_is_not_stored() {
    let app = TestApp::start().await;
    let send = |expression| {
        let body = json!({"arguments": expression});
        answer(app.post("/tools/calculator/execute").header("idempotency-key", "k-1").json(&body))
    };
    assert_eq!(send(json!({})).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(send(json!({"expression": "1"})).await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_same_arguments_in_another_session_or_as_a_dry_run_are_another_call() {
    let app = TestApp::start().await;
    let send = |body| answer(app.post("/tools/echo/execute").header("idempotency-key", "k-1").json(&body));
    assert_eq!(send(json!({"session_id": "a"})).await.0, StatusCode::OK);
    for other in [json!({"session_id": "b"}), json!({}), json!({"session_id": "a", "dry_run": true})] {
        let (status, reply) = send(other).await;
        assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "idempotency_conflict"));
    }
}

#[tokio::test]
async fn an_unknown_tool_is_settled_also_with_a_key() {
    let app = TestApp::start().await;
    let (status, reply) =
        answer(app.post("/tools/nothing/execute").header("idempotency-key", "k").json(&json!({}))).await;
    assert_eq!((status, reply["error_info"]["stage"].as_str()), (StatusCode::NOT_FOUND, Some("find")));
    assert_eq!(app.metric(r#"shannon_tool_errors_total{error_type="unknown_tool",tool_name="unknown"}"#).await, 1.0);
}
