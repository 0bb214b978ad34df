//! Circuit breakers: an upstream that keeps failing is not called for a while, then probed by one call.
//!
//! Closed, calls pass and their outcomes are counted; open, they are refused at once; half-open, one of them probes
//! (E55). Only outcomes of calls that passed count, never a refusal, and only failures of the upstream or the network
//! ([`Blame`]): a response that rejects the call, a 4xx and also a 429, proves that the upstream works. Nothing here
//! sleeps.
//!
//! An upstream of the configuration has a circuit for each tenant, and is refused to all once the circuits of two are
//! open ([`tenants`]).

mod circuit;
mod error_rate;
mod tenants;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};

use self::circuit::{Circuit, Outcome, Phases};
use self::tenants::{Admission, TenantCircuits, spare_since};
use sekisho_config::BreakerConfig;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::Upstream;
use sekisho_core::caller::Owner;
use sekisho_core::error::{Blame, CallError, ErrorCode};
use sekisho_core::per_owner::PerOwner;
use sekisho_observe::metrics::Metrics;

/// Maximum upstreams with a breaker of their own. A tool that fetches from any host must not fill memory or the
/// metrics with host names.
const MAX_LIVE: usize = 256;

/// Maximum breakers for addresses that callers choose: of all callers, and of one caller.
const MAX_CHOSEN: usize = 1_024;
const MAX_CHOSEN_OF_A_CALLER: usize = 64;

/// A breaker unused for this long is removed, unless it is open.
const IDLE_AFTER: Duration = Duration::from_secs(600);

/// The metric label of the breaker shared by the upstreams beyond [`MAX_LIVE`].
const OTHER: &str = "other";

/// One breaker for each upstream.
///
/// When [`MAX_LIVE`] of them exist, a new one replaces the one that has been idle longest. If each is open or has
/// calls under way, new upstreams share a single breaker, [`OTHER`], until one can be replaced.
///
/// An address that a caller chooses has a breaker of that caller, apart from all of these and without a metric.
#[derive(Debug)]
pub struct Breakers {
    chosen: PerOwner<Upstream, Arc<Circuit>>,
    /// Held while one of `chosen` is created, and while rules change. Not a lock that calls to configured upstreams take: callers
    /// choose new addresses as often as they like.
    choosing: Mutex<()>,
    /// Its write lock is held while one of these is created or removed, and while rules change.
    upstreams: RwLock<BoundedMap<Upstream, Arc<TenantCircuits>>>,
    other: OnceLock<Arc<TenantCircuits>>,
    rules: ArcSwap<BreakerRules>,
    metrics: Arc<Metrics>,
}

/// The rules for all upstreams, and for upstreams with their own.
#[derive(Debug, Clone, Default)]
pub struct BreakerRules {
    all: Arc<BreakerConfig>,
    own: HashMap<Upstream, Arc<BreakerConfig>>,
}

/// Permission to try the upstream. Dropped without an outcome, as when the client disconnects, it does not count, and
/// another call may probe.
#[derive(Debug)]
#[must_use]
pub struct BreakerPermit(Option<Admitted>);

#[derive(Debug)]
struct Admitted {
    upstream: Upstream,
    /// `None` for an address that a caller chose.
    tenants: Option<Arc<TenantCircuits>>,
    admission: Admission,
}

/// An upstream that calls are refused for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenUpstream {
    pub name: Arc<str>,
    /// Whether the circuits of every tenant are open.
    pub is_for_all: bool,
}

impl BreakerRules {
    pub fn new(all: &BreakerConfig, own: impl IntoIterator<Item = (Upstream, BreakerConfig)>) -> Self {
        let own = own.into_iter().map(|(upstream, rules)| (upstream, Arc::new(rules)));
        Self { all: Arc::new(all.clone()), own: own.collect() }
    }

    fn of(&self, upstream: &Upstream) -> &Arc<BreakerConfig> {
        self.own.get(upstream).unwrap_or(&self.all)
    }
}

impl Breakers {
    pub fn new(rules: BreakerRules, metrics: Arc<Metrics>) -> Self {
        Self {
            chosen: PerOwner::new(MAX_CHOSEN, MAX_CHOSEN_OF_A_CALLER),
            choosing: Mutex::new(()),
            upstreams: RwLock::new(BoundedMap::new(MAX_LIVE)),
            other: OnceLock::new(),
            rules: ArcSwap::from_pointee(rules),
            metrics,
        }
    }

    /// Changed rules apply from now on. Counts are reset; an open breaker stays open for its original time.
    pub fn reconfigure(&self, rules: BreakerRules) {
        let (upstreams, _choosing) = (self.upstreams.write(), self.choosing.lock());
        for (upstream, circuits) in upstreams.iter() {
            circuits.adopt(rules.of(upstream));
        }
        if let Some(other) = self.other.get() {
            other.adopt(&rules.all);
        }
        self.chosen.for_each(|circuit| circuit.adopt(&rules.all));
        self.rules.store(Arc::new(rules));
    }

    /// Whether the upstream may be tried for a call of the tenant. A call without one, of a local tool, always may.
    /// Errors: `circuit_open` with the time after which to call again.
    pub fn admit(&self, upstream: Option<Upstream>, tenant: &str) -> Result<BreakerPermit, CallError> {
        let Some(upstream) = upstream else { return Ok(BreakerPermit(None)) };
        let (tenants, admission) = match &upstream.chosen_by {
            Some(owner) => {
                let circuit = self.circuit_of_caller(&upstream, owner);
                (None, circuit.admit().map(|pass| Admission { circuit, pass }))
            }
            None => {
                let tenants = self.circuits_of(&upstream);
                let admission = tenants.admit(tenant);
                (Some(tenants), admission)
            }
        };
        match admission {
            Ok(admission) => Ok(BreakerPermit(Some(Admitted { upstream, tenants, admission }))),
            Err(wait) => {
                let state = self.state(&upstream, tenant);
                Err(circuit_open(&upstream, wait).of_breaker(Arc::clone(&upstream.name), state))
            }
        }
    }

    /// The state for a tenant, without changes: for explain, dry runs and receipts.
    pub fn state(&self, upstream: &Upstream, tenant: &str) -> BreakerState {
        let state = match upstream.chosen_by {
            Some(_) => self.chosen.with(upstream, |circuit| circuit.state()),
            None => self.upstreams.read().get(upstream).map(|circuits| circuits.state(tenant)),
        };
        state.unwrap_or(BreakerState::Closed)
    }

    /// Sets the gauges to the present states: a breaker whose time has passed is half-open, also without a call.
    pub fn report(&self) {
        self.upstreams.read().iter().for_each(|(_, circuits)| circuits.report());
    }

    /// The upstreams that are not called now, for one tenant at least.
    pub fn open(&self) -> Vec<OpenUpstream> {
        let upstreams = self.upstreams.read();
        let open = upstreams.iter().filter_map(|(upstream, circuits)| {
            Some(OpenUpstream { name: Arc::clone(&upstream.name), is_for_all: circuits.is_open()? })
        });
        open.collect()
    }

    /// Removes unused breakers; run every minute.
    pub fn evict_idle(&self) {
        let is_idle = |circuit: &Arc<Circuit>| spare_since(circuit).is_some_and(|since| since.elapsed() >= IDLE_AFTER);
        drop(self.chosen.take_if(is_idle));
        self.upstreams.write().retain(|upstream, circuits| {
            let idle = unused_since(circuits).is_some_and(|since| since.elapsed() >= IDLE_AFTER);
            if idle {
                self.metrics.forget_breaker(&upstream.name);
            } else {
                circuits.evict_idle(IDLE_AFTER);
            }
            !idle
        });
    }

    fn circuit_of_caller(&self, upstream: &Upstream, owner: &Owner) -> Arc<Circuit> {
        let known = || self.chosen.with(upstream, |circuit| Arc::clone(circuit));
        known().unwrap_or_else(|| {
            let _choosing = self.choosing.lock();
            known().unwrap_or_else(|| {
                let (rules, phases) = (self.rules.load(), Arc::new(Phases::new(None)));
                let circuit = Arc::new(Circuit::new(&upstream.name, &owner.tenant, &rules.all, phases));
                drop(self.chosen.insert(owner, upstream.clone(), Arc::clone(&circuit), |_, _| true));
                circuit
            })
        })
    }

    fn circuits_of(&self, upstream: &Upstream) -> Arc<TenantCircuits> {
        let known = self.upstreams.read().get(upstream).map(Arc::clone);
        known.unwrap_or_else(|| self.create(upstream))
    }

    /// The breaker of an upstream that had none; another call may have come first.
    fn create(&self, upstream: &Upstream) -> Arc<TenantCircuits> {
        let (mut upstreams, rules) = (self.upstreams.write(), self.rules.load());
        if let Some((idle_longest, _)) = upstreams.evict_for(upstream, |_, circuits| unused_since(circuits)) {
            self.metrics.forget_breaker(&idle_longest.name);
        }
        let new = || self.new_circuits(&upstream.name, rules.of(upstream));
        match upstreams.get_or_try_insert_with(upstream.clone(), new) {
            Some(circuits) => Arc::clone(circuits),
            None => Arc::clone(self.other.get_or_init(|| self.new_circuits(OTHER, &rules.all))),
        }
    }

    fn new_circuits(&self, label: &str, rules: &Arc<BreakerConfig>) -> Arc<TenantCircuits> {
        Arc::new(TenantCircuits::new(label, rules, self.metrics.for_breaker(label)))
    }
}

impl BreakerPermit {
    pub fn upstream(&self) -> Option<&Upstream> {
        self.0.as_ref().map(|admitted| &admitted.upstream)
    }

    /// The breaker's state when this call passed; `None` for a local tool.
    pub fn state(&self) -> Option<BreakerState> {
        self.0.as_ref().map(|admitted| admitted.admission.pass.state())
    }

    /// For use before a retry: whether the breaker has opened since.
    /// Errors: `circuit_open`, if so.
    pub fn still_permitted(&self) -> Result<(), CallError> {
        let Some(Admitted { upstream, tenants, admission }) = &self.0 else { return Ok(()) };
        let permitted = match tenants {
            Some(tenants) => tenants.still_permits(admission),
            None => admission.circuit.still_permits(&admission.pass),
        };
        permitted.map_err(|wait| circuit_open(upstream, wait))
    }

    /// Records how the call ended, once, by the error's blame.
    pub fn record(self, error: Option<&CallError>) {
        if let Some(admitted) = self.0
            && let Some(outcome) = outcome(error)
        {
            admitted.admission.circuit.record(&admitted.admission.pass, outcome);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.circuit.withdraw(&self.admission.pass);
    }
}

/// The outcome of a call for its upstream; `None` when the call did not reach it.
fn outcome(error: Option<&CallError>) -> Option<Outcome> {
    let Some(error) = error else { return Some(Outcome::Alive) };
    match (error.blame(), error.code()) {
        (Blame::Upstream | Blame::Network, _) => Some(Outcome::Failed),
        (
            Blame::Call,
            ErrorCode::UpstreamError | ErrorCode::ToolError | ErrorCode::OutputTooLarge | ErrorCode::InvalidOutput,
        ) => Some(Outcome::Alive),
        // Refused on our side: a forbidden address, no free connection, an internal error.
        (Blame::Call, _) => None,
    }
}

/// Since when the circuits of an upstream could be removed without effect: they have no calls and refuse none.
fn unused_since(circuits: &Arc<TenantCircuits>) -> Option<tokio::time::Instant> {
    (Arc::strong_count(circuits) == 1).then(|| circuits.idle_since()).flatten()
}

fn circuit_open(upstream: &Upstream, wait: Duration) -> CallError {
    // Whole seconds, rounded up, as in `Retry-After`: a caller that waits this long is not too early.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    CallError::new(
        ErrorCode::CircuitOpen,
        format!("{} keeps failing and is not called for now; call again in {seconds} s", upstream.name),
    )
    .retry_after(Duration::from_secs(seconds))
}
