//! The baseline of `scripts/bench`: an axum server that parses a tool call and answers it without any check.
//! `cargo run --release --example bare_echo -- PORT`.

use axum::extract::Path;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

async fn execute(Path(name): Path<String>, Json(body): Json<Value>) -> Json<Value> {
    let arguments = body.get("arguments").cloned().unwrap_or(Value::Null);
    Json(json!({"success": true, "output": arguments, "text": name, "error": null, "execution_time_ms": 0}))
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "8090".into());
    let router = Router::new().route("/tools/{name}/execute", post(execute));
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    axum::serve(listener, router).await
}
