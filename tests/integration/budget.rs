//! Money and tokens: reserved before, settled after.

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::json;

use crate::app::{TestApp, answer, code};

/// Fault 5: budgets recorded after the call, so that parallel calls overspend.
#[tokio::test]
async fn a_hundred_parallel_calls_never_overspend() {
    // `paid` costs 0.10 USD, a request may cost 0.50 USD (E60).
    let app = TestApp::start().await;
    let calls = (0..100)
        .map(|_| answer(app.post("/tools/paid/execute").header("x-request-id", "r-1").json(&json!({"arguments": {}}))));
    let replies = join_all(calls).await;
    let paid = replies.iter().filter(|(status, _)| *status == StatusCode::OK).count();
    assert_eq!(paid, 5);
    let (status, refused) = replies.iter().find(|(status, _)| *status != StatusCode::OK).unwrap();
    assert_eq!((*status, code(refused)), (StatusCode::PAYMENT_REQUIRED, "budget_exceeded"));
    assert_eq!(app.gateway.pipeline.budget.held().tokens, 0);
}

#[tokio::test]
async fn without_an_id_a_scope_is_the_call_alone() {
    let app = TestApp::start().await;
    for _ in 0..8 {
        let (status, reply) = app.call("paid", json!({})).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
    }
}

#[tokio::test]
async fn a_text_is_cut_to_what_is_left_and_the_output_stays_whole() {
    let app = TestApp::with("{budget: {token_budget_per_agent: 100}}").await;
    let long = "word ".repeat(1_000);
    let call = || {
        let body = json!({"arguments": {"long": long}});
        answer(app.post("/tools/echo/execute").header("x-agent-id", "a-1").json(&body))
    };
    let (status, reply) = call().await;
    assert_eq!(status, StatusCode::OK);
    assert!(reply["text"].as_str().unwrap().len() <= 400);
    assert_eq!(reply["output"]["echo"]["long"], long);
    assert_eq!(reply["receipt"]["budget"]["before"]["tokens"], 100);
    assert!(reply["usage"]["tokens"].as_u64().unwrap() <= 100);
    let mut last = call().await;
    for _ in 0..5 {
        last = call().await;
    }
    assert_eq!((last.0, code(&last.1)), (StatusCode::PAYMENT_REQUIRED, "token_limit_exceeded"));
}

#[tokio::test]
async fn a_failed_call_is_charged_only_when_the_tool_did_its_work() {
    let app = TestApp::with("tools: {overrides: {fail: {cost_per_use: '0.2'}, panic: {cost_per_use: '0.2'}}}").await;
    let (_, failed) = app.call("fail", json!({})).await;
    assert_eq!(failed["usage"]["cost_usd"], 0.2);
    let (_, panicked) = app.call("panic", json!({})).await;
    assert_eq!(panicked["usage"]["cost_usd"], 0.0);
}

#[tokio::test]
async fn a_daily_budget_survives_a_restart() {
    let yaml = "{budget: {max_cost_per_caller_per_day: '0.25'}}";
    let app = TestApp::with(yaml).await;
    for _ in 0..2 {
        assert_eq!(app.call("paid", json!({})).await.0, StatusCode::OK);
    }
    let directory = app.stop().await;
    let again = TestApp::in_directory(directory, yaml).await;
    let (status, reply) = again.call("paid", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::PAYMENT_REQUIRED, "budget_exceeded"));
}
