//! The statements on the row, and the loop of its holder.

use super::{GIVE_UP, LEASE, Lease, Mistake, RENEWAL, State, Work};
use crate::replicas::{LOST_AFTER, is_lost};

impl Work {
    /// `WorkStore::take`: `WHERE holder IS NULL OR held_until <= now OR (replica <> taker AND held_until <= now + lease - LOST_AFTER AND
    /// lost)`.
    pub(super) fn take(&self, state: &mut State, at: usize, is_answered: bool) {
        let (now, row) = (state.now, state.row);
        let lost_after = if self.has(Mistake::LostTooEarly) { LOST_AFTER / 2 } else { LOST_AFTER };
        let [of_holder, of_taker] = [row.replica, at].map(|at| state.replicas[at].registered);
        let is_old = row.held_until <= now + LEASE - lost_after || self.has(Mistake::LostDespiteItsLease);
        let is_lost = row.replica != at && is_old && is_lost(of_holder, of_taker, now, lost_after);
        let is_free = row.holder.is_none()
            || self.has(Mistake::TakenWhileHeld)
            || !self.has(Mistake::NoEnd) && (row.held_until <= now || is_lost);
        if !is_free {
            return;
        }
        state.remaining.takings -= 1;
        let row = &mut state.row;
        (row.takings, row.fence) = (row.takings + 1, row.fence + 1);
        (row.holder, row.replica, row.held_until) = (Some(row.takings), at, now + LEASE);
        if is_answered {
            let renewed = state.replicas[at].clock;
            state.replicas[at].lease = Some(Lease { holder: row.takings, fence: row.fence, renewed });
            state.replicas[at].is_late = false;
        } else {
            state.remaining.lost_answers -= 1;
        }
    }

    /// `WHERE holder = $ AND fence = $`.
    fn is_of(state: &State, lease: Lease) -> bool {
        state.row.holder == Some(lease.holder) && state.row.fence == lease.fence
    }

    /// A change of the thing in one statement with `WorkKind::held`.
    pub(super) fn write(&self, state: &mut State, at: usize) {
        let Some(lease) = state.replicas[at].lease else { return };
        let takes_effect = Self::is_of(state, lease) || self.has(Mistake::WriteWithoutFence);
        // Another one has taken the thing.
        state.has_former_write |= takes_effect && lease.holder != state.row.takings;
    }

    /// `WorkStore::release`.
    pub(super) fn release(&self, state: &mut State, at: usize) {
        if !state.replicas[at].asks() {
            return;
        }
        let Some(lease) = state.replicas[at].lease.take() else { return };
        state.replicas[at].is_late = false;
        if Self::is_of(state, lease) || self.has(Mistake::ReleaseWithoutFence) {
            state.row.holder = None;
        }
    }

    /// `WorkStore::keep_renewing`, each second.
    pub(super) fn keep_renewing(&self, state: &mut State, at: usize) {
        let (replica, now) = (state.replicas[at], state.now);
        let Some(lease) = replica.lease else { return };
        if replica.clock - lease.renewed >= GIVE_UP && !self.has(Mistake::NeverGivesUp) {
            (state.replicas[at].lease, state.replicas[at].is_late) = (None, false);
        } else if replica.clock - lease.renewed >= RENEWAL && replica.asks() {
            state.replicas[at].is_late = false;
            let is_renewed = Self::is_of(state, lease) || self.has(Mistake::RenewalWithoutFence);
            state.replicas[at].lease = is_renewed.then_some(Lease { renewed: replica.clock, ..lease });
            if is_renewed {
                state.row.held_until = now + LEASE;
            }
        }
    }
}
