//! Keys count as those who have had a token of them: nobody becomes two persons by creating or rotating keys.

use std::process::Command;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{ask, decide};
use crate::app::{TestApp, code};
use crate::cli::{Serving, sekisho, text};
use crate::keys::as_holder;

/// Mallory may create keys and approve; so may Boss.
const KEYS: &str = "
auth:
  anonymous: never
  api_keys:
    - {id: ann, key: key-of-ann, tenant: acme}
    - {id: mallory, key: key-of-mallory, tenant: acme, roles: [admin, approver]}
    - {id: boss, key: key-of-boss, tenant: acme, roles: [admin, approver]}
    - {id: eve, key: key-of-eve, tenant: acme, roles: [approver]}
";
const TWO: &str = "tools: {overrides: {echo: {approval: always, approvals_needed: 2}}}\n";
const ONE: &str = "tools: {overrides: {echo: {approval: always}}}\n";

/// The token of a new key.
async fn created(app: &TestApp, by: &str, person: &str, roles: &[&str]) -> (String, String) {
    let body = json!({"person": person, "roles": roles});
    let (status, created) = as_holder(app, by, Method::POST, "/admin/keys", Some(body)).await;
    assert_eq!(status, StatusCode::CREATED, "{created}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&created["token"]), text(&created["key"]["id"]))
}

async fn approve(app: &TestApp, key: &str, id: &str) -> (StatusCode, Value) {
    decide(app, key, id, "approve", json!({})).await
}

async fn refused(app: &TestApp, key: &str, id: &str) -> String {
    let (status, reply) = approve(app, key, id).await;
    assert_eq!((status, code(&reply)), (StatusCode::FORBIDDEN, "denied"), "{reply}");
    reply["error"].as_str().unwrap().to_owned()
}

async fn state_after(app: &TestApp, key: &str, id: &str) -> Value {
    let (status, reply) = approve(app, key, id).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    reply["status"].clone()
}

#[tokio::test]
async fn who_creates_keys_for_two_persons_is_one_of_the_two_that_are_needed() {
    let app = TestApp::with(&format!("{KEYS}{TWO}approvals: {{self: true}}\n")).await;
    let (ghost, _) = created(&app, "key-of-mallory", "ghost0", &["approver", "admin"]).await;
    let (other, _) = created(&app, "key-of-mallory", "ghost1", &["approver"]).await;
    let (of_ghost, id) = created(&app, &ghost, "ghost2", &["approver"]).await;
    let path = format!("/admin/keys/{id}");
    let (_, shown) = as_holder(&app, "key-of-mallory", Method::GET, &path, None).await;
    assert_eq!(shown["creators"], json!(["ghost0", "mallory"]), "{shown}");
    for (n, first) in ["key-of-mallory", &ghost, &other, &of_ghost].into_iter().enumerate() {
        let id = ask(&app, "key-of-mallory", &json!({"n": n})).await;
        assert_eq!(state_after(&app, first, &id).await, "pending");
        for second in ["key-of-mallory", &ghost, &other, &of_ghost] {
            assert!(refused(&app, second, &id).await.contains("needs a second person"));
        }
        assert_eq!(state_after(&app, "key-of-eve", &id).await, "approved");
    }
    // Of keys that two administrators have created, each counts.
    let (bob, _) = created(&app, "key-of-boss", "bob", &["approver"]).await;
    let id = ask(&app, "key-of-ann", &json!({})).await;
    assert_eq!(state_after(&app, &ghost, &id).await, "pending");
    assert_eq!(state_after(&app, &bob, &id).await, "approved");
}

#[tokio::test]
async fn a_call_of_a_created_key_is_its_creators_own() {
    let app = TestApp::with(&format!("{KEYS}{ONE}")).await;
    let (ghost, _) = created(&app, "key-of-mallory", "ghost0", &["approver"]).await;
    let (other, _) = created(&app, "key-of-mallory", "ghost1", &[]).await;
    for (n, (asks, approves)) in
        [("key-of-mallory", &*ghost), (&other, "key-of-mallory"), (&other, &ghost)].into_iter().enumerate()
    {
        let id = ask(&app, asks, &json!({"n": n})).await;
        assert!(refused(&app, approves, &id).await.contains("your own call"));
        assert_eq!(state_after(&app, "key-of-boss", &id).await, "approved");
    }
    // Who rotates a key has its token.
    let (bob, id) = created(&app, "key-of-boss", "bob", &["approver"]).await;
    let asked = ask(&app, "key-of-mallory", &json!({})).await;
    let path = format!("/admin/keys/{id}/rotate");
    let (_, rotated) = as_holder(&app, "key-of-mallory", Method::POST, &path, Some(json!({}))).await;
    assert_eq!(rotated["key"]["creators"], json!(["boss", "mallory"]), "{rotated}");
    for token in [&bob, rotated["token"].as_str().unwrap()] {
        refused(&app, token, &asked).await;
    }
    assert_eq!(state_after(&app, "key-of-eve", &asked).await, "approved");
}

/// They are as those of the configuration, which the same user may change.
#[test]
fn keys_that_the_user_of_the_machine_creates_count_for_themselves() {
    let directory = tempfile::TempDir::new().unwrap();
    let _serving = Serving::start(&directory);
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let token = run(sekisho(&directory).args(["keys", "create", "--person", "bob", "--role", "approver"]));
    let id = token.split('_').nth(1).unwrap();
    let token = run(sekisho(&directory).args(["keys", "rotate", id]));
    assert_eq!(token.split('_').nth(1), Some(id));
    let shown: Value = serde_json::from_str(&run(sekisho(&directory).args(["keys", "show", id]))).unwrap();
    assert_eq!((&shown["person"], &shown["creators"]), (&json!("bob"), &json!([])), "{shown}");
}
