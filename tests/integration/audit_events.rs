//! What the audit trail says beside calls, and how its lines are found.

use std::path::Path;
use std::process::Output;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::app::{TestApp, answer, config};
use crate::cli::{sekisho, text};
use crate::document_host::DocumentHost;
use crate::openapi::{ADMIN, document};

const ALLOWED: &str = "outbound: {allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}";
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";

pub(crate) fn lines(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("state/audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn event<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    lines.iter().find(|line| line["event"] == name).unwrap_or_else(|| panic!("no {name} in {lines:#?}"))
}

#[tokio::test]
async fn a_call_has_its_clients_address_request_id_and_trace_in_its_line_and_its_reply() {
    let app = TestApp::start().await;
    let call = || app.post("/tools/calculator/execute").json(&json!({"arguments": {"expression": "1"}}));
    let named = call().header("x-request-id", "r-1").header("traceparent", TRACE).send().await.unwrap();
    assert_eq!(named.headers()["x-request-id"], "r-1");
    let other = call().send().await.unwrap();
    let made = other.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!(made.len(), 36, "{made}");
    // Too long to be used: refused, with an id by which the refusal is found.
    let refused = call().header("x-request-id", "r".repeat(300)).send().await.unwrap();
    assert_eq!((refused.status(), refused.headers()["x-request-id"].len()), (StatusCode::BAD_REQUEST, 36));
    let mcp = app.post("/mcp").header("x-request-id", "m-1").header("accept", "application/json, text/event-stream");
    let mcp = mcp.json(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "calculator", "arguments": {"expression": "2"}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }}));
    let mcp = mcp.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "tools/call");
    let mcp = mcp.header("mcp-name", "calculator").send().await.unwrap();
    assert_eq!(mcp.headers()["x-request-id"], "m-1");
    let body = mcp.text().await.unwrap();
    let lines = lines(app.stop().await.path());
    let fields: Vec<_> = lines.iter().map(|line| (&line["client"], &line["request_id"], &line["trace_id"])).collect();
    let (client, none) = (&json!("127.0.0.1"), &Value::Null);
    assert_eq!(
        fields,
        [(client, &json!("r-1"), &json!(TRACE_ID)), (client, &json!(made), none), (client, &json!("m-1"), none)],
        "{body}"
    );
}

#[tokio::test]
async fn wrong_credentials_leave_a_line() {
    let app = TestApp::with("auth: {anonymous: never, api_keys: [{id: ada, key: key-of-ada}]}").await;
    let request = app.get("/tools/list").bearer_auth("wrong-key").header("x-request-id", "r-1");
    assert_eq!(request.header("traceparent", TRACE).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let directory = app.stop().await;
    let lines = lines(directory.path());
    let line = event(&lines, "unauthenticated");
    assert_eq!((&line["client"], &line["request_id"]), (&json!("127.0.0.1"), &json!("r-1")));
    assert_eq!((&line["trace_id"], &line["success"]), (&json!(TRACE_ID), &json!(false)));
    assert!(line["detail"].as_str().unwrap().contains("unknown API key"), "{line}");
    assert!(!lines.iter().any(|line| line.to_string().contains("wrong-key")));
}

#[tokio::test]
async fn registrations_and_removals_leave_lines_with_their_administrator() {
    let (upstream, host) = (TestApp::start().await, DocumentHost::start().await);
    let url = host.put("/api.json", document(&upstream.url));
    let app = TestApp::with(&format!("{ALLOWED}\n{ADMIN}")).await;
    let register = |body: Value| {
        let request = app.post("/tools/openapi/register").bearer_auth("key-of-ada").header("x-request-id", "r-1");
        answer(request.json(&body))
    };
    assert_eq!(register(json!({"name": "itself", "spec_url": url})).await.0, StatusCode::OK);
    assert_ne!(register(json!({"name": "nothing", "spec_inline": "{}"})).await.0, StatusCode::OK);
    let remove = app.client.delete(format!("{}/tools/openapi/itself", app.url)).bearer_auth("key-of-ada");
    assert_eq!(remove.send().await.unwrap().status(), StatusCode::OK);
    let lines = lines(app.stop().await.path());
    let told: Vec<_> =
        lines.iter().map(|line| (line["event"].as_str().unwrap(), &line["subject"], &line["success"])).collect();
    let [itself, nothing] = [json!("itself"), json!("nothing")];
    assert_eq!(
        told,
        [
            ("collection_registered", &itself, &json!(true)),
            ("collection_registered", &nothing, &json!(false)),
            ("collection_removed", &itself, &json!(true))
        ]
    );
    assert_eq!((&lines[0]["caller"], &lines[0]["client"]), (&json!("ada"), &json!("127.0.0.1")));
    assert_eq!(lines[0]["request_id"], "r-1");
    assert!(!lines[1]["detail"].as_str().unwrap().is_empty(), "{}", lines[1]);
}

#[tokio::test]
async fn reloads_leave_lines_also_where_they_are_refused() {
    let app = TestApp::start().await;
    app.gateway.reload(config(&app.directory, "limits: {max_concurrent: 7}")).await;
    app.gateway.refuse_reload("sekisho.yaml:1: no such key");
    let lines = lines(app.stop().await.path());
    let told: Vec<_> = lines.iter().map(|line| (line["event"].as_str().unwrap(), &line["success"])).collect();
    assert_eq!(told, [("configuration_reloaded", &json!(true)), ("configuration_reloaded", &json!(false))]);
    assert_eq!(lines[1]["detail"], "sekisho.yaml:1: no such key");
}

#[tokio::test]
async fn the_arguments_of_a_tool_are_kept_where_the_configuration_says_so() {
    let app = TestApp::with("tools: {overrides: {calculator: {audit_arguments: full}}}").await;
    app.call("calculator", json!({"expression": "40+2"})).await;
    app.call("calculator", json!({"expression": "1", "no_such": "argument"})).await;
    app.call("calculator", json!({"expression": "1+".repeat(10_000)})).await;
    app.call("echo", json!({"text": "hunter2"})).await;
    let lines = lines(app.stop().await.path());
    assert_eq!(lines[0]["arguments"], json!({"expression": "40+2"}));
    assert_eq!((&lines[1]["arguments"]["no_such"], &lines[1]["status"]), (&json!("argument"), &json!("refused")));
    assert_eq!((&lines[2]["arguments"], &lines[2]["arguments_bytes"]), (&Value::Null, &json!(20_017)));
    assert!(lines[3].get("arguments").is_none() && !lines[3].to_string().contains("hunter2"), "{}", lines[3]);
}

fn run(directory: &TempDir, arguments: &[&str]) -> Output {
    sekisho(directory).args(arguments).output().unwrap()
}

/// The tools of the lines that are found.
fn found(directory: &TempDir, options: &[&str]) -> Vec<String> {
    let searched = run(directory, &[&["--json", "audit", "search"], options].concat());
    assert_eq!(searched.status.code(), Some(0), "{}", text(&searched));
    let lines = String::from_utf8(searched.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| line["tool"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn lines_are_found_by_what_they_say_and_exported_as_they_are() {
    let directory = TempDir::new().unwrap();
    run(&directory, &["call", "calculator", r#"{"expression": "1"}"#, "--as", "ann"]);
    run(&directory, &["call", "calculator", "{}", "--as", "bob"]);
    run(&directory, &["call", "no_such_tool"]);
    assert_eq!(found(&directory, &[]), ["calculator", "calculator", "no_such_tool"]);
    assert_eq!(found(&directory, &["--tool", "calculator"]).len(), 2);
    assert_eq!(found(&directory, &["--caller", "bob"]), ["calculator"]);
    assert_eq!(found(&directory, &["--code", "unknown_tool"]), ["no_such_tool"]);
    assert_eq!(found(&directory, &["--code", "unknown_tool", "--caller", "bob"]).len(), 0);
    assert_eq!(found(&directory, &["--since", "2020-01-01"]).len(), 3);
    assert_eq!(found(&directory, &["--until", "2020-01-01T12:00:00Z"]).len(), 0);
    let trail = std::fs::read_to_string(directory.path().join("state/audit.jsonl")).unwrap();
    let first: Value = serde_json::from_str(trail.lines().next().unwrap()).unwrap();
    assert_eq!(found(&directory, &["--call-id", first["call_id"].as_str().unwrap()]), ["calculator"]);
    let shown = text(&run(&directory, &["audit", "search", "--code", "unknown_tool"]));
    assert!(shown.contains("refused") && shown.contains("no_such_tool"), "{shown}");

    let exported = run(&directory, &["audit", "export"]);
    assert_eq!(String::from_utf8(exported.stdout).unwrap(), trail);
    assert_eq!(run(&directory, &["audit", "export", "--since", "yesterday"]).status.code(), Some(2));
    let nowhere = run(&directory, &["audit", "search", "--file", "nowhere.jsonl"]);
    assert_eq!(nowhere.status.code(), Some(1), "{}", text(&nowhere));
    let nothing = run(&directory, &["audit", "search", "--event", "key_created"]);
    assert_eq!((nothing.status.code(), text(&nothing).trim()), (Some(0), "no line of the trail fits"));
}

#[tokio::test]
async fn requests_without_a_valid_key_are_found_by_their_event_and_by_their_code() {
    let app = TestApp::with("auth: {api_keys: [{id: ann, key: ann-03d7e58bc19f4a26}]}").await;
    let refused = answer(app.get("/tools/list").bearer_auth("wrong")).await;
    assert_eq!(refused.0, StatusCode::UNAUTHORIZED, "{}", refused.1);
    let directory = app.stop().await;
    for option in ["--event", "--code"] {
        let shown = text(&run(&directory, &["audit", "search", option, "unauthenticated"]));
        assert!(shown.contains("refused") && shown.lines().count() == 1, "{option}: {shown}");
    }
}

#[tokio::test]
async fn a_registration_whose_administrator_disconnects_is_finished_and_has_its_line() {
    let app = TestApp::with(&format!("{ALLOWED}\n{ADMIN}")).await;
    let host = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api.json", host.local_addr().unwrap());
    let body = json!({"name": "slow", "spec_url": url});
    let request = app.post("/tools/openapi/register").bearer_auth("key-of-ada").json(&body);
    let administrator = tokio::spawn(request.send());
    let (mut fetching, _) = host.accept().await.unwrap();
    let mut head = [0; 1024];
    assert!(fetching.read(&mut head).await.unwrap() > 0);
    administrator.abort();
    assert!(administrator.await.unwrap_err().is_cancelled());
    let document = document(&app.url).to_string();
    let length = document.len();
    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{document}");
    fetching.write_all(reply.as_bytes()).await.unwrap();
    let lines = lines(app.stop().await.path());
    let line = event(&lines, "collection_registered");
    assert_eq!((&line["subject"], &line["success"]), (&json!("slow"), &json!(true)));
}
