//! Servers of one revision with clients of another: their lists, notifications and questions arrive, and all
//! messages they receive conform to their own revision.

use serde_json::{Value, json};

use super::client::McpClient;
use super::{NEWER, OLDER};
use crate::app::TestApp;
use crate::mcp_programs::strict;
use crate::mcp_servers::{ready, yaml};

const REVISIONS: [&str; 4] = ["2025-03-26", "2025-06-18", OLDER, NEWER];

async fn before(revision: &str) -> TestApp {
    let app = TestApp::with(&yaml(&[("strict", strict(revision, ""))])).await;
    ready(&app).await;
    app
}

/// The violations that the server found in received messages.
async fn violations(app: &TestApp) -> String {
    let (_, reply) = app.call("strict__violations", json!({})).await;
    reply["text"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn what_a_server_of_any_revision_has_is_offered_to_clients_of_both_kinds() {
    for revision in REVISIONS {
        let app = before(revision).await;
        for client in [McpClient::connect(&app, NEWER).await, McpClient::connect(&app, OLDER).await] {
            let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
            let names: Vec<_> =
                listed["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
            let own: Vec<_> = names.iter().filter_map(|name| name.strip_prefix("strict__")).collect();
            assert_eq!(own, ["consult", "echo", "last", "log", "sound", "violations"], "{revision}: all three pages");

            let call = json!({"name": "strict__sound", "arguments": {}});
            let sound = client.result("tools/call", call, "CallToolResult").await;
            let expected = json!([{"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}]);
            assert_eq!(sound["content"], expected, "{revision}: {sound}");

            let read = client.result("resources/read", json!({"uri": "strict+demo://one"}), "ReadResourceResult").await;
            assert_eq!(read["contents"][0]["text"], "one", "{revision}: {read}");
            let prompt = client.result("prompts/get", json!({"name": "strict__greet"}), "GetPromptResult").await;
            assert_eq!(prompt["messages"][0]["content"]["text"], "Hello", "{revision}: {prompt}");
            let reference = json!({"type": "ref/prompt", "name": "strict__greet"});
            let params = json!({"ref": reference, "argument": {"name": "name", "value": "A"}});
            let completed = client.result("completion/complete", params, "CompleteResult").await;
            assert_eq!(completed["completion"]["values"], json!(["Ada"]), "{revision}: {completed}");
        }
        let (_, reply) = app.call("strict__sound", json!({})).await;
        assert_eq!(
            (&reply["content"][0]["mimeType"], &reply["text"]),
            (&json!("audio/wav"), &json!("[audio audio/wav]"))
        );
        assert_eq!(violations(&app).await, "", "{revision}");
        app.stop().await;
    }
}

#[tokio::test]
async fn a_servers_question_to_a_model_reaches_a_client_that_has_one() {
    let reported = json!({"role": "assistant", "content": {"type": "text", "text": "Bern"}, "model": "m"});
    for revision in REVISIONS {
        let app = before(revision).await;
        let call = json!({"name": "strict__consult", "arguments": {}});

        let client = McpClient::connect(&app, OLDER).await;
        let messages = client.converse("tools/call", call.clone(), |_| reported.clone()).await;
        assert_eq!(messages[0]["method"], "sampling/createMessage", "{revision}: {messages:?}");
        assert_eq!(messages[0]["params"]["messages"][0]["content"]["text"], "Which city?", "{revision}");
        assert_eq!(text(&messages.last().unwrap()["result"]), "Bern", "{revision}: {messages:?}");

        let client = McpClient::connect(&app, NEWER).await;
        let asked = client.result("tools/call", call.clone(), "InputRequiredResult").await;
        let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(question["method"], "sampling/createMessage", "{revision}: {asked}");
        let mut again = call.clone();
        again["inputResponses"] = json!({key: reported});
        if let Some(state) = asked.get("requestState") {
            again["requestState"] = state.clone();
        }
        let reported = client.result("tools/call", again, "CallToolResult").await;
        assert_eq!(text(&reported), "Bern", "{revision}: {reported}");

        // A client without the capability gets no question.
        let (_, refused) = client.without_capabilities().send("tools/call", call.clone()).await;
        assert_eq!(refused["error"]["code"], -32021, "{revision}: {refused}");
        assert_eq!(refused["error"]["data"]["requiredCapabilities"], json!({"sampling": {}}), "{revision}");
        let (_, reply) = app.call("strict__consult", json!({})).await;
        assert_eq!(reply["error_info"]["code"], "tool_error", "{revision}: {reply}");
        assert_eq!(violations(&app).await, "", "{revision}");
        app.stop().await;
    }
}

#[tokio::test]
async fn a_servers_log_reaches_a_client_that_wants_it() {
    for revision in REVISIONS {
        let app = before(revision).await;
        for (client, level, expected) in [
            (OLDER, None, 1),
            (OLDER, Some("error"), 0),
            (NEWER, None, 0),
            (NEWER, Some("warning"), 1),
            (NEWER, Some("error"), 0),
        ] {
            let mut call = json!({"name": "strict__log", "arguments": {}});
            let client_of = McpClient::connect(&app, client).await;
            match level {
                Some(level) if client == OLDER => {
                    client_of.result("logging/setLevel", json!({"level": level}), "EmptyResult").await;
                }
                Some(level) => call["_meta"] = json!({"io.modelcontextprotocol/logLevel": level}),
                None => {}
            }
            let mut messages = client_of.converse("tools/call", call, |_| Value::Null).await;
            let result = messages.pop().unwrap();
            assert_eq!(text(&result["result"]), "logged", "{revision} before {client}");
            assert_eq!(messages.len(), expected, "{revision} before {client} at {level:?}: {messages:?}");
            for message in messages {
                assert_eq!(message["params"], json!({"level": "warning", "logger": "strict", "data": {"left": 3}}));
            }
        }
        assert_eq!(violations(&app).await, "", "{revision}");
        app.stop().await;
    }
}
