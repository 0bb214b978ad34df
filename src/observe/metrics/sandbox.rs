//! The metrics of the sandbox.

use std::time::Duration;

use prometheus::{Counter, IntCounter, IntCounterVec, IntGauge};

use super::InFlight;
use super::families::Families;
use sekisho_core::call::SessionEnd;

/// The gauges and counters of the sandbox. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SandboxMetrics {
    runs: IntCounterVec,
    cpu: Counter,
    live: IntGauge,
    queued: IntGauge,
    sessions: IntGauge,
    session_bytes: IntGauge,
    sessions_stored: IntGauge,
    session_image_bytes: IntGauge,
    sessions_ended: IntCounterVec,
    workers: IntGauge,
    workers_lost: IntCounter,
}

/// How a sandboxed run ended: the values of the label `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RunEnd {
    Exited,
    Exception,
    Timeout,
    Memory,
    Output,
    Trap,
    Cancelled,
    WorkerDied,
}

sekisho_core::as_str!(RunEnd);

impl RunEnd {
    const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

impl SandboxMetrics {
    pub(super) fn new(families: &Families) -> Self {
        for end in RunEnd::ALL.iter().copied() {
            families.sandbox_runs.with_label_values(&[end.as_str()]);
        }
        for end in SessionEnd::ALL.iter().copied() {
            families.sandbox_sessions_ended.with_label_values(&[end.as_str()]);
        }
        Self {
            runs: families.sandbox_runs.clone(),
            cpu: families.sandbox_cpu.clone(),
            live: families.sandbox_live.clone(),
            queued: families.sandbox_queued.clone(),
            sessions: families.sandbox_sessions.clone(),
            session_bytes: families.sandbox_session_bytes.clone(),
            sessions_stored: families.sandbox_sessions_stored.clone(),
            session_image_bytes: families.sandbox_session_image_bytes.clone(),
            sessions_ended: families.sandbox_sessions_ended.clone(),
            workers: families.sandbox_workers.clone(),
            workers_lost: families.sandbox_workers_lost.clone(),
        }
    }

    /// Counts one finished run with its measured processor time.
    pub fn run_ended(&self, end: RunEnd, cpu_time: Duration) {
        self.runs.with_label_values(&[end.as_str()]).inc();
        self.cpu.inc_by(cpu_time.as_secs_f64());
    }

    /// Counts a run until the guard is dropped.
    pub fn running(&self) -> InFlight {
        InFlight::new(&self.live)
    }

    /// Counts a run that waits for capacity until the guard is dropped.
    pub fn queued(&self) -> InFlight {
        InFlight::new(&self.queued)
    }

    /// Sets the number and the memory of the open sessions.
    pub fn sessions_open(&self, sessions: usize, bytes: u64) {
        self.sessions.set(as_gauge(sessions));
        self.session_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Sets how many sessions have an image, and the bytes of these.
    pub fn sessions_stored(&self, sessions: u64, bytes: u64) {
        self.sessions_stored.set(i64::try_from(sessions).unwrap_or(i64::MAX));
        self.session_image_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub fn session_ended(&self, end: SessionEnd) {
        self.sessions_ended.with_label_values(&[end.as_str()]).inc();
    }

    pub fn workers_ready(&self, workers: usize) {
        self.workers.set(as_gauge(workers));
    }

    pub fn worker_lost(&self) {
        self.workers_lost.inc();
    }
}

fn as_gauge(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(any(test, feature = "test-support"))]
impl SandboxMetrics {
    /// Metrics of a registry that is not exported.
    #[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    pub fn for_tests() -> Self {
        super::Metrics::new("test").unwrap().for_sandbox()
    }
}
