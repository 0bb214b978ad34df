//! The rules of `limits.rules`: what they refuse, what the receipt says, and what is left for whom.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::app::{TestApp, answer, code, config};
use crate::keys::as_holder;

const AUTH: &str = "auth: {anonymous: never, api_keys: [\
    {id: ada, key: key-of-ada, roles: [admin]}, \
    {id: bob, key: key-of-bob, tenant: acme, roles: [operator]}, \
    {id: eve, key: key-of-eve, tenant: acme}]}";

const RULES: &str = "
limits:
  rules:
    - {name: paid, match: {tools: [paid]}, per: caller, cost_per_day: '0.25'}
    - {name: calls, match: {tenants: [acme]}, per: caller, rate: 4}
    - {name: operators, match: {roles: [operator], tools: [ec*]}, per: role, rate: 2}
    - {name: narrow, match: {tools: [sleep]}, per: tool, max_concurrent: 1}
";

async fn app() -> TestApp {
    TestApp::with(&format!("{AUTH}\n{RULES}")).await
}

async fn call(app: &TestApp, key: &str, tool: &str) -> (StatusCode, Value) {
    as_holder(app, key, Method::POST, &format!("/tools/{tool}/execute"), Some(json!({"arguments": {}}))).await
}

/// The row of a rule for a subject.
fn row<'a>(limits: &'a Value, rule: &str, subject: &str) -> Option<&'a Value> {
    let rows = limits["rules"].as_array().unwrap();
    rows.iter().find(|row| row["rule"] == rule && row["subject"] == subject)
}

async fn limits(app: &TestApp, key: &str) -> Value {
    let (status, limits) = as_holder(app, key, Method::GET, "/limits", None).await;
    assert_eq!(status, StatusCode::OK, "{limits}");
    limits
}

#[tokio::test]
async fn the_receipt_and_the_refusal_name_the_rule() {
    let app = app().await;
    for left in [1, 0] {
        let (status, reply) = call(&app, "key-of-bob", "echo").await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        assert_eq!(
            (&reply["receipt"]["rule"], &reply["receipt"]["rate"]["remaining"]),
            (&json!("operators"), &json!(left))
        );
    }
    let (status, reply) = call(&app, "key-of-bob", "echo").await;
    assert_eq!((status, code(&reply)), (StatusCode::TOO_MANY_REQUESTS, "rate_limited"), "{reply}");
    assert_eq!(reply["receipt"]["rule"], "operators");
    assert_eq!(reply["error_info"]["details"][0]["rule"], "operators");
    assert!(reply["error"].as_str().unwrap().contains("the rule operators"), "{reply}");
    assert!(reply["error_info"]["retry_after_ms"].as_u64().unwrap() > 20_000, "{reply}");
    // Somebody without the role has the other rule alone, and somebody of another tenant none.
    let (_, reply) = call(&app, "key-of-eve", "echo").await;
    assert_eq!((&reply["receipt"]["rule"], &reply["receipt"]["rate"]["limit"]), (&json!("calls"), &json!(4)));
    let (_, reply) = call(&app, "key-of-ada", "echo").await;
    assert!(reply["receipt"].get("rule").is_none(), "{reply}");
    assert_eq!(reply["receipt"]["rate"]["limit"], 1_000_000, "the tool's own");
}

#[tokio::test]
async fn a_day_has_a_budget_by_rule_that_survives_a_restart() {
    let yaml = format!("{AUTH}\n{RULES}");
    let app = TestApp::with(&yaml).await;
    for _ in 0..2 {
        assert_eq!(call(&app, "key-of-ada", "paid").await.0, StatusCode::OK);
    }
    let again = TestApp::in_directory(app.stop().await, &yaml).await;
    let (status, reply) = call(&again, "key-of-ada", "paid").await;
    assert_eq!((status, code(&reply)), (StatusCode::PAYMENT_REQUIRED, "budget_exceeded"), "{reply}");
    assert_eq!(reply["receipt"]["rule"], "paid");
    assert_eq!(call(&again, "key-of-ada", "echo").await.0, StatusCode::OK, "other tools are not of the rule");
    assert_eq!(call(&again, "key-of-eve", "paid").await.0, StatusCode::OK);
    // A raised rule counts what was spent, also without a restart.
    let raised = yaml.replace("'0.25'", "'0.35'");
    again.gateway.reload(config(&again.directory, &raised)).await;
    assert_eq!(call(&again, "key-of-ada", "paid").await.0, StatusCode::OK);
    assert_eq!(call(&again, "key-of-ada", "paid").await.0, StatusCode::PAYMENT_REQUIRED);
}

#[tokio::test]
async fn calls_at_once_are_limited_for_all_callers_of_a_tool() {
    let app = app().await;
    let path = "/tools/sleep/execute";
    let long = as_holder(&app, "key-of-ada", Method::POST, path, Some(json!({"arguments": {"ms": 400}})));
    let other = as_holder(&app, "key-of-bob", Method::POST, path, Some(json!({"arguments": {"ms": 400}})));
    let began = std::time::Instant::now();
    let ((one, _), (two, _)) = tokio::join!(long, other);
    assert_eq!((one, two), (StatusCode::OK, StatusCode::OK));
    assert!(began.elapsed() >= std::time::Duration::from_millis(800), "one after the other");
}

#[tokio::test]
async fn a_caller_sees_what_is_left_of_its_own_and_an_administrator_of_all() {
    let app = app().await;
    call(&app, "key-of-bob", "echo").await;
    call(&app, "key-of-eve", "paid").await;
    let own = limits(&app, "key-of-bob").await;
    let calls = row(&own, "calls", "bob").unwrap();
    assert_eq!(
        (&calls["per"], &calls["tenant"], &calls["rate"]["remaining"]),
        (&json!("caller"), &json!("acme"), &json!(3))
    );
    assert_eq!(row(&own, "operators", "operator").unwrap()["rate"]["remaining"], 1);
    assert_eq!(row(&own, "paid", "bob").unwrap()["cost_left_usd"], 0.25, "nothing is spent");
    assert!(!own.to_string().contains("eve"), "{own}");
    let other = limits(&app, "key-of-eve").await;
    assert_eq!(row(&other, "paid", "eve").unwrap()["cost_left_usd"], 0.15);
    assert!(row(&other, "operators", "operator").is_none(), "eve is no operator: {other}");
    let all = limits(&app, "key-of-ada").await;
    for (rule, subject) in [("calls", "bob"), ("calls", "eve"), ("operators", "operator"), ("paid", "eve")] {
        assert!(row(&all, rule, subject).is_some(), "{rule} {subject}: {all}");
    }
    let (status, reply) = answer(app.get("/limits")).await;
    assert_eq!((status, code(&reply)), (StatusCode::UNAUTHORIZED, "unauthenticated"));
}

#[tokio::test]
async fn rules_of_keys_count_managed_keys_apart() {
    let rules = "limits: {rules: [{name: each, match: {tools: [echo]}, per: key, rate: 1}]}";
    let app = TestApp::with(&format!("{AUTH}\n{rules}")).await;
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let body = Some(json!({"person": "carol"}));
        let (_, created) = as_holder(&app, "key-of-ada", Method::POST, "/admin/keys", body).await;
        tokens.push(created["token"].as_str().unwrap().to_owned());
    }
    for token in &tokens {
        assert_eq!(call(&app, token, "echo").await.0, StatusCode::OK);
        assert_eq!(call(&app, token, "echo").await.0, StatusCode::TOO_MANY_REQUESTS);
    }
    let all = limits(&app, "key-of-ada").await;
    for token in &tokens {
        let id = token.split('_').nth(1).unwrap();
        assert_eq!(row(&all, "each", id).unwrap()["tenant"], "default", "{all}");
    }
}
