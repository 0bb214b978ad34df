//! How many records, for how long, and how many bytes are kept.

use futures_util::future::{join, join_all};

use super::*;
use crate::pipeline::idempotency::stored::MAX_REPLY_BYTES;
use crate::tool::Metadata;
use sekisho_store::test_support::{fill_the_disk, free_disk};

#[tokio::test]
async fn a_tenant_evicts_only_its_own_records_and_the_oldest_of_the_largest_owner_first() {
    let (_folder, store) = store_on_disk().await;
    let checkpoint = Checkpoint::on(&store, &config(4), counting()).await;
    let send = async |tenant, caller, key: &str| {
        let answered = checkpoint.pipeline.call(keyed_by(tenant, caller, key), Arguments::new()).await;
        assert!(answered.reply.outcome.is_ok());
        answered.replayed
    };
    for (tenant, caller, key) in [("rival", "eve", "kept"), ("acme", "ann", "kept"), ("acme", "bob", "used")] {
        assert!(!send(tenant, caller, key).await);
    }
    for n in 0..20 {
        assert!(!send("acme", "bob", &n.to_string()).await);
        assert!(send("acme", "bob", "used").await, "a used record stays");
    }
    assert_eq!(checkpoint.pipeline.replies.len().await, (5, 0));
    assert!(send("rival", "eve", "kept").await, "another tenant's");
    assert!(send("acme", "ann", "kept").await, "another caller's");
    assert!(send("acme", "bob", "19").await, "the latest");
    assert!(!send("acme", "bob", "0").await, "the oldest record of the owner with the most");
    // The records in the store still count after a restart.
    let again = Checkpoint::on(&store, &config(4), counting()).await;
    assert_eq!(again.pipeline.replies.len().await, (5, 0));
}

#[tokio::test]
async fn running_calls_are_never_evicted() {
    let (script, gate) = gated();
    let checkpoint = Checkpoint::with(&config(2), Metadata::default(), script);
    let meanwhile = async {
        until_runs(&checkpoint, 2).await;
        let refused = send(&checkpoint, "c").await;
        assert_eq!(refused, (Err(ErrorCode::Overloaded), false));
        assert_eq!(checkpoint.runs(), 2);
        gate.add_permits(3);
    };
    let calls = ["a", "b"].map(|key| send(&checkpoint, key));
    let (answers, ()) = join(join_all(calls), meanwhile).await;
    assert!(answers.iter().all(|(output, replayed)| output.is_ok() && !replayed));
    assert_eq!(send(&checkpoint, "c").await, (Ok(json!(3)), false), "other calls have ended");
}

#[tokio::test]
async fn records_expire() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    assert_eq!(send(&checkpoint, "a").await, (Ok(json!(1)), false));
    assert_eq!(send(&checkpoint, "a").await, (Ok(json!(1)), true));
    replies.reconfigure(&SessionConfig { idempotency_seconds: 0, ..SessionConfig::default() });
    assert_eq!(send(&checkpoint, "a").await, (Ok(json!(2)), false));
    replies.forget_expired().await.unwrap();
    assert_eq!(replies.len().await, (0, 0));
}

/// A call with a key runs only if it is recorded.
#[tokio::test]
async fn on_a_full_disk_a_call_with_a_key_is_refused_and_costs_nothing() {
    let (_folder, store) = store_on_disk().await;
    let checkpoint = Checkpoint::on(&store, &config(10), counting()).await;
    let long = "x".repeat(100_000);
    let by_long = || keyed_by("acme", &long, "k");
    fill_the_disk(&store).await;
    let refused = checkpoint.pipeline.call(by_long(), Arguments::new()).await;
    assert_eq!(outcome_of(&refused), (Err(ErrorCode::Overloaded), false));
    assert!(
        !refused.reply.outcome.as_ref().unwrap_err().message().contains(".db"),
        "the error does not contain a path"
    );
    assert_eq!((checkpoint.runs(), refused.reply.cost_usd.is_zero()), (0, true));
    assert_eq!(checkpoint.pipeline.budget.held().tokens, 0);
    free_disk(&store).await;
    let answered = checkpoint.pipeline.call(by_long(), Arguments::new()).await;
    assert_eq!(outcome_of(&answered), (Ok(json!(1)), false));
}

#[tokio::test]
async fn a_reply_too_large_to_store_reaches_all_waiting_calls_and_the_call_is_never_run_again() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    let deadline = Deadline::after(Duration::from_secs(60));
    let Ok(IdempotentOutcome::First(mut guard)) = replies.enter(&call(), "k", request(), deadline).await else {
        panic!()
    };
    guard.record(deadline).await.unwrap();
    let waiting = keep(replies, "k", 1);
    let ending = async { guard.end(&reply_of(MAX_REPLY_BYTES + 1), SendingState::Sent).await };
    assert_eq!(join(waiting, ending).await.0, Ok(false), "a waiting call gets the reply");
    assert_eq!(keep(replies, "k", 1).await, Err(ErrorCode::IdempotencyConflict), "a later call does not");
}

#[tokio::test]
async fn the_oldest_replies_of_a_tenant_are_evicted_by_bytes_and_their_records_stay() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    let bytes = MAX_REPLY_BYTES - 4_096;
    let fit = usize::try_from(MAX_TENANT_BYTES).unwrap() / (bytes + 1_024);
    for n in 0..fit + 2 {
        assert_eq!(keep(replies, &n.to_string(), bytes).await, Ok(true));
    }
    for n in 0..fit + 2 {
        let expected = if n < 2 { Err(ErrorCode::IdempotencyConflict) } else { Ok(false) };
        assert_eq!(keep(replies, &n.to_string(), 1).await, expected, "{n}");
    }
}
