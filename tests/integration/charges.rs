//! What a call costs that had no answer: its price once it was sent, and nothing before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast;

use crate::app::{TestApp, code};
use crate::mcp_programs;
use crate::mcp_servers::ready;

/// Counts what it gets, and never answers.
pub(crate) struct Deaf {
    pub(crate) url: String,
    requests: Arc<AtomicUsize>,
}

impl Deaf {
    pub(crate) async fn start() -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let route = post(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<&str>()
        });
        Self { url: served(Router::new().route("/pay", route)).await, requests }
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

pub(crate) async fn served(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// A gateway with the operation `bank__pay` at one cent, on a day's budget of five.
async fn bank(server: &str, outbound: &str) -> TestApp {
    let directory = TempDir::new().unwrap();
    let yaml = settings(&directory, server, outbound);
    TestApp::in_directory(directory, &yaml).await
}

pub(crate) fn settings(directory: &TempDir, server: &str, outbound: &str) -> String {
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Bank", "version": "1"},
        "servers": [{"url": server}],
        "paths": {"/pay": {"post": {"operationId": "pay", "responses": {"200": {"description": "paid"}}}}},
    });
    let file = directory.path().join("bank.json");
    std::fs::write(&file, document.to_string()).unwrap();
    format!(
        "outbound: {{{outbound}}}\n\
         budget: {{max_cost_per_caller_per_day: '0.05'}}\n\
         openapi: {{collections: {{bank: {{spec_file: '{}', base_cost_per_use: '0.01', timeout_seconds: 2}}}}}}",
        file.display()
    )
}

pub(crate) const LOOPBACK: &str = "allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]";

/// Calls a tool and leaves once `reached` signals that the upstream has the call.
async fn leave(app: &TestApp, tool: &str, reached: impl Fn() -> bool) {
    let request = app.post(&format!("/tools/{tool}/execute")).json(&json!({"arguments": {}})).send();
    let arrived = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = request => panic!("{:?}", answer.unwrap().text().await),
        () = arrived => {}
    }
    idle(app).await;
}

async fn idle(app: &TestApp) {
    let over = async {
        while app.gateway.pipeline.limits.in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), over).await.expect("a call goes on without its caller");
}

/// Status, code and cost of each line of the audit trail.
fn audited(directory: &TempDir) -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let word = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
    lines.map(|line| (word(&line, "status"), word(&line, "code"), word(&line, "cost_usd"))).collect()
}

#[tokio::test]
async fn a_client_that_disconnects_pays_for_what_was_sent() {
    let upstream = Deaf::start().await;
    let app = bank(&upstream.url, LOOPBACK).await;
    for turn in 1..=5 {
        leave(&app, "bank__pay", || upstream.requests() == turn).await;
    }
    for _ in 0..3 {
        let (status, reply) = app.call("bank__pay", json!({})).await;
        assert_eq!((status, code(&reply)), (StatusCode::PAYMENT_REQUIRED, "budget_exceeded"));
    }
    assert_eq!(upstream.requests(), 5, "the day's budget holds");
    let lines = audited(&app.stop().await);
    let cancelled = ("cancelled".to_owned(), "cancelled".to_owned(), "0.01".to_owned());
    assert_eq!(lines[..5], vec![cancelled; 5]);
    assert_eq!(lines.len(), 8);
}

#[tokio::test]
async fn a_call_that_was_sent_costs_its_price_also_when_no_answer_comes() {
    let upstream = Deaf::start().await;
    let app = bank(&upstream.url, LOOPBACK).await;
    let (status, reply) = app.call("bank__pay", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::GATEWAY_TIMEOUT, "timeout"));
    assert_eq!(reply["usage"]["cost_usd"], 0.01);
    let after = &reply["receipt"]["budget"]["after"];
    assert_eq!(after["cost_usd"], 0.04, "{reply}");
    let broken = served(Router::new().route("/pay", post(|| async { StatusCode::INTERNAL_SERVER_ERROR }))).await;
    let app = bank(&broken, LOOPBACK).await;
    let (status, reply) = app.call("bank__pay", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_GATEWAY, "upstream_error"));
    assert_eq!(reply["usage"]["cost_usd"], 0.01);
}

/// What our own guards stop, and what cannot be reached, was not sent.
#[tokio::test]
async fn a_call_that_was_not_sent_costs_nothing() {
    let upstream = Deaf::start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{closed}");
    for (server, outbound, expected) in [
        (upstream.url.as_str(), "allow_networks: [127.0.0.0/8], openapi_allowed_domains: [example.com]", "denied"),
        (upstream.url.as_str(), "openapi_allowed_domains: ['*']", "denied"),
        (nobody.as_str(), LOOPBACK, "upstream_error"),
    ] {
        let app = bank(server, outbound).await;
        // More often than the budget would allow.
        for _ in 0..4 {
            let (_, reply) = app.call("bank__pay", json!({})).await;
            assert_eq!(code(&reply), expected, "{outbound}: {reply}");
            assert_eq!(reply["usage"]["cost_usd"], 0.0, "{outbound}: {reply}");
            assert_eq!(reply["receipt"]["budget"]["before"]["cost_usd"], 0.05, "{outbound}: {reply}");
        }
        assert!(audited(&app.stop().await).iter().all(|(_, _, cost)| cost == "0"), "{outbound}");
    }
    assert_eq!(upstream.requests(), 0);
}

/// A tool of the gateway itself is paid for from the moment it begins.
#[tokio::test]
async fn a_client_that_disconnects_from_a_local_tool_pays_for_it() {
    let app = TestApp::with("tools: {overrides: {sleep: {cost_per_use: '0.2'}}}").await;
    leave(&app, "sleep", || app.gateway.pipeline.limits.in_flight() > 0).await;
    let lines = audited(&app.stop().await);
    assert_eq!((lines[0].0.as_str(), lines[0].2.as_str()), ("cancelled", "0.2"));
}

/// How an MCP server may be reached, with a tool `wait` or `echo` that does not answer.
enum Reached {
    Program,
    StreamableHttp,
    Sse,
}

#[tokio::test]
async fn calls_of_mcp_servers_are_paid_for_however_the_servers_are_reached() {
    for reached in [Reached::Program, Reached::StreamableHttp, Reached::Sse] {
        let calls = Arc::new(AtomicUsize::new(0));
        let priced = "cost_per_use: '0.01'";
        let (settings, tool) = match reached {
            Reached::Program => (mcp_programs::server("silent", priced), "far__echo"),
            Reached::StreamableHttp => {
                let url = served(Router::new().route("/mcp", post(streamable(&calls)))).await;
                (format!("{{url: '{url}/mcp', transport: streamable_http, {priced}}}"), "far__wait")
            }
            Reached::Sse => {
                let url = served(sse(&calls)).await;
                (format!("{{url: '{url}/sse', transport: sse, {priced}}}"), "far__wait")
            }
        };
        let outbound = "outbound: {allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}";
        let app = TestApp::with(&format!("{outbound}\nmcp: {{servers: {{far: {settings}}}}}")).await;
        ready(&app).await;
        let began = std::time::Instant::now();
        leave(&app, tool, || match reached {
            // Nobody sees into the program: its input takes a line at once.
            Reached::Program => began.elapsed() > Duration::from_millis(500),
            Reached::StreamableHttp | Reached::Sse => calls.load(Ordering::SeqCst) == 1,
        })
        .await;
        let lines = audited(&app.stop().await);
        assert_eq!((lines[0].0.as_str(), lines[0].2.as_str()), ("cancelled", "0.01"), "{settings}");
    }
}

/// What an MCP server of 2025-06-18 answers, but to calls.
fn mcp_answer(message: &Value, calls: &AtomicUsize) -> Option<Value> {
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "wait", "inputSchema": {"type": "object"}}]}),
        "tools/call" => {
            calls.fetch_add(1, Ordering::SeqCst);
            return None;
        }
        "ping" => json!({}),
        method => {
            let error = json!({"code": -32601, "message": method});
            return message.get("id").map(|id| json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    };
    Some(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

fn streamable(
    calls: &Arc<AtomicUsize>,
) -> impl Fn(Json<Value>) -> futures_util::future::BoxFuture<'static, (StatusCode, Json<Value>)>
+ Clone
+ Send
+ Sync
+ 'static {
    let calls = Arc::clone(calls);
    move |Json(message)| {
        let answer = mcp_answer(&message, &calls);
        Box::pin(async move {
            match answer {
                Some(answer) => (StatusCode::OK, Json(answer)),
                None if message["method"] == "tools/call" => std::future::pending().await,
                None => (StatusCode::ACCEPTED, Json(Value::Null)),
            }
        })
    }
}

/// As servers of 2024-11-05: all their messages come over one stream.
fn sse(calls: &Arc<AtomicUsize>) -> Router {
    let (reported, _) = broadcast::channel::<String>(16);
    let (heard, calls) = (reported.clone(), Arc::clone(calls));
    let stream = get(move || {
        let messages = reported.subscribe();
        async move {
            let first = futures_util::stream::once(async { Event::default().event("endpoint").data("/messages") });
            let rest = futures_util::stream::unfold(messages, async |mut messages| {
                let message = messages.recv().await.ok()?;
                Some((Event::default().event("message").data(message), messages))
            });
            Sse::new(first.chain(rest).map(Ok::<_, std::convert::Infallible>))
        }
    });
    let messages = post(move |Json(message): Json<Value>| async move {
        if let Some(answer) = mcp_answer(&message, &calls) {
            heard.send(answer.to_string()).unwrap();
        }
        StatusCode::ACCEPTED
    });
    Router::new().route("/sse", stream).route("/messages", messages)
}
