//! A server of 2025-11-25 whose user must open a page before a tool runs: it refuses calls with `URLElicitationRequiredError`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};

use super::client::McpClient;
use super::{NEWER, OLDER};
use crate::app::TestApp;
use crate::mcp_servers::ready;

const PAGE: &str = "https://sign-in.example/page-1";

#[derive(Default)]
struct Seen {
    is_opened: AtomicBool,
    calls: AtomicUsize,
}

async fn start() -> (TestApp, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let no_stream = async || StatusCode::METHOD_NOT_ALLOWED;
    let routes = Router::new().route("/mcp", post(speak).get(no_stream)).with_state(Arc::clone(&seen));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let app = TestApp::with(&format!(
        "outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}}\n\
         mcp: {{servers: {{far: {{url: '{url}'}}}}}}"
    ))
    .await;
    ready(&app).await;
    (app, seen)
}

/// `locked` needs the page; `finish` says that the user has finished on it.
async fn speak(State(seen): State<Arc<Seen>>, Json(message): Json<Value>) -> Response {
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    let text = |text: &str| answer(json!({"content": [{"type": "text", "text": text}]}));
    let answer = match (message["method"].as_str().unwrap(), message["params"]["name"].as_str()) {
        ("initialize", _) => answer(json!({
            "protocolVersion": OLDER, "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"},
        })),
        ("tools/list", _) => {
            let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
            answer(json!({"tools": (["locked", "finish"].map(tool))}))
        }
        ("tools/call", Some("finish")) => {
            let complete = json!({
                "jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "page-1"},
            });
            let events = [complete, text("finished")].map(|message| Event::default().data(message.to_string()));
            return Sse::new(stream::iter(events.map(Ok::<_, Infallible>))).into_response();
        }
        ("tools/call", _) => {
            seen.calls.fetch_add(1, Ordering::SeqCst);
            match seen.is_opened.load(Ordering::SeqCst) {
                true => text("open"),
                false => {
                    let page = json!({"mode": "url", "message": "Sign in.", "url": PAGE, "elicitationId": "page-1"});
                    let error = json!({"code": -32042, "message": "more is needed", "data": {"elicitations": [page]}});
                    json!({"jsonrpc": "2.0", "id": id, "error": error})
                }
            }
        }
        ("ping", _) => answer(json!({})),
        (method, _) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": method}}),
    };
    Json(answer).into_response()
}

fn call() -> Value {
    json!({"name": "far__locked", "arguments": {}})
}

fn opens_pages() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}})
}

#[tokio::test]
async fn a_client_with_sessions_gets_the_refusal_and_is_notified_when_its_user_has_finished() {
    let (app, seen) = start().await;
    let client = McpClient::connect_with(&app, OLDER, opens_pages()).await;
    let refused = client.reply("tools/call", call()).await;
    assert_eq!(refused["error"]["code"], -32042, "{refused}");
    assert_eq!(refused["error"]["data"]["elicitations"][0]["url"], PAGE, "{refused}");
    assert_eq!(refused["error"]["data"]["elicitations"][0]["elicitationId"], "page-1", "{refused}");

    let mut standing = client.listen(json!({})).await;
    client.result("tools/call", json!({"name": "far__finish", "arguments": {}}), "CallToolResult").await;
    let complete = standing.next_of("notifications/elicitation/complete").await;
    assert_eq!(complete["params"], json!({"elicitationId": "page-1"}));

    seen.is_opened.store(true, Ordering::SeqCst);
    let result = client.result("tools/call", call(), "CallToolResult").await;
    assert_eq!(result["content"][0]["text"], "open", "{result}");
    app.stop().await;
}

#[tokio::test]
async fn a_caller_that_opens_no_pages_is_told_the_address() {
    let (app, _seen) = start().await;
    let result = McpClient::connect(&app, OLDER).await.result("tools/call", call(), "CallToolResult").await;
    assert!(result["isError"] == true && result["content"][0]["text"].as_str().unwrap().contains(PAGE), "{result}");
    // 2026-07-28 has an error of its own for it.
    let refused = McpClient::connect(&app, NEWER).await.reply("tools/call", call()).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let (_, reply) = app.call("far__locked", json!({})).await;
    assert!(reply["error"].as_str().unwrap().contains(PAGE), "{reply}");
    app.stop().await;
}

#[tokio::test]
async fn a_client_without_sessions_is_asked_and_its_call_is_sent_again() {
    let (app, seen) = start().await;
    let client = McpClient::connect_with(&app, NEWER, opens_pages()).await;
    let answered = |asked: &Value, action: &str| {
        let mut call = call();
        call["requestState"] = asked["requestState"].clone();
        call["inputResponses"] = json!({"page-1": {"action": action}});
        call
    };
    for (action, opens, expected) in [("decline", false, 1), ("accept", false, 2), ("accept", true, 2)] {
        seen.calls.store(0, Ordering::SeqCst);
        let asked = client.result("tools/call", call(), "InputRequiredResult").await;
        assert_eq!(asked["inputRequests"]["page-1"]["params"]["url"], PAGE, "{asked}");
        seen.is_opened.store(opens, Ordering::SeqCst);
        let result = client.result("tools/call", answered(&asked, action), "CallToolResult").await;
        assert_eq!(result["isError"] == true, !opens, "{result}");
        assert_eq!(seen.calls.load(Ordering::SeqCst), expected, "{action}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(if opens { text == "open" } else { text.contains(PAGE) }, "{result}");
    }
    app.stop().await;
}
