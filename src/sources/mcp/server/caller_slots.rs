//! The sessions of callers with one server: never shared between callers, and limited for each caller.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::session::Session;
use super::session_owner::OwnerKey;

/// The sessions with one server, by owner.
#[derive(Debug)]
pub(super) struct Callers {
    sessions: Mutex<HashMap<OwnerKey, OwnedSession>>,
    max: usize,
    idle: Duration,
}

/// The slot of one owner's session. The first call that needs the session opens it.
type Place = Arc<OnceCell<Arc<Session>>>;

/// A slot that is about to be used. If its session could not be opened, the slot is freed when the last waiting call
/// drops this.
pub(super) struct Claim<'a> {
    callers: &'a Callers,
    owner: &'a OwnerKey,
    pub(super) place: Place,
}

#[derive(Debug)]
struct OwnedSession {
    place: Place,
    used: Instant,
}

/// Why no further session can be opened: all sessions that could be evicted are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CapacityError {
    Caller(usize),
    Server(usize),
}

impl Callers {
    /// At most `max` sessions, each of which is closed after `idle` without use.
    pub(super) fn new(max: usize, idle: Duration) -> Self {
        Self { sessions: Mutex::default(), max, idle }
    }

    /// Maximum sessions of one caller: half of all, so that another caller always finds a slot.
    fn max_of_caller(&self) -> usize {
        self.max.div_ceil(2)
    }

    /// The owner's session, if it has one that can be used.
    pub(super) fn get(&self, owner: &OwnerKey) -> Option<Arc<Session>> {
        let mut sessions = self.lock();
        let known = sessions.get_mut(owner)?;
        let session = known.place.get().filter(|session| !session.ended.is_cancelled())?;
        known.used = Instant::now();
        Some(Arc::clone(session))
    }

    /// The slot of the owner's session, also if the session is not open yet. A new one may evict the least recently used
    /// session: one of the same caller, otherwise one of the caller with the most sessions. Never evicts a session that
    /// is in use or for which `is_kept` is true.
    ///
    /// # Errors
    /// [`CapacityError`].
    pub(super) fn place<'a>(
        &'a self,
        owner: &'a OwnerKey,
        is_kept: impl Fn(&OwnerKey) -> bool,
    ) -> Result<Claim<'a>, CapacityError> {
        let mut sessions = self.lock();
        if let Some(known) = sessions.get_mut(owner)
            && !known.has_ended()
        {
            known.used = Instant::now();
            return Ok(Claim { callers: self, owner, place: Arc::clone(&known.place) });
        }
        sessions.retain(|_, known| !known.has_ended());
        let counts = counts(&sessions);
        let count = |scope: &Arc<str>| counts.get(scope).copied().unwrap_or_default();
        let own = count(&owner.scope);
        let has_most = own >= self.max_of_caller();
        if has_most || sessions.len() >= self.max {
            let is_own = |key: &OwnerKey| key.scope == owner.scope;
            let idle = sessions
                .iter()
                .filter(|(key, known)| (is_own(key) || !has_most) && !known.is_in_use() && !is_kept(key))
                .min_by_key(|(key, known)| (!is_own(key), Reverse(count(&key.scope)), known.used));
            let idle = idle.map(|(key, _)| key.clone());
            let full = if has_most { CapacityError::Caller(own) } else { CapacityError::Server(self.max) };
            sessions.remove(&idle.ok_or(full)?);
        }
        let place = Place::default();
        sessions.insert(owner.clone(), OwnedSession { place: Arc::clone(&place), used: Instant::now() });
        Ok(Claim { callers: self, owner, place })
    }

    /// Removes the owner's session, if it is this one.
    pub(super) fn forget(&self, owner: &OwnerKey, session: &Weak<Session>) {
        self.forget_if(owner, |known| known.is_made(session));
    }

    /// Removes the owner's session, if it is this one and idle. Otherwise returns the time when it may become idle.
    pub(super) fn forget_idle(&self, owner: &OwnerKey, session: &Weak<Session>, is_kept: bool) -> Option<Instant> {
        let mut next = None;
        self.forget_if(owner, |known| {
            let until = known.used + self.idle;
            if is_kept || known.is_in_use() {
                next = Some(Instant::now() + self.idle);
            } else if until > Instant::now() {
                next = Some(until);
            }
            next.is_none() && known.is_made(session)
        });
        next
    }

    /// Removes all sessions. Returns a token that is cancelled when they have ended.
    pub(super) fn forget_all(&self) -> Vec<CancellationToken> {
        let all = std::mem::take(&mut *self.lock());
        all.values().filter_map(|known| known.place.get()).map(|session| session.ended.clone()).collect()
    }

    fn forget_if(&self, owner: &OwnerKey, is_to_go: impl FnOnce(&OwnedSession) -> bool) {
        let mut sessions = self.lock();
        if sessions.get(owner).is_some_and(is_to_go) {
            sessions.remove(owner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerKey, OwnedSession>> {
        self.sessions.lock()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut sessions = self.callers.lock();
        let is_last =
            |known: &OwnedSession| Arc::ptr_eq(&known.place, &self.place) && Arc::strong_count(&self.place) == 2;
        if self.place.get().is_none() && sessions.get(self.owner).is_some_and(is_last) {
            sessions.remove(self.owner);
        }
    }
}

impl OwnedSession {
    /// Whether a call uses the session or waits until it is open.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.place) > 1
            || self.place.get().is_some_and(|session| Arc::strong_count(session) > 1 && !session.ended.is_cancelled())
    }

    fn is_made(&self, session: &Weak<Session>) -> bool {
        self.place.get().is_some_and(|made| std::ptr::eq(Arc::as_ptr(made), session.as_ptr()))
    }

    fn has_ended(&self) -> bool {
        self.place.get().is_some_and(|session| session.ended.is_cancelled())
    }
}

fn counts(sessions: &HashMap<OwnerKey, OwnedSession>) -> HashMap<Arc<str>, usize> {
    let mut counts = HashMap::new();
    for key in sessions.keys() {
        *counts.entry(Arc::clone(&key.scope)).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::config::McpShare;
    use crate::core::call::{CallContext, Caller, Via};
    use crate::core::session::Session;
    use crate::sources::mcp::server::session_owner::Owner;

    fn owner(id: &str, session: &str) -> OwnerKey {
        let call = CallContext::new("t", Arc::new(Caller::new(id, "t", Vec::new())), Via::Rest);
        let session = Arc::new(Session::new(&call.caller, session));
        Owner::of(&CallContext { session: Some(session), ..call }, McpShare::Never, HeaderMap::new()).key.unwrap()
    }

    #[test]
    fn a_caller_has_half_of_the_places_and_one_that_is_given_up_is_free_again() {
        let owners = ["a", "b", "c"].map(|id| ["1", "2", "3"].map(|session| owner(id, session)));
        let [a, b, c] = &owners;
        let callers = Callers::new(4, Duration::from_secs(60));
        let place = |owner| callers.place(owner, |_| false);
        let (_a1, a2, again) = (place(&a[0]).unwrap(), place(&a[1]).unwrap(), place(&a[1]).unwrap());
        assert_eq!(place(&a[2]).err(), Some(CapacityError::Caller(2)));
        let (_b1, _b2) = (place(&b[0]).unwrap(), place(&b[1]).unwrap());
        assert_eq!(place(&c[0]).err(), Some(CapacityError::Server(4)));
        drop(a2);
        assert_eq!(place(&c[0]).err(), Some(CapacityError::Server(4)), "another call still waits for it");
        drop(again);
        let c1 = place(&c[0]).unwrap();
        assert!(callers.get(&c[0]).is_none(), "it has no session yet");
        drop(c1);
        assert!(callers.lock().len() == 3);
    }
}
