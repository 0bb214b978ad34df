//! Rate limits that are counted over all replicas of a database. A replica admits calls from the slices that it took of
//! a bucket in the store; the rules are in [`sekisho_core::lease::rate`]. Slices of fast rates are taken ahead, in the
//! background. A call with a slow rate asks for itself, together with the requests that are due at that moment.
//!
//! While the database is away, slices are used up; then each replica admits its part of the rate, by the last number of
//! replicas that it knew. Nothing is saved up for that: others may have used the calls that the database reported last.
//! The calls that the replica admitted leave the bucket once the database is back.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{BucketLevel, BucketOwner};
use sekisho_core::boot_clock::now;
use sekisho_core::call::RateState;
use sekisho_core::lease::rate::{self, Decision, RateLease, TakeRequest, refill_nanos};
use sekisho_store::{AskedCalls, Store, StoreError, TakenCalls};

/// How often ended slices are given back, and a database that is away is asked.
const EVERY: Duration = Duration::from_secs(1);

/// How long an answer of the store is waited for.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// Buckets of one statement.
const MAX_BUCKETS: usize = 500;

/// The buckets of this replica.
#[derive(Debug)]
pub(super) struct SharedRates {
    store: Store,
    #[expect(clippy::disallowed_types, reason = "evicted early, one gives calls away; full ones go each minute")]
    buckets: dashmap::DashMap<BucketOwner, Arc<Mutex<Bucket>>>,
    /// The owners for which the store is to be asked, however many calls want it.
    due: Mutex<HashSet<BucketOwner>>,
    wake: Notify,
    /// Exchanges so far.
    rounds: watch::Sender<u64>,
    /// The last exchange had no answer.
    is_away: AtomicBool,
    /// Live replicas, as last known.
    replicas: AtomicU32,
}

#[derive(Debug)]
struct Bucket {
    lease: RateLease,
    /// The last answer of the store, and its time. Before the first answer, the time when the first call of this
    /// replica's part was admitted.
    last: TakenCalls,
    answered: Option<Duration>,
    /// When this replica's part is full while the database is away, in nanoseconds of its clock. The part was empty
    /// when the store last answered; the part of a new bucket has one call.
    part_full_at: i64,
}

/// A call that was taken, or the time until there may be one; with the calls that are left.
pub(super) type Taken = Result<RateState, (Duration, RateState)>;

/// A request on its way.
struct Asking {
    bucket: Arc<Mutex<Bucket>>,
    request: TakeRequest,
}

impl SharedRates {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            buckets: Default::default(),
            due: Mutex::default(),
            wake: Notify::new(),
            rounds: watch::Sender::default(),
            is_away: AtomicBool::default(),
            replicas: AtomicU32::new(1),
        }
    }

    pub(super) fn set_replicas(&self, live: u32) {
        self.replicas.store(live, Ordering::Relaxed);
    }

    /// Takes one call, or returns how long to wait until there may be one.
    pub(super) async fn take(&self, owner: &BucketOwner, per_minute: NonZeroU32, until: Instant) -> Taken {
        let bucket = self.bucket(owner, per_minute);
        if let Some(decided) = self.decide(owner, &bucket, true) {
            return decided;
        }
        // An exchange that ends from here on is seen; the next look finds an earlier end.
        let mut rounds = self.rounds.subscribe();
        loop {
            if let Some(decided) = self.decide(owner, &bucket, false) {
                return decided;
            }
            if timeout_at(until, rounds.changed()).await.is_err() {
                return self.take_part(&mut bucket.lock(), now());
            }
        }
    }

    /// `None`: the store must be asked; if the call is not new, it is being asked.
    fn decide(&self, owner: &BucketOwner, bucket: &Mutex<Bucket>, is_new: bool) -> Option<Taken> {
        let now = now();
        let mut bucket = bucket.lock();
        match bucket.lease.admit(now, is_new) {
            Decision::Granted => {
                let (state, is_low) = (bucket.state(now), bucket.lease.is_low(now));
                drop(bucket);
                if is_low {
                    self.ask(owner);
                }
                Some(Ok(state))
            }
            Decision::Refused(wait) => Some(Err((wait, bucket.state(now)))),
            Decision::Ask if self.is_away.load(Ordering::Relaxed) => Some(self.take_part(&mut bucket, now)),
            Decision::Ask if is_new => None,
            Decision::Ask => {
                bucket.lease.await_call();
                drop(bucket);
                self.ask(owner);
                None
            }
        }
    }

    /// Refunds a call.
    pub(super) fn give_back(&self, owner: &BucketOwner) {
        if let Some(bucket) = self.buckets.get(owner) {
            bucket.lock().lease.give_back();
        }
    }

    /// How long until the bucket may have a call, if the store said that it is empty.
    pub(super) fn refused_for(&self, owner: &BucketOwner) -> Option<(Duration, RateState)> {
        let bucket = self.buckets.get(owner).map(|bucket| Arc::clone(&bucket))?;
        let mut bucket = bucket.lock();
        let now = now();
        bucket.lease.refused_for(now).map(|wait| (wait, bucket.state(now)))
    }

    pub(super) fn levels(&self) -> Vec<BucketLevel> {
        let now = now();
        let levels = self.buckets.iter().map(|entry| {
            let state = entry.value().lock().state(now);
            BucketLevel { whose: entry.key().clone(), state }
        });
        levels.filter(|level| level.state.remaining < level.state.limit).collect()
    }

    pub(super) fn evict_idle(&self) {
        let now = now();
        self.buckets.retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.lock().is_idle(now));
        self.buckets.shrink_to_fit();
    }

    /// Asks the store for the due calls, until `shutdown` is cancelled; then gives back the rest.
    pub(super) async fn run(&self, shutdown: CancellationToken) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = tokio::select! {
                _ = ticks.tick() => self.buckets.iter().map(|entry| entry.key().clone()).collect(),
                () = self.wake.notified() => std::mem::take(&mut *self.due.lock()).into_iter().collect(),
                () = shutdown.cancelled() => break,
            };
            if self.is_away.load(Ordering::Relaxed) && !self.is_back().await {
                continue;
            }
            self.exchange(due, now()).await;
        }
        let all = self.buckets.iter().map(|entry| entry.key().clone()).collect();
        // At that time all slices have ended.
        self.exchange(all, Duration::MAX).await;
    }

    /// Removes the buckets of the store that are full.
    pub(super) async fn forget_full(&self) -> Result<(), StoreError> {
        self.store.rate_buckets().forget_full().await
    }

    fn bucket(&self, owner: &BucketOwner, per_minute: NonZeroU32) -> Arc<Mutex<Bucket>> {
        let known = self.buckets.get(owner).map(|bucket| Arc::clone(&bucket));
        let bucket = known.unwrap_or_else(|| {
            Arc::clone(
                &self.buckets.entry(owner.clone()).or_insert_with(|| Arc::new(Mutex::new(Bucket::new(per_minute)))),
            )
        });
        let mut locked = bucket.lock();
        if locked.lease.per_minute() != per_minute {
            locked.lease.set_rate(per_minute);
        }
        drop(locked);
        bucket
    }

    fn ask(&self, owner: &BucketOwner) {
        self.due.lock().insert(owner.clone());
        self.wake.notify_one();
    }

    /// This replica's part of the rate.
    fn take_part(&self, bucket: &mut Bucket, now: Duration) -> Taken {
        let replicas = self.replicas.load(Ordering::Relaxed).max(1);
        let part = NonZeroU32::new(bucket.lease.per_minute().get() / replicas).unwrap_or(NonZeroU32::MIN);
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let one_call = Duration::from_nanos(refill_nanos(part));
        let answered = *bucket.answered.get_or_insert(now.saturating_sub(one_call));
        let (now_nanos, full_again) = (nanos(now), nanos(answered + Duration::from_secs(60)));
        let (taken, full_at) = rate::take(bucket.part_full_at.max(full_again), now_nanos, part, 1);
        bucket.part_full_at = full_at;
        let until_full = Duration::from_nanos(u64::try_from(full_at.saturating_sub(now_nanos)).unwrap_or(0));
        let state = state_of(part, until_full, 0);
        if taken == 0 {
            return Err((rate::wait(full_at, now_nanos, part), state));
        }
        bucket.lease.admit_unsettled(now, part.get().into());
        Ok(state)
    }

    async fn is_back(&self) -> bool {
        let is_back = matches!(timeout(EXCHANGE_TIMEOUT, self.store.ping()).await, Ok(Ok(())));
        self.is_away.store(!is_back, Ordering::Relaxed);
        is_back
    }

    async fn exchange(&self, mut due: Vec<BucketOwner>, now: Duration) {
        due.sort_unstable();
        for due in due.chunks(MAX_BUCKETS) {
            let mut asked: Vec<(AskedCalls, Asking)> =
                due.iter().filter_map(|owner| self.request(owner, now)).collect();
            // The order in which every transaction locks the rows.
            asked.sort_unstable_by(|(one, _), (other, _)| one.bucket.cmp(&other.bucket));
            let (calls, asking): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
            if !calls.is_empty() {
                self.exchange_some(&calls, asking).await;
            }
        }
    }

    fn request(&self, owner: &BucketOwner, now: Duration) -> Option<(AskedCalls, Asking)> {
        let bucket = self.buckets.get(owner).map(|bucket| Arc::clone(&bucket))?;
        let mut locked = bucket.lock();
        let request = locked.lease.request(now)?;
        let per_minute = locked.lease.per_minute();
        drop(locked);
        Some((AskedCalls { bucket: owner.bucket(), per_minute, wanted: request.wanted }, Asking { bucket, request }))
    }

    async fn exchange_some(&self, calls: &[AskedCalls], asking: Vec<Asking>) {
        let answered = timeout(EXCHANGE_TIMEOUT, self.store.rate_buckets().take(calls)).await;
        let now = now();
        match answered {
            Ok(Ok(taken)) => {
                for (Asking { bucket, request }, taken) in asking.iter().zip(taken) {
                    let mut bucket = bucket.lock();
                    bucket.lease.answered(now, *request, taken.taken, taken.wait);
                    (bucket.last, bucket.answered) = (taken, Some(now));
                }
            }
            failed => {
                if !self.is_away.swap(true, Ordering::Relaxed) {
                    let error = failed.map(|failed| failed.err().map(|error| error.to_string()));
                    tracing::warn!(
                        ?error,
                        "rates cannot be counted over all replicas: this one admits its part of them"
                    );
                }
                asking.iter().for_each(|asking| asking.bucket.lock().lease.unanswered());
            }
        }
        self.rounds.send_modify(|rounds| *rounds += 1);
    }
}

impl Bucket {
    fn new(per_minute: NonZeroU32) -> Self {
        let (last, answered) = (TakenCalls::default(), None);
        Self { lease: RateLease::new(per_minute), last, answered, part_full_at: 0 }
    }

    fn state(&mut self, now: Duration) -> RateState {
        let until_full = self.last.until_full.saturating_sub(now.saturating_sub(self.answered.unwrap_or(now)));
        state_of(self.lease.per_minute(), until_full, self.lease.available(now))
    }

    fn is_idle(&mut self, now: Duration) -> bool {
        self.lease.is_idle(now) && self.state(now).remaining == self.lease.per_minute().get()
    }
}

/// `leased`: calls that left the bucket, and can be admitted.
fn state_of(per_minute: NonZeroU32, until_full: Duration, leased: u64) -> RateState {
    let used = until_full.as_nanos().div_ceil(refill_nanos(per_minute).into());
    let used = u64::try_from(used).unwrap_or(u64::MAX).saturating_sub(leased);
    let limit = per_minute.get();
    RateState {
        limit,
        remaining: limit.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX)),
        reset_seconds: until_full.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests;
