//! Limits on concurrent requests: in total (E69) and to one origin (E70).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Slots for requests. A request without a free slot waits, in order of arrival.
#[derive(Debug)]
pub(super) struct Slots {
    total: Arc<Semaphore>,
    per_origin: usize,
    /// Only origins with a slot held or waited for.
    origins: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// The right to one request, given back when dropped.
#[derive(Debug)]
pub(super) struct Slot {
    // The order matters: the lease is dropped last, when no permit keeps the origin alive.
    _total: OwnedSemaphorePermit,
    _origin: OwnedSemaphorePermit,
    _lease: Lease,
}

impl Slots {
    pub(super) fn new(total: usize, per_origin: usize) -> Arc<Self> {
        // With a semaphore without permits, every request would wait until its deadline.
        let total = Arc::new(Semaphore::new(total.clamp(1, Semaphore::MAX_PERMITS)));
        let per_origin = per_origin.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self { total, per_origin, origins: Mutex::default() })
    }

    /// Waits for a slot. The origin's comes first: requests in line for a busy origin
    /// must not keep slots from the others.
    pub(super) async fn acquire(self: &Arc<Self>, origin: &str) -> Slot {
        let lease = self.lease(origin);
        let origin = permit(&lease.slots).await;
        let total = permit(&self.total).await;
        Slot { _total: total, _origin: origin, _lease: lease }
    }

    /// A slot, if one is free.
    pub(super) fn try_acquire(self: &Arc<Self>, origin: &str) -> Option<Slot> {
        let lease = self.lease(origin);
        let origin = Arc::clone(&lease.slots).try_acquire_owned().ok()?;
        let total = Arc::clone(&self.total).try_acquire_owned().ok()?;
        Some(Slot { _total: total, _origin: origin, _lease: lease })
    }

    fn lease(self: &Arc<Self>, origin: &str) -> Lease {
        let origin = Arc::<str>::from(origin);
        let mut origins = self.origins.lock();
        let slots = origins.entry(Arc::clone(&origin)).or_insert_with(|| Arc::new(Semaphore::new(self.per_origin)));
        Lease { slots: Arc::clone(slots), origin, owner: Arc::clone(self) }
    }

    #[cfg(test)]
    pub(super) fn idle(&self, total: usize) -> bool {
        self.total.available_permits() == total && self.origins.lock().is_empty()
    }
}

/// Keeps an origin in the map while it is used.
#[derive(Debug)]
struct Lease {
    slots: Arc<Semaphore>,
    origin: Arc<str>,
    owner: Arc<Slots>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut origins = self.owner.origins.lock();
        // Leases are made under the lock: two references are the map's and this one.
        if Arc::strong_count(&self.slots) == 2 {
            origins.remove(&self.origin);
        }
    }
}

#[expect(clippy::expect_used, reason = "these semaphores are never closed")]
async fn permit(slots: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(slots).acquire_owned().await.expect("an open semaphore")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn an_origin_gets_its_share_and_leaves_the_rest_to_others() {
        let slots = Slots::new(3, 2);
        let first = slots.acquire("a").await;
        let second = slots.acquire("a").await;
        assert!(slots.acquire("a").now_or_never().is_none(), "two an origin");
        let third = slots.acquire("b").now_or_never().expect("one is left in all");
        assert!(slots.acquire("c").now_or_never().is_none(), "three in all");
        drop((first, second, third));
        assert!(slots.idle(3), "idle origins are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_in_line_for_a_busy_origin_take_no_slot_from_others() {
        let slots = Slots::new(2, 1);
        let held = slots.acquire("busy").await;
        let waiting = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.acquire("busy").await }
        });
        tokio::task::yield_now().await;
        let other = timeout(Duration::from_secs(1), slots.acquire("other")).await.expect("a slot is free");
        drop((held, other));
        drop(waiting.await.unwrap());
        assert!(slots.idle(2));
    }

    #[tokio::test]
    async fn a_request_that_stops_waiting_frees_its_slot() {
        let slots = Slots::new(2, 1);
        let held = slots.acquire("a").await;
        assert!(slots.acquire("a").now_or_never().is_none());
        drop(held);
        assert!(slots.idle(2));
    }
}
