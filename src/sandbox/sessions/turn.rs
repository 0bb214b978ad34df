//! A call in a session: it has the session to itself, or keeps it open while it waits.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::session::{Session, Snapshot};
use super::table::{SessionInstance, Sessions};
use crate::core::call::{InterpreterSession, SessionEnd};

/// Keeps a session open for a call.
pub(super) struct SessionUse<'a, I> {
    pub(super) sessions: &'a Sessions<I>,
    pub(super) session: Arc<Session<I>>,
}

/// A call that has a session to itself. Dropped while its program runs, it ends the session.
pub(super) struct Turn<'a, I: SessionInstance> {
    // Released before the use ends.
    pub(super) instance: OwnedMutexGuard<Option<I>>,
    pub(super) used: SessionUse<'a, I>,
    /// Why the session ends with this call.
    pub(super) end: Option<SessionEnd>,
}

impl<I> Drop for SessionUse<'_, I> {
    fn drop(&mut self) {
        let _changing = self.sessions.changing.lock();
        let was_not_begun = {
            let mut state = self.session.state.lock();
            state.users = state.users.saturating_sub(1);
            state.users == 0 && !state.has_begun
        };
        if was_not_begun {
            self.sessions.open.remove_if(&self.session.key, |open| Arc::ptr_eq(open, &self.session));
        }
        self.sessions.count();
    }
}

impl<I: SessionInstance> Turn<'_, I> {
    /// `None`: the session is new.
    pub(super) fn instance(&self) -> Option<&I> {
        self.instance.as_ref()
    }

    pub(super) fn instance_mut(&mut self) -> Option<&mut I> {
        self.instance.as_mut()
    }

    /// Begins a new session with its instance.
    pub(super) fn begin(&mut self, instance: I) {
        *self.instance = Some(instance);
        let mut state = self.used.session.state.lock();
        state.has_begun = true;
        state.began = Instant::now();
        state.began_at = Timestamp::now();
    }

    /// A program is about to run: from here on the session ends if this is dropped.
    pub(super) fn runs(&mut self) {
        self.end = Some(SessionEnd::Cancelled);
    }

    /// Cancelled when the session is ended from elsewhere.
    pub(super) fn over(&self) -> CancellationToken {
        self.used.session.over.clone()
    }

    pub(super) fn count_call(&self) {
        let mut state = self.used.session.state.lock();
        state.calls += 1;
        state.used = Instant::now();
        state.used_at = Timestamp::now();
    }

    /// The instance has returned, and holds these bytes; why the session ends, if it cannot.
    pub(super) fn rests(&mut self, bytes: u64) -> Option<SessionEnd> {
        if self.used.sessions.hold(&self.used.session, bytes) {
            self.end = None;
            return None;
        }
        self.ends(SessionEnd::Evicted)
    }

    /// The instance cannot be entered again; why the session ends.
    pub(super) fn ends(&mut self, end: SessionEnd) -> Option<SessionEnd> {
        self.end = Some(self.used.session.end().unwrap_or(end));
        self.end
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.used.sessions.snapshot(&self.used.session)
    }

    /// For the receipt of the call.
    pub(super) fn report(&self, is_new: bool, end: Option<SessionEnd>) -> InterpreterSession {
        let session = &self.used.session;
        let previous_end = session.previous_end.filter(|_| is_new);
        InterpreterSession {
            name: Arc::clone(&session.key.name),
            generation: session.generation,
            is_new,
            previous_end,
            end,
        }
    }
}

impl<I: SessionInstance> Drop for Turn<'_, I> {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            *self.instance = None;
            self.used.sessions.end(&self.used.session, end);
        }
    }
}
