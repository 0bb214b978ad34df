//! Token buckets on governor, one for each key. Governor decides; this module adds a check of a bucket that takes
//! nothing, a refund, and a change of rate that keeps the counts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::{DashMapStateStore, ShrinkableKeyedStateStore};
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{Quota, RateLimiter};
use tokio::time::Instant;

use sekisho_core::call::RateState;

/// A rate per minute for each key. A bucket is full at first, holds a minute's calls, and is refilled evenly, rate /
/// 60 per second (E45). Any rate works, from 1 per minute to `u32::MAX`.
#[derive(Debug)]
pub(super) struct Buckets {
    per_minute: NonZeroU32,
    limiter: RateLimiter<Arc<str>, BucketStore, Clock, NoOpMiddleware<Nanos>>,
    /// The limiter's own store, which it does not show.
    levels: BucketStore,
}

impl Buckets {
    pub(super) fn new(per_minute: NonZeroU32) -> Self {
        let levels = BucketStore::default();
        let quota = Quota::per_minute(per_minute);
        let quota = Quota::with_period(Duration::from_nanos(refill_nanos(per_minute)))
            .map_or(quota, |exact| exact.allow_burst(per_minute));
        Self { per_minute, limiter: RateLimiter::new(quota, levels.clone(), Clock { started: Instant::now() }), levels }
    }

    /// The same buckets at another rate: calls used under the old rate stay used, at most all of the new one.
    pub(super) fn at_rate(&self, per_minute: NonZeroU32) -> Self {
        let changed = Self::new(per_minute);
        let (old_refill, new_refill) = (refill_nanos(self.per_minute), refill_nanos(per_minute));
        let empty = new_refill.saturating_mul(per_minute.get().into());
        let now = self.now();
        for bucket in self.levels.0.iter() {
            let owed = bucket.value().full_at().saturating_sub(now);
            let calls = owed.div_ceil(old_refill);
            if calls > 0 {
                let level = InMemoryState::default();
                level.set_full_at(calls.saturating_mul(new_refill).min(empty));
                changed.levels.0.insert(bucket.key().clone(), level);
            }
        }
        changed
    }

    pub(super) fn per_minute(&self) -> NonZeroU32 {
        self.per_minute
    }

    /// Takes one call from the key's bucket, or returns how long to wait until there is one.
    pub(super) fn take(&self, key: &Arc<str>) -> Result<(), Duration> {
        self.limiter.check_key(key).map_err(|refusal| refusal.wait_time_from(self.now().into()))
    }

    /// Refunds one call.
    pub(super) fn give_back(&self, key: &Arc<str>) {
        if let Some(level) = self.levels.0.get(key) {
            level.shift_back(refill_nanos(self.per_minute));
        }
    }

    /// How long until the key's bucket has a call, if it is empty; takes nothing.
    pub(super) fn wait(&self, key: &Arc<str>) -> Option<Duration> {
        let refill = refill_nanos(self.per_minute);
        let until_full = self.levels.0.get(key).map_or(0, |level| level.full_at()).saturating_sub(self.now());
        let wait = until_full.saturating_sub(refill.saturating_mul(u64::from(self.per_minute.get()) - 1));
        (wait > 0).then(|| Duration::from_nanos(wait))
    }

    /// The state of the key's bucket; takes nothing.
    pub(super) fn state(&self, key: &Arc<str>) -> RateState {
        let full_at = self.levels.0.get(key).map_or(0, |level| level.full_at());
        let until_full = full_at.saturating_sub(self.now());
        let used = until_full.div_ceil(refill_nanos(self.per_minute));
        let limit = self.per_minute.get();
        RateState {
            limit,
            remaining: limit.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX)),
            reset_seconds: until_full.div_ceil(NANOS_A_SECOND),
        }
    }

    /// The keys whose buckets are not full.
    pub(super) fn levels(&self) -> impl Iterator<Item = (Arc<str>, RateState)> {
        // Copied first: the state takes the same lock of the map.
        let keys: Vec<_> = self.levels.0.iter().map(|level| Arc::clone(level.key())).collect();
        let states = keys.into_iter().map(|key| (self.state(&key), key));
        states.filter(|(state, _)| state.remaining < state.limit).map(|(state, key)| (key, state))
    }

    /// Removes the keys whose buckets are full again.
    pub(super) fn evict_idle(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }

    /// Whether it equals a new one.
    pub(super) fn is_empty(&self) -> bool {
        self.limiter.is_empty()
    }

    fn now(&self) -> u64 {
        governor::clock::Clock::now(self.limiter.clock()).as_u64()
    }
}

const NANOS_A_SECOND: u64 = 1_000_000_000;

/// Time in which one call is refilled. Rounded up, so that no minute permits more calls.
fn refill_nanos(per_minute: NonZeroU32) -> u64 {
    (60 * NANOS_A_SECOND).div_ceil(per_minute.get().into())
}

/// Tokio's clock, which tests can stop: nanoseconds since the buckets were made.
#[derive(Debug, Clone)]
struct Clock {
    started: Instant,
}

impl governor::clock::Clock for Clock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }
}

/// Governor's store, shared with the limiter that owns it.
#[derive(Debug, Clone, Default)]
struct BucketStore(Arc<DashMapStateStore<Arc<str>>>);

impl StateStore for BucketStore {
    type Key = Arc<str>;

    fn measure_and_replace<T, F, E>(&self, key: &Arc<str>, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        self.0.measure_and_replace(key, decide)
    }
}

impl ShrinkableKeyedStateStore<Arc<str>> for BucketStore {
    fn retain_recent(&self, drop_below: Nanos) {
        ShrinkableKeyedStateStore::retain_recent(&*self.0, drop_below);
    }

    fn shrink_to_fit(&self) {
        ShrinkableKeyedStateStore::shrink_to_fit(&*self.0);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One bucket's level as governor stores it (GCRA): the time at which it is full again, in nanoseconds on [`Clock`].
/// A time in the past means full.
trait Level {
    fn full_at(&self) -> u64;
    fn set_full_at(&self, nanos: u64);
    fn shift_back(&self, nanos: u64);
}

impl Level for InMemoryState {
    fn full_at(&self) -> u64 {
        // An error leaves the state as it is.
        match self.measure_and_replace(&NotKeyed::NonKey, Err::<((), Nanos), _>) {
            Err(Some(full_at)) => full_at.as_u64(),
            Err(None) | Ok(()) => 0,
        }
    }

    fn set_full_at(&self, nanos: u64) {
        let _ = self.measure_and_replace(&NotKeyed::NonKey, |_| Ok::<_, ()>(((), nanos.into())));
    }

    fn shift_back(&self, nanos: u64) {
        let earlier = |full_at: Option<Nanos>| full_at.unwrap_or_default().saturating_sub(nanos.into());
        let _ = self.measure_and_replace(&NotKeyed::NonKey, |full_at| Ok::<_, ()>(((), earlier(full_at))));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::in_paused_time;

    fn buckets(per_minute: u32) -> Buckets {
        Buckets::new(NonZeroU32::new(per_minute).unwrap())
    }

    fn key(name: &str) -> Arc<str> {
        name.into()
    }

    fn take_all(buckets: &Buckets, key: &Arc<str>, at_most: u32) -> u32 {
        (0..at_most).take_while(|_| buckets.take(key).is_ok()).count().try_into().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn any_rate_permits_a_minutes_calls_at_once_and_then_returns_the_wait() {
        for rate in [1, 2, 7, 59, 60, 61, 120, 2_000, 100_000] {
            let (buckets, key) = (buckets(rate), key("a"));
            assert_eq!(take_all(&buckets, &key, rate + 5), rate, "at {rate} calls a minute");
            let wait = buckets.take(&key).unwrap_err();
            assert_eq!(
                wait,
                Duration::from_nanos(60_000_000_000_u64.div_ceil(rate.into())),
                "at {rate} calls a minute"
            );
            tokio::time::advance(wait).await;
            assert_eq!(take_all(&buckets, &key, 5), 1, "at {rate} calls a minute");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_rate_there_is_neither_panics_nor_overflows() {
        let (buckets, key) = (buckets(u32::MAX), key("a"));
        assert!((0..1_000).all(|_| buckets.take(&key).is_ok()));
        assert_eq!(buckets.state(&key), RateState { limit: u32::MAX, remaining: u32::MAX - 1_000, reset_seconds: 1 });
    }

    #[tokio::test(start_paused = true)]
    async fn the_state_has_the_calls_left_and_when_the_bucket_is_full() {
        let (buckets, key) = (buckets(2), key("a"));
        let state = |remaining, reset_seconds| RateState { limit: 2, remaining, reset_seconds };
        assert_eq!(buckets.state(&key), state(2, 0));
        buckets.take(&key).unwrap();
        assert_eq!(buckets.state(&key), state(1, 30));
        tokio::time::advance(Duration::from_millis(14_500)).await;
        buckets.take(&key).unwrap();
        assert_eq!(buckets.state(&key), state(0, 46));
        tokio::time::advance(Duration::from_secs(46)).await;
        assert_eq!(buckets.state(&key), state(2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refunded_call_can_be_taken_again_up_to_a_full_bucket() {
        let (buckets, key) = (buckets(3), key("a"));
        assert_eq!(take_all(&buckets, &key, 9), 3);
        buckets.give_back(&key);
        assert_eq!(take_all(&buckets, &key, 9), 1);
        for _ in 0..9 {
            buckets.give_back(&key);
        }
        assert_eq!(take_all(&buckets, &key, 9), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_rate_keeps_what_was_used() {
        let (old, key) = (buckets(60), key("a"));
        assert_eq!(take_all(&old, &key, 45), 45);
        let remaining = |rate: u32| old.at_rate(NonZeroU32::new(rate).unwrap()).state(&key).remaining;
        assert_eq!([30, 50, 60, 100].map(remaining), [0, 5, 15, 55]);
    }

    #[tokio::test(start_paused = true)]
    async fn full_buckets_are_removed_and_others_kept() {
        let buckets = buckets(60);
        buckets.take(&key("early")).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        buckets.take(&key("late")).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        buckets.evict_idle();
        assert!(!buckets.is_empty(), "the second bucket was full only this moment");
        tokio::time::advance(Duration::from_secs(1)).await;
        buckets.evict_idle();
        assert!(buckets.is_empty());
    }

    /// A token bucket as the textbook has it, in units of 1 / `refill` of a call.
    struct Model {
        refill: u128,
        full: u128,
        level: u128,
    }

    impl Model {
        fn new(per_minute: u32) -> Self {
            let refill = u128::from(60_000_000_000_u64.div_ceil(per_minute.into()));
            let full = refill * u128::from(per_minute);
            Self { refill, full, level: full }
        }

        fn pass(&mut self, time: Duration) {
            self.level = (self.level + time.as_nanos()).min(self.full);
        }

        fn take(&mut self) -> bool {
            let enough = self.level >= self.refill;
            if enough {
                self.level -= self.refill;
            }
            enough
        }
    }

    proptest! {
        #[test]
        fn over_any_schedule_exactly_the_calls_of_a_token_bucket_pass(
            rate in prop_oneof![1_u32..=200, Just(2_000), 1..=u32::MAX],
            schedule in prop::collection::vec((0_u64..5_000_000_000, 1_usize..20, 0_usize..3), 1..60),
        ) {
            in_paused_time(async {
                let (buckets, keys) = (buckets(rate), [key("a"), key("b"), key("c")]);
                let mut models = [(); 3].map(|()| Model::new(rate));
                let (mut passed, started) = ([0_u128; 3], Instant::now());
                for (pause, calls, who) in schedule {
                    let pause = Duration::from_nanos(pause);
                    tokio::time::advance(pause).await;
                    models.iter_mut().for_each(|model| model.pass(pause));
                    for _ in 0..calls {
                        let taken = buckets.take(&keys[who]).is_ok();
                        prop_assert_eq!(taken, models[who].take());
                        passed[who] += u128::from(taken);
                    }
                    let earned = started.elapsed().as_nanos() * u128::from(rate) / 60_000_000_000;
                    prop_assert!(passed.iter().all(|passed| *passed <= u128::from(rate) + earned));
                }
                Ok(())
            })?;
        }
    }
}
