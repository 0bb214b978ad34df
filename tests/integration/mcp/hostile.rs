//! Requests that are no requests, and too many of them.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::client::McpClient;
use super::{NEWER, OLDER};
use crate::app::TestApp;
use crate::checkout::checkout;

#[tokio::test]
async fn what_is_no_message_of_the_protocol_is_refused_in_its_words() {
    let app = TestApp::start().await;
    let client = McpClient::connect(&app, NEWER).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;
    for body in [
        "null",
        "true",
        "7",
        r#""text""#,
        "[]",
        "{}",
        &format!("[{call}]"),
        &format!("[{call},{call}]"),
        r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#,
        r#"{"id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":[1],"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"no/such/method","params":{}}"#,
    ] {
        let (status, reply) = client.send_raw(body.to_owned(), &[]).await;
        assert!(status.is_client_error(), "{body}: {status} {reply}");
        let code = reply["error"]["code"].as_i64().unwrap_or_else(|| panic!("{body}: {status} {reply}"));
        assert!([-32_700, -32_600, -32_601, -32_602, -32_020].contains(&code), "{body}: {reply}");
        client.check("JSONRPCMessage", &reply);
    }
    client.result("tools/list", json!({}), "ListToolsResult").await;
}

#[tokio::test]
async fn wrong_parameters_of_known_methods_are_invalid_and_unknown_methods_are_unknown() {
    let app = TestApp::start().await;
    let (older, newer) = (McpClient::connect(&app, OLDER).await, McpClient::connect(&app, NEWER).await);
    for (method, params, expected) in [
        ("tools/call", json!({}), -32_602),
        ("tools/call", json!({"name": 7}), -32_602),
        ("tools/call", json!({"name": "calculator", "arguments": []}), -32_602),
        ("tools/list", json!({"cursor": 7}), -32_602),
        ("prompts/get", json!({}), -32_602),
        ("resources/read", json!({"uri": 7}), -32_602),
        ("resources/subscribe", json!({}), -32_602),
        ("resources/unsubscribe", json!({}), -32_602),
        ("completion/complete", json!({}), -32_602),
        ("completion/complete", json!({"ref": {"type": "ref/tool"}, "argument": {}}), -32_602),
        ("logging/setLevel", json!({"level": "loud"}), -32_602),
        ("initialize", json!({"protocolVersion": 7}), -32_602),
        ("no/such/method", json!({}), -32_601),
    ] {
        let reply = older.reply(method, params.clone()).await;
        assert_eq!(reply["error"]["code"], expected, "{method} {params}: {reply}");
        assert!(reply["error"]["message"].as_str().is_some_and(|message| message.len() > method.len()), "{reply}");
        if matches!(method, "completion/complete" | "tools/list" | "no/such/method") {
            assert_eq!(newer.reply(method, params).await["error"]["code"], expected, "{method}");
        }
    }
}

#[tokio::test]
async fn bodies_that_are_not_json_are_refused_and_none_stops_the_service() {
    let app = TestApp::start().await;
    let client = McpClient::connect(&app, NEWER).await;
    let folder = checkout().join("tests/fixtures/json");
    let mut refused = 0;
    for file in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = file.file_name().into_string().unwrap();
        if !name.starts_with("n_") {
            continue;
        }
        let (status, reply) = client.send_bytes(std::fs::read(file.path()).unwrap()).await;
        assert_eq!((status, &reply["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32700)), "{name}: {reply}");
        refused += 1;
    }
    assert!(refused > 100, "{refused} files");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(client.send_raw(deep, &[]).await.0, StatusCode::BAD_REQUEST);
    client.result("tools/list", json!({}), "ListToolsResult").await;
}

#[tokio::test]
async fn sizes_types_methods_and_sessions_are_refused_by_their_status() {
    let app = TestApp::with("server: {max_body_bytes: 10000}").await;
    let client = McpClient::connect(&app, NEWER).await;
    let large = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"x": "x".repeat(20_000)}});
    assert_eq!(client.send_raw(large.to_string(), &[]).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}).to_string();
    for (header, value, expected) in [
        ("content-type", "text/plain", StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("content-type", "application/x-www-form-urlencoded", StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("accept", "text/html", StatusCode::NOT_ACCEPTABLE),
        ("host", "evil.example", StatusCode::FORBIDDEN),
        ("mcp-protocol-version", "1999-01-01", StatusCode::BAD_REQUEST),
    ] {
        let (status, reply) = client.send_raw(list.clone(), &[(header, value)]).await;
        assert_eq!(status, expected, "{header}: {value}: {reply}");
        let reported = reply.get("error_info").or_else(|| reply.get("error"));
        assert!(reported.is_some_and(|reported| reported["message"].is_string()), "{header}: {value}: {reply}");
    }
    for method in [reqwest::Method::PUT, reqwest::Method::PATCH] {
        let answered = app.client.request(method, format!("{}/mcp", app.url)).send().await.unwrap();
        assert_eq!(answered.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
    let mut older = McpClient::connect(&app, OLDER).await;
    for session in ["00000000-0000-0000-0000-000000000000", "x"] {
        older.session = Some(session.to_owned());
        assert_eq!(older.send("tools/list", json!({})).await.0, StatusCode::NOT_FOUND, "{session}");
    }
}

#[tokio::test]
async fn a_flood_of_sessions_ends_its_own_and_no_other_tenants() {
    let settings = "
        server: {mcp: {max_sessions: 8, max_sessions_per_caller: 4}}
        auth: {api_keys: [{key: key-of-tenant-a, id: ann, tenant: a}, {key: key-of-tenant-b-1, id: bob, tenant: b},
            {key: key-of-tenant-b-2, id: ben, tenant: b}, {key: key-of-tenant-b-3, id: bea, tenant: b}]}";
    let app = TestApp::with(settings).await;
    let begin = async |key: &str| McpClient::connect_as(&app, OLDER, Some(key)).await;
    let exists = async |client: &McpClient| client.send("tools/list", json!({})).await.0 == StatusCode::OK;
    let of_ann = [begin("key-of-tenant-a").await, begin("key-of-tenant-a").await];
    let mut of_others = Vec::new();
    for _ in 0..10 {
        for key in ["key-of-tenant-b-1", "key-of-tenant-b-2", "key-of-tenant-b-3"] {
            of_others.push(begin(key).await);
        }
    }
    for client in &of_ann {
        assert!(exists(client).await);
    }
    let mut remaining = Vec::new();
    for (number, client) in of_others.iter().enumerate() {
        if exists(client).await {
            remaining.push(number);
        }
    }
    // The last ones; ann's reserve is a quarter of all.
    assert_eq!(remaining, [24, 25, 26, 27, 28, 29]);
}

#[tokio::test]
async fn a_parameters_header_is_held_against_the_arguments_before_the_tool_is_looked_at() {
    let app = TestApp::with_tools_of(
        tempfile::TempDir::new().unwrap(),
        "tools: {overrides: {of_region: {rate_limit: 1}}}",
        vec![Box::new(super::tools::ConversingTools)],
    )
    .await;
    let client = McpClient::connect(&app, NEWER).await;
    let call = |region: &str| json!({"name": "of_region", "arguments": {"region": region}});
    let base64 = "=?base64?QmVybg==?=";
    for headers in [&[][..], &[("mcp-param-region", "Basel")], &[("mcp-param-region", "=?base64?Qm%?=")]] {
        let (status, reply) = client.send_with("tools/call", call("Bern"), headers).await;
        assert_eq!(
            (status, &reply["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!(-32020)),
            "{headers:?}: {reply}"
        );
    }
    // Nothing of that counted against the one call a minute.
    let (status, reply) = client.send_with("tools/call", call("Bern"), &[("mcp-param-region", base64)]).await;
    assert_eq!((status, &reply["result"]["isError"]), (StatusCode::OK, &json!(false)), "{reply}");
    let (_, reply) = client.send_with("tools/call", call("Bern"), &[("mcp-param-region", "Bern")]).await;
    assert_eq!(reply["result"]["structuredContent"]["error_info"]["code"], "rate_limited", "{reply}");
    assert_ne!(reply["result"]["content"], Value::Null);
}
