//! Upstreams that repeat the credentials they were sent, as echo and debug services do.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};

const SECRETS: [&str; 6] =
    ["k3y-in-query", "k3y-in-header", "t0ken-of-bearer", "p4ssword", "t0ken-of-caller", "s3cret-of-client"];

/// Refuses every request and repeats it in the error.
async fn refuse(uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let reported = format!("denied for {uri} {headers:?} {}", String::from_utf8_lossy(&body));
    (StatusCode::UNAUTHORIZED, Json(json!({"message": reported}))).into_response()
}

/// An MCP server that lists a tool and fails to run it, in one way or another.
async fn speak(State(way): State<&'static str>, headers: HeaderMap, Json(message): Json<Value>) -> Response {
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let reported = format!("denied for {}", headers["x-api-key"].to_str().unwrap());
    if way == "status" {
        return (StatusCode::INTERNAL_SERVER_ERROR, reported).into_response();
    }
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" if way == "handshake" => {
            let error = json!({"code": -32000, "message": reported});
            return Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response();
        }
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "far", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "fail", "inputSchema": {"type": "object"}}]}),
        "tools/call" if way == "error" => {
            let error = json!({"code": -32000, "message": reported, "data": {"key": reported}});
            return Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response();
        }
        "tools/call" if way == "answer" => {
            json!({"content": [{"type": "text", "text": reported}], "structuredContent": {"key": reported}})
        }
        "tools/call" => json!({"content": [{"type": "text", "text": reported}], "isError": true}),
        _ => return (StatusCode::BAD_REQUEST, "what?").into_response(),
    };
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn holds_none(reported: &str) {
    for secret in SECRETS {
        assert!(!reported.contains(secret), "{secret}: {reported}");
    }
    assert!(reported.contains("[redacted]"), "{reported}");
}

#[tokio::test]
async fn an_api_that_repeats_its_credentials_hands_none_of_them_on() {
    let url = serve(Router::new().fallback(any(refuse))).await;
    let document = |scheme: Value| {
        json!({
            "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": url}],
            "paths": {"/get": {"get": {"operationId": "get", "responses": {"200": {"description": "ok"}}}}},
            "components": {"securitySchemes": {"s": scheme}}, "security": [{"s": []}],
        })
        .to_string()
    };
    let client = json!({"clientCredentials": {"tokenUrl": format!("{url}/token"), "scopes": {}}});
    let collections = json!({
        "query": {
            "spec_inline": document(json!({"type": "apiKey", "in": "query", "name": "key"})), "auth_type": "api_key",
            "auth_config": {"api_key": "k3y-in-query", "headers_template": {"X-Caller": "$${mine}"}},
        },
        "bearer": {
            "spec_inline": document(json!({"type": "http", "scheme": "bearer"})), "auth_type": "bearer",
            "auth_config": {"token": "t0ken-of-bearer", "extra_headers": {"X-Key": "k3y-in-header"}},
        },
        "basic": {
            "spec_inline": document(json!({"type": "http", "scheme": "basic"})), "auth_type": "basic",
            "auth_config": {"username": "ann", "password": "p4ssword"},
        },
        "oauth": {
            "spec_inline": document(json!({"type": "oauth2", "flows": client})),
            "auth_config": {"client_id": "us", "client_secret": "s3cret-of-client"},
        },
    });
    let yaml = format!(
        "outbound: {{allow_networks: [127.0.0.0/8], openapi_allowed_domains: [127.0.0.1]}}\nopenapi: {{collections: {collections}}}"
    );
    let app = TestApp::with(&yaml).await;
    for name in ["query", "bearer", "basic", "oauth"] {
        let context = json!({"tool_parameters": {"tokens": {"mine": "t0ken-of-caller"}}});
        let body = json!({"tool_name": format!("{name}__get"), "parameters": {}, "session_context": context});
        let (_, reply) = answer(app.post("/tools/execute").json(&body)).await;
        assert_eq!(reply["success"], false, "{reply}");
        let reported = reply["error"].to_string() + &reply["error_info"].to_string();
        assert!(reported.contains("denied for"), "{name}: {reported}");
        holds_none(&reported);
    }
}

#[tokio::test]
async fn an_answer_of_an_mcp_server_repeats_no_long_credential() {
    let url = serve(Router::new().route("/mcp", post(speak)).with_state("answer")).await;
    let app = TestApp::with(&format!(
        "outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}}\n\
         mcp: {{servers: {{far: {{url: '{url}/mcp', headers: {{X-Api-Key: a-long-k3y-in-header}}}}}}}}"
    ))
    .await;
    app.gateway.mcp_servers().settled().await;
    app.gateway.tool_offer().offer_mcp_tools().await;
    let (_, reply) = app.call("far__fail", json!({})).await;
    assert_eq!(reply["output"], json!({"key": "denied for [redacted]"}), "{reply}");
    holds_none(&reply.to_string());
    app.stop().await;
}

#[tokio::test]
async fn an_mcp_server_that_repeats_its_credentials_hands_none_of_them_on() {
    for way in ["error", "failure", "handshake", "status"] {
        let routes = Router::new().route("/mcp", post(speak)).with_state(way);
        let url = serve(routes).await;
        let app = TestApp::with(&format!(
            "outbound: {{allow_networks: [127.0.0.0/8], mcp_allowed_domains: [127.0.0.1]}}\n\
             mcp: {{servers: {{far: {{url: '{url}/mcp', headers: {{X-Api-Key: k3y-in-header}}}}}}}}"
        ))
        .await;
        app.gateway.mcp_servers().settled().await;
        app.gateway.tool_offer().offer_mcp_tools().await;
        let (_, ready) = answer(app.get("/readyz")).await;
        let reported = match way {
            "handshake" | "status" => ready["degraded"]["mcp:far"].to_string(),
            _ => {
                let (_, reply) = app.call("far__fail", json!({})).await;
                assert!(!code(&reply).is_empty());
                reply.to_string()
            }
        };
        assert!(reported.contains("denied for"), "{way}: {reported}");
        holds_none(&reported);
        app.stop().await;
    }
}
