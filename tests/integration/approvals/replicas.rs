//! Approvals of replicas: decided at one, waited for and made at another.

use futures_util::future::join_all;
use reqwest::StatusCode;
use sekisho::Gateway;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{ASKS, KEYS, approve, ask, call};
use crate::app::{TestApp, answer, config};
use crate::store_database::TestDatabase;

fn settings(database: &TestDatabase, more: &str) -> String {
    database.settings(&format!("cluster: {{enabled: true}}\n{KEYS}{ASKS}{more}"))
}

fn key() -> String {
    format!("secrets: {{key: {}}}\n", "0a".repeat(32))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --test integration -- --ignored on_postgresql"]
async fn on_postgresql_racing_retries_at_two_replicas_run_the_tool_once() {
    let database = TestDatabase::new().await;
    let yaml = settings(&database, &key());
    let (one, other) = (TestApp::with(&yaml).await, TestApp::with(&yaml).await);
    for round in 0..10 {
        let arguments = json!({"round": round});
        let id = ask(&one, "key-of-ann", &arguments).await;
        assert_eq!(ask(&other, "key-of-ann", &arguments).await, id, "equal requests are one");
        approve(&other, &id).await;
        let retries = (0..20)
            .flat_map(|_| [&one, &other])
            .map(|app| answer(call(app, "key-of-ann", &arguments).header("x-approval-id", &id)));
        let answers = join_all(retries).await;
        let runs: Vec<_> = answers.iter().map(|(status, reply)| (*status, reply["output"].clone())).collect();
        assert!(runs.iter().all(|run| *run == runs[0] && run.0 == StatusCode::OK), "{answers:#?}");
    }
    let runs = async |app: &TestApp| app.metric("shannon_approvals_total{event=\"used\"}").await;
    assert_eq!(runs(&one).await + runs(&other).await, 10.0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --test integration -- --ignored on_postgresql"]
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
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --test integration -- --ignored on_postgresql"]
async fn on_postgresql_approvals_need_a_key_for_secrets() {
    let database = TestDatabase::new().await;
    let directory = TempDir::new().unwrap();
    let refused = Gateway::start(config(&directory, &settings(&database, ""))).await.unwrap_err();
    assert!(refused.to_string().contains("secrets.key"), "{refused}");
    let without = database.settings(KEYS);
    Gateway::start(config(&directory, &without)).await.unwrap().close().await;
}
