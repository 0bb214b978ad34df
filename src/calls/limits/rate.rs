//! The rate limits: all calls of a tenant or caller together, and each tool for each caller.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::buckets::Buckets;
use super::{BucketLevel, BucketOwner, CallBucket, Limit, Numbers};
use crate::tool::Tool;
use sekisho_core::call::{Caller, RateState};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::CountedCalls;

/// All calls of one tenant, or of one caller, of any tool. No limit by default.
#[derive(Debug)]
pub(super) struct SharedRateLimit {
    /// The group of calls counted together, for the error message.
    whose: &'static str,
    key: fn(&Caller) -> &Arc<str>,
    owner: fn(Arc<str>) -> BucketOwner,
    rate: fn(&Numbers) -> Option<NonZeroU32>,
    buckets: ArcSwapOption<Buckets>,
}

impl SharedRateLimit {
    pub(super) fn of_a_tenant(numbers: &Numbers) -> Self {
        let (whose, owner) = ("all calls of one tenant", BucketOwner::Tenant);
        Self::new(whose, |caller| &caller.tenant, owner, |numbers| numbers.tenant_rate, numbers)
    }

    pub(super) fn of_a_caller(numbers: &Numbers) -> Self {
        let (whose, owner) = ("all calls of one caller", BucketOwner::Caller);
        Self::new(whose, |caller| &caller.key, owner, |numbers| numbers.caller_rate, numbers)
    }

    fn new(
        whose: &'static str,
        key: fn(&Caller) -> &Arc<str>,
        owner: fn(Arc<str>) -> BucketOwner,
        rate: fn(&Numbers) -> Option<NonZeroU32>,
        numbers: &Numbers,
    ) -> Self {
        let buckets = ArcSwapOption::from_pointee(rate(numbers).map(Buckets::new));
        Self { whose, key, owner, rate, buckets }
    }
}

impl Limit for SharedRateLimit {
    fn take(&self, caller: &Caller, _tool: &Tool) -> Result<Option<RateState>, CallError> {
        match &*self.buckets.load() {
            Some(buckets) => {
                let key = (self.key)(caller);
                take(buckets, key, self.whose, || (self.owner)(Arc::clone(key)).counts()).map(Some)
            }
            None => Ok(None),
        }
    }

    fn check(&self, caller: &Caller) -> Result<(), CallError> {
        let buckets = self.buckets.load();
        let Some(buckets) = &*buckets else { return Ok(()) };
        let key = (self.key)(caller);
        match buckets.wait(key) {
            None => Ok(()),
            Some(wait) => {
                let counts = (self.owner)(Arc::clone(key)).counts();
                Err(used_up(buckets.per_minute(), self.whose, wait, counts).with_rate(buckets.state(key)))
            }
        }
    }

    fn bucket_of_caller(&self, caller: &Caller) -> Option<CallBucket<'_>> {
        let per_minute = self.buckets.load().as_ref()?.per_minute();
        Some(CallBucket { owner: (self.owner)(Arc::clone((self.key)(caller))), per_minute, whose: self.whose })
    }

    fn give_back(&self, caller: &Caller, _tool: &Tool) {
        if let Some(buckets) = &*self.buckets.load() {
            buckets.give_back((self.key)(caller));
        }
    }

    fn levels(&self, found: &mut Vec<BucketLevel>) {
        let buckets = self.buckets.load();
        let levels = buckets.iter().flat_map(|buckets| buckets.levels());
        found.extend(levels.map(|(key, state)| BucketLevel { whose: (self.owner)(key), state }));
    }

    fn reconfigure(&self, numbers: &Numbers) {
        let rate = (self.rate)(numbers);
        let current = self.buckets.load_full();
        if current.as_ref().map(|buckets| buckets.per_minute()) == rate {
            return;
        }
        let changed = rate.map(|rate| current.map_or_else(|| Buckets::new(rate), |buckets| buckets.at_rate(rate)));
        self.buckets.store(changed.map(Arc::new));
    }

    fn evict_idle(&self) {
        if let Some(buckets) = &*self.buckets.load() {
            buckets.evict_idle();
        }
    }
}

/// Each tool's own rate (E12, E46–E49), separate for each caller. Found by the tool's name, so that a reload, which
/// rebuilds tools, resets no counts.
#[derive(Debug, Default)]
pub(super) struct PerToolRateLimit {
    #[expect(clippy::disallowed_types, reason = "evicted early, one gives calls away; full ones go each minute")]
    tools: dashmap::DashMap<String, Buckets>,
}

impl Limit for PerToolRateLimit {
    fn take(&self, caller: &Caller, tool: &Tool) -> Result<Option<RateState>, CallError> {
        let Some(rate) = NonZeroU32::new(tool.metadata.rate_limit) else {
            return Err(closed(tool));
        };
        // The guard is held while the call is taken, so eviction cannot run in between.
        if let Some(buckets) = self.tools.get(tool.name())
            && buckets.per_minute() == rate
        {
            return take(&buckets, &caller.key, tool.name(), || CountedCalls::ToolOfCaller).map(Some);
        }
        let mut buckets = self.tools.entry(tool.name().to_owned()).or_insert_with(|| Buckets::new(rate));
        if buckets.per_minute() != rate {
            *buckets = buckets.at_rate(rate);
        }
        take(&buckets, &caller.key, tool.name(), || CountedCalls::ToolOfCaller).map(Some)
    }

    fn bucket<'a>(&'a self, caller: &Caller, tool: &'a Tool) -> Result<Option<CallBucket<'a>>, CallError> {
        let per_minute = NonZeroU32::new(tool.metadata.rate_limit).ok_or_else(|| closed(tool))?;
        let owner = BucketOwner::Tool { tool: tool.name().to_owned(), caller: Arc::clone(&caller.key) };
        Ok(Some(CallBucket { owner, per_minute, whose: tool.name() }))
    }

    fn give_back(&self, caller: &Caller, tool: &Tool) {
        if let Some(buckets) = self.tools.get(tool.name()) {
            buckets.give_back(&caller.key);
        }
    }

    fn levels(&self, found: &mut Vec<BucketLevel>) {
        for tool in &self.tools {
            let of_tool =
                |(caller, state)| BucketLevel { whose: BucketOwner::Tool { tool: tool.key().clone(), caller }, state };
            found.extend(tool.value().levels().map(of_tool));
        }
    }

    /// Nothing to do: each call contains its tool's rate.
    fn reconfigure(&self, _numbers: &Numbers) {}

    fn evict_idle(&self) {
        self.tools.retain(|_, buckets| {
            buckets.evict_idle();
            !buckets.is_empty()
        });
        self.tools.shrink_to_fit();
    }
}

fn take(
    buckets: &Buckets,
    key: &Arc<str>,
    whose: &str,
    counts: impl FnOnce() -> CountedCalls,
) -> Result<RateState, CallError> {
    match buckets.take(key) {
        Ok(()) => Ok(buckets.state(key)),
        Err(wait) => Err(used_up(buckets.per_minute(), whose, wait, counts()).with_rate(buckets.state(key))),
    }
}

pub(super) fn used_up(rate: NonZeroU32, whose: &str, wait: Duration, counts: CountedCalls) -> CallError {
    // Whole milliseconds, rounded up: a caller that waits this long is admitted.
    let millis = wait.as_nanos().div_ceil(1_000_000).max(1);
    let wait = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    let calls = if rate.get() == 1 { "call" } else { "calls" };
    CallError::new(
        ErrorCode::RateLimited,
        format!("the limit of {rate} {calls} a minute for {whose} is reached; call again in {} s", wait.as_secs_f64()),
    )
    .retry_after(wait)
    .of_limit(counts)
}

/// A rate of zero admits no call; there is no time to wait for.
fn closed(tool: &Tool) -> CallError {
    CallError::new(
        ErrorCode::RateLimited,
        format!("{} is configured with a rate limit of zero, so that it cannot be called", tool.name()),
    )
    .with_rate(RateState { limit: 0, remaining: 0, reset_seconds: 0 })
}
