//! The sessions of callers with one server: never shared between callers, and limited for each caller.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::session::Session;
use super::session_owner::OwnerKey;
use sekisho_core::caller::Owner;
use sekisho_core::per_owner::PerOwner;

/// The sessions with one server, by owner.
#[derive(Debug)]
pub(super) struct CallerSlots {
    sessions: PerOwner<OwnerKey, OwnedSession>,
    idle: Duration,
}

/// The slot of one owner's session. The first call that needs the session opens it.
type Place = Arc<OnceCell<Arc<Session>>>;

/// A slot that is about to be used. If its session could not be opened, the slot is freed when the last waiting call
/// drops this.
pub(super) struct Claim<'a> {
    callers: &'a CallerSlots,
    owner: &'a OwnerKey,
    pub(super) place: Place,
}

#[derive(Debug)]
struct OwnedSession {
    place: Place,
    used: Instant,
}

/// No further session can be opened: all sessions that could be evicted are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AllInUse;

impl CallerSlots {
    /// At most `max` sessions, each of which is closed after `idle` without use. One caller has at most half of them, so
    /// that another one always finds a slot.
    pub(super) fn new(max: usize, idle: Duration) -> Self {
        Self { sessions: PerOwner::new(max, max.div_ceil(2)), idle }
    }

    /// The owner's session, if it has one that can be used.
    pub(super) fn get(&self, owner: &OwnerKey) -> Option<Arc<Session>> {
        self.sessions.with(owner, OwnedSession::open)?
    }

    /// The slot of the owner's session, also if the session is not open yet. A new one, which counts for `caller`, may
    /// evict the least recently used session: one of the same caller, otherwise one of the tenant and caller with the
    /// most. Never evicts a session that is in use or for which `is_kept` is true.
    pub(super) fn place<'a>(
        &'a self,
        caller: &Owner,
        owner: &'a OwnerKey,
        is_kept: impl Fn(&OwnerKey) -> bool,
    ) -> Result<Claim<'a>, AllInUse> {
        let claim = |known: &mut OwnedSession| (!known.has_ended()).then(|| known.claim());
        let place = Place::default();
        let new = OwnedSession { place: Arc::clone(&place), used: Instant::now() };
        let may_go = |key: &OwnerKey, known: &OwnedSession| known.has_ended() || (!known.is_in_use() && !is_kept(key));
        let known = self.sessions.find_or_insert(caller, owner, claim, new, may_go).map_err(|_| AllInUse)?;
        Ok(Claim { callers: self, owner, place: known.unwrap_or(place) })
    }

    /// Removes the owner's session, if it is this one.
    pub(super) fn forget(&self, owner: &OwnerKey, session: &Weak<Session>) {
        drop(self.sessions.remove_if(owner, |known| known.is_made(session)));
    }

    /// Removes the owner's session, if it is this one and idle. Otherwise returns the time when it may become idle.
    pub(super) fn forget_idle(&self, owner: &OwnerKey, session: &Weak<Session>, is_kept: bool) -> Option<Instant> {
        let mut next = None;
        let forgotten = self.sessions.remove_if(owner, |known| {
            let until = known.used + self.idle;
            if is_kept || known.is_in_use() {
                next = Some(Instant::now() + self.idle);
            } else if until > Instant::now() {
                next = Some(until);
            }
            next.is_none() && known.is_made(session)
        });
        drop(forgotten);
        next
    }

    /// Removes all sessions. Returns a token that is cancelled when they have ended.
    pub(super) fn forget_all(&self) -> Vec<CancellationToken> {
        let all = self.sessions.take_if(|_| true);
        all.iter().filter_map(|(_, known)| known.place.get()).map(|session| session.ended.clone()).collect()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.place.get().is_none() {
            let is_last =
                |known: &OwnedSession| Arc::ptr_eq(&known.place, &self.place) && Arc::strong_count(&self.place) == 2;
            drop(self.callers.sessions.remove_if(self.owner, is_last));
        }
    }
}

impl OwnedSession {
    fn open(&mut self) -> Option<Arc<Session>> {
        let session = self.place.get().filter(|session| !session.ended.is_cancelled())?;
        self.used = Instant::now();
        Some(Arc::clone(session))
    }

    fn claim(&mut self) -> Place {
        self.used = Instant::now();
        Arc::clone(&self.place)
    }

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

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::server::session_owner::SessionOwner;
    use sekisho_config::McpShare;
    use sekisho_core::call::{CallContext, Caller, Via};
    use sekisho_core::session::Session;

    fn owner(id: &str, session: &str) -> OwnerKey {
        let mut call = CallContext::new("t", Arc::new(Caller::new(id, "t", Vec::new())), Via::Rest);
        call.origin.session = Some(Arc::new(Session::new(&call.caller, session)));
        SessionOwner::of(&call, McpShare::Never, HeaderMap::new()).key.unwrap()
    }

    #[test]
    fn many_tokens_of_one_caller_take_no_places_of_others() {
        let with_token = |id: &str, token: &str| {
            let call = CallContext::new("t", Arc::new(Caller::new(id, "t", Vec::new())), Via::Rest);
            let headers = HeaderMap::from_iter([(http::header::FROM, token.parse().unwrap())]);
            SessionOwner::of(&call, McpShare::Never, headers)
        };
        let callers = CallerSlots::new(8, Duration::from_secs(60));
        let tokens: Vec<_> = (0..20).map(|n| with_token("a", &format!("token-{n}"))).collect();
        let other = with_token("b", "own");
        let places = tokens.iter().map(|owner| callers.place(&owner.caller, owner.key.as_ref().unwrap(), |_| false));
        let places: Vec<_> = places.filter_map(Result::ok).collect();
        assert_eq!(places.len(), 4);
        assert!(callers.place(&other.caller, other.key.as_ref().unwrap(), |_| false).is_ok());
    }

    #[test]
    fn a_caller_has_half_of_the_places_and_one_that_is_given_up_is_free_again() {
        let owners = ["a", "b", "c"].map(|id| ["1", "2", "3"].map(|session| owner(id, session)));
        let [a, b, c] = &owners;
        let callers = CallerSlots::new(4, Duration::from_secs(60));
        let caller = |tenant: &str, id: &str| Caller::new(id, tenant, Vec::new()).owner;
        let (of_a, of_b, of_c) = (caller("t", "a"), caller("t", "b"), caller("other", "c"));
        let place = |caller, owner| callers.place(caller, owner, |_| false);
        let (_a1, a2, again) = (place(&of_a, &a[0]), place(&of_a, &a[1]).unwrap(), place(&of_a, &a[1]).unwrap());
        assert_eq!(place(&of_a, &a[2]).err(), Some(AllInUse));
        let _b1 = place(&of_b, &b[0]).unwrap();
        let c1 = place(&of_c, &c[0]).unwrap();
        assert_eq!(place(&of_b, &b[1]).err(), Some(AllInUse), "its tenant has three quarters");
        drop(c1);
        assert_eq!(place(&of_b, &b[1]).err(), Some(AllInUse), "which are kept for the other tenant");
        drop(a2);
        assert_eq!(place(&of_b, &b[1]).err(), Some(AllInUse), "another call still waits for it");
        drop(again);
        let b2 = place(&of_b, &b[1]).unwrap();
        assert!(callers.get(&b[1]).is_none(), "it has no session yet");
        drop(b2);
        assert_eq!(callers.sessions.len(), 2);
    }
}
