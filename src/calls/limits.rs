//! Rate limits and concurrency limits of calls.
//!
//! Every rate limit is a [`Limit`] in the list of [`Limits::new`], checked in that order: the broader before the
//! narrower, so that one check of a tenant's empty bucket ends a flood. When a later limit refuses a call, the
//! earlier ones refund it: it never ran, and must not use up the rate of the tenant's other callers. Only then does
//! the call request a slot to run in. Its tokens stay spent whether or not it gets one: waiting in a queue has a
//! price.
//!
//! Rate limits never sleep: the reply is `rate_limited` with the time to wait, at once.

mod buckets;
mod concurrency;
mod global;
mod rate;
mod rules;
mod shared;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use self::concurrency::{Concurrency, ConcurrencyPermit};
use self::global::GlobalPermits;
use self::rate::{PerToolRateLimit, SharedRateLimit, used_up};
use self::rules::Rules;
use self::shared::SharedRates;
use crate::tool::Tool;
use sekisho_config::LimitsConfig;
use sekisho_core::call::{CallContext, Caller, RateState};
use sekisho_core::error::CallError;
use sekisho_core::record::CountedCalls;
use sekisho_core::share::Lease;
use sekisho_store::{Store, StoreError};

pub use self::rules::RuleSlots;
#[cfg(test)]
pub(crate) use self::tests::in_paused_time;

/// All limits of the gateway.
#[derive(Debug)]
pub struct Limits {
    /// In checking order.
    rates: [Box<dyn Limit>; 3],
    /// After them: a rule never raises another limit.
    rules: Rules,
    concurrency: Concurrency,
    /// Where rates, and slots of some tools, are counted over several replicas.
    shared: Option<SharedRates>,
    permits: Option<Arc<GlobalPermits>>,
}

/// Proof of admission; frees its slots on drop.
#[derive(Debug)]
#[must_use]
pub struct Slots {
    /// The rate limit nearest to empty: of the limits that apply, the one with the fewest calls left.
    pub rate: Option<RateState>,
    /// Its rule, if it is one of `limits.rules`.
    pub rule: Option<Arc<str>>,
    _held: ConcurrencyPermit,
    _held_by_rules: Vec<Lease>,
}

/// The rest of a bucket that is not full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketLevel {
    pub whose: BucketOwner,
    pub state: RateState,
}

/// The owner of a bucket: whose calls it counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BucketOwner {
    /// All calls of a tenant.
    Tenant(Arc<str>),
    /// All calls of a caller, by its key.
    Caller(Arc<str>),
    /// A caller's calls of a tool.
    Tool { tool: String, caller: Arc<str> },
    /// The calls that a rule counts for a key, caller, tenant, tool or role.
    Rule { rule: Arc<str>, subject: Arc<str> },
}

impl BucketOwner {
    /// The calls that a bucket counts which belongs to no rule.
    fn counts(&self) -> CountedCalls {
        match self {
            Self::Tenant(_) => CountedCalls::Tenant,
            Self::Caller(_) => CountedCalls::Caller,
            // A rule has its own subject.
            Self::Tool { .. } | Self::Rule { .. } => CountedCalls::ToolOfCaller,
        }
    }

    /// The name of the bucket in the store.
    fn bucket(&self) -> String {
        match self {
            Self::Tenant(tenant) => format!("tenant {tenant}"),
            Self::Caller(caller) => format!("caller {caller}"),
            Self::Tool { tool, caller } => format!("tool {tool} {caller}"),
            Self::Rule { rule, subject } => format!("rule {rule} {subject}"),
        }
    }
}

/// The bucket that counts a call.
#[derive(Debug)]
struct CallBucket<'a> {
    owner: BucketOwner,
    per_minute: NonZeroU32,
    /// The owner of the counted calls, for the error message.
    whose: &'a str,
}

/// A rate limit.
trait Limit: fmt::Debug + Send + Sync {
    /// Takes one call. `None` where nothing is limited; `rate_limited` with the wait otherwise.
    fn take(&self, caller: &Caller, tool: &Tool) -> Result<Option<RateState>, CallError>;

    /// Refuses if a call of the caller would be refused with any tool; takes nothing.
    fn check(&self, _caller: &Caller) -> Result<(), CallError> {
        Ok(())
    }

    /// The bucket of all calls of the caller, with any tool.
    fn bucket_of_caller(&self, _caller: &Caller) -> Option<CallBucket<'_>> {
        None
    }

    /// The bucket that counts a call. `rate_limited` for a tool that cannot be called.
    fn bucket<'a>(&'a self, caller: &Caller, _tool: &'a Tool) -> Result<Option<CallBucket<'a>>, CallError> {
        Ok(self.bucket_of_caller(caller))
    }

    /// Refunds a [`take`](Self::take) of a call that a later limit refused.
    fn give_back(&self, caller: &Caller, tool: &Tool);

    /// The buckets that are not full, with whom they belong to.
    fn levels(&self, found: &mut Vec<BucketLevel>);

    /// Applies new numbers; the calls counted so far stay counted.
    fn reconfigure(&self, numbers: &Numbers);

    /// Removes state that equals the initial state.
    fn evict_idle(&self);
}

impl Limits {
    /// Errors: the name of the field that is zero: it would refuse every call.
    pub fn new(config: &LimitsConfig) -> Result<Self, String> {
        let numbers = Numbers::of(config)?;
        let rates: [Box<dyn Limit>; 3] = [
            Box::new(SharedRateLimit::of_a_tenant(&numbers)),
            Box::new(SharedRateLimit::of_a_caller(&numbers)),
            Box::<PerToolRateLimit>::default(),
        ];
        let (rules, concurrency) = (Rules::new(config), Concurrency::new(numbers));
        Ok(Self { rates, rules, concurrency, shared: None, permits: None })
    }

    /// The limits of a replica: rates, and slots of tools that are marked so, are counted over all replicas of the
    /// store ([`exchange`](Self::exchange)).
    /// Errors: as [`new`](Self::new).
    pub fn of_replica(config: &LimitsConfig, store: Store) -> Result<Self, String> {
        let (permits, shared) = (Arc::new(GlobalPermits::new(store.permits())), SharedRates::new(store));
        Ok(Self { shared: Some(shared), permits: Some(permits), ..Self::new(config)? })
    }

    /// Takes calls from the store ahead of need, and slots that calls of this replica wait for. Gives unused ones back.
    /// Runs until `shutdown` is cancelled.
    pub async fn exchange(&self, replica: &str, shutdown: CancellationToken) {
        if let (Some(shared), Some(permits)) = (&self.shared, &self.permits) {
            tokio::join!(shared.run(shutdown.clone()), permits.run(replica, shutdown));
        }
    }

    /// Sets how many replicas there are: each admits its part of a rate while the store is away.
    pub fn set_replicas(&self, live: u32) {
        if let Some(shared) = &self.shared {
            shared.set_replicas(live);
        }
    }

    /// Removes the buckets of the store that are full, and slots of lost replicas.
    pub async fn clean_up(&self, replica: &str) -> Result<(), StoreError> {
        if let (Some(shared), Some(permits)) = (&self.shared, &self.permits) {
            shared.forget_full().await?;
            permits.forget_lost(replica).await?;
        }
        Ok(())
    }

    /// Applies new numbers; the counts so far stay, and calls in flight finish.
    /// Errors: the name of the field that is zero. The current numbers stay in force then.
    pub fn reconfigure(&self, config: &LimitsConfig) -> Result<(), String> {
        let numbers = Numbers::of(config)?;
        for limit in &self.rates {
            limit.reconfigure(&numbers);
        }
        self.rules.reconfigure(config);
        self.concurrency.reconfigure(numbers);
        Ok(())
    }

    /// Whether a call of this caller, of any tool, could be admitted now; takes nothing.
    /// Errors: `rate_limited`, as for a call.
    pub fn check(&self, caller: &Caller) -> Result<(), CallError> {
        let Some(shared) = &self.shared else {
            return self.rates.iter().try_for_each(|limit| limit.check(caller));
        };
        let mut buckets = self.rates.iter().filter_map(|limit| limit.bucket_of_caller(caller));
        buckets.try_for_each(|CallBucket { owner, per_minute, whose }| match shared.refused_for(&owner) {
            None => Ok(()),
            Some((wait, state)) => Err(used_up(per_minute, whose, wait, owner.counts()).with_rate(state)),
        })
    }

    /// Admits one call, after waiting in a queue if necessary, at most until the call [must begin](CallContext::begin_by). That
    /// wait is not counted as the tool's time.
    /// Errors: `rate_limited` with the state of the limit that refused; `overloaded` when the queue is full; `timeout`
    /// when no slot came free in time.
    pub async fn admit(&self, call: &CallContext, tool: &Arc<Tool>) -> Result<Slots, CallError> {
        call.limit_queueing(tool.timeout());
        let _waiting = call.progress.queueing.begin();
        let rules = self.rules.of(&call.caller, tool.name());
        let rate = match &self.shared {
            None => self.take_of_each(&call.caller, tool),
            // Boxed, to keep the part that may wait out of the size of the future.
            Some(shared) => Box::pin(self.take_of_each_shared(shared, call, tool)).await,
        };
        let rate = rate.map_err(|refusal| rules.name_longest(refusal, self.shared.as_ref()))?;
        let (rate, rule, held_by_rules) = match rules.is_empty() {
            true => (rate, None, Vec::new()),
            false => Box::pin(self.admit_by_rules(&rules, call, tool, rate)).await?,
        };
        match self.concurrency.enter(call, tool, self.permits.as_deref()).await {
            Ok(held) => Ok(Slots { rate, rule, _held: held, _held_by_rules: held_by_rules }),
            Err(refusal) => Err(with_rate(refusal, rate)),
        }
    }

    /// The rest of each bucket that is not full.
    pub fn levels(&self) -> Vec<BucketLevel> {
        if let Some(shared) = &self.shared {
            return shared.levels();
        }
        let mut found = Vec::new();
        self.rates.iter().for_each(|limit| limit.levels(&mut found));
        self.rules.levels(&mut found);
        found
    }

    /// The calls that run now by rules that limit calls at once, in this process.
    pub fn slots_of_rules(&self) -> Vec<RuleSlots> {
        self.rules.slots()
    }

    /// Calls that hold a slot of their tool now, for tests and the in-flight gauge.
    pub fn in_flight(&self) -> usize {
        self.concurrency.in_flight()
    }

    /// Removes keys that have been idle long enough to be full again, and tools without calls; run every minute.
    pub fn evict_idle(&self) {
        for limit in &self.rates {
            limit.evict_idle();
        }
        if let Some(shared) = &self.shared {
            shared.evict_idle();
        }
        self.rules.evict_idle();
        self.concurrency.evict_idle();
    }

    async fn take_of_each_shared(
        &self,
        shared: &SharedRates,
        call: &CallContext,
        tool: &Tool,
    ) -> Result<Option<RateState>, CallError> {
        let until = call.begin_by(tool.timeout());
        let mut nearest_to_empty: Option<RateState> = None;
        let mut taken = Vec::new();
        for limit in &self.rates {
            let admitted = match limit.bucket(&call.caller, tool) {
                Ok(None) => continue,
                Ok(Some(CallBucket { owner, per_minute, whose })) => {
                    let (admitted, counts) = (shared.take(&owner, per_minute, until).await, owner.counts());
                    taken.extend(admitted.is_ok().then_some(owner));
                    admitted.map_err(|(wait, state)| used_up(per_minute, whose, wait, counts).with_rate(state))
                }
                Err(closed) => Err(closed),
            };
            match admitted {
                Ok(state) if nearest_to_empty.is_none_or(|nearest| state.remaining < nearest.remaining) => {
                    nearest_to_empty = Some(state);
                }
                Ok(_) => {}
                Err(refusal) => {
                    taken.iter().for_each(|owner| shared.give_back(owner));
                    return Err(refusal);
                }
            }
        }
        Ok(nearest_to_empty)
    }

    fn take_of_each(&self, caller: &Caller, tool: &Tool) -> Result<Option<RateState>, CallError> {
        let mut nearest_to_empty: Option<RateState> = None;
        for (at, limit) in self.rates.iter().enumerate() {
            match limit.take(caller, tool) {
                Ok(None) => {}
                Ok(Some(state)) => {
                    if nearest_to_empty.is_none_or(|nearest| state.remaining < nearest.remaining) {
                        nearest_to_empty = Some(state);
                    }
                }
                Err(refusal) => {
                    for taken in &self.rates[..at] {
                        taken.give_back(caller, tool);
                    }
                    return Err(refusal);
                }
            }
        }
        Ok(nearest_to_empty)
    }
}

fn with_rate(refusal: CallError, rate: Option<RateState>) -> CallError {
    match rate {
        Some(rate) => refusal.with_rate(rate),
        None => refusal,
    }
}

/// The configuration's numbers; none is zero where zero would refuse every call.
#[derive(Debug, Clone)]
struct Numbers {
    tenant_rate: Option<NonZeroU32>,
    caller_rate: Option<NonZeroU32>,
    max_concurrent: NonZeroU32,
    max_concurrent_per_tool: NonZeroU32,
    max_queued: u32,
}

impl Numbers {
    fn of(config: &LimitsConfig) -> Result<Self, String> {
        Ok(Self {
            tenant_rate: rate("tenant_rate_limit", config.tenant_rate_limit)?,
            caller_rate: rate("caller_rate_limit", config.caller_rate_limit)?,
            max_concurrent: cap("max_concurrent", config.max_concurrent)?,
            max_concurrent_per_tool: cap("max_concurrent_per_tool", config.max_concurrent_per_tool)?,
            max_queued: config.max_queued,
        })
    }
}

fn rate(field: &str, calls_a_minute: Option<u32>) -> Result<Option<NonZeroU32>, String> {
    calls_a_minute
        .map(|calls| {
            NonZeroU32::new(calls).ok_or_else(|| {
                format!("limits.{field}: zero calls a minute would refuse every call; omit it for no limit")
            })
        })
        .transpose()
}

fn cap(field: &str, calls: u32) -> Result<NonZeroU32, String> {
    NonZeroU32::new(calls).ok_or_else(|| format!("limits.{field}: zero would refuse every call; set at least 1"))
}
