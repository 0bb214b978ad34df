//! Replicas and their ledger in simulated time, without sockets: messages are delayed and lost, replicas are killed,
//! and their clocks are fast or slow. Each run has a seed. `LEASE_SEEDS` has how many; 200 by default.
//!
//! The required properties are checked against the true events, not against the beliefs of ledger or replicas. Runs
//! that break one rule each show that the checks find errors.

mod budget;
mod rate;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Seeds of a test, or of the variable `LEASE_SEEDS`.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("LEASE_SEEDS").map_or(200, |seeds| seeds.parse().unwrap())
}

/// The faults of a run, as chances of one message or of one second of a replica.
#[derive(Debug, Clone, Copy)]
struct Conditions {
    replicas: usize,
    /// Longest way of a message, in microseconds.
    max_delay: u64,
    lost: f64,
    /// A replica is killed, in each second.
    killed: f64,
    /// The same: messages from and to a replica are lost for a while, during which it may be suspended.
    cut_off: f64,
    /// How much faster or slower a replica's clock may run.
    drift: f64,
}

impl Conditions {
    /// Mostly few replicas, sometimes up to 1 000.
    fn of(random: &mut StdRng) -> Self {
        let most = if random.random_bool(0.03) { 1_000 } else { 30 };
        Self {
            replicas: random.random_range(3..=most),
            max_delay: *[2_000, 50_000, 4_000_000].get(random.random_range(0..3)).unwrap(),
            lost: *[0.0, 0.01, 0.2].get(random.random_range(0..3)).unwrap(),
            killed: *[0.0, 0.02, 0.2].get(random.random_range(0..3)).unwrap(),
            cut_off: 0.0,
            drift: 0.08,
        }
    }

    /// Nothing goes wrong.
    fn fair(random: &mut StdRng) -> Self {
        Self { max_delay: 2_000, lost: 0.0, killed: 0.0, drift: 0.0, ..Self::of(random) }
    }
}

/// Events in the order of their time, in microseconds.
struct Events<E> {
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<E>>,
    now: u64,
    random: StdRng,
}

impl<E> Events<E> {
    fn new(random: StdRng) -> Self {
        // Far from zero, as clocks are.
        Self { queue: BinaryHeap::new(), events: Vec::new(), now: 1_000_000_000, random }
    }

    fn add(&mut self, after: u64, event: E) {
        let number = self.events.len();
        self.events.push(Some(event));
        self.queue.push(Reverse((self.now + after, number as u64, number)));
    }

    /// Sends a message, which may be lost or late. False: it is lost.
    fn send(&mut self, conditions: &Conditions, event: E) -> bool {
        let arrives = !self.random.random_bool(conditions.lost);
        if arrives {
            // Most are quick, so that a late one may be overtaken.
            let max_delay = if self.random.random_bool(0.2) { conditions.max_delay } else { 2_000 };
            let delay = self.random.random_range(0..=max_delay);
            self.add(delay, event);
        }
        arrives
    }

    fn next(&mut self, until: u64) -> Option<E> {
        let Reverse((at, _, number)) = self.queue.pop()?;
        if at > until {
            return None;
        }
        self.now = at;
        self.events[number].take()
    }
}

/// A replica's clock.
#[derive(Debug, Clone, Copy)]
struct Clock {
    speed: f64,
}

impl Clock {
    fn of(random: &mut StdRng, conditions: &Conditions) -> Self {
        Self { speed: 1.0 + random.random_range(-1.0..=1.0) * conditions.drift }
    }

    fn at(self, micros: u64) -> Duration {
        Duration::from_micros(micros).mul_f64(self.speed)
    }
}

fn random_of(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}
