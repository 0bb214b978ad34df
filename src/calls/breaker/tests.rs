mod many;
mod tenants;

use std::future::pending;

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::time::{Instant, advance};

use super::*;
use sekisho_core::slack::slack;

/// The tenant of calls whose tenant does not matter.
const ACME: &str = "acme";

const RECOVERY: Duration = Duration::from_secs(60);

fn breakers(change: impl FnOnce(&mut BreakerConfig)) -> Breakers {
    let mut config = BreakerConfig::default();
    change(&mut config);
    Breakers::new(BreakerRules::new(&config, []), Arc::new(Metrics::new("test").unwrap()))
}

fn upstream(name: &str) -> Upstream {
    Upstream::new(name)
}

fn host() -> Upstream {
    upstream("https://api.example.com:443")
}

fn error(code: ErrorCode, blame: Blame) -> CallError {
    CallError::new(code, "as the test says").blaming(blame)
}

fn failure() -> CallError {
    error(ErrorCode::UpstreamError, Blame::Upstream)
}

/// One call through the breaker with the given outcome.
fn call(breakers: &Breakers, upstream: &Upstream, end: Result<(), CallError>) -> Result<(), ErrorCode> {
    call_of(ACME, breakers, upstream, end)
}

fn call_of(
    tenant: &str,
    breakers: &Breakers,
    upstream: &Upstream,
    end: Result<(), CallError>,
) -> Result<(), ErrorCode> {
    let trial = breakers.admit(Some(upstream.clone()), tenant).map_err(|refusal| refusal.code())?;
    trial.record(end.as_ref().err());
    end.map_err(|error| error.code())
}

fn fail(breakers: &Breakers, upstream: &Upstream, times: usize) {
    for _ in 0..times {
        let _ = call(breakers, upstream, Err(failure()));
    }
}

fn opened(breakers: &Breakers) -> Upstream {
    fail(breakers, &host(), 5);
    assert_eq!(breakers.state(&host(), ACME), BreakerState::Open);
    host()
}

/// As [`opened`], and then the time to recover has passed.
async fn ready_to_probe(breakers: &Breakers) -> Upstream {
    let host = opened(breakers);
    advance(RECOVERY).await;
    assert_eq!(breakers.state(&host, ACME), BreakerState::HalfOpen);
    host
}

#[tokio::test(start_paused = true)]
async fn five_failures_in_a_row_open_it_and_a_success_between_starts_the_count_anew() {
    let breakers = breakers(|_| {});
    fail(&breakers, &host(), 4);
    call(&breakers, &host(), Ok(())).unwrap();
    fail(&breakers, &host(), 4);
    assert_eq!(breakers.state(&host(), ACME), BreakerState::Closed);
    fail(&breakers, &host(), 1);
    assert_eq!(breakers.state(&host(), ACME), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn half_of_twenty_calls_failing_opens_it_and_less_or_fewer_do_not() {
    let every = |failing: usize, calls: usize| {
        let breakers = breakers(|_| {});
        for at in 1..=calls {
            let end = if at % failing == 0 { Err(failure()) } else { Ok(()) };
            let _ = call(&breakers, &host(), end);
        }
        breakers.state(&host(), ACME)
    };
    assert_eq!(every(2, 18), BreakerState::Closed, "half of 18");
    assert_eq!(every(2, 20), BreakerState::Open, "half of 20");
    assert_eq!(every(3, 300), BreakerState::Closed, "a third of 300");
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_answers_at_once_with_the_time_left() {
    let breakers = breakers(|_| {});
    let host = opened(&breakers);
    advance(Duration::from_millis(17_400)).await;
    let attempt = std::time::Instant::now();
    let refusals: Vec<_> = (0..100).map(|_| breakers.admit(Some(host.clone()), ACME).unwrap_err()).collect();
    assert!(attempt.elapsed() < slack(Duration::from_millis(100)), "each in under a millisecond");
    for refusal in &refusals {
        assert_eq!((refusal.code(), refusal.wait()), (ErrorCode::CircuitOpen, Some(Duration::from_secs(43))));
        assert_eq!(refusal.breaker(), Some(&(Arc::clone(&host.name), BreakerState::Open)));
    }
    insta::assert_snapshot!(refusals[0], @"circuit_open: https://api.example.com:443 keeps failing and is not called for now; call again in 43 s");
}

/// Fault 1 of the specification: a breaker that counts its own refusals and never closes under traffic.
#[tokio::test(start_paused = true)]
async fn refusals_under_traffic_neither_keep_it_open_nor_count() {
    let breakers = breakers(|_| {});
    let host = opened(&breakers);
    let opened = Instant::now();
    while opened.elapsed() < RECOVERY {
        assert_eq!(call(&breakers, &host, Ok(())), Err(ErrorCode::CircuitOpen));
        advance(Duration::from_millis(50)).await;
    }
    call(&breakers, &host, Ok(())).unwrap();
    assert_eq!(breakers.state(&host, ACME), BreakerState::Closed);
    fail(&breakers, &host, 4);
    assert_eq!(breakers.state(&host, ACME), BreakerState::Closed, "counts are reset");
}

/// Fault 1 of the specification: half-open that lets everything through.
#[tokio::test(start_paused = true)]
async fn of_a_hundred_calls_after_the_recovery_time_exactly_one_probes() {
    let breakers = breakers(|_| {});
    let host = ready_to_probe(&breakers).await;
    let (probes, refusals): (Vec<_>, Vec<_>) =
        (0..100).map(|_| breakers.admit(Some(host.clone()), ACME)).partition(Result::is_ok);
    assert_eq!((probes.len(), refusals.len()), (1, 99));
    for refusal in refusals {
        let refusal = refusal.unwrap_err();
        assert_eq!((refusal.code(), refusal.wait()), (ErrorCode::CircuitOpen, Some(Duration::from_secs(1))));
    }
    let probe = probes.into_iter().next().unwrap().unwrap();
    assert_eq!(probe.state(), Some(BreakerState::HalfOpen));
    probe.record(None);
    assert_eq!(breakers.state(&host, ACME), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_fails_opens_it_for_as_long_again() {
    let breakers = breakers(|_| {});
    let host = ready_to_probe(&breakers).await;
    fail(&breakers, &host, 1);
    assert_eq!(breakers.admit(Some(host.clone()), ACME).unwrap_err().wait(), Some(RECOVERY));
    advance(RECOVERY).await;
    call(&breakers, &host, Ok(())).unwrap();
    assert_eq!(breakers.state(&host, ACME), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_probe_permits_another() {
    let breakers = breakers(|_| {});
    let host = ready_to_probe(&breakers).await;
    for _ in 0..3 {
        let probe = breakers.admit(Some(host.clone()), ACME).unwrap();
        let work = async move {
            pending::<()>().await;
            probe.record(None);
        };
        assert!(work.now_or_never().is_none());
        assert_eq!(breakers.state(&host, ACME), BreakerState::HalfOpen, "a disconnected client has no effect");
    }
    call(&breakers, &host, Ok(())).unwrap();
    assert_eq!(breakers.state(&host, ACME), BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_permits_another() {
    let breakers = Arc::new(breakers(|_| {}));
    let host = ready_to_probe(&breakers).await;
    let probe = breakers.admit(Some(host.clone()), ACME).unwrap();
    let work = async move {
        let _probe = probe;
        panic!("as the test says");
    };
    assert!(tokio::spawn(work).await.is_err());
    call(&breakers, &host, Ok(())).unwrap();
}

/// Fault 2 of the specification: responses that reject the call are counted as outages.
#[tokio::test(start_paused = true)]
async fn only_failures_of_the_upstream_or_the_network_count() {
    let cases = [
        (ErrorCode::UpstreamError, Blame::Call, BreakerState::Closed),
        (ErrorCode::ToolError, Blame::Call, BreakerState::Closed),
        (ErrorCode::RateLimited, Blame::Call, BreakerState::Closed),
        (ErrorCode::Denied, Blame::Call, BreakerState::Closed),
        (ErrorCode::Internal, Blame::Call, BreakerState::Closed),
        (ErrorCode::UpstreamError, Blame::Upstream, BreakerState::Open),
        (ErrorCode::UpstreamError, Blame::Network, BreakerState::Open),
        (ErrorCode::Timeout, Blame::Network, BreakerState::Open),
    ];
    for (code, blame, expected) in cases {
        let breakers = breakers(|_| {});
        for _ in 0..100 {
            let _ = call(&breakers, &host(), Err(error(code, blame)));
        }
        assert_eq!(breakers.state(&host(), ACME), expected, "after 100 times {code} by {blame:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_proves_that_the_upstream_works_and_a_refusal_on_our_side_proves_nothing() {
    let cases = [
        (ErrorCode::UpstreamError, BreakerState::Closed),
        (ErrorCode::ToolError, BreakerState::Closed),
        (ErrorCode::Denied, BreakerState::HalfOpen),
        (ErrorCode::Overloaded, BreakerState::HalfOpen),
        (ErrorCode::Internal, BreakerState::HalfOpen),
    ];
    for (code, expected) in cases {
        let breakers = breakers(|_| {});
        let host = ready_to_probe(&breakers).await;
        assert_eq!(call(&breakers, &host, Err(error(code, Blame::Call))), Err(code));
        assert_eq!(breakers.state(&host, ACME), expected, "after {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn outcomes_from_before_the_breaker_moved_on_are_dropped() {
    let breakers = breakers(|_| {});
    let early: Vec<_> = (0..20).map(|_| breakers.admit(Some(host()), ACME).unwrap()).collect();
    let mut early = early.into_iter();
    let host = ready_to_probe(&breakers).await;
    early.next().unwrap().record(None);
    assert_eq!(breakers.state(&host, ACME), BreakerState::HalfOpen, "a late success is no probe");
    call(&breakers, &host, Ok(())).unwrap();
    for late in early {
        late.record(Some(&failure()));
    }
    assert_eq!(breakers.state(&host, ACME), BreakerState::Closed, "late failures are of another time");
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_refused_once_the_breaker_has_opened_except_to_the_probe() {
    let breakers = breakers(|_| {});
    let early = breakers.admit(Some(host()), ACME).unwrap();
    early.still_permitted().unwrap();
    let host = opened(&breakers);
    let refusal = early.still_permitted().unwrap_err();
    assert_eq!((refusal.code(), refusal.wait()), (ErrorCode::CircuitOpen, Some(RECOVERY)));
    advance(RECOVERY).await;
    let probe = breakers.admit(Some(host), ACME).unwrap();
    assert!(early.still_permitted().is_err());
    probe.still_permitted().unwrap();
    probe.record(None);
    early.still_permitted().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_metrics_follow_each_change_count_each_failure_and_go_with_the_breaker() {
    let breakers = breakers(|_| {});
    let shown = || -> Vec<String> {
        let text = breakers.metrics.render();
        text.lines().filter(|line| line.starts_with("test_") && line.contains("base_url=")).map(str::to_owned).collect()
    };
    let lines = |state: u8, failures: u8| {
        let label = "{base_url=\"https://api.example.com:443\"}";
        vec![
            format!("test_circuit_breaker_failures_total{label} {failures}"),
            format!("test_circuit_breaker_state{label} {state}"),
        ]
    };
    call(&breakers, &host(), Ok(())).unwrap();
    assert_eq!(shown(), lines(0, 0));
    fail(&breakers, &host(), 9);
    assert_eq!(shown(), lines(2, 5), "what it refused is not counted");
    advance(RECOVERY).await;
    let probe = breakers.admit(Some(host()), ACME).unwrap();
    assert_eq!(shown(), lines(1, 5));
    probe.record(Some(&failure()));
    assert_eq!(shown(), lines(2, 6));
    advance(RECOVERY).await;
    call(&breakers, &host(), Ok(())).unwrap();
    assert_eq!(shown(), lines(0, 6));
    advance(IDLE_AFTER).await;
    breakers.evict_idle();
    assert!(shown().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_local_tool_has_no_breaker() {
    let breakers = breakers(|_| {});
    for _ in 0..100 {
        let trial = breakers.admit(None, ACME).unwrap();
        assert_eq!((trial.upstream(), trial.state()), (None, None));
        trial.still_permitted().unwrap();
        trial.record(Some(&failure()));
    }
}

#[tokio::test(start_paused = true)]
async fn changed_rules_hold_at_once_and_the_same_rules_reset_nothing() {
    let config = |failures| BreakerConfig { consecutive_failures: failures, ..BreakerConfig::default() };
    let breakers = breakers(|_| {});
    fail(&breakers, &host(), 4);
    breakers.reconfigure(BreakerRules::new(&config(5), []));
    fail(&breakers, &host(), 1);
    assert_eq!(breakers.state(&host(), ACME), BreakerState::Open, "the fifth in a row");
    breakers.reconfigure(BreakerRules::new(&config(2), []));
    assert_eq!(breakers.state(&host(), ACME), BreakerState::Open);
    advance(RECOVERY).await;
    call(&breakers, &host(), Ok(())).unwrap();
    for host in [host(), upstream("mcp:new")] {
        fail(&breakers, &host, 2);
        assert_eq!(breakers.state(&host, ACME), BreakerState::Open);
    }
}

#[tokio::test(start_paused = true)]
async fn a_recovery_time_beyond_all_bounds_does_not_overflow() {
    let breakers = breakers(|config| config.recovery_seconds = u64::MAX);
    opened(&breakers);
}

#[derive(Debug, Clone)]
enum Step {
    Ask,
    End { which: usize, end: Option<bool> },
    Wait { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Ask),
        4 => (0_usize..8, prop::option::of(any::<bool>())).prop_map(|(which, end)| Step::End { which, end }),
        1 => (0_u64..90).prop_map(|seconds| Step::Wait { seconds }),
    ]
}

proptest! {
    #[test]
    fn at_most_one_call_probes_and_the_permission_always_returns(steps in prop::collection::vec(step(), 1..150)) {
        crate::limits::in_paused_time(async {
            let breakers = breakers(|config| config.consecutive_failures = 2);
            let mut trials = Vec::new();
            for step in steps {
                match step {
                    Step::Ask => {
                        let before = breakers.state(&host(), ACME);
                        let attempt = breakers.admit(Some(host()), ACME);
                        prop_assert!(before != BreakerState::Closed || attempt.is_ok());
                        prop_assert!(before != BreakerState::Open || attempt.is_err());
                        prop_assert!(attempt.as_ref().err().is_none_or(|refusal| refusal.wait() <= Some(RECOVERY)));
                        trials.extend(attempt);
                    }
                    Step::End { which, end } if which < trials.len() => match (trials.swap_remove(which), end) {
                        (trial, Some(true)) => trial.record(None),
                        (trial, Some(false)) => trial.record(Some(&failure())),
                        (trial, None) => drop(trial),
                    },
                    Step::End { .. } => {}
                    Step::Wait { seconds } => advance(Duration::from_secs(seconds)).await,
                }
                if breakers.state(&host(), ACME) != BreakerState::Closed {
                    let probes = trials.iter().filter(|trial| {
                        trial.state() == Some(BreakerState::HalfOpen) && trial.still_permitted().is_ok()
                    });
                    prop_assert!(probes.count() <= 1);
                }
            }
            trials.clear();
            advance(RECOVERY).await;
            prop_assert!(call(&breakers, &host(), Ok(())).is_ok());
            prop_assert_eq!(breakers.state(&host(), ACME), BreakerState::Closed);
            Ok(())
        })?;
    }
}
