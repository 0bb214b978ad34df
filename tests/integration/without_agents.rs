//! A gateway that another program serves without agents.

use std::sync::Arc;

use reqwest::{Client, StatusCode};
use sekisho::{BoundListeners, Gateway, serve_gateway};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::app::{answer, config};

#[tokio::test]
async fn its_tools_are_called_and_it_has_and_describes_no_route_of_agents() {
    let directory = TempDir::new().unwrap();
    let config = config(&directory, "");
    let listening = BoundListeners::bind(&config).await.unwrap();
    let url = format!("http://{}", listening.address().unwrap());
    let gateway = Gateway::start(config).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn({
        let gateway = Arc::clone(&gateway);
        async move { serve_gateway(listening, &gateway, async { _ = stopped.await }).await }
    });
    let client = Client::builder().no_proxy().build().unwrap();
    let sum = client.post(format!("{url}/tools/calculator/execute")).json(&json!({"arguments": {"expression": "6*7"}}));
    let (status, reply) = answer(sum).await;
    assert_eq!((status, &reply["success"]), (StatusCode::OK, &json!(true)), "{reply}");
    for path in ["/v1/models", "/api/chat", "/api/conversations", "/api/plans", "/api/models", "/tools/select"] {
        let (status, reply) = answer(client.get(format!("{url}{path}"))).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {reply}");
    }
    let (_, document) = answer(client.get(format!("{url}/openapi.json"))).await;
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.contains_key("/tools/list"), "{paths:?}");
    assert!(!paths.keys().any(|path| path.starts_with("/v1/") || path.starts_with("/api/conversations")), "{paths:?}");
    let tags: Vec<_> = document["tags"].as_array().unwrap().iter().filter_map(|tag| tag["name"].as_str()).collect();
    assert!(tags.contains(&"tools") && !tags.contains(&"plans") && !tags.contains(&"conversations"), "{tags:?}");
    let mut references = Vec::new();
    add_references(&document, &mut references);
    assert!(references.len() > 50, "{references:?}");
    references.retain(|reference| reference.strip_prefix('#').and_then(|path| document.pointer(path)).is_none());
    assert_eq!(references, [""; 0], "these lead to no schema of the document");

    stop.send(()).unwrap();
    serving.await.unwrap();
    gateway.close().await;
}

fn add_references<'a>(value: &'a Value, references: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            references.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| add_references(member, references));
        }
        Value::Array(items) => items.iter().for_each(|item| add_references(item, references)),
        _ => {}
    }
}
