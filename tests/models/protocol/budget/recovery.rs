//! Whether the leases are freed once the faults end: from each state, in one order of events. No state is without a way out.

use std::time::Duration;

use super::{Action, Budget, Messages, NOTHING, PRICE, Remaining, State, price};
use crate::REPLICAS;

/// More than an idle replica keeps its lease, and than an answer that refuses is taken for the next one.
const A_WHILE: Duration = Duration::from_secs(10);

/// Rounds of a request, an answer and a charge until nothing changes.
const ROUNDS: usize = 3;

/// Until the leases of a replica without heartbeats can be released.
const A_MINUTE: u8 = 2;

impl Budget {
    /// Messages that are under way are lost, calls end, replicas that live are reached again, and the leases of the others are released.
    /// Then nothing is leased, and what was not spent can be leased by another replica.
    pub(super) fn is_freed(&self, state: &State) -> bool {
        let mut state = state.clone();
        let plenty = u8::MAX;
        state.remaining = Remaining {
            requests: plenty,
            heartbeats: plenty,
            timeouts: plenty,
            steps: plenty,
            releases: plenty,
            ..NOTHING
        };
        for at in 0..REPLICAS {
            self.reach_again(&mut state, at);
        }
        for _ in 0..ROUNDS {
            state.replicas.iter_mut().for_each(|replica| replica.clock += A_WHILE);
            (0..REPLICAS).for_each(|at| self.exchange(&mut state, at));
        }
        (0..A_MINUTE).for_each(|_| self.change(&mut state, Action::Step));
        for at in (0..REPLICAS).filter(|at| state.replicas[*at].is_dead).collect::<Vec<_>>() {
            self.change(&mut state, Action::Release(at));
        }
        state.leased() == 0 && self.can_be_spent(&state)
    }

    fn reach_again(&self, state: &mut State, at: usize) {
        state.replicas[at].messages = Messages::default();
        if state.replicas[at].is_dead {
            return;
        }
        if state.replicas[at].asking.is_some() {
            self.change(state, Action::Unanswered(at));
        }
        if state.replicas[at].storing.is_some() {
            self.change(state, Action::NotStored(at));
        }
        for _ in 0..state.replicas[at].held.count_ones() {
            self.change(state, Action::End(at, false));
        }
        self.change_by(state, [Action::Beat(at), Action::Beaten(at), Action::Confirmed(at)]);
    }

    fn change_by<const N: usize>(&self, state: &mut State, actions: [Action; N]) {
        actions.into_iter().for_each(|action| self.change(state, action));
    }

    /// A charge and a request, if there is something to store and to ask, with their answers.
    fn exchange(&self, state: &mut State, at: usize) {
        if state.replicas[at].is_dead {
            return;
        }
        if state.replicas[at].outstanding != 0 {
            self.change_by(state, [Action::Charge(at), Action::Store(at), Action::Stored(at)]);
        }
        self.change(state, Action::Ask(at));
        if !state.replicas[at].messages.requests.is_empty() {
            self.change_by(state, [Action::Decide(at, 0), Action::Answered(at)]);
        }
    }

    /// Each live replica can make a call, unless the rest is too small for one.
    fn can_be_spent(&self, state: &State) -> bool {
        let is_enough = price(state.ledger.stored) + PRICE <= self.limit;
        let mut live = (0..REPLICAS).filter(|at| !state.replicas[*at].is_dead);
        live.all(|at| {
            let mut state = state.clone();
            state.remaining.calls = 1;
            self.change_by(&mut state, [Action::Beat(at), Action::Beaten(at), Action::Confirmed(at), Action::Call(at)]);
            self.exchange(&mut state, at);
            self.change(&mut state, Action::Call(at));
            (state.remaining.calls == 0) == is_enough
        })
    }
}
