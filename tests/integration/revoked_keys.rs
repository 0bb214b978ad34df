//! Streams that are open when the key of their caller is revoked: they end, and what they follow goes on.

use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::agents::with_scripts;
use crate::app::TestApp;
use crate::console::Browser;
use crate::conversations::until;
use crate::keys::as_holder;
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};
use crate::slack::slack;

const AUTH: &str = "auth: {anonymous: never, api_keys: [{id: ada, key: key-of-ada, roles: [admin]}]}";

/// A new key of carol: its token and its id.
async fn key_of_carol(app: &TestApp) -> (String, String) {
    let body = json!({"person": "carol", "roles": ["admin"]});
    let (status, created) = as_holder(app, "key-of-ada", Method::POST, "/admin/keys", Some(body)).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&created["token"]), text(&created["key"]["id"]))
}

async fn revoke(app: &TestApp, id: &str) {
    let (status, revoked) = as_holder(app, "key-of-ada", Method::DELETE, &format!("/admin/keys/{id}"), None).await;
    assert_eq!(status, StatusCode::OK, "{revoked}");
}

/// Reads a stream to its end, which is soon.
async fn end_of(mut stream: Response) {
    let ending = async { while stream.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(slack(Duration::from_secs(5)), ending).await.expect("the stream ends");
}

#[tokio::test]
async fn streams_of_the_api_and_the_console_end_and_the_run_goes_on() {
    let app = with_scripts(&[("slow", "turns: [{text: [one], delay_seconds: 60}]")]).await;
    let yaml = std::fs::read_to_string(app.directory.path().join("sekisho.yaml")).unwrap();
    let app = TestApp::in_directory(app.stop().await, &format!("{yaml}{AUTH}\n")).await;
    // All keys of a person are one caller.
    let ((token, id), (other, _)) = (key_of_carol(&app).await, key_of_carol(&app).await);
    let body = json!({"agent": "slow"});
    let (_, created) = as_holder(&app, &other, Method::POST, "/api/conversations", Some(body)).await;
    let execute = format!("/api/conversations/{}/execute", created["id"].as_str().unwrap());
    let request = app.post(&execute).bearer_auth(&other).header("accept", "text/event-stream");
    let response = request.json(&json!({"user_input": "Go on."})).send().await.unwrap();
    let run = format!("/api/runs/{}", response.headers()["x-run-id"].to_str().unwrap());
    let follow = async |token: &str| {
        let response = app.get(&format!("{run}/events")).bearer_auth(token).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response
    };
    let (of_revoked, mut of_other) = (follow(token.as_str()).await, follow(other.as_str()).await);
    let live = Browser::signed_in(&app, &token).await.get("/console/live").send().await.unwrap();
    assert_eq!(live.status(), StatusCode::OK);

    revoke(&app, &id).await;
    end_of(of_revoked).await;
    end_of(live).await;
    let (_, shown) = as_holder(&app, &other, Method::GET, &run, None).await;
    assert_eq!(shown["status"], "running", "{shown}");
    let cancelled = app.post(&format!("{run}/cancel")).bearer_auth(&other).send().await.unwrap();
    assert_eq!(cancelled.status(), StatusCode::ACCEPTED);
    until(&mut of_other, |event| event.name == "result").await;
}

#[tokio::test]
async fn streams_of_mcp_clients_end() {
    let app = TestApp::with(AUTH).await;
    let (token, id) = key_of_carol(&app).await;
    let older = McpClient::connect_as(&app, OLDER, Some(&token)).await;
    let newer = McpClient::connect_as(&app, NEWER, Some(&token)).await;
    let mut of_session = older.listen(json!({})).await;
    let mut of_subscription = newer.listen(json!({"toolsListChanged": true})).await;
    revoke(&app, &id).await;
    assert!(of_session.end().await);
    let mut last = of_subscription.next().await.expect("its result");
    // Tools that are read after the start may have come in between.
    while last["method"] == "notifications/tools/list_changed" {
        last = of_subscription.next().await.expect("its result");
    }
    assert!(last["result"].is_object(), "{last}");
    assert!(of_subscription.next().await.is_none());
}
