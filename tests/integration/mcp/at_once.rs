//! Calls that end at once are answered with JSON; others with a stream of events.

use serde_json::json;

use super::client::McpClient;
use super::streams::until;
use super::{NEWER, OLDER};
use crate::app::TestApp;

#[tokio::test]
async fn a_call_that_ends_at_once_is_answered_with_json() {
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
            for accept in ["application/json, text/event-stream", "Text/Event-Stream;q=0.5,application/json;q=0.9"] {
                let (kind, reply) = client.reported("tools/call", call.clone(), &[("accept", accept)]).await;
                assert_eq!(kind, "application/json", "{revision}: {reply}");
                let has_failed = reply["result"]["isError"] == true || reply.get("error").is_some();
                assert_eq!(has_failed, fails, "{revision}: {reply}");
            }
        }
    }
}

#[tokio::test]
async fn a_longer_call_of_a_session_is_answered_with_events_and_one_without_session_with_json() {
    let app = TestApp::start().await;
    for (revision, expected) in [(NEWER, "application/json"), (OLDER, "text/event-stream")] {
        let client = McpClient::connect(&app, revision).await;
        let (kind, reply) =
            client.reported("tools/call", json!({"name": "sleep", "arguments": {"ms": 200}}), &[]).await;
        assert_eq!(kind, expected, "{revision}");
        assert!(reply["result"]["content"].is_array(), "{reply}");
    }
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
async fn a_call_before_the_client_is_ready_is_answered() {
    let app = TestApp::start().await;
    let client = McpClient::begin(&app, OLDER).await;
    let (_, reply) =
        client.reported("tools/call", json!({"name": "calculator", "arguments": {"expression": "6*7"}}), &[]).await;
    assert_eq!(reply["result"]["content"][0]["text"], "42", "{reply}");
}
