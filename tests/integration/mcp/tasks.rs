//! Tasks, of 2025-11-25 and of the extension of 2026-07-28: tools that servers run as tasks.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::McpClient;
use super::{NEWER, OLDER};
use crate::app::{TestApp, answer};
use crate::extended::{KINDS, gateway, settings};

fn arguments(topic: &str) -> Value {
    json!({"arguments": {"topic": topic}})
}

async fn call(app: &TestApp, tool: &str, topic: &str) -> Value {
    answer(app.post(&format!("/tools/m__{tool}/execute")).json(&arguments(topic))).await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_requires_a_task_is_called_by_clients_that_have_none() {
    for kind in KINDS {
        let app = gateway(&[("m", settings(kind, "share: all").await)], "").await;
        let reply = call(&app, "report", "bees").await;
        assert_eq!(reply["text"], "report of bees", "{kind:?}: {reply}");
        for revision in [NEWER, OLDER] {
            let client = McpClient::connect(&app, revision).await;
            let params = json!({"name": "m__report", "arguments": {"topic": "ants"}});
            let called = client.result("tools/call", params, "CallToolResult").await;
            assert_eq!(called["content"][0]["text"], "report of ants", "{kind:?} {revision}: {called}");
            assert_eq!(called.get("_meta"), None, "the server's id of the task is unknown here: {called}");
        }
        let reply = call(&app, "broken", "bees").await;
        let message = reply["error_info"]["message"].as_str().unwrap();
        assert!(message.contains("the report is broken"), "{kind:?}: {reply}");
        assert_eq!(call(&app, "either", "").await["text"], "without a task", "{kind:?}");
        assert_eq!(call(&app, "cancelled", "").await["text"], "0", "{kind:?}: what is done is not cancelled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_call_ends_first_is_cancelled() {
    for kind in KINDS {
        let limits = "tools: {overrides: {m__endless: {timeout_seconds: 1}}}\n";
        let app = gateway(&[("m", settings(kind, "share: all").await)], limits).await;
        let reply = call(&app, "endless", "").await;
        assert_eq!(reply["error_info"]["code"], "timeout", "{kind:?}: {reply}");
        let cancelled = async {
            while call(&app, "cancelled", "").await["text"] != "1" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), cancelled).await.expect("a cancelled task");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_asks_the_client_of_its_call() {
    let kinds = KINDS.into_iter().filter(|(_, is_newer)| *is_newer);
    for kind in kinds {
        let app = gateway(&[("m", settings(kind, "").await)], "").await;
        let client = McpClient::connect(&app, OLDER).await;
        let params = json!({"name": "m__asks", "arguments": {}});
        let messages = client
            .converse("tools/call", params, |question| {
                assert_eq!(question["params"]["message"], "Who?");
                json!({"action": "accept", "content": {"a": "Ada"}})
            })
            .await;
        let reply = messages.last().unwrap();
        assert_eq!(reply["result"]["content"][0]["text"], "asks of Ada", "{kind:?}: {reply}");
    }
}
