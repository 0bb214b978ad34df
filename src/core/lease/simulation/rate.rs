//! Rates: over the bucket of one gateway, at most the refill during one slice is admitted; and 95 % of it where more is
//! asked for evenly and nothing goes wrong.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

use super::{Clock, Conditions, Events, random_of, seeds};
use crate::lease::rate::{Decision, RateLease, SLICE_TTL, TakeRequest, refill_nanos, take, wait};

/// A rule that a run breaks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    /// The ledger gives every requested amount.
    LedgerUnbounded,
    /// A returned amount is added twice.
    GivenBackTwice,
    /// Slices do not end.
    Endless,
    /// Their end is counted from the answer.
    CountedFromAnswer,
    /// Each request is for a second of the rate, and nothing is given back.
    WholeSlices,
}

/// The violations that the checks found.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Violation {
    /// More was admitted than the bound.
    TooMany,
    /// A call was admitted from a slice after its end.
    AfterItsEnd,
}

const TIMEOUT: u64 = 1_000_000;

const TICK: u64 = 50_000;

const SECONDS: u64 = 60;

#[derive(Clone, Copy)]
enum Event {
    Call { at: usize },
    Tick { at: usize, life: u64 },
    Taken { at: usize, life: u64, number: u64, request: TakeRequest },
    Answered { at: usize, life: u64, number: u64, request: TakeRequest, taken: i64, wait: Duration, taken_at: u64 },
    Unanswered { at: usize, life: u64, number: u64 },
    Fate { at: usize },
}

struct Replica {
    life: u64,
    clock: Clock,
    lease: RateLease,
    /// The number of the request that has no answer yet.
    asking: Option<u64>,
    waiting: u64,
    /// Its slices as the ledger knows them: calls, and when they were taken.
    slices: VecDeque<(u64, u64)>,
    /// Whether its callers are active now.
    is_active: bool,
}

struct Run {
    conditions: Conditions,
    broken: Broken,
    per_minute: NonZeroU32,
    events: Events<Event>,
    replicas: Vec<Replica>,
    requests: u64,
    /// The ledger's bucket, in nanoseconds.
    full_at: i64,
    /// The bucket that must never be empty: the bound.
    bound_full_at: f64,
    admitted: u64,
    violation: Option<Violation>,
    /// Microseconds between two calls of one replica.
    between: u64,
    has_pauses: bool,
}

impl Replica {
    fn new(life: u64, clock: Clock, per_minute: NonZeroU32) -> Self {
        let (lease, slices) = (RateLease::new(per_minute), VecDeque::new());
        Self { life, clock, lease, asking: None, waiting: 0, slices, is_active: true }
    }

    fn admit(&mut self, now: Duration, is_new: bool) -> (Decision, Option<u64>) {
        // Slices that ended leave both.
        let mut gone = self.slices.iter().map(|(calls, _)| calls).sum::<u64>() - self.lease.available(now);
        while gone > 0 {
            let (calls, taken_at) = self.slices.pop_front().unwrap();
            if calls > gone {
                self.slices.push_front((calls - gone, taken_at));
            }
            gone = gone.saturating_sub(calls);
        }
        let decision = self.lease.admit(now, is_new);
        if decision != Decision::Granted {
            return (decision, None);
        }
        let (calls, taken_at) = self.slices.pop_front().unwrap();
        if calls > 1 {
            self.slices.push_front((calls - 1, taken_at));
        }
        (decision, Some(taken_at))
    }
}

impl Run {
    /// `excess`: how much more than the limit is asked for.
    fn new(seed: u64, conditions: impl Fn(&mut StdRng) -> Conditions, (broken, has_pauses): (Broken, bool)) -> Self {
        let mut random = random_of(seed);
        let conditions = conditions(&mut random);
        let rates = [60, 600, 1_200, 6_000, 12_000];
        let per_minute = NonZeroU32::new(rates[random.random_range(0..rates.len())]).unwrap();
        let clocks: Vec<_> = (0..conditions.replicas).map(|_| Clock::of(&mut random, &conditions)).collect();
        let mut events = Events::new(random);
        // A full bucket and a minute's refill are twice the limit: three times are asked for.
        let between = SECONDS * 1_000_000 * conditions.replicas as u64 / u64::from(per_minute.get()) / 3;
        for at in 0..conditions.replicas {
            let first = events.random.random_range(0..=between.max(TICK));
            events.add(first, Event::Call { at });
            events.add(first.min(TICK), Event::Tick { at, life: 0 });
            events.add(first, Event::Fate { at });
        }
        Self {
            conditions,
            broken,
            per_minute,
            events,
            replicas: clocks.into_iter().map(|clock| Replica::new(0, clock, per_minute)).collect(),
            requests: 0,
            full_at: 0,
            bound_full_at: 0.0,
            admitted: 0,
            violation: None,
            between,
            has_pauses,
        }
    }

    fn run(mut self) -> Self {
        let until = self.events.now + SECONDS * 1_000_000;
        while let Some(event) = self.events.next(until) {
            self.handle(event);
        }
        self
    }

    fn now(&self, at: usize) -> Duration {
        self.replicas[at].clock.at(self.events.now)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Call { at } => {
                if self.replicas[at].is_active {
                    self.call(at, true);
                }
                let next = self.events.random.random_range(0..=2 * self.between);
                self.events.add(next, Event::Call { at });
            }
            Event::Tick { at, life } if self.replicas[at].life == life => {
                self.send_request(at);
                self.events.add(TICK, Event::Tick { at, life });
            }
            Event::Taken { at, life, number, request } => self.take(at, life, number, request),
            Event::Answered { at, life, number, request, taken, wait, taken_at } => {
                let now = self.now(at);
                let replica = &mut self.replicas[at];
                if replica.life != life || replica.asking != Some(number) {
                    return;
                }
                replica.asking = None;
                let sent = match self.broken {
                    Broken::Endless => Duration::from_secs(1_000_000),
                    Broken::CountedFromAnswer => now,
                    _ => request.sent,
                };
                replica.lease.answered(now, TakeRequest { sent, ..request }, taken, wait);
                if let Some(calls) = u64::try_from(taken).ok().filter(|calls| *calls > 0) {
                    replica.slices.push_back((calls, taken_at));
                }
                for _ in 0..std::mem::take(&mut self.replicas[at].waiting) {
                    self.call(at, false);
                }
            }
            Event::Unanswered { at, life, number } => {
                let replica = &mut self.replicas[at];
                if replica.life == life && replica.asking == Some(number) {
                    replica.asking = None;
                    replica.lease.unanswered();
                    replica.waiting = 0;
                }
            }
            Event::Fate { at } => {
                if self.has_pauses && self.events.random.random_bool(0.2) {
                    self.replicas[at].is_active ^= true;
                }
                if self.events.random.random_bool(self.conditions.killed) {
                    let Replica { life, clock, .. } = self.replicas[at];
                    self.replicas[at] = Replica::new(life + 1, clock, self.per_minute);
                    self.events.add(TICK, Event::Tick { at, life: life + 1 });
                }
                self.events.add(1_000_000, Event::Fate { at });
            }
            Event::Tick { .. } => {}
        }
    }

    fn call(&mut self, at: usize, is_new: bool) {
        let now = self.now(at);
        match self.replicas[at].admit(now, is_new) {
            (Decision::Granted, taken_at) => self.check(taken_at.unwrap()),
            (Decision::Refused(_), _) => {}
            (Decision::Ask, _) => {
                self.replicas[at].lease.await_call();
                self.replicas[at].waiting += 1;
                self.send_request(at);
            }
        }
    }

    /// Counts an admitted call, and checks it.
    fn check(&mut self, taken_at: u64) {
        self.admitted += 1;
        let now = self.events.now as f64 * 1_000.0;
        let refill = refill_nanos(self.per_minute) as f64;
        // Over the bucket: the refill during one slice, and one call for rounding.
        let most = f64::from(self.per_minute.get()) + SLICE_TTL.as_nanos() as f64 / refill + 1.0;
        self.bound_full_at = self.bound_full_at.max(now) + refill;
        if self.bound_full_at - now > most * refill {
            self.violation = Some(Violation::TooMany);
        }
        if Duration::from_micros(self.events.now - taken_at) > SLICE_TTL {
            self.violation = Some(Violation::AfterItsEnd);
        }
    }

    fn send_request(&mut self, at: usize) {
        let now = self.now(at);
        let replica = &mut self.replicas[at];
        let Some(mut request) = replica.lease.request(now) else { return };
        if self.broken == Broken::WholeSlices {
            request.wanted = match request.wanted > 0 {
                true => i64::from(self.per_minute.get() / 60).max(1),
                false => 0,
            };
        }
        self.requests += 1;
        let (life, number, conditions) = (replica.life, self.requests, self.conditions);
        replica.asking = Some(number);
        self.events.send(&conditions, Event::Taken { at, life, number, request });
        self.events.add(TIMEOUT, Event::Unanswered { at, life, number });
    }

    fn take(&mut self, at: usize, life: u64, number: u64, request: TakeRequest) {
        let now = i64::try_from(self.events.now * 1_000).unwrap();
        let wanted = if self.broken == Broken::GivenBackTwice && request.wanted < 0 { 2 } else { 1 } * request.wanted;
        let (mut taken, full_at) = take(self.full_at, now, self.per_minute, wanted);
        self.full_at = full_at;
        if self.broken == Broken::LedgerUnbounded {
            taken = request.wanted;
        }
        let (conditions, taken_at) = (self.conditions, self.events.now);
        let wait = wait(full_at, now, self.per_minute);
        self.events.send(&conditions, Event::Answered { at, life, number, request, taken, wait, taken_at });
    }
}

#[test]
fn a_rate_is_kept_whatever_is_lost() {
    for seed in seeds() {
        let run = Run::new(seed, Conditions::of, (Broken::Nothing, true)).run();
        assert_eq!(run.violation, None, "seed {seed}: {} a minute, {:?}", run.per_minute, run.conditions);
    }
}

#[test]
fn a_rate_of_which_more_is_asked_for_evenly_is_granted() {
    for seed in seeds() {
        let run = Run::new(seed, Conditions::fair, (Broken::Nothing, false)).run();
        assert_eq!(run.violation, None, "seed {seed}");
        let part = granted(&run);
        assert!(part >= 0.95, "seed {seed}: {part}, {} a minute, {:?}", run.per_minute, run.conditions);
    }
}

/// The part of a full bucket and a minute's refill that was granted.
fn granted(run: &Run) -> f64 {
    run.admitted as f64 / (2.0 * f64::from(run.per_minute.get()))
}

#[test]
fn a_broken_rule_is_found_in_some_run() {
    for (broken, expected) in [
        (Broken::LedgerUnbounded, Violation::TooMany),
        (Broken::GivenBackTwice, Violation::TooMany),
        (Broken::Endless, Violation::AfterItsEnd),
        (Broken::CountedFromAnswer, Violation::AfterItsEnd),
    ] {
        let found =
            (0..2_000).find(|seed| Run::new(*seed, Conditions::of, (broken, true)).run().violation == Some(expected));
        assert!(found.is_some(), "{broken:?} was not found");
    }
    let whole = |seed: &u64| granted(&Run::new(*seed, Conditions::fair, (Broken::WholeSlices, false)).run()) < 0.95;
    assert!((0..200).any(|seed| whole(&seed)), "slices that are too large are found by what is not granted");
}
