//! The use of an approval with the scope `once`: the changes of its state in `src/store/approvals/states.rs`, each of which is one
//! statement, and the steps of a call in `src/calls/approval/grant.rs` and `sweep.rs`. Its states are the product's
//! ([`ApprovalState`]).
//!
//! Each replica makes the call in one task at a time. A statement takes effect, and its answer may be lost.

mod call;
mod decision;
mod mistakes;

use sekisho_core::approval::ApprovalState;
use stateright::{Model, Property};

pub use self::mistakes::{ALL, MISTAKES, Mistake};
use self::mistakes::{ALWAYS_FREED, NEVER_DENIED, NEVER_LATE, NEVER_TWICE, ONLY_ITS_OWN};
use crate::REPLICAS;
use crate::replicas::Registered;

/// The step of the database's clock, in seconds: the interval of heartbeats.
const STEP: i16 = 3;

/// Seconds in which an approval is decided, and in which the call is made: short ones in place of an hour.
const TTL: i16 = 15;

const APPROVERS: usize = 2;

/// The faults and the work that may yet happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Remaining {
    pub steps: u8,
    pub decisions: u8,
    pub starts: u8,
    pub crashes: u8,
    pub partitions: u8,
    pub lost_answers: u8,
}

#[derive(Debug, Clone, Copy)]
pub struct Approval {
    pub bounds: Remaining,
    pub mistake: Option<Mistake>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    now: i16,
    row: Row,
    /// The revision and the state that an approver has read.
    approvers: [Option<(u8, ApprovalState)>; APPROVERS],
    replicas: [Replica; REPLICAS],
    remaining: Remaining,
    // The truth.
    sent: u8,
    was_denied: bool,
    has_started_late: bool,
    has_lost_other: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Row {
    state: ApprovalState,
    fence: u8,
    runner: usize,
    revision: u8,
    expires: i16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Replica {
    is_dead: bool,
    is_cut_off: bool,
    registered: Registered,
    task: Task,
}

/// The call in a replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
enum Task {
    #[default]
    Idle,
    /// It was read as approved.
    Approved,
    /// Its start is written, with this fence.
    Started(u8),
    /// It was sent, and the end is not written.
    Sent(Option<u8>),
    /// It was read as executing, with this fence, by a runner that is lost.
    Losing(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Read(usize),
    Decide(usize, bool),
    Stand(usize),
    /// With an answer, or without.
    Start(usize, bool),
    Send(usize),
    End(usize),
    Lose(usize),
    Sweep(usize),
    Expire,
    Crash(usize),
    CutOff(usize),
    Reach(usize),
    Step,
}

impl Replica {
    fn asks(&self) -> bool {
        !self.is_dead && !self.is_cut_off
    }
}

impl Approval {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn change(&self, state: &mut State, action: Action) {
        match action {
            Action::Read(at) => {
                state.remaining.decisions -= 1;
                state.approvers[at] = Some((state.row.revision, state.row.state));
            }
            Action::Decide(at, approves) => self.decide(state, at, approves),
            Action::Stand(at) => self.stand(state, at),
            Action::Start(at, is_answered) => self.start(state, at, is_answered),
            Action::Send(at) => self.send(state, at),
            Action::End(at) => self.end(state, at),
            Action::Lose(at) => self.lose(state, at),
            Action::Sweep(at) => self.sweep(state, at),
            Action::Expire => expire(state),
            Action::Crash(at) => {
                state.remaining.crashes -= 1;
                (state.replicas[at].is_dead, state.replicas[at].task) = (true, Task::Idle);
            }
            Action::CutOff(at) => {
                state.remaining.partitions -= 1;
                state.replicas[at].is_cut_off = true;
            }
            Action::Reach(at) => state.replicas[at].is_cut_off = false,
            Action::Step => {
                state.remaining.steps = state.remaining.steps.saturating_sub(1);
                state.now += STEP;
                let asking = state.replicas.iter_mut().filter(|replica| replica.asks());
                asking.for_each(|replica| replica.registered.beat(state.now));
            }
        }
    }

    /// From each state, once the faults end: calls end, the client asks again where the call runs by the record, each replica looks for
    /// lost calls, and what was not used expires.
    fn is_freed(&self, state: &State) -> bool {
        let mut state = state.clone();
        state.replicas.iter_mut().for_each(|replica| replica.is_cut_off = false);
        for _ in 0..2 * TTL / STEP {
            self.change(&mut state, Action::Step);
            for at in (0..REPLICAS).filter(|at| !state.replicas[*at].is_dead).collect::<Vec<_>>() {
                self.end(&mut state, at);
                self.lose(&mut state, at);
                state.replicas[at].task = Task::Idle;
                self.sweep(&mut state, at);
            }
        }
        let runner = state.row.runner;
        if state.replicas[runner].asks() {
            self.stand(&mut state, runner);
            self.lose(&mut state, runner);
        }
        expire(&mut state);
        !matches!(state.row.state, ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Executing)
    }
}

/// `ApprovalStore::expire`.
fn expire(state: &mut State) {
    let is_open = matches!(state.row.state, ApprovalState::Pending | ApprovalState::Approved);
    if is_open && state.row.expires <= state.now {
        (state.row.state, state.row.revision) = (ApprovalState::Expired, state.row.revision + 1);
    }
}

impl Model for Approval {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let row = Row { state: ApprovalState::Pending, fence: 0, runner: 0, revision: 0, expires: TTL };
        vec![State {
            now: 0,
            row,
            approvers: [None; APPROVERS],
            replicas: [Replica { registered: Registered::long_ago(), ..Replica::default() }; REPLICAS],
            remaining: self.bounds,
            sent: 0,
            was_denied: false,
            has_started_late: false,
            has_lost_other: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, read) in state.approvers.iter().enumerate() {
            match read {
                None if state.remaining.decisions == 0 => {}
                None => actions.push(Action::Read(at)),
                Some(_) => actions.extend([Action::Decide(at, true), Action::Decide(at, false)]),
            }
        }
        for (at, replica) in state.replicas.iter().enumerate().filter(|(_, replica)| !replica.is_dead) {
            let (asks, task, remaining) = (replica.asks(), replica.task, state.remaining);
            let starts = asks && task == Task::Approved && remaining.starts > 0;
            let possible = [
                (asks && task == Task::Idle, Action::Stand(at)),
                (starts, Action::Start(at, true)),
                (starts && remaining.lost_answers > 0, Action::Start(at, false)),
                (matches!(task, Task::Started(_)), Action::Send(at)),
                (asks && matches!(task, Task::Started(_) | Task::Sent(_)), Action::End(at)),
                (asks && matches!(task, Task::Losing(_)), Action::Lose(at)),
                (asks, Action::Sweep(at)),
                (remaining.crashes > 0, Action::Crash(at)),
                (remaining.partitions > 0 && !replica.is_cut_off, Action::CutOff(at)),
                (replica.is_cut_off, Action::Reach(at)),
            ];
            actions.extend(possible.into_iter().filter(|(is_possible, _)| *is_possible).map(|(_, action)| action));
        }
        actions.push(Action::Expire);
        if state.remaining.steps > 0 {
            actions.push(Action::Step);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.change(&mut state, action);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_TWICE, |_, state: &State| state.sent <= 1),
            Property::always(NEVER_DENIED, |_, state: &State| state.sent == 0 || !state.was_denied),
            Property::always(NEVER_LATE, |_, state: &State| !state.has_started_late),
            Property::always(ONLY_ITS_OWN, |_, state: &State| !state.has_lost_other),
            Property::always(ALWAYS_FREED, |model: &Self, state: &State| model.is_freed(state)),
        ]
    }
}
