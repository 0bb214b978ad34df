//! Records after a restart, and calls that run when the process ends.

use futures_util::FutureExt;
use jiff::Timestamp;

use super::*;
use sekisho_core::database_clock::DatabaseClock;
use sekisho_store::replica::{Files, Replica};
use sekisho_store::test_support::{age_replica, beat, silence_replicas, test_store, with_clock};

#[tokio::test]
async fn a_reply_is_the_same_after_a_restart() {
    let (folder, store) = store_on_disk().await;
    let before = Checkpoint::on(&store, &config(10), counting()).await;
    let first = before.pipeline.call(keyed("k"), arguments(3)).await;
    store.close().await;
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    let after = Checkpoint::on(&store, &config(10), counting()).await;
    let again = after.pipeline.call(keyed("k"), arguments(3)).await;
    assert_eq!((outcome_of(&again), after.runs()), ((Ok(json!(1)), true), 0));
    let text = |answered: &Answered| serde_json::to_string(&*answered.reply).unwrap();
    assert_eq!(text(&again), text(&first));
    let other = after.pipeline.call(keyed("k"), arguments(4)).await;
    assert_eq!(outcome_of(&other), (Err(ErrorCode::IdempotencyConflict), false));
}

/// As after `kill -9`: the process ends after the call is recorded and before its reply is.
#[tokio::test]
async fn a_call_that_was_running_when_its_process_ended_is_not_run_again() {
    let (_folder, store) = store_on_disk().await;
    let (script, _gate) = gated();
    let before = Checkpoint::on(&store, &config(10), script).await;
    let abandoned = before.pipeline.call(keyed("k"), Arguments::new());
    tokio::select! {
        answered = abandoned => panic!("{answered:?}"),
        () = until_runs(&before, 1) => {}
    }
    let after = Checkpoint::on(&store, &config(10), counting()).await;
    let again = after.pipeline.call(keyed("k"), Arguments::new()).await;
    let error = again.reply.outcome.as_ref().unwrap_err();
    assert_eq!((error.code(), after.runs()), (ErrorCode::UnknownOutcome, 0));
    assert!(error.message().contains("outcome is unknown"), "{error}");
}

#[tokio::test]
async fn shutdown_waits_for_running_calls_and_aborts_them_at_its_deadline() {
    let (script, gate) = gated();
    let checkpoint = Checkpoint::around(script);
    let abandon = async |key: &str, run| {
        tokio::select! {
            answered = checkpoint.pipeline.call(keyed(key), Arguments::new()) => panic!("{answered:?}"),
            () = until_runs(&checkpoint, run) => {}
        }
    };
    let replies = &checkpoint.pipeline.replies;
    abandon("a", 1).await;
    let an_hour = Instant::now() + Duration::from_secs(3_600);
    let mut finish = std::pin::pin!(replies.finish(an_hour));
    assert!(finish.as_mut().now_or_never().is_none(), "a call is running");
    gate.add_permits(1);
    finish.await;
    assert_eq!(send(&checkpoint, "a").await, (Ok(json!(1)), true));
    abandon("b", 2).await;
    replies.finish(Instant::now()).await;
    assert_eq!(checkpoint.pipeline.limits.in_flight(), 0);
    assert_eq!(send(&checkpoint, "b").await, (Err(ErrorCode::UnknownOutcome), false));
    let statuses: Vec<_> = checkpoint.lines().await.iter().map(|line| line["status"].clone()).collect();
    assert_eq!(statuses, [json!("success"), json!("cancelled"), json!("refused")]);
}

/// The machine's clock is a hundred years behind at both.
#[tokio::test]
async fn a_key_expires_by_the_databases_clock() {
    let clock = Arc::new(DatabaseClock::new());
    let store = with_clock(&test_store().await, &clock);
    let began: Timestamp = "2126-03-04T10:00:00Z".parse().unwrap();
    let after = |seconds| clock.set(began + SignedDuration::from_secs(seconds));
    let config = SessionConfig { idempotency_seconds: 300, ..SessionConfig::default() };
    let replica = async || Arc::new(Replies::open(&config, store.clone()).await.unwrap());
    after(0);
    let (one, other) = (replica().await, replica().await);
    assert_eq!(keep(&one, "k", 10).await, Ok(true));
    after(290);
    assert_eq!(keep(&other, "k", 10).await, Ok(false));
    other.forget_expired().await.unwrap();
    assert_eq!(keep(&one, "k", 10).await, Ok(false), "it is not expired");
    after(310);
    assert_eq!(keep(&other, "k", 10).await, Ok(true));
}

/// The machine of the other replica is seven minutes ahead, until the database tells it the time.
#[tokio::test]
async fn five_keys_have_five_effects_at_two_replicas_whose_machines_differ() {
    let store = test_store().await;
    let config = SessionConfig { idempotency_seconds: 300, ..SessionConfig::default() };
    let ahead = Arc::new(DatabaseClock::new());
    ahead.set(Timestamp::now() + SignedDuration::from_mins(7));
    let other = with_clock(&store, &ahead);
    let files = Files { configuration: "c".to_owned(), policies: "p".into() };
    let registered = Replica::register(other.clone(), Arc::default(), &files, None).await.unwrap();
    let mut effects = 0;
    for store in [store, other] {
        let replies = Arc::new(Replies::open(&config, store).await.unwrap());
        for key in ["a", "b", "c", "d", "e"] {
            effects += usize::from(keep(&replies, key, 10).await.unwrap());
        }
        replies.forget_expired().await.unwrap();
    }
    assert_eq!(effects, 5);
    registered.leave().await;
}

/// The heartbeats of both are old then, and only one is back.
#[tokio::test]
async fn after_the_database_was_away_the_call_of_another_replica_is_waited_for() {
    let store = test_store().await;
    let replica = async |id: &str| {
        let replies = Arc::new(Replies::open(&SessionConfig::default(), store.clone()).await.unwrap());
        replies.set_replica(&id.into());
        beat(&store, id).await;
        age_replica(&store, id, LOST_AFTER).await;
        replies
    };
    let (holder, taker) = (replica("holder").await, replica("taker").await);
    let deadline = Deadline::after(Duration::from_secs(60));
    let Ok(IdempotentOutcome::First(mut guard)) = holder.enter(&call(), "k", request(), deadline).await else {
        panic!()
    };
    guard.record(deadline).await.unwrap();
    silence_replicas(&store, Duration::from_secs(60)).await;
    beat(&store, "taker").await;
    let enter = async || {
        let entered = taker.enter(&call(), "k", request(), Deadline::after(Duration::ZERO)).await;
        entered.map(drop).map_err(|error| error.code())
    };
    assert_eq!(enter().await, Err(ErrorCode::Timeout), "it runs there");
    age_replica(&store, "taker", LOST_AFTER).await;
    assert_eq!(enter().await, Err(ErrorCode::UnknownOutcome));
}

/// The time of `session.idempotency_seconds` counts from its end.
#[tokio::test]
async fn the_record_of_a_call_does_not_expire_while_it_runs() {
    for is_replica in [false, true] {
        let clock = Arc::new(DatabaseClock::new());
        let store = with_clock(&test_store().await, &clock);
        let began: Timestamp = "2126-03-04T10:00:00Z".parse().unwrap();
        let after = |seconds| clock.set(began + SignedDuration::from_secs(seconds));
        let config = SessionConfig { idempotency_seconds: 300, ..SessionConfig::default() };
        let process = async |id: &str| {
            let replies = Arc::new(Replies::open(&config, store.clone()).await.unwrap());
            if is_replica {
                replies.set_replica(&id.into());
                beat(&store, id).await;
            }
            replies
        };
        after(0);
        let (runner, other) = (process("runner").await, process("other").await);
        let deadline = Deadline::after(Duration::from_secs(60));
        let Ok(IdempotentOutcome::First(mut guard)) = runner.enter(&call(), "k", request(), deadline).await else {
            panic!()
        };
        guard.record(deadline).await.unwrap();
        after(310);
        runner.forget_expired().await.unwrap();
        assert_eq!(runner.len().await, (1, 1), "replica: {is_replica}");
        if is_replica {
            other.forget_expired().await.unwrap();
            let entered = other.enter(&call(), "k", request(), Deadline::after(Duration::ZERO)).await;
            assert_eq!(entered.map(drop).map_err(|error| error.code()), Err(ErrorCode::Timeout), "it runs there");
        }
        guard.end(&reply_of(10), SendingState::Sent).await;
        after(600);
        assert_eq!(keep(&other, "k", 10).await, Ok(false), "replica: {is_replica}");
        after(620);
        assert_eq!(keep(&other, "k", 10).await, Ok(true), "replica: {is_replica}");
    }
}

#[tokio::test]
async fn the_record_of_a_call_whose_process_ended_expires() {
    let clock = Arc::new(DatabaseClock::new());
    let store = with_clock(&test_store().await, &clock);
    let config = SessionConfig { idempotency_seconds: 300, ..SessionConfig::default() };
    let replica = async |id: &str| {
        let replies = Arc::new(Replies::open(&config, store.clone()).await.unwrap());
        replies.set_replica(&id.into());
        beat(&store, id).await;
        replies
    };
    let (runner, other) = (replica("runner").await, replica("other").await);
    let deadline = Deadline::after(Duration::from_secs(60));
    let Ok(IdempotentOutcome::First(mut guard)) = runner.enter(&call(), "k", request(), deadline).await else {
        panic!()
    };
    guard.record(deadline).await.unwrap();
    drop(guard);
    store.replicas().remove("runner").await.unwrap();
    assert_eq!(keep(&other, "k", 10).await, Err(ErrorCode::UnknownOutcome));
    clock.set(*clock.now() + SignedDuration::from_secs(310));
    other.forget_expired().await.unwrap();
    assert_eq!(keep(&other, "k", 10).await, Ok(true));
}
