//! All that the gateway sends to, in one server, which keeps the bytes of each request: an API, MCP servers of two revisions, a
//! function, a page, a search engine, an external policy and a model.

use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::charges::served;
use crate::mcp::NEWER;

#[derive(Clone, Default)]
pub(super) struct Upstreams {
    pub(super) url: String,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    requests: Vec<KeptRequest>,
    /// What the external policy was asked: its `input`.
    judged: Vec<Value>,
    /// The tool that the model calls, and its arguments.
    wanted: (String, Value),
    /// Results of tools that the model got.
    results: Vec<Value>,
    /// What a Python function has passed on of what it sees.
    seen: Vec<String>,
}

#[derive(Clone)]
pub(super) struct KeptRequest {
    pub(super) path: String,
    /// Of MCP; of others `None`.
    pub(super) method: Option<String>,
    pub(super) bytes: String,
}

/// A plan with one step, and long enough for the result of a step and an answer.
const PLAN: &str =
    r#"{"steps": [{"instruction": "Call it.", "expected": "a word"}], "success_criteria": "It has been called once."}"#;

impl Upstreams {
    pub(super) async fn start() -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
        let router = Router::new()
            .route("/v1/data/tools", post(judge))
            .route("/v1/chat/completions", post(think))
            .route("/sessions/mcp", post(speak))
            .route("/stateless/mcp", post(speak))
            .fallback(keep)
            .with_state(Arc::clone(&kept));
        Self { url: served(router).await, kept }
    }

    /// From now on the model calls this tool; what was kept is gone.
    pub(super) fn begin(&self, tool: &str, arguments: &Value) {
        *self.kept.lock().unwrap() = Kept { wanted: (tool.to_owned(), arguments.clone()), ..Kept::default() };
    }

    pub(super) fn see(&self, what: String) {
        self.kept.lock().unwrap().seen.push(what);
    }

    pub(super) fn seen(&self) -> Vec<String> {
        self.kept.lock().unwrap().seen.clone()
    }

    pub(super) fn requests_to(&self, path: &str) -> Vec<KeptRequest> {
        let kept = self.kept.lock().unwrap();
        kept.requests.iter().filter(|request| request.path.starts_with(path)).cloned().collect()
    }

    /// What the policy was asked about a tool.
    pub(super) fn judged(&self, tool: &str) -> Vec<Value> {
        let kept = self.kept.lock().unwrap();
        kept.judged.iter().filter(|input| input["tool"] == tool).cloned().collect()
    }

    pub(super) fn last_result(&self) -> Value {
        self.kept.lock().unwrap().results.last().cloned().unwrap_or_default()
    }
}

type Shared = State<Arc<Mutex<Kept>>>;

/// Line by line: method and address, the headers by their names, an empty line, the body.
fn bytes_of(method: &Method, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> String {
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    lines.sort();
    format!("{method} {uri}\n{}\n{}", lines.concat(), String::from_utf8_lossy(body))
}

async fn keep(State(kept): Shared, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    if uri.path().ends_with("/mcp") {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let bytes = bytes_of(&method, &uri, &headers, &body);
    let request = KeptRequest { path: uri.path().to_owned(), method: None, bytes };
    kept.lock().unwrap().requests.push(request);
    match method {
        Method::GET if uri.path() == "/search" => Json(json!({"results": []})).into_response(),
        Method::GET => ([("content-type", "text/plain")], "A page.").into_response(),
        _ => Json(json!({"done": true})).into_response(),
    }
}

async fn judge(State(kept): Shared, Json(mut body): Json<Value>) -> Json<Value> {
    kept.lock().unwrap().judged.push(body["input"].take());
    Json(json!({"result": {"deny": []}}))
}

/// An MCP server of the revision without sessions, or of 2025-06-18, as its path says.
async fn speak(State(kept): Shared, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let asked = message["method"].as_str().unwrap_or_default().to_owned();
    let bytes = bytes_of(&method, &uri, &headers, &body);
    let request = KeptRequest { path: uri.path().to_owned(), method: Some(asked.clone()), bytes };
    kept.lock().unwrap().requests.push(request);
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let (is_newer, info) = (uri.path().starts_with("/stateless"), json!({"name": "far", "version": "1"}));
    let capabilities = json!({"tools": {}, "resources": {}, "prompts": {}, "completions": {}, "logging": {}});
    let mut result = match &*asked {
        "initialize" if !is_newer => {
            json!({"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
        }
        "server/discover" if is_newer => json!({
            "supportedVersions": [NEWER], "ttlMs": 0, "cacheScope": "private", "serverInfo": info,
            "capabilities": capabilities,
        }),
        "tools/list" => {
            let tool = json!({"name": "note", "description": "Notes.", "inputSchema": {"type": "object"}});
            json!({"tools": [tool], "ttlMs": 0, "cacheScope": "private"})
        }
        "tools/call" => {
            let content = json!([{"type": "text", "text": "noted"}]);
            json!({"content": content, "structuredContent": {"noted": true}})
        }
        "resources/list" => {
            json!({"resources": [{"uri": "note://notes/base", "name": "base"}], "ttlMs": 0, "cacheScope": "private"})
        }
        "resources/templates/list" => json!({"resourceTemplates": [], "ttlMs": 0, "cacheScope": "private"}),
        "resources/read" => {
            let contents = json!([{"uri": "note://notes/base", "text": "noted"}]);
            json!({"contents": contents, "ttlMs": 0, "cacheScope": "private"})
        }
        "prompts/list" => {
            let ask = json!({"name": "ask", "arguments": [{"name": "about"}]});
            json!({"prompts": [ask], "ttlMs": 0, "cacheScope": "private"})
        }
        "prompts/get" => {
            let message = json!({"role": "user", "content": {"type": "text", "text": "Ask."}});
            json!({"messages": [message]})
        }
        "completion/complete" => json!({"completion": {"values": ["base"]}}),
        "ping" | "logging/setLevel" => json!({}),
        other => {
            let error = json!({"code": -32601, "message": other});
            return Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response();
        }
    };
    if is_newer {
        result["resultType"] = json!("complete");
    }
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

/// A model that calls the wanted tool once, and then says what is a plan, too.
async fn think(State(kept): Shared, Json(body): Json<Value>) -> Response {
    let mut kept = kept.lock().unwrap();
    let messages = body["messages"].as_array().unwrap();
    let result = messages.iter().rev().find(|message| message["role"] == "tool");
    kept.results.extend(result.map(|result| result["content"].clone()));
    let (tool, arguments) = &kept.wanted;
    let is_offered = body["tools"]
        .as_array()
        .is_some_and(|tools| tools.iter().any(|offered| offered["function"]["name"] == tool.as_str()));
    let (delta, reason) = if is_offered && result.is_none() {
        let function = json!({"name": tool, "arguments": arguments.to_string()});
        let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
        (json!({"tool_calls": [call]}), "tool_calls")
    } else {
        (json!({"content": PLAN}), "stop")
    };
    let chunks = [
        json!({"choices": [{"index": 0, "delta": delta}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    ];
    let body = chunks.map(|chunk| format!("data: {chunk}\n\n")).concat() + "data: [DONE]\n\n";
    ([("content-type", "text/event-stream")], body).into_response()
}
