//! Who works on a thing: the transactions of `src/store/work` on one row, the heartbeats of `src/store/replicas.rs`, and the loop that
//! renews a lease (`WorkStore::keep_renewing`). The conditions of the statements are written here as they are in SQL; time goes on in
//! seconds of the database's clock, and the replicas' clocks are 10 % slow, right, and 10 % fast.
//!
//! A process that is suspended, or a clock of the database that jumps, can have a former holder act until it next asks the database
//! ([`Replica::is_late`]). Its writes to the store never take effect, since each names the fence.

mod mistakes;
mod row;

use stateright::{Model, Property};

pub use self::mistakes::{ALL, MISTAKES, Mistake};
use self::mistakes::{ALWAYS_FREED, NO_FORMER_WRITE, ONE_ACTS};
use crate::REPLICAS;
use crate::replicas::{Registered, TENTHS};

/// Seconds of a lease of the kinds with the shortest one.
const LEASE: i16 = 15;

/// Tenths of a second after which a holder renews its lease, and after which it gives up (`GIVE_UP` in `src/store/work/hold.rs`).
const RENEWAL: u16 = 30;
const GIVE_UP: u16 = 80;

/// Seconds of a jump of the database's clock.
const JUMP: i16 = 20;

/// The faults and the work that may yet happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Remaining {
    pub seconds: u8,
    pub takings: u8,
    pub crashes: u8,
    pub partitions: u8,
    pub suspensions: u8,
    pub jumps: u8,
    /// Takings that take effect, and whose answer is lost.
    pub lost_answers: u8,
}

#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub bounds: Remaining,
    pub mistake: Option<Mistake>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The database's clock.
    now: i16,
    row: Row,
    replicas: [Replica; REPLICAS],
    remaining: Remaining,
    /// Seconds that passed: heartbeats do not follow a clock that jumps.
    passed: u8,
    has_former_write: bool,
}

/// The row of the thing in `work`. A holder is the number of a taking, as random as an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Row {
    holder: Option<u8>,
    replica: usize,
    fence: u8,
    held_until: i16,
    /// Takings so far.
    takings: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Replica {
    is_dead: bool,
    /// It does not reach the database.
    is_cut_off: bool,
    is_suspended: bool,
    /// It may act as a former holder until it next asks the database.
    is_late: bool,
    clock: u16,
    registered: Registered,
    /// It acts as the holder.
    lease: Option<Lease>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Lease {
    holder: u8,
    fence: u8,
    /// When the last renewal was asked for.
    renewed: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// With an answer, or without.
    Take(usize, bool),
    Write(usize),
    Release(usize),
    Crash(usize),
    CutOff(usize),
    Reach(usize),
    Suspend(usize),
    Resume(usize),
    /// The database's clock, forwards or backwards.
    Jump(bool),
    Second,
}

impl Replica {
    fn asks(&self) -> bool {
        !self.is_dead && !self.is_cut_off && !self.is_suspended
    }

    fn acts(&self) -> bool {
        !self.is_dead && !self.is_suspended && !self.is_late && self.lease.is_some()
    }
}

impl Work {
    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn change(&self, state: &mut State, action: Action) {
        match action {
            Action::Take(at, is_answered) => self.take(state, at, is_answered),
            Action::Write(at) => self.write(state, at),
            Action::Release(at) => self.release(state, at),
            Action::Crash(at) => {
                state.remaining.crashes -= 1;
                state.replicas[at].is_dead = true;
            }
            Action::CutOff(at) => {
                state.remaining.partitions -= 1;
                state.replicas[at].is_cut_off = true;
            }
            Action::Reach(at) => state.replicas[at].is_cut_off = false,
            Action::Suspend(at) => {
                state.remaining.suspensions -= 1;
                state.replicas[at].is_suspended = true;
                state.replicas[at].is_late = state.replicas[at].lease.is_some();
            }
            Action::Resume(at) => state.replicas[at].is_suspended = false,
            Action::Jump(is_forwards) => {
                state.remaining.jumps -= 1;
                state.now += if is_forwards { JUMP } else { -JUMP };
                state.replicas.iter_mut().for_each(|replica| replica.is_late = replica.lease.is_some());
            }
            Action::Second => self.second(state),
        }
    }

    fn second(&self, state: &mut State) {
        state.remaining.seconds = state.remaining.seconds.saturating_sub(1);
        state.passed = (state.passed + 1) % 3;
        state.now += 1;
        for (at, tenths) in TENTHS.into_iter().enumerate() {
            let replica = &mut state.replicas[at];
            replica.clock += tenths;
            if replica.asks() && usize::from(state.passed) == at % 3 {
                replica.registered.beat(state.now);
            }
            if !replica.is_dead && !replica.is_suspended {
                self.keep_renewing(state, at);
            }
        }
    }

    /// From each state, once the faults end: the holders that live release the thing, and after the end of any lease each replica
    /// can take it.
    fn is_freed(&self, state: &State) -> bool {
        let mut state = state.clone();
        state.replicas.iter_mut().for_each(|replica| (replica.is_cut_off, replica.is_suspended) = (false, false));
        for _ in 0..LEASE + JUMP + 1 {
            self.change(&mut state, Action::Second);
            (0..REPLICAS).for_each(|at| self.release(&mut state, at));
        }
        let mut live = (0..REPLICAS).filter(|at| !state.replicas[*at].is_dead);
        live.all(|at| {
            let mut state = state.clone();
            state.remaining.takings = 1;
            self.take(&mut state, at, true);
            state.replicas[at].lease.is_some()
        })
    }
}

impl Model for Work {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let row = Row { holder: None, replica: 0, fence: 0, held_until: 0, takings: 0 };
        let remaining = self.bounds;
        let replicas = [Replica { registered: Registered::long_ago(), ..Replica::default() }; REPLICAS];
        vec![State { now: 0, row, replicas, remaining, passed: 0, has_former_write: false }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, replica) in state.replicas.iter().enumerate().filter(|(_, replica)| !replica.is_dead) {
            let (remaining, has_lease) = (state.remaining, replica.lease.is_some());
            let takes = replica.asks() && !has_lease && remaining.takings > 0;
            let possible = [
                (takes, Action::Take(at, true)),
                (takes && remaining.lost_answers > 0, Action::Take(at, false)),
                (replica.asks() && has_lease, Action::Write(at)),
                (replica.asks() && has_lease, Action::Release(at)),
                (remaining.crashes > 0, Action::Crash(at)),
                (remaining.partitions > 0 && !replica.is_cut_off, Action::CutOff(at)),
                (replica.is_cut_off, Action::Reach(at)),
                (remaining.suspensions > 0 && !replica.is_suspended, Action::Suspend(at)),
                (replica.is_suspended, Action::Resume(at)),
            ];
            actions.extend(possible.into_iter().filter(|(is_possible, _)| *is_possible).map(|(_, action)| action));
        }
        if state.remaining.jumps > 0 {
            actions.extend([Action::Jump(true), Action::Jump(false)]);
        }
        if state.remaining.seconds > 0 {
            actions.push(Action::Second);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.change(&mut state, action);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_FORMER_WRITE, |_, state: &State| !state.has_former_write),
            Property::always(ONE_ACTS, |_, state: &State| {
                state.replicas.iter().filter(|replica| replica.acts()).count() <= 1
            }),
            Property::always(ALWAYS_FREED, |model: &Self, state: &State| model.is_freed(state)),
        ]
    }
}
