//! Nothing is left behind: slots, holds, the in-flight gauge.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sekisho::{CallContext, Caller, Via};
use serde_json::json;

use crate::app::TestApp;
use crate::slack::slack;

/// Ten thousand calls, a third of them cancelled half-way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_calls_with_a_third_cancelled_leaves_nothing() {
    let app = TestApp::with("{limits: {max_concurrent: 200, max_concurrent_per_tool: 100, max_queued: 20000}}").await;
    let caller = Caller::anonymous().into();
    stream::iter(0..10_000_u32)
        .for_each_concurrent(1_000, |n| {
            let call = CallContext::new("sleep", std::sync::Arc::clone(&caller), Via::Rest);
            let arguments = json!({"ms": n % 5}).as_object().cloned().unwrap();
            let pipeline = &app.gateway.pipeline;
            async move {
                let run = pipeline.call(call, arguments);
                if n % 3 == 0 {
                    _ = tokio::time::timeout(Duration::from_micros(u64::from(n % 3_000)), run).await;
                } else {
                    run.await;
                }
            }
        })
        .await;
    assert_eq!(app.gateway.pipeline.limits.in_flight(), 0, "slots");
    assert_eq!(app.gateway.pipeline.budget.held().tokens, 0, "holds");
    assert_eq!(app.metric("shannon_calls_in_flight").await, 0.0, "the gauge");
    let settled: f64 = {
        let text = app.metrics().await;
        text.lines()
            .filter(|line| line.starts_with("shannon_tool_executions_total{") && line.contains("\"sleep\""))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    assert_eq!(settled, 10_000.0, "every call is settled once");
}

/// A caller that hangs up over HTTP cancels the work.
#[tokio::test]
async fn hanging_up_cancels_the_work() {
    let app = TestApp::start().await;
    let request = app.post("/tools/sleep/execute").json(&json!({"arguments": {"ms": 60_000}}));
    let caller = tokio::spawn(request.send());
    let in_flight = async |expected: usize| {
        while app.gateway.pipeline.limits.in_flight() != expected {
            tokio::task::yield_now().await;
        }
    };
    let bound = slack(Duration::from_secs(5));
    tokio::time::timeout(bound, in_flight(1)).await.expect("the call begins");
    caller.abort();
    tokio::time::timeout(bound, in_flight(0)).await.expect("the call goes on without its caller");
    assert_eq!(app.metric("shannon_tool_executions_total{status=\"cancelled\",tool_name=\"sleep\"}").await, 1.0);
}
