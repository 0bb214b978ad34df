//! Policies: the default set, one's own, and broken ones.

use reqwest::StatusCode;
use serde_json::json;

use crate::app::{TestApp, answer, code};

const KEYS: &str = "
auth:
  api_keys:
    - {id: ada, key: key-of-ada, roles: [operator, admin]}
    - {id: bob, key: key-of-bob, roles: [operator]}
    - {id: eve, key: key-of-eve}
";

async fn write_as(app: &TestApp, key: &str) -> (StatusCode, serde_json::Value) {
    let body = json!({"arguments": {"path": "a.txt", "content": "hello"}, "session_id": "s1"});
    answer(app.post("/tools/file_write/execute").bearer_auth(key).json(&body)).await
}

/// E77, exactly: file_write needs an admin; and dangerous tools need an operator.
#[tokio::test]
async fn file_write_needs_an_admin() {
    let app = TestApp::with(KEYS).await;
    assert_eq!(write_as(&app, "key-of-ada").await.0, StatusCode::OK);
    let (status, reply) = write_as(&app, "key-of-bob").await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    insta::assert_json_snapshot!(reply["receipt"]["policy"]["reasons"]);
    let (status, reply) = write_as(&app, "key-of-eve").await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    assert_eq!(reply["receipt"]["policy"]["reasons"].as_array().unwrap().len(), 2);
}

/// Fault 6: `requires_auth` that is a label only.
#[tokio::test]
async fn a_tool_that_requires_auth_refuses_the_anonymous() {
    let app = TestApp::with(&format!("{KEYS}\ntools: {{overrides: {{echo: {{requires_auth: true}}}}}}")).await;
    let (status, reply) = app.call("echo", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    let (status, _) = answer(app.post("/tools/echo/execute").bearer_auth("key-of-eve").json(&json!({}))).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn roles_of_the_configuration_are_asked_for() {
    let app = TestApp::with(&format!("{KEYS}\ntools: {{overrides: {{echo: {{roles: [admin]}}}}}}")).await;
    let call = |key| answer(app.post("/tools/echo/execute").bearer_auth(key).json(&json!({})));
    assert_eq!(call("key-of-ada").await.0, StatusCode::OK);
    assert_eq!(call("key-of-eve").await.0, StatusCode::FORBIDDEN);
}

async fn with_policy(rego: &str) -> TestApp {
    let directory = tempfile::TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    std::fs::write(policies.join("tools.rego"), rego).unwrap();
    let yaml = format!("policy: {{directory: '{}'}}", policies.display());
    TestApp::in_directory(directory, &yaml).await
}

/// Fault 4: rules that error are not an *allow*.
#[tokio::test]
async fn a_rule_that_errs_denies() {
    let app =
        with_policy("package tools\ndeny[msg] { to_number(input.arguments.n) > 3\n msg := \"too many\" }\n").await;
    let (status, reply) = app.call("echo", json!({"n": "not a number"})).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    assert_eq!(app.call("echo", json!({"n": "2"})).await.0, StatusCode::OK);
    let (_, reply) = app.call("echo", json!({"n": "4"})).await;
    assert_eq!(reply["receipt"]["policy"]["reasons"], json!(["too many"]));
}

#[tokio::test]
async fn approval_can_be_required() {
    let app = with_policy(
        "package tools\nimport rego.v1\ndeny contains \"never\" if input.tool == \"fail\"\n\
         require_approval contains \"ask first\" if input.tool == \"echo\"\n",
    )
    .await;
    let (status, reply) = app.call("echo", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "approval_required"));
    assert_eq!(app.call("sleep", json!({"ms": 1})).await.0, StatusCode::OK);
}
