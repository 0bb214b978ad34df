//! A replica: it makes calls within its lease, asks for more, has charges stored, and sends heartbeats.

use std::time::Duration;

use sekisho_core::lease::budget::{BudgetLease, LeaseAnswer, RELEASED_AFTER, may_spend};

use super::{Action, Budget, Calls, JUMP, Mistake, PRICE, Replica, STEP, STEPS, State, price, tokens};

impl Replica {
    pub(super) fn in_use(&self) -> Calls {
        self.held | self.outstanding
    }
}

impl State {
    /// The actions of a replica and of its messages that change something.
    pub(super) fn actions_of(&self, at: usize, actions: &mut Vec<Action>) {
        let (replica, remaining) = (&self.replicas[at], self.remaining);
        let messages = &replica.messages;
        let mut add = |is_possible: bool, action: Action| {
            if is_possible {
                actions.push(action);
            }
        };
        for number in 0..messages.requests.len() {
            add(true, Action::Decide(at, number));
        }
        add(messages.charge.is_some(), Action::Store(at));
        add(messages.beat.is_some(), Action::Beaten(at));
        add(remaining.releases > 0, Action::Release(at));
        if replica.is_dead {
            return;
        }
        add(remaining.calls > 0, Action::Call(at));
        add(replica.held != 0, Action::End(at, true));
        add(replica.held != 0, Action::End(at, false));
        add(remaining.requests > 0 && replica.asking.is_none(), Action::Ask(at));
        add(messages.answer.is_some(), Action::Answered(at));
        add(remaining.timeouts > 0 && replica.asking.is_some(), Action::Unanswered(at));
        add(replica.storing.is_none() && replica.outstanding != 0, Action::Charge(at));
        add(messages.stored.is_some(), Action::Stored(at));
        add(remaining.timeouts > 0 && replica.storing.is_some(), Action::NotStored(at));
        let is_beating = messages.beat == Some(replica.clock) || replica.heartbeat == replica.clock;
        add(remaining.heartbeats > 0 && !is_beating, Action::Beat(at));
        add(messages.beaten.is_some(), Action::Confirmed(at));
        add(remaining.crashes > 0, Action::Crash(at));
        add(remaining.jumps > 0, Action::Jump(at));
    }
}

impl Budget {
    pub(super) fn change(&self, state: &mut State, action: Action) {
        match action {
            Action::Call(at) => self.call(state, at),
            Action::End(at, was_sent) => self.end(state, at, was_sent),
            Action::Ask(at) => self.ask(state, at),
            Action::Decide(at, number) => self.decide(state, at, number),
            Action::Answered(at) => answered(state, at),
            Action::Unanswered(at) => self.unanswered(state, at),
            Action::Charge(at) => self.charge(state, at),
            Action::Store(at) => self.store(state, at),
            Action::Stored(at) => self.stored(state, at),
            Action::NotStored(at) => {
                state.remaining.timeouts -= 1;
                state.replicas[at].messages.stored = None;
                state.replicas[at].storing = None;
            }
            Action::Beat(at) => {
                state.remaining.heartbeats -= 1;
                state.replicas[at].messages.beat = Some(state.replicas[at].clock);
            }
            Action::Beaten(at) => self.beaten(state, at),
            Action::Confirmed(at) => self.confirmed(state, at),
            Action::Crash(at) => crash(state, at),
            Action::Release(at) => self.release(state, at),
            Action::Jump(at) => {
                state.remaining.jumps -= 1;
                state.replicas[at].has_jumped = true;
            }
            Action::Step => {
                state.remaining.steps -= 1;
                state.now += STEP;
                state.replicas.iter_mut().zip(STEPS).for_each(|(replica, step)| replica.clock += step);
            }
        }
    }

    /// `Leasing::reserve`: a call holds its price within the lease, or waits for more.
    fn call(&self, state: &mut State, at: usize) {
        let may_spend = self.may_spend(&state.replicas[at]);
        let call: Calls = 1 << state.started;
        let replica = &mut state.replicas[at];
        let in_use = tokens(price(replica.in_use()));
        if may_spend && replica.lease.free(in_use).covers(tokens(PRICE)) {
            replica.lease.use_up(replica.clock, tokens(PRICE));
            replica.held |= call;
            state.made |= call;
            state.started += 1;
            state.remaining.calls -= 1;
        } else if !replica.is_waiting && state.remaining.requests > 0 {
            replica.is_waiting = replica.lease.await_more(replica.clock, in_use, tokens(PRICE));
            self.ask(state, at);
        }
    }

    fn may_spend(&self, replica: &Replica) -> bool {
        let (mut now, heartbeat) = (replica.clock, replica.heartbeat);
        if self.has(Mistake::ClockJumps) && replica.has_jumped {
            now = now.saturating_sub(JUMP);
        }
        match self.mistake {
            Some(Mistake::NeverInvalid) => true,
            Some(Mistake::NoMargin) => now.saturating_sub(heartbeat) < RELEASED_AFTER,
            _ => may_spend(now, heartbeat),
        }
    }

    fn end(&self, state: &mut State, at: usize, was_sent: bool) {
        let replica = &mut state.replicas[at];
        let call = replica.held & replica.held.wrapping_neg();
        if was_sent {
            replica.outstanding |= call;
        } else {
            state.made &= !call;
        }
        if was_sent || !self.has(Mistake::NotRefunded) {
            replica.held &= !call;
        }
    }

    fn ask(&self, state: &mut State, at: usize) {
        let replica = &mut state.replicas[at];
        let in_use = tokens(price(replica.in_use()));
        if self.has(Mistake::NeverGivenBack) && !replica.is_waiting {
            return;
        }
        let Some(request) = replica.lease.request(replica.clock, in_use) else { return };
        state.remaining.requests -= 1;
        replica.asking = Some(request.sequence);
        replica.messages.requests.push(request);
    }

    /// No answer in time: the calls that wait are refused.
    fn unanswered(&self, state: &mut State, at: usize) {
        state.remaining.timeouts -= 1;
        let replica = &mut state.replicas[at];
        replica.asking = None;
        replica.is_waiting = false;
        replica.messages.answer = None;
        if let Some(request) = replica.messages.requests.last()
            && self.has(Mistake::UnansweredGranted)
        {
            let answer = LeaseAnswer { granted: request.wanted, releases: request.releases, ..LeaseAnswer::default() };
            replica.lease.answered(replica.clock, request, answer);
        } else {
            replica.lease.unanswered(replica.clock);
        }
    }

    /// `WriteBehind::save`: the charges of all calls that have ended.
    fn charge(&self, state: &mut State, at: usize) {
        let replica = &mut state.replicas[at];
        replica.storing = Some(replica.outstanding);
        replica.messages.charge = replica.storing;
        if self.has(Mistake::SettledBeforeStored) {
            replica.lease.settle(tokens(price(replica.outstanding)));
            replica.outstanding = 0;
        }
    }

    fn stored(&self, state: &mut State, at: usize) {
        let replica = &mut state.replicas[at];
        let Some(calls) = replica.messages.stored.take() else { return };
        replica.storing = None;
        replica.outstanding &= !calls;
        if !self.has(Mistake::NeverSettled) && !self.has(Mistake::SettledBeforeStored) {
            replica.lease.settle(tokens(price(calls)));
        }
    }

    /// `Budgets::confirm_leases`.
    fn confirmed(&self, state: &mut State, at: usize) {
        let replica = &mut state.replicas[at];
        let Some((sent, releases)) = replica.messages.beaten.take() else { return };
        let valid_from: Duration = if self.has(Mistake::ValidFromAnswer) { replica.clock } else { sent };
        replica.lease.release(releases);
        replica.heartbeat = replica.heartbeat.max(valid_from);
    }
}

/// `BudgetLeases::exchange`: the answer arrives in time. Calls that wait try again, at some time, or were given up.
fn answered(state: &mut State, at: usize) {
    let replica = &mut state.replicas[at];
    let Some((request, answer)) = replica.messages.answer.take() else { return };
    (replica.asking, replica.is_waiting) = (None, false);
    replica.lease.answered(replica.clock, &request, answer);
}

/// The process ends. Its calls were sent, and its messages may arrive.
fn crash(state: &mut State, at: usize) {
    state.remaining.crashes -= 1;
    let replica = &mut state.replicas[at];
    (replica.is_dead, replica.lease) = (true, BudgetLease::default());
    (replica.messages.answer, replica.messages.stored, replica.messages.beaten) = (None, None, None);
    (replica.asking, replica.storing, replica.is_waiting) = (None, None, false);
}
