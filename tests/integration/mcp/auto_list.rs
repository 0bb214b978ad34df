//! `tools: auto`: lists within a budget of tokens.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::McpClient;
use super::{NEWER, OLDER};
use crate::app::TestApp;
use crate::mcp_programs::server_of_with;
use crate::mcp_servers::{ready, yaml};

const SEARCH: [&str; 3] = ["call_tool", "describe_tool", "search_tools"];

async fn listed(client: &McpClient) -> Vec<Value> {
    client.result("tools/list", json!({}), "ListToolsResult").await["tools"].as_array().unwrap().clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// By the estimate of the gateway.
fn tokens(tools: &[Value]) -> usize {
    let length = |tool: &Value, field: &str| tool[field].as_str().unwrap_or_default().len();
    let bytes =
        |tool: &Value| length(tool, "name") + length(tool, "description") + tool["inputSchema"].to_string().len();
    tools.iter().map(|tool| bytes(tool).div_ceil(4)).sum()
}

async fn call(client: &McpClient, name: &str, arguments: Value) -> Value {
    let called = client.result("tools/call", json!({"name": name, "arguments": arguments}), "CallToolResult").await;
    assert_ne!(called["isError"], true, "{called}");
    called
}

/// The list of 500 tools, about 1.5 KB each.
fn many_tools(description: &str) -> Value {
    let place = json!({"title": "Place", "type": "object", "properties": {
        "street": {"title": "Street", "type": "string", "description": "The street, with the number of the house."},
        "city": {"title": "City", "type": "string", "examples": ["Kyoto", "Nara", "Osaka"]},
    }});
    let schema = json!({"type": "object", "properties": {"from": place, "to": place, "through": place}});
    let tool = |number| json!({"name": format!("send_{number:03}"), "description": description, "inputSchema": schema});
    (0..500).map(tool).collect()
}

#[tokio::test]
async fn of_five_hundred_tools_the_used_ones_are_listed_within_the_budget() {
    let (directory, description) = (TempDir::new().unwrap(), "Sends a record to the warehouse. ".repeat(20));
    let file = directory.path().join("tools.json");
    fs::write(&file, many_tools(&description).to_string()).unwrap();
    let servers = yaml(&[("crm", server_of_with(&file, ""))]);
    let app = TestApp::with(&servers).await;
    ready(&app).await;
    let auto = async |revision| McpClient::connect(&app, revision).await.with_header("x-sekisho-tools", "auto");

    let before = tokens(&listed(&McpClient::connect(&app, NEWER).await).await);
    let client = auto(NEWER).await;
    let first = listed(&client).await;
    assert_eq!(names(&first), SEARCH, "nothing was used yet");
    let after = tokens(&first);
    assert!(before > 150_000 && after < 400, "{before} tokens before, {after} after");

    let found = call(&client, "search_tools", json!({"query": "send a record to the warehouse"})).await;
    assert!(found["structuredContent"]["tools"][0]["name"].as_str().unwrap().starts_with("crm__send_"), "{found}");
    let whole = call(&client, "describe_tool", json!({"name": "crm__send_007"})).await;
    assert_eq!(whole["structuredContent"]["description"].as_str().unwrap().trim(), description.trim());
    call(&client, "call_tool", json!({"name": "crm__send_007", "arguments": {}})).await;
    assert_eq!(listed(&client).await, first, "a list stays as it is");

    let session = auto(OLDER).await;
    let with_used = listed(&session).await;
    assert_eq!(names(&with_used), [&SEARCH[..], &["crm__send_007"]].concat());
    let (short, schema) = (with_used[3]["description"].as_str().unwrap(), &with_used[3]["inputSchema"]);
    assert!(short.len() < description.len() && short.ends_with('…'), "{short}");
    assert_eq!(schema["properties"]["from"], schema["properties"]["to"]);
    assert!(schema["properties"]["to"]["$ref"].is_string(), "{schema}");
    assert!(tokens(&with_used) <= 8_000);
    call(&session, "crm__send_400", json!({})).await;
    assert_eq!(listed(&session).await, with_used, "a list stays as it is");

    let both = [&SEARCH[..], &["crm__send_007", "crm__send_400"]].concat();
    assert_eq!(names(&listed(&auto(OLDER).await).await), both);
    let mut changed =
        crate::app::config(&app.directory, &format!("{servers}tools: {{overrides: {{echo: {{hidden: true}}}}}}\n"));
    changed.server = app.gateway.configuration().current().server.clone();
    app.gateway.reload(changed).await;
    ready(&app).await;
    assert_eq!(names(&listed(&session).await), both, "the tools have changed");
    app.stop().await;
}

#[tokio::test]
async fn all_tools_are_listed_as_they_are_where_they_fit() {
    for (budget, is_whole) in [(1_000_000, true), (1, false)] {
        let app = TestApp::with(&format!("server: {{mcp: {{tools: auto, max_listed_tokens: {budget}}}}}")).await;
        for revision in [NEWER, OLDER] {
            let client = McpClient::connect(&app, revision).await;
            let (auto, all) =
                (listed(&client).await, listed(&client.clone().with_header("x-sekisho-tools", "all")).await);
            let searched =
                client.reply("tools/call", json!({"name": "search_tools", "arguments": {"query": "sums"}})).await;
            match is_whole {
                true => assert_eq!(auto, all),
                false => assert_eq!(names(&auto), SEARCH),
            }
            assert_eq!(searched["error"].is_object(), is_whole, "{revision}: {searched}");
        }
    }
}
