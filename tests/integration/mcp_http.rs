//! MCP servers over HTTP: sessions, credentials, isolation of callers, and registration by HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::app::{TestApp, answer, code, degraded};
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;

/// What an upstream server has seen, and how it behaves.
#[derive(Default)]
struct Seen {
    /// Session → who opened it (`X-User`).
    sessions: BTreeMap<String, String>,
    opened: usize,
    /// Calls by a user other than the session's own.
    mixed: usize,
    /// Tokens that are no longer taken.
    spent: BTreeSet<String>,
    tokens: usize,
    asks_for_token: bool,
    /// Number of requests still to be refused with 401, from any caller.
    refusals: usize,
    /// The message with which a request of an unknown session is refused with 400; without it, with 404.
    unknown_session: Option<&'static str>,
    /// Calls that wait until they are released.
    waiting: usize,
    let_go: Arc<Notify>,
}

type Shared = Arc<Mutex<Seen>>;

pub(crate) struct Upstream {
    pub(crate) url: String,
    seen: Shared,
    pub(crate) listening: JoinHandle<()>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let seen = Shared::default();
        let routes = Router::new()
            .route("/mcp", post(speak).get(no_stream).delete(no_stream))
            .route("/token", post(token))
            .route("/function", post(function))
            .with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let listening = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, seen, listening }
    }

    fn yaml(&self, more: &str) -> String {
        format!(
            "outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}}\n\
             mcp: {{servers: {{far: {{url: '{}/mcp', {more}}}}}}}",
            self.url
        )
    }
}

async fn no_stream() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

async fn token(State(seen): State<Shared>) -> Json<Value> {
    let mut seen = seen.lock().unwrap();
    seen.tokens += 1;
    Json(json!({"access_token": format!("t{}", seen.tokens), "token_type": "Bearer", "expires_in": 3600}))
}

async fn function(Json(body): Json<Value>) -> Json<Value> {
    Json(json!({"got": body}))
}

/// A server of 2025-06-18 that answers with JSON.
async fn speak(State(seen): State<Shared>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    if message["params"]["arguments"]["wait"] == true {
        let let_go = {
            let mut seen = seen.lock().unwrap();
            seen.waiting += 1;
            Arc::clone(&seen.let_go).notified_owned()
        };
        let_go.await;
    }
    let mut seen = seen.lock().unwrap();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let bearer = header("authorization").replace("Bearer ", "");
    if seen.asks_for_token && (bearer.is_empty() || seen.spent.contains(&bearer)) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    if seen.refusals > 0 {
        seen.refusals -= 1;
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let (method, user) = (message["method"].as_str().unwrap_or_default(), header("x-user"));
    if method == "server/discover" {
        return (StatusCode::BAD_REQUEST, "what?").into_response();
    }
    if method == "initialize" {
        seen.opened += 1;
        let session = format!("s{}", seen.opened);
        seen.sessions.insert(session.clone(), user);
        let result = json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"}
        });
        let body = Json(json!({"jsonrpc": "2.0", "id": id, "result": result}));
        return ([("mcp-session-id", session)], body).into_response();
    }
    match seen.sessions.get(&header("mcp-session-id")) {
        None => return unknown_session(id, seen.unknown_session),
        Some(owner) if *owner != user => seen.mixed += 1,
        Some(_) => {}
    }
    let result = match method {
        "tools/list" => json!({"tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]}),
        _ => json!({"content": [{"type": "text", "text": user}], "structuredContent": {"user": user, "token": bearer}}),
    };
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

fn unknown_session(id: &Value, message: Option<&str>) -> Response {
    let Some(message) = message else { return StatusCode::NOT_FOUND.into_response() };
    let error = json!({"code": -32000, "message": message});
    (StatusCode::BAD_REQUEST, Json(json!({"jsonrpc": "2.0", "id": id, "error": error}))).into_response()
}

async fn started(yaml: &str) -> TestApp {
    let app = TestApp::with(yaml).await;
    tokio::time::timeout(Duration::from_secs(20), app.gateway.mcp_servers().settled()).await.expect("it settles");
    app.gateway.tool_offer().offer_mcp_tools().await;
    app
}

/// Nobody calls it, so that only the gateway itself can notice.
#[tokio::test]
async fn a_server_that_is_gone_is_reported_within_30_seconds() {
    let upstream = Upstream::start().await;
    let app = started(&upstream.yaml("")).await;
    assert_eq!(degraded(&app).await, Value::Null);
    upstream.listening.abort();
    let gone = async {
        while degraded(&app).await["mcp:far"].is_null() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("it is reported");
}

#[tokio::test]
async fn one_session_serves_all_calls_of_a_caller_and_a_lost_one_is_replaced_unnoticed() {
    let upstream = Upstream::start().await;
    let app = started(&upstream.yaml("")).await;
    for _ in 0..5 {
        let (_, reply) = app.call("far__whoami", json!({})).await;
        assert_eq!(reply["success"], true, "{reply}");
    }
    assert_eq!(upstream.seen.lock().unwrap().opened, 2, "the list's, and one for the caller: no handshake a call");
    upstream.seen.lock().unwrap().sessions.clear();
    let (_, reply) = app.call("far__whoami", json!({})).await;
    assert_eq!(reply["success"], true, "{reply}");
    assert_eq!(upstream.seen.lock().unwrap().opened, 3);
    // Calls that find out together replace it once.
    upstream.seen.lock().unwrap().sessions.clear();
    let calls = (0..8).map(|_| app.call("far__whoami", json!({})));
    for (_, reply) in futures_util::future::join_all(calls).await {
        assert_eq!(reply["success"], true, "{reply}");
    }
    assert_eq!(upstream.seen.lock().unwrap().opened, 4);
    app.stop().await;
}

#[tokio::test]
async fn a_server_that_refuses_its_former_sessions_with_400_is_called_in_a_new_one() {
    let upstream = Upstream::start().await;
    upstream.seen.lock().unwrap().unknown_session = Some("Bad Request: No valid session ID provided");
    let app = started(&upstream.yaml("")).await;
    for _ in 0..2 {
        let (_, reply) = app.call("far__whoami", json!({})).await;
        assert_eq!(reply["success"], true, "{reply}");
        // As after a restart.
        upstream.seen.lock().unwrap().sessions.clear();
    }
    app.stop().await;
}

#[tokio::test]
async fn a_reconnect_ends_the_sessions_of_callers() {
    let upstream = Upstream::start().await;
    // Nothing in it says that it is about the session.
    upstream.seen.lock().unwrap().unknown_session = Some("Bad Request");
    let app = started(&format!("{ADMIN}{}", upstream.yaml(""))).await;
    let call = async || answer(app.post("/tools/far__whoami/execute").json(&json!({})).bearer_auth("k")).await.1;
    assert_eq!(call().await["success"], true);
    upstream.seen.lock().unwrap().sessions.clear();
    let refused = call().await;
    assert_eq!(code(&refused), "tool_error", "{refused}");
    let (status, reply) = answer(app.post("/admin/servers/mcp/far/reconnect").bearer_auth("k")).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let reply = call().await;
    assert_eq!(reply["success"], true, "{reply}");
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_calls_of_a_server_hold_up_no_other_and_throw_no_doubt_on_it() {
    const SLOW: usize = 24;
    let upstream = Upstream::start().await;
    let more = "allow_networks: [127.0.0.0/8], max_connections_per_origin: 40";
    let settings = upstream.yaml("").replace("allow_networks: [127.0.0.0/8]", more);
    let app = Arc::new(started(&settings).await);
    let slow: Vec<_> = (0..SLOW)
        .map(|_| {
            let app = Arc::clone(&app);
            tokio::spawn(async move { app.call("far__whoami", json!({"wait": true})).await })
        })
        .collect();
    let waiting = async {
        while upstream.seen.lock().unwrap().waiting < SLOW {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("all of them reach the server");
    // A disconnect raises the question whether the server is still alive.
    slow.first().unwrap().abort();
    let quick = app.call("far__whoami", json!({}));
    let (_, reply) = tokio::time::timeout(Duration::from_secs(5), quick).await.expect("it waits for none of them");
    assert_eq!(reply["success"], true, "{reply}");
    upstream.seen.lock().unwrap().let_go.notify_waiters();
    for call in slow.into_iter().skip(1) {
        let (_, reply) = call.await.unwrap();
        assert_eq!(reply["success"], true, "{reply}");
    }
    assert_eq!(upstream.seen.lock().unwrap().opened, 2, "the caller's session was never in doubt");
}

#[tokio::test]
async fn a_host_that_is_not_listed_gets_no_request() {
    let upstream = Upstream::start().await;
    let app = started(&upstream.yaml("").replace("mcp_allowed_domains: [127.0.0.1]", "mcp_allowed_domains: []")).await;
    let (_, ready) = answer(app.get("/readyz")).await;
    assert!(ready["degraded"]["mcp:far"].as_str().unwrap().contains("mcp_allowed_domains"), "{ready}");
    assert_eq!(upstream.seen.lock().unwrap().opened, 0);
    app.stop().await;
    // Listed, but not at a public address.
    let app = started(&upstream.yaml("").replace("allow_networks: [127.0.0.0/8]", "allow_networks: []")).await;
    let (_, ready) = answer(app.get("/readyz")).await;
    assert!(ready["degraded"]["mcp:far"].as_str().unwrap().contains("not a public address"), "{ready}");
    assert_eq!(upstream.seen.lock().unwrap().opened, 0);
    app.stop().await;
}

#[tokio::test]
async fn a_token_is_fetched_once_and_anew_when_it_is_refused() {
    let upstream = Upstream::start().await;
    upstream.seen.lock().unwrap().asks_for_token = true;
    let oauth = format!("oauth: {{token_url: '{}/token', client_id: me, client_secret: s}}", upstream.url);
    let app = started(&upstream.yaml(&oauth)).await;
    for _ in 0..3 {
        let (_, reply) = app.call("far__whoami", json!({})).await;
        assert_eq!(reply["output"]["token"], "t1", "{reply}");
    }
    upstream.seen.lock().unwrap().spent.insert("t1".into());
    let (_, reply) = app.call("far__whoami", json!({})).await;
    assert_eq!(reply["output"]["token"], "t2", "{reply}");
    app.stop().await;
}

/// A69.
#[tokio::test]
async fn a_server_is_asked_without_a_token_where_none_can_be_had() {
    let upstream = Upstream::start().await;
    let oauth = format!("oauth: {{token_url: '{}/nowhere', client_id: me, client_secret: s}}", upstream.url);
    let app = started(&upstream.yaml(&oauth)).await;
    let (_, reply) = app.call("far__whoami", json!({})).await;
    assert_eq!((&reply["success"], &reply["output"]["token"]), (&json!(true), &json!("")), "{reply}");
    app.stop().await;
}

#[tokio::test]
async fn a_server_that_refuses_at_first_is_tried_again() {
    let upstream = Upstream::start().await;
    upstream.seen.lock().unwrap().refusals = 2;
    let app = started(&upstream.yaml("")).await;
    let (_, ready) = answer(app.get("/readyz")).await;
    assert!(ready["degraded"]["mcp:far"].as_str().unwrap().contains("401"), "{ready}");
    let fine = async {
        while app.call("far__whoami", json!({})).await.1["success"] != true {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), fine).await.expect("it is connected");
    // In the midst of things it is a refusal of that call, as any 4xx.
    upstream.seen.lock().unwrap().refusals = 1;
    let (_, reply) = app.call("far__whoami", json!({})).await;
    assert_eq!(code(&reply), "tool_error", "{reply}");
    assert!(reply["error"].as_str().unwrap().contains("401"), "{reply}");
    let (_, reply) = app.call("far__whoami", json!({})).await;
    assert_eq!(reply["success"], true, "{reply}");
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn isolated_callers_share_no_session() {
    let upstream = Upstream::start().await;
    let app = Arc::new(started(&upstream.yaml("headers_template: {X-User: '$${user}'}")).await);
    let call = async |user: &str| {
        let context = json!({"tool_parameters": {"tokens": {"user": user}}});
        let body = json!({"tool_name": "far__whoami", "parameters": {}, "session_context": context});
        answer(app.post("/tools/execute").json(&body)).await.1
    };
    for _ in 0..3 {
        let (one, other) = tokio::join!(call("ada"), call("bob"));
        assert_eq!((&one["output"]["user"], &other["output"]["user"]), (&json!("ada"), &json!("bob")), "{one} {other}");
    }
    let (_, reply) = app.call("far__whoami", json!({})).await;
    assert_eq!(code(&reply), "invalid_request", "without a token nobody is called: {reply}");
    let seen = upstream.seen.lock().unwrap();
    assert_eq!((seen.mixed, seen.opened), (0, 3), "the list's, and one for each of the two");
}

/// Two callers whose tokens for the server are the same.
const TWO_CALLERS: &str = "auth: {api_keys: [{id: ada, key: key-of-ada}, {id: bob, key: key-of-bob}]}\n";

#[tokio::test]
async fn callers_with_the_same_token_share_no_session_and_mcp_clients_send_theirs_in_a_header() {
    let upstream = Upstream::start().await;
    let app = started(&format!("{TWO_CALLERS}{}", upstream.yaml("headers_template: {X-User: '$${user}'}"))).await;
    let client = McpClient::connect_as(&app, NEWER, Some("key-of-ada")).await;
    let call = json!({"name": "far__whoami", "arguments": {}});
    for key in ["key-of-ada", "key-of-bob", "key-of-ada"] {
        let client = client.with_key(key).with_header("x-sekisho-tokens", "other=o, user=shared");
        let result = client.result("tools/call", call.clone(), "CallToolResult").await;
        assert_eq!(result["structuredContent"]["user"], "shared", "{result}");
    }
    assert_eq!(upstream.seen.lock().unwrap().opened, 3, "the list's, and one for each of the two");

    let result = client.result("tools/call", call.clone(), "CallToolResult").await;
    assert_eq!(result["structuredContent"]["error_info"]["code"], "invalid_request", "{result}");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("X-Sekisho-Tokens: user="), "{result}");
    let (status, reply) = client.with_header("x-sekisho-tokens", "hunter2").send("tools/call", call).await;
    assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, "invalid_request"), "{reply}");
    app.stop().await;
}

const ADMIN: &str = "auth: {api_keys: [{id: root, key: k, roles: [admin]}]}\n";

#[tokio::test]
async fn a_server_registered_over_http_is_there_after_a_restart() {
    let upstream = Upstream::start().await;
    let yaml = format!(
        "{ADMIN}outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}}\n\
         mcp: {{secrets: {{user: ada}}}}"
    );
    let app = started(&yaml).await;
    let registration = json!({
        "name": "near", "url": format!("{}/mcp", upstream.url), "headers": {"X-User": "${user}"},
    });
    let register = |body: &Value| app.post("/tools/mcp/register").json(body);
    let (status, reply) = answer(register(&registration)).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "{reply}");
    let as_admin = async |body: &Value| answer(register(body).bearer_auth("k")).await;

    let (status, reply) = as_admin(&registration).await;
    assert_eq!((status, &reply["tool_name"]), (StatusCode::OK, &json!("near__whoami")), "{reply}");
    let function = json!({"name": "old_one", "url": format!("{}/function", upstream.url), "func_name": "f"});
    let (_, reply) = as_admin(&function).await;
    assert_eq!(reply["tools"], json!(["old_one"]), "{reply}");
    let (_, reply) = app.call("old_one", json!({"a": 1})).await;
    assert_eq!(reply["output"], json!({"got": {"function": "f", "args": {"a": 1}}}), "{reply}");

    for (wrong, expected) in [
        (json!({"name": "x", "url": format!("{}/mcp", upstream.url), "command": "sh"}), "invalid_request"),
        (json!({"name": "x", "url": "http://mcp.example.com/mcp"}), "upstream_error"),
        (json!({"name": "x", "url": format!("{}/mcp", upstream.url), "headers": {"A": "b"}}), "invalid_request"),
        (json!({"name": "a b", "url": format!("{}/mcp", upstream.url)}), "invalid_request"),
        (json!({"name": "near", "url": format!("{}/nothing", upstream.url)}), "upstream_error"),
    ] {
        let (_, reply) = as_admin(&wrong).await;
        assert_eq!(code(&reply), expected, "{wrong}: {reply}");
    }
    let (_, reply) = app.call("near__whoami", json!({})).await;
    assert_eq!(reply["output"]["user"], "ada", "what was there before a refused registration goes on: {reply}");

    let app = TestApp::in_directory(app.stop().await, &yaml).await;
    app.gateway.mcp_servers().settled().await;
    app.gateway.tool_offer().offer_mcp_tools().await;
    let (_, reply) = app.call("near__whoami", json!({})).await;
    assert_eq!(reply["output"]["user"], "ada", "{reply}");
    let (_, reply) = app.call("old_one", json!({})).await;
    assert_eq!(reply["success"], true, "{reply}");
    app.stop().await;
}
