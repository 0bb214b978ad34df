//! Decides which run starts: as many instances and as much memory as are free, shared fairly between callers.
//!
//! A run reserves the memory it *may* use, not what it uses, so that no admitted run has to be killed when memory
//! runs out. It takes an instance first and memory second, so that runs with little memory pass a large one that waits.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use super::capacity::Capacity;
use crate::core::call::Deadline;
use crate::core::caller::Owner;
use crate::core::error::{CallError, ErrorCode};
use crate::core::share::{Lease, NoLease, Share};
use crate::infra::metrics::{InFlight, SandboxMetrics};

/// Admission control in front of the workers. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Admission {
    instances: Arc<Share>,
    memory_bytes: Arc<Share>,
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
pub(super) struct Ticket {
    _instance: Lease,
    _memory: Lease,
    _running: InFlight,
}

impl Admission {
    pub(super) fn new(capacity: Capacity, metrics: SandboxMetrics) -> Self {
        Self {
            instances: Share::new(capacity.instances as u64),
            memory_bytes: Share::new(capacity.memory_bytes),
            max_queued: capacity.max_queued,
            metrics,
        }
    }

    /// Admits one run, after waiting in the queue if necessary.
    ///
    /// # Errors
    /// `overloaded` when the run can never fit, when the queue is full, or when no capacity came free in time.
    pub(super) async fn enter(
        &self,
        owner: &Owner,
        memory_bytes: u64,
        deadline: Deadline,
    ) -> Result<Ticket, CallError> {
        let most = self.memory_bytes.capacity();
        if memory_bytes > most {
            return Err(too_large(memory_bytes, most));
        }
        let instance = self.acquire(&self.instances, owner, 1, deadline).await?;
        let memory = self.acquire(&self.memory_bytes, owner, memory_bytes, deadline).await?;
        Ok(Ticket { _instance: instance, _memory: memory, _running: self.metrics.running() })
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

    /// What is used of the capacity now.
    pub(super) fn load(&self) -> SandboxLoad {
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
    pub(super) fn in_use(&self) -> (u64, usize) {
        let load = self.load();
        (load.runs, load.queued)
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
        Admission::new(Capacity { instances, memory_bytes: mib * MIB, max_queued }, SandboxMetrics::for_tests())
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
}
