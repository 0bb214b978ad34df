//! A replica: it makes calls from its lease, asks for more, and writes the spent amount.

use std::time::Duration;

use rand::Rng;
use rust_decimal::Decimal;

use super::{Broken, Event, FLUSH, PRICES, Run, TIMEOUT, money};
use crate::amount::Amount;
use crate::lease::budget::{BudgetLease, may_spend};
use crate::lease::simulation::Clock;

/// One process. A restart is another one, without the state of the first.
pub(super) struct Replica {
    pub(super) life: u64,
    pub(super) clock: Clock,
    pub(super) lease: BudgetLease,
    /// When the last heartbeat was sent that was answered.
    pub(super) heartbeat: Duration,
    /// Its messages are lost until then.
    pub(super) cut_off_until: u64,
    /// Until then it does nothing.
    pub(super) suspended_until: u64,
    pub(super) held: Decimal,
    /// Spent and not known to be in the ledger.
    pub(super) outstanding: Decimal,
    /// The part of that which is on its way.
    pub(super) flushing: Decimal,
    next_flush: u64,
    pub(super) waiting: Vec<Decimal>,
}

impl Replica {
    pub(super) fn new(life: u64, clock: Clock, now: u64) -> Self {
        Self {
            life,
            clock,
            lease: BudgetLease::default(),
            heartbeat: clock.at(now),
            cut_off_until: 0,
            suspended_until: 0,
            held: Decimal::ZERO,
            outstanding: Decimal::ZERO,
            flushing: Decimal::ZERO,
            next_flush: 0,
            waiting: Vec::new(),
        }
    }

    pub(super) fn in_use(&self) -> Amount {
        money(self.held + self.outstanding)
    }
}

impl Run {
    pub(super) fn call_at_some_price(&mut self, at: usize) {
        let price = Decimal::new(PRICES[self.events.random.random_range(0..PRICES.len())], 2);
        if !self.is_suspended(at) {
            self.call(at, price);
        }
    }

    fn call(&mut self, at: usize, price: Decimal) {
        let now = self.now(at);
        let is_fenced = self.broken != Broken::SpentAfterRelease && !may_spend(now, self.replicas[at].heartbeat);
        let replica = &mut self.replicas[at];
        let in_use = replica.in_use();
        if !is_fenced && replica.lease.free(in_use).covers(money(price)) {
            replica.lease.use_up(now, money(price));
            replica.held += price;
            self.really_held += price;
            let (life, most) = (replica.life, self.limit.cost_usd.unwrap() + self.unknown);
            let total = self.really_spent + self.really_held;
            if total > most {
                self.overspent = Some(total - most);
            }
            let spent = if self.events.random.random_bool(0.9) { price } else { Decimal::ZERO };
            let duration = self.events.random.random_range(0..300_000);
            self.events.add(duration, Event::Ended { at, life, price, spent });
        } else if replica.lease.await_more(now, in_use, money(price)) {
            replica.waiting.push(price);
            self.send_request(at);
        }
    }

    pub(super) fn serve(&mut self, at: usize) {
        for price in std::mem::take(&mut self.replicas[at].waiting) {
            self.call(at, price);
        }
    }

    pub(super) fn tick(&mut self, at: usize) {
        let broken = self.broken;
        let replica = &mut self.replicas[at];
        let (life, amount) = (replica.life, replica.outstanding);
        if replica.flushing.is_zero() && !amount.is_zero() && self.events.now >= replica.next_flush {
            replica.flushing = amount;
            replica.next_flush = self.events.now + FLUSH;
            if broken == Broken::SettledEarly {
                replica.lease.settle(money(amount));
                replica.outstanding -= amount;
            }
            if !self.send(at, Event::Flushed { at, life, amount }) {
                self.events.add(TIMEOUT, Event::Unsaved { at, life });
            }
        }
        self.send_request(at);
    }

    /// Asks the ledger, if there is something to ask.
    fn send_request(&mut self, at: usize) {
        let now = self.now(at);
        let replica = &mut self.replicas[at];
        let in_use = replica.in_use();
        let Some(request) = replica.lease.request(now, in_use) else { return };
        let life = replica.life;
        self.send(at, Event::Asked { at, life, request });
        self.events.add(TIMEOUT, Event::Unanswered { at, life, sequence: request.sequence });
    }
}
