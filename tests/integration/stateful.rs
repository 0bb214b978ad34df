//! The stateful test server over HTTP, in this process, and as a program.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::session::{Session, initialized};
use crate::mcp_programs::{running, started};

#[path = "../fixtures/mcp/test_servers/stateful.rs"]
mod session;

/// The settings of such a program, with a mark by which its processes are counted.
pub(crate) fn program(mark: &str, both: bool, more: &str) -> String {
    let environment = json!({"MOOD": mark, "BOTH": if both { "yes" } else { "" }});
    started("stateful", &environment, more)
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
    /// The parameters of each `initialize`.
    pub(crate) introductions: Mutex<Vec<Value>>,
    pub(crate) ended: AtomicUsize,
    /// Sessions begin, and their client waits for the answer, until it is released.
    pub(crate) hold: AtomicBool,
    pub(crate) release: Notify,
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
        #[expect(clippy::disallowed_methods, reason = "a test sends few, and ends")]
        let (out, reported) = unbounded_channel();
        self.standing.lock().unwrap().insert(id.clone(), reported);
        self.sessions.lock().unwrap().insert(id.clone(), Session::new(id, out));
    }
}

async fn speak(State(seen): State<Arc<Seen>>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    let named = headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned()).unwrap_or_default();
    if message["method"] == "initialize" {
        let id = format!("s{}", seen.begun.fetch_add(1, Ordering::SeqCst));
        seen.introductions.lock().unwrap().push(message["params"].clone());
        seen.open(id.clone());
        if seen.hold.load(Ordering::SeqCst) {
            seen.release.notified().await;
        }
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
    #[expect(clippy::disallowed_methods, reason = "a test sends few, and ends")]
    let (out, mut reported) = unbounded_channel();
    let is_request = message.get("id").is_some() && message.get("method").is_some();
    tokio::spawn(session.handle(message, out, seen.both));
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
