//! The call that is judged is the call that is sent: rules, approvers, keys and the audit trail see what goes out, and an approval
//! holds for nothing else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::app::{TestApp, answer, code, config};
use crate::approvals::KEYS;
use crate::audit_events::lines;
use crate::mcp::OLDER;
use crate::mcp::client::McpClient;
use crate::policy::with_policy_and;
use crate::slack::slack;

const ALLOWED: &str =
    "outbound: {allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1], mcp_allowed_domains: [127.0.0.1]}";

/// An API that keeps the requests that it gets: method and path, and the body.
#[derive(Clone, Default)]
struct Api {
    url: String,
    requests: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Api {
    async fn start() -> Self {
        async fn keep(State(api): State<Api>, method: Method, uri: Uri, Json(body): Json<Value>) -> Json<Value> {
            api.requests.lock().unwrap().push((format!("{method} {uri}"), body));
            Json(json!({"done": true}))
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = Self { url: format!("http://{}", listener.local_addr().unwrap()), ..Self::default() };
        let router = Router::new().fallback(keep).with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        api
    }

    fn requests(&self) -> Vec<(String, Value)> {
        self.requests.lock().unwrap().clone()
    }
}

/// A document with one operation, `pay`.
fn document(server: &str, path: &str) -> String {
    let body = json!({
        "type": "object", "required": ["account_id"],
        "properties": {"account_id": {"type": "string"}, "amount": {"type": "integer"}},
    });
    let pay = json!({
        "operationId": "pay",
        "requestBody": {"required": true, "content": {"application/json": {"schema": body}}},
        "responses": {"200": {"description": "done"}},
    });
    let mut paths = json!({});
    paths[path] = json!({"post": pay});
    let info = json!({"title": "Bank", "version": "1"});
    json!({"openapi": "3.1.0", "info": info, "servers": [{"url": server}], "paths": paths}).to_string()
}

/// The collection `bank` with the document in this folder.
fn bank(directory: &TempDir) -> String {
    let file = directory.path().join("bank.json");
    format!(
        "{KEYS}{ALLOWED}
openapi:
  collections: {{bank: {{spec_file: '{}', vendor_adapter: vendor}}}}
  adapters: {{vendor: {{keys: {{sum: amount}}, inject: {{account_id: account}}}}}}
tools: {{overrides: {{bank__pay: {{approval: always, audit_arguments: full}}}}}}",
        file.display()
    )
}

fn pay(app: &TestApp, arguments: &Value, account: Option<&str>) -> reqwest::RequestBuilder {
    let mut body = json!({"tool_name": "bank__pay", "parameters": arguments});
    if let Some(account) = account {
        body["session_context"] = json!({"prompt_params": {"account": account}});
    }
    app.post("/tools/execute").bearer_auth("key-of-ann").json(&body)
}

/// The id of the approval that the call needs.
async fn asked(request: reqwest::RequestBuilder) -> String {
    let (status, reply) = answer(request).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "approval_required"), "{reply}");
    reply["error_info"]["approval"]["id"].as_str().unwrap().to_owned()
}

async fn approve(app: &TestApp, id: &str, body: Value) {
    let request = app.post(&format!("/approvals/{id}/approve")).bearer_auth("key-of-boss").json(&body);
    let (status, approved) = answer(request).await;
    assert_eq!((status, &approved["status"]), (StatusCode::OK, &json!("approved")), "{approved}");
}

/// A value of the caller's session that is sent is judged like an argument.
#[tokio::test]
async fn what_the_session_adds_is_seen_by_rules_approvers_and_the_trail() {
    let api = Api::start().await;
    let documents = TempDir::new().unwrap();
    std::fs::write(documents.path().join("bank.json"), document(&api.url, "/pay")).unwrap();
    let rules = "package tools
deny[\"not this account\"] { input.arguments.account_id == \"EVIL\" }
deny[\"not so much\"] { input.sent.arguments.amount > 100 }
deny[\"not there\"] { input.sent.address != \"SERVER/pay\" }
deny[\"not so\"] { input.sent.method != \"POST\" }
"
    .replace("SERVER", &api.url);
    let app = with_policy_and(&rules, &bank(&documents)).await;
    for (arguments, account) in [
        (json!({"account_id": "EVIL"}), None),
        (json!({"account_id": "EVIL"}), Some("EVIL")),
        (json!({"account_id": "good"}), Some("EVIL")),
        (json!({}), Some("EVIL")),
        (json!({"account_id": "good", "sum": 101}), None),
    ] {
        let (status, reply) = answer(pay(&app, &arguments, account)).await;
        assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "{arguments} {account:?}: {reply}");
    }
    // A value that does not fit the schema is no way around the rule, either.
    let context = json!({"prompt_params": {"account": ["EVIL"]}});
    let body = json!({"tool_name": "bank__pay", "parameters": {}, "session_context": context});
    let (_, reply) = answer(app.post("/tools/execute").bearer_auth("key-of-ann").json(&body)).await;
    assert_eq!(code(&reply), "invalid_arguments", "{reply}");

    let arguments = json!({"account_id": "good", "sum": 5});
    let id = asked(pay(&app, &arguments, Some("acme"))).await;
    let (_, shown) = answer(app.get(&format!("/approvals/{id}")).bearer_auth("key-of-boss")).await;
    assert_eq!(shown["arguments"], json!({"account_id": "acme", "sum": 5}), "{shown}");
    let sent = json!({"account_id": "acme", "amount": 5});
    let address = format!("{}/pay", api.url);
    let expected =
        json!({"method": "POST", "address": address, "coding": "application/json", "arguments": sent.clone()});
    assert_eq!(shown["sent"], expected, "{shown}");
    let (_, own) = answer(app.get(&format!("/approvals/{id}")).bearer_auth("key-of-ann")).await;
    assert_eq!(own.get("sent"), None, "{own}");
    approve(&app, &id, json!({})).await;
    for account in [None, Some("other")] {
        let (_, reply) = answer(pay(&app, &arguments, account).header("x-approval-id", &id)).await;
        assert_eq!(code(&reply), "approval_mismatch", "{account:?}: {reply}");
    }
    assert_eq!(api.requests(), []);
    let (status, reply) = answer(pay(&app, &arguments, Some("acme")).header("x-approval-id", &id)).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(api.requests(), [("POST /pay".to_owned(), sent.clone())]);
    let lines = lines(app.stop().await.path());
    let made = lines.iter().find(|line| line["tool"] == "bank__pay" && line["status"] == "success").unwrap();
    assert_eq!(made["arguments"], sent, "{made}");
    let refused: Vec<_> = lines.iter().filter(|line| line["code"] == "denied").map(|line| &line["arguments"]).collect();
    assert!(refused.iter().any(|arguments| arguments["account_id"] == "EVIL"), "{refused:?}");
    assert!(!refused.contains(&&json!({"account_id": "good"})), "{refused:?}");
}

/// Where a call goes is a part of what was approved, and of the request that a key is for.
#[tokio::test]
async fn an_approval_and_a_key_are_for_the_address_that_the_document_had() {
    let (api, other) = (Api::start().await, Api::start().await);
    let documents = TempDir::new().unwrap();
    let write = |text: String| std::fs::write(documents.path().join("bank.json"), text).unwrap();
    write(document(&api.url, "/pay"));
    let yaml = bank(&documents);
    let app = TestApp::with(&yaml).await;
    let reload = async || app.gateway.reload(config(&app.directory, &yaml)).await;
    let below = format!("{}/v2", api.url);
    let changes = [document(&api.url, "/delete-all"), document(&other.url, "/pay"), document(&below, "/pay")];
    for (n, changed) in (1..).zip(changes) {
        let arguments = json!({"account_id": "acme", "sum": n});
        let once = asked(pay(&app, &arguments, None)).await;
        approve(&app, &once, json!({})).await;
        let amount = json!({"account_id": "acme", "sum": 10 + n});
        let minutes = asked(pay(&app, &amount, None)).await;
        approve(&app, &minutes, json!({"scope": "minutes", "minutes": 5})).await;
        write(changed);
        reload().await;
        let (_, reply) = answer(pay(&app, &arguments, None).header("x-approval-id", &once)).await;
        assert_eq!(code(&reply), "approval_mismatch", "{reply}");
        asked(pay(&app, &amount, None)).await;
        assert_eq!((api.requests(), other.requests()), (Vec::new(), Vec::new()));
        // As it was when the call was approved.
        write(document(&api.url, "/pay"));
        reload().await;
        for (arguments, id) in [(&arguments, Some(&once)), (&amount, None)] {
            let request =
                id.into_iter().fold(pay(&app, arguments, None), |request, id| request.header("x-approval-id", id));
            let (status, reply) = answer(request).await;
            assert_eq!(status, StatusCode::OK, "{reply}");
        }
        assert_eq!(api.requests.lock().unwrap().drain(..).count(), 2);
    }
    app.stop().await;

    let keyed = |app: &TestApp| pay(app, &json!({"account_id": "acme"}), None).header("idempotency-key", "k-1");
    let app = TestApp::with(&yaml.replace("approval: always, ", "")).await;
    for _ in 0..2 {
        assert_eq!(answer(keyed(&app)).await.0, StatusCode::OK);
    }
    write(document(&other.url, "/pay"));
    app.gateway.reload(config(&app.directory, &yaml.replace("approval: always, ", ""))).await;
    let (status, reply) = answer(keyed(&app)).await;
    assert_eq!((status, code(&reply)), (StatusCode::CONFLICT, "idempotency_conflict"), "{reply}");
    assert_eq!((api.requests().len(), other.requests().len()), (1, 0));
}

/// An MCP server with one tool, `pay`, which keeps the parameters of its calls.
#[derive(Clone)]
struct Server {
    url: String,
    description: Arc<Mutex<&'static str>>,
    calls: Arc<Mutex<Vec<Value>>>,
    /// All requests, with their headers.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let description = Arc::new(Mutex::new("Pays."));
        let server = Self { url, description, calls: Arc::default(), requests: Arc::default() };
        let router = Router::new().route("/mcp", post(Self::speak)).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        server
    }

    async fn speak(State(server): State<Self>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
        server.requests.lock().unwrap().push(format!("{headers:?} {message}"));
        let info = json!({"name": "far", "version": "1"});
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})
            }
            "tools/list" => {
                let description = *server.description.lock().unwrap();
                let schema = json!({"type": "object"});
                json!({"tools": [{"name": "pay", "description": description, "inputSchema": schema}]})
            }
            "tools/call" => {
                server.calls.lock().unwrap().push(message["params"].clone());
                json!({"content": [{"type": "text", "text": "paid"}]})
            }
            _ if message.get("id").is_none() => return axum::http::StatusCode::ACCEPTED.into_response(),
            _ => return axum::http::StatusCode::BAD_REQUEST.into_response(),
        };
        Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
    }

    /// The settings of a gateway that has it as `far`.
    fn settings(&self, more: &str) -> String {
        format!("{KEYS}{ALLOWED}\nmcp: {{servers: {{far: {{url: '{}'}}}}}}\n{more}", self.url)
    }
}

async fn offered(app: TestApp) -> TestApp {
    tokio::time::timeout(slack(Duration::from_secs(20)), app.gateway.mcp_servers().settled())
        .await
        .expect("it settles");
    app.gateway.tool_offer().offer_mcp_tools().await;
    app
}

#[tokio::test]
async fn an_approval_is_for_the_tool_that_its_server_described() {
    let server = Server::start().await;
    let yaml = server.settings("tools: {overrides: {far__pay: {approval: always}}}");
    let mut app = offered(TestApp::with(&yaml).await).await;
    let call = |app: &TestApp| {
        let request = app.post("/tools/far__pay/execute").bearer_auth("key-of-ann");
        request.json(&json!({"arguments": {"amount": 1}}))
    };
    let (first, second) = (asked(call(&app)).await, asked(call(&app)).await);
    assert_eq!(first, second, "equal requests are one");
    let (_, shown) = answer(app.get(&format!("/approvals/{first}")).bearer_auth("key-of-boss")).await;
    let address = format!("{} pay", server.url.trim_end_matches("/mcp"));
    assert_eq!(shown["sent"], json!({"method": "tools/call", "address": address, "coding": null}), "{shown}");
    approve(&app, &first, json!({})).await;
    *server.description.lock().unwrap() = "Pays, and deletes all others.";
    app = offered(TestApp::in_directory(app.stop().await, &yaml).await).await;
    let (_, reply) = answer(call(&app).header("x-approval-id", &first)).await;
    assert_eq!(code(&reply), "approval_mismatch", "{reply}");
    assert!(server.calls.lock().unwrap().is_empty());
    *server.description.lock().unwrap() = "Pays.";
    app = offered(TestApp::in_directory(app.stop().await, &yaml).await).await;
    let (status, reply) = answer(call(&app).header("x-approval-id", &first)).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(server.calls.lock().unwrap().len(), 1);
}

/// What a client adds beside the arguments is sent to a server, so rules see it, and an approval binds it.
#[tokio::test]
async fn the_metadata_of_a_client_are_judged_with_the_arguments() {
    let server = Server::start().await;
    let rules = "package tools
deny[\"not this tenant\"] { input.sent.meta[\"example.com/tenant\"] == \"EVIL\" }
require_approval[\"much\"] { input.arguments.amount > 10 }
";
    let app = offered(with_policy_and(rules, &server.settings("")).await).await;
    let client = McpClient::connect_as(&app, OLDER, Some("key-of-ann")).await.without_capabilities();
    let call = async |tenant: &str, amount: u32| {
        let meta = json!({"example.com/tenant": tenant, "claudecode/toolUseId": format!("toolu_{amount}{tenant}")});
        let params = json!({"name": "far__pay", "arguments": {"amount": amount}, "_meta": meta});
        client.reply("tools/call", params).await["result"].clone()
    };
    let refused = call("EVIL", 1).await;
    assert_eq!(refused["structuredContent"]["error_info"]["code"], "denied", "{refused}");
    assert_eq!(call("acme", 1).await["content"][0]["text"], "paid");
    let needs = call("acme", 11).await;
    assert_eq!(needs["structuredContent"]["error_info"]["code"], "approval_required", "{needs}");
    let (_, pending) = answer(app.get("/approvals?status=pending").bearer_auth("key-of-boss")).await;
    let id = pending["approvals"][0]["id"].as_str().unwrap().to_owned();
    let (_, shown) = answer(app.get(&format!("/approvals/{id}")).bearer_auth("key-of-boss")).await;
    assert_eq!(shown["sent"]["meta"], json!({"example.com/tenant": "acme"}), "{shown}");
    approve(&app, &id, json!({"scope": "minutes", "minutes": 5})).await;
    let other = call("other", 11).await;
    assert_eq!(other["structuredContent"]["error_info"]["code"], "approval_required", "{other}");
    assert_eq!(call("acme", 11).await["content"][0]["text"], "paid");
    let calls = server.calls.lock().unwrap();
    let sent = |call: &Value| (call["arguments"]["amount"].clone(), call["_meta"]["example.com/tenant"].clone());
    let expected = [(json!(1), json!("acme")), (json!(11), json!("acme"))];
    assert_eq!(calls.iter().map(sent).collect::<Vec<_>>(), expected);
    assert!(calls.iter().all(|call| call["_meta"].get("claudecode/toolUseId").is_none()), "{calls:?}");
}

/// Whatever else a caller writes into a request, a server gets nothing of it.
#[tokio::test]
async fn a_server_gets_no_field_of_a_request_that_nobody_judged() {
    const UNJUDGED: &str = "unjudged-7f3a";
    let server = Server::start().await;
    let app = offered(TestApp::with(&server.settings("")).await).await;
    let plain = json!({"tool_name": "far__pay", "parameters": {"amount": 1}});
    let request = |body: &Value| app.post("/tools/execute").bearer_auth("key-of-ann").json(body);
    let headers =
        ["x-agent-id", "x-task-id", "x-request-id", "idempotency-key", "x-openwebui-chat-id", "user-agent", "x-other"];
    let with_headers = headers.map(|header| (header, request(&plain).header(header, UNJUDGED)));
    let contexts = [
        ("user_id", json!(UNJUDGED)),
        ("request_id", json!(UNJUDGED)),
        ("agent_id", json!(UNJUDGED)),
        ("task_id", json!(UNJUDGED)),
        ("prompt_params", json!({"amount": UNJUDGED, "other": UNJUDGED})),
        ("tool_parameters", json!({"tokens": {"other": UNJUDGED}})),
    ];
    let count = headers.len() + contexts.len();
    let with_context = contexts.map(|(field, value)| {
        let mut body = plain.clone();
        body["session_context"][field] = value;
        (field, request(&body))
    });
    for (field, request) in with_headers.into_iter().chain(with_context) {
        let (status, reply) = answer(request).await;
        assert_eq!(status, StatusCode::OK, "{field}: {reply}");
    }
    let calls = server.calls.lock().unwrap();
    assert_eq!(calls.len(), count);
    assert!(calls.iter().all(|call| call["arguments"] == json!({"amount": 1})), "{calls:?}");
    let requests = server.requests.lock().unwrap();
    assert!(requests.iter().all(|request| !request.contains(UNJUDGED)), "{requests:#?}");
}
