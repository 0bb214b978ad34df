//! The budgets that replicas lease: replicas, their ledger, and messages that are late or lost. The rules of ledger and replica are the
//! code of the product ([`decide`], [`BudgetLease`], [`may_spend`]); the model has the messages, the clocks, the calls, and the
//! statements of `store/budget_leases.rs`, `store/charges.rs` and `store/released_leases.rs`, each of which is a transaction.
//!
//! A partition is that no message is delivered while time passes. A replica that crashes is not started again: a new process is another
//! replica.

mod ledger;
mod mistakes;
mod recovery;
mod replica;

use std::time::Duration;

use sekisho_core::amount::Amount;
use sekisho_core::lease::budget::{AccountLimit, BudgetLease, LeaseAnswer, LeaseRequest, StoredLease};
#[cfg(doc)]
use sekisho_core::lease::budget::{decide, may_spend};
use stateright::{Model, Property};

pub use self::mistakes::{ALL, MISTAKES, Mistake};
use self::mistakes::{ALWAYS_FREED, NEVER_OVERSPENT, NEVER_TWICE};
use crate::REPLICAS;

/// Tokens that a call costs.
const PRICE: u64 = 10;

/// The step of the database's clock.
const STEP: Duration = Duration::from_secs(30);

/// The steps of the replicas' clocks meanwhile: 10 % slow, right, and 10 % fast.
const STEPS: [Duration; REPLICAS] = [Duration::from_secs(27), STEP, Duration::from_secs(33)];

/// How much later than its boot clock another clock of a replica is after a jump: a wall clock that was set back, or one that stopped
/// while the machine was suspended.
const JUMP: Duration = Duration::from_secs(60);

/// A set of calls, a bit for each.
pub type Calls = u8;

/// The faults and the work that may yet happen. They bound the states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Remaining {
    pub calls: u8,
    /// To the ledger.
    pub requests: u8,
    pub steps: u8,
    pub heartbeats: u8,
    pub crashes: u8,
    /// Requests and charges whose answer is waited for no longer.
    pub timeouts: u8,
    pub jumps: u8,
    pub releases: u8,
}

const NOTHING: Remaining =
    Remaining { calls: 0, requests: 0, steps: 0, heartbeats: 0, crashes: 0, timeouts: 0, jumps: 0, releases: 0 };

#[derive(Debug, Clone, Copy)]
pub struct Budget {
    pub limit: u64,
    pub bounds: Remaining,
    pub mistake: Option<Mistake>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The database's clock.
    now: Duration,
    ledger: Ledger,
    replicas: [Replica; REPLICAS],
    remaining: Remaining,
    /// Calls so far.
    started: u8,
    /// Those that were sent, or may yet be.
    made: Calls,
    /// Those that a replica had in use and the ledger did not know when the replica's leases were released: so many more may be made.
    unknown: Calls,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Ledger {
    spent: u64,
    /// The charges that were stored.
    stored: Calls,
    of_replicas: [Registered; REPLICAS],
}

/// A replica as the store has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Registered {
    lease: StoredLease,
    heartbeat: Duration,
    releases: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Replica {
    is_dead: bool,
    lease: BudgetLease,
    held: Calls,
    /// Made, and not known to be stored.
    outstanding: Calls,
    /// A part of these that is on its way.
    storing: Option<Calls>,
    /// A call waits for a lease.
    is_waiting: bool,
    /// The number of the request whose answer it waits for.
    asking: Option<i64>,
    clock: Duration,
    has_jumped: bool,
    /// When the last heartbeat was sent that was answered.
    heartbeat: Duration,
    messages: Messages,
}

/// The messages to and from a replica that were not delivered, of each sort. Those that are sent anew may take the place of others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Messages {
    /// In the order of their numbers.
    requests: Vec<LeaseRequest>,
    answer: Option<(LeaseRequest, LeaseAnswer)>,
    charge: Option<Calls>,
    stored: Option<Calls>,
    beat: Option<Duration>,
    /// When the heartbeat was sent, and how often the leases were released.
    beaten: Option<(Duration, i64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Call(usize),
    /// A call ends: it was sent, or not.
    End(usize, bool),
    /// A replica looks whether there is something to ask.
    Ask(usize),
    /// The request at this place arrives.
    Decide(usize, usize),
    Answered(usize),
    Unanswered(usize),
    Charge(usize),
    Store(usize),
    Stored(usize),
    NotStored(usize),
    Beat(usize),
    Beaten(usize),
    Confirmed(usize),
    Crash(usize),
    Release(usize),
    Jump(usize),
    Step,
}

fn tokens(tokens: u64) -> Amount {
    Amount { tokens, ..Amount::ZERO }
}

fn price(calls: Calls) -> u64 {
    PRICE * u64::from(calls.count_ones())
}

impl Budget {
    fn account(&self) -> AccountLimit {
        AccountLimit { cost_usd: None, tokens: Some(self.limit) }
    }

    fn has(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}

impl Model for Budget {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let ledger = Ledger { spent: 0, stored: 0, of_replicas: [Registered::default(); REPLICAS] };
        let (remaining, replicas) = (self.bounds, std::array::from_fn(|_| Replica::default()));
        vec![State { now: Duration::ZERO, ledger, replicas, remaining, started: 0, made: 0, unknown: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for at in 0..REPLICAS {
            state.actions_of(at, actions);
        }
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
            Property::always(NEVER_OVERSPENT, |model: &Self, state: &State| {
                price(state.made) <= model.limit + price(state.unknown)
            }),
            Property::always(NEVER_TWICE, |_, state: &State| state.ledger.spent == price(state.ledger.stored)),
            Property::always(ALWAYS_FREED, |model: &Self, state: &State| model.is_freed(state)),
        ]
    }
}
