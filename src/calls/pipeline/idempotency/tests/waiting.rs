//! Calls that wait for the first call with their key.

use futures_util::future::join;

use super::*;
use sekisho_core::call::Stage;

/// When the first call ends without running its tool, a waiting call looks up the key again.
#[tokio::test]
async fn when_the_first_call_is_refused_the_next_waiting_call_is_first() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    let deadline = Deadline::after(Duration::from_secs(60));
    let Ok(IdempotentOutcome::First(guard)) = replies.enter(&call(), "k", request(), deadline).await else { panic!() };
    let error = CallError::new(ErrorCode::Denied, "no").at_stage(Stage::Policy);
    let refused = Arc::new(Reply::without_a_run(&call(), error));
    let ending = async { guard.end(&refused, SendingState::Pending).await };
    let (waiting, ()) = join(join(keep(replies, "k", 1), keep(replies, "k", 1)), ending).await;
    assert_eq!([waiting.0, waiting.1].iter().filter(|first| **first == Ok(true)).count(), 1);
}

#[tokio::test]
async fn a_waiting_call_waits_until_its_own_deadline() {
    let checkpoint = Checkpoint::around(counting());
    let replies = &checkpoint.pipeline.replies;
    let deadline = Deadline::after(Duration::from_secs(60));
    let Ok(IdempotentOutcome::First(_guard)) = replies.enter(&call(), "k", request(), deadline).await else { panic!() };
    let soon = Deadline::after(Duration::from_millis(20));
    let error = replies.enter(&call(), "k", request(), soon).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Timeout);
}
