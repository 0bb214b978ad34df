//! Decides which run starts: as many instances and as much memory as are free, with a queue before them that is fair
//! between callers.
//!
//! A run reserves the memory it *may* use, not what it uses, so that no admitted run has to be killed when memory
//! runs out. Waiting callers take turns, regardless of how many runs each has sent. When the queue is full, a run of
//! a caller with fewer waiting displaces the newest run of the caller with the most waiting.

use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::capacity::Capacity;
use crate::core::call::Deadline;
use crate::core::error::{CallError, ErrorCode};
use crate::infra::metrics::SandboxMetrics;

/// Admission control in front of the workers. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    capacity: Capacity,
    state: Mutex<State>,
    metrics: SandboxMetrics,
}

/// The locked state; when the lock is released, its numbers are written to the gauges.
struct Locked<'a> {
    state: MutexGuard<'a, State>,
    metrics: &'a SandboxMetrics,
}

/// Proof of admission; frees the capacity on drop.
#[derive(Debug)]
#[must_use]
pub(super) struct Ticket {
    shared: Arc<Shared>,
    memory_bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    live: usize,
    memory_bytes: u64,
    queued: usize,
    next_id: u64,
    queues: HashMap<Arc<str>, VecDeque<Waiting>>,
    /// Callers with a queue, in the order of their turns.
    turns: VecDeque<Arc<str>>,
}

#[derive(Debug)]
struct Waiting {
    id: u64,
    memory_bytes: u64,
    admit: oneshot::Sender<Ticket>,
}

/// A position in the queue, given up on drop.
struct Place<'a> {
    shared: &'a Arc<Shared>,
    caller: Arc<str>,
    id: u64,
}

impl Admission {
    pub(super) fn new(capacity: Capacity, metrics: SandboxMetrics) -> Self {
        Self { shared: Arc::new(Shared { capacity, state: Mutex::default(), metrics }) }
    }

    /// Admits one run, after waiting in the queue if necessary.
    ///
    /// # Errors
    /// `overloaded` when the run can never fit, when the queue is full, or when no capacity came free in time.
    pub(super) async fn enter(
        &self,
        caller: &Arc<str>,
        memory_bytes: u64,
        deadline: Deadline,
    ) -> Result<Ticket, CallError> {
        if memory_bytes > self.shared.capacity.memory_bytes {
            let most = self.shared.capacity.memory_bytes >> 20;
            return Err(CallError::new(
                ErrorCode::Overloaded,
                format!(
                    "a run may use {} MiB, and all runs together have {most} MiB; lower the memory limit",
                    memory_bytes >> 20
                ),
            ));
        }
        let (place, admitted) = {
            let mut state = self.shared.lock();
            if state.queued == 0 && state.fits(&self.shared.capacity, memory_bytes) {
                return Ok(self.shared.ticket(&mut state, memory_bytes));
            }
            if state.queued >= self.shared.capacity.max_queued && !state.free_capacity_for(caller) {
                return Err(overloaded("the queue for the sandbox is full"));
            }
            let (admit, admitted) = oneshot::channel();
            let id = state.enqueue(caller, memory_bytes, admit);
            (Place { shared: &self.shared, caller: Arc::clone(caller), id }, admitted)
        };
        let outcome = timeout_at(deadline.0, admitted).await;
        drop(place);
        match outcome {
            Ok(Ok(ticket)) => Ok(ticket),
            Ok(Err(_)) => {
                Err(overloaded("the run was removed from the full queue in favour of a caller with fewer runs waiting"))
            }
            Err(_) => {
                Err(overloaded("no sandbox capacity came free before this call's deadline; the code has not run"))
            }
        }
    }

    /// Runs admitted, and runs waiting.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.live, state.queued)
    }
}

impl Shared {
    fn lock(&self) -> Locked<'_> {
        Locked { state: self.state.lock(), metrics: &self.metrics }
    }

    fn ticket(self: &Arc<Self>, state: &mut State, memory_bytes: u64) -> Ticket {
        state.live += 1;
        state.memory_bytes += memory_bytes;
        Ticket { shared: Arc::clone(self), memory_bytes }
    }

    /// Admits all waiting runs that fit now. Tickets are sent without the lock: a ticket without a receiver is
    /// returned here.
    fn admit_waiting(self: &Arc<Self>) {
        let mut admitted = Vec::new();
        {
            let mut state = self.lock();
            while let Some(next) = state.next_that_fits(&self.capacity) {
                let ticket = self.ticket(&mut state, next.memory_bytes);
                admitted.push((next.admit, ticket));
            }
        }
        for (admit, ticket) in admitted {
            drop(admit.send(ticket));
        }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.metrics.occupied(self.state.live, self.state.queued);
    }
}

impl State {
    fn fits(&self, capacity: &Capacity, memory_bytes: u64) -> bool {
        self.live < capacity.instances && memory_bytes <= capacity.memory_bytes.saturating_sub(self.memory_bytes)
    }

    fn enqueue(&mut self, caller: &Arc<str>, memory_bytes: u64, admit: oneshot::Sender<Ticket>) -> u64 {
        self.next_id += 1;
        self.queued += 1;
        let queue = self.queues.entry(Arc::clone(caller)).or_insert_with(|| {
            self.turns.push_back(Arc::clone(caller));
            VecDeque::new()
        });
        queue.push_back(Waiting { id: self.next_id, memory_bytes, admit });
        self.next_id
    }

    /// The oldest run of the caller whose turn it is, if it fits: smaller runs do not overtake a large one
    /// indefinitely.
    fn next_that_fits(&mut self, capacity: &Capacity) -> Option<Waiting> {
        let caller = Arc::clone(self.turns.front()?);
        let memory_bytes = self.queues.get(&caller)?.front()?.memory_bytes;
        if !self.fits(capacity, memory_bytes) {
            return None;
        }
        self.turns.pop_front();
        let queue = self.queues.get_mut(&caller)?;
        let next = queue.pop_front();
        self.queued -= usize::from(next.is_some());
        if queue.is_empty() {
            self.queues.remove(&caller);
        } else {
            self.turns.push_back(caller);
        }
        next
    }

    /// Removes the newest run of the caller with the most waiting, if that is more than `caller` would have.
    fn free_capacity_for(&mut self, caller: &Arc<str>) -> bool {
        let own = self.queues.get(caller).map_or(0, VecDeque::len);
        let longest = self.queues.values_mut().max_by_key(|queue| queue.len());
        match longest {
            Some(queue) if queue.len() > own + 1 => {
                queue.pop_back();
                self.queued -= 1;
                true
            }
            _ => false,
        }
    }

    fn leave(&mut self, caller: &Arc<str>, id: u64) {
        let Some(queue) = self.queues.get_mut(caller) else { return };
        let before = queue.len();
        queue.retain(|waiting| waiting.id != id);
        self.queued -= before - queue.len();
        if queue.is_empty() {
            self.queues.remove(caller);
            self.turns.retain(|other| other != caller);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.live -= 1;
            state.memory_bytes -= self.memory_bytes;
        }
        self.shared.admit_waiting();
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.lock().leave(&self.caller, self.id);
        // A large run at the front of the queue may have blocked smaller ones.
        self.shared.admit_waiting();
    }
}

fn overloaded(message: &str) -> CallError {
    /// Seconds after which a refused caller should retry.
    const RETRY_AFTER: Duration = Duration::from_secs(1);
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn admission(instances: usize, mib: u64, max_queued: usize) -> Admission {
        Admission::new(Capacity { instances, memory_bytes: mib * MIB, max_queued }, SandboxMetrics::for_tests())
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(5))
    }

    fn enter(admission: &Admission, caller: &str) -> impl Future<Output = Result<Ticket, CallError>> {
        let (admission, caller) = (admission.clone(), Arc::from(caller));
        async move { admission.enter(&caller, MIB, soon()).await }
    }

    #[tokio::test(start_paused = true)]
    async fn two_hundred_large_runs_are_refused_and_not_admitted() {
        let admission = admission(1_000, 1_000, 50);
        let caller: Arc<str> = "eve".into();
        let runs = (0..200).map(|_| admission.enter(&caller, 250 * MIB, soon()));
        let mut ended = futures_util::future::join_all(runs).await;
        let admitted = ended.extract_if(.., |end| end.is_ok()).collect::<Vec<_>>();
        assert_eq!(admitted.len(), 4, "all the memory holds");
        assert!(ended.iter().all(|end| end.as_ref().unwrap_err().code() == ErrorCode::Overloaded));
        drop(admitted);
        assert_eq!(admission.in_use(), (0, 0));
    }

    #[tokio::test]
    async fn what_can_never_fit_does_not_wait() {
        let refused = admission(1, 100, 10).enter(&"a".into(), 101 * MIB, soon()).now_or_never();
        assert_eq!(refused.unwrap().unwrap_err().code(), ErrorCode::Overloaded);
    }

    #[tokio::test]
    async fn callers_take_turns_however_many_runs_each_has_sent() {
        let admission = admission(1, 100, 100);
        let running = enter(&admission, "flood").await.unwrap();
        let mut first = pin!(enter(&admission, "flood"));
        let mut second = pin!(enter(&admission, "flood"));
        let mut modest = pin!(enter(&admission, "modest"));
        for waiting in [&mut first, &mut second] {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        assert!(modest.as_mut().now_or_never().is_none());
        drop(running);
        drop(first.await.unwrap());
        let _modest = modest.await.expect("it is the other caller's turn");
        assert!(second.now_or_never().is_none(), "the flood waits for its next turn");
    }

    #[tokio::test]
    async fn a_full_queue_accepts_a_caller_with_fewer_waiting() {
        let admission = admission(1, 100, 2);
        let _running = enter(&admission, "flood").await.unwrap();
        let mut first = pin!(enter(&admission, "flood"));
        let mut second = pin!(enter(&admission, "flood"));
        let mut modest = pin!(enter(&admission, "modest"));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        assert!(enter(&admission, "flood").now_or_never().unwrap().is_err(), "its own queue is full");
        assert!(modest.as_mut().now_or_never().is_none(), "it waits");
        assert!(second.await.is_err(), "the newest run of the flood was removed");
        assert_eq!(admission.in_use(), (1, 2));
    }

    #[tokio::test]
    async fn a_client_that_disconnects_while_waiting_frees_its_position() {
        let admission = admission(1, 100, 10);
        let running = enter(&admission, "a").await.unwrap();
        {
            let mut waiting = pin!(enter(&admission, "b"));
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        assert_eq!(admission.in_use(), (1, 0));
        drop(running);
        assert_eq!(admission.in_use(), (0, 0));
    }
}
