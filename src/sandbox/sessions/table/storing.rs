//! Sessions that are stored, so that they can go on without the memory of this process.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{SessionInstance, Sessions};
use crate::sessions::session::{Session, SessionKey};
use crate::sessions::turn::Turn;
use sekisho_core::call::SessionEnd;
use sekisho_core::caller::Owner;
use sekisho_core::share::Lease;

/// The end of a session that the store knows.
#[derive(Debug)]
pub(in crate::sessions) struct EndToRecord {
    pub(in crate::sessions) key: SessionKey,
    pub(in crate::sessions) fence: i64,
    /// `None`: it can go on from its image.
    pub(in crate::sessions) end: Option<SessionEnd>,
}

impl<I: SessionInstance> Sessions<I> {
    /// From now on, idle sessions do not end if they can be stored.
    pub(crate) fn store_idle(&self) {
        self.stores_idle.store(true, Ordering::Relaxed);
    }

    /// A turn of a session that nobody has or waits for. Not a use of it.
    pub(in crate::sessions) fn try_turn(&self, session: &Arc<Session<I>>) -> Option<Turn<'_, I>> {
        let _changing = self.changing.lock();
        if session.is_gone() || !session.is_unused() {
            return None;
        }
        let instance = Arc::clone(&session.instance).try_lock_owned().ok().filter(|instance| instance.is_some())?;
        Some(Turn::new(instance, self.used_by_one_more(Arc::clone(session))))
    }

    /// The session of that key, if this process has one that has begun.
    pub(in crate::sessions) fn get(&self, owner: &Owner, name: &str) -> Option<Arc<Session<I>>> {
        let _changing = self.changing.lock();
        self.find(owner, name).filter(|session| session.state.lock().has_begun)
    }

    /// The session that would end for a session of that name: among sessions that can be stored instead, and were not
    /// `tried`.
    pub(in crate::sessions) fn next_to_store(
        &self,
        owner: &Owner,
        name: &str,
        tried: &[Arc<Session<I>>],
    ) -> Option<Arc<Session<I>>> {
        let key = SessionKey { owner: owner.clone(), name: name.into() };
        let _changing = self.changing.lock();
        if self.open.contains(&key) {
            return None;
        }
        self.open.next_for_entry(owner, |_, other| can_be_stored(other, tried), Arc::clone)
    }

    /// The session that would end for a session that holds so many bytes.
    pub(in crate::sessions) fn next_to_store_for_memory(
        &self,
        session: &Session<I>,
        bytes: u64,
        tried: &[Arc<Session<I>>],
    ) -> Option<Arc<Session<I>>> {
        let owner = &session.key.owner;
        let held = session.state.lock().memory.as_ref().map_or(0, Lease::amount);
        let missing = bytes.saturating_sub(held);
        let _changing = self.changing.lock();
        if bytes > self.memory.capacity() || missing == 0 || self.memory.try_acquire(owner, missing).is_some() {
            return None;
        }
        self.next_to_end(owner, missing, |other| can_be_stored(other, tried))
    }

    /// Sessions that nobody has, and that are to be stored: all, or those that are idle.
    pub(in crate::sessions) fn to_store(&self, only_idle: bool) -> Vec<Arc<Session<I>>> {
        let mut found = Vec::new();
        self.open.for_each(|session| {
            let state = session.state.lock();
            let is_idle = state.used.elapsed() >= self.limits.idle;
            if state.users == 0 && state.has_begun && state.may_be_stored() && (is_idle || !only_idle) {
                found.push(Arc::clone(session));
            }
        });
        found
    }

    /// Has the store told that a session did not begin here that this process has taken.
    pub(in crate::sessions) fn give_back(&self, key: &SessionKey, fence: i64) {
        self.record_later(EndToRecord { key: key.clone(), fence, end: None });
    }

    /// Has the store told of an end. The first report of a session and its fence counts.
    pub(in crate::sessions) fn record_later(&self, EndToRecord { key, fence, end }: EndToRecord) {
        if self.to_record.lock().get_or_try_insert_with((key, fence), || end).is_none() {
            tracing::warn!("the end of a session is not recorded: too many wait for the store");
        }
    }

    /// The ends that the store does not know yet.
    pub(in crate::sessions) fn take_ends_to_record(&self) -> Vec<EndToRecord> {
        let ends = self.to_record.lock().take();
        ends.into_iter().map(|((key, fence), end)| EndToRecord { key, fence, end }).collect()
    }

    /// Removes a session from the memory of this process, which can go on: the next call finds it in the store.
    pub(in crate::sessions) fn leave(&self, session: &Arc<Session<I>>) {
        let _changing = self.changing.lock();
        {
            let mut state = session.state.lock();
            state.has_left = true;
            state.memory = None;
        }
        self.open.remove_if(&session.key, |open| Arc::ptr_eq(open, session));
        self.count();
    }
}

fn can_be_stored<I>(session: &Arc<Session<I>>, tried: &[Arc<Session<I>>]) -> bool {
    let state = session.state.lock();
    let is_new = !tried.iter().any(|other| Arc::ptr_eq(other, session));
    is_new && state.users == 0 && state.may_be_stored()
}
