//! Approvals of replicas: decided at one, waited for and made at another.

use reqwest::StatusCode;
use sekisho::Gateway;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ASKS, KEYS, approve, ask, call};
use crate::app::{TestApp, config};
use crate::cli::{sekisho, text};
use crate::store_database::TestDatabase;

pub(super) fn settings(database: &TestDatabase, more: &str) -> String {
    database.settings(&format!("cluster: {{enabled: true}}\n{KEYS}{ASKS}{more}"))
}

pub(super) fn key() -> String {
    format!("secrets: {{key: {}}}\n", "0a".repeat(32))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_waiting_caller_gets_the_decision_of_another_replica() {
    let database = TestDatabase::new().await;
    let yaml = settings(&database, &key());
    let (one, other) = (TestApp::with(&yaml).await, TestApp::with(&yaml).await);
    let arguments = json!({"n": 1});
    let id = ask(&one, "key-of-ann", &arguments).await;
    let waiting = tokio::spawn(call(&one, "key-of-ann", &arguments).header("prefer", "wait=60").send());
    while one.metric("shannon_approval_waiters").await == 0.0 {
        tokio::task::yield_now().await;
    }
    approve(&other, &id).await;
    let answered = waiting.await.unwrap().unwrap();
    assert_eq!(answered.status(), StatusCode::OK);
    assert_eq!(answered.json::<Value>().await.unwrap()["output"]["echo"], arguments);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_approvals_need_a_key_for_secrets() {
    let database = TestDatabase::new().await;
    let directory = TempDir::new().unwrap();
    let refused = Gateway::start(config(&directory, &settings(&database, ""))).await.unwrap_err();
    assert!(refused.to_string().contains("secrets.key"), "{refused}");
    // The check says so before.
    let checked = sekisho(&directory).args(["--json", "--config", "sekisho.yaml", "check"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked).contains("secrets.key: calls may need approval"), "{}", text(&checked));
    let without = database.settings(KEYS);
    Gateway::start(config(&directory, &without)).await.unwrap().close().await;
}
