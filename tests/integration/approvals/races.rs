//! Retries of approved calls that come at the same time.

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::json;

use super::replicas::{key, settings};
use super::{ASKS, KEYS, approve, ask, call};
use crate::app::{TestApp, answer};
use crate::store_database::TestDatabase;

const APPROVALS: u32 = 50;

/// Of each approval, at once.
const RETRIES: usize = 100;

/// Sends the retries to these gateways in turn: one makes the call, and all get its reply.
async fn race(apps: &[TestApp]) {
    let (first, last) = (&apps[0], &apps[apps.len() - 1]);
    for n in 0..APPROVALS {
        let arguments = json!({"n": n});
        let id = ask(first, "key-of-ann", &arguments).await;
        assert_eq!(ask(last, "key-of-ann", &arguments).await, id, "equal requests are one");
        approve(last, &id).await;
        let send = |app: &TestApp| answer(call(app, "key-of-ann", &arguments).header("x-approval-id", &id));
        let answers = join_all(apps.iter().cycle().take(RETRIES).map(send)).await;
        let (_, made) = &answers[0];
        for (status, reply) in &answers {
            assert_eq!((*status, &reply["output"]["echo"]), (StatusCode::OK, &arguments), "{reply}");
            assert_eq!(reply["receipt"]["call_id"], made["receipt"]["call_id"], "{reply}");
        }
    }
    let mut used = 0.0;
    for app in apps {
        used += app.metric("shannon_approvals_total{event=\"used\"}").await;
    }
    assert_eq!(used, f64::from(APPROVALS));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_retries_of_each_of_fifty_approvals_run_the_tool_once() {
    let app = TestApp::with(&format!("{KEYS}{ASKS}")).await;
    race(&[app]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_hundred_retries_of_each_of_fifty_approvals_at_two_replicas_run_the_tool_once() {
    let database = TestDatabase::new().await;
    let yaml = settings(&database, &key());
    race(&[TestApp::with(&yaml).await, TestApp::with(&yaml).await]).await;
}
