//! Apps of tools: `ui://` resources of servers are read as the tools name them.

use serde_json::{Value, json};

use super::client::McpClient;
use super::{NEWER, OLDER};
use crate::app::TestApp;
use crate::extended::{KINDS, Reach, gateway, settings};

const HTML: &str = "text/html;profile=mcp-app";

/// A client that shows apps.
async fn host(app: &TestApp, revision: &'static str) -> McpClient {
    let apps = json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [HTML]}}});
    McpClient::connect_with(app, revision, apps).await
}

async fn tool(client: &McpClient, name: &str) -> Option<Value> {
    let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
    listed["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).cloned()
}

async fn read(client: &McpClient, uri: &str) -> Value {
    let read = client.result("resources/read", json!({"uri": uri}), "ReadResourceResult").await;
    read["contents"][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_app_of_a_tool_is_read_as_the_tool_names_it() {
    for kind in KINDS {
        for (more, name, uri, listed) in [
            ("", "m__board", "ui://m/app/main.html", "ui://m/app/listed.html"),
            ("prefix: never", "board", "ui://app/main.html", "ui://app/listed.html"),
            ("alias: other", "other__board", "ui://other/app/main.html", "ui://other/app/listed.html"),
        ] {
            let app = gateway(&[("m", settings(kind, more).await)], "").await;
            for revision in [NEWER, OLDER] {
                let client = host(&app, revision).await;
                let board = tool(&client, name).await.unwrap();
                assert_eq!(board["_meta"]["ui"]["resourceUri"], uri, "{kind:?} {revision}: {board}");
                assert_eq!(board["_meta"]["ui/resourceUri"], uri, "{kind:?} {revision}: {board}");
                let content = read(&client, uri).await;
                assert_eq!(content["text"], "<p>ui://app/main.html</p>");
                assert_eq!((&content["uri"], &content["mimeType"]), (&json!(uri), &json!(HTML)));
                assert_eq!(content["_meta"]["ui"]["prefersBorder"], true);
                let resources = client.result("resources/list", json!({}), "ListResourcesResult").await;
                assert_eq!(resources["resources"][0]["uri"], listed);
                assert_eq!(read(&client, listed).await["uri"], listed);
                let called = client.result("tools/call", json!({"name": name}), "CallToolResult").await;
                assert_eq!(called["_meta"]["ui"]["resourceUri"], uri, "{called}");
                assert_eq!(called["content"][0]["uri"], uri, "{called}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_with_the_same_app_are_told_apart() {
    let kind = (Reach::Http, false);
    let servers = [("a", settings(kind, "").await), ("b", settings(kind, "roles: [clerk]").await)];
    let keys = "auth: {anonymous: always, api_keys: [{id: carl, key: key-of-carl, roles: [clerk]}]}\n";
    let app = gateway(&servers, keys).await;
    let clerk = host(&app, NEWER).await.with_key("key-of-carl");
    assert_eq!(read(&clerk, "ui://b/app/main.html").await["uri"], "ui://b/app/main.html");
    let anonymous = host(&app, NEWER).await;
    assert_eq!(read(&anonymous, "ui://a/app/main.html").await["uri"], "ui://a/app/main.html");
    for uri in ["ui://b/app/main.html", "ui://app/main.html", "ui://c/app/main.html"] {
        let refused = anonymous.reply("resources/read", json!({"uri": uri})).await;
        assert_eq!(refused["error"]["code"], -32602, "{uri}: {refused}");
    }
    let line = "shannon_tool_executions_total{status=\"success\",tool_name=\"b__resources_read\"}";
    assert_eq!(app.metric(line).await, 1.0, "an app is read like any resource");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_for_apps_alone_are_listed_for_clients_that_show_apps() {
    let app = gateway(&[("m", settings((Reach::Program, true), "").await)], "").await;
    for revision in [NEWER, OLDER] {
        assert!(tool(&host(&app, revision).await, "m__refresh").await.is_some(), "{revision}");
        let plain = McpClient::connect(&app, revision).await;
        assert!(tool(&plain, "m__board").await.is_some() && tool(&plain, "m__refresh").await.is_none(), "{revision}");
        let search = plain.with_header("x-sekisho-tools", "search");
        let query = json!({"name": "search_tools", "arguments": {"query": "refresh"}});
        let found = search.result("tools/call", query, "CallToolResult").await;
        assert_eq!(found["structuredContent"]["tools"], json!([]), "{revision}: {found}");
    }
}
