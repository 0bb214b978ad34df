//! Nothing is left of MCP servers: tasks, sockets, programs, memory. Minutes long, so run by `scripts/compat`.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use sekisho::{CallContext, Caller, Via};
use serde_json::{Map, json};
use tokio::runtime::Handle;

use crate::app::{TestApp, config};
use crate::mcp_programs::{running, server};
use crate::mcp_servers::{ready, yaml};
use crate::slack::slack;

/// What this process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    tasks: usize,
    descriptors: usize,
    zombies: usize,
    resident_mb: usize,
}

impl Held {
    fn now() -> Self {
        let pages: usize = fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            tasks: Handle::current().metrics().num_alive_tasks(),
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            zombies: zombies(),
            resident_mb: pages * 4 / 1024,
        }
    }

    /// Programs are ended and started again for a while. Waits until there is no more than before, or the first time
    /// until nothing changes for a second, but not for ever: the caller compares.
    async fn settled(before: Option<Self>) -> Self {
        let begun = Instant::now();
        let mut earlier = Self::now();
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = Self::now();
            let is_settled = match before {
                Some(before) => {
                    now.tasks <= before.tasks && now.descriptors <= before.descriptors && now.zombies <= before.zombies
                }
                None => {
                    (now.tasks, now.descriptors, now.zombies) == (earlier.tasks, earlier.descriptors, earlier.zombies)
                }
            };
            if is_settled || begun.elapsed() > slack(Duration::from_secs(20)) {
                return now;
            }
            earlier = now;
        }
    }
}

/// Ended child processes that were not reaped.
fn zombies() -> usize {
    let stats =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    let ours = format!("Z {} ", std::process::id());
    stats.filter(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(&ours))).count()
}

/// Neither a rate nor a breaker keeps calls from the servers.
const UNLIMITED: &str = "rate_limit: 1000000, breaker: {consecutive_failures: 4000000000, min_requests: 4000000000}";

/// Mood, calls, and how many of them at once.
const CALLS: [(&str, usize, usize); 10] = [
    ("fine", 4_000, 64),
    ("twice", 1_500, 64),
    ("wrong", 1_000, 100),
    ("silent", 1_000, 100),
    ("drip", 500, 8),
    ("dies", 1_000, 16),
    ("half", 500, 16),
    ("long", 200, 4),
    ("flood", 50, 2),
    ("changes", 250, 8),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long; run by scripts/compat"]
async fn ten_thousand_calls_of_servers_in_every_mood_leave_nothing() {
    let settings = format!("timeout_seconds: 1, max_message_bytes: 1000000, {UNLIMITED}");
    let servers: Vec<_> = CALLS.iter().map(|(mood, ..)| (*mood, server(mood, &settings))).collect();
    let limits = "limits: {max_concurrent: 400, max_concurrent_per_tool: 400, max_queued: 20000}\n";
    let app = TestApp::with(&format!("{limits}{}", yaml(&servers))).await;
    ready(&app).await;
    let caller = Arc::new(Caller::anonymous());
    let call = async |tool: String| {
        let call = CallContext::new(tool, Arc::clone(&caller), Via::Rest);
        app.gateway.pipeline.call(call, Map::new()).await
    };
    let mut held = None;
    // The first round is there to have everything made that is made once.
    for share in [20, 1] {
        for (mood, calls, at_once) in CALLS {
            let tool = if mood == "changes" { "tool_5" } else { "echo" };
            let calls = stream::iter(0..calls / share).map(|_| call(format!("{mood}__{tool}")));
            calls.buffer_unordered(at_once).for_each(async |_answered| {}).await;
        }
        let now = Held::settled(held).await;
        println!("{now:?}");
        let before = *held.get_or_insert(now);
        assert_eq!(app.gateway.pipeline.limits.in_flight(), 0);
        assert!(now.tasks <= before.tasks + 10, "tasks: {before:?} {now:?}");
        assert!(now.descriptors <= before.descriptors + 10, "sockets and pipes: {before:?} {now:?}");
        assert!(now.zombies <= before.zombies + 2, "programs: {before:?} {now:?}");
        assert!(now.resident_mb <= before.resident_mb + 20, "memory: {before:?} {now:?}");
    }
    let reply = call("fine__echo".to_owned()).await.reply;
    assert!(reply.outcome.is_ok(), "{reply:?}");
    app.stop().await;
    for (mood, ..) in CALLS {
        assert_eq!(running(mood), 0, "{mood}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long; run by scripts/compat"]
async fn a_thousand_crashes_and_restarts_leave_no_program() {
    const MOOD: &str = "dies-counted-a-thousand-times";
    const ROUNDS: usize = 500;
    let directory = tempfile::TempDir::new().unwrap();
    let app = TestApp::in_directory(directory, &yaml(&[("dies", server(MOOD, ""))])).await;
    let (mut most, mut crashes) = (0, 0);
    for n in 0..ROUNDS {
        let settings = server(MOOD, &format!("category: c{n}, {UNLIMITED}"));
        app.gateway.reload(config(&app.directory, &yaml(&[("dies", settings)]))).await;
        ready(&app).await;
        let (_, reply) = app.call("dies__echo", json!({})).await;
        crashes += usize::from(reply["error_info"]["code"] == "upstream_error");
        most = most.max(running(MOOD));
    }
    assert!(crashes > ROUNDS * 9 / 10, "{crashes} crashes");
    assert!(most <= 6, "{most} programs at once");
    app.stop().await;
    assert_eq!((running(MOOD), zombies()), (0, 0), "programs outlive the gateway");
}
