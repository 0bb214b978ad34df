//! One breaker: failsafe's failure policies decide when it opens, this module decides which calls pass.
//!
//! Failsafe's own state machine passes all calls when half-open, exposes neither its state nor the time left, and
//! uses a clock of its own; so only its policies are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use failsafe::backoff::{self, Constant};
use failsafe::failure_policy::{ConsecutiveFailures, FailurePolicy, OrElse, consecutive_failures};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::error_rate::ErrorRate;
use sekisho_config::BreakerConfig;
use sekisho_core::breaker_state::BreakerState;
use sekisho_observe::metrics::BreakerMetrics;

/// A breaker's state, under one lock.
#[derive(Debug)]
pub(super) struct Circuit {
    label: Box<str>,
    /// The tenant whose calls it passes.
    tenant: Box<str>,
    inside: Mutex<Inside>,
    phases: Arc<Phases>,
}

/// How many circuits of an upstream are open and half-open, and its metrics.
#[derive(Debug)]
pub(super) struct Phases {
    open: AtomicUsize,
    half_open: AtomicUsize,
    /// `None` for an address that a caller chose.
    metrics: Option<BreakerMetrics>,
}

#[derive(Debug)]
struct Inside {
    phase: Phase,
    /// Counts the phases. The outcome of a call from an earlier phase is ignored.
    generation: u64,
    rules: Arc<BreakerConfig>,
    policy: OrElse<ConsecutiveFailures<Constant>, ErrorRate>,
    last_asked: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    Open { until: Instant },
    HalfOpen { probing: bool },
}

/// Permission to try the upstream, and the phase in which it was granted.
#[derive(Debug)]
pub(super) struct Ticket {
    generation: u64,
    probe: bool,
}

/// The meaning of a call's end for the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It answered, even with a refusal.
    Alive,
    /// It failed, or did not answer.
    Failed,
}

/// How soon to call again while another call probes, whose duration is unknown.
const WHILE_PROBING: Duration = Duration::from_secs(1);

/// The longest time a breaker stays open, a century: adding it to the clock cannot overflow.
const MAX_PAUSE: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

impl Circuit {
    /// `label`: the upstream in the log.
    pub(super) fn new(label: &str, tenant: &str, rules: &Arc<BreakerConfig>, phases: Arc<Phases>) -> Self {
        let inside = Inside {
            phase: Phase::Closed,
            generation: 0,
            policy: policy(rules),
            rules: Arc::clone(rules),
            last_asked: Instant::now(),
        };
        Self { label: label.into(), tenant: tenant.into(), inside: Mutex::new(inside), phases }
    }

    /// Passes a call, or returns how long it should wait. The request itself is not counted.
    pub(super) fn admit(&self) -> Result<Ticket, Duration> {
        let mut inside = self.inside.lock();
        let now = Instant::now();
        inside.last_asked = now;
        match inside.phase {
            Phase::Closed => return Ok(inside.pass(false)),
            Phase::Open { until } if now < until => return Err(until - now),
            Phase::HalfOpen { probing: true } => return Err(WHILE_PROBING),
            Phase::Open { .. } => self.enter(&mut inside, Phase::HalfOpen { probing: true }),
            Phase::HalfOpen { probing: false } => inside.phase = Phase::HalfOpen { probing: true },
        }
        Ok(inside.pass(true))
    }

    /// Records how a call ended, unless the breaker has changed its phase since the call passed.
    pub(super) fn record(&self, pass: &Ticket, outcome: Outcome) {
        let mut inside = self.inside.lock();
        if inside.generation != pass.generation {
            return;
        }
        if let Some(metrics) = self.phases.metrics.as_ref().filter(|_| outcome == Outcome::Failed) {
            metrics.failed();
        }
        match (inside.phase, outcome) {
            (Phase::Closed, Outcome::Alive) => inside.policy.record_success(),
            (Phase::Closed, Outcome::Failed) => {
                if let Some(pause) = inside.policy.mark_dead_on_failure() {
                    self.open(&mut inside, pause);
                }
            }
            (Phase::HalfOpen { .. }, Outcome::Alive) => self.close(&mut inside),
            (Phase::HalfOpen { .. }, Outcome::Failed) => {
                let pause = pause(&inside.rules);
                self.open(&mut inside, pause);
            }
            // No call passes in this phase.
            (Phase::Open { .. }, _) => {}
        }
    }

    /// A call ended without an outcome: if it was the probe, another call may probe.
    pub(super) fn withdraw(&self, pass: &Ticket) {
        if pass.probe {
            let mut inside = self.inside.lock();
            if inside.generation == pass.generation {
                inside.phase = Phase::HalfOpen { probing: false };
            }
        }
    }

    /// Whether a call that passed may be retried; otherwise how long it should wait.
    pub(super) fn still_permits(&self, pass: &Ticket) -> Result<(), Duration> {
        let inside = self.inside.lock();
        match inside.phase {
            _ if inside.generation == pass.generation => Ok(()),
            Phase::Closed => Ok(()),
            Phase::Open { until } => Err(until.saturating_duration_since(Instant::now())),
            Phase::HalfOpen { .. } => Err(WHILE_PROBING),
        }
    }

    /// The state that the next call would find.
    pub(super) fn state(&self) -> BreakerState {
        match self.inside.lock().phase {
            Phase::Closed => BreakerState::Closed,
            Phase::Open { until } if Instant::now() < until => BreakerState::Open,
            Phase::Open { .. } | Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// How long an open circuit stays open; `None` for another state.
    pub(super) fn open_for(&self) -> Option<Duration> {
        match self.inside.lock().phase {
            Phase::Open { until } => {
                Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
            }
            Phase::Closed | Phase::HalfOpen { .. } => None,
        }
    }

    /// The time of last use; `None` while it is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.state() != BreakerState::Open).then(|| self.inside.lock().last_asked)
    }

    /// Resets the counts if the rules differ.
    pub(super) fn adopt(&self, rules: &Arc<BreakerConfig>) {
        let mut inside = self.inside.lock();
        if inside.rules != *rules {
            inside.policy = policy(rules);
            inside.rules = Arc::clone(rules);
        }
    }

    fn open(&self, inside: &mut Inside, pause: Duration) {
        self.enter(inside, Phase::Open { until: Instant::now() + pause });
        tracing::warn!(
            upstream = %self.label,
            tenant = %self.tenant,
            pause_seconds = pause.as_secs(),
            "the circuit breaker opened: the upstream keeps failing and is not called for a while"
        );
    }

    fn close(&self, inside: &mut Inside) {
        inside.policy.revived();
        self.enter(inside, Phase::Closed);
        tracing::info!(upstream = %self.label, tenant = %self.tenant, "the circuit breaker closed: the upstream answers again");
    }

    fn enter(&self, inside: &mut Inside, phase: Phase) {
        self.phases.replace(inside.phase, Some(phase));
        inside.phase = phase;
        inside.generation += 1;
    }
}

impl Drop for Circuit {
    fn drop(&mut self) {
        self.phases.replace(self.inside.get_mut().phase, None);
    }
}

impl Phases {
    pub(super) fn new(metrics: Option<BreakerMetrics>) -> Self {
        Self { open: AtomicUsize::new(0), half_open: AtomicUsize::new(0), metrics }
    }

    /// Circuits that opened and have passed no call since: their time may have passed.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn set_gauge(&self, state: BreakerState) {
        if let Some(metrics) = &self.metrics {
            metrics.set_state(state);
        }
    }

    /// A circuit enters another phase, or is removed. The gauge shows the worst.
    fn replace(&self, before: Phase, after: Option<Phase>) {
        let count = |phase| match phase {
            Phase::Closed => None,
            Phase::Open { .. } => Some(&self.open),
            Phase::HalfOpen { .. } => Some(&self.half_open),
        };
        if let Some(count) = after.and_then(count) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(count) = count(before) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        self.set_gauge(match (self.open(), self.half_open.load(Ordering::Relaxed)) {
            (0, 0) => BreakerState::Closed,
            (0, _) => BreakerState::HalfOpen,
            _ => BreakerState::Open,
        });
    }
}

impl Inside {
    fn pass(&self, probe: bool) -> Ticket {
        Ticket { generation: self.generation, probe }
    }
}

impl Ticket {
    pub(super) fn is_probe(&self) -> bool {
        self.probe
    }

    pub(super) fn state(&self) -> BreakerState {
        if self.probe { BreakerState::HalfOpen } else { BreakerState::Closed }
    }
}

/// Opens on consecutive failures (E50), or on their fraction in the window (E52–E54).
fn policy(rules: &BreakerConfig) -> OrElse<ConsecutiveFailures<Constant>, ErrorRate> {
    consecutive_failures(rules.consecutive_failures, backoff::constant(pause(rules)))
        .or_else(ErrorRate::new(rules, pause(rules)))
}

/// How long it stays open (E51).
fn pause(rules: &BreakerConfig) -> Duration {
    Duration::from_secs(rules.recovery_seconds).min(MAX_PAUSE)
}
