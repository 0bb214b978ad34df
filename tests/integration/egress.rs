//! A gateway that reaches others only through a proxy.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::{Method, Uri};
use reqwest::StatusCode;
use serde_json::json;

use crate::app::{TestApp, answer};
use crate::charges::served;

/// Hosts of four kinds, at addresses that nobody has (RFC 5737).
const HOSTS: [&str; 4] = ["198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4"];

#[tokio::test]
async fn collections_servers_models_and_listed_pages_are_reached_through_the_proxy() {
    let asked = Arc::<Mutex<BTreeSet<String>>>::default();
    let proxy = {
        let asked = Arc::clone(&asked);
        // Of requests for http it sees the whole address, and here it answers them itself.
        served(Router::new().fallback(async move |method: Method, uri: Uri| {
            asked.lock().unwrap().insert(format!("{method} {uri}"));
            "{}"
        }))
        .await
    };
    let [api, server, model, page] = HOSTS;
    let app = TestApp::with(&format!(
        r#"
outbound:
  proxy: {{url: '{proxy}'}}
  allow_networks: [198.51.100.0/24]
  openapi_allowed_domains: [{api}]
  mcp_allowed_domains: [{server}]
openapi:
  collections:
    pets:
      base_url: http://{api}/v1
      spec_inline: '{{"openapi": "3.1.0", "info": {{"title": "Pets", "version": "1"}}, "paths": {{"/pets": {{"get": {{"operationId": "list", "responses": {{}}}}}}}}}}'
mcp: {{servers: {{docs: {{url: 'http://{server}/mcp'}}}}}}
agent: {{profiles: {{openai: {{provider: openai, base_url: 'http://{model}/v1/', api_key: k, retries: 0}}}}}}
tools: {{web_fetch: {{allowed_domains: [{page}], allow_networks: [198.51.100.0/24]}}}}
"#
    ))
    .await;
    assert_eq!(app.call("pets__list", json!({})).await.0, StatusCode::OK);
    assert_eq!(app.call("web_fetch", json!({"url": format!("http://{page}/page")})).await.1["success"], true);
    let question = json!({"model": "openai", "messages": [{"role": "user", "content": "hello"}]});
    let (_, _unreadable) = answer(app.post("/v1/chat/completions").json(&question)).await;
    let expected = [
        format!("GET http://{api}/v1/pets"),
        format!("GET http://{page}/page"),
        format!("POST http://{model}/v1/chat/completions"),
        format!("POST http://{server}/mcp"),
    ];
    for address in expected {
        let reached = async {
            while !asked.lock().unwrap().contains(&address) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(20), reached).await;
        assert!(in_time.is_ok(), "{address} is not in {:?}", asked.lock().unwrap());
    }
}
