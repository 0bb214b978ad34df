//! Lists of tools for each caller: what the caller may use, and what is a catalogue.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::Arc;

use reqwest::StatusCode;
use sekisho::{Caller, InProcess, Toolbox};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{TestApp, answer, config};
use crate::cli::sekisho;
use crate::mcp::client::{McpClient, initialize};
use crate::mcp::{NEWER, OLDER};

/// echo is dangerous, sleep wants a sign-in, paid is a clerk's, fail is refused by a rule on tool and user.
const YAML: &str = "
auth:
  api_keys:
    - {id: ada, key: key-of-ada, roles: [operator, clerk]}
    - {id: eve, key: key-of-eve}
tools:
  overrides:
    echo: {dangerous: true}
    sleep: {requires_auth: true}
    paid: {roles: [clerk]}
";
const RULE: &str = "package tools\ndeny[msg] { input.tool == \"fail\"; not has_role(input.user, \"clerk\"); msg := \"clerks only\" }\n";

/// The tools that callers differ in.
const WATCHED: [&str; 4] = ["echo", "fail", "paid", "sleep"];

async fn app_with(rule: &str) -> TestApp {
    let directory = TempDir::new().unwrap();
    std::fs::create_dir(directory.path().join("policies")).unwrap();
    std::fs::write(directory.path().join("policies/tools.rego"), rule).unwrap();
    let yaml = yaml(&directory);
    TestApp::in_directory(directory, &yaml).await
}

fn yaml(directory: &TempDir) -> String {
    format!("policy: {{directory: '{}'}}\n{YAML}", directory.path().join("policies").display())
}

async fn get(app: &TestApp, key: Option<&str>, path: &str) -> (StatusCode, Value) {
    let request = app.get(path);
    answer(match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    })
    .await
}

/// Which of the watched tools a list contains, in any form.
fn named(list: &Value) -> BTreeSet<&'static str> {
    let name = |tool: &Value| tool.as_str().or_else(|| tool["name"].as_str()).unwrap().to_owned();
    let names: Vec<_> = list.as_array().unwrap_or_else(|| panic!("{list}")).iter().map(name).collect();
    WATCHED.into_iter().filter(|watched| names.iter().any(|name| name == watched)).collect()
}

fn set(names: &[&'static str]) -> BTreeSet<&'static str> {
    names.iter().copied().collect()
}

/// Caller, the tools they may use, and those that the catalogue has for them.
const CALLERS: [(Option<&str>, &[&str], &[&str]); 3] = [
    (None, &[], &["echo", "fail", "sleep"]),
    (Some("key-of-eve"), &["sleep"], &["echo", "fail", "sleep"]),
    (Some("key-of-ada"), &["echo", "fail", "paid", "sleep"], &["echo", "fail", "paid", "sleep"]),
];

#[tokio::test]
async fn each_caller_is_listed_what_they_may_use() {
    let app = app_with(RULE).await;
    for (key, usable, all) in CALLERS {
        let (usable, all) = (set(usable), set(all));
        for revision in [NEWER, OLDER] {
            let client = McpClient::connect_as(&app, revision, key).await;
            let listed = client.result("tools/list", json!({}), "ListToolsResult").await;
            assert_eq!(named(&listed["tools"]), usable, "{key:?} {revision}");
            let client = client.with_header("x-sekisho-tools", "search");
            let query =
                json!({"name": "search_tools", "arguments": {"query": "behaves as its name says", "limit": 50}});
            let found = client.result("tools/call", query, "CallToolResult").await;
            assert_eq!(named(&found["structuredContent"]["tools"]), usable, "{key:?} {revision}");
        }
        for (path, expected) in [
            ("/tools/search?q=behaves%20as%20its%20name%20says&limit=100", &usable),
            ("/tools/list", &all),
            ("/tools/list?usable=true", &usable),
            ("/tools/list?detail=full", &all),
            ("/tools/list?detail=full&usable=true", &usable),
            ("/tools/schemas", &all),
            ("/tools/schemas?usable=true", &usable),
        ] {
            let (status, listed) = get(&app, key, path).await;
            assert_eq!((status, named(&listed)), (StatusCode::OK, expected.clone()), "{key:?} {path}");
        }
        let (_, public) = get(&app, key, "/api/v1/tools?usable=true").await;
        assert_eq!(named(&public), &usable - &set(&["echo"]), "{key:?}: dangerous tools are not listed there");
        let (_, full) = get(&app, key, "/tools/list?detail=full").await;
        for tool in full.as_array().unwrap() {
            let name = tool["name"].as_str().unwrap();
            let expected = !WATCHED.contains(&name) || usable.contains(name);
            assert_eq!((&tool["usable"], tool["missing"].is_null()), (&json!(expected), expected), "{key:?}: {tool}");
        }
        let task = json!({"task": "behaves as its name says", "exclude_dangerous": false, "max_tools": 50});
        let request = app.post("/tools/select").json(&task);
        let (_, selected) = answer(key.iter().fold(request, reqwest::RequestBuilder::bearer_auth)).await;
        assert_eq!(named(&selected["selected_tools"]), usable, "{key:?}");
    }
}

#[tokio::test]
async fn the_full_list_shows_what_is_missing() {
    let app = app_with(RULE).await;
    let (_, full) = get(&app, None, "/tools/list?detail=full").await;
    let missing: Vec<_> = full
        .as_array()
        .unwrap()
        .iter()
        .filter(|tool| tool["usable"] == false)
        .map(|tool| json!({"name": tool["name"], "missing": tool["missing"]}))
        .collect();
    assert_eq!(
        json!(missing),
        json!([
            {"name": "echo", "missing": [{"check": "dangerous", "roles": ["operator"],
                "message": "echo is dangerous: the caller needs the role operator"}]},
            {"name": "fail", "missing": [{"check": "policy", "message": "clerks only"}]},
            {"name": "sleep", "missing": [{"check": "requires_auth",
                "message": "sleep needs a signed-in caller: send an API key or a token"}]},
        ])
    );
}

#[tokio::test]
async fn an_agent_is_offered_what_its_caller_may_use() {
    let app = app_with(RULE).await;
    for (caller, usable) in [
        (Caller::anonymous(), &[][..]),
        (Caller::new("eve", "default", Vec::new()), &["sleep"]),
        (Caller::new("ada", "default", vec!["operator".into(), "clerk".into()]), &["echo", "fail", "paid", "sleep"]),
    ] {
        let toolbox = InProcess::new(Arc::clone(&app.gateway), Arc::new(caller));
        let names: Vec<_> = toolbox.list().await.unwrap().into_iter().map(|tool| json!(tool.name)).collect();
        assert!(names.contains(&json!("calculator")));
        assert_eq!(named(&json!(names)), set(usable));
    }
}

/// To callers without its roles, no route distinguishes a tool from one that does not exist.
#[tokio::test]
async fn a_tool_hidden_by_its_roles_is_not_there_by_any_route() {
    let app = app_with(RULE).await;
    for (key, expected) in [(None, StatusCode::NOT_FOUND), (Some("key-of-ada"), StatusCode::OK)] {
        for path in ["/tools/paid/schema", "/tools/paid/metadata", "/api/v1/tools/paid"] {
            let (status, reply) = get(&app, key, path).await;
            assert_eq!(status, expected, "{key:?} {path}: {reply}");
        }
        let settings = json!({"session_id": "s", "tools": {"paid": false}});
        let request = app.post("/api/tools/settings").json(&settings);
        let (status, _) = answer(key.iter().fold(request, reqwest::RequestBuilder::bearer_auth)).await;
        assert_eq!(status, expected, "{key:?}");
    }
    let (_, settings) = answer(app.post("/api/tools/settings").json(&json!({"session_id": "s", "tools": {}}))).await;
    assert_eq!(settings["tools"].get("paid"), None, "{settings}");
    let refusal = async |tool: &str| {
        let (status, mut reply) = app.call(tool, json!({})).await;
        for varying in ["call_id", "stages"] {
            reply["receipt"][varying].take();
        }
        reply["execution_time_ms"].take();
        // What is near to a name depends on the name.
        reply["error_info"]["alternatives"].take();
        (status, reply.to_string().replace(tool, "…"))
    };
    assert_eq!(refusal("paid").await, refusal("p4id").await);
    let (_, near) = app.call("pai", json!({})).await;
    assert!(!near.to_string().contains("paid"), "{near}");
    // The others are described to anybody who may not use them: the catalogue is complete.
    for path in ["/tools/echo/schema", "/tools/sleep/metadata"] {
        assert_eq!(get(&app, None, path).await.0, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_tool_that_may_not_be_used_is_described_by_its_refusal() {
    let app = app_with(RULE).await;
    let client = McpClient::connect(&app, NEWER).await.with_header("x-sekisho-tools", "search");
    for (tool, code) in [("echo", "denied"), ("sleep", "unauthenticated"), ("fail", "denied")] {
        for call in ["describe_tool", "call_tool"] {
            let request = json!({"name": call, "arguments": {"name": tool}});
            let refused = client.result("tools/call", request, "CallToolResult").await;
            assert_eq!(refused["structuredContent"]["error_info"]["code"], code, "{call} {tool}: {refused}");
        }
    }
    for call in ["describe_tool", "call_tool"] {
        let reply = client.reply("tools/call", json!({"name": call, "arguments": {"name": "paid"}})).await;
        assert_eq!(reply["error"]["code"], -32602, "{call}: {reply}");
    }
}

#[tokio::test]
async fn clients_are_notified_when_a_policy_changes_their_list() {
    const CHANGED: &str = "notifications/tools/list_changed";
    for revision in [NEWER, OLDER] {
        let app = app_with(RULE).await;
        let reload = async |rule: &str| {
            std::fs::write(app.directory.path().join("policies/tools.rego"), rule).unwrap();
            let mut config = config(&app.directory, &yaml(&app.directory));
            config.server = app.gateway.configuration().current().server.clone();
            app.gateway.reload(config).await;
        };
        let eve = McpClient::connect_as(&app, revision, Some("key-of-eve")).await;
        let ada = McpClient::connect_as(&app, revision, Some("key-of-ada")).await;
        let mut of_eve = eve.listen(json!({"toolsListChanged": true})).await;
        let mut of_ada = ada.listen(json!({"toolsListChanged": true})).await;
        // First one that matters to callers without roles, then one about ada.
        Box::pin(reload("package tools\ndeny[\"no\"] { false }\n")).await;
        eve.check_message(&of_eve.next_of(CHANGED).await);
        let listed = eve.result("tools/list", json!({}), "ListToolsResult").await;
        assert_eq!(named(&listed["tools"]), set(&["fail", "sleep"]), "{revision}");
        Box::pin(reload("package tools\ndeny[\"no\"] { input.user.id == \"ada\"; input.tool == \"echo\" }\n")).await;
        of_ada.next_of(CHANGED).await;
        let listed = ada.result("tools/list", json!({}), "ListToolsResult").await;
        assert_eq!(named(&listed["tools"]), set(&["fail", "paid", "sleep"]), "{revision}");
    }
}

#[test]
fn a_client_that_starts_the_gateway_itself_learns_what_is_left_out_and_who_may() {
    for (identity, expected) in [
        (&[][..], Some("1 needs a signed-in caller; 1 needs the role admin and the role operator")),
        (&["--as", "me"], Some("2 of ")),
        (&["--as", "me", "--role", "admin"], Some("1 needs the role operator.")),
        (&["--as", "me", "--role", "admin", "--role", "operator"], None),
    ] {
        let directory = TempDir::new().unwrap();
        let yaml = match expected {
            Some(expected) if expected.starts_with('2') => "tools: {overrides: {calculator: {roles: [sums]}}}",
            _ => "tools: {overrides: {calculator: {requires_auth: true}}}",
        };
        std::fs::write(directory.path().join("own.yaml"), yaml).unwrap();
        let mut child = sekisho(&directory)
            .args(["--config", "own.yaml", "mcp", "serve"])
            .args(identity)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let begin = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize(OLDER)});
        writeln!(input, "{begin}").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        drop(input);
        let mut on_stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut on_stderr).unwrap();
        assert!(child.wait().unwrap().success(), "{on_stderr}");
        let begun: Value = serde_json::from_str(&line).unwrap();
        let instructions = begun["result"]["instructions"].as_str().unwrap_or_default();
        match expected {
            Some(expected) => {
                assert!(on_stderr.contains(expected) && on_stderr.contains("left out"), "{identity:?}: {on_stderr}");
                assert!(
                    instructions.contains(expected) && instructions.contains("--role"),
                    "{identity:?}: {instructions}"
                );
            }
            None => {
                assert_eq!((instructions, on_stderr.contains("left out")), ("", false), "{identity:?}: {on_stderr}");
            }
        }
    }
}
