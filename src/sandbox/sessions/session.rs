//! One session: its instance, and what is known of it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::rights::Rights;
use crate::core::call::SessionEnd;
use crate::core::caller::Owner;
use crate::core::share::Lease;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SessionKey {
    pub(super) owner: Owner,
    pub(super) name: Arc<str>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) generation: u64,
    pub(super) end: SessionEnd,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session<I> {
    pub(super) key: SessionKey,
    pub(super) rights: Rights,
    pub(super) generation: u64,
    /// Why the one of this name before it ended.
    pub(super) previous_end: Option<SessionEnd>,
    /// One call at a time has it. `None` before the first one has begun.
    pub(super) instance: Arc<tokio::sync::Mutex<Option<I>>>,
    /// Cancelled when the session has ended.
    pub(super) over: CancellationToken,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// Calls that have it or wait for it.
    pub(super) users: usize,
    pub(super) has_begun: bool,
    pub(super) began: Instant,
    pub(super) began_at: Timestamp,
    pub(super) used: Instant,
    pub(super) used_at: Timestamp,
    pub(super) calls: u64,
    pub(super) memory: Option<Lease>,
    pub(super) end: Option<SessionEnd>,
}

/// What a session is and holds.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) name: Arc<str>,
    pub(super) generation: u64,
    pub(super) is_used: bool,
    pub(super) calls: u64,
    pub(super) memory_bytes: u64,
    pub(super) began_at: Timestamp,
    pub(super) used_at: Timestamp,
    /// Until it ends without a further call.
    pub(super) left: Duration,
}

impl<I> Session<I> {
    pub(super) fn new(key: SessionKey, rights: Rights, before: Option<Ended>) -> Self {
        let (now, now_at) = (Instant::now(), Timestamp::now());
        let state = State {
            users: 0,
            has_begun: false,
            began: now,
            began_at: now_at,
            used: now,
            used_at: now_at,
            calls: 0,
            memory: None,
            end: None,
        };
        Self {
            key,
            rights,
            generation: before.map_or(0, |ended| ended.generation) + 1,
            previous_end: before.map(|ended| ended.end),
            instance: Arc::new(tokio::sync::Mutex::new(None)),
            over: CancellationToken::new(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.state.lock().users == 0
    }

    pub(super) fn end(&self) -> Option<SessionEnd> {
        self.state.lock().end
    }
}
