//! Policies: the default set, custom ones, and invalid ones.

use reqwest::StatusCode;
use sekisho::Config;
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code, config, environment};
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};

const KEYS: &str = "
auth:
  api_keys:
    - {id: ada, key: key-of-ada, roles: [operator, admin]}
    - {id: bob, key: key-of-bob, roles: [operator]}
    - {id: amy, key: key-of-amy, roles: [admin]}
    - {id: eve, key: key-of-eve}
";

async fn write_as(app: &TestApp, key: &str) -> (StatusCode, Value) {
    let body = json!({"arguments": {"path": "a.txt", "content": "hello"}, "session_id": "s1"});
    answer(app.post("/tools/file_write/execute").bearer_auth(key).json(&body)).await
}

async fn call_as(app: &TestApp, key: Option<&str>, tool: &str) -> (StatusCode, Value) {
    let request = app.post(&format!("/tools/{tool}/execute")).json(&json!({"arguments": {}}));
    answer(match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    })
    .await
}

/// file_write needs an admin, for others there is no such tool; and dangerous tools need an operator.
#[tokio::test]
async fn file_write_needs_an_admin() {
    let app = TestApp::with(KEYS).await;
    assert_eq!(write_as(&app, "key-of-ada").await.0, StatusCode::OK);
    for key in ["key-of-bob", "key-of-eve"] {
        let (status, reply) = write_as(&app, key).await;
        assert_eq!((status, code(&reply)), (StatusCode::NOT_FOUND, "unknown_tool"), "{key}");
        assert_eq!(reply["receipt"]["schema_hash"], Value::Null, "{key}");
    }
    let (status, reply) = write_as(&app, "key-of-amy").await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    insta::assert_json_snapshot!(reply["receipt"]["policy"]["reasons"]);
    let attempts = app.metric(r#"shannon_tool_executions_total{status="refused",tool_name="file_write"}"#).await;
    assert_eq!(attempts, 3.0, "each attempt is written down by the tool's name");
}

/// E77's own example, exactly, where an operator lets the rule alone decide who may write.
#[tokio::test]
async fn the_specifications_own_rule_decides_where_it_is_written() {
    const RULE: &str = "package tools\n\ndeny[msg] {\n    input.tool == \"file_write\"\n    not is_admin(input.user)\n    \
                        msg := \"file_writeには管理者ロールが必要です\"\n}\n";
    let opened = format!("{KEYS}tools: {{overrides: {{file_write: {{roles: []}}}}}}\n");
    let app = with_policy_and(RULE, &opened).await;
    assert_eq!(write_as(&app, "key-of-ada").await.0, StatusCode::OK);
    let (status, reply) = write_as(&app, "key-of-bob").await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    assert_eq!(reply["receipt"]["policy"]["reasons"], json!(["file_writeには管理者ロールが必要です"]));
    // And where the tool's own roles stay, both agree.
    let app = with_policy_and(RULE, KEYS).await;
    assert_eq!(write_as(&app, "key-of-ada").await.0, StatusCode::OK);
    assert_eq!(write_as(&app, "key-of-bob").await.0, StatusCode::NOT_FOUND);
}

/// A custom set of rules without them disables none of the checks, on no route.
#[tokio::test]
async fn a_custom_policy_folder_does_not_remove_the_requirements_of_tools() {
    const OVERRIDES: &str = "tools: {overrides: {echo: {dangerous: true}, sleep: {requires_auth: true}, \
                             paid: {roles: [admin]}, upstream: {dangerous: true, requires_auth: true}, \
                             fail: {dangerous: false}}}\n";
    let rules = "package tools\ndeny[msg] { input.tool == \"web_fetch\"; msg := \"not here\" }\n";
    let app = with_policy_and(rules, &format!("{KEYS}{OVERRIDES}")).await;
    let cases = [
        ("echo", StatusCode::FORBIDDEN, "denied", "operator"),
        ("sleep", StatusCode::UNAUTHORIZED, "unauthenticated", "signed-in"),
        ("upstream", StatusCode::UNAUTHORIZED, "unauthenticated", "operator"),
        ("paid", StatusCode::NOT_FOUND, "unknown_tool", "there is no tool"),
        ("file_write", StatusCode::NOT_FOUND, "unknown_tool", "there is no tool"),
    ];
    for (tool, expected, expected_code, names) in cases {
        let arguments = json!({"path": "a", "content": "b"});
        let arguments = if tool == "file_write" { arguments } else { json!({}) };
        let named = json!({"tool_name": tool, "parameters": arguments});
        let (_, batch) = answer(app.post("/tools/batch-execute").json(&json!([named]))).await;
        assert_eq!(code(&batch[0]), expected_code, "{tool}: {batch}");
        let unnamed = json!({"arguments": arguments});
        let dry = json!({"arguments": arguments, "dry_run": true});
        let v1 = format!("/api/v1/tools/{tool}/execute");
        let rest = format!("/tools/{tool}/execute");
        for (path, body) in [(&*rest, &unnamed), (&*rest, &dry), (&*v1, &unnamed), ("/tools/execute", &named)] {
            let (status, reply) = answer(app.post(path).json(body)).await;
            assert_eq!((status, code(&reply)), (expected, expected_code), "{tool} {path}: {reply}");
            assert!(reply["error"].as_str().unwrap().contains(names), "{tool}: {reply}");
        }
        for revision in [NEWER, OLDER] {
            let client = McpClient::connect(&app, revision).await;
            let reply = client.reply("tools/call", json!({"name": tool, "arguments": arguments})).await;
            let given = match expected_code {
                "unknown_tool" => reply["error"]["data"]["error_info"]["code"].clone(),
                _ => reply["result"]["structuredContent"]["error_info"]["code"].clone(),
            };
            assert_eq!(given, expected_code, "{tool} {revision}: {reply}");
        }
        let ran = format!(r#"shannon_tool_executions_total{{status="success",tool_name="{tool}"}}"#);
        assert_eq!(app.metric(&ran).await, 0.0, "{tool} was run");
    }
    assert_eq!(app.call("fail", json!({})).await.0, StatusCode::OK, "a tool is opened by its own setting");
    for tool in ["echo", "paid", "upstream"] {
        assert_eq!(call_as(&app, Some("key-of-ada"), tool).await.0, StatusCode::OK, "{tool}");
    }
}

#[tokio::test]
async fn a_tool_that_requires_auth_refuses_the_anonymous() {
    let app = TestApp::with(&format!("{KEYS}\ntools: {{overrides: {{echo: {{requires_auth: true}}}}}}")).await;
    let (status, reply) = call_as(&app, None, "echo").await;
    assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"));
    assert_eq!(call_as(&app, Some("key-of-eve"), "echo").await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_roles_for_dangerous_tools_are_configured_and_taken_over() {
    let yaml = |roles: &str| {
        let policy = format!("policy: {{dangerous_roles: {roles}}}\n");
        format!("{KEYS}{policy}tools: {{overrides: {{echo: {{dangerous: true}}}}}}\n")
    };
    let app = TestApp::with(&yaml("[admin]")).await;
    let (status, reply) = call_as(&app, Some("key-of-bob"), "echo").await;
    assert_eq!(
        (status, &reply["error"]),
        (StatusCode::FORBIDDEN, &json!("echo is dangerous: the caller needs the role admin"))
    );
    assert_eq!(call_as(&app, Some("key-of-amy"), "echo").await.0, StatusCode::OK);
    app.gateway.reload(config(&app.directory, &yaml("[operator]"))).await;
    assert_eq!(call_as(&app, Some("key-of-bob"), "echo").await.0, StatusCode::OK);
    assert_eq!(call_as(&app, Some("key-of-amy"), "echo").await.0, StatusCode::FORBIDDEN);
    for empty in ["[]", "[\" \"]"] {
        let file = app.directory.path().join("empty.yaml");
        std::fs::write(&file, yaml(empty)).unwrap();
        let errors = Config::load(Some(&file), &environment()).unwrap_err();
        assert!(errors[0].to_string().contains("policy.dangerous_roles"), "{errors:?}");
    }
}

#[tokio::test]
async fn roles_of_the_configuration_are_required() {
    let app = TestApp::with(&format!("{KEYS}\ntools: {{overrides: {{echo: {{roles: [admin]}}}}}}")).await;
    assert_eq!(call_as(&app, Some("key-of-ada"), "echo").await.0, StatusCode::OK);
    assert_eq!(call_as(&app, Some("key-of-eve"), "echo").await.0, StatusCode::NOT_FOUND);
}

async fn with_policy(rego: &str) -> TestApp {
    with_policy_and(rego, "").await
}

/// The gateway with one file of policies, and more configuration.
pub(crate) async fn with_policy_and(rego: &str, yaml: &str) -> TestApp {
    let directory = tempfile::TempDir::new().unwrap();
    let policies = directory.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    std::fs::write(policies.join("tools.rego"), rego).unwrap();
    let yaml = format!("policy: {{directory: '{}'}}\n{yaml}", policies.display());
    TestApp::in_directory(directory, &yaml).await
}

/// Fault 4: rules that error are not an *allow*.
#[tokio::test]
async fn a_rule_that_errs_denies() {
    let app =
        with_policy("package tools\ndeny[msg] { to_number(input.arguments.n) > 3\n msg := \"too many\" }\n").await;
    let (status, reply) = app.call("echo", json!({"n": "not a number"})).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    assert_eq!(app.call("echo", json!({"n": "2"})).await.0, StatusCode::OK);
    let (_, reply) = app.call("echo", json!({"n": "4"})).await;
    assert_eq!(reply["receipt"]["policy"]["reasons"], json!(["too many"]));
}

#[tokio::test]
async fn approval_can_be_required() {
    let app = with_policy(
        "package tools\nimport rego.v1\ndeny contains \"never\" if input.tool == \"fail\"\n\
         require_approval contains \"ask first\" if input.tool == \"echo\"\n",
    )
    .await;
    let (status, reply) = app.call("echo", json!({})).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "approval_required"));
    assert_eq!(app.call("sleep", json!({"ms": 1})).await.0, StatusCode::OK);
}
