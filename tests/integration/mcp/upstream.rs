//! An MCP server of 2025-06-18 behind the gateway that records cancellations, and whose answers come as badly as
//! answers over HTTP can.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::app::TestApp;

const TOOLS: [&str; 9] = ["slow", "steps", "asks", "wants_two", "broken", "cut", "other", "text", "list"];

/// The id of the server's own question.
const PING: &str = "are you there";

struct Seen {
    calls: AtomicUsize,
    cancelled: AtomicUsize,
    /// A permit for each of its questions that was answered.
    answered: Semaphore,
}

impl Seen {
    fn new() -> Self {
        Self { calls: AtomicUsize::new(0), cancelled: AtomicUsize::new(0), answered: Semaphore::new(0) }
    }
}

pub(super) struct Upstream {
    url: String,
    seen: Arc<Seen>,
}

impl Upstream {
    pub(super) async fn start() -> Self {
        let seen = Arc::new(Seen::new());
        let routes = Router::new().route("/mcp", post(speak).get(go_on)).with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, seen }
    }

    /// A gateway that offers its tools under `far__`.
    pub(super) async fn behind_a_gateway(&self) -> TestApp {
        let app = TestApp::with(&format!(
            "outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}}\n\
             mcp: {{servers: {{far: {{url: '{}'}}}}}}",
            self.url
        ))
        .await;
        tokio::time::timeout(Duration::from_secs(20), app.gateway.mcp_servers().settled()).await.expect("it settles");
        app.gateway.tool_offer().offer_mcp_tools().await;
        app
    }

    pub(super) fn calls(&self) -> usize {
        self.seen.calls.load(Ordering::SeqCst)
    }

    pub(super) fn cancelled(&self) -> usize {
        self.seen.cancelled.load(Ordering::SeqCst)
    }
}

/// Only the stream that `broken` began continues.
async fn go_on(headers: HeaderMap) -> Response {
    match headers.get("last-event-id").and_then(|id| id.to_str().ok()) {
        Some(last) if last.starts_with("of-") => {
            let id: Value = last.trim_start_matches("of-").parse().unwrap();
            Sse::new(stream::iter([event(&answer(&id, "went on"))])).into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

async fn speak(State(seen): State<Arc<Seen>>, Json(message): Json<Value>) -> Response {
    let method = message["method"].as_str().unwrap_or_default();
    if message["id"].is_string() {
        let expected = if message["id"] == PING { json!({}) } else { json!({"action": "decline"}) };
        assert_eq!(message["result"], expected, "{message}");
        seen.answered.add_permits(1);
        return StatusCode::ACCEPTED.into_response();
    }
    let Some(id) = message.get("id").cloned() else {
        if method == "notifications/cancelled" {
            seen.cancelled.fetch_add(1, Ordering::SeqCst);
        }
        return StatusCode::ACCEPTED.into_response();
    };
    let result = match method {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "far", "version": "1"},
        }),
        "tools/list" => {
            let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
            json!({"tools": TOOLS.map(tool)})
        }
        "tools/call" => {
            seen.calls.fetch_add(1, Ordering::SeqCst);
            return call(&seen, &id, &message["params"]);
        }
        "ping" => json!({}),
        _ => return (StatusCode::BAD_REQUEST, "what?").into_response(),
    };
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

fn event(message: &Value) -> Result<Event, Infallible> {
    Ok(Event::default().data(message.to_string()))
}

fn answer(id: &Value, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})
}

async fn answer_after(seen: Arc<Seen>, questions: u32, id: Value, text: &'static str) -> Result<Event, Infallible> {
    seen.answered.acquire_many(questions).await.unwrap().forget();
    event(&answer(&id, text))
}

/// `slow` never answers, `steps` tells of two steps first, `asks` wants to know first whether somebody is there, and
/// `wants_two` answers to questions it asks side by side; what `broken` begins can be read on, what `cut` begins
/// cannot; the others answer something else.
fn call(seen: &Arc<Seen>, id: &Value, params: &Value) -> Response {
    let token = &params["_meta"]["progressToken"];
    let step = |number: f64| {
        let params = json!({"progressToken": token, "progress": number});
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    };
    let comment = Event::default().comment("nothing yet");
    match params["name"].as_str().unwrap_or_default() {
        "slow" => Sse::new(stream::pending::<Result<Event, Infallible>>()).into_response(),
        "steps" => {
            let messages = [step(1.0), step(2.0), answer(id, "done")].map(|message| event(&message));
            let paced = stream::iter(messages).then(|message| async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                message
            });
            Sse::new(paced).into_response()
        }
        "asks" => {
            let ping = event(&json!({"jsonrpc": "2.0", "id": PING, "method": "ping"}));
            let done = answer_after(Arc::clone(seen), 1, id.clone(), "somebody is there");
            Sse::new(stream::iter([ping]).chain(stream::once(done))).into_response()
        }
        "wants_two" => {
            let question = |key: &str| {
                let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
                let params = json!({"message": key, "requestedSchema": schema});
                event(&json!({"jsonrpc": "2.0", "id": key, "method": "elicitation/create", "params": params}))
            };
            let asked = stream::iter(["first", "second"].map(question)).then(|question| async move {
                // Not in one packet: the second must be waited for.
                tokio::time::sleep(Duration::from_millis(5)).await;
                question
            });
            let done = answer_after(Arc::clone(seen), 2, id.clone(), "both are answered");
            Sse::new(asked.chain(stream::once(done))).into_response()
        }
        "broken" => {
            let begun = comment.id(format!("of-{id}")).retry(Duration::from_millis(1)).data("");
            Sse::new(stream::iter([Ok::<_, Infallible>(begun)])).into_response()
        }
        "cut" => Sse::new(stream::iter([Ok::<_, Infallible>(comment)])).into_response(),
        "other" => Json(answer(&json!(1), "for somebody else")).into_response(),
        "text" => "I am no JSON.".into_response(),
        _ => Json(json!(["no answer"])).into_response(),
    }
}
