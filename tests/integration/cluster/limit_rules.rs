//! Rules of `limits.rules` with several replicas.

use std::time::{Duration, Instant};

use reqwest::StatusCode;

use super::{Replica, call};
use crate::slack::slack;
use crate::store_database::TestDatabase;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_replicas_count_the_rate_of_a_rule_together() {
    let database = TestDatabase::new().await;
    let settings = "limits: {rules: [{name: calm, per: caller, rate: 20}]}\n\
                    tools: {overrides: {calculator: {rate_limit: 1000000}}}";
    let replicas: Vec<_> = (0..2).map(|_| Replica::start(&database, settings)).collect();
    let calling = replicas.iter().map(|replica| replica.call_until_refused(2));
    let ended = futures_util::future::join_all(calling).await;
    let all: usize = ended.iter().map(|(succeeded, _)| succeeded).sum();
    for (_, statuses) in &ended {
        assert!(statuses.iter().all(|status| *status == StatusCode::TOO_MANY_REQUESTS), "{statuses:?}");
    }
    assert!((18..=24).contains(&all), "{all} calls of 20");
}

/// Each replica knows what the others spent two seconds later.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: scripts/with-postgresql cargo test --features test-programs --test integration -- --ignored on_postgresql"]
async fn on_postgresql_replicas_know_what_the_others_spent_by_a_rule() {
    let database = TestDatabase::new().await;
    let settings = "limits: {rules: [{name: daily, per: caller, cost_per_day: '0.03'}]}\n\
                    tools: {overrides: {calculator: {cost_per_use: '0.01'}}}";
    let (one, other) = (Replica::start(&database, settings), Replica::start(&database, settings));
    for _ in 0..3 {
        assert_eq!(call(&one.client, one.url()).await, Some(StatusCode::OK));
    }
    assert_eq!(call(&one.client, one.url()).await, Some(StatusCode::PAYMENT_REQUIRED));
    let until = Instant::now() + slack(Duration::from_secs(10));
    let is_used_up = || {
        let limits = other.command(&["limits", "show"]);
        limits["rules"].as_array().unwrap().iter().any(|rule| rule["cost_left_usd"] == 0.0)
    };
    while !is_used_up() {
        assert!(Instant::now() < until, "what was spent does not arrive");
    }
    assert_eq!(call(&other.client, other.url()).await, Some(StatusCode::PAYMENT_REQUIRED));
}
