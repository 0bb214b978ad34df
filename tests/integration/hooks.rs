//! Hooks on the path of a call: an external policy with OPA's data API, and rules that change arguments and results.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use reqwest::StatusCode;
use sekisho::{Arguments, CallContext, Caller, ErrorCode, Via};
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code};
use crate::approvals::run_example;
use crate::audit_events::lines;
use crate::charges::served;
use crate::cli::{sekisho, text};
use crate::mcp::client::McpClient;
use crate::mcp::{NEWER, OLDER};
use crate::mcp_programs::server;
use crate::mcp_servers::{ready, yaml};

const KEYS: &str = "
auth:
  api_keys:
    - {id: ann, key: key-of-ann, tenant: acme}
    - {id: boss, key: key-of-boss, tenant: acme, roles: [approver, admin]}
";

/// A policy service: denies the tool `fail`, asks a person about large amounts, and keeps what it was asked.
#[derive(Clone, Default)]
struct Opa {
    asked: Arc<Mutex<Vec<Value>>>,
    broken: Arc<Mutex<bool>>,
}

impl Opa {
    async fn serve() -> (Self, String) {
        let opa = Self::default();
        let router = Router::new().route("/v1/data/tools", post(decide)).with_state(opa.clone());
        (opa, format!("{}/v1/data/tools", served(router).await))
    }

    async fn behind_a_gateway(more: &str) -> (Self, TestApp) {
        let (opa, url) = Self::serve().await;
        let policy = format!("policy: {{external: {{url: '{url}', timeout_ms: 10000, send_arguments: true}}}}\n");
        let app = TestApp::with(&format!("{KEYS}{policy}{more}")).await;
        (opa, app)
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

async fn decide(State(opa): State<Opa>, Json(body): Json<Value>) -> Response {
    let input = &body["input"];
    let mut deny = Vec::new();
    if input["tool"] == "fail" {
        deny.push("fail is closed");
    }
    let is_large = input["arguments"]["amount"].as_u64().is_some_and(|amount| amount > 100);
    let require_approval = if is_large { vec!["large amounts need approval"] } else { Vec::new() };
    opa.asked.lock().unwrap().push(body.clone());
    if *opa.broken.lock().unwrap() {
        return (StatusCode::INTERNAL_SERVER_ERROR, "secret details").into_response();
    }
    Json(json!({"result": {"deny": deny, "require_approval": require_approval}})).into_response()
}

async fn call(app: &TestApp, tool: &str, body: Value) -> (StatusCode, Value) {
    answer(app.post(&format!("/tools/{tool}/execute")).bearer_auth("key-of-ann").json(&body)).await
}

#[tokio::test]
async fn an_external_policy_denies_and_permits_and_is_asked_about_dry_runs_and_nested_calls() {
    let (opa, app) = Opa::behind_a_gateway("").await;
    let (status, reply) = call(&app, "echo", json!({"arguments": {"amount": 1}})).await;
    assert_eq!((status, &reply["receipt"]["policy"]["cached"]), (StatusCode::OK, &json!(false)), "{reply}");
    let (status, reply) = call(&app, "fail", json!({"arguments": {}})).await;
    assert_eq!((status, code(&reply), &reply["error"]), (StatusCode::FORBIDDEN, "denied", &json!("fail is closed")));
    assert_eq!(reply["receipt"]["policy"]["reasons"], json!(["fail is closed"]));

    let (status, _) = call(&app, "fail", json!({"arguments": {}, "dry_run": true})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(opa.asked.lock().unwrap()[2]["input"]["call"]["dry_run"], true);

    let ann = Arc::new(Caller::new("ann", "acme", Vec::new()));
    let mut nested = CallContext::new("fail", ann, Via::Sandbox);
    nested.nesting.depth = 1;
    let answered = app.gateway.pipeline.call(nested, Arguments::new()).await;
    assert_eq!(answered.reply.outcome.as_ref().unwrap_err().code(), ErrorCode::Denied);
    let asked = opa.asked.lock().unwrap()[3]["input"].clone();
    assert_eq!((&asked["call"]["depth"], &asked["call"]["via"]), (&json!(1), &json!("sandbox")));
    assert_eq!((&asked["user"]["tenant"], asked["arguments_sha256"].as_str().unwrap().len()), (&json!("acme"), 64));
}

#[tokio::test]
async fn a_call_that_the_gateway_refuses_itself_is_not_asked_about() {
    let (opa, app) = Opa::behind_a_gateway("tools: {overrides: {echo: {dangerous: true}}}\n").await;
    let (_, reply) = call(&app, "echo", json!({"arguments": {}})).await;
    assert_eq!((code(&reply), opa.count()), ("denied", 0));
}

#[tokio::test]
async fn its_reasons_for_approval_are_decided_like_those_of_a_rule() {
    let (opa, app) = Opa::behind_a_gateway("").await;
    let body = json!({"arguments": {"amount": 700}});
    let (status, reply) = call(&app, "echo", body.clone()).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "approval_required"), "{reply}");
    let id = reply["error_info"]["approval"]["id"].as_str().unwrap();
    let shown = answer(app.get(&format!("/approvals/{id}")).bearer_auth("key-of-boss")).await.1;
    assert_eq!(shown["reasons"], json!(["large amounts need approval"]), "{shown}");
    let approve = app.post(&format!("/approvals/{id}/approve")).bearer_auth("key-of-boss").json(&json!({}));
    assert_eq!(answer(approve).await.0, StatusCode::OK);
    let again = app.post("/tools/echo/execute").bearer_auth("key-of-ann").header("x-approval-id", id);
    let (status, reply) = answer(again.json(&body)).await;
    assert_eq!((status, &reply["output"]["echo"]), (StatusCode::OK, &body["arguments"]), "{reply}");
    assert_eq!(opa.count(), 2, "it is asked again about the call that is made");
}

#[tokio::test]
async fn without_its_answer_calls_are_denied_and_explained_so() {
    let (opa, app) = Opa::behind_a_gateway("").await;
    let explain = || {
        let body = json!({"tool": "echo", "caller": {"id": "ann", "tenant": "acme"}});
        answer(app.post("/admin/explain").bearer_auth("key-of-boss").json(&body))
    };
    let policy = |verdicts: &Value| verdicts["stages"][3].clone();
    let (_, verdicts) = explain().await;
    let verdict = policy(&verdicts);
    assert_eq!(verdict["passes"], true, "{verdicts}");
    assert!(verdict["because"].as_str().unwrap().contains("external policy"), "{verdicts}");

    *opa.broken.lock().unwrap() = true;
    let (status, reply) = call(&app, "echo", json!({"arguments": {}})).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"));
    let message = reply["error"].as_str().unwrap();
    assert!(message.contains("the external policy did not decide"), "{message}");
    assert!(!reply.to_string().contains("secret details"), "{reply}");
    assert_eq!(policy(&explain().await.1)["passes"], false);
}

const RULES: &str = r#"
tools:
  overrides: {echo: {audit_arguments: full}}
  transform:
    arguments:
      - {name: no-cards, tools: [echo], detect: [card_numbers]}
      - {name: sender, tools: [echo], paths: [$.from], replace: desk@example.org}
    results:
      - {name: no-mail, detect: [emails], replace: "[address]"}
"#;

#[tokio::test]
async fn rules_change_what_is_sent_and_what_is_returned() {
    let app = TestApp::with(RULES).await;
    let arguments = json!({"note": "pay with 4111 1111 1111 1111", "from": "ann@example.org"});
    let (status, reply) = app.call("echo", arguments).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(reply["output"]["echo"], json!({"note": "pay with [redacted]", "from": "[address]"}));
    let found = &reply["receipt"]["transforms"];
    let expected = json!([
        {"part": "arguments", "rule": "no-cards", "path": "$", "count": 1},
        {"part": "arguments", "rule": "sender", "path": "$.from", "count": 1},
        {"part": "results", "rule": "no-mail", "path": "$", "count": 1},
    ]);
    assert_eq!(*found, expected, "{reply}");
    assert!(!reply.to_string().contains("4111 1111"), "{reply}");
    assert_eq!(app.metric("shannon_transform_findings_total{part=\"arguments\",rule=\"no-cards\"}").await, 1.0);
    let lines = lines(app.stop().await.path());
    let line = lines.iter().find(|line| line["tool"] == "echo").unwrap();
    assert_eq!(line["arguments"], json!({"note": "pay with [redacted]", "from": "desk@example.org"}));
}

#[tokio::test]
async fn an_example_of_a_result_shows_what_the_rules_would_do_without_a_call() {
    let app = TestApp::with(&format!("{KEYS}{RULES}")).await;
    let accept = async |tool: &str, result: Value| {
        let body = json!({"tool": tool, "result": result, "caller": {"id": "ann", "tenant": "acme"}});
        let (status, verdicts) = answer(app.post("/admin/explain").bearer_auth("key-of-boss").json(&body)).await;
        assert_eq!(status, StatusCode::OK, "{verdicts}");
        let last = verdicts["stages"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["stage"], "accept", "{verdicts}");
        (last["passes"].as_bool().unwrap(), last["because"].as_str().unwrap().to_owned())
    };
    let (passes, because) = accept("echo", json!({"to": "ann@example.org", "cc": ["bob@example.org"]})).await;
    assert!(passes && because.ends_with("the rule `no-mail` of tools.transform changes 2 values at $"), "{because}");
    assert!(!because.contains("@example.org"), "{because}");
    let (passes, because) = accept("calculator", json!(["ann@example.org"])).await;
    assert!(!passes && because.contains("after the rules `no-mail` of tools.transform.results"), "{because}");
    let (passes, because) = accept("calculator", json!(2)).await;
    assert_eq!((passes, &*because), (true, "the result matches the output schema"));
}

#[tokio::test]
async fn a_call_without_findings_has_the_receipt_that_it_had() {
    let app = TestApp::with(RULES).await;
    let (_, reply) = app.call("calculator", json!({"expression": "1+1"})).await;
    assert_eq!((reply["success"].as_bool(), reply["receipt"].get("transforms")), (Some(true), None), "{reply}");
}

#[tokio::test]
async fn content_blocks_of_mcp_servers_are_changed_for_every_client() {
    let rules = "tools: {transform: {results: [\
                 {name: mail, detect: [emails]}, {name: iban, tools: [moody__*], paths: [$.iban]}]}}\n";
    let app = TestApp::with(&format!("{rules}{}", yaml(&[("moody", server("fine", ""))]))).await;
    ready(&app).await;
    let call = json!({"name": "moody__echo", "arguments": {"iban": "DE1", "to": "ann@example.org"}});
    for revision in [NEWER, OLDER] {
        let client = McpClient::connect(&app, revision).await;
        let result = client.result("tools/call", call.clone(), "CallToolResult").await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, r#"{"iban":"[redacted]","to":"[redacted]"}"#, "{revision}: {result}");
        assert!(!result.to_string().contains("ann@example.org"), "{revision}: {result}");
    }
    app.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_asks_the_external_policy_and_names_rules_that_are_for_no_tool() {
    let (_opa, url) = Opa::serve().await;
    let directory = tempfile::TempDir::new().unwrap();
    let check = |url: &str| {
        let rules = "tools: {transform: {results: [{name: idle, tools: [nowhere__*], detect: [emails]}]}}\n";
        let file = directory.path().join("sekisho.yaml");
        std::fs::write(&file, format!("policy: {{external: {{url: '{url}'}}}}\n{rules}")).unwrap();
        let checked = sekisho(&directory).args(["check", "--config"]).arg(&file).output().unwrap();
        (checked.status.success(), text(&checked))
    };
    let (passed, printed) = check(&url);
    assert!(passed && printed.contains(&format!("{url} answers")), "{printed}");
    assert!(printed.contains("tools.transform.results[0].tools[0]") && printed.contains("nowhere__*"), "{printed}");
    let (passed, printed) = check(&format!("{url}/wrong"));
    assert!(!passed && printed.contains("404"), "{printed}");
}

/// The example of the page. Without its programs it is not run.
#[test]
fn the_example_of_the_page_runs() {
    const PAGE: &str = include_str!("../../docs/hooks.md");
    let Some(printed) = run_example(PAGE, "jq --version && curl --version && python3 --version") else { return };
    let finding = r#"[{"part":"arguments","rule":"no-cards","path":"$","count":1}]"#;
    let explained = "the result matches the output schema; the rule `no-mail` of tools.transform changes 1 value at $";
    for expected in ["no clock today", finding, explained, "[address] pays with [redacted]"] {
        assert!(printed.lines().any(|line| line == expected), "{expected}: {printed}");
    }
}

#[tokio::test]
async fn changed_rules_apply_after_a_reload() {
    let app = TestApp::start().await;
    let address = json!({"to": "ann@example.org"});
    assert_eq!(app.call("echo", address.clone()).await.1["output"]["echo"], address);
    let config = crate::app::config(&app.directory, RULES);
    app.gateway.reload(config).await;
    assert_eq!(app.call("echo", address).await.1["output"]["echo"], json!({"to": "[address]"}));
}
