//! Concurrent calls: fair, within the capacity, without leaks after crashes and disconnects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use reqwest::StatusCode;
use rustix::process::{Pid, Signal, kill_process};
use sekisho::{CallContext, Caller, Via};
use serde_json::json;

use super::{PythonApp, status_of, workers};
use crate::app::code;
use crate::slack::slack;

pub(super) fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    // It may be gone already.
    _ = kill_process(pid, Signal::KILL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_fail_their_own_calls_and_are_replaced() {
    let app = PythonApp::start().await;
    let (done, trapped) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let calls = stream::iter(0..400_u32).for_each_concurrent(16, async |n| {
        let (status, reply) = app.call(json!({"code": format!("sum(range(20000)) + {n}")})).await;
        match (status, reply["error_info"]["code"].as_str()) {
            (StatusCode::OK, None) => {
                assert_eq!(reply["output"]["result"], 199_990_000 + n);
                done.fetch_add(1, Ordering::Relaxed);
            }
            (StatusCode::OK, Some("sandbox_trap")) => _ = trapped.fetch_add(1, Ordering::Relaxed),
            _ => panic!("{status}: {reply}"),
        }
    });
    let killing = async {
        let mut killed = 0;
        while done.load(Ordering::Relaxed) + trapped.load(Ordering::Relaxed) < 300 && killed < 6 {
            tokio::time::sleep(Duration::from_millis(60)).await;
            // A worker that exits during its start is different: the pause before the next start grows.
            if app.metric("workers_ready").await < 1.0 {
                continue;
            }
            if let Some(pid) = workers().first() {
                kill(*pid);
                killed += 1;
            }
        }
        killed
    };
    let ((), killed) = tokio::join!(calls, killing);
    let (done, trapped) = (done.into_inner(), trapped.into_inner());
    assert_eq!(done + trapped, 400);
    assert!(killed > 0 && done > trapped, "{killed} killed, {done} done, {trapped} failed");
    app.idle().await;
    assert_eq!(app.run("6 * 7").await["result"], 42);
    // One that was killed while it started was never had.
    assert!((1.0..=f64::from(killed)).contains(&app.metric("workers_lost_total").await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_is_left_when_the_gateway_closes() {
    let PythonApp { app, _alone } = PythonApp::start().await;
    assert!(!workers().is_empty());
    app.stop().await;
    assert_eq!(workers(), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_hangs_up_frees_the_instance() {
    let app = PythonApp::start().await;
    let mut took = Vec::new();
    for program in ["while True: pass", "import time; time.sleep(3600)", "sum(range(10**11))"].repeat(3) {
        let call = app.call(json!({"code": program}));
        assert!(tokio::time::timeout(Duration::from_millis(200), call).await.is_err());
        took.push(app.idle().await);
    }
    took.sort();
    // How fast it is on an idle machine is in the benchmarks.
    assert!(took[took.len() / 2] < slack(Duration::from_millis(200)), "{took:?}");
    assert_eq!(app.metric("runs_total{end=\"cancelled\"}").await, 9.0);
}

/// A copy of the interpreter's memory for each worker would be 300 MB of shared memory.
#[tokio::test]
async fn workers_share_the_pages_of_the_interpreters_files() {
    let app = PythonApp::start().await;
    app.run("import matplotlib.pyplot").await;
    for pid in workers() {
        let [copied, own] = ["RssShmem", "RssAnon"].map(|field| status_of(pid, field).unwrap() >> 10);
        assert!(copied < 4 && own < 200, "{copied} MiB copied, {own} MiB its own");
    }
}

/// Fault 7: an epoch ticker a call on a shared engine, so that N calls expire N times too early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_deadline_is_shortened_by_the_work_of_others() {
    let app = PythonApp::start().await;
    let busy = (0..12).map(|_| app.call(json!({"code": "while True: pass", "timeout_seconds": 1.0})));
    let sleeping = (0..12).map(|_| app.call(json!({"code": "import time; time.sleep(1.0)", "timeout_seconds": 20})));
    let (busy, sleeping) = tokio::join!(join_all(busy), join_all(sleeping));
    for (status, reply) in busy {
        assert_eq!((status, code(&reply)), (StatusCode::GATEWAY_TIMEOUT, "sandbox_timeout"));
        let wall = reply["output"]["usage"]["wall_ms"].as_f64().unwrap();
        assert!((995.0..1_500.0).contains(&wall), "it ended after {wall} ms of 1000");
    }
    for (status, reply) in sleeping {
        assert_eq!((status, &reply["success"]), (StatusCode::OK, &json!(true)), "{reply}");
        assert!(reply["output"]["usage"]["cpu_ms"].as_f64().unwrap() < 500.0, "sleeping is not work: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_calls_of_250_megabytes_are_refused_and_not_killed() {
    let app = PythonApp::with("memory_limit_mb: 384", "max_memory_mb: 1600, max_queued: 8").await;
    let program = "x = bytearray(b'x') * (250 << 20)\nlen(x)";
    let ended = join_all((0..200).map(|_| app.call(json!({"code": program})))).await;
    let refused = ended.iter().filter(|(status, _)| *status == StatusCode::SERVICE_UNAVAILABLE);
    for (_, reply) in refused.clone() {
        assert_eq!(code(reply), "overloaded");
        assert!(reply["error_info"]["retry_after_ms"].as_u64() > Some(0), "{reply}");
    }
    let refused = refused.count();
    let done = ended.iter().filter(|(_, reply)| reply["output"]["result"] == 250 << 20).count();
    assert_eq!(refused + done, 200);
    assert!(done >= 4 && refused > 100, "{done} done, {refused} refused");
    assert_eq!(app.metric("workers_lost_total").await, 0.0);
    let most: u64 = workers().into_iter().filter_map(|pid| status_of(pid, "VmHWM")).sum();
    assert!(most < 4 << 20, "the workers took {most} KiB at most");
}

/// Memory for four runs at once, of what a run may use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeping_run_leaves_memory_to_others() {
    let app = PythonApp::with("memory_limit_mb: 384", "max_memory_mb: 1830").await;
    let held = "x = bytearray(b'x') * (20 << 20)\nimport time\ntime.sleep(8)\nlen(x)";
    let sleeping = join_all((0..8).map(|_| app.call(json!({"code": held}))));
    let others = async {
        let begun = Instant::now();
        while app.metric("runs_live").await < 8.0 {
            assert!(begun.elapsed() < slack(Duration::from_secs(8)), "eight runs sleep");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        app.run("6 * 7").await["result"].take()
    };
    let (ended, other) = tokio::join!(sleeping, others);
    assert_eq!(other, 42);
    for (status, reply) in ended {
        assert_eq!((status, &reply["output"]["result"]), (StatusCode::OK, &json!(20 << 20)), "{reply}");
    }
    app.idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_in_flight_are_all_answered_and_wait_in_turns() {
    let app = PythonApp::with("", "max_instances: 8").await;
    let call = async |caller: &Arc<Caller>| {
        let call = CallContext::new("python_executor", Arc::clone(caller), Via::Rest);
        let arguments = json!({"code": "sum(range(1000))"}).as_object().cloned().unwrap();
        let answered = app.app.gateway.pipeline.call(call, arguments).await;
        let reply = serde_json::to_value(&*answered.reply).unwrap();
        assert_eq!(reply["output"]["result"], 499_500, "{reply}");
    };
    let (flood, modest) = (Arc::new(Caller::new("flood", "a", vec![])), Arc::new(Caller::new("modest", "b", vec![])));
    let answered = AtomicUsize::new(0);
    let begun = Instant::now();
    let flooding = join_all((0..990).map(async |_| {
        call(&flood).await;
        answered.fetch_add(1, Ordering::Relaxed);
    }));
    let asking = async {
        // The flood is in the queue by now.
        tokio::task::yield_now().await;
        for _ in 0..10 {
            call(&modest).await;
        }
        answered.load(Ordering::Relaxed)
    };
    let (_, before) = tokio::join!(flooding, asking);
    // Of two callers each has every other turn: ten of one pass while some thirty of the other do.
    assert!(before < 300, "{before} of the flood went before ten of another caller");
    assert!(begun.elapsed() < slack(Duration::from_secs(60)));
    app.idle().await;
    assert_eq!((app.metric("runs_queued").await, app.app.gateway.pipeline.limits.in_flight()), (0.0, 0));
}
