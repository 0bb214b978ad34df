//! How far a call has been sent towards the executor of its work: its price depends on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::time::Instant;

use super::{Deadline, QueueTime};
use crate::caller::Owner;

/// Part of each [`CallContext`](super::CallContext). It only moves forward: a further attempt does not reset it.
#[derive(Debug, Default)]
pub struct Sending {
    begun: AtomicBool,
    /// Created when it is needed, so that a call of a local tool allocates nothing.
    sent: OnceLock<SentFlag>,
}

/// How far that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SendingState {
    /// Nothing was sent, and no work of our own was done.
    Pending,
    /// A local tool runs, or a request is queued and cannot be withdrawn.
    Begun,
    /// The first byte was handed to the upstream, the MCP server or the sandbox worker.
    Sent,
}

/// Set by the transport that sends the first byte of a request. Clones belong to one call.
#[derive(Debug, Clone, Default)]
pub struct SentFlag(Arc<AtomicBool>);

/// The call that a request is sent for.
#[derive(Debug, Clone)]
pub struct OnBehalf {
    pub owner: Owner,
    pub sent: SentFlag,
    /// Its waits for slots and look-ups.
    pub queueing: Arc<QueueTime>,
}

impl OnBehalf {
    /// The owner of the resources that the request uses; without a call, the gateway.
    pub fn owner_of(call: Option<&Self>) -> &Owner {
        match call {
            Some(call) => &call.owner,
            None => Owner::gateway(),
        }
    }

    /// Waits for a resource of the gateway itself, until the time that `wait` is given. For a call, the deadline is
    /// later then by the waited time, unless a part of the call was sent before: then the time of its tool has begun.
    pub async fn queued<T, F: Future<Output = T>>(
        call: Option<&Self>,
        deadline: &mut Deadline,
        wait: impl FnOnce(Deadline) -> F,
    ) -> T {
        let waiting_call = call.filter(|call| !call.sent.is_set());
        let Some(queueing) = waiting_call.map(|call| &call.queueing) else { return wait(*deadline).await };
        let (began, waiting) = (Instant::now(), queueing.begin());
        let got = wait(queueing.until(*deadline)).await;
        drop(waiting);
        *deadline = queueing.later(*deadline, began.elapsed());
        got
    }
}

impl Sending {
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// For the transport of the request.
    pub fn flag(&self) -> SentFlag {
        self.sent.get_or_init(SentFlag::default).clone()
    }

    pub fn state(&self) -> SendingState {
        if self.sent.get().is_some_and(SentFlag::is_set) {
            SendingState::Sent
        } else if self.begun.load(Ordering::Relaxed) {
            SendingState::Begun
        } else {
            SendingState::Pending
        }
    }
}

impl SentFlag {
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_is_waited_before_the_first_byte_moves_the_deadline() {
        let second = Duration::from_secs(1);
        let (began, owner) = (Instant::now(), Owner::gateway().clone());
        let call = OnBehalf { owner, sent: SentFlag::default(), queueing: Arc::default() };
        call.queueing.set_ends(began + second * 5, None);
        let mut deadline = Deadline(began + second * 9);
        let wait = |until: Deadline| async move {
            tokio::time::sleep(second * 2).await;
            until
        };
        assert_eq!(OnBehalf::queued(Some(&call), &mut deadline, wait).await, Deadline(began + second * 5));
        assert_eq!((deadline, call.queueing.total()), (Deadline(began + second * 11), second * 2));
        call.sent.set();
        assert_eq!(OnBehalf::queued(Some(&call), &mut deadline, wait).await, Deadline(began + second * 11));
        assert_eq!((deadline, call.queueing.total()), (Deadline(began + second * 11), second * 2));
        assert_eq!(OnBehalf::queued(None, &mut deadline, wait).await, Deadline(began + second * 11));
    }

    #[test]
    fn it_only_moves_forward_and_clones_of_the_flag_are_one() {
        let sending = Sending::default();
        assert_eq!(sending.state(), SendingState::Pending);
        let flag = sending.flag();
        assert_eq!(sending.state(), SendingState::Pending, "an unset flag changes nothing");
        sending.begin();
        assert_eq!(sending.state(), SendingState::Begun);
        flag.set();
        sending.begin();
        assert_eq!(sending.state(), SendingState::Sent);
        assert!(sending.flag().is_set());
    }
}
