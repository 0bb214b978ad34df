//! One session: its instance, and its state.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::rights::Rights;
use sekisho_core::call::{NotStored, SessionEnd};
use sekisho_core::caller::Owner;
use sekisho_core::share::Lease;
use sekisho_outbound::blobs::BlobKey;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct SessionKey {
    pub(super) owner: Owner,
    pub(super) name: Arc<str>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) generation: u64,
    pub(super) end: SessionEnd,
    /// Why it could not be stored before.
    pub(super) not_stored: Option<NotStored>,
}

/// The store's record of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredStanding {
    /// With which this process has taken it.
    pub(super) fence: i64,
    /// Whether it is stored after each call.
    pub(super) every_call: bool,
    /// The image that its row names.
    pub(super) object: Option<BlobKey>,
}

/// How a session begins that the store knows: anew, or from its image.
#[derive(Debug, Clone)]
pub(super) struct Beginning {
    pub(super) generation: u64,
    /// Why the one of this name before it ended.
    pub(super) previous_end: Option<SessionEnd>,
    pub(super) is_resumed: bool,
    pub(super) rights: Rights,
    pub(super) age: Duration,
    pub(super) calls: u64,
    pub(super) stored: StoredStanding,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session<I> {
    pub(super) key: SessionKey,
    /// How the one of this name before it ended, as far as this process knows.
    pub(super) before: Option<Ended>,
    /// One call at a time has it. `None` before the first one has begun.
    pub(super) instance: Arc<tokio::sync::Mutex<Option<I>>>,
    /// Cancelled when the session has ended.
    pub(super) over: CancellationToken,
    /// Notified when another call wants it.
    pub(super) wanted: Notify,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// Calls that have it or wait for it.
    pub(super) users: usize,
    pub(super) has_begun: bool,
    /// Whether it is no more in the memory of this process, and can go on.
    pub(super) has_left: bool,
    /// The rights with which it has begun, or is about to begin.
    pub(super) rights: Rights,
    pub(super) generation: u64,
    pub(super) previous_end: Option<SessionEnd>,
    /// Before it came to this process.
    pub(super) age: Duration,
    pub(super) began: Instant,
    pub(super) began_at: Timestamp,
    pub(super) used: Instant,
    pub(super) used_at: Timestamp,
    pub(super) calls: u64,
    pub(super) memory: Option<Lease>,
    pub(super) end: Option<SessionEnd>,
    pub(super) stored: Option<StoredStanding>,
    /// Whether its image was written after its last call.
    pub(super) has_current_image: bool,
    /// Why it could not be stored since its last call, and when that was tried.
    pub(super) not_stored: Option<(NotStored, Instant)>,
}

/// The state of a session.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) name: Arc<str>,
    pub(super) generation: u64,
    pub(super) is_used: bool,
    pub(super) every_call: bool,
    pub(super) not_stored: Option<NotStored>,
    pub(super) calls: u64,
    pub(super) memory_bytes: u64,
    pub(super) began_at: Timestamp,
    pub(super) used_at: Timestamp,
    /// Until it ends without a further call.
    pub(super) left: Duration,
}

impl<I> Session<I> {
    pub(super) fn new(key: SessionKey, before: Option<Ended>) -> Self {
        let (now, now_at) = (Instant::now(), Timestamp::now());
        let state = State {
            users: 0,
            has_begun: false,
            has_left: false,
            rights: Rights::default(),
            generation: before.map_or(0, |ended| ended.generation) + 1,
            previous_end: before.map(|ended| ended.end),
            age: Duration::ZERO,
            began: now,
            began_at: now_at,
            used: now,
            used_at: now_at,
            calls: 0,
            memory: None,
            end: None,
            stored: None,
            has_current_image: false,
            not_stored: None,
        };
        Self {
            key,
            before,
            instance: Arc::new(tokio::sync::Mutex::new(None)),
            over: CancellationToken::new(),
            wanted: Notify::new(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.state.lock().users == 0
    }

    pub(super) fn end(&self) -> Option<SessionEnd> {
        self.state.lock().end
    }

    /// Whether it has begun with other rights than these; `None` stands for any.
    pub(super) fn has_other_rights(&self, rights: Option<Rights>) -> bool {
        let state = self.state.lock();
        state.has_begun && rights.is_some_and(|rights| rights != state.rights)
    }

    /// It begins with these rights, if it has not begun.
    pub(super) fn take_rights(&self, rights: Option<Rights>) {
        let mut state = self.state.lock();
        if let Some(rights) = rights.filter(|_| !state.has_begun) {
            state.rights = rights;
        }
    }

    /// Whether a call that waited for it looks for it again.
    pub(super) fn is_gone(&self) -> bool {
        let state = self.state.lock();
        state.end.is_some() || state.has_left
    }

    /// Whether it can be given to another process, now or later.
    pub(super) fn may_be_released(&self) -> bool {
        self.state.lock().is_storable()
    }

    /// Returns once somebody wants it beside the one who has it.
    pub(super) async fn wanted_by_others(&self) {
        loop {
            let mut wanted = std::pin::pin!(self.wanted.notified());
            wanted.as_mut().enable();
            if self.state.lock().users > 1 {
                return;
            }
            wanted.await;
        }
    }
}

impl State {
    /// Whether it is worth a try to store it now.
    pub(super) fn may_be_stored(&self) -> bool {
        /// The storage may answer again.
        const RETRY: Duration = Duration::from_secs(60);
        self.stored.is_some()
            && match self.not_stored {
                None | Some((NotStored::Stopped, _)) => true,
                Some((NotStored::Unavailable, at)) => at.elapsed() >= RETRY,
                Some((NotStored::TooLarge | NotStored::Unsupported, _)) => false,
            }
    }

    /// Whether it will be possible to store it, now or later.
    pub(super) fn is_storable(&self) -> bool {
        self.stored.is_some() && !matches!(self.not_stored, Some((NotStored::TooLarge | NotStored::Unsupported, _)))
    }
}
