//! The open sessions of all callers: opened, waited for, and ended.

mod memory;
mod storing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout_at;

pub(super) use self::storing::EndToRecord;

use super::rights::Rights;
use super::session::{Ended, Session, SessionKey, Snapshot, StoredStanding};
use super::turn::{SessionUse, Turn};
use sekisho_config::InterpreterSessionsConfig;
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::{Deadline, SessionEnd};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::per_owner::{NotAdded, PerOwner};
use sekisho_core::share::{Lease, Share};
use sekisho_observe::metrics::SandboxMetrics;

/// The instance that runs the programs of a session, until it is dropped.
pub(crate) trait SessionInstance {
    fn is_alive(&self) -> bool;
}

/// The sessions of all callers.
#[derive(Debug)]
pub(crate) struct Sessions<I> {
    limits: SessionLimits,
    pub(super) open: PerOwner<SessionKey, Arc<Session<I>>>,
    /// How sessions have ended, for the call that begins anew; the oldest are forgotten.
    ended: PerOwner<SessionKey, Ended>,
    /// The memory of sessions between their calls.
    memory: Arc<Share>,
    /// Held while a session is opened, released or ended, so that none ends that a call has just opened.
    pub(super) changing: Mutex<()>,
    last_id: AtomicU64,
    /// Whether idle sessions are stored, so that they do not end.
    stores_idle: AtomicBool,
    /// Ends that the store does not know yet, by the session and its fence, as in [`EndToRecord`].
    to_record: Mutex<BoundedMap<(SessionKey, i64), Option<SessionEnd>>>,
    metrics: SandboxMetrics,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionLimits {
    max: usize,
    max_per_caller: usize,
    memory_bytes: u64,
    idle: Duration,
    lifetime: Duration,
}

/// How many ended sessions are remembered, for each that may be open.
const REMEMBERED: usize = 10;

/// How many ends the store may not know yet, for each session that may be open: none begins while it does not answer.
const UNRECORDED: usize = 2;

impl SessionLimits {
    pub(crate) fn new(config: &InterpreterSessionsConfig, memory_bytes: u64) -> Self {
        Self {
            max: config.max as usize,
            max_per_caller: config.max_per_caller as usize,
            memory_bytes,
            idle: Duration::from_secs(config.idle_seconds.into()),
            lifetime: Duration::from_secs(config.lifetime_seconds.into()),
        }
    }
}

impl<I: SessionInstance> Sessions<I> {
    pub(crate) fn new(limits: SessionLimits, metrics: SandboxMetrics) -> Self {
        let (max, max_per_caller) = (limits.max.max(1), limits.max_per_caller);
        Self {
            limits,
            open: PerOwner::new(max, max_per_caller),
            ended: PerOwner::new(max.saturating_mul(REMEMBERED), max_per_caller.saturating_mul(REMEMBERED)),
            memory: Share::new(limits.memory_bytes),
            changing: Mutex::new(()),
            last_id: AtomicU64::new(0),
            stores_idle: AtomicBool::new(false),
            to_record: Mutex::new(BoundedMap::new(max.saturating_mul(UNRECORDED))),
            metrics,
        }
    }

    /// Waits for the caller's session of that name, and begins one if there is none. `rights`: the rights of the call;
    /// `None` for one that runs no program in it.
    /// Errors: `overloaded` when all sessions are in use, or another call has this one until the deadline, and `denied`
    /// when it began with other rights.
    pub(super) async fn enter(
        &self,
        owner: &Owner,
        rights: Option<Rights>,
        name: &str,
        deadline: Deadline,
    ) -> Result<Turn<'_, I>, CallError> {
        loop {
            let used = self.open(owner, rights, name)?;
            let free = Arc::clone(&used.session.instance).lock_owned();
            let Ok(instance) = timeout_at(deadline.0, free).await else { return Err(in_use(name)) };
            if used.session.is_gone() {
                continue;
            }
            if let Some(end) = self.expiry(&used.session, instance.as_ref()) {
                drop(instance);
                self.end(&used.session, end);
                continue;
            }
            // It may have begun since.
            if used.session.has_other_rights(rights) {
                return Err(of_other_rights(name));
            }
            used.session.take_rights(rights);
            return Ok(Turn::new(instance, used));
        }
    }

    /// The caller's session of that name, if there is one and no call has it. Not a use of it.
    pub(super) fn try_enter(&self, owner: &Owner, name: &str) -> Option<Turn<'_, I>> {
        let _changing = self.changing.lock();
        let session = self.find(owner, name)?;
        let instance = Arc::clone(&session.instance).try_lock_owned().ok().filter(|instance| instance.is_some())?;
        Some(Turn::new(instance, self.used_by_one_more(session)))
    }

    /// The state of the caller's sessions, by name.
    pub(super) fn list(&self, owner: &Owner) -> Vec<Snapshot> {
        let mut found = Vec::new();
        self.open.for_each(|session| {
            if session.key.owner == *owner && session.state.lock().has_begun {
                found.push(self.snapshot(session));
            }
        });
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }

    /// Ends the caller's session of that name, and the program that runs in it; false when there is none.
    pub(super) fn delete(&self, owner: &Owner, name: &str) -> bool {
        let _changing = self.changing.lock();
        let found = self.find(owner, name).filter(|session| session.state.lock().has_begun);
        found.inspect(|session| self.end_now(session, SessionEnd::Deleted)).is_some()
    }

    /// Ends the sessions that no call has and whose time is over, or whose worker is gone.
    pub(crate) fn end_expired(&self) {
        let _changing = self.changing.lock();
        let mut unused = Vec::new();
        self.open.for_each(|session| unused.extend(session.is_unused().then(|| Arc::clone(session))));
        for session in unused {
            let expiry = {
                let Ok(instance) = session.instance.try_lock() else { continue };
                self.expiry(&session, instance.as_ref()).or_else(|| self.idle_expiry(&session))
            };
            if let Some(end) = expiry {
                self.end_now(&session, end);
            }
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The session of that name, which is kept as long as the result is.
    fn open(&self, owner: &Owner, rights: Option<Rights>, name: &str) -> Result<SessionUse<'_, I>, CallError> {
        let key = SessionKey { owner: owner.clone(), name: name.into() };
        let _changing = self.changing.lock();
        if let Some(session) = self.open.with(&key, |session| Arc::clone(session)) {
            match self.idle_expiry(&session).filter(|_| session.is_unused()) {
                Some(end) => self.end_now(&session, end),
                None if session.has_other_rights(rights) => return Err(of_other_rights(name)),
                None => return Ok(self.used_by_one_more(session)),
            }
        }
        let session = Arc::new(Session::new(key.clone(), self.ended.with(&key, |ended| *ended)));
        let added = self.open.insert(owner, key, Arc::clone(&session), |_, other| other.is_unused());
        let is_added = added.is_ok();
        for (_, other) in added.unwrap_or_else(|NotAdded { gone, .. }| gone) {
            self.end_now(&other, SessionEnd::Evicted);
        }
        match is_added {
            true => Ok(self.used_by_one_more(session)),
            false => Err(all_in_use()),
        }
    }

    fn used_by_one_more(&self, session: Arc<Session<I>>) -> SessionUse<'_, I> {
        session.state.lock().users += 1;
        session.wanted.notify_waiters();
        SessionUse { sessions: self, session }
    }

    fn find(&self, owner: &Owner, name: &str) -> Option<Arc<Session<I>>> {
        let mut found = None;
        self.open.for_each(|session| {
            if session.key.owner == *owner && *session.key.name == *name {
                found = Some(Arc::clone(session));
            }
        });
        found
    }

    fn expiry(&self, session: &Session<I>, instance: Option<&I>) -> Option<SessionEnd> {
        if instance.is_some_and(|instance| !instance.is_alive()) {
            return Some(SessionEnd::WorkerDied);
        }
        let state = session.state.lock();
        (state.has_begun && state.began.elapsed() >= self.limits.lifetime).then_some(SessionEnd::Lifetime)
    }

    fn idle_expiry(&self, session: &Session<I>) -> Option<SessionEnd> {
        let state = session.state.lock();
        let is_stored = self.stores_idle.load(Ordering::Relaxed) && state.is_storable();
        let is_idle = state.has_begun && state.used.elapsed() >= self.limits.idle;
        (is_idle && !is_stored).then_some(SessionEnd::Idle)
    }

    pub(super) fn end(&self, session: &Arc<Session<I>>, end: SessionEnd) {
        let _changing = self.changing.lock();
        self.end_now(session, end);
    }

    /// Ends a session, once. A call that has its instance drops that itself.
    fn end_now(&self, session: &Arc<Session<I>>, end: SessionEnd) {
        let (has_begun, ended, stored) = {
            let mut state = session.state.lock();
            if state.end.is_some() || state.has_left {
                return;
            }
            state.end = Some(end);
            state.memory = None;
            let not_stored = state.not_stored.map(|(reason, _)| reason);
            (state.has_begun, Ended { generation: state.generation, end, not_stored }, state.stored.take())
        };
        self.open.remove_if(&session.key, |open| Arc::ptr_eq(open, session));
        if has_begun {
            // The oldest go. Without space nobody is told why this one ended.
            let _ = self.ended.insert(&session.key.owner, session.key.clone(), ended, |_, _| true);
            self.metrics.session_ended(end);
        }
        if let Some(StoredStanding { fence, object, .. }) = stored {
            // State that was stored after an earlier call outlives the program and the worker.
            let end = Some(end).filter(|end| has_begun && !(end.leaves_checkpoint() && object.is_some()));
            self.record_later(EndToRecord { key: session.key.clone(), fence, end });
        }
        session.over.cancel();
        if let Ok(mut instance) = session.instance.try_lock() {
            *instance = None;
        }
        self.count();
    }

    pub(super) fn snapshot(&self, session: &Session<I>) -> Snapshot {
        let state = session.state.lock();
        let limits = self.limits;
        let is_stored = self.stores_idle.load(Ordering::Relaxed) && state.is_storable();
        let idle = limits.idle.saturating_sub(state.used.elapsed());
        let left = if is_stored { Duration::MAX } else { idle };
        Snapshot {
            name: Arc::clone(&session.key.name),
            generation: state.generation,
            is_used: state.users > 0,
            every_call: state.stored.as_ref().is_some_and(|stored| stored.every_call),
            not_stored: state.not_stored.map(|(reason, _)| reason),
            calls: state.calls,
            memory_bytes: state.memory.as_ref().map_or(0, Lease::amount),
            began_at: state.began_at,
            used_at: state.used_at,
            left: left.min(limits.lifetime.saturating_sub(state.began.elapsed())),
        }
    }
}

impl<I> Sessions<I> {
    pub(super) fn count(&self) {
        self.metrics.sessions_open(self.open.len(), self.memory.used());
    }
}

/// Seconds after which a refused caller should try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

fn in_use(name: &str) -> CallError {
    let message = format!("another call had the session `{name}` until this one's deadline; the code has not run");
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}

pub(super) fn of_other_rights(name: &str) -> CallError {
    let message = format!(
        "the session `{name}` began in a call with other roles, scopes or tools, and what its programs left behind \
         would run with those of this call; choose another name for `session`"
    );
    CallError::new(ErrorCode::Denied, message)
}

fn all_in_use() -> CallError {
    let message = "all sessions are in use; call again when one is free, or without `session`";
    CallError::new(ErrorCode::Overloaded, message).retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests;
