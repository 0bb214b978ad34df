use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, advance, sleep};

use super::*;
use crate::registry::Snapshot;
use crate::tool::Metadata;
use crate::tool::{Attempt, Execution, Executor, ToolDefinition};
use sekisho_config::ToolsConfig;
use sekisho_core::call::{Arguments, CallNesting, Via};
use sekisho_core::error::ErrorCode;
use sekisho_observe::metrics::Metrics;

/// Runs a future to its end in a runtime whose clock is paused until it is advanced.
pub(crate) fn in_paused_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(work)
}

struct NeverRun;

impl Executor for NeverRun {
    fn execute<'a>(&'a self, _: Attempt<'a>, _: &'a Arguments) -> Execution<'a> {
        unreachable!("limits run no tool")
    }
}

/// The executor of a tool that makes calls itself.
struct RunsPrograms;

impl Executor for RunsPrograms {
    fn execute<'a>(&'a self, _: Attempt<'a>, _: &'a Arguments) -> Execution<'a> {
        unreachable!("limits run no tool")
    }

    fn sandboxed(&self) -> bool {
        true
    }
}

fn tool(name: &str, change: impl FnOnce(&mut Metadata)) -> Arc<Tool> {
    tool_run_by(Arc::new(NeverRun), name, change)
}

fn tool_run_by(executor: Arc<dyn Executor>, name: &str, change: impl FnOnce(&mut Metadata)) -> Arc<Tool> {
    let mut metadata = Metadata { name: name.into(), rate_limit: u32::MAX, ..Metadata::default() };
    change(&mut metadata);
    let definition =
        ToolDefinition { metadata, parameters: json!({"type": "object"}).into(), output_schema: None, executor };
    let metrics = Metrics::new("test").unwrap();
    let snapshot = Snapshot::build(vec![definition], Vec::new(), &ToolsConfig::default(), &metrics).unwrap();
    Arc::clone(snapshot.get(name).unwrap())
}

pub(super) fn rated(name: &str, rate: u32) -> Arc<Tool> {
    tool(name, |metadata| metadata.rate_limit = rate)
}

fn capped(name: &str, cap: u32) -> Arc<Tool> {
    tool(name, |metadata| metadata.max_concurrent = Some(cap))
}

pub(super) fn call_by(id: &str, tenant: &str) -> CallContext {
    CallContext::new("any", Arc::new(Caller::new(id, tenant, Vec::new())), Via::Rest)
}

pub(super) fn nested() -> CallContext {
    CallContext { nesting: CallNesting { depth: 1, ..CallNesting::default() }, ..call_by("a", "t") }
}

pub(super) fn limits(change: impl FnOnce(&mut LimitsConfig)) -> Limits {
    let mut config = LimitsConfig::default();
    change(&mut config);
    Limits::new(&config).unwrap()
}

async fn admitted(limits: &Limits, call: &CallContext, tool: &Arc<Tool>, attempts: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..attempts {
        admitted += usize::from(limits.admit(call, tool).await.is_ok());
    }
    admitted
}

/// Fault 3 of the specification: limits skipped at 60 a minute and above, or without a session id.
#[tokio::test(start_paused = true)]
async fn every_rate_is_enforced_at_sixty_and_above_and_without_a_session() {
    for rate in [1, 30, 59, 60, 61, 120, 2_000] {
        let (limits, tool, call) = (limits(|_| {}), rated("calculator", rate), call_by("a", "t"));
        assert!(call.origin.session.is_none());
        assert_eq!(admitted(&limits, &call, &tool, rate as usize + 50).await, rate as usize, "at {rate} a minute");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_comes_at_once_and_names_the_limit_and_the_wait() {
    let (limits, tool, call) = (limits(|_| {}), rated("calculator", 60), call_by("a", "t"));
    assert_eq!(admitted(&limits, &call, &tool, 60).await, 60);
    let before = Instant::now();
    advance(Duration::from_micros(99_500)).await;
    let refusal = limits.admit(&call, &tool).await.unwrap_err();
    assert_eq!(before.elapsed(), Duration::from_micros(99_500), "no call slept");
    assert_eq!(refusal.code(), ErrorCode::RateLimited);
    assert_eq!(refusal.wait(), Some(Duration::from_millis(901)));
    assert_eq!(refusal.rate(), Some(RateState { limit: 60, remaining: 0, reset_seconds: 60 }));
    insta::assert_snapshot!(refusal, @"rate_limited: the limit of 60 calls a minute for calculator is reached; call again in 0.901 s");
    advance(refusal.wait().unwrap()).await;
    assert!(limits.admit(&call, &tool).await.is_ok(), "a caller that waits as long as reported is admitted");
}

#[tokio::test(start_paused = true)]
async fn a_tools_rate_is_separate_for_each_caller_and_each_tool() {
    let limits = limits(|_| {});
    let (one, other) = (rated("one", 5), rated("other", 5));
    for call in [call_by("a", "t"), call_by("b", "t"), call_by("a", "u")] {
        assert_eq!(admitted(&limits, &call, &one, 9).await, 5);
        assert_eq!(admitted(&limits, &call, &other, 9).await, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_and_a_tenant_have_limits_over_all_tools_when_configured() {
    let limits = limits(|config| {
        config.caller_rate_limit = Some(5);
        config.tenant_rate_limit = Some(8);
    });
    let (one, other) = (rated("one", 4), rated("other", 60));
    let (a, b) = (call_by("a", "t"), call_by("b", "t"));
    assert_eq!(admitted(&limits, &a, &one, 9).await, 4, "the tool's own rate");
    assert_eq!(admitted(&limits, &a, &other, 9).await, 1, "the caller's rate");
    assert_eq!(admitted(&limits, &b, &other, 9).await, 3, "the tenant's rate");
    assert_eq!(admitted(&limits, &call_by("a", "u"), &other, 9).await, 5, "another tenant's caller of the same id");
    let message = async |call| limits.admit(call, &other).await.unwrap_err().message().to_owned();
    let refused = limits.admit(&b, &other).await.unwrap_err();
    assert_eq!(refused.notes().unwrap().limit.as_ref().unwrap().counts, CountedCalls::Tenant);
    insta::assert_snapshot!(message(&b).await, @"the limit of 8 calls a minute for all calls of one tenant is reached; call again in 7.5 s");
    advance(Duration::from_secs(8)).await;
    insta::assert_snapshot!(message(&a).await, @"the limit of 5 calls a minute for all calls of one caller is reached; call again in 4 s");
}

#[tokio::test(start_paused = true)]
async fn a_call_refused_by_a_narrower_limit_costs_the_broader_ones_nothing() {
    let limits = limits(|config| {
        config.caller_rate_limit = Some(50);
        config.tenant_rate_limit = Some(50);
    });
    let (narrow, wide) = (rated("narrow", 3), rated("wide", 1_000));
    let (greedy, other) = (call_by("greedy", "t"), call_by("other", "t"));
    assert_eq!(admitted(&limits, &greedy, &narrow, 1_000).await, 3);
    assert_eq!(admitted(&limits, &other, &wide, 1_000).await, 47);
}

#[tokio::test(start_paused = true)]
async fn the_reported_state_is_that_of_the_limit_nearest_to_empty() {
    let limits = limits(|config| config.caller_rate_limit = Some(10));
    let call = call_by("a", "t");
    let state = limits.admit(&call, &rated("wide", 60)).await.unwrap().rate;
    assert_eq!(state, Some(RateState { limit: 10, remaining: 9, reset_seconds: 6 }));
    let state = limits.admit(&call, &rated("narrow", 4)).await.unwrap().rate;
    assert_eq!(state, Some(RateState { limit: 4, remaining: 3, reset_seconds: 15 }));
}

#[tokio::test(start_paused = true)]
async fn a_reload_resets_no_counts_and_a_changed_rate_keeps_the_used_calls() {
    let (limits, call) = (limits(|_| {}), call_by("a", "t"));
    assert_eq!(admitted(&limits, &call, &rated("calculator", 10), 8).await, 8);
    assert_eq!(admitted(&limits, &call, &rated("calculator", 10), 9).await, 2);
    assert_eq!(admitted(&limits, &call, &rated("calculator", 15), 9).await, 5);
    assert_eq!(admitted(&limits, &call, &rated("calculator", 12), 9).await, 0);
}

#[tokio::test(start_paused = true)]
async fn reconfigured_rates_apply_at_once_and_a_zero_changes_nothing() {
    let (limits, call, tool) = (limits(|_| {}), call_by("a", "t"), rated("any", 1_000));
    assert_eq!(admitted(&limits, &call, &tool, 100).await, 100);
    let config = |rate| LimitsConfig { caller_rate_limit: rate, ..LimitsConfig::default() };
    limits.reconfigure(&config(Some(5))).unwrap();
    assert_eq!(admitted(&limits, &call, &tool, 100).await, 5);
    insta::assert_snapshot!(limits.reconfigure(&config(Some(0))).unwrap_err(), @"limits.caller_rate_limit: zero calls a minute would refuse every call; omit it for no limit");
    assert_eq!(admitted(&limits, &call, &tool, 100).await, 0);
    limits.reconfigure(&config(None)).unwrap();
    assert_eq!(admitted(&limits, &call, &tool, 100).await, 100);
}

#[test]
fn a_number_that_would_refuse_every_call_is_a_configuration_error() {
    let invalid: [fn(&mut LimitsConfig); 4] = [
        |config| config.caller_rate_limit = Some(0),
        |config| config.tenant_rate_limit = Some(0),
        |config| config.max_concurrent = 0,
        |config| config.max_concurrent_per_tool = 0,
    ];
    for make_invalid in invalid {
        let mut config = LimitsConfig::default();
        make_invalid(&mut config);
        assert!(Limits::new(&config).unwrap_err().contains("zero"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_with_a_rate_of_zero_cannot_be_called() {
    let refusal = limits(|_| {}).admit(&call_by("a", "t"), &rated("shut", 0)).await.unwrap_err();
    assert_eq!((refusal.code(), refusal.wait()), (ErrorCode::RateLimited, None));
}

#[tokio::test(start_paused = true)]
async fn eviction_drops_idle_tools_and_keeps_counts() {
    let (limits, call) = (limits(|_| {}), call_by("a", "t"));
    assert_eq!(admitted(&limits, &call, &rated("idle", 60), 1).await, 1);
    assert_eq!(admitted(&limits, &call, &rated("busy", 60), 60).await, 60);
    advance(Duration::from_secs(5)).await;
    limits.evict_idle();
    assert_eq!(limits.concurrency.tools_known(), 2, "their callers count for the reserve");
    assert_eq!(admitted(&limits, &call, &rated("busy", 60), 60).await, 5);
    assert_eq!(admitted(&limits, &call, &rated("idle", 60), 70).await, 60);
    advance(Duration::from_secs(60)).await;
    limits.evict_idle();
    assert_eq!(limits.concurrency.tools_known(), 0, "no call runs");
}

#[tokio::test(start_paused = true)]
async fn never_more_calls_than_the_caps_run_at_once_and_all_have_their_turn() {
    let limits = Arc::new(limits(|config| config.max_concurrent = 7));
    let running = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let most = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let tools = [capped("one", 3), capped("other", 5)];
    let mut calls = JoinSet::new();
    for at in 0..300 {
        let (limits, running, most, tool) = (limits.clone(), running.clone(), most.clone(), tools[at % 2].clone());
        calls.spawn(async move {
            let _slots = limits.admit(&call_by("a", "t"), &tool).await.unwrap();
            for count in [at % 2, 2] {
                most[count].fetch_max(running[count].fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            }
            sleep(Duration::from_millis(7)).await;
            for count in [at % 2, 2] {
                running[count].fetch_sub(1, Ordering::SeqCst);
            }
        });
    }
    calls.join_all().await;
    assert_eq!([0, 1, 2].map(|count| most[count].load(Ordering::SeqCst)), [3, 5, 7]);
    assert_eq!(limits.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn beyond_the_queue_a_call_is_refused_at_once() {
    let limits = Arc::new(limits(|config| config.max_queued = 2));
    let (tool, call) = (capped("slow", 1), Arc::new(call_by("a", "t")));
    let running = limits.admit(&call, &tool).await.unwrap();
    let waiting = JoinSet::from_iter((0..2).map(|_| {
        let (limits, call, tool) = (limits.clone(), call.clone(), tool.clone());
        async move { limits.admit(&call, &tool).await.map(drop) }
    }));
    tokio::task::yield_now().await;
    let refusal = limits.admit(&call, &tool).await.unwrap_err();
    assert_eq!((refusal.code(), refusal.wait()), (ErrorCode::Overloaded, Some(Duration::from_secs(1))));
    assert!(refusal.rate().is_some());
    insta::assert_snapshot!(refusal, @"overloaded: no slot of slow is free for you (1 in all), and the queue is full; call again in 1 s");
    drop(running);
    assert!(waiting.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_many_calls_waiting_does_not_delay_another() {
    let limits = Arc::new(limits(|config| config.max_concurrent = 2));
    let tool = capped("slow", 2);
    let run = |call: CallContext, held: Duration| {
        let (limits, tool) = (limits.clone(), tool.clone());
        async move {
            let _slots = limits.admit(&call, &tool).await.unwrap();
            sleep(held).await;
            call.received.elapsed()
        }
    };
    let second = Duration::from_secs(1);
    let flood = JoinSet::from_iter((0..20).map(|_| run(call_by("flood", "t"), second)));
    tokio::task::yield_now().await;
    assert_eq!(run(call_by("modest", "t"), second).await, second * 2, "it waits for one call, not for eighteen");
    assert_eq!(flood.join_all().await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_slot_ends_while_half_of_the_time_is_left() {
    let limits = limits(|config| config.max_concurrent = 1);
    let (slow, other, call) = (capped("slow", 1), capped("other", 1), call_by("a", "t"));
    let _running = limits.admit(&call, &slow).await.unwrap();
    for tool in [&slow, &other] {
        let call = CallContext { must_end_by: Some(Instant::now() + Duration::from_secs(3)), ..call_by("a", "t") };
        let refusal = limits.admit(&call, tool).await.unwrap_err();
        assert_eq!(refusal.code(), ErrorCode::Overloaded);
        assert_eq!(call.received.elapsed(), Duration::from_millis(1_500));
        assert_eq!(call.progress.queueing.total(), Duration::from_millis(1_500), "it is not the tool's time");
    }
    assert_eq!(limits.in_flight(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_queued_for_a_slow_tool_block_no_other_tool() {
    let limits = Arc::new(limits(|config| config.max_concurrent = 3));
    let (slow, quick, call) = (capped("slow", 1), capped("quick", 1), Arc::new(call_by("a", "t")));
    let _running = limits.admit(&call, &slow).await.unwrap();
    let _waiting = JoinSet::from_iter((0..20).map(|_| {
        let (limits, call, slow) = (limits.clone(), call.clone(), slow.clone());
        async move { limits.admit(&call, &slow).await.map(drop) }
    }));
    tokio::task::yield_now().await;
    assert!(limits.admit(&call, &quick).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_nested_call_takes_no_slot_of_the_gateway_and_waits_only_for_tools_that_make_no_calls() {
    let limits = limits(|config| config.max_concurrent = 1);
    let outer = tool_run_by(Arc::new(RunsPrograms), "outer", |metadata| metadata.max_concurrent = Some(1));
    let inner = capped("inner", 1);
    let _parent = limits.admit(&call_by("a", "t"), &outer).await.unwrap();
    let refusal = limits.admit(&nested(), &outer).now_or_never().unwrap().unwrap_err();
    assert_eq!((refusal.code(), refusal.wait()), (ErrorCode::Overloaded, Some(Duration::from_secs(1))));
    let child = limits.admit(&nested(), &inner).await.unwrap();
    let call = nested();
    let mut waiting = Box::pin(limits.admit(&call, &inner));
    assert!((&mut waiting).now_or_never().is_none(), "it waits for the other one");
    drop(child);
    drop(waiting.await.unwrap());
    let _child = limits.admit(&nested(), &inner).await.unwrap();
    assert_eq!(limits.admit(&nested(), &inner).await.unwrap_err().code(), ErrorCode::Overloaded, "until its deadline");
}

#[tokio::test(start_paused = true)]
async fn caps_change_while_calls_run() {
    let limits = limits(|config| config.max_queued = 0);
    let call = call_by("a", "t");
    let admit = async |cap| limits.admit(&call, &capped("any", cap)).await;
    let mut running = vec![admit(3).await.unwrap(), admit(3).await.unwrap(), admit(3).await.unwrap()];
    assert!(admit(3).await.is_err());
    running.push(admit(4).await.unwrap());
    assert!(admit(2).await.is_err(), "lowered: no call is admitted");
    assert_eq!(limits.in_flight(), 4, "and no running call is ended");
    running.truncate(2);
    assert!(admit(2).await.is_err());
    running.pop();
    running.push(admit(2).await.unwrap());
    assert!(admit(2).await.is_err());
    running.extend([admit(4).await.unwrap(), admit(4).await.unwrap()]);
    assert!(admit(4).await.is_err());
    running.clear();
    assert_eq!(limits.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_of_a_caller_that_disconnects_counts_for_a_lowered_limit() {
    let limits = limits(|config| config.max_queued = 1);
    let call = call_by("a", "t");
    let admit = async |cap| limits.admit(&call, &capped("any", cap)).await;
    let (first, _second) = (admit(2).await.unwrap(), admit(2).await.unwrap());
    let mut next = Box::pin(admit(2));
    assert!((&mut next).now_or_never().is_none());
    drop(first); // The slot is meant for `next` from now on.
    assert!(admit(1).now_or_never().is_none(), "lowered");
    drop(next);
    assert!(admit(1).now_or_never().is_none(), "the second call is as many as may run");
    assert_eq!(limits.in_flight(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_gateways_cap_changes_for_calls_that_wait_already() {
    let config = |max_concurrent| LimitsConfig { max_concurrent, ..LimitsConfig::default() };
    let limits = Arc::new(Limits::new(&config(1)).unwrap());
    let (call, tool) = (Arc::new(call_by("a", "t")), capped("any", 10));
    let _running = limits.admit(&call, &tool).await.unwrap();
    let waiting = tokio::spawn({
        let (limits, call, tool) = (limits.clone(), call.clone(), tool.clone());
        async move { limits.admit(&call, &tool).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    limits.reconfigure(&config(2)).unwrap();
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_of_ten_thousand_half_of_them_cancelled_leaves_no_slot_in_use() {
    let limits = Arc::new(limits(|config| {
        config.max_concurrent = 20;
        config.max_queued = 20_000;
    }));
    let (tools, mut calls) = ([capped("one", 15), capped("other", 15)], JoinSet::new());
    for at in 0..10_000 {
        let (shared, tool, hangs_up) = (limits.clone(), tools[at % 2].clone(), at % 4 < 2);
        let call = calls.spawn(async move {
            let _slots = shared.admit(&call_by("a", "t"), &tool).await.unwrap();
            match hangs_up {
                true => std::future::pending().await,
                false => tokio::task::yield_now().await,
            }
        });
        if hangs_up {
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                call.abort();
            });
        }
        if at % 1_000 == 0 {
            let max_concurrent = if at % 2_000 == 0 { 5 } else { 25 };
            let config = LimitsConfig { max_concurrent, max_queued: 20_000, ..LimitsConfig::default() };
            limits.reconfigure(&config).unwrap();
        }
    }
    let mut ended = [0, 0];
    while let Some(call) = calls.join_next().await {
        ended[usize::from(call.is_err_and(|error| error.is_cancelled()))] += 1;
    }
    assert_eq!(ended, [5_000, 5_000]);
    assert_eq!(limits.in_flight(), 0);
    assert_eq!(limits.concurrency.gateway_state(), (0, 0));
}
