//! Another caller's or tenant's anything does not exist: tenants/matrix.yaml has each route.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{names, until};
use crate::agents::with_scripts;
use crate::app::{TestApp, answer};
use crate::checkout::checkout;

/// Two callers of one tenant.
const AUTH: &str = "auth: {anonymous: never, api_keys: [{id: ann, tenant: acme, key: key-of-ann}, \
                    {id: bob, tenant: acme, key: key-of-bob}]}";

#[tokio::test]
async fn a_run_that_is_on_can_be_stopped_by_its_owner_alone() {
    let app = with_scripts(&[("slow", "turns: [{text: [one], delay_seconds: 60}]")]).await;
    let yaml = std::fs::read_to_string(app.directory.path().join("sekisho.yaml")).unwrap();
    let app = TestApp::in_directory(app.stop().await, &format!("{yaml}{AUTH}\n")).await;
    let post = |key: &str, path: &str, body: Value| app.post(path).bearer_auth(key).json(&body);
    let (_, created) = answer(post("key-of-ann", "/api/conversations", json!({"agent": "slow"}))).await;
    let path = format!("/api/conversations/{}/execute", created["id"].as_str().unwrap());
    let mut response = post("key-of-ann", &path, json!({"user_input": "a", "stream": true})).send().await.unwrap();
    let run = response.headers()["x-run-id"].to_str().unwrap().to_owned();
    until(&mut response, |event| event.name == "system").await;
    let cancel = format!("/api/runs/{run}/cancel");
    assert_eq!(answer(post("key-of-bob", &cancel, json!({}))).await.0, StatusCode::NOT_FOUND);
    assert_eq!(post("key-of-ann", &cancel, json!({})).send().await.unwrap().status(), StatusCode::ACCEPTED);
    let rest = until(&mut response, |event| event.name == "system").await;
    assert_eq!(names(&rest), ["result", "system"]);
}

/// All clients without credentials are one caller. One elsewhere reaches what it began by its id alone.
#[tokio::test]
async fn clients_elsewhere_without_credentials_are_shown_no_list() {
    let script = checkout().join("config/examples/weather.yaml").display().to_string();
    let yaml = format!(
        "server: {{trusted_proxies: [127.0.0.0/8]}}\nauth: {{anonymous: always}}\n\
         agent: {{default_profile: talk, profiles: {{talk: {{provider: replay, model: '{script}'}}}}}}\n"
    );
    let app = TestApp::with(&yaml).await;
    let elsewhere = |request: reqwest::RequestBuilder| request.header("x-forwarded-for", "203.0.113.9");
    let (status, created) = answer(elsewhere(app.post("/api/conversations").json(&json!({})))).await;
    assert!(status.is_success(), "{created}");
    let id = created["id"].as_str().unwrap();
    for path in [format!("/api/conversations/{id}"), format!("/api/logs/messages?conversation_id={id}")] {
        assert_eq!(answer(elsewhere(app.get(&path))).await.0, StatusCode::OK, "{path}");
    }
    for path in ["/api/conversations", "/api/plans", "/api/logs/messages"] {
        let (status, reply) = answer(elsewhere(app.get(path))).await;
        assert_eq!(
            (status, &reply["error_info"]["code"]),
            (StatusCode::UNAUTHORIZED, &json!("unauthenticated")),
            "{path}"
        );
        assert_eq!(answer(app.get(path)).await.0, StatusCode::OK, "{path} on this machine");
    }
}
