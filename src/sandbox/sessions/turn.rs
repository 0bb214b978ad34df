//! A call in a session: it has the session to itself, or keeps it open while it waits.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::rights::Rights;
use super::session::{Beginning, Session, SessionKey, Snapshot, StoredStanding};
use super::table::{SessionInstance, Sessions};
use sekisho_core::call::{InterpreterSession, NotStored, SessionEnd};
use sekisho_outbound::blobs::BlobKey;

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
    /// Whether the session leaves the memory of this process with it, and can go on.
    leaves: bool,
    /// Whether the call goes on from a stored state.
    is_resumed: bool,
    /// With which fence the store has given the session to this process, where it has not begun yet.
    taken: Option<i64>,
}

impl<I> Drop for SessionUse<'_, I> {
    fn drop(&mut self) {
        let _changing = self.sessions.changing.lock();
        let was_not_begun = {
            let mut state = self.session.state.lock();
            state.users = state.users.saturating_sub(1);
            let was_not_begun = state.users == 0 && !state.has_begun;
            if was_not_begun {
                state.memory = None;
            }
            was_not_begun
        };
        if was_not_begun {
            self.sessions.open.remove_if(&self.session.key, |open| Arc::ptr_eq(open, &self.session));
        }
        self.sessions.count();
    }
}

impl<'a, I: SessionInstance> Turn<'a, I> {
    pub(super) fn new(instance: OwnedMutexGuard<Option<I>>, used: SessionUse<'a, I>) -> Self {
        Self { instance, used, end: None, leaves: false, is_resumed: false, taken: None }
    }

    pub(super) fn key(&self) -> &SessionKey {
        &self.used.session.key
    }

    pub(super) fn session(&self) -> &Arc<Session<I>> {
        &self.used.session
    }

    /// `None`: the session is new here.
    pub(super) fn instance(&self) -> Option<&I> {
        self.instance.as_ref()
    }

    pub(super) fn instance_mut(&mut self) -> Option<&mut I> {
        self.instance.as_mut()
    }

    /// The rights with which the session has begun, or is about to begin.
    pub(super) fn rights(&self) -> Rights {
        self.used.session.state.lock().rights
    }

    /// The store has given the session to this process, which gives it back if it does not begin.
    pub(super) fn is_taken(&mut self, fence: i64) {
        self.taken = Some(fence);
    }

    /// The store's record of the session, before it begins.
    pub(super) fn begins_as(&mut self, beginning: Beginning) {
        let Beginning { generation, previous_end, is_resumed, rights, age, calls, stored } = beginning;
        self.is_resumed = is_resumed;
        let mut state = self.used.session.state.lock();
        (state.generation, state.previous_end, state.rights) = (generation, previous_end, rights);
        (state.age, state.calls, state.stored) = (age, calls, Some(stored));
    }

    /// How long ago the session began.
    pub(super) fn age(&self) -> Duration {
        self.used.session.state.lock().began.elapsed()
    }

    /// The session begins as old as the session of which it is a copy.
    pub(super) fn has_age(&mut self, age: Duration) {
        self.used.session.state.lock().age = age;
    }

    /// Begins the session, or lets it go on, with its instance.
    pub(super) fn begin(&mut self, instance: I) {
        *self.instance = Some(instance);
        self.taken = None;
        let mut state = self.used.session.state.lock();
        let (now, age) = (Instant::now(), state.age);
        state.has_begun = true;
        state.began = now.checked_sub(age).unwrap_or(now);
        state.began_at = Timestamp::now().checked_sub(age).unwrap_or(Timestamp::MIN);
        (state.used, state.used_at) = (now, Timestamp::now());
    }

    pub(super) fn generation(&self) -> u64 {
        self.used.session.state.lock().generation
    }

    pub(super) fn calls(&self) -> u64 {
        self.used.session.state.lock().calls
    }

    pub(super) fn is_stored_each_call(&self) -> bool {
        self.used.session.state.lock().stored.as_ref().is_some_and(|stored| stored.every_call)
    }

    /// Whether the session was stored after an earlier call, and goes on from that where this one is stopped.
    pub(super) fn has_checkpoint(&self) -> bool {
        self.stored().is_some_and(|stored| stored.object.is_some())
    }

    pub(super) fn stored(&self) -> Option<StoredStanding> {
        self.used.session.state.lock().stored.clone()
    }

    /// From now on the session is stored after each call.
    pub(super) fn store_every_call(&mut self) {
        if let Some(stored) = &mut self.used.session.state.lock().stored {
            stored.every_call = true;
        }
    }

    /// The session is stored, in this object.
    pub(super) fn is_stored_in(&mut self, object: BlobKey) {
        let mut state = self.used.session.state.lock();
        state.has_current_image = true;
        if let Some(stored) = &mut state.stored {
            stored.object = Some(object);
        }
    }

    /// The fence of a session that was stored after its last call.
    pub(super) fn fence_of_current_image(&self) -> Option<i64> {
        let state = self.used.session.state.lock();
        state.stored.as_ref().filter(|_| state.has_current_image).map(|stored| stored.fence)
    }

    /// The session is not stored, and why.
    pub(super) fn is_not_stored(&mut self, reason: NotStored) {
        self.used.session.state.lock().not_stored = Some((reason, Instant::now()));
    }

    /// The session leaves the memory of this process, even if the rest of this is dropped.
    pub(super) fn leaves(&mut self) {
        self.leaves = true;
    }

    /// It does not leave, since it could not be stored.
    pub(super) fn stays(&mut self, reason: NotStored) {
        self.leaves = false;
        self.is_not_stored(reason);
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
        (state.has_current_image, state.not_stored) = (false, None);
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
        let is_new = is_new && !self.is_resumed;
        let state = session.state.lock();
        let before = session.before.filter(|before| is_new && Some(before.end) == state.previous_end);
        InterpreterSession {
            name: Arc::clone(&session.key.name),
            generation: state.generation,
            is_new,
            is_resumed: self.is_resumed,
            previous_end: state.previous_end.filter(|_| is_new),
            end,
            is_checkpointed: None,
            not_stored: before.and_then(|before| before.not_stored),
        }
    }
}

impl<I: SessionInstance> Drop for Turn<'_, I> {
    fn drop(&mut self) {
        if let Some(fence) = self.taken {
            self.used.sessions.give_back(&self.used.session.key, fence);
        }
        if self.leaves {
            *self.instance = None;
            self.used.sessions.leave(&self.used.session);
        } else if let Some(end) = self.end {
            *self.instance = None;
            self.used.sessions.end(&self.used.session, end);
        }
    }
}
