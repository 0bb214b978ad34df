//! `/mcp`: what an MCP client finds there, with sessions and without. Every message is held against the
//! protocol's own JSON Schemas (`tests/fixtures/mcp/`).

mod apps;
mod at_once;
mod auto_list;
pub(crate) mod client;
mod endpoints;
mod forwarded;
mod hostile;
mod operations;
mod pages;
mod replicas;
mod revisions;
mod sessionless;
pub(crate) mod stdio;
mod streams;
mod tasks;
mod tools;
mod upstream;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::client::McpClient;
use self::tools::ConversingTools;
use crate::app::{TestApp, answer};

pub(crate) const NEWER: &str = "2026-07-28";
pub(crate) const OLDER: &str = "2025-11-25";

/// Two callers, one of them a clerk, and a tool that only clerks may use.
const TWO_CALLERS: &str = "
auth:
  api_keys:
    - {id: alice, key: key-of-alice}
    - {id: carl, key: key-of-carl, roles: [clerk]}
tools:
  overrides:
    paid: {roles: [clerk]}
";

async fn app() -> TestApp {
    TestApp::with_tools_of(TempDir::new().unwrap(), "", vec![Box::new(ConversingTools)]).await
}

#[tokio::test]
async fn tools_are_listed_and_called_without_and_with_a_session() {
    let app = TestApp::start().await;
    for revision in [NEWER, OLDER] {
        let client = McpClient::connect(&app, revision).await;
        let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
        let names: Vec<_> =
            listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert!(names.is_sorted() && names.contains(&"calculator"), "{revision}: {names:?}");
        let called = client
            .result("tools/call", json!({"name": "calculator", "arguments": {"expression": "6*7"}}), "CallToolResult")
            .await;
        assert_eq!(called["content"][0]["text"], "42", "{revision}: {called}");
        assert_ne!(called["isError"], true, "{revision}");
    }
}

#[tokio::test]
async fn a_refusal_contains_the_remedy_for_a_model() {
    let app = TestApp::start().await;
    for revision in [NEWER, OLDER] {
        let client = McpClient::connect(&app, revision).await;
        let refused =
            client.result("tools/call", json!({"name": "calculator", "arguments": {}}), "CallToolResult").await;
        assert_eq!(refused["isError"], true, "{revision}");
        assert_eq!(refused["structuredContent"]["error_info"]["code"], "invalid_arguments", "{revision}");
        assert!(refused["content"][0]["text"].as_str().unwrap().contains("expression"), "{revision}: {refused}");
        let failed = client.result("tools/call", json!({"name": "fail"}), "CallToolResult").await;
        assert_eq!(failed["structuredContent"]["output"], json!({"tried": true}), "{revision}: {failed}");
    }
}

#[tokio::test]
async fn a_tool_that_is_not_for_the_caller_does_not_exist() {
    let app = TestApp::with(TWO_CALLERS).await;
    for (key, is_there) in [("key-of-carl", true), ("key-of-alice", false)] {
        let client = McpClient::connect_as(&app, NEWER, Some(key)).await;
        let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
        assert_eq!(listed["cacheScope"], "private");
        let is_listed = listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "paid");
        assert_eq!(is_listed, is_there, "{key}");
        let reply = client.reply("tools/call", json!({"name": "paid", "arguments": {}})).await;
        assert_eq!(reply["error"]["code"], if is_there { Value::Null } else { json!(-32602) }, "{key}: {reply}");
        // It is indistinguishable from a tool that does not exist, and is not listed.
        let unknown = client.reply("tools/call", json!({"name": "pai", "arguments": {}})).await;
        assert_eq!(unknown["error"]["code"], -32602);
        assert_eq!(unknown.to_string().contains("paid"), is_there, "{key}: {unknown}");
    }
    let audited = app.metric(r#"shannon_tool_executions_total{status="refused",tool_name="paid"}"#).await;
    assert_eq!(audited, 1.0, "the attempt was written down");
}

#[tokio::test]
async fn headers_that_differ_from_the_body_are_refused_before_any_limit() {
    let app = TestApp::start().await;
    let client = McpClient::connect(&app, NEWER).await;
    for (header, value) in [("mcp-name", "echo"), ("mcp-method", "tools/list"), ("mcp-protocol-version", OLDER)] {
        let params = json!({"name": "calculator", "arguments": {"expression": "1"}});
        let (status, reply) = client.send_with("tools/call", params, &[(header, value)]).await;
        assert_eq!((status, &reply["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32020)), "{header}: {reply}");
    }
    assert_eq!(app.metric(r#"shannon_tool_executions_total{status="success",tool_name="calculator"}"#).await, 0.0);
}

#[tokio::test]
async fn a_web_page_from_elsewhere_is_refused() {
    let app = TestApp::with("server: {mcp: {allowed_origins: ['https://app.example:*']}}").await;
    let client = McpClient::connect(&app, NEWER).await;
    for (origin, is_authorized) in [
        ("https://evil.example", false),
        ("null", false),
        ("http://localhost.evil.example", false),
        ("http://localhost:3000", true),
        ("https://app.example", true),
    ] {
        let (status, _) = client.send_with("tools/list", json!({}), &[("origin", origin)]).await;
        assert_eq!(status, if is_authorized { StatusCode::OK } else { StatusCode::FORBIDDEN }, "{origin}");
    }
}

#[tokio::test]
async fn a_session_is_its_callers_alone_and_ends_when_deleted() {
    let app = TestApp::with(TWO_CALLERS).await;
    let client = McpClient::connect_as(&app, OLDER, Some("key-of-alice")).await;
    let session = client.session.clone().unwrap();
    let thief = client.with_key("key-of-carl");
    let (status, _) = thief.send("tools/list", json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    for (key, expected) in [("key-of-carl", StatusCode::NOT_FOUND), ("key-of-alice", StatusCode::NO_CONTENT)] {
        let deleted = app.client.delete(format!("{}/mcp", app.url)).header("x-api-key", key);
        let status = deleted.header("mcp-session-id", &session).send().await.unwrap().status();
        assert_eq!(status, expected, "{key}");
    }
    let (status, _) = client.send("tools/list", json!({})).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "it has ended");
}

#[tokio::test]
async fn for_one_session_too_many_the_least_recently_used_ends() {
    let app = TestApp::with("server: {mcp: {max_sessions_per_caller: 2}}").await;
    let (first, second) = (McpClient::connect(&app, OLDER).await, McpClient::connect(&app, OLDER).await);
    assert_eq!(first.send("tools/list", json!({})).await.0, StatusCode::OK);
    let third = McpClient::connect(&app, OLDER).await;
    for (client, expected) in [(&first, StatusCode::OK), (&second, StatusCode::NOT_FOUND), (&third, StatusCode::OK)] {
        assert_eq!(client.send("tools/list", json!({})).await.0, expected);
    }
}

#[tokio::test]
async fn who_may_not_come_in_learns_where_to_sign_in() {
    let jwt = "auth: {anonymous: never, jwt: {issuer: 'https://issuer.example', audience: sekisho, jwks_url: 'https://issuer.example/keys'}}";
    let app = TestApp::with(jwt).await;
    let refused = app.post("/mcp").json(&json!({})).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    let challenge = refused.headers()["www-authenticate"].to_str().unwrap().to_owned();
    let named = challenge.split('"').nth(1).unwrap_or_else(|| panic!("{challenge}")).to_owned();
    let (status, document) = answer(app.client.get(named)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(document["resource"], format!("{}/mcp", app.url));
    assert_eq!(document["authorization_servers"], json!(["https://issuer.example"]));
    let (status, _) = answer(TestApp::start().await.get("/.well-known/oauth-protected-resource")).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "without tokens there is nothing to sign in to");
}

#[tokio::test]
async fn bodies_that_two_readers_could_read_differently_are_refused() {
    let app = TestApp::start().await;
    let client = McpClient::connect(&app, NEWER).await;
    for body in
        [r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}"#, r#"{"jsonrpc":"2.0","id":1,"#, ""]
    {
        let (status, reply) = client.send_raw(body.to_owned(), &[]).await;
        assert_eq!((status, &reply["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32700)), "{body}: {reply}");
        client.check("JSONRPCMessage", &reply);
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_stops_its_call() {
    let app = TestApp::start().await;
    let client = McpClient::connect(&app, NEWER).await;
    let call = client.send("tools/call", json!({"name": "sleep", "arguments": {"ms": 60_000}}));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(300), call).await.is_err());
    let cancelled = r#"shannon_tool_executions_total{status="cancelled",tool_name="sleep"}"#;
    for _ in 0..100 {
        if app.metric(cancelled).await == 1.0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the call was not cancelled:\n{}", app.metrics().await);
}

#[tokio::test]
async fn a_cancelled_notification_stops_the_call_of_a_session_whichever_comes_first() {
    let app = TestApp::start().await;
    let client = McpClient::connect(&app, OLDER).await;
    let cancelled = r#"shannon_tool_executions_total{status="cancelled",tool_name="sleep"}"#;
    for overtakes in [false, true] {
        let call = client.send("tools/call", json!({"name": "sleep", "arguments": {"ms": 60_000}}));
        let take_back = json!({"requestId": client.last_id() + 1});
        if overtakes {
            client.notify("notifications/cancelled", take_back.clone()).await;
        }
        let cancel = async {
            if !overtakes {
                while app.gateway.pipeline.limits.in_flight() == 0 {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                client.notify("notifications/cancelled", take_back).await;
            }
        };
        let both = async { tokio::join!(call, cancel) };
        let ((_, reply), ()) = tokio::time::timeout(std::time::Duration::from_secs(5), both).await.expect("an end");
        assert_eq!(reply, Value::Null, "nobody waits for an answer");
        for _ in 0..100 {
            if app.gateway.pipeline.limits.in_flight() == 0 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(app.gateway.pipeline.limits.in_flight(), 0, "overtakes: {overtakes}");
    }
    assert!(app.metric(cancelled).await >= 1.0, "one that had not begun leaves no trace");
    assert_eq!(
        client.reply("tools/call", json!({"name": "sleep", "arguments": {"ms": 1}})).await["result"]["isError"],
        false
    );
}

#[tokio::test]
async fn a_running_call_notifies_and_questions_the_client_of_a_session() {
    let app = app().await;
    let client = McpClient::connect(&app, OLDER).await;
    let messages = client
        .converse("tools/call", json!({"name": "ask_name", "_meta": {"progressToken": "p"}}), |request| {
            assert_eq!(request["method"], "elicitation/create");
            json!({"action": "accept", "content": {"name": "Alice"}})
        })
        .await;
    let methods: Vec<_> = messages.iter().filter_map(|message| message["method"].as_str()).collect();
    assert_eq!(methods, ["notifications/progress", "elicitation/create"], "{messages:?}");
    let result = &messages.last().unwrap()["result"];
    assert_eq!(result["content"][0]["text"], "Hello, Alice!", "{messages:?}");
}

#[tokio::test]
async fn a_running_call_questions_a_sessionless_client_through_further_requests() {
    let app = app().await;
    let client = McpClient::connect(&app, NEWER).await;
    let params = json!({"name": "ask_name", "arguments": {}});
    let asked = client.result("tools/call", params.clone(), "InputRequiredResult").await;
    assert_eq!(asked["inputRequests"]["name"]["method"], "elicitation/create");
    let retry = |answers: Value, state: &Value| {
        let mut params = params.clone();
        params["inputResponses"] = answers;
        params["requestState"] = state.clone();
        params
    };
    let accepted = json!({"name": {"action": "accept", "content": {"name": "Alice"}}});
    let state = &asked["requestState"];

    // Not with another state, for another request, or with something that is no answer.
    let altered = json!(format!("{}x", state.as_str().unwrap()));
    assert_eq!(client.reply("tools/call", retry(accepted.clone(), &altered)).await["error"]["code"], -32602);
    let mut other = retry(accepted.clone(), state);
    other["arguments"] = json!({"other": true});
    assert_eq!(client.reply("tools/call", other).await["error"]["code"], -32602);
    assert_eq!(client.reply("tools/call", retry(json!({"name": 5}), state)).await["error"]["code"], -32602);
    // Without its answer the question is sent again.
    let again = client.result("tools/call", retry(json!({"wrong": {}}), state), "InputRequiredResult").await;

    let reported = client.result("tools/call", retry(accepted.clone(), &again["requestState"]), "CallToolResult").await;
    assert_eq!(reported["content"][0]["text"], "Hello, Alice!");
    // A state is good for one answer.
    assert_eq!(client.reply("tools/call", retry(accepted, state)).await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_request_state_opens_nothing_for_another_caller_or_replica() {
    let app = TestApp::with_tools_of(TempDir::new().unwrap(), TWO_CALLERS, vec![Box::new(ConversingTools)]).await;
    let replica = TestApp::with_tools_of(TempDir::new().unwrap(), TWO_CALLERS, vec![Box::new(ConversingTools)]).await;
    let client = McpClient::connect_as(&app, NEWER, Some("key-of-alice")).await;
    let asked = client.result("tools/call", json!({"name": "ask_name"}), "InputRequiredResult").await;
    let retry = json!({
        "name": "ask_name", "requestState": asked["requestState"],
        "inputResponses": {"name": {"action": "accept", "content": {"name": "Mallory"}}},
    });
    let elsewhere = McpClient::connect_as(&replica, NEWER, Some("key-of-alice")).await;
    for other in [client.with_key("key-of-carl"), elsewhere] {
        let refused = other.reply("tools/call", retry.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("without it"), "{refused}");
    }
    let reported = client.result("tools/call", retry, "CallToolResult").await;
    assert_eq!(reported["content"][0]["text"], "Hello, Mallory!", "its own caller may still answer");
}

#[tokio::test]
async fn a_client_without_question_support_gets_no_questions() {
    let app = app().await;
    let client = McpClient::connect(&app, NEWER).await.without_capabilities();
    let (status, refused) = client.send("tools/call", json!({"name": "ask_name"})).await;
    assert_eq!((status, &refused["error"]["code"]), (StatusCode::BAD_REQUEST, &json!(-32021)), "{refused}");
    assert_eq!(refused["error"]["data"]["requiredCapabilities"], json!({"elicitation": {}}));
}

#[tokio::test]
async fn clients_are_notified_when_the_tools_change() {
    let app = TestApp::start().await;
    for (revision, tool) in [(NEWER, "echo"), (OLDER, "paid")] {
        let client = McpClient::connect(&app, revision).await;
        let mut news = client.listen(json!({"toolsListChanged": true})).await;
        let yaml = format!("tools: {{overrides: {{{tool}: {{hidden: true}}}}}}");
        let mut config = crate::app::config(&app.directory, &yaml);
        config.server = app.gateway.configuration().current().server.clone();
        app.gateway.reload(config).await;
        let reported = news.next_of("notifications/tools/list_changed").await;
        client.check_message(&reported);
    }
}

#[tokio::test]
async fn a_large_catalogue_can_be_searched_instead_of_listed() {
    let app = TestApp::start().await;
    let client = McpClient::connect(&app, NEWER).await.with_header("x-sekisho-tools", "search");
    let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["call_tool", "describe_tool", "search_tools"]);
    let call = async |name: &str, arguments: Value| {
        client.result("tools/call", json!({"name": name, "arguments": arguments}), "CallToolResult").await
    };
    let found = call("search_tools", json!({"query": "arithmetic expression"})).await;
    assert_eq!(found["structuredContent"]["tools"][0]["name"], "calculator");
    let described = call("describe_tool", json!({"name": "calculator"})).await;
    assert!(described["structuredContent"]["inputSchema"]["properties"]["expression"].is_object(), "{described}");
    let called = call("call_tool", json!({"name": "calculator", "arguments": {"expression": "1+1"}})).await;
    assert_eq!(called["content"][0]["text"], "2");
    let nothing = call("search_tools", json!({})).await;
    assert_eq!(nothing["structuredContent"]["error_info"]["code"], "invalid_arguments");
}

#[tokio::test]
async fn in_code_mode_two_tools_are_listed_and_a_search_shows_how_programs_call_the_others() {
    let app = TestApp::start().await;
    for revision in [NEWER, OLDER] {
        let client = McpClient::connect(&app, revision).await.with_header("x-sekisho-tools", "code_mode");
        let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
        let names: Vec<_> =
            listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["run_python", "search_tools"]);
        let search = json!({"name": "search_tools", "arguments": {"query": "arithmetic expression", "limit": 50}});
        let found = client.result("tools/call", search, "CallToolResult").await;
        let hits = found["structuredContent"]["tools"].as_array().unwrap();
        assert_eq!(hits[0]["call"], "tools.calculator(expression: str) -> float | str", "{found}");
        assert!(!found.to_string().contains("tools.python_executor"), "{found}");
        let own = json!({"name": "calculator", "arguments": {"expression": "1+1"}});
        assert_eq!(client.result("tools/call", own, "CallToolResult").await["content"][0]["text"], "2");
    }
    let wrong = McpClient::new(&app, NEWER, None).with_header("x-sekisho-tools", "some");
    assert!(wrong.reply("tools/list", json!({})).await.to_string().contains("`code_mode`"));
}

#[tokio::test]
async fn a_quarantined_tool_is_not_listed_and_a_call_reports_it_to_authorized_callers() {
    let directory = TempDir::new().unwrap();
    let lock = directory.path().join("tools.lock");
    std::fs::write(&lock, r#"{"version": 1, "tools": {}}"#).unwrap();
    let yaml = format!("{TWO_CALLERS}  lock: '{}'\n", lock.display());
    let app = TestApp::in_directory(directory, &yaml).await;
    for revision in [NEWER, OLDER] {
        let alice = McpClient::connect_as(&app, revision, Some("key-of-alice")).await;
        let listed = alice.result("tools/list", json!({}), "ListToolsResult").await;
        let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert!(names.contains(&&json!("calculator")) && !names.contains(&&json!("echo")), "{names:?}");
        let refused = alice.result("tools/call", json!({"name": "echo"}), "CallToolResult").await;
        assert_eq!(refused["isError"], true, "{refused}");
        assert_eq!(refused["structuredContent"]["error_info"]["code"], "tool_changed", "{refused}");
        let hidden = alice.reply("tools/call", json!({"name": "paid"})).await;
        let nothing = alice.reply("tools/call", json!({"name": "pa1d"})).await;
        assert_eq!((&hidden["error"]["code"], &nothing["error"]["code"]), (&json!(-32602), &json!(-32602)));
        assert!(!hidden.to_string().contains("quarantined"), "{hidden}");
        let carl = McpClient::connect_as(&app, revision, Some("key-of-carl")).await;
        let refused = carl.result("tools/call", json!({"name": "paid"}), "CallToolResult").await;
        assert_eq!(refused["structuredContent"]["error_info"]["code"], "tool_changed", "{refused}");
    }
}
