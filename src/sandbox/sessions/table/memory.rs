//! The memory that sessions hold between their calls.

use std::sync::Arc;

use super::{SessionInstance, Sessions};
use crate::sessions::eviction::{Held, next_to_end};
use crate::sessions::session::Session;
use sekisho_core::call::SessionEnd;
use sekisho_core::caller::Owner;
use sekisho_core::share::Lease;

impl<I: SessionInstance> Sessions<I> {
    /// Has a session hold these bytes until its next call, in place of others that nobody uses if there are not enough.
    /// An owner gets no more than others have in that way.
    pub(in crate::sessions) fn hold(&self, session: &Session<I>, bytes: u64) -> bool {
        let owner = &session.key.owner;
        if bytes > self.memory.capacity() {
            return false;
        }
        loop {
            let more = {
                let mut state = session.state.lock();
                if state.end.is_some() || state.has_left {
                    return false;
                }
                let held = state.memory.as_ref().map_or(0, Lease::amount);
                if let Some(less) = state.memory.as_mut().filter(|_| bytes <= held) {
                    less.shrink_to(bytes);
                    return true;
                }
                let more = bytes.saturating_sub(held);
                if let Some(lease) = self.memory.try_acquire(owner, more) {
                    match &mut state.memory {
                        Some(held) => held.extend(lease),
                        none => *none = Some(lease),
                    }
                    return true;
                }
                more
            };
            let _changing = self.changing.lock();
            let Some(other) = self.next_to_end(owner, more, |other| other.is_unused()) else { return false };
            self.end_now(&other, SessionEnd::Evicted);
        }
    }

    /// The session that ends so that one of this owner can hold more bytes, of those that may.
    pub(super) fn next_to_end(
        &self,
        owner: &Owner,
        more: u64,
        may_end: impl Fn(&Arc<Session<I>>) -> bool,
    ) -> Option<Arc<Session<I>>> {
        let open = self.open.by_use();
        let held: Vec<_> = open.iter().map(|session| Held::of(session, may_end(session))).collect();
        open.get(next_to_end(&held, owner, more)?).cloned()
    }
}
