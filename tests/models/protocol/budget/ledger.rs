//! The ledger, in transactions of the database.

use sekisho_core::lease::budget::{RELEASED_AFTER, decide};

use super::{Budget, Calls, Mistake, Registered, State, price, tokens};
use crate::REPLICAS;

impl Budget {
    /// `BudgetLeaseStore::exchange`: an answer, if somebody waits for it.
    pub(super) fn decide(&self, state: &mut State, at: usize, number: usize) {
        let request = state.replicas[at].messages.requests.remove(number);
        let leases = state.ledger.of_replicas.iter().enumerate().filter(|(of, _)| *of != at);
        let others: u64 = leases.map(|(_, registered)| registered.lease.amount.tokens).sum();
        let others = if self.has(Mistake::OthersForgotten) { 0 } else { others };
        let mut own = state.ledger.of_replicas[at].lease;
        if self.has(Mistake::LateRequestsDecided) {
            own.sequence = i64::MIN;
        }
        if self.has(Mistake::ReleaseForgotten) {
            own.releases = 0;
        }
        let decided = decide(self.account(), (tokens(state.ledger.spent), tokens(others)), own, &request);
        let Some((stored, answer)) = decided else { return };
        state.ledger.of_replicas[at].lease = stored;
        let replica = &mut state.replicas[at];
        if replica.asking == Some(request.sequence) {
            replica.messages.answer = Some((request, answer));
        }
    }

    /// `ChargeStore::add`: each charge has an id, and is stored once.
    pub(super) fn store(&self, state: &mut State, at: usize) {
        let Some(calls) = state.replicas[at].messages.charge.take() else { return };
        let known: Calls = if self.has(Mistake::StoredTwice) { 0 } else { state.ledger.stored };
        state.ledger.spent += price(calls & !known);
        state.ledger.stored |= calls;
        if state.replicas[at].storing == Some(calls) {
            state.replicas[at].messages.stored = Some(calls);
        }
    }

    /// `ReplicaStore::beat`.
    pub(super) fn beaten(&self, state: &mut State, at: usize) {
        let Some(sent) = state.replicas[at].messages.beat.take() else { return };
        let registered = &mut state.ledger.of_replicas[at];
        registered.heartbeat = state.now;
        let releases = if self.has(Mistake::ReleaseForgotten) { 0 } else { registered.releases };
        if !state.replicas[at].is_dead {
            state.replicas[at].messages.beaten = Some((sent, releases));
        }
    }

    /// `BudgetLeaseStore::release`: by an administrator, where the last heartbeat is old enough.
    pub(super) fn release(&self, state: &mut State, at: usize) {
        let registered = &mut state.ledger.of_replicas[at];
        let may_be_released = self.has(Mistake::LiveReleased) || registered.heartbeat + RELEASED_AFTER <= state.now;
        if !may_be_released || registered.lease.amount.is_zero() {
            return;
        }
        registered.releases += 1;
        registered.lease.releases = registered.releases;
        registered.lease.amount = tokens(0);
        state.remaining.releases -= 1;
        state.unknown |= state.replicas[at].in_use() & !state.ledger.stored;
    }
}

impl State {
    /// The tokens of all leases.
    pub(super) fn leased(&self) -> u64 {
        let leases: [u64; REPLICAS] =
            self.ledger.of_replicas.map(|Registered { lease, .. }: Registered| lease.amount.tokens);
        leases.iter().sum()
    }
}
