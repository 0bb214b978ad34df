//! An MCP server that stores what a session sends, as a program and over HTTP: no other session may find it. It
//! supports 2025-06-18, and with `BOTH` 2026-07-28 too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::io::{self, BufRead};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::mcp::NEWER;
use crate::moody::{running, say, started};

const TOOLS: [&str; 9] = ["note_set", "note_get", "whoami", "ask", "say", "steps", "touch", "hang", "cancelled"];

/// The settings of such a program, with a mark by which its processes are counted.
pub(crate) fn program(mark: &str, both: bool, more: &str) -> String {
    let environment = json!({"MOOD": mark, "BOTH": if both { "yes" } else { "" }});
    started("stateful::speak_mcp", &environment, more)
}

#[test]
#[ignore = "no test: what the tests of MCP sessions start as a program"]
fn speak_mcp() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let (out, mut reported) = unbounded_channel();
    let session = Session::new(std::process::id().to_string(), out.clone());
    let both = std::env::var("BOTH").is_ok_and(|both| !both.is_empty());
    tokio::spawn(async move {
        while let Some(message) = reported.recv().await {
            say(&message);
        }
    });
    if let Ok(wait) = std::env::var("START_MS") {
        std::thread::sleep(Duration::from_millis(wait.parse().unwrap()));
    }
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        tokio::spawn(Arc::clone(&session).hear(message, out.clone(), both));
    }
    std::process::exit(0);
}

/// The same over HTTP.
pub(crate) struct HttpServer {
    url: String,
    pub(crate) seen: Arc<Seen>,
}

#[derive(Default)]
pub(crate) struct Seen {
    both: bool,
    sessions: Mutex<BTreeMap<String, Arc<Session>>>,
    /// Streams that are listened to, each once.
    standing: Mutex<HashMap<String, UnboundedReceiver<Value>>>,
    pub(crate) begun: AtomicUsize,
    pub(crate) ended: AtomicUsize,
    /// Discoveries, of the newer revision.
    pub(crate) discovered: AtomicUsize,
}

impl HttpServer {
    pub(crate) async fn start(both: bool) -> Self {
        let seen = Arc::new(Seen { both, ..Seen::default() });
        // What requests without a session share.
        seen.open("".to_owned());
        let routes = Router::new().route("/mcp", post(speak).get(listen).delete(end)).with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, seen }
    }

    pub(crate) fn settings(&self, more: &str) -> String {
        format!("{{url: '{}', {more}}}", self.url)
    }

    /// Open sessions.
    pub(crate) fn open(&self) -> usize {
        self.seen.begun.load(Ordering::SeqCst) - self.seen.ended.load(Ordering::SeqCst)
    }
}

/// What `kind` of server it is, for tests of both.
pub(crate) enum Server {
    Program(&'static str),
    Http(HttpServer),
}

impl Server {
    pub(crate) async fn both_kinds(mark: &'static str) -> [Self; 2] {
        [Self::Program(mark), Self::Http(HttpServer::start(false).await)]
    }

    pub(crate) fn settings(&self, more: &str) -> String {
        match self {
            Self::Program(mark) => program(mark, false, more),
            Self::Http(server) => server.settings(more),
        }
    }

    /// Sessions of callers that it has: that over which its lists are read is none.
    pub(crate) fn sessions(&self) -> usize {
        match self {
            Self::Program(mark) => running(mark).saturating_sub(1),
            Self::Http(server) => server.open().saturating_sub(1),
        }
    }
}

impl Seen {
    fn open(&self, id: String) {
        let (out, reported) = unbounded_channel();
        self.standing.lock().unwrap().insert(id.clone(), reported);
        self.sessions.lock().unwrap().insert(id.clone(), Session::new(id, out));
    }
}

async fn speak(State(seen): State<Arc<Seen>>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    let named = headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned()).unwrap_or_default();
    if message["method"] == "initialize" {
        let id = format!("s{}", seen.begun.fetch_add(1, Ordering::SeqCst));
        seen.open(id.clone());
        let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": initialized()});
        return ([("mcp-session-id", id)], Json(body)).into_response();
    }
    if message["method"] == "server/discover" {
        if !seen.both {
            return (StatusCode::BAD_REQUEST, "what?").into_response();
        }
        seen.discovered.fetch_add(1, Ordering::SeqCst);
    }
    let session = seen.sessions.lock().unwrap().get(&named).cloned();
    let Some(session) = session else { return StatusCode::NOT_FOUND.into_response() };
    let (out, mut reported) = unbounded_channel();
    let is_request = message.get("id").is_some() && message.get("method").is_some();
    tokio::spawn(session.hear(message, out, seen.both));
    if !is_request {
        return StatusCode::ACCEPTED.into_response();
    }
    let events = stream::poll_fn(move |context| reported.poll_recv(context).map(|next| next.as_ref().map(event)));
    Sse::new(events).into_response()
}

async fn listen(State(seen): State<Arc<Seen>>, headers: HeaderMap) -> Response {
    let id = headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned()).unwrap_or_default();
    let reported = seen.standing.lock().unwrap().remove(&id);
    match reported {
        Some(mut reported) if !id.is_empty() => {
            let events =
                stream::poll_fn(move |context| reported.poll_recv(context).map(|next| next.as_ref().map(event)));
            Sse::new(events).into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

async fn end(State(seen): State<Arc<Seen>>, headers: HeaderMap) -> StatusCode {
    let id = headers["mcp-session-id"].to_str().unwrap();
    if seen.sessions.lock().unwrap().remove(id).is_some() {
        seen.ended.fetch_add(1, Ordering::SeqCst);
    }
    StatusCode::NO_CONTENT
}

fn event(message: &Value) -> Result<Event, Infallible> {
    Ok(Event::default().data(message.to_string()))
}

fn initialized() -> Value {
    json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "resources": {"subscribe": true}, "logging": {}},
        "serverInfo": {"name": "stateful", "version": "1"},
    })
}

/// The data of one session.
struct Session {
    id: String,
    note: Mutex<Option<String>>,
    watched: Mutex<BTreeSet<String>>,
    questions: Mutex<HashMap<String, oneshot::Sender<Value>>>,
    asked: AtomicUsize,
    cancelled: AtomicUsize,
    /// For what belongs to no request.
    out: UnboundedSender<Value>,
}

impl Session {
    fn new(id: String, out: UnboundedSender<Value>) -> Arc<Self> {
        let (note, watched) = (Mutex::default(), Mutex::default());
        let (asked, cancelled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { id, note, watched, questions: Mutex::default(), asked, cancelled, out })
    }

    async fn hear(self: Arc<Self>, message: Value, out: UnboundedSender<Value>, both: bool) {
        let method = message["method"].as_str().unwrap_or_default();
        let Some(id) = message.get("id") else {
            if method == "notifications/cancelled" {
                self.cancelled.fetch_add(1, Ordering::SeqCst);
            }
            return;
        };
        if method.is_empty() {
            let question = self.questions.lock().unwrap().remove(id.as_str().unwrap_or_default());
            if let Some(question) = question {
                _ = question.send(message.clone());
            }
            return;
        }
        let params = &message["params"];
        let is_newer = params["_meta"]["io.modelcontextprotocol/protocolVersion"] == NEWER;
        let uri = params["uri"].as_str().unwrap_or_default().to_owned();
        let result = match method {
            "initialize" => initialized(),
            "server/discover" if both => json!({
                "supportedVersions": [NEWER, "2025-06-18"], "capabilities": {"tools": {}, "resources": {}},
                "ttlMs": 0, "cacheScope": "private",
            }),
            "ping" => json!({}),
            "tools/list" => {
                let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
                json!({"tools": TOOLS.map(tool), "ttlMs": 0, "cacheScope": "private"})
            }
            "resources/list" => {
                let listed = json!([{"uri": "note://mine", "name": "mine"}]);
                json!({"resources": listed, "ttlMs": 0, "cacheScope": "private"})
            }
            "resources/read" => {
                let text = self.note.lock().unwrap().clone().unwrap_or_default();
                json!({"contents": [{"uri": uri, "text": text}], "ttlMs": 0, "cacheScope": "private"})
            }
            "resources/subscribe" => {
                self.watched.lock().unwrap().insert(uri);
                json!({})
            }
            "resources/unsubscribe" => {
                self.watched.lock().unwrap().remove(&uri);
                json!({})
            }
            "tools/call" => match self.call(params, &out, is_newer).await {
                Some(text) => json!({"content": [{"type": "text", "text": text}]}),
                None => std::future::pending().await,
            },
            _ => {
                let error = json!({"code": -32601, "message": method});
                _ = out.send(json!({"jsonrpc": "2.0", "id": id, "error": error}));
                return;
            }
        };
        let mut result = result;
        if is_newer {
            result["resultType"] = json!("complete");
        }
        _ = out.send(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// The text of the tool's answer; `None` where it gives none.
    async fn call(&self, params: &Value, out: &UnboundedSender<Value>, is_newer: bool) -> Option<String> {
        let arguments = &params["arguments"];
        let text = arguments["text"].as_str().unwrap_or_default().to_owned();
        Some(match params["name"].as_str().unwrap_or_default() {
            "note_set" => {
                *self.note.lock().unwrap() = Some(text);
                "noted".to_owned()
            }
            "note_get" => self.note.lock().unwrap().clone().unwrap_or_else(|| "nothing".to_owned()),
            "whoami" => self.id.clone(),
            "ask" if is_newer => "nobody can be asked in this revision".to_owned(),
            "ask" => {
                tokio::time::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap_or_default())).await;
                // Without a stream of its own, the question is sent on the GET stream.
                let out = if out.is_closed() { &self.out } else { out };
                self.ask(&text, out).await
            }
            "say" => {
                let level = arguments["level"].as_str().unwrap_or("warning");
                let data = json!({"level": level, "data": text});
                let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": data});
                self.out.send(message).unwrap();
                "said".to_owned()
            }
            "steps" => {
                let step = json!({"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": text});
                _ = out.send(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": step}));
                // Between the two, calls of others may come.
                tokio::time::sleep(Duration::from_millis(100)).await;
                "done".to_owned()
            }
            "touch" => {
                let watched = self.watched.lock().unwrap().clone();
                for uri in &watched {
                    let update =
                        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}});
                    self.out.send(update).unwrap();
                }
                watched.len().to_string()
            }
            "cancelled" => self.cancelled.load(Ordering::SeqCst).to_string(),
            _ => return None,
        })
    }

    async fn ask(&self, text: &str, out: &UnboundedSender<Value>) -> String {
        let id = format!("question-{}", self.asked.fetch_add(1, Ordering::SeqCst));
        let (answer, answered) = oneshot::channel();
        self.questions.lock().unwrap().insert(id.clone(), answer);
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let params = json!({"message": text, "requestedSchema": schema});
        _ = out.send(json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params}));
        let answer = answered.await.unwrap_or_default();
        match answer["result"]["content"]["a"].as_str() {
            Some(text) => text.to_owned(),
            None => format!("refused: {}", answer["error"]["message"]),
        }
    }
}
