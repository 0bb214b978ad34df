//! Which calls run once, and of which a reply is recorded.

use futures_util::future::join_all;

use super::*;
use crate::pipeline::Pipeline;
use crate::pipeline::tests::{HandsOver, failure};
use sekisho_core::error::Blame;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parallel_duplicates_run_once_and_get_the_same_reply() {
    let checkpoint = Checkpoint::around(counting());
    let calls = (0..100).map(|_| {
        let pipeline = Arc::clone(&checkpoint.pipeline);
        tokio::spawn(async move { pipeline.call(keyed("k"), Arguments::new()).await })
    });
    let answers = join_all(calls).await;
    assert_eq!(checkpoint.runs(), 1);
    let answers: Vec<_> = answers.iter().map(|answered| outcome_of(answered.as_ref().unwrap())).collect();
    assert!(answers.iter().all(|(output, _)| *output == Ok(json!(1))), "{answers:?}");
    assert_eq!(answers.iter().filter(|(_, replayed)| !replayed).count(), 1);
    assert_eq!(checkpoint.pipeline.replies.len().await, (1, 0));
}

/// The client lost its connection, and sends the call again: while it runs, and after it has ended.
#[tokio::test]
async fn a_call_continues_without_its_client_and_is_answered_when_sent_again() {
    let (script, gate) = gated();
    let checkpoint = Checkpoint::around(script);
    for _ in 0..3 {
        // Dropped when the tool runs.
        let sent = checkpoint.pipeline.call(keyed("k"), Arguments::new());
        tokio::select! {
            answered = sent => panic!("{answered:?}"),
            () = until_runs(&checkpoint, 1) => {}
        }
    }
    let Pipeline { limits, settlement, budget, .. } = &*checkpoint.pipeline;
    assert_eq!(limits.in_flight(), 1, "the call holds its slot");
    assert!(settlement.metrics.render().contains("test_calls_in_flight 1"));
    assert!(!budget.held().cost_usd.is_zero(), "the call holds its price");
    gate.add_permits(1);
    assert_eq!(send(&checkpoint, "k").await, (Ok(json!(1)), true));
    assert_eq!(send(&checkpoint, "k").await, (Ok(json!(1)), true));
    assert_eq!((checkpoint.runs(), limits.in_flight()), (1, 0));
    let lines = checkpoint.lines().await;
    assert_eq!((lines.len(), &lines[0]["status"]), (1, &json!("success")));
}

#[tokio::test]
async fn a_call_without_a_key_ends_with_its_client() {
    let checkpoint = Checkpoint::around(gated().0);
    tokio::select! {
        answered = checkpoint.pipeline.call(call(), Arguments::new()) => panic!("{answered:?}"),
        () = until_runs(&checkpoint, 1) => {}
    }
    assert_eq!(checkpoint.pipeline.limits.in_flight(), 0);
    assert_eq!(checkpoint.lines().await[0]["status"], "cancelled");
}

/// A call that was sent, or began, may have had its effect. Any other call can be sent again.
#[tokio::test]
async fn only_calls_that_began_are_recorded() {
    type Failure = fn() -> CallError;
    let cases: [(HandsOver, Failure, bool); 5] = [
        (HandsOver::AtOnce, || CallError::tool("no"), true),
        (HandsOver::AtOnce, || failure(Blame::Upstream), true),
        (HandsOver::Nothing, || CallError::tool("no"), true),
        (HandsOver::Later, || CallError::tool("the guard says no"), false),
        (HandsOver::Later, || failure(Blame::Upstream), false),
    ];
    for (hands_over, error, is_kept) in cases {
        let script = Scripted { hands_over, ..Scripted::answering(move |_| Err(error())) };
        let checkpoint = Checkpoint::around(script);
        let first = send(&checkpoint, "k").await;
        assert_eq!(send(&checkpoint, "k").await, (first.0, is_kept), "{hands_over:?}");
        assert_eq!(checkpoint.runs(), if is_kept { 1 } else { 2 }, "{hands_over:?}");
        assert_eq!(checkpoint.pipeline.replies.len().await, (is_kept.into(), 0), "{hands_over:?}");
    }
}

#[tokio::test]
async fn refusals_dry_runs_and_calls_to_missing_tools_are_not_recorded() {
    let checkpoint = Checkpoint::around(counting());
    let pipeline = &checkpoint.pipeline;
    let wrong = json!({"n": "many"}).as_object().cloned().unwrap();
    let refused = pipeline.call(keyed("k"), wrong).await;
    assert_eq!(outcome_of(&refused), (Err(ErrorCode::InvalidArguments), false));
    let dry = pipeline.call(CallContext { dry_run: true, ..keyed("k") }, Arguments::new()).await;
    assert_eq!(outcome_of(&dry), (Ok(Value::Null), false));
    let unknown = pipeline.call(CallContext { tool: "nothing".into(), ..keyed("k") }, Arguments::new()).await;
    assert_eq!(outcome_of(&unknown), (Err(ErrorCode::UnknownTool), false));
    assert_eq!(pipeline.replies.len().await, (0, 0));
    assert_eq!(send(&checkpoint, "k").await, (Ok(json!(1)), false));
    assert_eq!(checkpoint.lines().await.len(), 4, "each call is settled");
}
