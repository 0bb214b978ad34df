//! Sessions when something is missing on their way to the storage and back.

use futures_util::FutureExt;

use super::*;
use crate::sessions::KeptInterpreter;
use crate::sessions::rights::Rights;
use crate::sessions::turn::Turn;
use sekisho_store::{AskedOfSession, InterpreterSessionKey};

#[tokio::test]
async fn a_session_that_no_worker_has_space_for_now_is_resumed_later() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    turn(&sandbox, "a", "sessions", false).await;
    sandbox.store_all_sessions().await;
    call(&sandbox, "ann", "switch", "full").await.0.unwrap();
    let (refused, noted) = call(&sandbox, "ann", "a", "sessions").await;
    assert_eq!((refused.unwrap_err().code(), noted), (ErrorCode::Overloaded, None));
    assert_eq!((places(&sandbox).await, shared.objects().len()), (vec!["a stored".to_owned()], 1));
    call(&sandbox, "ann", "switch", "full").await.0.unwrap();
    assert!(turn(&sandbox, "a", "sessions", false).await.1.is_resumed);
    sandbox.close().await;
}

/// Has other calls hold so much of the memory of sessions that this is left of one MiB, until it is dropped.
async fn all_memory_but(sandbox: &Sandbox, left: u64) -> Turn<'_, KeptInterpreter> {
    let deadline = Deadline::after(Duration::from_secs(5));
    let turn = sandbox.sessions.enter(&owner("ann"), Some(Rights::default()), "full", deadline).await.unwrap();
    assert!(sandbox.sessions.hold(turn.session(), (1 << 20) - left));
    turn
}

fn with_a_mebibyte() -> InterpreterSessionsConfig {
    InterpreterSessionsConfig { max_memory_mb: Some(1), ..InterpreterSessionsConfig::default() }
}

#[tokio::test]
async fn a_session_that_there_is_no_memory_for_stays_stored() {
    let shared = Shared::new().await;
    let sandbox = shared.process(with_a_mebibyte(), None).await;
    turn(&sandbox, "a", "sessions", false).await;
    sandbox.store_all_sessions().await;
    let full = all_memory_but(&sandbox, 5).await;
    let refused = call(&sandbox, "ann", "a", "sessions").await.0.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Overloaded, "{refused}");
    let refused = sandbox.fork_session(&owner("ann"), "a", 1).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Overloaded, "{refused}");
    assert_eq!((places(&sandbox).await, shared.objects().len()), (vec!["a stored".to_owned()], 1));
    drop(full);
    let (said, noted) = turn(&sandbox, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed), ("Continue 1", true));
    sandbox.close().await;
}

#[tokio::test]
async fn all_copies_are_made_or_none() {
    let shared = Shared::new().await;
    let sandbox = shared.process(with_a_mebibyte(), None).await;
    turn(&sandbox, "a", "sessions", false).await;
    // There is enough for one copy, and for the memory that two were thought to need.
    let full = all_memory_but(&sandbox, 10 + 35).await;
    let refused = sandbox.fork_session(&owner("ann"), "a", 2).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Overloaded, "{refused}");
    assert_eq!(places(&sandbox).await, ["a memory"]);
    drop(full);
    assert_eq!(turn(&sandbox, "a", "sessions", false).await.0, "Continue 1", "the worker has none of them");
    sandbox.close().await;
}

#[tokio::test]
async fn a_session_that_a_call_has_taken_is_not_released_before_it_has_begun() {
    let shared = Shared::new().await;
    let one = shared.process(InterpreterSessionsConfig::default(), Some("one")).await;
    turn(&one, "a", "sessions", false).await;
    one.store_all_sessions().await;
    let (images, deadline) = (one.session_images().unwrap(), Deadline::after(Duration::from_secs(5)));
    let mut taking = one.sessions.enter(&owner("ann"), Some(Rights::default()), "a", deadline).await.unwrap();
    let taken = images.take(taking.key(), deadline).await.unwrap();
    taking.is_taken(taken.fence);
    let key = taking.key().clone();
    let wanted = InterpreterSessionKey { tenant: &key.owner.tenant, caller_key: &key.owner.caller, name: &key.name };
    assert!(shared.store.interpreter_sessions().ask_for(wanted, AskedOfSession::Release).await.unwrap());
    one.release_wanted(images).await;
    assert!(images.has(&key, taken.fence).await.unwrap(), "it may begin yet");
    // The call fails before it has begun.
    drop(taking);
    one.record_ends().await;
    assert!(!images.has(&key, taken.fence).await.unwrap());
    assert_eq!(places(&one).await, ["a stored"]);
    one.close().await;
}

#[tokio::test]
async fn a_session_whose_image_was_not_named_stays_in_memory() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    turn(&sandbox, "a", "sessions", false).await;
    shared.store.change_rows("ALTER TABLE interpreter_sessions RENAME COLUMN object_bytes TO away").await;
    sandbox.store_all_sessions().await;
    shared.store.change_rows("ALTER TABLE interpreter_sessions RENAME COLUMN away TO object_bytes").await;
    let shown = serde_json::to_value(sandbox.list_sessions(&owner("ann")).await.unwrap()).unwrap();
    assert_eq!([&shown[0]["place"], &shown[0]["not_stored"]], ["memory", "unavailable"]);
    let (said, noted) = turn(&sandbox, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed, noted.generation), ("Continue 1", false, 1));
    sandbox.close().await;
}

/// Otherwise its stored state would go on at another replica, or after a restart.
#[tokio::test]
async fn an_end_that_the_store_does_not_take_is_recorded_later_and_a_deletion_says_so() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    turn(&sandbox, "a", "sessions", true).await;
    shared.store.change_rows("ALTER TABLE interpreter_sessions RENAME COLUMN ended TO away").await;
    let refused = sandbox.delete_session(&owner("ann"), "a").await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Overloaded, "{refused}");
    shared.store.change_rows("ALTER TABLE interpreter_sessions RENAME COLUMN away TO ended").await;
    assert_eq!(shared.objects().len(), 1);
    sandbox.record_ends().await;
    shared.has_objects(0).await;
    // Another process, which knows only the store's contents.
    let after = shared.process(InterpreterSessionsConfig::default(), None).await;
    let (said, noted) = turn(&after, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.previous_end), ("Begin 1", Some(SessionEnd::Deleted)));
    after.close().await;
    sandbox.close().await;
}

#[tokio::test]
async fn a_call_that_leaves_or_is_late_while_its_session_is_resumed_leaves_it_stored() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    turn(&sandbox, "a", "sessions", false).await;
    sandbox.store_all_sessions().await;
    // As many images are read at once as may be.
    let images = sandbox.session_images().unwrap();
    let others: Vec<_> = std::iter::from_fn(|| images.permit_to_read().now_or_never()).collect();
    let mut leaving = Box::pin(call(&sandbox, "ann", "a", "sessions"));
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut leaving).await.is_err());
    assert_eq!(sandbox.load().runs, 0, "others have the capacity while the storage is slow");
    drop(leaving);
    let caller = Arc::new(Caller::new("ann", "tenant", Vec::new()));
    let context = CallContext::new("python_executor", caller, Via::Rest);
    let (session, deadline) =
        (CallSession { name: "a", every_call: false }, Deadline::after(Duration::from_millis(200)));
    let late = sandbox.run_job_in_session(&context, session, job("sessions"), deadline).await;
    assert_eq!(late.unwrap_err().code(), ErrorCode::Overloaded);
    assert_eq!((places(&sandbox).await, shared.objects().len()), (vec!["a stored".to_owned()], 1));
    drop(others);
    let (said, noted) = turn(&sandbox, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed), ("Continue 1", true));
    sandbox.close().await;
}

/// Nothing is written for it, so that it does not end while the storage is away.
#[tokio::test]
async fn a_session_with_a_checkpoint_leaves_the_memory_with_the_image_that_it_has() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    turn(&sandbox, "a", "sessions", true).await;
    let objects = shared.objects();
    sandbox.store_all_sessions().await;
    assert_eq!((places(&sandbox).await, shared.objects()), (vec!["a stored".to_owned()], objects.clone()));
    let (said, noted) = turn(&sandbox, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.is_resumed, noted.is_checkpointed), ("Continue 1", true, Some(true)));
    shared.has_objects(1).await;
    assert_ne!(shared.objects(), objects, "the next call has another one");
    sandbox.close().await;
}

#[tokio::test]
async fn a_session_whose_worker_is_gone_is_not_stored_and_says_so() {
    let shared = Shared::new().await;
    let sandbox = shared.process(InterpreterSessionsConfig::default(), None).await;
    turn(&sandbox, "a", "sessions", false).await;
    assert!(call(&sandbox, "ann", "other", "die").await.0.is_err());
    sandbox.store_all_sessions().await;
    assert_eq!(shared.objects().len(), 0);
    let (said, noted) = turn(&sandbox, "a", "sessions", false).await;
    assert_eq!((said.as_str(), noted.previous_end), ("Begin 1", Some(SessionEnd::WorkerDied)));
    assert_eq!(noted.not_stored, Some(NotStored::Unavailable));
    sandbox.close().await;
}
