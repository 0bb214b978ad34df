//! Tools whose concurrency limit is counted over all replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::json;

use super::{Replica, SlowUpstream, clustered};
use crate::app::{TestApp, answer, code};
use crate::charges::served;
use crate::slack::slack;
use crate::store_database::TestDatabase;

/// Calls of `slow__wait` of all replicas at once.
fn limited(host: &SlowUpstream, calls: usize) -> String {
    format!(
        "{}\ntools: {{overrides: {{slow__wait: {{max_concurrent: {calls}, max_concurrent_global: true, rate_limit: 100000}}}}}}",
        host.collection()
    )
}

/// A service that says how many of its requests ran at once, at most.
async fn counting() -> (SlowUpstream, Arc<AtomicUsize>) {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (calls, seen) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&most));
    let counted = Arc::clone(&calls);
    let router = Router::new().route(
        "/wait",
        post(async move || {
            counted.fetch_add(1, Ordering::SeqCst);
            seen.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(30)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            "done"
        }),
    );
    (SlowUpstream { url: served(router).await, calls }, most)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_replicas_together_run_no_more_calls_than_the_limit_has() {
    let database = TestDatabase::new().await;
    let (host, most) = counting().await;
    let settings = database.settings(&clustered(&limited(&host, 3)));
    let replicas = [TestApp::with(&settings).await, TestApp::with(&settings).await];
    let calls = (0..40).map(|n| replicas[n % 2].call("slow__wait", json!({})));
    for (status, reply) in join_all(calls).await {
        assert_eq!(status, StatusCode::OK, "{reply}");
    }
    assert_eq!((host.calls(), most.load(Ordering::SeqCst)), (40, 3));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_a_slot_of_a_killed_replica_comes_free() {
    let database = TestDatabase::new().await;
    let host = SlowUpstream::start().await;
    let settings = limited(&host, 1);
    let (mut killed, other) = (Replica::start(&database, &settings), Replica::start(&database, &settings));
    let ask = |replica: &Replica| {
        replica
            .client
            .post(format!("{}/tools/slow__wait/execute", replica.url()))
            .json(&json!({"arguments": {}}))
            .send()
    };
    let held = tokio::spawn(ask(&killed));
    host.until_called().await;
    let waiting = tokio::spawn(ask(&other));
    killed.kill();
    assert!(held.await.unwrap().is_err());
    // After 12 s without a heartbeat; a call waits for 30 s at most.
    let until = Instant::now() + slack(Duration::from_secs(25));
    while host.calls() < 2 {
        assert!(Instant::now() < until, "the slot did not come free");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    waiting.abort();
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_while_the_database_is_away_calls_with_a_limit_of_all_replicas_are_refused() {
    let database = TestDatabase::new().await;
    let (host, _most) = counting().await;
    let app = TestApp::with(&database.settings(&clustered(&limited(&host, 3)))).await;
    assert_eq!(app.call("slow__wait", json!({})).await.0, StatusCode::OK);
    database.take_away().await;
    let (status, reply) = answer(app.post("/tools/slow__wait/execute").json(&json!({"arguments": {}}))).await;
    assert_eq!((status, code(&reply)), (StatusCode::SERVICE_UNAVAILABLE, "overloaded"), "{reply}");
    assert!(reply["error"].as_str().unwrap().contains("cannot be counted"), "{reply}");
    assert_eq!(host.calls(), 1);
    assert_eq!(app.call("echo", json!({})).await.0, StatusCode::OK, "other tools go on");
    database.bring_back().await;
    let until = Instant::now() + slack(Duration::from_secs(10));
    while app.call("slow__wait", json!({})).await.0 != StatusCode::OK {
        assert!(Instant::now() < until, "calls did not go on");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Without replicas the limit is the gateway's own.
#[tokio::test]
async fn a_gateway_that_is_no_replica_counts_its_own_calls() {
    let (host, most) = counting().await;
    let app = TestApp::with(&limited(&host, 2)).await;
    for (status, reply) in join_all((0..10).map(|_| app.call("slow__wait", json!({})))).await {
        assert_eq!(status, StatusCode::OK, "{reply}");
    }
    assert_eq!(most.load(Ordering::SeqCst), 2);
}
