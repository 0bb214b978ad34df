//! The sessions of all callers, keyed by caller and id, so that a guessed id gives no access.
//!
//! A call names a session before it is checked, and the session is opened when the call is executed: calls that are
//! refused open none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::SessionConfig;
use crate::core::bounded::Ring;
use crate::core::call::{CallContext, Caller};
use crate::core::error::{CallError, ErrorCode};
use crate::core::per_owner::{NotAdded, PerOwner};
use crate::core::session::{Session, workspace_of};

/// Maximum length of a session id, in characters.
const MAX_ID_CHARS: usize = 128;

/// Maximum open sessions of all callers: some 50 MB.
const MAX_SESSIONS: usize = 100_000;

/// Maximum evicted sessions that are known by name until their workspaces are deleted. Those that went before are deleted when they
/// are old enough, as those of earlier processes are.
const MAX_EVICTED: usize = 10_000;

/// The sessions of all callers. A session whose `Arc` is held elsewhere is not evicted. The least recently used one of
/// a caller is, for one more than the maximum.
#[derive(Debug)]
pub struct Sessions {
    open: PerOwner<Key, Arc<Session>>,
    /// Sessions that calls name and that are not open. Locked while sessions are opened, so that there is one for each
    /// key.
    prepared: Mutex<HashMap<Key, Weak<Session>>>,
    /// Evicted sessions whose workspaces are not deleted yet.
    evicted: Mutex<Ring<Key>>,
    many_evicted: Notify,
    idle_seconds: AtomicU64,
}

/// [`Caller::key`], and the session's id.
type Key = (Arc<str>, Box<str>);

impl Sessions {
    pub fn new(config: &SessionConfig) -> Self {
        Self {
            open: PerOwner::new(MAX_SESSIONS, config.max_per_caller),
            prepared: Mutex::default(),
            evicted: Mutex::new(Ring::new(MAX_EVICTED)),
            many_evicted: Notify::new(),
            idle_seconds: config.idle_seconds.into(),
        }
    }

    /// Applies new limits; open sessions stay, even if they exceed a smaller maximum.
    pub fn reconfigure(&self, config: &SessionConfig) {
        self.idle_seconds.store(config.idle_seconds, Ordering::Relaxed);
        self.open.set_max_of_caller(config.max_per_caller);
    }

    /// For a call that names a session: the open one, or one that [`Sessions::open`] opens.
    ///
    /// # Errors
    /// `invalid_request` for an invalid id.
    pub fn prepare(&self, caller: &Caller, id: &str) -> Result<Arc<Session>, CallError> {
        let key = key(caller, id);
        if let Some(session) = self.get(&key) {
            return Ok(session);
        }
        check_id(id)?;
        let mut prepared = self.prepared.lock();
        if let Some(session) = self.get(&key).or_else(|| prepared.get(&key)?.upgrade()) {
            return Ok(session);
        }
        if prepared.len() == prepared.capacity() {
            prepared.retain(|_, session| session.strong_count() > 0);
        }
        let session = Arc::new(Session::new(caller, id));
        prepared.insert(key, Arc::downgrade(&session));
        Ok(session)
    }

    /// Opens the session of a call that is about to be executed.
    ///
    /// # Errors
    /// `overloaded` when the caller has the maximum number of sessions and all are in use.
    pub fn open_for(&self, call: &CallContext) -> Result<(), CallError> {
        match &call.session {
            Some(session) => self.open(&call.caller, session),
            None => Ok(()),
        }
    }

    /// Opens a prepared session, unless it is open.
    ///
    /// # Errors
    /// As [`Sessions::open_for`].
    pub fn open(&self, caller: &Caller, session: &Arc<Session>) -> Result<(), CallError> {
        let key = key(caller, &session.id);
        let mut prepared = self.prepared.lock();
        if self.get(&key).is_some() {
            return Ok(());
        }
        let is_idle = |_: &Key, session: &Arc<Session>| Arc::strong_count(session) == 1;
        let added = self.open.insert(&caller.owner, key.clone(), Arc::clone(session), is_idle);
        let is_added = added.is_ok();
        let evicted = added.unwrap_or_else(|NotAdded { gone, .. }| gone);
        self.remember_evicted(evicted.iter().map(|(key, _)| key.clone()));
        if !is_added {
            return Err(all_in_use());
        }
        prepared.remove(&key);
        Ok(())
    }

    fn remember_evicted(&self, keys: impl Iterator<Item = Key>) {
        let mut evicted = self.evicted.lock();
        for key in keys {
            evicted.push(key);
            if evicted.len() == MAX_EVICTED / 2 {
                self.many_evicted.notify_one();
            }
        }
    }

    /// Waits until half as many evicted sessions as are remembered have workspaces that are not deleted.
    pub async fn many_evicted(&self) {
        self.many_evicted.notified().await;
    }

    /// Removes sessions that are idle and not in use.
    pub fn evict_idle(&self) {
        let (now, idle) = (Instant::now(), self.idle());
        // No caller can get it at the same time, because the map is locked.
        let is_idle =
            |session: &Arc<Session>| Arc::strong_count(session) == 1 && now.duration_since(session.last_used()) >= idle;
        let expired = self.open.take_if(is_idle);
        self.remember_evicted(expired.into_iter().map(|(key, _)| key));
    }

    /// Returns the workspaces of evicted sessions, which must be deleted.
    pub fn take_evicted(&self) -> Vec<String> {
        let evicted = std::mem::replace(&mut *self.evicted.lock(), Ring::new(MAX_EVICTED));
        // Another call may have opened it again.
        let evicted = evicted.iter().filter(|key| !self.open.contains(key));
        evicted.map(|(caller_key, id)| workspace_of(caller_key, id)).collect()
    }

    /// The workspaces of sessions that are open, or named by a call that runs.
    pub fn workspaces(&self) -> Vec<String> {
        let mut workspaces = Vec::with_capacity(self.open.len());
        let mut add = |session: &Arc<Session>| workspaces.push(session.workspace_name().to_owned());
        self.prepared.lock().values().filter_map(Weak::upgrade).for_each(|session| add(&session));
        self.open.for_each(|session| add(session));
        workspaces
    }

    /// The number of open sessions of all callers.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn get(&self, key: &Key) -> Option<Arc<Session>> {
        let session = self.open.with(key, |session| Arc::clone(session))?;
        session.touch();
        Some(session)
    }

    fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_seconds.load(Ordering::Relaxed))
    }
}

fn key(caller: &Caller, id: &str) -> Key {
    (Arc::clone(&caller.key), id.into())
}

fn check_id(id: &str) -> Result<(), CallError> {
    // A character has at most four bytes, so a long id is refused without counting its characters.
    let fits = !id.is_empty() && id.len() <= 4 * MAX_ID_CHARS && id.chars().count() <= MAX_ID_CHARS;
    if fits && !id.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("a session id must have 1 to {MAX_ID_CHARS} characters and no control characters");
    Err(CallError::new(ErrorCode::InvalidRequest, message))
}

fn all_in_use() -> CallError {
    let message = "no further session can be opened: all those that could be closed for it are in use; \
                   wait until a call has ended, or use an open session";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use rust_decimal::Decimal;

    use super::*;
    use crate::core::call::Via;

    fn caller(tenant: &str, id: &str) -> Caller {
        Caller::new(id, tenant, Vec::new())
    }

    fn sessions(max_per_caller: usize) -> Sessions {
        Sessions::new(&SessionConfig { max_per_caller, idle_seconds: 60, ..SessionConfig::default() })
    }

    /// Of all that are evicted until now.
    fn evicted(sessions: &Sessions) -> Vec<String> {
        sessions.evict_idle();
        sessions.take_evicted()
    }

    fn open(sessions: &Sessions, caller: &Caller, id: &str) -> Result<Arc<Session>, CallError> {
        let session = sessions.prepare(caller, id)?;
        let mut call = CallContext::new("t", Arc::new(caller.clone()), Via::Rest);
        call.session = Some(Arc::clone(&session));
        sessions.open_for(&call)?;
        Ok(session)
    }

    #[test]
    fn a_session_is_the_same_for_every_call_of_its_caller() {
        let (sessions, ann) = (sessions(10), caller("acme", "ann"));
        let first = open(&sessions, &ann, "s").unwrap();
        first.settle(Decimal::new(5, 2));
        first.add_label("untrusted");
        first.add_label("untrusted");
        for again in [open(&sessions, &ann, "s").unwrap(), sessions.prepare(&ann, "s").unwrap()] {
            assert_eq!((again.calls(), again.cost_usd()), (1, Decimal::new(5, 2)));
            assert_eq!(again.labels(), ["untrusted"]);
        }
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn a_guessed_id_opens_nothing_of_another_caller_or_tenant() {
        let sessions = sessions(10);
        let ann = open(&sessions, &caller("acme", "ann"), "secret").unwrap();
        ann.settle(Decimal::ONE);
        for other in [caller("acme", "bob"), caller("rival", "ann"), Caller::anonymous()] {
            let own = open(&sessions, &other, "secret").unwrap();
            assert_eq!(own.calls(), 0);
            assert_ne!(own.workspace_name(), ann.workspace_name());
        }
    }

    #[test]
    fn calls_that_are_not_executed_open_no_session_and_leave_nothing() {
        let (sessions, ann) = (sessions(2), caller("acme", "ann"));
        let kept = open(&sessions, &ann, "kept").unwrap();
        kept.settle(Decimal::ONE);
        drop(kept);
        let concurrent = sessions.prepare(&ann, "s").unwrap();
        assert!(Arc::ptr_eq(&concurrent, &sessions.prepare(&ann, "s").unwrap()));
        for n in 0..10_000 {
            sessions.prepare(&ann, &n.to_string()).unwrap();
        }
        assert!(sessions.prepared.lock().capacity() < 100);
        assert_eq!((sessions.len(), sessions.prepare(&ann, "kept").unwrap().calls()), (1, 1));
        sessions.open(&ann, &concurrent).unwrap();
        assert!(Arc::ptr_eq(&concurrent, &sessions.prepare(&ann, "s").unwrap()));
    }

    #[tokio::test]
    async fn the_least_recently_used_session_goes_for_one_too_many() {
        let (sessions, ann) = (sessions(2), caller("acme", "ann"));
        let first = open(&sessions, &ann, "one").unwrap();
        let gone = open(&sessions, &ann, "two").unwrap().workspace_name().to_owned();
        open(&sessions, &ann, "three").unwrap();
        assert_eq!(evicted(&sessions), [gone]);
        let third = sessions.prepare(&ann, "three").unwrap();
        let error = open(&sessions, &ann, "four").unwrap_err();
        assert_eq!(error.code(), ErrorCode::Overloaded, "both are in use");
        open(&sessions, &caller("acme", "bob"), "four").unwrap();
        drop(first);
        open(&sessions, &ann, "four").unwrap();
        drop(third);
        open(&sessions, &ann, "one").unwrap();
        let gone = sessions.prepare(&ann, "three").unwrap().workspace_name().to_owned();
        assert_eq!(evicted(&sessions), [gone], "the other one was opened again");
    }

    #[test]
    fn however_many_sessions_are_evicted_their_names_are_bounded_and_somebody_is_told() {
        let (sessions, ann) = (sessions(2), caller("acme", "ann"));
        let evict = |from: usize, count: usize| {
            (from..from + count).for_each(|n| drop(open(&sessions, &ann, &n.to_string()).unwrap()));
        };
        evict(0, MAX_EVICTED / 2 + 1);
        assert!(sessions.many_evicted().now_or_never().is_none());
        evict(MAX_EVICTED, 1);
        assert!(sessions.many_evicted().now_or_never().is_some());
        evict(2 * MAX_EVICTED, 2 * MAX_EVICTED);
        assert_eq!(sessions.evicted.lock().len(), MAX_EVICTED);
        assert!(sessions.many_evicted().now_or_never().is_none(), "once, until they are taken");
        let names = [workspace_of(&ann.key, "0"), workspace_of(&ann.key, &(4 * MAX_EVICTED - 3).to_string())];
        let taken = sessions.take_evicted();
        assert_eq!((taken.len(), names.map(|name| taken.contains(&name))), (MAX_EVICTED, [false, true]));
        assert!(evicted(&sessions).is_empty());
        let mut workspaces = sessions.workspaces();
        let named = sessions.prepare(&ann, "named by a call").unwrap();
        workspaces.push(named.workspace_name().to_owned());
        let mut all = sessions.workspaces();
        workspaces.sort_unstable();
        all.sort_unstable();
        assert_eq!((all.len(), all), (3, workspaces));
    }

    #[test]
    fn ids_are_anything_that_can_be_printed() {
        let (sessions, ann) = (sessions(100), caller("acme", "ann"));
        let longest = "字".repeat(MAX_ID_CHARS);
        for id in ["1", "a b", "../../etc/passwd", "関所", longest.as_str()] {
            sessions.prepare(&ann, id).unwrap();
        }
        let (too_long, far_too_long) = ("x".repeat(MAX_ID_CHARS + 1), "x".repeat(1 << 20));
        for id in ["", "a\nb", "nul\0", "\u{1f}", "\u{85}", &too_long, &far_too_long] {
            assert_eq!(sessions.prepare(&ann, id).unwrap_err().code(), ErrorCode::InvalidRequest, "{id:.20?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_idle_session_that_nobody_uses_is_evicted() {
        let (sessions, ann) = (sessions(10), caller("acme", "ann"));
        let in_use = open(&sessions, &ann, "in use").unwrap();
        let idle = open(&sessions, &ann, "idle").unwrap().workspace_name().to_owned();
        tokio::time::advance(Duration::from_secs(59)).await;
        open(&sessions, &ann, "fresh").unwrap();
        assert!(evicted(&sessions).is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(evicted(&sessions), [idle]);
        assert!(Arc::ptr_eq(&in_use, &sessions.prepare(&ann, "in use").unwrap()));
        drop(in_use);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(evicted(&sessions).len(), 2);
        assert!(sessions.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_call_keeps_its_session_from_its_end_on() {
        let (sessions, ann) = (sessions(10), caller("acme", "ann"));
        let session = open(&sessions, &ann, "s").unwrap();
        tokio::time::advance(Duration::from_secs(600)).await;
        session.settle(Decimal::ZERO);
        drop(session);
        assert!(evicted(&sessions).is_empty());
    }

    #[test]
    fn parallel_opens_make_one_session_and_keep_to_the_maximum() {
        let (sessions, ann) = (sessions(5), caller("acme", "ann"));
        let opened: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| (0..5).filter(|n| open(&sessions, &ann, &n.to_string()).is_ok()).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((sessions.len(), opened), (5, 80));
    }
}
