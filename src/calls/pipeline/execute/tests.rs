use std::sync::Arc;

use futures_util::future::{join, pending};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::*;
use crate::pipeline::tests::{Checkpoint, Scripted, call as a_call, failure, upstream};
use crate::policy::Policy;
use crate::tool::tests::tool_run_by;
use crate::tool::{Execution, Executor, Metadata};
use sekisho_config::{Config, PolicyConfig};
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::{Arguments, Caller, Via};
use sekisho_core::error::ErrorCode;
use sekisho_core::slack::slack;

fn answer() -> ToolOutput {
    json!("fine").into()
}

/// Fails with a network error at every run.
fn unreachable() -> Scripted {
    Scripted::answering(|_| Err(failure(Blame::Network)))
}

fn with_timeout(timeout_seconds: u32) -> Metadata {
    Metadata { timeout_seconds, ..Metadata::default() }
}

#[tokio::test(start_paused = true)]
async fn attempts_go_on_until_one_succeeds() {
    let script = Scripted::answering(|run| if run < 3 { Err(failure(Blame::Network)) } else { Ok(answer()) });
    let checkpoint = Checkpoint::around(script);
    let started = Instant::now();
    let executed = checkpoint.execute().await.unwrap();
    assert_eq!((executed.attempts, checkpoint.runs()), (3, 3));
    // The backoff is 0.5 to 1 second, then 1 to 2 seconds.
    let waited = started.elapsed().as_secs_f64();
    assert!((1.5..=3.01).contains(&waited), "{waited} s");
    assert_eq!(checkpoint.pipeline.breakers.state(&upstream(), "acme"), BreakerState::Closed);
}

/// An error that is not a network failure is not retried.
#[tokio::test(start_paused = true)]
async fn only_network_failures_are_retried() {
    let cases: [(fn() -> CallError, usize); 5] = [
        (|| CallError::tool("404: no such pet"), 1),
        (|| failure(Blame::Call), 1),
        (|| failure(Blame::Upstream), 1),
        (|| failure(Blame::Network).retry_after(Duration::from_secs(1)), 1),
        (|| failure(Blame::Network), 4),
    ];
    for (error, runs) in cases {
        let checkpoint = Checkpoint::around(Scripted::answering(move |_| Err(error())));
        let error = checkpoint.execute().await.unwrap_err();
        assert_eq!((checkpoint.runs(), error.attempts()), (runs, u32::try_from(runs).unwrap()), "{error}");
        let attempts = &error.notes().unwrap().attempts;
        assert_eq!(attempts.len(), runs, "{error}");
        // Each begins after the backoff of the one before it.
        assert!(attempts.windows(2).all(|pair| pair[1].began_us >= pair[0].began_us + 500_000), "{attempts:?}");
        assert!(attempts.iter().all(|attempt| attempt.code == error.code()), "{attempts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_retry_is_sent_after_the_circuit_has_opened() {
    let mut config = Config::default();
    config.breaker.consecutive_failures = 1;
    let checkpoint = Checkpoint::with(&config, Metadata::default(), unreachable());
    let others = async {
        sleep(Duration::from_millis(100)).await;
        checkpoint.fail_upstream();
    };
    let (result, ()) = join(checkpoint.execute(), others).await;
    assert_eq!(result.unwrap_err().code(), ErrorCode::UpstreamError, "the upstream's failure, not the circuit's");
    assert_eq!(checkpoint.runs(), 1);
    assert_eq!(checkpoint.pipeline.breakers.state(&upstream(), "acme"), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn no_backoff_begins_that_would_pass_the_deadline() {
    let mut config = Config::default();
    config.execution.backoff_base_seconds = 10.0;
    let checkpoint = Checkpoint::with(&config, with_timeout(2), unreachable());
    let started = Instant::now();
    assert_eq!(checkpoint.execute().await.unwrap_err().attempts(), 1);
    assert!(started.elapsed() < slack(Duration::from_millis(50)));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_may_have_a_timeout_and_all_of_them_end_at_the_deadline() {
    let script = Scripted { takes: Duration::from_secs(3_600), ..unreachable() };
    let mut config = Config::default();
    config.execution.attempt_timeout_seconds = Some(10.0);
    let checkpoint = Checkpoint::with(&config, with_timeout(15), script);
    let started = Instant::now();
    let error = checkpoint.execute().await.unwrap_err();
    // An attempt of ten seconds, a backoff, and an attempt until the deadline.
    assert_eq!((error.code(), error.attempts()), (ErrorCode::Timeout, 2));
    let elapsed = started.elapsed().as_secs_f64();
    assert!((14.9..=15.1).contains(&elapsed), "{elapsed} s");
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_use_its_whole_timeout_in_one_attempt() {
    let slow = || Scripted { takes: Duration::from_secs(20), ..Scripted::answering(|_| Ok(answer())) };
    let mut config = Config::default();
    let remote = Checkpoint::with(&config, with_timeout(30), slow());
    assert_eq!(remote.execute().await.unwrap().attempts, 1);
    config.execution.attempt_timeout_seconds = Some(10.0);
    let local = Checkpoint::with(&config, with_timeout(30), Scripted { upstream: None, ..slow() });
    assert_eq!(local.execute().await.unwrap().attempts, 1, "the timeout is for the network");
    let limited = Checkpoint::with(&config, with_timeout(30), slow());
    assert_eq!(limited.execute().await.unwrap_err().code(), ErrorCode::Timeout);
}

#[tokio::test(start_paused = true)]
async fn connections_are_attempted_while_time_is_left() {
    // A connection timeout of 10 seconds, as often as fits.
    let script = Scripted { takes: Duration::from_secs(10), ..unreachable() };
    let checkpoint = Checkpoint::with(&Config::default(), with_timeout(30), script);
    let error = checkpoint.execute().await.unwrap_err();
    assert_eq!((error.code(), error.attempts()), (ErrorCode::Timeout, 3));
}

#[tokio::test(start_paused = true)]
async fn the_breaker_records_no_outcome_of_a_dropped_execution() {
    let checkpoint = Checkpoint::around(Scripted { takes: Duration::from_secs(5), ..unreachable() });
    tokio::select! {
        _ = checkpoint.execute() => panic!("it takes longer"),
        () = sleep(Duration::from_secs(1)) => {}
        () = pending() => {}
    }
    assert_eq!(checkpoint.pipeline.breakers.state(&upstream(), "acme"), BreakerState::Closed);
}

/// Calls that end early because of their caller are no failures of the upstream; other early ends are.
#[tokio::test(start_paused = true)]
async fn a_timeout_counts_only_if_the_upstream_had_half_of_its_time() {
    let silent = || Scripted { takes: Duration::from_secs(3_600), ..Scripted::answering(|_| Ok(answer())) };
    let mut config = Config::default();
    config.breaker.consecutive_failures = 1;
    for (leaves, state) in [(14, BreakerState::Closed), (15, BreakerState::Open), (60, BreakerState::Open)] {
        let checkpoint = Checkpoint::with(&config, with_timeout(30), silent());
        let mut call = a_call();
        call.must_end_by = Some(call.received + Duration::from_secs(leaves));
        let error = checkpoint.execute_call(call).await.unwrap_err();
        assert_eq!((error.code(), checkpoint.runs()), (ErrorCode::Timeout, 1));
        assert_eq!(checkpoint.pipeline.breakers.state(&upstream(), "acme"), state, "{leaves} s");
    }
}

/// The time that the gateway needs for itself is not taken from the tool's time.
#[tokio::test(start_paused = true)]
async fn a_call_that_waited_has_its_whole_time() {
    let slow = Scripted { takes: Duration::from_secs(29), ..Scripted::answering(|_| Ok(answer())) };
    let checkpoint = Checkpoint::with(&Config::default(), with_timeout(30), slow);
    let call = a_call();
    let waiting = call.progress.queueing.begin();
    sleep(Duration::from_secs(28)).await;
    drop(waiting);
    assert_eq!(checkpoint.execute_call(call).await.unwrap().attempts, 1);
}

/// Never answers.
struct Endless;

impl Executor for Endless {
    fn execute<'a>(&'a self, _attempt: Attempt<'a>, _arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(pending())
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_at_its_deadline_and_blames_the_network() {
    let metadata = Metadata { name: "endless".into(), ..Metadata::default() };
    let tool = tool_run_by(Arc::new(Endless), metadata);
    let call = CallContext::new("endless", Arc::new(Caller::new("ann", "acme", Vec::new())), Via::Rest);
    let policy = Policy::load(&PolicyConfig::default()).unwrap();
    let authorized = policy.authorize(&call, &tool, tool.input.validate(Arguments::new()).unwrap()).unwrap();
    let permit = authorized.without_approval().unwrap();
    let started = Instant::now();
    let error = attempt(&call, &tool, &permit, Deadline::after(Duration::from_secs(3))).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (ErrorCode::Timeout, Blame::Network));
    assert!(error.message().contains("endless did not answer in time"), "{}", error.message());
    assert!((2.99..3.1).contains(&started.elapsed().as_secs_f64()));
}
