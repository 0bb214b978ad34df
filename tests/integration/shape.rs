//! Overrides that change the arguments and results of a tool, on the path from a client to an MCP server, and their cases.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::app::{code, degraded};
use crate::cli::{sekisho, text};
use crate::lock::until;
use crate::mcp::NEWER;
use crate::mcp::client::McpClient;
use crate::mcp_programs::server_of;
use crate::mcp_servers::{ready, yaml};
use crate::policy::with_policy_and;

const BOSS: &str = "boss@example.com";

/// Sees the complete arguments, or denies.
const RULES: &str = "package tools
deny[\"incomplete\"] { input.tool == \"mail__note\"; not input.arguments.to }
deny[\"incomplete\"] { input.tool == \"mail__note\"; not input.sent.arguments.to }
deny[\"stopped\"] { input.sent.arguments.to == \"boss@example.com\"; input.arguments.n == 3; input.arguments.subject == \"stop\" }
";

const CASES: &str = "cases: [\
    {name: projected, result: '{\"to\": \"a\", \"n\": 1, \"subject\": \"b\"}', output: {n: 1, to: a}}, \
    {name: sent, arguments: {subject: b}, sent: {to: boss@example.com, n: 3, subject: b}}, \
    {name: refused, arguments: {subject: b, to: eve}, error: its value is fixed}]";

/// A server with a tool that answers with its arguments, and an override of it with `more` settings.
fn mail(directory: &TempDir, more: &str) -> String {
    let tools = directory.path().join("tools.json");
    let properties = json!({"to": {"type": "string"}, "subject": {"type": "string"}, "n": {"type": "integer"}});
    let input = json!({"type": "object", "properties": properties, "required": ["to", "subject"]});
    let output = json!({"type": "object", "properties": {"subject": {"type": "string"}}});
    let note = json!({"name": "note", "description": "Notes.", "inputSchema": input});
    let described =
        json!({"name": "pid", "description": "A number.", "inputSchema": {"type": "object"}, "outputSchema": output});
    std::fs::write(&tools, json!([note, described]).to_string()).unwrap();
    let servers = yaml(&[("mail", server_of(&tools))]);
    let note = format!("{{fix: {{to: {BOSS}}}, defaults: {{n: 3}}, project: '{{to: to, n: n}}', {more}}}");
    format!("{servers}tools:\n  overrides:\n    mail__note: {note}\n    mail__pid: {{project: 'pid > `0`'}}\n")
}

#[tokio::test]
async fn a_model_sees_less_than_policies_and_the_server() {
    let directory = TempDir::new().unwrap();
    let app = with_policy_and(RULES, &mail(&directory, "")).await;
    ready(&app).await;
    let client = McpClient::connect(&app, NEWER).await;
    let listed = client.reply("tools/list", json!({})).await;
    let tool = |name: &str| {
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}: {listed}")).clone()
    };
    let offered = tool("mail__note")["inputSchema"].clone();
    assert!(offered["properties"].get("to").is_none(), "{offered}");
    assert_eq!((&offered["required"], &offered["properties"]["n"]["default"]), (&json!(["subject"]), &json!(3)));
    assert!(tool("mail__pid").get("outputSchema").is_none(), "{listed}");

    let (status, reply) = app.call("mail__note", json!({"subject": "hi"})).await;
    assert_eq!((status, &reply["output"]), (StatusCode::OK, &json!({"n": 3, "to": BOSS})), "{reply}");
    let (_, reply) = app.call("mail__pid", json!({})).await;
    assert_eq!(reply["output"], true, "{reply}");
    let called =
        client.reply("tools/call", json!({"name": "mail__note", "arguments": {"subject": "hi", "n": 4}})).await;
    assert_eq!(called["result"]["content"][0]["text"], format!("{{\"n\":4,\"to\":\"{BOSS}\"}}"), "{called}");
    let (_, reply) = app.call("mail__note", json!({"subject": "stop"})).await;
    assert_eq!((code(&reply), reply["error"].as_str()), ("denied", Some("stopped")), "{reply}");
    for to in ["eve@example.com", ""] {
        let (_, reply) = app.call("mail__note", json!({"subject": "hi", "to": to})).await;
        assert_eq!(code(&reply), "invalid_arguments", "{reply}");
    }
    app.stop().await;
}

/// Nobody but the gateway itself may call the tool that has the values.
const ONLY_GATEWAY: &str = "package tools
deny[\"not the gateway\"] { input.tool == \"mail__subjects\"; not input.user.id == \"gateway\" }
";

#[tokio::test]
async fn an_argument_has_the_values_of_another_tool_while_it_answers() {
    let directory = TempDir::new().unwrap();
    let tools = directory.path().join("tools.json");
    let tool = |name: &str, argument: &str, schema: Value, only_reads: bool| {
        let input = json!({"type": "object", "properties": {argument: schema}});
        json!({"name": name, "description": "Mail.", "inputSchema": input, "annotations": {"readOnlyHint": only_reads}})
    };
    let (text, texts) = (json!({"type": "string"}), json!({"type": "array"}));
    let listed = json!([
        tool("note", "subject", text.clone(), false),
        tool("send", "to", text, false),
        tool("subjects", "all", texts, true)
    ]);
    std::fs::write(&tools, listed.to_string()).unwrap();
    let of = |reader: &str| format!("{{tool: mail__{reader}, arguments: {{all: [hi, bye]}}, path: all}}");
    let overrides = format!(
        "tools:\n  overrides:\n    mail__note: {{enumerate: {{subject: {}}}}}\n    mail__send: {{enumerate: {{to: {}}}}}\n",
        of("subjects"),
        of("note")
    );
    let app = with_policy_and(ONLY_GATEWAY, &format!("{}{overrides}", yaml(&[("mail", server_of(&tools))]))).await;
    ready(&app).await;
    let client = McpClient::connect(&app, NEWER).await;
    let schema = async |name: &str| {
        let listed = client.reply("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools.into_iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("{name}: {listed}"))["inputSchema"]
            .take()
    };
    let values = until(async || {
        let listed = schema("mail__note").await;
        listed["properties"]["subject"]["enum"].as_array().cloned()
    });
    assert_eq!(values.await, [json!("hi"), json!("bye")]);
    let (status, reply) = app.call("mail__note", json!({"subject": "bye"})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let (_, reply) = app.call("mail__note", json!({"subject": "hello"})).await;
    assert_eq!(code(&reply), "invalid_arguments", "{reply}");
    let (_, reply) = app.call("mail__subjects", json!({"all": []})).await;
    assert_eq!((code(&reply), reply["error"].as_str()), ("denied", Some("not the gateway")), "{reply}");

    // A tool that may change something is not called.
    let component = "tools.overrides.mail__send.enumerate.to";
    let reason = until(async || degraded(&app).await[component].as_str().map(str::to_owned)).await;
    assert!(reason.contains("mail__note is no tool that only reads"), "{reason}");
    assert!(schema("mail__send").await["properties"]["to"].get("enum").is_none());
    let (status, reply) = app.call("mail__send", json!({"to": "anybody"})).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    app.stop().await;
}

/// The exit code of `sekisho tools test`, and the cases with their results.
fn tested(directory: &TempDir, config: &str) -> (Option<i32>, Vec<Value>) {
    std::fs::write(directory.path().join("sekisho.yaml"), config).unwrap();
    let tested = sekisho(directory).args(["--config", "sekisho.yaml", "--json", "tools", "test"]).output().unwrap();
    let ran = serde_json::from_slice(&tested.stdout).unwrap_or_else(|_| panic!("{}", text(&tested)));
    (tested.status.code(), ran)
}

#[test]
fn the_cases_of_overrides_are_run() {
    let directory = TempDir::new().unwrap();
    let (status, ran) = tested(&directory, &mail(&directory, CASES));
    assert_eq!(status, Some(0), "{ran:?}");
    let names: Vec<_> = ran.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["projected", "sent", "refused"]);
    assert_eq!(ran[0]["file"], "tools.overrides.mail__note");
    let (status, ran) = tested(&directory, &mail(&directory, &CASES.replace("n: 3", "n: 4")));
    assert_eq!(status, Some(1), "{ran:?}");
    assert!(ran[1]["ok"] == false && ran[1]["problem"].as_str().unwrap().contains("and not"), "{ran:?}");
}

/// The same for overrides of a tool that lists issues.
pub(crate) fn tested_with_issues(overrides: &str) -> (Option<i32>, Vec<Value>) {
    let directory = TempDir::new().unwrap();
    let tools = directory.path().join("tools.json");
    let (string, integer) = (json!({"type": "string"}), json!({"type": "integer"}));
    let properties = json!({"owner": string, "repo": string, "state": string, "per_page": integer, "page": integer});
    let input = json!({"type": "object", "properties": properties, "required": ["owner", "repo"]});
    let listed = json!([{"name": "list_issues", "description": "Lists issues.", "inputSchema": input}]);
    std::fs::write(&tools, listed.to_string()).unwrap();
    tested(&directory, &format!("{}{overrides}", yaml(&[("github", server_of(&tools))])))
}
