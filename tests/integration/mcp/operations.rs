//! Resources, prompts and completions of MCP servers pass the same stages as tools.

use std::path::Path;

use serde_json::{Value, json};

use super::client::McpClient;
use super::{NEWER, OLDER};
use crate::app::{TestApp, answer, config};
use crate::mcp_programs::{server, server_of};
use crate::mcp_servers::{ready, yaml};
use crate::policy::with_policy_and;

const METHODS: [&str; 3] = ["resources/read", "prompts/get", "completion/complete"];

async fn before(more: &str) -> TestApp {
    let app = TestApp::with(&format!("{}{more}", yaml(&[("m", server("fine", ""))]))).await;
    ready(&app).await;
    app
}

/// Parameters for a request of the server `m`.
fn params(method: &str) -> Value {
    match method {
        "resources/read" => json!({"uri": "m+demo://one"}),
        "prompts/get" => json!({"name": "m__greet", "arguments": {"name": "Ada"}}),
        _ => completion(&json!({"type": "ref/resource", "uri": "m+demo://{n}"})),
    }
}

fn completion(reference: &Value) -> Value {
    json!({"ref": reference, "argument": {"name": "n", "value": "1"}})
}

async fn read(client: &McpClient, uri: &str) -> Value {
    client.reply("resources/read", json!({"uri": uri})).await
}

fn code(reply: &Value) -> &str {
    reply["error"]["data"]["error_info"]["code"].as_str().unwrap_or_default()
}

fn audited(directory: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(directory.join("state/audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A server may tell them apart.
#[tokio::test]
async fn a_prompt_is_asked_for_with_no_arguments_or_with_an_empty_object_as_its_client_does() {
    let app = before("").await;
    let client = McpClient::connect(&app, NEWER).await;
    for (params, expected) in
        [(json!({"name": "m__greet"}), "Hello"), (json!({"name": "m__greet", "arguments": {}}), "Hello null")]
    {
        let prompt = client.result("prompts/get", params, "GetPromptResult").await;
        assert_eq!(prompt["messages"][0]["content"]["text"], expected);
    }
    app.stop().await;
}

#[tokio::test]
async fn each_is_limited_written_down_and_counted() {
    let app = before("").await;
    let client = McpClient::connect(&app, NEWER).await;
    for method in METHODS {
        let reply = client.reply(method, params(method)).await;
        assert!(reply["result"].is_object(), "{method}: {reply}");
    }
    read(&client, "m+demo://gone").await;
    read(&client, "nobody+demo://one").await;
    for (name, status, expected) in [
        ("m__resources_read", "success", 1.0),
        ("m__resources_read", "error", 1.0),
        ("m__prompts_get", "success", 1.0),
        ("m__complete", "success", 1.0),
        ("resources/read", "refused", 0.0),
    ] {
        let line = format!("shannon_tool_executions_total{{status=\"{status}\",tool_name=\"{name}\"}}");
        assert_eq!(app.metric(&line).await, expected, "{line}");
    }
    let line = "shannon_rate_limit_tokens_available{tool_name=\"m__prompts_get\"}";
    assert_eq!(app.metric(line).await, 59.0, "the rate of the server's tools, for each of the three");
    let directory = app.stop().await;
    let lines = audited(directory.path());
    let reported: Vec<_> = lines.iter().map(|line| (line["tool"].as_str().unwrap(), line["code"].as_str())).collect();
    assert_eq!(
        reported,
        [
            ("m__resources_read", None),
            ("m__prompts_get", None),
            ("m__complete", None),
            ("m__resources_read", Some("tool_error")),
            ("resources/read", Some("unknown_tool")),
        ]
    );
    assert!(lines.iter().all(|line| line["via"] == "mcp" && line["anonymous"] == true), "{lines:?}");
    assert_ne!(lines[0]["arguments_sha256"], lines[3]["arguments_sha256"], "which resource it was can be told apart");
    assert!(lines[0]["policy_version"].is_string(), "{lines:?}");
}

#[tokio::test]
async fn a_callers_rate_applies_to_all_its_requests() {
    let app = before("limits: {caller_rate_limit: 20, mcp_tool_rate_limit: 1000}\n").await;
    let client = McpClient::connect(&app, NEWER).await;
    let (mut passed, mut refused) = (0, 0);
    for at in 0..200 {
        let method = METHODS[at % METHODS.len()];
        let reply = client.reply(method, params(method)).await;
        match code(&reply) {
            "rate_limited" => refused += 1,
            _ => passed += usize::from(reply["result"].is_object()),
        }
    }
    // One comes back every three seconds.
    assert!((20..=26).contains(&passed) && passed + refused == 200, "{passed} passed, {refused} refused");
    app.stop().await;
}

#[tokio::test]
async fn overrides_name_them_like_tools() {
    let overrides = "tools: {overrides: {m__resources_read: {rate_limit: 2}, m__complete: {hidden: true}, \
                     m__prompts_get: {rename: greetings, cost_per_use: 0.01, roles: [friend]}}}\n\
                     auth: {anonymous: always, api_keys: [{id: ada, key: key-of-ada, roles: [friend]}]}\n";
    let app = before(overrides).await;
    let client = McpClient::connect(&app, NEWER).await;
    let codes =
        [read(&client, "m+demo://1").await, read(&client, "m+demo://2").await, read(&client, "m+demo://3").await];
    assert_eq!(codes.each_ref().map(code), ["", "", "rate_limited"], "{codes:?}");
    let hidden = client.reply("completion/complete", params("completion/complete")).await;
    assert_eq!(hidden["error"]["code"], -32602, "{hidden}");
    let refused = client.reply("prompts/get", params("prompts/get")).await;
    assert_eq!(code(&refused), "denied", "{refused}");
    let friend = client.with_key("key-of-ada");
    assert!(friend.reply("prompts/get", params("prompts/get")).await["result"].is_object());
    assert_eq!(app.metric("shannon_tool_cost_usd_sum{tool_name=\"greetings\"}").await, 0.01);
    app.stop().await;
}

#[tokio::test]
async fn a_rule_for_a_servers_tools_holds_for_all_it_has() {
    let rego = "package tools\ndeny[\"m is closed\"] { startswith(input.tool, \"m__\") }\n";
    let servers = yaml(&[("m", server("fine", "")), ("n", server("fine", ""))]);
    let app = with_policy_and(rego, &servers).await;
    ready(&app).await;
    for revision in [NEWER, OLDER] {
        let client = McpClient::connect(&app, revision).await;
        for method in METHODS {
            let reply = client.reply(method, params(method)).await;
            assert_eq!((code(&reply), &reply["error"]["code"]), ("denied", &json!(-32600)), "{method}: {reply}");
            assert_eq!(reply["error"]["message"], "m is closed", "{method}: {reply}");
        }
        let subscribed = client.reply("resources/subscribe", params("resources/read")).await;
        assert_eq!(
            (revision == OLDER, code(&subscribed)),
            (revision == OLDER, if revision == OLDER { "denied" } else { "" })
        );
        assert!(read(&client, "n+demo://one").await["result"].is_object(), "another server's");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_rule_may_distinguish_kinds_and_targets() {
    let rego = "package tools\n\
        deny[\"payroll\"] { input.kind == \"resource\"; input.target == \"m+demo://payroll\" }\n\
        deny[\"greetings\"] { input.kind == \"prompt\"; input.target == \"m__greet\"; input.arguments.arguments.name == \"Eve\" }\n\
        deny[\"templates\"] { input.kind == \"completion\"; startswith(input.target, \"m+\") }\n\
        deny[\"no tool has a target\"] { input.kind == \"tool\"; input.target != null }\n";
    let app = with_policy_and(rego, &yaml(&[("m", server("fine", ""))])).await;
    ready(&app).await;
    let client = McpClient::connect(&app, NEWER).await;
    let greet = |name: &str| client.reply("prompts/get", json!({"name": "m__greet", "arguments": {"name": name}}));
    let complete = |reference: Value| client.reply("completion/complete", completion(&reference));
    for (reply, expected) in [
        (read(&client, "m+demo://one").await, None),
        (read(&client, "m+demo://payroll").await, Some("payroll")),
        // The gateway's own part of a scheme may be written in either case; a rule sees one.
        (read(&client, "M+demo://payroll").await, Some("payroll")),
        (read(&client, "m+demo://one").await, None),
        (greet("Ada").await, None),
        (greet("Eve").await, Some("greetings")),
        (complete(json!({"type": "ref/resource", "uri": "m+demo://{n}"})).await, Some("templates")),
        (complete(json!({"type": "ref/prompt", "name": "m__greet"})).await, None),
        (client.reply("tools/call", json!({"name": "m__echo", "arguments": {}})).await, None),
    ] {
        assert_eq!(reply["error"]["message"].as_str(), expected, "{reply}");
        assert_ne!(reply["result"]["isError"], true, "{reply}");
    }
    app.stop().await;
}

#[tokio::test]
async fn a_caller_that_may_not_read_a_resource_gets_no_notifications_of_it() {
    let rego = "package tools\ndeny[\"secret\"] { input.kind == \"resource\"; input.target == \"m+demo://secret\"; \
                not has_role(input.user, \"friend\") }\n";
    let keys = "auth: {anonymous: always, api_keys: [{id: ada, key: key-of-ada, roles: [friend]}]}\n";
    let app = with_policy_and(rego, &format!("{keys}{}", yaml(&[("m", server("watched", "share: all"))]))).await;
    ready(&app).await;
    let uris = json!({"resourceSubscriptions": ["m+demo://secret", "m+demo://open"]});
    let updated = "notifications/resources/updated";
    let (anonymous, friend) = (McpClient::connect(&app, NEWER).await, McpClient::new(&app, NEWER, Some("key-of-ada")));
    let (mut heard_by_all, mut heard_by_friends) = (anonymous.listen(uris.clone()).await, friend.listen(uris).await);
    let session = McpClient::connect(&app, OLDER).await;
    let reply = session.reply("resources/subscribe", json!({"uri": "m+demo://secret"})).await;
    assert_eq!(code(&reply), "denied", "{reply}");
    let reply = session.reply("resources/subscribe", json!({"uri": "m+demo://open"})).await;
    assert!(reply["result"].is_object(), "{reply}");
    let mut heard_in_session = session.listen(json!({})).await;
    for uri in ["demo://secret", "demo://open"] {
        app.call("m__echo", json!({"uri": uri})).await;
    }
    assert_eq!(heard_by_friends.next_of(updated).await["params"]["uri"], "m+demo://secret");
    for heard in [&mut heard_by_all, &mut heard_by_friends, &mut heard_in_session] {
        assert_eq!(heard.next_of(updated).await["params"]["uri"], "m+demo://open");
    }
    let reply = session.reply("resources/unsubscribe", json!({"uri": "m+demo://open"})).await;
    assert!(reply["result"].is_object(), "{reply}");
    app.stop().await;
}

#[tokio::test]
async fn they_are_in_no_list_of_tools_and_no_call_of_a_tool_finds_them() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("tools.json");
    std::fs::write(&file, json!([{"name": "resources_read", "inputSchema": {"type": "object"}}]).to_string()).unwrap();
    let app = TestApp::in_directory(directory, &yaml(&[("m", server("fine", "")), ("t", server_of(&file))])).await;
    ready(&app).await;
    for path in ["/tools/list", "/tools/list?detail=full", "/tools/schemas", "/api/v1/tools"] {
        let (_, listed) = answer(app.get(path)).await;
        let listed = listed.to_string();
        assert!(!listed.contains("m__resources_read") && listed.contains("t__resources_read"), "{path}: {listed}");
    }
    let (_, reply) = app.call("m__resources_read", json!({"uri": "m+demo://one"})).await;
    assert_eq!(crate::app::code(&reply), "unknown_tool", "{reply}");
    let client = McpClient::connect(&app, NEWER).await;
    let reply = client.reply("tools/call", json!({"name": "m__resources_read", "arguments": {}})).await;
    assert_eq!(reply["error"]["code"], -32602, "{reply}");
    // A tool of that name is another thing.
    let reply = client.reply("tools/call", json!({"name": "t__resources_read", "arguments": {"a": 1}})).await;
    assert_eq!(reply["result"]["content"][0]["text"], r#"{"a":1}"#, "{reply}");
    let contents = &read(&client, "t+demo://one").await["result"]["contents"];
    assert_eq!(contents[0]["text"], "what \"demo://one\" says");
    app.stop().await;
}

#[tokio::test]
async fn a_servers_own_errors_and_results_arrive_as_they_are() {
    let app = before("").await;
    for revision in [NEWER, OLDER] {
        let client = McpClient::connect(&app, revision).await;
        // Revision 2026-07-28 has no separate code for a missing resource.
        let not_found = if revision == OLDER { -32002 } else { -32602 };
        let gone = json!({"code": not_found, "message": "it is gone", "data": {"since": 1970}});
        assert_eq!(read(&client, "m+demo://gone").await["error"], gone);
        let unknown = read(&client, "n+demo://one").await;
        assert_eq!(unknown["error"]["code"], not_found, "{unknown}");
        assert_eq!(unknown["error"]["data"], json!({"uri": "n+demo://one"}));
        let unknown = client.reply("prompts/get", json!({"name": "m__nothing"})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        let large = client.result("resources/read", json!({"uri": "m+demo://large"}), "ReadResourceResult").await;
        assert_eq!(large["contents"][0]["text"].as_str().unwrap().len(), 3 << 20);
        let completed = client.result("completion/complete", params("completion/complete"), "CompleteResult").await;
        assert_eq!(completed["completion"]["values"][0], r#"{"type":"ref/resource","uri":"demo://{n}"}"#);
    }
    let client = McpClient::connect(&app, NEWER).await;
    for _ in 0..20 {
        let broken = read(&client, "m+demo://broken").await;
        assert_eq!(broken["error"], json!({"code": -32603, "message": "it is broken"}));
    }
    let (_, reply) = app.call("m__echo", json!({})).await;
    assert_eq!(reply["success"], true, "a resource that cannot be read shuts off no tool: {reply}");
    app.stop().await;
}

#[tokio::test]
async fn a_reload_keeps_them_with_the_servers_there_are() {
    let app = before("").await;
    let client = McpClient::connect(&app, NEWER).await;
    assert!(read(&client, "m+demo://one").await["result"].is_object());
    let next = yaml(&[("n", server("fine", "alias: other"))]);
    app.gateway.reload(config(&app.directory, &next)).await;
    ready(&app).await;
    assert_eq!(read(&client, "m+demo://one").await["error"]["code"], -32602);
    assert!(read(&client, "other+demo://one").await["result"].is_object());
    let line = "shannon_tool_executions_total{status=\"success\",tool_name=\"other__resources_read\"}";
    assert_eq!(app.metric(line).await, 1.0);
    let snapshot = app.gateway.pipeline.registry.snapshot();
    let names: Vec<_> =
        snapshot.operations().map(|tool| tool.name()).filter(|name| name.starts_with("other__")).collect();
    assert_eq!((names.len(), snapshot.operations().count()), (3, 4), "{names:?}");
    app.stop().await;
}
