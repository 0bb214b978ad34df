//! What the process holds, and when that is read: once nothing runs, what expires has been removed, and nothing falls
//! any more.
//!
//! The allocators return freed pages at once (`gateway::ALLOCATORS`). Threads for blocking work end after ten seconds. So it is
//! read again and again, and the lowest figures count.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use super::gateway::{PAUSE, SoakGateway, until};
use super::rows;
use crate::slack::slack;

/// What may be held more after the second half than after the first one, since the allocator's pages are used in part.
/// In a half of the default length, as much is left by 21 bytes of each call.
const MEMORY_TOLERANCE_KB: u64 = 2 << 10;

/// A fall by less is none: memory varies by some pages.
const MEMORY_NOISE_KB: u64 = 64;

/// The same of descriptors, threads and tasks: the last request may still be closed, and housekeeping runs.
const TOLERANCE: u64 = 2;

/// How long calls may take to end once no more are sent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long it may take until everything that expired is removed, which is looked for once a minute.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(150);

/// Nothing falls any more when nothing has for this long; it is waited for that at most so long.
const QUIET: Duration = Duration::from_secs(12);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(40);

/// What is zero when nothing runs.
const RUNNING: [&str; 4] =
    ["shannon_calls_in_flight", "shannon_sandbox_runs_live", "shannon_sandbox_runs_queued", "shannon_approval_waiters"];

const CHILDREN: &str = "children";

/// At one moment.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    /// Anonymous memory, in KiB.
    memory_kb: u64,
    /// Open descriptors, threads, tasks of its runtime, and child processes with those that ended and were not reaped.
    counts: BTreeMap<&'static str, u64>,
    /// Of each table of the store.
    pub(super) rows: BTreeMap<String, i64>,
}

impl Figures {
    pub(super) async fn now(gateway: &SoakGateway) -> Self {
        let id = gateway.id();
        let descriptors = fs::read_dir(format!("/proc/{id}/fd")).unwrap().count();
        let tasks = gateway.samples().await.sum("shannon_runtime_tasks");
        let counts = [
            ("descriptors", descriptors.to_string()),
            ("threads", status_of(id, "Threads").to_string()),
            ("tasks", tasks.to_string()),
            (CHILDREN, children(id).to_string()),
        ];
        let counts = counts.map(|(what, count)| (what, count.parse().unwrap())).into();
        Self { memory_kb: anonymous_memory(id), counts, rows: rows::count(&gateway.database()).await }
    }

    /// As one line.
    pub(super) fn line(&self, when: &str) -> String {
        let counts: Vec<_> = self.counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
        let rows = self.rows.iter().filter(|(_, count)| **count > 0);
        let rows: Vec<_> = rows.map(|(table, count)| format!("{table} {count}")).collect();
        let (counts, rows) = (counts.join(", "), rows.join(", "));
        format!("after the {when}: memory {} kB, {counts}; rows: {rows}", self.memory_kb)
    }

    /// What is held more than before, beyond what may differ. Rows are judged apart.
    pub(super) fn excess(&self, before: &Self) -> Vec<String> {
        let memory = [("memory in kB", before.memory_kb, self.memory_kb, MEMORY_TOLERANCE_KB)];
        let tolerance = |what: &str| if what == CHILDREN { 0 } else { TOLERANCE };
        let counts = self.counts.iter().map(|(what, now)| (*what, before.counts[what], *now, tolerance(what)));
        let more = memory.into_iter().chain(counts).filter(|(_, before, now, tolerance)| *now > before + tolerance);
        more.map(|(what, before, now, _)| format!("{what}: {before} before and {now} after")).collect()
    }

    /// Takes over what has fallen, and tells whether anything has.
    fn lower(&mut self, now: Self) -> bool {
        let has_fallen = now.memory_kb + MEMORY_NOISE_KB < self.memory_kb
            || now.counts.iter().any(|(what, count)| *count < self.counts[what]);
        self.memory_kb = self.memory_kb.min(now.memory_kb);
        for (what, count) in now.counts {
            let lowest = self.counts.entry(what).or_insert(count);
            *lowest = count.min(*lowest);
        }
        self.rows = now.rows;
        has_fallen
    }
}

/// Waits until no call runs.
pub(super) async fn idle(gateway: &SoakGateway) {
    let is_idle = async || {
        let samples = gateway.samples().await;
        RUNNING.iter().all(|gauge| samples.sum(gauge) == 0.0)
    };
    until("no call runs", IDLE_TIMEOUT, is_idle).await;
}

/// Waits until everything is removed that was kept for a time.
pub(super) async fn expired(gateway: &SoakGateway) {
    let is_removed = async || {
        rows::count(&gateway.database()).await["results"] == 0
            && gateway.samples().await.sum("shannon_sandbox_sessions_open") == 0.0
    };
    until("what has expired is removed", REMOVAL_TIMEOUT, is_removed).await;
}

/// The lowest figures, once they fall no more; with figures of before, as soon as there is no more than then.
pub(super) async fn settled(gateway: &SoakGateway, before: Option<&Figures>) -> Figures {
    let end = Instant::now() + slack(SETTLE_TIMEOUT);
    let (mut lowest, mut fallen) = (Figures::now(gateway).await, Instant::now());
    while fallen.elapsed() < QUIET && Instant::now() < end {
        if before.is_some_and(|before| lowest.excess(before).is_empty()) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        if lowest.lower(Figures::now(gateway).await) {
            fallen = Instant::now();
        }
    }
    lowest
}

/// A number in the status of a process.
fn status_of(id: u32, field: &str) -> u64 {
    field_of(&format!("/proc/{id}/status"), field)
}

/// In KiB, counted page by page: in the status, each processor adds its pages some dozens at a time.
fn anonymous_memory(id: u32) -> u64 {
    field_of(&format!("/proc/{id}/smaps_rollup"), "Anonymous")
}

fn field_of(file: &str, field: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap()
}

/// The child processes, also those that have ended and were not reaped.
fn children(id: u32) -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    // The name of the program, which may contain spaces, is in parentheses; then come its state and its parent.
    let parents = stats.filter_map(|stat| stat.rsplit(") ").next()?.split(' ').nth(1)?.parse::<u32>().ok());
    parents.filter(|parent| *parent == id).count()
}
