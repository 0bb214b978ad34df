//! Virtual servers: a part of the tools at an address of its own.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::client::McpClient;
use super::{NEWER, OLDER};
use crate::app::{TestApp, answer, code};
use crate::keys::as_holder;

const YAML: &str = "
auth:
  anonymous: never
  api_keys:
    - {id: ada, key: key-of-ada, roles: [admin]}
    - {id: carl, key: key-of-carl, roles: [clerk]}
    - {id: eve, key: key-of-eve}
mcp:
  endpoints:
    finance: {tools: [calc*, echo], roles: [clerk, admin], instructions: 'Sums for the books.'}
    searched: {search: true}
";

fn client(app: &TestApp, revision: &'static str, key: &str, endpoint: &str) -> McpClient {
    McpClient::new(app, revision, Some(key)).at_endpoint(endpoint)
}

async fn names(client: &McpClient) -> Vec<String> {
    let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
    listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn call_of(tool: &str) -> Value {
    json!({"name": tool, "arguments": {"expression": "6*7"}})
}

#[tokio::test]
async fn an_endpoint_shows_and_calls_its_tools_alone() {
    let app = TestApp::with(YAML).await;
    for revision in [NEWER, OLDER] {
        let mut finance = client(&app, revision, "key-of-carl", "finance");
        if revision == OLDER {
            finance = finance.introduced().await;
        }
        assert_eq!(names(&finance).await, ["calculator", "echo"], "{revision}");
        let called = finance.result("tools/call", call_of("calculator"), "CallToolResult").await;
        assert_eq!(called["content"][0]["text"], "42", "{revision}: {called}");
        let refused = finance.reply("tools/call", call_of("json_query")).await;
        assert!(refused.to_string().contains("unknown_tool") || refused["error"].is_object(), "{revision}: {refused}");
        assert_ne!(refused["result"]["isError"], false, "{revision}: {refused}");
    }
    let whole = McpClient::new(&app, NEWER, Some("key-of-carl"));
    assert!(names(&whole).await.len() > 2, "the other tools are at /mcp");
}

#[tokio::test]
async fn a_tool_with_a_long_name_is_listed_and_called_by_a_shorter_one() {
    let long = "calculator_of_sums_for_the_books";
    let app = TestApp::with(&format!(
        "{YAML}    short: {{tools: [calc*], max_name_length: 20}}\ntools: {{overrides: {{calculator: {{rename: {long}}}}}}}\n"
    ))
    .await;
    for revision in [NEWER, OLDER] {
        let mut short = client(&app, revision, "key-of-eve", "short");
        if revision == OLDER {
            short = short.introduced().await;
        }
        let listed = names(&short).await;
        assert!(listed.len() == 1 && listed[0].len() == 20 && listed[0].starts_with("calculator_"), "{listed:?}");
        for name in [&*listed[0], long] {
            let called = short.result("tools/call", call_of(name), "CallToolResult").await;
            assert_eq!(called["content"][0]["text"], "42", "{revision} {name}: {called}");
        }
        // Elsewhere it has its own name alone.
        let mut whole = McpClient::new(&app, revision, Some("key-of-eve"));
        if revision == OLDER {
            whole = whole.introduced().await;
        }
        assert!(names(&whole).await.contains(&long.to_owned()));
        assert!(whole.reply("tools/call", call_of(&listed[0])).await["error"].is_object());
    }
}

#[tokio::test]
async fn an_endpoint_has_instructions_and_a_listing_of_its_own() {
    let app = TestApp::with(YAML).await;
    let finance = client(&app, NEWER, "key-of-carl", "finance");
    let discovered = finance.result("server/discover", json!({}), "DiscoverResult").await;
    assert!(discovered["instructions"].as_str().unwrap().starts_with("Sums for the books."), "{discovered}");
    let whole = McpClient::new(&app, NEWER, Some("key-of-carl"));
    let discovered = whole.result("server/discover", json!({}), "DiscoverResult").await;
    assert!(!discovered.to_string().contains("Sums for the books."), "{discovered}");
    let searched = client(&app, NEWER, "key-of-eve", "searched");
    assert_eq!(names(&searched).await, ["call_tool", "describe_tool", "search_tools"]);
    let chosen = searched.with_header("x-sekisho-tools", "all");
    assert!(names(&chosen).await.contains(&"calculator".to_owned()), "a client may choose");
}

#[tokio::test]
async fn an_endpoint_is_there_for_its_roles_and_gives_nobody_more_than_they_have() {
    let app = TestApp::with(YAML).await;
    for (key, endpoint) in [("key-of-eve", "finance"), ("key-of-carl", "no_such")] {
        let (status, reply) = client(&app, NEWER, key, endpoint).send("tools/list", json!({})).await;
        assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "not_found"), "{reply}");
    }
    let (status, _) = client(&app, NEWER, "wrong", "finance").send("tools/list", json!({})).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    // A key that has one of the endpoint's tools sees that one.
    let wanted = json!({"roles": ["admin"], "tools": ["calculator", "json_query"]});
    let (_, created) = as_holder(&app, "key-of-ada", Method::POST, "/admin/keys", Some(wanted)).await;
    let limited = client(&app, NEWER, created["token"].as_str().unwrap(), "finance");
    assert_eq!(names(&limited).await, ["calculator"]);
}

/// What began at one endpoint is not used at another, nor with a key that has other tools.
#[tokio::test]
async fn a_session_belongs_to_its_endpoint() {
    let app = TestApp::with(YAML).await;
    let finance = client(&app, OLDER, "key-of-carl", "finance").introduced().await;
    let mut elsewhere = McpClient::new(&app, OLDER, Some("key-of-carl"));
    elsewhere.session.clone_from(&finance.session);
    let (status, reply) = elsewhere.send("tools/list", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_session"), "{reply}");
    assert_eq!(names(&finance).await, ["calculator", "echo"]);
}

#[tokio::test]
async fn the_list_over_rest_is_narrowed_by_an_endpoint() {
    let app = TestApp::with(YAML).await;
    for path in ["/tools", "/tools/list"] {
        let list =
            async |key: &str, query: &str| as_holder(&app, key, Method::GET, &format!("{path}{query}"), None).await;
        assert_eq!(list("key-of-carl", "?endpoint=finance").await.1, json!(["calculator", "echo"]));
        let (_, detailed) = list("key-of-carl", "?endpoint=finance&detail=full").await;
        assert_eq!(detailed.as_array().unwrap().len(), 2, "{detailed}");
        assert!(list("key-of-carl", "").await.1.as_array().unwrap().len() > 2);
        let (status, reply) = list("key-of-eve", "?endpoint=finance").await;
        assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "not_found"));
    }
    assert_eq!(answer(app.get("/tools")).await.0, StatusCode::UNAUTHORIZED);
}
