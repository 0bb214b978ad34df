//! The vendor adapter of the original (E39–E44), declared in the configuration, through the real service.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};

/// E39–E44: the adapter of the original, declared, with its own example.
#[tokio::test]
async fn the_datainsight_adapter_turns_friendly_arguments_into_the_vendors() {
    let server = Echo::start().await;
    let metric = json!({"type": "string", "enum": ["di:unique_users", "di:total_sessions"]});
    let range = json!({
        "type": "object", "required": ["startTime", "endTime"], "additionalProperties": false,
        "properties": {"startTime": {"type": "string"}, "endTime": {"type": "string"}},
    });
    let body = json!({
        "type": "object", "required": ["account_id", "metrics", "timeRange"],
        "properties": {
            "account_id": {"type": "string"}, "metrics": {"type": "array", "items": metric}, "timeRange": range,
        },
    });
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "DataInsight", "version": "1"}, "servers": [{"url": server.url}],
        "paths": {"/query": {"post": {
            "operationId": "query",
            "requestBody": {"required": true, "content": {"application/json": {"schema": body}}},
            "responses": {"200": {"description": "rows"}},
        }}},
    });
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("datainsight.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let yaml = format!(
        "outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}
openapi:
  collections:
    insight: {{spec_file: '{}', auth_config: {{vendor: datainsight}}}}
  adapters:
    datainsight:
      values: {{metrics: {{users: 'di:unique_users', sessions: 'di:total_sessions'}}}}
      inject: {{account_id: account_id}}
      time_ranges: {{timeRange: {{start: startTime, end: endTime}}}}",
        file.display()
    );
    let app = TestApp::in_directory(directory, &yaml).await;
    let request = app.post("/tools/execute").json(&json!({
        "tool_name": "insight__query",
        "parameters": {"metrics": ["users", "sessions"], "timeRange": {"start": "2025-01-01", "end": "2025-02-01"}},
        "session_context": {"prompt_params": {"account_id": "acme"}},
    }));
    let (status, reply) = answer(request).await;
    assert_eq!((status, &reply["success"]), (StatusCode::OK, &json!(true)), "{reply}");
    let expected = json!({
        "metrics": ["di:unique_users", "di:total_sessions"],
        "timeRange": {"startTime": "2025-01-01", "endTime": "2025-02-01"},
        "account_id": "acme",
    });
    assert_eq!(reply["output"], expected);
}

/// An API that answers with the body it was sent.
struct Echo {
    url: String,
}

impl Echo {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new().fallback(async |axum::Json(body): axum::Json<Value>| axum::Json(body));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url }
    }
}
