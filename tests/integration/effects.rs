//! Effects whose answers are lost, at an API over HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::app::{TestApp, answer};
use crate::charges::LOOPBACK;

/// Payments by their keys, and orders without any, which it lists.
#[derive(Clone, Default)]
struct Bank {
    made: Arc<Mutex<Vec<Value>>>,
    /// Each that it got.
    keys: Arc<Mutex<Vec<String>>>,
    /// The next request gets no answer.
    is_deaf: Arc<AtomicBool>,
}

async fn make(State(bank): State<Bank>, uri: Uri, headers: HeaderMap, Json(body): Json<Value>) -> Json<Value> {
    let key = headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
    assert_eq!(key.is_some(), uri.path() == "/payments", "{uri}");
    bank.keys.lock().unwrap().extend(key.clone());
    let made = {
        let mut made = bank.made.lock().unwrap();
        let known = made.iter().find(|one| key.is_some() && one["key"] == json!(key)).cloned();
        let new = json!({"id": made.len(), "key": key, "to": body["to"], "created_at": Timestamp::now().to_string()});
        if known.is_none() {
            made.push(new.clone());
        }
        known.unwrap_or(new)
    };
    if bank.is_deaf.swap(false, Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
    Json(made)
}

async fn list(State(bank): State<Bank>) -> Json<Value> {
    Json(json!({"items": *bank.made.lock().unwrap()}))
}

/// A gateway of the bank.
async fn gateway(bank: &Bank) -> TestApp {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/payments", post(make)).route("/orders", post(make).get(list));
    let router = router.with_state(bank.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let schema = json!({"type": "object", "properties": {"to": {"type": "string"}}});
    let body = json!({"required": true, "content": {"application/json": {"schema": schema}}});
    let done = json!({"200": {"description": "done", "content": {"application/json": {"schema": {}}}}});
    let key = json!({"name": "Idempotency-Key", "in": "header", "required": true, "schema": {"type": "string"}});
    let document = json!({
        "openapi": "3.1.0",
        "info": {"title": "Bank", "version": "1"},
        "servers": [{"url": url}],
        "paths": {
            "/payments": {"post": {"operationId": "pay", "parameters": [key], "requestBody": body, "responses": done}},
            "/orders": {
                "post": {"operationId": "order", "requestBody": body, "responses": done},
                "get": {"operationId": "listOrders", "responses": done},
            },
        },
    });
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("bank.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let yaml = format!(
        "outbound: {{{LOOPBACK}}}\nsession: {{record_effects: true}}\n\
         openapi: {{collections: {{bank: {{spec_file: '{}', timeout_seconds: 1}}}}}}",
        file.display()
    );
    TestApp::in_directory(directory, &yaml).await
}

async fn call(app: &TestApp, tool: &str, to: &str) -> (StatusCode, Value) {
    answer(app.post(&format!("/tools/bank__{tool}/execute")).json(&json!({"arguments": {"to": to}}))).await
}

#[tokio::test]
async fn a_key_that_a_document_declares_is_sent_and_the_same_when_a_call_is_sent_again() {
    let bank = Bank::default();
    let app = gateway(&bank).await;
    bank.is_deaf.store(true, Ordering::Relaxed);
    assert_eq!(call(&app, "pay", "bob").await.0, StatusCode::GATEWAY_TIMEOUT);
    for (to, id) in [("bob", 0), ("eve", 1)] {
        let (status, reply) = call(&app, "pay", to).await;
        assert_eq!((status, &reply["output"]["id"]), (StatusCode::OK, &json!(id)), "{reply}");
    }
    let keys = bank.keys.lock().unwrap().clone();
    let [first, again, other] = &keys[..] else { panic!("{keys:?}") };
    assert!(first == again && other != first, "{keys:?}");
}

#[tokio::test]
async fn an_order_whose_answer_was_lost_is_found_in_the_list_of_orders() {
    let bank = Bank::default();
    let app = gateway(&bank).await;
    bank.is_deaf.store(true, Ordering::Relaxed);
    assert_eq!(call(&app, "order", "bob").await.0, StatusCode::GATEWAY_TIMEOUT);
    let (_, list) = answer(app.get("/effects?status=unknown")).await;
    assert_eq!(list["items"][0]["tool"], "bank__order", "{list}");
    let (status, reply) = call(&app, "order", "bob").await;
    let found = (status, &reply["output"]["id"], &reply["receipt"]["answered_by"]);
    assert_eq!(found, (StatusCode::OK, &json!(0), &json!("read")), "{reply}");
    assert_eq!(bank.made.lock().unwrap().len(), 1);
    let (status, reply) = call(&app, "order", "eve").await;
    assert_eq!((status, &reply["output"]["id"]), (StatusCode::OK, &json!(1)), "{reply}");
}
