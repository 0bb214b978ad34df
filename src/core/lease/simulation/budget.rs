//! Budgets: never overspent, in whatever order replicas are killed and messages are late; and spent to 95 % where
//! nothing goes wrong. Where an administrator releases the leases of lost replicas, only the amounts that these spent
//! and could not report are missing.

mod ledger;
mod replica;
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use rand::Rng;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use self::replica::Replica;
use super::{Clock, Conditions, Events, random_of};
use crate::amount::Amount;
use crate::lease::budget::{AccountLimit, LeaseAnswer, LeaseRequest, StoredLease};

/// A rule that a run breaks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    /// The ledger takes late requests.
    Sequence,
    /// A lease is not smaller for the settled amount.
    SpentTwice,
    /// It is smaller before the settled amount is in the ledger.
    SettledEarly,
    /// A killed replica's lease is free at once.
    FreedAtLoss,
    /// The leases of the other replicas do not count.
    OthersForgotten,
    /// A replica spends its lease however long it was cut off or suspended.
    SpentAfterRelease,
    /// A replica that comes back does not learn that its lease was released.
    ReleaseForgotten,
    /// The leases of live replicas are released.
    LiveReleased,
}

/// In cents.
const PRICES: [i64; 4] = [1, 3, 10, 40];

/// How long a replica waits for an answer.
const TIMEOUT: u64 = 200_000;

/// How often a replica looks whether to ask.
const TICK: u64 = 50_000;

/// How often it writes the spent amount.
const FLUSH: u64 = 1_000_000;

/// How often it says that it is there.
const HEARTBEAT: u64 = 3_000_000;

/// How often the administrator looks for lost replicas.
const RELEASE: u64 = 5_000_000;

const SECONDS: u64 = 30;

/// For a run with releases: replicas count as lost after a minute.
const SECONDS_WITH_RELEASES: u64 = 180;

#[derive(Clone, Copy)]
enum Event {
    Call { at: usize },
    Ended { at: usize, life: u64, price: Decimal, spent: Decimal },
    Tick { at: usize, life: u64 },
    Asked { at: usize, life: u64, request: LeaseRequest },
    Answered { at: usize, life: u64, request: LeaseRequest, answer: LeaseAnswer },
    Unanswered { at: usize, life: u64, sequence: i64 },
    Flushed { at: usize, life: u64, amount: Decimal },
    Saved { at: usize, life: u64, amount: Decimal },
    Unsaved { at: usize, life: u64 },
    Fate { at: usize },
    Beat { at: usize, life: u64 },
    Beaten { at: usize, life: u64, sent: Duration },
    Confirmed { at: usize, life: u64, sent: Duration, releases: i64 },
    Release,
    Resumed { at: usize, life: u64 },
    Burst { at: usize },
}

struct Run {
    conditions: Conditions,
    broken: Broken,
    limit: AccountLimit,
    events: Events<Event>,
    replicas: Vec<Replica>,
    // The ledger.
    spent: Decimal,
    leases: HashMap<(usize, u64), StoredLease>,
    /// When each replica was last heard of, and how often its lease was released.
    known: BTreeMap<(usize, u64), (u64, i64)>,
    /// All of them.
    leased: Decimal,
    /// The amount that was spent in truth, and the amount that calls may yet spend.
    really_spent: Decimal,
    really_held: Decimal,
    /// The amounts that killed replicas held, and the amounts that they had spent and not written.
    unsaid: HashMap<(usize, u64), Decimal>,
    /// The same of those whose lease was released: so much may be spent more.
    unknown: Decimal,
    overspent: Option<Decimal>,
    /// Microseconds between two calls of one replica.
    between: u64,
    /// More is asked for than the limit permits.
    is_short: bool,
}

fn money(cost_usd: Decimal) -> Amount {
    Amount { cost_usd, tokens: 0 }
}

impl Run {
    fn new(seed: u64, conditions: impl Fn(&mut rand::rngs::StdRng) -> Conditions, broken: Broken) -> Self {
        let mut random = random_of(seed);
        let conditions = conditions(&mut random);
        let limit = Decimal::new(random.random_range(1..=200) * i64::try_from(conditions.replicas).unwrap(), 1);
        let clocks: Vec<_> = (0..conditions.replicas).map(|_| Clock::of(&mut random, &conditions)).collect();
        let mut events = Events::new(random);
        for at in 0..conditions.replicas {
            let first = events.random.random_range(0..TICK);
            events.add(first, Event::Call { at });
            events.add(first, Event::Tick { at, life: 0 });
            events.add(first, Event::Fate { at });
            events.add(first + HEARTBEAT, Event::Beat { at, life: 0 });
        }
        events.add(RELEASE, Event::Release);
        let (now, seconds) = (events.now, seconds_of(&conditions));
        // At an average of 13 cents, twice the calls that the limit permits in the time, or a fifth for one that is not
        // reached.
        let demand = if events.random.random_bool(0.8) { 2.0 } else { 0.2 };
        let between = between(limit, conditions.replicas, demand, seconds);
        Self {
            conditions,
            broken,
            limit: AccountLimit { cost_usd: Some(limit), tokens: None },
            events,
            replicas: clocks.into_iter().map(|clock| Replica::new(0, clock, now)).collect(),
            spent: Decimal::ZERO,
            leases: HashMap::new(),
            known: (0..conditions.replicas).map(|at| ((at, 0), (now, 0))).collect(),
            leased: Decimal::ZERO,
            really_spent: Decimal::ZERO,
            really_held: Decimal::ZERO,
            unsaid: HashMap::new(),
            unknown: Decimal::ZERO,
            overspent: None,
            between,
            is_short: demand > 1.0,
        }
    }

    fn run(mut self) -> Self {
        let until = self.events.now + seconds_of(&self.conditions) * 1_000_000;
        while let Some(event) = self.events.next(until) {
            self.handle(event);
        }
        self
    }

    fn replica(&mut self, at: usize, life: u64) -> Option<&mut Replica> {
        Some(&mut self.replicas[at]).filter(|replica| replica.life == life)
    }

    fn now(&self, at: usize) -> Duration {
        self.replicas[at].clock.at(self.events.now)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Call { at } => {
                self.call_at_some_price(at);
                let next = self.events.random.random_range(0..=2 * self.between);
                self.events.add(next, Event::Call { at });
            }
            Event::Ended { at, life, price, spent } => {
                // The work is done and paid for, whether or not the replica lives.
                self.really_held -= price;
                self.really_spent += spent;
                if let Some(replica) = self.replica(at, life) {
                    replica.held -= price;
                    replica.outstanding += spent;
                }
            }
            Event::Tick { at, life } => {
                if self.replica(at, life).is_some() {
                    if !self.is_suspended(at) {
                        self.tick(at);
                    }
                    self.events.add(TICK, Event::Tick { at, life });
                }
            }
            Event::Fate { at } => {
                if self.events.random.random_bool(self.conditions.killed) {
                    self.kill(at);
                }
                if self.conditions.cut_off > 0.0 && self.events.random.random_bool(self.conditions.cut_off) {
                    self.cut_off(at);
                }
                self.events.add(1_000_000, Event::Fate { at });
            }
            Event::Resumed { at, life } => {
                let sent = self.now(at);
                self.send(at, Event::Beaten { at, life, sent });
                // Calls are there before anything else is done, or once the heartbeat is answered.
                let after = if self.events.random.random_bool(0.5) { 0 } else { 10_000 };
                self.events.add(after, Event::Burst { at });
            }
            Event::Burst { at } => (0..3).for_each(|_| self.call_at_some_price(at)),
            Event::Beat { .. } | Event::Beaten { .. } | Event::Confirmed { .. } => self.beat(event),
            Event::Release if self.conditions.cut_off > 0.0 => {
                self.release_lost();
                self.events.add(RELEASE, Event::Release);
            }
            Event::Release => {}
            exchange => self.exchange(exchange),
        }
    }

    fn cut_off(&mut self, at: usize) {
        let duration = self.events.random.random_range(0..120_000_000);
        let until = self.events.now + duration;
        self.replicas[at].cut_off_until = until;
        if self.events.random.random_bool(0.5) {
            self.replicas[at].suspended_until = until;
            self.events.add(duration, Event::Resumed { at, life: self.replicas[at].life });
        }
    }

    fn is_suspended(&self, at: usize) -> bool {
        self.events.now < self.replicas[at].suspended_until
    }

    fn beat(&mut self, event: Event) {
        match event {
            Event::Beat { at, life } => {
                let sent = self.now(at);
                if self.replica(at, life).is_some() {
                    // Lost while it is suspended, as it is cut off then.
                    self.send(at, Event::Beaten { at, life, sent });
                    self.events.add(HEARTBEAT, Event::Beat { at, life });
                }
            }
            Event::Beaten { at, life, sent } => {
                let (heard, releases) = self.known.entry((at, life)).or_default();
                *heard = self.events.now;
                let releases = if self.broken == Broken::ReleaseForgotten { 0 } else { *releases };
                self.send(at, Event::Confirmed { at, life, sent, releases });
            }
            Event::Confirmed { at, life, sent, releases } => {
                if let Some(replica) = self.replica(at, life) {
                    replica.lease.release(releases);
                    replica.heartbeat = replica.heartbeat.max(sent);
                }
            }
            _ => unreachable!(),
        }
    }

    /// Sends a message of or to a replica.
    fn send(&mut self, at: usize, event: Event) -> bool {
        let conditions = self.conditions;
        self.replicas[at].cut_off_until <= self.events.now && self.events.send(&conditions, event)
    }

    fn exchange(&mut self, event: Event) {
        match event {
            Event::Asked { at, life, request } => self.ask(at, life, request),
            Event::Answered { at, life, request, answer } => {
                let now = self.now(at);
                let Some(replica) = self.replica(at, life).filter(|replica| replica.lease.is_asking(request.sequence))
                else {
                    return;
                };
                replica.lease.answered(now, &request, answer);
                self.serve(at);
            }
            Event::Unanswered { at, life, sequence } => {
                let now = self.now(at);
                if let Some(replica) = self.replica(at, life).filter(|replica| replica.lease.is_asking(sequence)) {
                    replica.lease.unanswered(now);
                    replica.waiting.clear();
                }
            }
            Event::Flushed { at, life, amount } => {
                self.spent += amount;
                if !self.send(at, Event::Saved { at, life, amount }) {
                    self.events.add(TIMEOUT, Event::Unsaved { at, life });
                }
            }
            Event::Saved { at, life, amount } => {
                let broken = self.broken;
                if let Some(replica) = self.replica(at, life) {
                    replica.flushing = Decimal::ZERO;
                    if broken != Broken::SettledEarly {
                        replica.outstanding -= amount;
                    }
                    if ![Broken::SpentTwice, Broken::SettledEarly].contains(&broken) {
                        replica.lease.settle(money(amount));
                    }
                }
            }
            // It is written again: counted twice, if only the answer was lost.
            Event::Unsaved { at, life } => {
                if let Some(replica) = self.replica(at, life) {
                    replica.flushing = Decimal::ZERO;
                }
            }
            _ => unreachable!(),
        }
    }

    fn kill(&mut self, at: usize) {
        let life = self.replicas[at].life;
        if self.broken == Broken::FreedAtLoss {
            let freed = self.leases.remove(&(at, life)).unwrap_or_default();
            self.leased -= freed.amount.cost_usd;
        }
        self.unsaid.insert((at, life), self.replicas[at].in_use().cost_usd);
        let life = life + 1;
        self.replicas[at] = Replica::new(life, self.replicas[at].clock, self.events.now);
        self.known.insert((at, life), (self.events.now, 0));
        self.events.add(TICK, Event::Tick { at, life });
        self.events.add(HEARTBEAT, Event::Beat { at, life });
    }
}

/// Microseconds between two calls of a replica, of an average price, so that all ask for `demand` times the limit.
#[expect(clippy::cast_possible_truncation, reason = "of at most some seconds")]
fn between(limit: Decimal, replicas: usize, demand: f64, seconds: u64) -> u64 {
    let calls = (limit.to_f64().unwrap() / replicas as f64 * demand / 0.135).max(2.0);
    (seconds as f64 * 1e6 / calls) as u64
}

fn seconds_of(conditions: &Conditions) -> u64 {
    if conditions.cut_off > 0.0 { SECONDS_WITH_RELEASES } else { SECONDS }
}
