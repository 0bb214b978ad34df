//! An MCP server of 2025-06-18 behind the gateway that notes what is taken back.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};

use crate::app::TestApp;

#[derive(Default)]
struct Seen {
    calls: AtomicUsize,
    cancelled: AtomicUsize,
}

pub(super) struct Upstream {
    url: String,
    seen: Arc<Seen>,
}

impl Upstream {
    pub(super) async fn start() -> Self {
        let seen = Arc::<Seen>::default();
        let not_there = || async { StatusCode::METHOD_NOT_ALLOWED };
        let routes =
            Router::new().route("/mcp", post(speak).get(not_there).delete(not_there)).with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, seen }
    }

    /// A gateway that offers its tools as `far__slow` and `far__steps`.
    pub(super) async fn behind_a_gateway(&self) -> TestApp {
        let app = TestApp::with(&format!(
            "outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}}\n\
             mcp: {{servers: {{far: {{url: '{}'}}}}}}",
            self.url
        ))
        .await;
        tokio::time::timeout(Duration::from_secs(20), app.gateway.mcp_servers().settled()).await.expect("it settles");
        app.gateway.offer_mcp_tools().await;
        app
    }

    pub(super) fn calls(&self) -> usize {
        self.seen.calls.load(Ordering::SeqCst)
    }

    pub(super) fn cancelled(&self) -> usize {
        self.seen.cancelled.load(Ordering::SeqCst)
    }
}

async fn speak(State(seen): State<Arc<Seen>>, Json(message): Json<Value>) -> Response {
    let method = message["method"].as_str().unwrap_or_default();
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
            json!({"tools": [tool("slow"), tool("steps")]})
        }
        "tools/call" => {
            seen.calls.fetch_add(1, Ordering::SeqCst);
            return call(&id, &message["params"]);
        }
        "ping" => json!({}),
        _ => return (StatusCode::BAD_REQUEST, "what?").into_response(),
    };
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

/// `slow` never answers; `steps` tells of two steps first.
fn call(id: &Value, params: &Value) -> Response {
    let event = |message: Value| Ok::<_, Infallible>(Event::default().data(message.to_string()));
    if params["name"] == "slow" {
        return Sse::new(stream::pending::<Result<Event, Infallible>>()).into_response();
    }
    let token = &params["_meta"]["progressToken"];
    let step = |number: f64| {
        let params = json!({"progressToken": token, "progress": number});
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    };
    let result = json!({"content": [{"type": "text", "text": "done"}]});
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
    let messages = [step(1.0), step(2.0), answer].map(event);
    let paced = stream::iter(messages).then(|message| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        message
    });
    Sse::new(paced).into_response()
}
