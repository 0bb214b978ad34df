//! The database was away: the heartbeats of all replicas are old, and each of them still does its work.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::json;

use super::clustered;
use crate::app::TestApp;
use crate::slack::slack;
use crate::store_database::TestDatabase;

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_after_the_database_was_away_a_call_of_another_replica_is_waited_for() {
    let database = TestDatabase::new().await;
    let settings = database.settings(&clustered(""));
    let (one, other) = (TestApp::with(&settings).await, TestApp::with(&settings).await);
    let ask = |app: &TestApp| {
        let request = app.post("/tools/sleep/execute").header("idempotency-key", "k");
        request.json(&json!({"arguments": {"ms": 2_000}})).send()
    };
    let first = tokio::spawn(ask(&one));
    let until = Instant::now() + slack(Duration::from_secs(10));
    while one.gateway.pipeline.limits.in_flight() == 0 {
        assert!(Instant::now() < until, "the call did not begin");
        tokio::task::yield_now().await;
    }
    database.silence_all(Duration::from_secs(60)).await;
    let second = ask(&other).await.unwrap();
    assert_eq!(second.status(), StatusCode::OK);
    let first = first.await.unwrap().unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    let replayed = [&first, &second].map(|reply| reply.headers().contains_key("idempotency-replayed"));
    assert_eq!(replayed.iter().filter(|replayed| **replayed).count(), 1, "it runs once: {replayed:?}");
    assert_eq!(first.text().await.unwrap(), second.text().await.unwrap());
}
