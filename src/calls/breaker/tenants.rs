//! The circuits of one upstream: one for each tenant that calls it.
//!
//! Where calls of one tenant fail, calls of others may work: the tenant may have a key that is used up, or send
//! requests that take too long. So a tenant's failures open its own circuit. Once the circuits of [`AGREEING`] tenants
//! are open, the upstream is taken to be down, and tenants without failures are refused too, until fewer are open. A
//! tenant whose own circuit has waited probes in any case.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;

use super::circuit::{Circuit, Phases, Ticket};
use sekisho_config::BreakerConfig;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::breaker_state::BreakerState;
use sekisho_observe::metrics::BreakerMetrics;

/// Tenants whose circuits must be open for the upstream to be taken as down for all.
const AGREEING: usize = 2;

/// Maximum tenants with a circuit of their own at one upstream. Further tenants share one.
pub(super) const MAX_TENANTS: usize = 64;

/// The name in the log of the circuit of the tenants beyond [`MAX_TENANTS`].
const OTHERS: &str = "others";

/// The circuits of an upstream.
#[derive(Debug)]
pub(super) struct TenantCircuits {
    upstream: Box<str>,
    inside: RwLock<Inside>,
    others: OnceLock<Arc<Circuit>>,
    phases: Arc<Phases>,
}

#[derive(Debug)]
struct Inside {
    rules: Arc<BreakerConfig>,
    circuits: BoundedMap<Arc<str>, Arc<Circuit>>,
}

/// A call that was passed: by which circuit, and when.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) circuit: Arc<Circuit>,
    pub(super) pass: Ticket,
}

impl TenantCircuits {
    /// `upstream`: its name in the log.
    pub(super) fn new(upstream: &str, rules: &Arc<BreakerConfig>, metrics: BreakerMetrics) -> Self {
        metrics.set_state(BreakerState::Closed);
        let inside = Inside { rules: Arc::clone(rules), circuits: BoundedMap::new(MAX_TENANTS) };
        let phases = Arc::new(Phases::new(Some(metrics)));
        Self { upstream: upstream.into(), inside: RwLock::new(inside), others: OnceLock::new(), phases }
    }

    /// Passes a call of a tenant, or returns how long it should wait.
    pub(super) fn admit(&self, tenant: &str) -> Result<Admission, Duration> {
        let circuit = self.circuit_of(tenant);
        let pass = circuit.admit()?;
        match self.down_for_all().filter(|_| !pass.is_probe()) {
            Some(wait) => Err(wait),
            None => Ok(Admission { circuit, pass }),
        }
    }

    /// Whether a call that passed may be retried; otherwise how long it should wait.
    pub(super) fn still_permits(&self, Admission { circuit, pass }: &Admission) -> Result<(), Duration> {
        circuit.still_permits(pass)?;
        self.down_for_all().filter(|_| !pass.is_probe()).map_or(Ok(()), Err)
    }

    /// The state that the next call of a tenant would find.
    pub(super) fn state(&self, tenant: &str) -> BreakerState {
        let own = self.inside.read().circuits.get(tenant).map(|circuit| circuit.state());
        match own.unwrap_or(BreakerState::Closed) {
            BreakerState::Closed if self.down_for_all().is_some() => BreakerState::Open,
            own => own,
        }
    }

    /// Whether calls of a tenant are refused: of every tenant that calls it (`Some(true)`), or of some.
    pub(super) fn is_open(&self) -> Option<bool> {
        let states: Vec<_> = self.all().iter().map(|circuit| circuit.state()).collect();
        let open = states.iter().filter(|state| **state == BreakerState::Open).count();
        (open > 0).then_some(open >= AGREEING || open == states.len())
    }

    /// Sets the gauge to the worst state of the tenants.
    pub(super) fn report(&self) {
        let worst = self.all().iter().map(|circuit| circuit.state()).max_by_key(|state| match state {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        });
        self.phases.set_gauge(worst.unwrap_or(BreakerState::Closed));
    }

    /// Resets the counts if the rules differ.
    pub(super) fn adopt(&self, rules: &Arc<BreakerConfig>) {
        self.inside.write().rules = Arc::clone(rules);
        self.all().iter().for_each(|circuit| circuit.adopt(rules));
    }

    /// The time of last use; `None` while a circuit is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let idle = self.all().iter().map(|circuit| circuit.idle_since()).collect::<Option<Vec<_>>>()?;
        idle.into_iter().max()
    }

    /// Removes circuits of tenants that have had no calls for this long.
    pub(super) fn evict_idle(&self, after: Duration) {
        let is_idle = |circuit: &Arc<Circuit>| spare_since(circuit).is_some_and(|since| since.elapsed() >= after);
        self.inside.write().circuits.retain(|_, circuit| !is_idle(circuit));
    }

    fn circuit_of(&self, tenant: &str) -> Arc<Circuit> {
        let known = self.inside.read().circuits.get(tenant).map(Arc::clone);
        known.unwrap_or_else(|| self.create(tenant))
    }

    /// The circuit of a tenant that had none; another call may have come first.
    fn create(&self, tenant: &str) -> Arc<Circuit> {
        let mut inside = self.inside.write();
        let (rules, key) = (Arc::clone(&inside.rules), Arc::from(tenant));
        let circuit = |tenant| Arc::new(Circuit::new(&self.upstream, tenant, &rules, Arc::clone(&self.phases)));
        inside.circuits.evict_for(&key, |_, circuit| spare_since(circuit));
        match inside.circuits.get_or_try_insert_with(key, || circuit(tenant)) {
            Some(circuit) => Arc::clone(circuit),
            None => Arc::clone(self.others.get_or_init(|| circuit(OTHERS))),
        }
    }

    /// For how long yet the circuits of [`AGREEING`] tenants are open.
    fn down_for_all(&self) -> Option<Duration> {
        // Nearly always: nothing is read but a number.
        if self.phases.open() < AGREEING {
            return None;
        }
        let mut open: Vec<_> = self.all().iter().filter_map(|circuit| circuit.open_for()).collect();
        open.sort_unstable_by(|one, other| other.cmp(one));
        open.get(AGREEING - 1).copied()
    }

    fn all(&self) -> Vec<Arc<Circuit>> {
        let inside = self.inside.read();
        inside.circuits.iter().map(|(_, circuit)| circuit).chain(self.others.get()).map(Arc::clone).collect()
    }

    #[cfg(test)]
    pub(super) fn tenants(&self) -> usize {
        self.inside.read().circuits.len()
    }
}

/// Since when a circuit could be removed without effect: it has no calls and refuses none.
pub(super) fn spare_since(circuit: &Arc<Circuit>) -> Option<Instant> {
    (Arc::strong_count(circuit) == 1).then(|| circuit.idle_since()).flatten()
}
