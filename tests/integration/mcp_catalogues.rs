//! What MCP servers list: nothing of it is lost without a reason, and long, equal and changing lists are followed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer};
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};
use crate::mcp_programs::{server, server_of_with};
use crate::mcp_servers::{ready, yaml};

const KEYS: &str = "
auth: {api_keys: [{id: ada, key: key-of-ada, roles: [friend]}, {id: eve, key: key-of-eve}]}
";

fn tool(name: &str, input: &Value, output: Option<Value>) -> Value {
    let mut tool = json!({"name": name, "description": "d", "inputSchema": input});
    if let Some(output) = output {
        tool["outputSchema"] = output;
    }
    tool
}

async fn full_list(app: &TestApp, key: &str) -> Vec<Value> {
    let (_, listed) = answer(app.get("/tools/list?detail=full").bearer_auth(key)).await;
    listed.as_array().unwrap().clone()
}

#[tokio::test]
async fn a_tool_that_a_server_added_in_one_session_is_refused_with_the_reason() {
    let app = TestApp::with(&yaml(&[("m", server("growing", ""))])).await;
    ready(&app).await;
    let (client, other) = (McpClient::connect(&app, OLDER).await, McpClient::connect(&app, OLDER).await);
    let call = |name: &str| json!({"name": name, "arguments": {}});
    for client in [&client, &other] {
        let unknown = client.reply("tools/call", call("m__more")).await;
        assert!(unknown["error"]["message"].as_str().unwrap().contains("there is no tool"), "{unknown}");
    }
    client.result("tools/call", call("m__echo"), "CallToolResult").await;
    for _ in 0..2 {
        let refused = client.reply("tools/call", call("m__more")).await;
        assert!(refused["error"]["message"].as_str().unwrap().contains("m added the tool \"m__more\""), "{refused}");
    }
    for (client, name) in [(&client, "m__none"), (&other, "m__more")] {
        let unknown = client.reply("tools/call", call(name)).await;
        let expected = format!("there is no tool {name:?}; tools/list lists the tools");
        assert_eq!(unknown["error"]["message"], expected, "{unknown}");
    }
    app.stop().await;
}

#[tokio::test]
async fn tools_that_cannot_be_offered_are_listed_with_the_reason() {
    let directory = TempDir::new().unwrap();
    let listed = directory.path().join("tools.json");
    let object = json!({"type": "object"});
    let tools = json!([
        tool("fine", &object, None),
        tool("odd", &json!({"type": "object", "properties": {"a": {"type": "strin"}}}), None),
        tool("external", &json!({"type": "object", "$ref": "https://other.example/schema.json"}), None),
        tool("older", &json!({"properties": {"n": {"minimum": 0, "exclusiveMinimum": true}}}), None),
        tool("output", &object, Some(json!({"type": "objec"}))),
        tool("output_external", &object, Some(json!({"$ref": "https://other.example/schema.json"}))),
    ]);
    fs::write(&listed, tools.to_string()).unwrap();
    let of_friends = server_of_with(&listed, "roles: [friend]");
    let servers =
        [("a", of_friends), ("one", server("fine", "prefix: never")), ("two", server("fine", "prefix: never"))];
    let app = TestApp::with(&format!("{KEYS}{}", yaml(&servers))).await;
    ready(&app).await;

    let (_, ready) = answer(app.get("/readyz").bearer_auth("key-of-ada")).await;
    let reason = |name: &str| ready["degraded"][name].as_str().unwrap_or_default();
    for expected in ["not offered: a__odd (", "a__external (", "not checked: a__output (", "a__output_external ("] {
        assert!(reason("mcp:a").contains(expected), "{expected}: {ready}");
    }
    assert!(reason("mcp:two").contains("picture (two tools have the name \"picture\""), "{ready}");
    assert!(!reason("mcp:one").contains("picture"), "{ready}");

    let listed = full_list(&app, "key-of-ada").await;
    let found = |name: &str, member: &str| {
        let mut all = listed.iter().filter(|tool| tool["name"] == name);
        all.find_map(|tool| tool[member].as_str()).unwrap_or_default().to_owned()
    };
    for name in ["a__odd", "a__external", "picture"] {
        assert!(!found(name, "unavailable").is_empty(), "{name}: {listed:?}");
    }
    for name in ["a__output", "a__output_external"] {
        assert!(found(name, "unavailable").is_empty() && !found(name, "output_schema_problem").is_empty(), "{name}");
    }
    assert!(listed.iter().any(|tool| tool["name"] == "a__older" && tool["unavailable"].is_null()), "{listed:?}");
    let of_eve = full_list(&app, "key-of-eve").await;
    assert!(
        !of_eve.iter().any(|tool| tool["source"] == "mcp:a"),
        "its roles hide also what is not offered: {of_eve:?}"
    );

    for revision in [OLDER, NEWER] {
        let client = McpClient::connect_as(&app, revision, Some("key-of-ada")).await;
        let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
        let tool = listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "a__output").unwrap();
        assert!(tool["outputSchema"].is_null(), "{tool}");
        let called = client.result("tools/call", json!({"name": "a__output", "arguments": {}}), "CallToolResult").await;
        assert_ne!(called["isError"], true, "{called}");
    }
    app.stop().await;
}

#[tokio::test]
async fn prompts_and_resources_that_cannot_be_offered_are_listed_with_the_reason() {
    let directory = TempDir::new().unwrap();
    let listed = directory.path().join("lists.json");
    let lists = json!({
        "tools": [tool("fine", &json!({"type": "object"}), None)],
        "prompts": [
            {"name": "ask", "arguments": [{"name": "city", "default": "Bern"}]},
            {"name": "ask"}, {"title": "nameless"}, {"name": "odd", "arguments": 7},
        ],
        "resources": [{"uri": "demo://fine", "name": "fine"}, {"uri": "demo://nameless"}, {"name": "nowhere"}],
    });
    fs::write(&listed, lists.to_string()).unwrap();
    let of_friends = server_of_with(&listed, "roles: [friend]");
    let servers =
        [("a", of_friends), ("one", server("fine", "prefix: never")), ("two", server("fine", "prefix: never"))];
    let app = TestApp::with(&format!("{KEYS}{}", yaml(&servers))).await;
    ready(&app).await;

    let expected = [
        ("a__ask", "prompt", "another prompt of this name"),
        ("a__", "prompt", "missing field `name`"),
        ("a__odd", "prompt", "violates the protocol"),
        ("a+demo://nameless", "resource", "missing field `name`"),
        ("a+nowhere", "resource", "missing field `uri`"),
        ("greet", "prompt", "the MCP server one"),
    ];
    let listed = full_list(&app, "key-of-ada").await;
    for (name, kind, reason) in expected {
        let found = listed.iter().find(|item| item["name"] == name && item["kind"] == kind);
        let found = found.unwrap_or_else(|| panic!("{name}: {listed:?}"));
        assert!(found["unavailable"].as_str().unwrap().contains(reason), "{found}");
    }
    let of_eve = full_list(&app, "key-of-eve").await;
    assert!(!of_eve.iter().any(|item| item["source"] == "mcp:a"), "its roles hide them: {of_eve:?}");
    let (_, ready) = answer(app.get("/readyz").bearer_auth("key-of-ada")).await;
    let reason = |name: &str| ready["degraded"][name].as_str().unwrap_or_default();
    for part in ["prompts and resources that are not offered: ", "resource a+demo://nameless (", "and 2 more"] {
        assert!(reason("mcp:a").contains(part), "{part}: {ready}");
    }
    assert!(reason("mcp:two").contains("prompt greet (callers who may use the MCP server one get"), "{ready}");
    let client = McpClient::connect_as(&app, OLDER, Some("key-of-ada")).await;
    let offered = client.result("prompts/list", json!({}), "ListPromptsResult").await;
    let names: Vec<_> = offered["prompts"].as_array().unwrap().iter().map(|prompt| &prompt["name"]).collect();
    assert_eq!(names, ["a__ask", "greet"]);
    assert_eq!(offered["prompts"][0]["arguments"][0]["default"], "Bern", "a member that the protocol does not have");
    let offered = client.result("resources/list", json!({}), "ListResourcesResult").await;
    let uris: Vec<_> = offered["resources"].as_array().unwrap().iter().map(|resource| &resource["uri"]).collect();
    assert_eq!(uris, ["a+demo://fine", "demo://one", "demo://one"]);
    app.stop().await;
}

#[tokio::test]
async fn annotations_that_the_protocol_does_not_define_are_passed_on() {
    let directory = TempDir::new().unwrap();
    let listed = directory.path().join("tools.json");
    let said = json!({"category": "Input automation", "readOnlyHint": true, "title": "Click"});
    let mut annotated = tool("click", &json!({"type": "object"}), None);
    annotated["annotations"] = said.clone();
    fs::write(&listed, json!([annotated, tool("plain", &json!({"type": "object"}), None)]).to_string()).unwrap();
    let app = TestApp::with(&yaml(&[("a", server_of_with(&listed, ""))])).await;
    ready(&app).await;
    for revision in [OLDER, NEWER] {
        let client = McpClient::connect(&app, revision).await;
        let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
        let annotations = |name: &str| {
            let mut tools = listed["tools"].as_array().unwrap().iter();
            tools.find(|tool| tool["name"] == name).unwrap().get("annotations").cloned()
        };
        assert_eq!((annotations("a__click"), annotations("a__plain")), (Some(said.clone()), None), "{revision}");
    }
    app.stop().await;
}

/// A tool, a prompt and a resource of each name; one more tool of each generation.
fn write_lists(file: &Path, generation: usize) {
    let named = |n: usize| format!("same_{n}");
    let mut tools: Vec<_> = (0..1_000).map(|n| tool(&named(n), &json!({"type": "object"}), None)).collect();
    tools.push(tool(&format!("generation_{generation}"), &json!({"type": "object"}), None));
    let prompts: Vec<_> = (0..1_000).map(|n| json!({"name": named(n)})).collect();
    let resources: Vec<_> =
        (0..1_000).map(|n| json!({"name": named(n), "uri": format!("demo://{}", named(n))})).collect();
    let whole = json!({"tools": tools, "prompts": prompts, "resources": resources}).to_string();
    // Renamed, so that the program never reads a part of it.
    let next = file.with_extension("next");
    fs::write(&next, whole).unwrap();
    fs::rename(next, file).unwrap();
}

async fn all_names(client: &McpClient, method: &str, member: &str) -> Vec<String> {
    let (mut names, mut params) = (Vec::new(), json!({}));
    loop {
        let page = client.reply(method, params.clone()).await["result"].clone();
        let items = page[member].as_array().unwrap_or_else(|| panic!("{method}: {page}"));
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["nextCursor"].as_str() else { return names };
        params = json!({"cursor": cursor});
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tools_prompts_and_resources_of_equal_names_are_followed_while_they_change() {
    let directory = TempDir::new().unwrap();
    let lists = directory.path().join("lists.json");
    write_lists(&lists, 0);
    let settings = server_of_with(&lists, "connect_timeout_seconds: 60, rate_limit: 100000");
    let app = TestApp::with(&format!("mcp:\n  max_tools_per_server: 2000\n  servers:\n    m: {settings}\n")).await;
    ready(&app).await;
    let client = McpClient::connect(&app, OLDER).await;
    for generation in 1..=5 {
        write_lists(&lists, generation);
        let expected = format!("m__generation_{generation}");
        let following = async {
            loop {
                let name = format!("same_{}", generation * 150);
                let call =
                    client.reply("tools/call", json!({"name": format!("m__{name}"), "arguments": {"n": generation}}));
                let prompt = client.reply("prompts/get", json!({"name": format!("m__{name}")}));
                let uri = format!("m+demo://{name}");
                let read = client.reply("resources/read", json!({"uri": uri}));
                let (called, got, read) = tokio::join!(call, prompt, read);
                assert_eq!(called["result"]["content"][0]["text"], json!({"n": generation}).to_string(), "{called}");
                assert!(got["result"]["messages"].is_array(), "{got}");
                assert_eq!(read["result"]["contents"][0]["uri"], uri, "{read}");
                let names = all_names(&client, "tools/list", "tools").await;
                if names.contains(&expected) {
                    return names;
                }
            }
        };
        let names = tokio::time::timeout(Duration::from_secs(30), following).await.expect("the change is followed");
        let of_server = names.iter().filter(|name| name.starts_with("m__")).count();
        assert_eq!(of_server, 1_001, "none is lost, and none of an earlier list is left");
        for (method, member) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
            assert_eq!(all_names(&client, method, member).await.len(), 1_000, "{method}");
        }
    }
    let (_, ready) = answer(app.get("/readyz")).await;
    assert!(ready["degraded"]["mcp:m"].is_null(), "{ready}");
    app.stop().await;
}
