//! A configuration or policy that changes while the service runs.

use reqwest::StatusCode;
use serde_json::json;

use crate::app::{TestApp, answer, code, config, degraded};

#[tokio::test]
async fn a_reload_changes_tools_limits_and_keys_and_keeps_what_was_counted() {
    let app = TestApp::with("tools: {overrides: {echo: {rate_limit: 2}}}").await;
    app.call("echo", json!({})).await;
    app.call("echo", json!({})).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::TOO_MANY_REQUESTS);
    let yaml =
        "{tools: {overrides: {echo: {rate_limit: 2}, fail: {hidden: true}}}, auth: {api_keys: [{id: ada, key: k}]}}";
    app.gateway.reload(config(&app.directory, yaml)).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::TOO_MANY_REQUESTS, "a reload is no way around a limit");
    assert_eq!(app.call("fail", json!({})).await.0, StatusCode::NOT_FOUND);
    assert_eq!(app.get("/tools/list").bearer_auth("k").send().await.unwrap().status(), StatusCode::OK);
    assert_eq!(app.metric(r#"shannon_configuration_reloads_total{result="accepted"}"#).await, 1.0);
}

#[tokio::test]
async fn a_broken_policy_keeps_the_last_good_one_and_is_reported() {
    let directory = tempfile::TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    let rego = policies.join("tools.rego");
    std::fs::write(&rego, "package tools\ndeny[msg] { input.tool == \"echo\"; msg := \"no echo\" }\n").unwrap();
    let yaml = format!("policy: {{directory: '{}'}}", policies.display());
    let app = TestApp::in_directory(directory, &yaml).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::FORBIDDEN);

    std::fs::write(&rego, "package tools\ndeny[msg] { no_such_function(1) }\n").unwrap();
    app.gateway.reload(config(&app.directory, &yaml)).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::FORBIDDEN, "the last good set still decides");
    let (_, ready) = answer(app.get("/readyz")).await;
    assert_eq!(ready["status"], "degraded", "{ready}");

    std::fs::write(&rego, "package tools\ndeny[msg] { input.tool == \"fail\"; msg := \"no fail\" }\n").unwrap();
    app.gateway.reload(config(&app.directory, &yaml)).await;
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::OK);
    assert_eq!(degraded(&app).await.get("policy"), None);
}

#[tokio::test]
async fn a_clash_of_names_is_refused_whole_and_names_both() {
    let app = TestApp::start().await;
    app.gateway.reload(config(&app.directory, "tools: {overrides: {echo: {rename: calculator}}}")).await;
    let (status, reply) = app.call("echo", json!({})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let (_, ready) = answer(app.get("/readyz")).await;
    let reason = ready["degraded"]["configuration"].as_str().unwrap();
    assert!(reason.contains("builtin") && reason.contains("test"), "{reason}");
    let (status, reply) = app.call("nothing", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_tool"));
}

#[tokio::test]
async fn a_reload_to_loopback_accepts_no_remote_anonymous_caller() {
    let auth = "auth: {api_keys: [{id: ada, key: k}]}";
    let app = TestApp::with(&format!("{{server: {{listen: '0.0.0.0:0'}}, {auth}}}")).await;
    assert_eq!(app.get("/tools/list").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    app.gateway.reload(config(&app.directory, &format!("{{server: {{listen: '127.0.0.1:0'}}, {auth}}}"))).await;
    // Still listening everywhere: the address changes with the next start.
    assert_eq!(app.get("/tools/list").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(app.get("/metrics").send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
}
