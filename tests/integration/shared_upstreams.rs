//! Upstreams that several tenants call: waiting for them, and their failures, are for who causes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, code};
use crate::charges::{LOOPBACK, served};

const KEYS: &str = "
auth:
  api_keys:
    - {id: ann, tenant: acme, key: key-of-ann}
    - {id: bob, tenant: rival, key: key-of-bob}
    - {id: eve, tenant: other, key: key-of-eve}
";

/// An API whose operation takes some time, or fails at once.
#[derive(Debug, Clone, Default)]
struct Api {
    requests: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Api {
    /// A gateway with the API's operation `api__work`, which takes `takes`.
    async fn behind_gateway(&self, takes: Duration, outbound: &str, timeout_seconds: u32) -> TestApp {
        let api = self.clone();
        let work = get(async move |RawQuery(query): RawQuery| {
            api.requests.fetch_add(1, Ordering::SeqCst);
            if query.is_some_and(|query| query.contains("fail=true")) {
                return StatusCode::INTERNAL_SERVER_ERROR;
            }
            api.most.fetch_max(api.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(takes).await;
            api.running.fetch_sub(1, Ordering::SeqCst);
            StatusCode::OK
        });
        let server = served(Router::new().route("/work", work)).await;
        let parameters = json!([{"name": "fail", "in": "query", "schema": {"type": "boolean"}}]);
        let operation =
            json!({"operationId": "work", "parameters": parameters, "responses": {"200": {"description": "done"}}});
        let document = json!({
            "openapi": "3.1.0",
            "info": {"title": "API", "version": "1"},
            "servers": [{"url": server}],
            "paths": {"/work": {"get": operation}},
        });
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("api.json");
        std::fs::write(&file, document.to_string()).unwrap();
        let collection = format!(
            "{{spec_file: '{}', base_cost_per_use: '0.01', rate_limit: 1000, timeout_seconds: {timeout_seconds}}}",
            file.display()
        );
        let yaml = format!("{KEYS}outbound: {{{outbound}}}\nopenapi: {{collections: {{api: {collection}}}}}");
        TestApp::in_directory(directory, &yaml).await
    }
}

async fn work(app: &TestApp, caller: &str, arguments: Value) -> (StatusCode, Value) {
    let body = json!({"arguments": arguments});
    answer(app.post("/tools/api__work/execute").bearer_auth(format!("key-of-{caller}")).json(&body)).await
}

/// A tool's time begins when its request is sent: none is sent too late, and waiting is not the upstream's failure.
#[tokio::test]
async fn calls_that_wait_for_a_slot_are_sent_with_their_whole_time_or_not_at_all() {
    let api = Api::default();
    let slots = format!("{LOOPBACK}, max_connections_per_origin: 4");
    let app = api.behind_gateway(Duration::from_millis(1_200), &slots, 2).await;
    let answers = join_all((0..24).map(|_| work(&app, "eve", json!({})))).await;
    let (done, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|(status, _)| *status == StatusCode::OK);
    assert!(done.len() > 4 && refused.len() > 4, "{} done, {} refused", done.len(), refused.len());
    for (status, reply) in &refused {
        assert_eq!((status.as_u16(), code(reply)), (503, "overloaded"), "{reply}");
        assert_eq!(reply["usage"]["cost_usd"], 0.0, "{reply}");
    }
    assert_eq!(api.requests.load(Ordering::SeqCst), done.len(), "what was refused had no effect");
    let (status, reply) = work(&app, "ann", json!({})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let metrics = app.metrics().await;
    assert!(metrics.lines().all(|line| !line.contains("circuit_breaker_failures_total{") || line.ends_with(" 0")));
}

#[tokio::test]
async fn a_tenants_failures_close_an_upstream_to_it_alone_until_another_tenant_agrees() {
    let api = Api::default();
    let app = api.behind_gateway(Duration::ZERO, LOOPBACK, 30).await;
    for _ in 0..5 {
        assert_eq!(work(&app, "eve", json!({"fail": true})).await.0, StatusCode::BAD_GATEWAY);
    }
    let (status, reply) = work(&app, "eve", json!({})).await;
    assert_eq!((status.as_u16(), code(&reply)), (503, "circuit_open"), "{reply}");
    assert_eq!(work(&app, "ann", json!({})).await.0, StatusCode::OK);
    for _ in 0..5 {
        assert_eq!(work(&app, "bob", json!({"fail": true})).await.0, StatusCode::BAD_GATEWAY);
    }
    let (status, reply) = work(&app, "ann", json!({})).await;
    assert_eq!((status.as_u16(), code(&reply)), (503, "circuit_open"), "two tenants agree: {reply}");
}

/// The reserve for others is there also after a moment in which nobody called.
#[tokio::test]
async fn who_called_a_moment_ago_keeps_slots_of_an_upstream() {
    let api = Api::default();
    let app = api.behind_gateway(Duration::from_millis(500), LOOPBACK, 30).await;
    assert_eq!(work(&app, "ann", json!({})).await.0, StatusCode::OK);
    let flood = join_all((0..20).map(|_| work(&app, "eve", json!({})))).await;
    assert!(flood.iter().all(|(status, _)| *status == StatusCode::OK));
    assert_eq!(api.most.load(Ordering::SeqCst), 8, "three quarters of ten");
}
