//! Two replicas behind a proxy that gives each request to the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use serde_json::json;

use super::NEWER;
use super::client::McpClient;
use crate::app::TestApp;

struct RoundRobin {
    replicas: Vec<String>,
    next: AtomicUsize,
    http: reqwest::Client,
}

async fn pass_on(
    State(proxy): State<Arc<RoundRobin>>,
    method: Method,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    let replica = &proxy.replicas[proxy.next.fetch_add(1, Ordering::SeqCst) % proxy.replicas.len()];
    headers.remove("host");
    headers.remove("content-length");
    let request = proxy.http.request(method, format!("{replica}/mcp")).headers(headers).body(body);
    let answered = request.send().await.unwrap();
    let mut response = Response::builder().status(answered.status());
    response.headers_mut().unwrap().extend(answered.headers().clone());
    response.headers_mut().unwrap().remove("transfer-encoding");
    response.body(Body::from_stream(answered.bytes_stream())).unwrap()
}

#[tokio::test]
async fn sessionless_clients_do_not_notice_which_replica_answers() {
    let apps = [TestApp::start().await, TestApp::start().await];
    let proxy = RoundRobin {
        replicas: apps.iter().map(|app| app.url.clone()).collect(),
        next: AtomicUsize::new(0),
        http: reqwest::Client::builder().no_proxy().build().unwrap(),
    };
    let routes = Router::new().fallback(pass_on).with_state(Arc::new(proxy));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let client = McpClient::connect(&apps[0], NEWER).await.at(&url);
    let first = client.result("tools/list", json!({}), "ListToolsResult").await;
    for round in 0..10 {
        let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
        assert_eq!(listed, first, "the same tools in the same order");
        // An odd number of requests a round: each kind comes to each replica.
        for (expression, value) in [("6*7", "42"), ("1+1", "2")] {
            let call = json!({"name": "calculator", "arguments": {"expression": expression}});
            let called = client.result("tools/call", call, "CallToolResult").await;
            assert_eq!(called["content"][0]["text"], value, "round {round}");
        }
    }
    for app in &apps {
        let calls = app.metric(r#"shannon_tool_executions_total{status="success",tool_name="calculator"}"#).await;
        assert_eq!(calls, 10.0, "each replica had half of the calls");
    }
}
