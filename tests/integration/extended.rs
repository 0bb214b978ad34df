//! The test server with extensions of the protocol, over HTTP in this process, and as a program.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use self::server::Extended;
use crate::app::TestApp;
use crate::mcp_programs::started;
use crate::mcp_servers::{ready, yaml};

#[path = "../fixtures/mcp/test_servers/extended.rs"]
mod server;

/// How the gateway reaches the server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reach {
    Http,
    Program,
}

/// A server for every transport and revision: of 2026-07-28 alone, or of 2025-11-25.
pub(crate) const KINDS: [(Reach, bool); 4] =
    [(Reach::Http, true), (Reach::Http, false), (Reach::Program, true), (Reach::Program, false)];

/// The settings of a server that runs as long as the test.
pub(crate) async fn settings((reach, is_newer): (Reach, bool), more: &str) -> String {
    if let Reach::Program = reach {
        return started("extended", &json!({"NEWER": if is_newer { "yes" } else { "" }}), more);
    }
    let routes = Router::new().route("/mcp", post(speak)).with_state(Arc::new(Extended::new(is_newer)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("{{url: '{url}', {more}}}")
}

/// A gateway with these servers.
pub(crate) async fn gateway(servers: &[(&str, String)], more: &str) -> TestApp {
    let outbound = "outbound: {allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}\n";
    let app = TestApp::with(&format!("{outbound}{}{more}", yaml(servers))).await;
    ready(&app).await;
    app
}

async fn speak(State(server): State<Arc<Extended>>, Json(message): Json<Value>) -> Response {
    match server.answer(&message) {
        Some(reply) => Json(reply).into_response(),
        None => StatusCode::ACCEPTED.into_response(),
    }
}
