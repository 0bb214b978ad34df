//! A call from the outside in and back: reply, text, usage, receipt.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};

#[tokio::test]
async fn the_first_call_of_the_readme_works() {
    let app = TestApp::start().await;
    let (status, reply) = app.call("calculator", json!({"expression": "(2+3)*7"})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(reply["success"], true);
    assert_eq!(reply["output"], 35);
    assert_eq!(reply["text"], "35");
    assert_eq!(reply["error"], Value::Null);
    assert_eq!(reply["usage"], json!({"tokens": 1, "cost_usd": 0.0}));
}

#[tokio::test]
async fn the_receipt_lists_every_stage() {
    let app = TestApp::start().await;
    let (_, reply) = app.call("calculator", json!({"expression": "1+1"})).await;
    insta::assert_json_snapshot!(reply, {
        ".execution_time_ms" => "[ms]",
        ".receipt.call_id" => "[id]",
        ".receipt.stages.*" => "[us]",
        ".receipt.schema_hash" => "[sha256]",
        ".receipt.policy.version" => "[version]",
    });
}

#[tokio::test]
async fn a_dry_run_passes_every_stage_but_runs_nothing() {
    let app = TestApp::start().await;
    let request = json!({"arguments": {}, "dry_run": true});
    let (status, reply) = answer(app.post("/tools/echo/execute").json(&request)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(reply["receipt"]["dry_run"], true);
    assert_eq!(reply["output"], Value::Null);
    let stages: Vec<_> = reply["receipt"]["stages"].as_object().unwrap().keys().collect();
    assert_eq!(stages, ["find", "limits", "validate", "policy", "budget", "breaker"]);
    let (_, reply) = app.call("echo", json!({})).await;
    assert_eq!(reply["output"]["run"], 1, "the dry run did not count as a run");
}

#[tokio::test]
async fn parameters_is_another_word_for_arguments() {
    let app = TestApp::start().await;
    for path in ["/tools/calculator/execute", "/api/v1/tools/calculator/execute"] {
        let (_, reply) = answer(app.post(path).json(&json!({"parameters": {"expression": "6*7"}}))).await;
        assert_eq!(reply["output"], 42);
    }
    let named =
        json!({"tool_name": "calculator", "parameters": {"expression": "6*7"}, "session_context": {"user_id": "eve"}});
    let (_, reply) = answer(app.post("/tools/execute").json(&named)).await;
    assert_eq!(reply["output"], 42);
}

#[tokio::test]
async fn a_batch_replies_in_request_order() {
    let app = TestApp::start().await;
    let calls: Vec<_> = (0..8)
        .map(|n| json!({"tool_name": "sleep", "parameters": {"ms": 40 - n * 5}}))
        .chain([json!({"tool_name": "no_such_tool", "parameters": {}})])
        .collect();
    let (status, replies) = answer(app.post("/tools/batch-execute").json(&calls)).await;
    assert_eq!(status, StatusCode::OK);
    let outputs: Vec<_> = replies.as_array().unwrap().iter().map(|reply| &reply["output"]).collect();
    assert_eq!(outputs[..8], [40, 35, 30, 25, 20, 15, 10, 5]);
    assert_eq!(code(&replies[8]), "unknown_tool");
}

#[tokio::test]
async fn arguments_of_the_wrong_json_type_are_coerced_and_listed_in_the_receipt() {
    let app = TestApp::start().await;
    let (status, reply) = app.call("calculator", json!({"calculator": {"expression": "1+1"}})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(reply["receipt"]["coercions"].as_array().unwrap().len(), 1);
    let strict = TestApp::with("tools: {coerce_arguments: false}").await;
    let (status, reply) = strict.call("calculator", json!({"calculator": {"expression": "1+1"}})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_arguments"));
}

#[tokio::test]
async fn errors_of_invalid_arguments_are_actionable_for_a_model() {
    let app = TestApp::start().await;
    let (status, reply) = app.call("calculator", json!({"expresion": "1+1"})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_arguments"));
    assert_eq!(reply["error_info"]["stage"], "validate");
    insta::assert_json_snapshot!(reply["error_info"]["details"]);
}

#[tokio::test]
async fn a_failing_tool_is_an_answer_not_an_error_of_the_service() {
    let app = TestApp::start().await;
    let (status, reply) = app.call("fail", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::OK, "tool_error"));
    assert_eq!(reply["success"], false);
    assert_eq!(reply["output"], json!({"tried": true}));
}

#[tokio::test]
async fn a_panicking_tool_is_internal_for_its_call_alone() {
    let app = TestApp::start().await;
    let (status, reply) = app.call("panic", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::INTERNAL_SERVER_ERROR, "internal"));
    assert!(!reply.to_string().contains("a tool that panics"), "the cause is for the log");
    let (status, _) = app.call("calculator", json!({"expression": "1"})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(app.gateway.pipeline.limits.in_flight(), 0);
}

#[tokio::test]
async fn outputs_are_checked_and_bounded() {
    let app = TestApp::with("tools: {overrides: {flood: {max_output_bytes: 1000000}}}").await;
    let (status, reply) = app.call("misfit", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::UNPROCESSABLE_ENTITY, "invalid_output"));
    let (status, reply) = app.call("flood", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_GATEWAY, "output_too_large"));
    let lenient = TestApp::with("tools: {overrides: {misfit: {output_schema: report}}}").await;
    let (status, reply) = lenient.call("misfit", json!({})).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(reply["receipt"]["output_schema_violations"].as_array().unwrap().len(), 1);
}

/// Fault 6: a memory limit that is a label only.
#[tokio::test]
async fn a_memory_limit_binds_what_a_call_may_hold() {
    let app = TestApp::with("tools: {overrides: {flood: {memory_limit_mb: 1, max_output_bytes: 100000000}}}").await;
    let (status, reply) = app.call("flood", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_GATEWAY, "output_too_large"));
}

/// Fault 6: a timeout that is a label only.
#[tokio::test]
async fn a_timeout_ends_the_call() {
    let app = TestApp::with("tools: {overrides: {sleep: {timeout_seconds: 1}}}").await;
    let (status, reply) = app.call("sleep", json!({"ms": 60_000})).await;
    assert_eq!((status, code(&reply)), (StatusCode::GATEWAY_TIMEOUT, "timeout"));
    assert!(reply["execution_time_ms"].as_u64().unwrap() < 5_000);
}

/// Fault 12: an expression that blocks the event loop.
#[tokio::test]
async fn a_power_tower_is_refused_at_once() {
    let app = TestApp::start().await;
    let (status, reply) = app.call("calculator", json!({"expression": "9**9**7"})).await;
    assert_eq!((status, code(&reply)), (StatusCode::OK, "tool_error"));
    assert!(reply["execution_time_ms"].as_u64().unwrap() < 2_000);
    let (_, reply) = app.call("calculator", json!({"expression": "0.1+0.2"})).await;
    assert_eq!(reply["text"], "0.3");
}

/// Names that were replaced are answered beside the new ones for one version.
#[tokio::test]
async fn replaced_names_are_still_answered() {
    let app = TestApp::with("tools: {overrides: {misfit: {output_schema: report}}}").await;
    let (_, reply) = app.call("misfit", json!({})).await;
    let receipt = &reply["receipt"];
    assert_eq!(receipt["output_schema_violations"].as_array().map(Vec::len), Some(1), "{reply}");
    assert_eq!(receipt["output_misfits"], receipt["output_schema_violations"]);
    let metrics = app.metrics().await;
    for name in ["tool_output_schema_violations_total", "tool_output_misfits_total"] {
        let sample = format!("shannon_{name}{{tool_name=\"misfit\"}} 1");
        assert!(metrics.lines().any(|line| line == sample), "{sample} is not in {metrics}");
    }
}
