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

use sekisho_config::SessionConfig;
use sekisho_core::bounded::Ring;
use sekisho_core::call::{CallContext, Caller};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::per_owner::{NotAdded, PerOwner};
use sekisho_core::session::{Session, workspace_of};

/// Maximum length of a session id, in characters.
const MAX_ID_CHARS: usize = 128;

/// Maximum open sessions of all callers: some 50 MB.
const MAX_SESSIONS: usize = 100_000;

/// Maximum evicted sessions that are known by name until their workspaces are deleted. The workspaces of earlier ones
/// are deleted when they are old enough, like those that earlier processes left.
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

/// A session that was evicted, and may have a workspace.
#[derive(Debug)]
pub struct EvictedSession(Key);

impl EvictedSession {
    /// Its id.
    pub fn id(&self) -> &str {
        let Self((_, id)) = self;
        id
    }

    /// The name of its workspace.
    pub fn workspace(&self) -> String {
        let Self((caller_key, id)) = self;
        workspace_of(caller_key, id)
    }
}

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
    /// Errors: `invalid_request` for an invalid id.
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
    /// Errors: `overloaded` when the caller has the maximum number of sessions and all are in use.
    pub fn open_for(&self, call: &CallContext) -> Result<(), CallError> {
        match &call.origin.session {
            Some(session) => self.open(&call.caller, session),
            None => Ok(()),
        }
    }

    /// Opens a prepared session, unless it is open.
    /// Errors: as [`Sessions::open_for`].
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

    /// Takes the evicted sessions, the newest first. Their workspaces must be deleted, unless they are [used](Self::is_used)
    /// again by then.
    pub fn take_evicted(&self) -> Vec<EvictedSession> {
        let mut evicted = std::mem::replace(&mut *self.evicted.lock(), Ring::new(MAX_EVICTED));
        let newest_first = std::iter::from_fn(|| evicted.pop_newest());
        newest_first.map(EvictedSession).collect()
    }

    /// Gives back taken sessions whose workspaces could not be deleted yet.
    pub fn give_back(&self, evicted: impl IntoIterator<Item = EvictedSession>) {
        let mut remembered = self.evicted.lock();
        evicted.into_iter().for_each(|EvictedSession(key)| _ = remembered.push(key));
    }

    /// Whether it is open again, or named by a call that runs.
    pub fn is_used(&self, EvictedSession(key): &EvictedSession) -> bool {
        let prepared = self.prepared.lock();
        prepared.get(key).is_some_and(|session| session.strong_count() > 0) || self.open.contains(key)
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
mod tests;
