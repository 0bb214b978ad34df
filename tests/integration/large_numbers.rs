//! Integers that 64 bits do not hold: refused where they are sent, and whole where they are answered.

use axum::Router;
use axum::routing::get;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code, config};

const LARGE: &str = "99999999999999999999";

async fn post(app: &TestApp, path: &str, body: String) -> (StatusCode, Value) {
    answer(app.post(path).header("content-type", "application/json").body(body)).await
}

#[tokio::test]
async fn a_large_integer_is_refused_with_its_place_and_what_to_do() {
    let app = TestApp::start().await;
    for (path, body, refused, place) in [
        ("/tools/echo/execute", format!(r#"{{"arguments": {{"n": {LARGE}}}}}"#), "invalid_arguments", "/n"),
        (
            "/tools/echo/execute",
            r#"{"arguments": {"a": [{"b": -9223372036854775809}]}}"#.into(),
            "invalid_arguments",
            "/a/0/b",
        ),
        ("/tools/echo/execute", format!(r#"{{"arguments": {{}}, "x": {LARGE}}}"#), "invalid_request", "/x"),
    ] {
        let (status, reply) = post(&app, path, body).await;
        assert_eq!((status, code(&reply)), (StatusCode::BAD_REQUEST, refused), "{reply}");
        assert_eq!(reply["error_info"]["details"][0]["path"], place, "{reply}");
        assert!(reply["error"].as_str().unwrap().contains("send it as a string"), "{reply}");
    }
    let whole =
        ["18446744073709551615", "-9223372036854775808", "1e20", "120000000000000000000", "99999999999999999999.5"];
    for whole in whole {
        let (_, reply) = post(&app, "/tools/echo/execute", format!(r#"{{"arguments": {{"n": {whole}}}}}"#)).await;
        assert_ne!(reply["error_info"]["details"][0]["rule"], "integer", "{reply}");
    }
    let params = json!({"name": "calculator", "arguments": {"expression": "LARGE"}});
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string();
    let asked = app.post("/mcp").header("accept", "application/json, text/event-stream");
    let asked = asked.header("content-type", "application/json").body(call.replace("\"LARGE\"", LARGE));
    let (_, reply) = answer(asked).await;
    assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!(7), &json!(-32602)), "{reply}");
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.contains("/params/arguments/expression") && message.contains("send it as a string"), "{reply}");
}

#[tokio::test]
async fn a_large_integer_of_an_api_keeps_its_digits() {
    let body = format!(r#"{{"n":{LARGE},"list":[1,{LARGE}]}}"#);
    let answered = body.clone();
    let routes = Router::new().route("/get", get(async move || ([("content-type", "application/json")], answered)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let content = json!({"application/json": {"schema": schema}});
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": url}],
        "paths": {"/get": {"get": {
            "operationId": "get", "responses": {"200": {"description": "ok", "content": content}},
        }}},
    });
    let collections = json!({"far": {"spec_inline": document.to_string(), "allow_networks": ["127.0.0.1"]}});
    let app = TestApp::with(&format!(
        "outbound: {{openapi_allowed_domains: [127.0.0.1]}}\nopenapi: {{collections: {collections}}}"
    ))
    .await;
    let (_, reply) = app.call("far__get", json!({})).await;
    assert_eq!(reply["output"], json!({"n": LARGE, "list": [1, LARGE]}), "{reply}");
    assert_eq!(reply["metadata"]["large_numbers"], json!(["/n", "/list/1"]), "{reply}");
    assert_eq!(reply["text"], body, "{reply}");
    assert_eq!(reply["receipt"]["output_schema_violations"], json!([]), "{reply}");
}

/// What a source may reach is named for it alone, and the gateway itself for none of its callers.
#[tokio::test]
async fn web_fetch_reaches_neither_other_sources_networks_nor_the_gateway() {
    let app = TestApp::with("outbound: {allow_networks: [127.0.0.0/8]}").await;
    let metrics = json!({"url": format!("{}/metrics", app.url)});
    let (_, reply) = app.call("web_fetch", metrics.clone()).await;
    let error = reply["error"].as_str().unwrap();
    assert!(
        error.contains("127.0.0.1 is not a public address") && error.contains("tools.web_fetch.allow_networks"),
        "{reply}"
    );
    let port = app.url.rsplit(':').next().unwrap();
    for (more, says) in
        [(String::new(), "tools.web_fetch.allow_ports"), (format!(", allow_ports: [{port}]"), "is this gateway itself")]
    {
        let yaml = format!("tools: {{web_fetch: {{allow_networks: [127.0.0.0/8]{more}}}}}");
        app.gateway.reload(config(&app.directory, &yaml)).await;
        let (_, reply) = app.call("web_fetch", metrics.clone()).await;
        assert!(reply["error"].as_str().unwrap().contains(says), "{reply}");
    }
}
