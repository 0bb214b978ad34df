//! Who may call.

use reqwest::StatusCode;
use reqwest::header::HOST;
use serde_json::json;

use crate::app::{TestApp, answer, code};

#[tokio::test]
async fn a_wrong_key_is_not_an_anonymous_caller() {
    let app = TestApp::with("auth: {api_keys: [{id: ada, key: key-of-ada}]}").await;
    for request in [app.get("/tools/list").bearer_auth("wrong"), app.get("/tools/list").header("x-api-key", "wrong")] {
        let (status, reply) = answer(request).await;
        assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    }
    let (status, _) = answer(app.get("/tools/list").header("x-api-key", "key-of-ada")).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn anonymous_callers_can_be_shut_out() {
    let app = TestApp::with("auth: {anonymous: never, api_keys: [{id: ada, key: key-of-ada}]}").await;
    let (status, reply) = answer(app.get("/tools/list")).await;
    assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    assert_eq!(app.get("/healthz").send().await.unwrap().status(), StatusCode::OK);
}

/// Anybody may write these headers: there is no proxy that would be believed.
#[tokio::test]
async fn a_forwarded_address_is_nobodys_identity() {
    let app = TestApp::with("tools: {overrides: {calculator: {rate_limit: 1}}}").await;
    let mut statuses = Vec::new();
    for address in ["192.0.2.1", "192.0.2.2"] {
        let request = app.post("/tools/calculator/execute").json(&json!({"arguments": {"expression": "1"}}));
        let request = request.header("x-forwarded-for", address).header("forwarded", format!("for={address}"));
        statuses.push(answer(request.header("x-real-ip", address)).await.0);
    }
    assert_eq!(statuses, [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS], "one caller, wherever it says it stands");
    let elsewhere = app.get("/tools/list").header(HOST, "evil.example").header("x-forwarded-host", "localhost");
    assert_eq!(answer(elsewhere).await.0, StatusCode::BAD_REQUEST);
}

/// A web page that points its own name at loopback (DNS rebinding) finds nobody there.
#[tokio::test]
async fn on_loopback_only_the_names_of_loopback_are_answered() {
    let app = TestApp::start().await;
    let (status, reply) = answer(app.get("/tools/list").header(HOST, "evil.example:80")).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_request"));
    for host in ["localhost:1", "127.0.0.1", "[::1]:8080"] {
        assert_eq!(app.get("/tools/list").header(HOST, host).send().await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_web_form_cannot_call_a_tool() {
    let app = TestApp::start().await;
    for declared in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let request = app.post("/tools/echo/execute").header("content-type", declared).body(r#"{"arguments":{}}"#);
        let (status, reply) = answer(request).await;
        assert_eq!((status, code(&reply)), (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"));
    }
    let (status, _) = answer(app.post("/tools/echo/execute").body(json!({}).to_string())).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}
