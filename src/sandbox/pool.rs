//! The worker processes: started with the first job, each replaced as soon as it exits.
//!
//! One task maintains one worker. A failed start is retried at growing intervals; after several failures calls are
//! refused at once and readiness reports the reason. A worker killed from outside while it started, as by a machine
//! without memory, only causes a delay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::warming_up;
use crate::worker_handle::{Program, WorkerHandle, WorkerStartError};
use sekisho_core::call::Deadline;
use sekisho_core::error::CallError;
use sekisho_observe::metrics::SandboxMetrics;
use sekisho_observe::readiness::Readiness;

/// Workers of one program. Cheap to clone; [`close`](Self::close) ends them.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

/// The command line of each worker.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) program: Program,
    /// The first frame sent to each worker.
    pub(crate) load: Vec<u8>,
    pub(crate) workers: usize,
    /// Its name in `/readyz`.
    pub(crate) component: &'static str,
    /// Whether the metric of ready workers counts them: workers of the first class.
    pub(crate) is_counted: bool,
    pub(crate) metrics: SandboxMetrics,
    pub(crate) readiness: Arc<Readiness>,
}

#[derive(Debug)]
struct Shared {
    start: Start,
    is_started: AtomicBool,
    jobs: AtomicU64,
    standing: watch::Sender<Standing>,
    closing: CancellationToken,
    keepers: TaskTracker,
}

/// The current workers.
#[derive(Debug, Default)]
struct Standing {
    ready: Vec<Arc<WorkerHandle>>,
    /// The reason of the latest failed start, until a later one succeeds.
    failure: Option<String>,
}

/// In `/readyz`: the sandbox.
pub(crate) const COMPONENT: &str = "sandbox";

/// In `/readyz`: protections of the worker processes that this kernel does not support. The second name is the name in
/// earlier versions, to be dropped in 0.3.
const PROCESS_SANDBOX: [&str; 2] = ["process_sandbox", "sandbox_walls"];

/// How long a call waits for the first worker, or for a replacement, before it is refused with `warming_up`. A start
/// takes a tenth of a second, and several seconds on a machine that is overloaded or has to read the files from the disk.
/// Starts that fail end the wait.
const MAX_START_WAIT: Duration = Duration::from_secs(20);

/// Consecutive failed starts after which readiness reports that workers do not start.
const FAILED_STARTS: u32 = 3;
/// The same for workers killed from outside, which predicts little about the next start.
const KILLED_STARTS: u32 = 10;

/// Pauses between failed starts: doubled from the first to the second.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Interval at which a pool that was replaced looks whether its jobs and sessions have ended.
const DRAIN_INTERVAL: Duration = Duration::from_secs(1);

/// A worker that exits sooner than this counts as one that could not start.
const SHORT_LIFE: Duration = Duration::from_millis(500);

impl Pool {
    pub(crate) fn new(start: Start) -> Self {
        let shared = Shared {
            start,
            is_started: AtomicBool::new(false),
            jobs: AtomicU64::new(0),
            standing: watch::Sender::new(Standing::default()),
            closing: CancellationToken::new(),
            keepers: TaskTracker::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The worker with the fewest jobs under way. The first call starts all workers.
    /// Errors: `warming_up` when none is ready within this call's deadline, or starting fails.
    pub(crate) async fn worker(&self, deadline: Deadline) -> Result<Arc<WorkerHandle>, CallError> {
        if !self.shared.is_started.swap(true, Ordering::Relaxed) {
            self.start();
        }
        let worker = self.least_loaded(deadline).await?;
        worker.last_chosen.store(self.shared.jobs.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(worker)
    }

    async fn least_loaded(&self, deadline: Deadline) -> Result<Arc<WorkerHandle>, CallError> {
        if let Some(worker) = self.shared.standing.borrow().least_loaded() {
            return Ok(worker);
        }
        let until = deadline.0.min(Instant::now() + MAX_START_WAIT);
        let mut standing = self.shared.standing.subscribe();
        let settled = standing.wait_for(|now| now.failure.is_some() || now.least_loaded().is_some());
        match timeout_at(until, settled).await {
            Ok(Ok(standing)) => standing.least_loaded().ok_or_else(|| {
                let failure = standing.failure.as_deref().unwrap_or_default();
                warming_up("the sandbox's workers do not start; see /readyz for the reason").caused_by(failure)
            }),
            _ => Err(warming_up("the sandbox's workers are being started")),
        }
    }

    /// Ends all workers and waits until they have exited.
    pub(crate) async fn close(&self) {
        self.shared.closing.cancel();
        self.shared.keepers.close();
        self.shared.keepers.wait().await;
    }

    /// Ends the workers once their jobs and sessions have ended, in the background: another pool has taken over.
    pub(crate) fn retire(&self) {
        let shared = Arc::clone(&self.shared);
        self.shared.keepers.spawn(async move { shared.drain().await });
    }

    fn start(&self) {
        for _ in 0..self.shared.start.workers {
            let shared = Arc::clone(&self.shared);
            self.shared.keepers.spawn(async move { shared.keep_one().await });
        }
    }
}

impl Shared {
    /// Keeps one worker running until the pool is closed.
    async fn keep_one(&self) {
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let Some(started) =
                self.closing.run_until_cancelled(WorkerHandle::start(&self.start.program, &self.start.load)).await
            else {
                return;
            };
            match started {
                Ok(worker) => {
                    self.take_in(&worker);
                    let is_closing = self.closing.run_until_cancelled(worker.gone()).await.is_none();
                    self.lose(&worker);
                    if is_closing {
                        worker.stop();
                        return worker.gone().await;
                    }
                    self.start.metrics.worker_lost();
                    failures = if begun.elapsed() < SHORT_LIFE { failures + 1 } else { 0 };
                }
                Err(WorkerStartError { reason, was_killed }) => {
                    failures += 1;
                    tracing::warn!(reason, failures, "a sandbox worker did not start");
                    if failures >= if was_killed { KILLED_STARTS } else { FAILED_STARTS } {
                        self.record_failure(reason);
                    }
                }
            }
            let pause = pause_after(failures);
            if self.closing.run_until_cancelled(sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    async fn drain(&self) {
        // A call that has chosen this pool may wait this long for its worker.
        let mut pause = MAX_START_WAIT;
        loop {
            if self.closing.run_until_cancelled(sleep(pause)).await.is_none() {
                return;
            }
            if self.standing.borrow().is_idle() {
                return self.closing.cancel();
            }
            pause = DRAIN_INTERVAL;
        }
    }

    fn take_in(&self, worker: &Arc<WorkerHandle>) {
        let readiness = &self.start.readiness;
        readiness.restore(self.start.component);
        let missing = worker.missing_protections.join("; ");
        for component in PROCESS_SANDBOX {
            match missing.is_empty() {
                true => readiness.restore(component),
                false => readiness.degrade(
                    component,
                    format!("programs run without protections that this kernel does not support: {missing}"),
                ),
            }
        }
        self.change(|standing| {
            standing.failure = None;
            standing.ready.push(Arc::clone(worker));
        });
    }

    fn lose(&self, worker: &Arc<WorkerHandle>) {
        self.change(|standing| standing.ready.retain(|other| !Arc::ptr_eq(other, worker)));
    }

    fn record_failure(&self, reason: String) {
        // Running workers matter more than one that does not start.
        if self.standing.borrow().ready.is_empty() {
            self.start.readiness.degrade(self.start.component, format!("no worker can be started: {reason}"));
        }
        self.change(|standing| standing.failure = Some(reason));
    }

    fn change(&self, change: impl FnOnce(&mut Standing)) {
        self.standing.send_modify(|standing| {
            change(standing);
            // The workers that are counted belong to the pool that took over.
            if self.start.is_counted && !self.closing.is_cancelled() {
                self.start.metrics.workers_ready(standing.ready.len());
            }
        });
    }
}

impl Standing {
    fn is_idle(&self) -> bool {
        self.ready.iter().all(|worker| worker.is_idle())
    }

    fn least_loaded(&self) -> Option<Arc<WorkerHandle>> {
        let alive = self.ready.iter().filter_map(|worker| Some((worker.in_flight()?, worker)));
        // The worker that is idle longest comes first: a worker that has just replied is still cleaning up.
        let rank = |in_flight: usize, worker: &WorkerHandle| match in_flight {
            0 => (0, worker.last_chosen.load(Ordering::Relaxed)),
            _ => (in_flight, 0),
        };
        alive.min_by_key(|(in_flight, worker)| rank(*in_flight, worker)).map(|(_, worker)| Arc::clone(worker))
    }
}

/// None after a worker that ran for a while: it is replaced at once.
fn pause_after(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        _ => FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures - 1)).min(MAX_PAUSE),
    }
}

#[cfg(test)]
mod tests;
