//! Concurrency limits of tools that are counted over all replicas of a database. A call that has its slot in this
//! gateway waits here for a slot of all gateways. Waiting calls and returned slots are gathered, and the store learns
//! of them in the background.
//!
//! Slots are free for whoever asks first. While none is, each replica asks again at growing intervals, at once when a
//! call of its own ends; its own calls wait in the order in which they came. Without an answer of the store no call
//! runs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use sekisho_store::replica::LOST_AFTER;
use sekisho_store::{AskedPermits, PermitStore, StoreError, StoredPermit};

/// The first and the longest pause before slots are asked for again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(300);

/// How long an answer of the store is waited for.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often it is looked for slots in the store that no call has: their answer was lost, or they could not be given back.
const RECONCILIATION: Duration = Duration::from_secs(5);

/// The slots of this replica.
#[derive(Debug)]
pub(super) struct GlobalPermits {
    store: PermitStore,
    state: Mutex<State>,
    /// A call waits, or a slot is to be given back.
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// By the tool's name.
    waiting: HashMap<String, Queue>,
    held: HashSet<StoredPermit>,
    given_back: Vec<StoredPermit>,
}

#[derive(Debug, Default)]
struct Queue {
    limit: u32,
    calls: VecDeque<WaitingCall>,
}

#[derive(Debug)]
struct WaitingCall {
    answer: oneshot::Sender<Result<GlobalPermit, NoPermit>>,
    /// It is refused when no slot is free.
    does_not_wait: bool,
}

/// A slot of a running call, given back on drop.
#[derive(Debug)]
pub(super) struct GlobalPermit {
    stored: StoredPermit,
    of: Arc<GlobalPermits>,
}

/// Why a call has no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPermit {
    NoneFree,
    DeadlinePassed,
    /// The store does not answer.
    Away,
}

impl Drop for GlobalPermit {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        state.held.remove(&self.stored);
        state.given_back.push(self.stored.clone());
        drop(state);
        self.of.wake.notify_one();
    }
}

impl GlobalPermits {
    pub(super) fn new(store: PermitStore) -> Self {
        Self { store, state: Mutex::default(), wake: Notify::new() }
    }

    /// Takes a slot of a tool that has `limit`. `until`: how long to wait for one; `None`: not at all.
    pub(super) async fn take(&self, tool: &str, limit: u32, until: Option<Instant>) -> Result<GlobalPermit, NoPermit> {
        let (answer, answered) = oneshot::channel();
        self.add_waiting(tool, limit, WaitingCall { answer, does_not_wait: until.is_none() });
        let answered = match until {
            Some(until) => timeout_at(until, answered).await.map_err(|_| NoPermit::DeadlinePassed)?,
            // As long as an answer of the store takes, at most.
            None => answered.await,
        };
        // Nobody answers when the gateway stops.
        answered.unwrap_or(Err(NoPermit::Away))
    }

    /// Takes and gives back slots for a replica, until `shutdown` is cancelled.
    pub(super) async fn run(self: &Arc<Self>, replica: &str, shutdown: CancellationToken) {
        let mut reconciliations = interval(RECONCILIATION);
        reconciliations.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut pause, mut next) = (FIRST_PAUSE, Instant::now());
        loop {
            let waits = !self.state.lock().waiting.is_empty();
            tokio::select! {
                () = self.wake.notified() => {}
                () = sleep_until(next), if waits => {}
                _ = reconciliations.tick() => self.reconcile(replica).await,
                () = shutdown.cancelled() => break,
            }
            // A slot of its own that is free again is asked for at once.
            if !self.give_back().await && Instant::now() < next {
                continue;
            }
            pause = match self.take_for_waiting(replica).await {
                true => FIRST_PAUSE,
                false => (pause * 2).min(MAX_PAUSE),
            };
            next = Instant::now() + pause.mul_f64(rand::random_range(0.5..=1.0));
            if self.state.lock().waiting.is_empty() {
                (pause, next) = (FIRST_PAUSE, Instant::now());
            }
        }
        self.give_back().await;
        self.state.lock().waiting.clear();
    }

    /// Removes slots of lost replicas from the store.
    pub(super) async fn forget_lost(&self, replica: &str) -> Result<(), StoreError> {
        self.store.forget_lost(replica, LOST_AFTER).await
    }

    fn add_waiting(&self, tool: &str, limit: u32, call: WaitingCall) {
        let mut state = self.state.lock();
        let queue = state.waiting.entry(tool.to_owned()).or_default();
        queue.limit = limit;
        queue.calls.push_back(call);
        drop(state);
        self.wake.notify_one();
    }

    /// Gives back slots that calls no longer need; whether there was one. `reconcile` finds a slot again whose return
    /// fails.
    async fn give_back(&self) -> bool {
        let given_back = std::mem::take(&mut self.state.lock().given_back);
        if given_back.is_empty() {
            return false;
        }
        let answered = timeout(EXCHANGE_TIMEOUT, self.store.give_back(&given_back)).await;
        if !matches!(answered, Ok(Ok(()))) {
            tracing::warn!(slots = given_back.len(), "slots of tools could not be given back; it is tried again");
        }
        true
    }

    /// Whether any call got a slot.
    async fn take_for_waiting(self: &Arc<Self>, replica: &str) -> bool {
        let mut has_taken = false;
        for (tool, limit, wanted) in self.wanted() {
            let holder = Uuid::new_v4().to_string();
            let asked = AskedPermits { tool: &tool, limit, wanted, replica, holder: &holder };
            let taken = match timeout(EXCHANGE_TIMEOUT, self.store.take(asked, LOST_AFTER)).await {
                Ok(Ok(taken)) => taken,
                failed => {
                    let error = failed.ok().and_then(Result::err).map(|error| error.to_string());
                    tracing::warn!(tool, ?error, "calls are refused: slots of all replicas cannot be counted");
                    self.refuse(&tool, NoPermit::Away, |_| true);
                    continue;
                }
            };
            has_taken |= !taken.is_empty();
            self.hand_out(&tool, taken);
            self.refuse(&tool, NoPermit::NoneFree, |call| call.does_not_wait);
        }
        has_taken
    }

    /// How many slots calls wait for, by tool. Calls that left are forgotten.
    fn wanted(&self) -> Vec<(String, u32, usize)> {
        let mut state = self.state.lock();
        state.waiting.retain(|_, queue| {
            queue.calls.retain(|call| !call.answer.is_closed());
            !queue.calls.is_empty()
        });
        state.waiting.iter().map(|(tool, queue)| (tool.clone(), queue.limit, queue.calls.len())).collect()
    }

    fn hand_out(self: &Arc<Self>, tool: &str, taken: Vec<StoredPermit>) {
        for stored in taken {
            self.state.lock().held.insert(stored.clone());
            let mut answer = Ok(GlobalPermit { stored, of: Arc::clone(self) });
            // A slot that no call takes is dropped here, and given back.
            while let Some(call) = self.next_waiting(tool) {
                match call.answer.send(answer) {
                    Ok(()) => break,
                    Err(not_sent) => answer = not_sent,
                }
            }
        }
    }

    fn next_waiting(&self, tool: &str) -> Option<WaitingCall> {
        self.state.lock().waiting.get_mut(tool)?.calls.pop_front()
    }

    fn refuse(&self, tool: &str, why: NoPermit, whom: impl Fn(&WaitingCall) -> bool) {
        let mut state = self.state.lock();
        let Some(queue) = state.waiting.get_mut(tool) else { return };
        let (refused, kept): (VecDeque<_>, _) =
            std::mem::take(&mut queue.calls).into_iter().partition(|call| whom(call));
        queue.calls = kept;
        if queue.calls.is_empty() {
            state.waiting.remove(tool);
        }
        drop(state);
        // A call that left needs no answer.
        refused.into_iter().for_each(|call| drop(call.answer.send(Err(why))));
    }

    /// Gives back slots of this replica that none of its calls has.
    async fn reconcile(&self, replica: &str) {
        let found = timeout(EXCHANGE_TIMEOUT, self.store.of_replica(replica, RECONCILIATION)).await;
        // It is looked again soon.
        let Ok(Ok(stored)) = found else { return };
        let mut state = self.state.lock();
        let lost = stored.into_iter().filter(|permit| !state.held.contains(permit));
        let lost: Vec<_> = lost.collect();
        state.given_back.extend(lost);
    }
}

#[cfg(test)]
mod tests;
