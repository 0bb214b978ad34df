//! Streams that break, and the calls behind them.

use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::client::McpClient;
use super::upstream::Upstream;
use super::{NEWER, OLDER};
use crate::app::TestApp;

const SLEEPS: &str = r#"shannon_tool_executions_total{status="success",tool_name="sleep"}"#;

#[tokio::test]
async fn a_stream_that_broke_goes_on_where_it_broke() {
    let app = TestApp::start().await;
    let client = McpClient::connect(&app, OLDER).await;
    let stranger = McpClient::connect(&app, OLDER).await;
    for (round, waits_for_the_end) in [(1.0, false), (2.0, true)] {
        let call = json!({"name": "sleep", "arguments": {"ms": 400}});
        let last_event = client.first_event_id("tools/call", call).await;
        if waits_for_the_end {
            until(async || app.metric(SLEEPS).await == round).await;
        }
        assert!(stranger.resume(&last_event).await.is_empty(), "another session's stream");
        let missed = client.resume(&last_event).await;
        let [answer] = missed.as_slice() else { panic!("one answer: {missed:?}") };
        client.check("JSONRPCMessage", answer);
        assert_eq!(answer["result"]["content"][0]["text"], "400", "{answer}");
        assert_eq!(app.metric(SLEEPS).await, round, "the call ran once");
    }
    assert!(client.resume("no such event").await.is_empty());
}

#[tokio::test]
async fn what_a_client_takes_back_is_taken_back_from_the_server_behind() {
    let upstream = Upstream::start().await;
    let app = upstream.behind_a_gateway().await;
    for revision in [NEWER, OLDER] {
        let client = McpClient::connect(&app, revision).await;
        let call = client.send("tools/call", json!({"name": "far__slow", "arguments": {}}));
        let id = client.last_id() + 1;
        let give_up = async {
            until(async || upstream.calls() > upstream.cancelled()).await;
            if revision == OLDER {
                client.notify("notifications/cancelled", json!({"requestId": id, "reason": "no longer wanted"})).await;
            }
        };
        let before = upstream.cancelled();
        // A client of the newer revision hangs up.
        tokio::select! { _ = call => {}, () = give_up => {} }
        until(async || upstream.cancelled() == before + 1).await;
    }
}

#[tokio::test]
async fn progress_of_the_server_behind_comes_under_the_clients_own_token() {
    let upstream = Upstream::start().await;
    let app = upstream.behind_a_gateway().await;
    for revision in [NEWER, OLDER] {
        let client = McpClient::connect(&app, revision).await;
        let call = json!({"name": "far__steps", "arguments": {}, "_meta": {"progressToken": "mine"}});
        let messages = client.converse("tools/call", call, |_| Value::Null).await;
        let reported: Vec<_> = messages
            .iter()
            .filter(|message| message["method"] == "notifications/progress")
            .map(|message| (message["params"]["progressToken"].clone(), message["params"]["progress"].clone()))
            .collect();
        assert_eq!(reported, [(json!("mine"), json!(1.0)), (json!("mine"), json!(2.0))], "{revision}: {messages:?}");
        assert_eq!(messages.last().unwrap()["result"]["content"][0]["text"], "done", "{revision}");
    }
}

#[tokio::test]
async fn concurrent_questions_of_a_server_reach_a_newer_client_together() {
    let upstream = Upstream::start().await;
    let app = upstream.behind_a_gateway().await;
    let client = McpClient::connect(&app, NEWER).await;
    let mut call = json!({"name": "far__wants_two", "arguments": {}});
    let asked = client.result("tools/call", call.clone(), "InputRequiredResult").await;
    let questions = asked["inputRequests"].as_object().unwrap();
    assert_eq!(questions.len(), 2, "{asked}");
    call["inputResponses"] = questions.keys().map(|key| (key.clone(), json!({"action": "decline"}))).collect();
    call["requestState"] = asked["requestState"].clone();
    let result = client.result("tools/call", call, "CallToolResult").await;
    assert_eq!(result["content"][0]["text"], "both are answered", "{result}");
}

#[tokio::test]
async fn other_messages_than_the_response_are_distinguished_at_once() {
    let upstream = Upstream::start().await;
    let app = upstream.behind_a_gateway().await;
    for (tool, expected) in [("asks", "somebody is there"), ("broken", "went on")] {
        let (_, reply) = app.call(&format!("far__{tool}"), json!({})).await;
        assert_eq!(reply["text"], expected, "{tool}: {reply}");
    }
    for (tool, problem) in [
        ("cut", "the connection to the MCP server far was lost before it answered"),
        ("other", "the MCP server's answer is not a tool result"),
        ("text", "the MCP server's answer is not a tool result"),
        ("list", "the MCP server's answer is not a tool result"),
    ] {
        let tool = format!("far__{tool}");
        let answered = tokio::time::timeout(Duration::from_secs(5), app.call(&tool, json!({})));
        let (status, reply) = answered.await.expect("it waits for nothing more");
        assert_eq!(
            (status, &reply["error_info"]["code"]),
            (StatusCode::BAD_GATEWAY, &json!("upstream_error")),
            "{tool}"
        );
        assert_eq!(reply["error"], problem, "{tool}: {reply}");
    }
    assert_eq!(upstream.cancelled(), 0, "nothing was taken back");
}

pub(super) async fn until(mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not come to that within ten seconds");
}
