//! The HTTP server behind the operations of OpenAPI, in this process.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::charges::served;

/// Who waits until a request arrives, by what that names.
type Expected = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

pub(super) struct Upstream {
    pub(super) url: String,
    expected: Expected,
}

impl Upstream {
    pub(super) async fn start() -> Self {
        let expected = Expected::default();
        let arrivals = Arc::clone(&expected);
        let hold = move |Path(id): Path<String>| {
            let arrived = arrivals.lock().remove(&id);
            async move {
                _ = arrived.map(|arrived| arrived.send(()));
                std::future::pending::<&'static str>().await
            }
        };
        let router = Router::new()
            .route("/item/{id}", get(item))
            .route("/pay/{id}", post(item))
            .route("/broken", post(async || StatusCode::INTERNAL_SERVER_ERROR))
            .route("/wrong", get(async || Json("not an integer")))
            .route("/long", get(async || Json("x".repeat(5_000))))
            .route("/hold/{id}", get(hold));
        Self { url: served(router).await, expected }
    }

    /// Resolves when a request for this id has arrived, which gets no answer.
    pub(super) fn arrival(&self, id: &str) -> oneshot::Receiver<()> {
        let (arrived, arrival) = oneshot::channel();
        self.expected.lock().insert(id.to_owned(), arrived);
        arrival
    }
}

async fn item(Path(id): Path<String>) -> Json<Value> {
    Json(json!({"id": id, "price": 7}))
}

/// The document of its operations.
pub(super) fn document(url: &str) -> Value {
    let id = json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]);
    let answers =
        |schema: Value| json!({"200": {"description": "done", "content": {"application/json": {"schema": schema}}}});
    let object = answers(json!({"type": "object"}));
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": url}],
        "paths": {
            "/item/{id}": {"get": {"operationId": "item", "parameters": id, "responses": object}},
            "/pay/{id}": {"post": {"operationId": "pay", "parameters": id, "responses": object}},
            "/broken": {"post": {"operationId": "broken", "responses": object}},
            "/wrong": {"get": {"operationId": "wrong", "responses": answers(json!({"type": "integer"}))}},
            "/long": {"get": {"operationId": "long", "responses": answers(json!({"type": "string"}))}},
            "/hold/{id}": {"get": {"operationId": "hold", "parameters": id, "responses": object}},
        },
    })
}
