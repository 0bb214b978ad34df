//! Limits on concurrent requests: in total (E69) and to one origin (E70). Callers share the slots fairly, and the last one
//! of each is for a caller that has none.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::Deadline;
use sekisho_core::caller::Owner;
use sekisho_core::share::{Lease, NoLease, Share};

/// Maximum origins without requests whose callers are remembered: a reserve is left for them.
const MAX_REMEMBERED: usize = 1_024;

/// Slots for requests.
#[derive(Debug)]
pub(super) struct Slots {
    total: Arc<Share>,
    per_origin: u64,
    origins: Mutex<Origins>,
}

#[derive(Debug)]
struct Origins {
    /// Only callers with a slot held or waited for.
    used: HashMap<Arc<str>, Arc<Share>>,
    /// Shares that were used before, and since when they are not.
    remembered: BoundedMap<Arc<str>, (Arc<Share>, Instant)>,
}

/// The right to one request, given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    // The order matters: the entry is dropped last, when no lease keeps the origin alive.
    _total: Lease,
    _origin: Lease,
    _entry: OriginEntry,
}

impl Slots {
    pub(super) fn new(total: usize, per_origin: usize) -> Arc<Self> {
        let origins = Origins { used: HashMap::new(), remembered: BoundedMap::new(MAX_REMEMBERED) };
        let (total, origins) = (Share::keeping_one(total as u64), Mutex::new(origins));
        Arc::new(Self { total, per_origin: per_origin as u64, origins })
    }

    /// Waits for a slot. The origin's comes first: requests in line for a busy origin must not keep slots from the
    /// others. As many may wait as there are calls, which are limited themselves.
    /// Errors: the deadline passed first.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        owner: &Owner,
        origin: &str,
        deadline: Deadline,
    ) -> Result<Slot, NoLease> {
        let entry = self.entry(origin);
        let origin = entry.slots.acquire(owner, 1, usize::MAX, deadline.0).await?;
        let total = self.total.acquire(owner, 1, usize::MAX, deadline.0).await?;
        Ok(Slot { _total: total, _origin: origin, _entry: entry })
    }

    /// A slot, if one is free.
    pub(super) fn try_acquire(self: &Arc<Self>, owner: &Owner, origin: &str) -> Option<Slot> {
        let entry = self.entry(origin);
        let origin = entry.slots.try_acquire(owner, 1)?;
        let total = self.total.try_acquire(owner, 1)?;
        Some(Slot { _total: total, _origin: origin, _entry: entry })
    }

    fn entry(self: &Arc<Self>, origin: &str) -> OriginEntry {
        let origin = Arc::<str>::from(origin);
        let slots = self.origins.lock().slots_of(&origin, self.per_origin);
        OriginEntry { slots, origin, all: Arc::clone(self) }
    }

    #[cfg(test)]
    pub(super) fn idle(&self) -> bool {
        self.total.used() == 0 && self.origins.lock().used.is_empty()
    }
}

impl Origins {
    fn slots_of(&mut self, origin: &Arc<str>, capacity: u64) -> Arc<Share> {
        if let Some(slots) = self.used.get(origin) {
            return Arc::clone(slots);
        }
        let slots = self.remembered.remove(origin).map_or_else(|| Share::keeping_one(capacity), |(slots, _)| slots);
        self.used.insert(Arc::clone(origin), Arc::clone(&slots));
        slots
    }

    /// Its last request has ended.
    fn remember(&mut self, origin: &Arc<str>) {
        let Some(slots) = self.used.remove(origin) else { return };
        self.remembered.evict_for(origin, |_, (_, since)| Some(*since));
        // There is space for it.
        _ = self.remembered.try_insert(Arc::clone(origin), (slots, Instant::now()));
    }
}

/// Keeps an origin in the map while it is used.
#[derive(Debug)]
struct OriginEntry {
    slots: Arc<Share>,
    origin: Arc<str>,
    all: Arc<Slots>,
}

impl Drop for OriginEntry {
    fn drop(&mut self) {
        let mut origins = self.all.origins.lock();
        // Entries are made under the lock: two references are the map's and this one.
        if Arc::strong_count(&self.slots) == 2 {
            origins.remember(&self.origin);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::{Instant, timeout};

    use super::*;

    fn owner(caller: &str) -> Owner {
        Owner { tenant: "acme".into(), caller: caller.into() }
    }

    fn later() -> Deadline {
        Deadline::after(Duration::from_secs(10))
    }

    #[tokio::test]
    async fn an_origin_gets_its_share_and_leaves_the_rest_to_others() {
        let (slots, ann) = (Slots::new(3, 2), owner("ann"));
        let first = slots.acquire(&ann, "a", later()).await.unwrap();
        let second = slots.acquire(&ann, "a", later()).await.unwrap();
        assert!(slots.acquire(&ann, "a", later()).now_or_never().is_none(), "two an origin");
        let third = slots.acquire(&ann, "b", later()).now_or_never().expect("one is left in all");
        assert!(slots.acquire(&ann, "c", later()).now_or_never().is_none(), "three in all");
        drop((first, second, third));
        assert!(slots.idle(), "nothing is used");
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_seen_in_the_last_minute_keeps_a_reserve_of_an_idle_origin() {
        for (seconds, most) in [(1, 8), (59, 8), (61, 9)] {
            let slots = Slots::new(100, 10);
            drop(slots.acquire(&owner("ann"), "a", later()).await.unwrap());
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let flood: Vec<_> = (0..20).map_while(|_| slots.try_acquire(&owner("busy"), "a")).collect();
            assert_eq!(flood.len(), most, "{seconds} s later");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_who_was_never_seen_gets_a_slot_at_once_beside_one_who_takes_all() {
        let (slots, busy) = (Slots::new(100, 10), owner("busy"));
        let flood: Vec<_> = std::iter::from_fn(|| slots.try_acquire(&busy, "a")).collect();
        assert_eq!(flood.len(), 9, "all but the one that is kept");
        let mut waiting = Box::pin(slots.acquire(&busy, "a", later()));
        assert!((&mut waiting).now_or_never().is_none(), "its own requests wait");
        let first = slots.acquire(&owner("ann"), "a", later()).now_or_never();
        assert!(matches!(first, Some(Ok(_))), "{first:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_origin_that_is_idle_longest_is_forgotten_first() {
        let (slots, ann) = (Slots::new(10, 10), owner("ann"));
        for at in 0..=MAX_REMEMBERED {
            drop(slots.try_acquire(&ann, &format!("o{at}")).unwrap());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let origins = slots.origins.lock();
        assert_eq!(origins.remembered.len(), MAX_REMEMBERED);
        let is_known = |origin: &str| origins.remembered.contains(origin);
        assert_eq!(["o0", "o1"].map(is_known), [false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_in_line_for_a_busy_origin_take_no_slot_from_others() {
        let (slots, ann) = (Slots::new(2, 1), owner("ann"));
        let held = slots.acquire(&ann, "busy", later()).await.unwrap();
        let waiting = tokio::spawn({
            let (slots, ann) = (Arc::clone(&slots), ann.clone());
            async move { slots.acquire(&ann, "busy", later()).await }
        });
        tokio::task::yield_now().await;
        let other = timeout(Duration::from_secs(1), slots.acquire(&ann, "other", later())).await;
        drop((held, other.expect("a slot is free")));
        drop(waiting.await.unwrap());
        assert!(slots.idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_waits_for_one_request_of_a_busy_caller_and_not_for_all() {
        let slots = Slots::new(10, 1);
        let request = |caller: &'static str| {
            let slots = Arc::clone(&slots);
            async move {
                let began = Instant::now();
                let slot = slots.acquire(&owner(caller), "a", later()).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(slot.unwrap());
                began.elapsed()
            }
        };
        let busy: Vec<_> = (0..5).map(|_| tokio::spawn(request("busy"))).collect();
        tokio::task::yield_now().await;
        let took = request("modest").await;
        assert!(took <= Duration::from_secs(3), "{took:?}");
        futures_util::future::join_all(busy).await;
        assert!(slots.idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_stops_waiting_frees_its_slot() {
        let (slots, ann) = (Slots::new(2, 1), owner("ann"));
        let held = slots.acquire(&ann, "a", later()).await.unwrap();
        assert!(slots.acquire(&ann, "a", later()).now_or_never().is_none());
        assert_eq!(slots.acquire(&ann, "a", later()).await.map(drop), Err(NoLease::DeadlinePassed));
        drop(held);
        assert!(slots.idle());
    }
}
