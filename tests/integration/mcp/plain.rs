//! Calls that are answered at once, beside those that the protocol's library serves.

use serde_json::{Value, json};

use super::client::McpClient;
use super::streams::until;
use super::{NEWER, OLDER};
use crate::app::TestApp;

/// What weighs the types it accepts is nothing that is answered at once.
const LONGER_WAY: [(&str, &str); 1] = [("accept", "application/json, text/event-stream;q=0.9")];

#[tokio::test]
async fn a_call_is_answered_in_the_same_words_whichever_way_it_goes() {
    let app = TestApp::start().await;
    for revision in [NEWER, OLDER] {
        let client = McpClient::connect(&app, revision).await;
        for (name, arguments, fails) in [
            ("calculator", json!({"expression": "6*7"}), false),
            ("json_query", json!({"data": {"a": [1]}, "query": "a"}), false),
            ("calculator", json!({"expression": "six times seven"}), true),
            ("calculator", json!({"expression": 42, "more": true}), true),
            ("calculate", json!({}), true),
        ] {
            let call = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}});
            let (kind, at_once) = client.told("tools/call", call.clone(), &[]).await;
            let (longer_kind, longer) = client.told("tools/call", call, &LONGER_WAY).await;
            assert_eq!(kind, "application/json", "{revision}: {at_once}");
            assert_eq!(longer_kind == "text/event-stream", revision == OLDER, "{revision}: {longer_kind}");
            assert_eq!(without_id(at_once.clone()), without_id(longer), "{revision}: {name}");
            let has_failed = at_once["result"]["isError"] == true || at_once.get("error").is_some();
            assert_eq!(has_failed, fails, "{revision}: {at_once}");
        }
    }
}

fn without_id(mut reply: Value) -> Value {
    reply["id"].take();
    reply
}

#[tokio::test]
async fn a_client_of_a_session_that_goes_away_does_not_take_back_its_call() {
    let app = TestApp::start().await;
    let client = McpClient::connect(&app, OLDER).await;
    let call = client.send("tools/call", json!({"name": "sleep", "arguments": {"ms": 80}}));
    let runs = until(async || app.gateway.pipeline.limits.in_flight() == 1);
    tokio::select! { _ = call => panic!("it takes a while"), () = runs => {} }
    let succeeded = r#"shannon_tool_executions_total{status="success",tool_name="sleep"}"#;
    until(async || app.metric(succeeded).await == 1.0).await;
}

#[tokio::test]
async fn a_call_before_the_client_is_ready_goes_the_longer_way() {
    let app = TestApp::start().await;
    let client = McpClient::begin(&app, OLDER).await;
    let call = json!({"name": "calculator", "arguments": {"expression": "6*7"}});
    let served = client.told("tools/call", call.clone(), &[]);
    // The library lets it wait.
    let early = tokio::time::timeout(std::time::Duration::from_millis(300), served).await;
    assert!(early.is_err() || early.is_ok_and(|(kind, _)| kind == "text/event-stream"));
    client.notify("notifications/initialized", json!({})).await;
    until(async || client.told("tools/call", call.clone(), &[]).await.0 == "application/json").await;
}
