//! Another caller's or tenant's anything does not exist.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{names, until};
use crate::agents::with_scripts;
use crate::app::{TestApp, answer, code};

/// Two callers of one tenant, and one of another.
const AUTH: &str = "auth: {anonymous: never, api_keys: [{id: ann, tenant: acme, key: key-of-ann}, \
                    {id: bob, tenant: acme, key: key-of-bob}, {id: eve, tenant: other, roles: [admin], key: key-of-eve}]}";

async fn app() -> TestApp {
    let base = with_scripts(&[("talk", "turns: [{text: [one]}, {text: [two]}]")]).await;
    let yaml = std::fs::read_to_string(base.directory.path().join("sekisho.yaml")).unwrap();
    TestApp::in_directory(base.stop().await, &format!("{yaml}{AUTH}\n")).await
}

#[tokio::test]
async fn every_route_is_for_the_owner_alone() {
    let app = app().await;
    let ask = |key: &str, method: Method, path: &str, body: Value| {
        let request = app.client.request(method.clone(), format!("{}{path}", app.url));
        let request = if key.is_empty() { request } else { request.bearer_auth(key) };
        if method == Method::GET { request } else { request.json(&body) }
    };
    let new = ask("key-of-ann", Method::POST, "/api/conversations", json!({"agent": "talk", "labels": {"a": "b"}}));
    let (_, created) = answer(new).await;
    let id = created["id"].as_str().unwrap().to_owned();
    let run = ask("key-of-ann", Method::POST, &format!("/api/conversations/{id}/execute"), json!({"user_input": "a"}));
    let (status, reply) = answer(run).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let run = reply["run_id"].as_str().unwrap().to_owned();
    let conversation = format!("/api/conversations/{id}");
    let routes = [
        (Method::GET, conversation.clone(), json!({})),
        (Method::PATCH, conversation.clone(), json!({"title": "t"})),
        (Method::GET, format!("{conversation}/runs"), json!({})),
        (Method::GET, format!("{conversation}/messages"), json!({})),
        (Method::POST, format!("{conversation}/fork"), json!({})),
        (Method::POST, format!("{conversation}/execute"), json!({"user_input": "a"})),
        (Method::GET, format!("/api/runs/{run}"), json!({})),
        (Method::GET, format!("/api/runs/{run}/events"), json!({})),
        (Method::POST, format!("/api/runs/{run}/cancel"), json!({})),
        (Method::GET, format!("/api/logs/messages?conversation_id={id}"), json!({})),
        (Method::DELETE, conversation.clone(), json!({})),
    ];
    for (method, path, body) in &routes {
        // Another caller of the tenant, and an administrator of another tenant.
        for key in ["key-of-bob", "key-of-eve"] {
            let (status, reply) = answer(ask(key, method.clone(), path, body.clone())).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{key} {method} {path}: {reply}");
            assert!(["unknown_session", "unknown_result"].contains(&code(&reply)), "{reply}");
        }
        for key in ["", "wrong"] {
            let (status, _) = answer(ask(key, method.clone(), path, body.clone())).await;
            assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path}");
        }
    }
    let resolve = format!("/api/runs/{run}/resolve");
    let decision = json!({"call_id": "c", "decision": "skip"});
    for key in ["key-of-ann", "key-of-bob", "key-of-eve"] {
        assert_eq!(answer(ask(key, Method::POST, &resolve, decision.clone())).await.0, StatusCode::NOT_FOUND);
    }
    for (path, field) in [
        ("/api/conversations", "conversations"),
        ("/api/logs/messages", "rows"),
        ("/api/logs/usage", "rows"),
        ("/api/logs/tool_executions", "rows"),
    ] {
        for (key, is_empty) in
            [("key-of-bob", true), ("key-of-eve", true), ("key-of-ann", path.ends_with("tool_executions"))]
        {
            let (status, page) = answer(ask(key, Method::GET, path, json!({}))).await;
            assert_eq!(
                (status, page[field].as_array().unwrap().is_empty()),
                (StatusCode::OK, is_empty),
                "{key} {path}"
            );
        }
    }
    // The owner can do it all.
    for (method, path, body) in &routes {
        let response = ask("key-of-ann", method.clone(), path, body.clone()).send().await.unwrap();
        assert!(response.status().is_success(), "{method} {path}: {}", response.status());
    }
}

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
