//! How far a call has been sent towards the executor of its work: its price depends on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::core::caller::Owner;

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
}

impl OnBehalf {
    /// The owner of what the request uses; without a call, the gateway.
    pub fn owner_of(call: Option<&Self>) -> &Owner {
        match call {
            Some(call) => &call.owner,
            None => Owner::gateway(),
        }
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
    use super::*;

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
