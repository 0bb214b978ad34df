//! Decides which run starts: as many instances and as much memory as are free, shared fairly between callers.
//!
//! A run reserves the memory it *may* use, not the memory it uses, so that no admitted run has to be killed when memory
//! runs out. It takes an instance first and memory second, so that runs with little memory pass a large one that waits.
//! While it sleeps, it uses no more than it has: the rest is free for others, and is reserved again before it goes on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::capacity::Capacity;
use sekisho_core::call::Deadline;
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::share::{Lease, NoLease, Share};
use sekisho_observe::metrics::{InFlight, SandboxMetrics};

/// Admission control in front of the workers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    instances: Arc<Share>,
    memory_bytes: Arc<Share>,
    /// The memory that sleeping runs hold.
    sleeping_bytes: Arc<Share>,
    max_queued: usize,
    metrics: SandboxMetrics,
}

/// What is used of the sandbox's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub struct SandboxLoad {
    pub runs: u64,
    pub max_runs: u64,
    /// Runs that wait.
    pub queued: usize,
    /// Reserved by all runs.
    pub memory_bytes: u64,
    pub max_memory_bytes: u64,
}

/// Proof of admission; frees the capacity on drop.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ticket {
    _instance: Lease,
    memory: Lease,
    /// Its part of the sleeping runs' memory, while it sleeps with less than its maximum.
    sleeping: Option<Sleeping>,
    admission: Admission,
    owner: Owner,
    deadline: Deadline,
    _running: InFlight,
}

#[derive(Debug)]
struct Sleeping {
    _lease: Lease,
    /// The memory that it gave back, and needs before it goes on.
    missing_bytes: u64,
}

impl Admission {
    pub(crate) fn new(capacity: Capacity, metrics: SandboxMetrics) -> Self {
        Self {
            instances: Share::new(capacity.instances as u64),
            memory_bytes: Share::new(capacity.memory_bytes),
            sleeping_bytes: Share::new(capacity.sleeping_bytes),
            max_queued: capacity.max_queued,
            metrics,
        }
    }

    /// Admits one run, after waiting in the queue if necessary.
    /// Errors: `overloaded` when the run can never fit, when the queue is full, or when no capacity came free in time.
    pub async fn enter(&self, owner: &Owner, memory_bytes: u64, deadline: Deadline) -> Result<Ticket, CallError> {
        let most = self.memory_bytes.capacity();
        if memory_bytes > most {
            return Err(too_large(memory_bytes, most));
        }
        let instance = self.acquire(&self.instances, owner, 1, deadline).await?;
        let memory = self.acquire(&self.memory_bytes, owner, memory_bytes, deadline).await?;
        Ok(Ticket {
            _instance: instance,
            memory,
            sleeping: None,
            admission: self.clone(),
            owner: owner.clone(),
            deadline,
            _running: self.metrics.running(),
        })
    }

    async fn acquire(
        &self,
        share: &Arc<Share>,
        owner: &Owner,
        amount: u64,
        deadline: Deadline,
    ) -> Result<Lease, CallError> {
        if let Some(lease) = share.try_acquire(owner, amount) {
            return Ok(lease);
        }
        let _queued = self.metrics.queued();
        let lease = share.acquire(owner, amount, self.max_queued, deadline.0).await;
        lease.map_err(|why| match why {
            NoLease::QueueFull | NoLease::TooLarge => overloaded("the queue for the sandbox is full"),
            NoLease::DeadlinePassed => {
                overloaded("no sandbox capacity came free before this call's deadline; the code has not run")
            }
        })
    }

    /// The used part of the capacity now.
    pub(crate) fn load(&self) -> SandboxLoad {
        SandboxLoad {
            runs: self.instances.used(),
            max_runs: self.instances.capacity(),
            queued: self.instances.waiting() + self.memory_bytes.waiting(),
            memory_bytes: self.memory_bytes.used(),
            max_memory_bytes: self.memory_bytes.capacity(),
        }
    }

    /// Runs admitted, and runs waiting.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> (u64, usize) {
        let load = self.load();
        (load.runs, load.queued)
    }
}

impl Ticket {
    /// Gives back the memory that a sleeping run does not use, if there is space among the runs that sleep.
    pub(crate) fn sleep(&mut self, unused_bytes: u64) {
        let held = self.memory.amount();
        let left = held.saturating_sub(unused_bytes);
        if self.sleeping.is_some() || left == held {
            return;
        }
        if let Some(lease) = self.admission.sleeping_bytes.try_acquire(&self.owner, left) {
            self.sleeping = Some(Sleeping { _lease: lease, missing_bytes: held - left });
            self.memory.shrink_to(left);
        }
    }

    /// Reserves again the memory that a run gave back while it slept, in its turn and by its deadline. A run that gave
    /// nothing back goes on at once: others that wait for memory may wait for its end.
    pub(crate) fn missing_memory(&self) -> Option<impl Future<Output = Option<Lease>> + use<>> {
        let missing = self.sleeping.as_ref()?.missing_bytes;
        let (admission, owner, deadline) = (self.admission.clone(), self.owner.clone(), self.deadline);
        Some(async move {
            loop {
                // However many wait: it has been admitted.
                match admission.memory_bytes.acquire(&owner, missing, usize::MAX, deadline.0).await {
                    Ok(lease) => return Some(lease),
                    Err(NoLease::QueueFull) => {}
                    Err(NoLease::DeadlinePassed | NoLease::TooLarge) => return None,
                }
            }
        })
    }

    /// The run goes on with its whole memory.
    pub(crate) fn wake(&mut self, missing: Lease) {
        self.memory.extend(missing);
        self.sleeping = None;
    }
}

fn too_large(memory_bytes: u64, most: u64) -> CallError {
    let (memory, most) = (memory_bytes >> 20, most >> 20);
    let message = format!("a run may use {memory} MiB, and all runs together have {most} MiB; lower the memory limit");
    CallError::new(ErrorCode::Overloaded, message)
}

fn overloaded(message: &str) -> CallError {
    /// Seconds after which a refused caller should retry.
    const RETRY_AFTER: Duration = Duration::from_secs(1);
    CallError::new(ErrorCode::Overloaded, format!("{message}; call again in 1 s")).retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn admission(instances: usize, mib: u64, max_queued: usize) -> Admission {
        let memory_bytes = mib * MIB;
        let (sleeping_bytes, session_bytes) = (memory_bytes / 2, 0);
        let capacity = Capacity { instances, memory_bytes, sleeping_bytes, session_bytes, max_queued };
        Admission::new(capacity, SandboxMetrics::for_tests())
    }

    fn owner(caller: &str) -> Owner {
        Owner { tenant: "tenant".into(), caller: caller.into() }
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(5))
    }

    fn enter(admission: &Admission, caller: &str) -> impl Future<Output = Result<Ticket, CallError>> {
        let (admission, owner) = (admission.clone(), owner(caller));
        async move { admission.enter(&owner, MIB, soon()).await }
    }

    #[tokio::test(start_paused = true)]
    async fn two_hundred_large_runs_are_refused_and_not_admitted() {
        let admission = admission(1_000, 1_000, 50);
        let eve = owner("eve");
        let runs = (0..200).map(|_| admission.enter(&eve, 250 * MIB, soon()));
        let mut ended = futures_util::future::join_all(runs).await;
        let admitted = ended.extract_if(.., |end| end.is_ok()).collect::<Vec<_>>();
        assert_eq!(admitted.len(), 4, "all the memory holds");
        assert!(ended.iter().all(|end| end.as_ref().unwrap_err().code() == ErrorCode::Overloaded));
        drop(admitted);
        assert_eq!(admission.in_use(), (0, 0));
    }

    #[tokio::test]
    async fn what_can_never_fit_does_not_wait() {
        let refused = admission(1, 100, 10).enter(&owner("a"), 101 * MIB, soon()).now_or_never();
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

    /// A run that reserves 250 MiB of 1 000 MiB, and uses 50 MiB.
    async fn asleep(admission: &Admission, caller: &str) -> Ticket {
        let mut ticket = admission.enter(&owner(caller), 250 * MIB, soon()).await.unwrap();
        ticket.sleep(200 * MIB);
        ticket
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeping_run_holds_what_it_uses_and_waits_for_the_rest_before_it_goes_on() {
        let admission = admission(100, 1_000, 10);
        let mut sleeping = asleep(&admission, "ann").await;
        assert_eq!(admission.load().memory_bytes, 50 * MIB);
        let running = admission.enter(&owner("ann"), 900 * MIB, soon()).await.unwrap();
        let mut missing = pin!(sleeping.missing_memory().unwrap());
        assert!(missing.as_mut().now_or_never().is_none(), "another run has it");
        drop(running);
        sleeping.wake(missing.await.expect("memory"));
        assert_eq!(admission.load().memory_bytes, 250 * MIB);
        sleeping.sleep(200 * MIB);
        assert_eq!(admission.load().memory_bytes, 50 * MIB, "and again");
        drop(sleeping);
        assert_eq!((admission.load().memory_bytes, admission.sleeping_bytes.used()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_sleep_each_goes_on_in_its_turn() {
        let admission = admission(100, 1_000, 0);
        let mut sleeping = Vec::new();
        // Ten of 50 MiB are all that may sleep; the next ones hold their whole memory.
        for caller in (0..12).map(|n| ["ann", "bob"][n % 2]) {
            sleeping.push(asleep(&admission, caller).await);
        }
        assert_eq!((admission.sleeping_bytes.used(), admission.load().memory_bytes), (500 * MIB, 1_000 * MIB));
        let mut waking: Vec<_> = sleeping.iter().filter_map(Ticket::missing_memory).map(Box::pin).collect();
        assert!(waking.len() == 10 && waking.iter_mut().all(|missing| missing.now_or_never().is_none()));
        drop(waking);
        // The two that did not give memory back need none to go on, and end.
        drop(sleeping.split_off(10));
        let awake = sleeping.into_iter().map(async |mut ticket: Ticket| {
            let missing = ticket.missing_memory().unwrap().await.expect("its turn comes");
            ticket.wake(missing);
            tokio::time::sleep(Duration::from_millis(100)).await;
        });
        futures_util::future::join_all(awake).await;
        assert_eq!((admission.load().memory_bytes, admission.sleeping_bytes.used()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_finds_no_memory_by_its_deadline_does_not_go_on() {
        let admission = admission(100, 1_000, 10);
        let sleeping = asleep(&admission, "ann").await;
        let _running = admission.enter(&owner("ann"), 900 * MIB, soon()).await.unwrap();
        assert!(sleeping.missing_memory().unwrap().await.is_none());
    }
}
