//! Limits the calls that run at once: over all tools, and of each one.
//!
//! A call takes a slot of its tool first and one of the whole gateway second, so that calls queued for one slow tool
//! do not block others. A call made by a running tool takes no slot of the gateway, since its parent holds one, and
//! never waits: its parents hold slots that the calls before it may need in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout_at;

use super::Numbers;
use crate::core::call::{CallContext, Deadline};
use crate::core::error::{CallError, ErrorCode};
use crate::tool::Tool;

/// The limits and their queues.
#[derive(Debug)]
pub(super) struct Concurrency {
    numbers: ArcSwap<Numbers>,
    gateway: Arc<ConcurrencyLimit>,
    /// By the tool's name: a tool rebuilt by a reload keeps its slots.
    tools: DashMap<String, Arc<ConcurrencyLimit>>,
}

/// The slots of one running call.
#[derive(Debug)]
pub(super) struct ConcurrencyPermit {
    _tool: Slot,
    _gateway: Option<Slot>,
}

impl Concurrency {
    pub(super) fn new(numbers: Numbers) -> Self {
        let gateway = ConcurrencyLimit::new(numbers.max_concurrent.get());
        Self { numbers: ArcSwap::from_pointee(numbers), gateway, tools: DashMap::new() }
    }

    /// Tools apply a new limit at their next call.
    pub(super) fn reconfigure(&self, numbers: Numbers) {
        self.gateway.resize(numbers.max_concurrent.get());
        self.numbers.store(Arc::new(numbers));
    }

    pub(super) async fn enter(&self, call: &CallContext, tool: &Tool) -> Result<ConcurrencyPermit, CallError> {
        let cap = self.cap_of(tool);
        let queue_policy = (call.depth == 0)
            .then(|| QueuePolicy { max_queued: self.numbers.load().max_queued, until: call.deadline(tool.timeout()) });
        let of_tool = cap.enter(queue_policy).await.map_err(|why| refusal(cap.limit(), tool.name(), why))?;
        let of_gateway = match queue_policy {
            None => None,
            Some(_) => Some(self.gateway.enter(queue_policy).await.map_err(|why| self.gateway_full(why))?),
        };
        Ok(ConcurrencyPermit { _tool: of_tool, _gateway: of_gateway })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.tools.iter().map(|cap| cap.held()).sum()
    }

    /// Removes tools without running or waiting calls: those hold a reference to the limit.
    pub(super) fn evict_idle(&self) {
        self.tools.retain(|_, cap| Arc::strong_count(cap) > 1);
        self.tools.shrink_to_fit();
    }

    #[cfg(test)]
    pub(super) fn tools_known(&self) -> usize {
        self.tools.len()
    }

    /// Calls running and waiting.
    #[cfg(test)]
    pub(super) fn gateway_state(&self) -> (usize, u32) {
        (self.gateway.held(), self.gateway.waiting.load(Ordering::Relaxed))
    }

    fn gateway_full(&self, why: NoSlot) -> CallError {
        refusal(self.gateway.limit(), "the gateway", why)
    }

    fn cap_of(&self, tool: &Tool) -> Arc<ConcurrencyLimit> {
        let limit = tool.metadata.max_concurrent;
        let limit = limit.unwrap_or_else(|| self.numbers.load().max_concurrent_per_tool.get());
        let known = self.tools.get(tool.name()).map(|cap| Arc::clone(&cap));
        let cap = known.unwrap_or_else(|| {
            Arc::clone(&self.tools.entry(tool.name().to_owned()).or_insert_with(|| ConcurrencyLimit::new(limit)))
        });
        if cap.limit() != limit {
            cap.resize(limit);
        }
        cap
    }
}

/// A limit of concurrent calls, first come first served, with a queue.
#[derive(Debug)]
struct ConcurrencyLimit {
    limit: AtomicU32,
    free: Semaphore,
    /// Slots in use beyond a limit that was lowered meanwhile: removed when they are freed.
    surplus: AtomicUsize,
    waiting: AtomicU32,
    resizing: Mutex<()>,
}

/// How a call may wait: behind at most this many others, and until this time.
#[derive(Debug, Clone, Copy)]
struct QueuePolicy {
    max_queued: u32,
    until: Deadline,
}

/// A call's slot; freed on drop.
#[derive(Debug)]
struct Slot(Arc<ConcurrencyLimit>);

/// A call's position in the queue; given up on drop.
struct Place<'a>(&'a ConcurrencyLimit);

/// Why a call got no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoSlot {
    MayNotWait,
    QueueFull,
    DeadlinePassed,
}

impl ConcurrencyLimit {
    fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.into(),
            free: Semaphore::new(limit as usize),
            surplus: AtomicUsize::new(0),
            waiting: AtomicU32::new(0),
            resizing: Mutex::new(()),
        })
    }

    /// A slot, at once if one is free and no other call waits for it.
    async fn enter(self: &Arc<Self>, queue_policy: Option<QueuePolicy>) -> Result<Slot, NoSlot> {
        if let Ok(permit) = self.free.try_acquire() {
            return Ok(self.slot(permit));
        }
        let queue_policy = queue_policy.ok_or(NoSlot::MayNotWait)?;
        let _place = self.queue(queue_policy.max_queued).ok_or(NoSlot::QueueFull)?;
        match timeout_at(queue_policy.until.0, self.free.acquire()).await {
            Ok(Ok(permit)) => Ok(self.slot(permit)),
            // The semaphore is never closed, so the deadline has passed.
            Ok(Err(_)) | Err(_) => Err(NoSlot::DeadlinePassed),
        }
    }

    fn queue(&self, at_most: u32) -> Option<Place<'_>> {
        let one_more = |waiting| (waiting < at_most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Place(self))
    }

    fn slot(self: &Arc<Self>, permit: SemaphorePermit<'_>) -> Slot {
        permit.forget();
        Slot(Arc::clone(self))
    }

    fn leave(&self) {
        if self.surplus.load(Ordering::Relaxed) == 0 || self.take_surplus(1) == 0 {
            self.free.add_permits(1);
        }
    }

    fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    fn held(&self) -> usize {
        let _resizing = self.resizing.lock();
        let slots = self.limit() as usize + self.surplus.load(Ordering::Relaxed);
        slots.saturating_sub(self.free.available_permits())
    }

    /// A higher limit admits waiting calls at once; a lower one takes effect as running calls end.
    fn resize(&self, limit: u32) {
        let _resizing = self.resizing.lock();
        let old = self.limit.swap(limit, Ordering::Relaxed);
        let more = limit.saturating_sub(old) as usize;
        self.free.add_permits(more - self.take_surplus(more));
        self.surplus.fetch_add(old.saturating_sub(limit) as usize, Ordering::Relaxed);
        self.withdraw_surplus();
    }

    /// Removes free slots where there are too many.
    fn withdraw_surplus(&self) {
        let surplus = self.surplus.load(Ordering::Relaxed);
        if surplus > 0 {
            let withdrawn = self.free.forget_permits(surplus);
            self.free.add_permits(withdrawn - self.take_surplus(withdrawn));
        }
    }

    /// Removes up to this many surplus slots, and returns their number.
    fn take_surplus(&self, at_most: usize) -> usize {
        let less = |surplus: usize| Some(surplus.saturating_sub(at_most));
        let before = self.surplus.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.unwrap_or_else(|surplus| surplus).min(at_most)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        // A caller that disconnects just as its turn comes leaves a free slot.
        self.0.withdraw_surplus();
    }
}

/// Seconds after which a refused caller should retry.
const RETRY_AFTER: Duration = Duration::from_secs(1);

fn refusal(slots: u32, whose: &str, why: NoSlot) -> CallError {
    let taken = format!("every slot of {whose} is taken ({slots} in all)");
    match why {
        NoSlot::MayNotWait => {
            overloaded(format!("{taken}, and a call made by a running tool does not wait for a slot"))
        }
        NoSlot::QueueFull => overloaded(format!("{taken}, and the queue is full; call again in 1 s")),
        NoSlot::DeadlinePassed => CallError::new(
            ErrorCode::Timeout,
            format!("{taken}, and none became free before this call's deadline; the tool has not run"),
        ),
    }
}

fn overloaded(message: String) -> CallError {
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}
