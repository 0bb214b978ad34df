//! Budgets: the lease of a replica counts as spent at once, until the replica gives it back.
//!
//! The ledger has the spent amount of each account (`spent`), and the lease of each replica. A replica spends only
//! within its lease. An amount that it spent is first added to `spent`, and only then leaves its lease. Whatever is
//! lost or arrives late between the two, money is counted twice for a while, and never not at all.
//!
//! An administrator may release the leases of a lost replica ([`RELEASED_AFTER`]). A replica that was only cut off does
//! not spend its lease by then ([`may_spend`]), and the ledger does not take the lease for the replica's own again
//! ([`StoredLease::releases`]).

use std::time::Duration;

use rust_decimal::Decimal;

use super::use_window::UseWindow;
use crate::amount::{Amount, PRICE_DECIMALS};

/// The part of the remaining amount that one request leases at most, unless a single call needs more: 5 %.
const SLICE_DIVISOR: u64 = 20;

/// A replica that spends nothing for so long gives its lease back.
const IDLE: Duration = Duration::from_secs(5);

/// How long a replica may hold more in the ledger than it needs, because it settled a part meanwhile.
const MAX_UNSYNCED: Duration = Duration::from_millis(200);

/// How long after an answer that was too small the ledger is asked again, before calls are refused: other replicas may
/// have settled amounts that the ledger has as leased.
const CONFIRMATION: Duration = Duration::from_millis(300);

/// How long an answer that was too small is taken for the next one too.
const REFUSAL_TTL: Duration = Duration::from_secs(1);

/// The leases of a replica may be released so long after its last heartbeat, by the database's clock.
pub const RELEASED_AFTER: Duration = Duration::from_secs(60);

/// How long a replica spends its lease after it sent a heartbeat that was answered, by its own clock: 10 % less, since
/// clocks differ.
const LEASE_VALIDITY: Duration = Duration::from_secs(54);

/// Whether a replica may spend its lease, `heartbeat` being when it sent the last heartbeat that was answered. Both by
/// a clock that goes on while the machine is suspended.
pub fn may_spend(now: Duration, heartbeat: Duration) -> bool {
    now.saturating_sub(heartbeat) < LEASE_VALIDITY
}

/// The limits of an account. `None`: not limited, and not leased.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountLimit {
    pub cost_usd: Option<Decimal>,
    pub tokens: Option<u64>,
}

/// The request of a replica to the ledger of one account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseRequest {
    /// Grows with each request of a replica: an older one that arrives later changes nothing.
    pub sequence: i64,
    /// How often its leases were released, as it knows.
    pub releases: i64,
    /// The part of its lease that it keeps: the amount that it may yet spend, and the amount that it spent and did not
    /// settle. The rest is given back.
    pub kept: Amount,
    /// The amount that it wants beside that.
    pub wanted: Amount,
    /// The part of it without which a call that waits cannot run.
    pub needed: Amount,
}

/// The ledger's record of one replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct StoredLease {
    pub sequence: i64,
    /// How often the replica's leases were released: it has nothing of those that it got before.
    pub releases: i64,
    pub amount: Amount,
}

/// The answer of the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LeaseAnswer {
    /// Added to the amount that the replica kept.
    pub granted: Amount,
    /// The amount that was left for all before.
    pub left: Amount,
    /// How often the replica's leases were released. More than the replica knew: the amount that it kept is not its
    /// own, and nothing is granted.
    pub releases: i64,
}

/// Decides about a request. `spent`: the spent and settled amount; `others`: the leases of the other replicas. `None`:
/// the request is older than one that was decided.
pub fn decide(
    limit: AccountLimit,
    (spent, others): (Amount, Amount),
    own: StoredLease,
    request: &LeaseRequest,
) -> Option<(StoredLease, LeaseAnswer)> {
    if request.sequence <= own.sequence {
        return None;
    }
    if request.releases < own.releases {
        let stored = StoredLease { sequence: request.sequence, ..own };
        return Some((stored, LeaseAnswer { releases: own.releases, ..LeaseAnswer::default() }));
    }
    let used = spent.plus(others).plus(request.kept);
    let left = Amount {
        cost_usd: limit.cost_usd.map_or(Decimal::ZERO, |most| most.saturating_sub(used.cost_usd).max(Decimal::ZERO)),
        tokens: limit.tokens.map_or(0, |most| most.saturating_sub(used.tokens)),
    };
    let slice = Amount { cost_usd: left.cost_usd / Decimal::from(SLICE_DIVISOR), tokens: left.tokens / SLICE_DIVISOR };
    let granted = Amount {
        // A part of a price is of no use.
        cost_usd: if request.needed.cost_usd > left.cost_usd {
            Decimal::ZERO
        } else {
            request.needed.cost_usd.max(request.wanted.cost_usd.min(rounded_down(slice.cost_usd)))
        },
        tokens: left.tokens.min(request.needed.tokens.max(request.wanted.tokens.min(slice.tokens))),
    };
    let releases = request.releases;
    let stored = StoredLease { sequence: request.sequence, releases, amount: request.kept.plus(granted) };
    Some((stored, LeaseAnswer { granted, left, releases }))
}

/// The amount that is leased ahead of need: three seconds of recent use. A replica settles the spent amount every two
/// seconds and asks the ledger anew then, so a replica in use does not ask in between.
fn ahead_of(recent: Amount) -> Amount {
    recent.plus(recent).plus(recent)
}

/// To the decimals of a price.
fn rounded_down(cost_usd: Decimal) -> Decimal {
    cost_usd.trunc_with_scale(PRICE_DECIMALS)
}

/// A replica's lease of one account. `in_use` is the amount that its calls hold, and the amount that they spent and the
/// replica did not settle. All amounts are in the unit of the limit ([`AccountLimit::limited`]).
#[derive(Debug, Default)]
// A part of the states of the model in `tests/models`.
#[cfg_attr(feature = "test-support", derive(Clone, PartialEq, Eq, Hash))]
pub struct BudgetLease {
    /// Leased and not settled.
    amount: Amount,
    /// Its amount in the ledger.
    stored: Amount,
    /// A request had no answer: the ledger may have more.
    is_uncertain: bool,
    sequence: i64,
    /// How often it was released.
    releases: i64,
    is_asking: bool,
    /// The amounts of the calls that wait: of all together, and of the largest.
    waiting: Amount,
    needed: Amount,
    recent: UseWindow<Amount>,
    last_used: Duration,
    last_asked: Duration,
    /// Nothing is asked for ahead of need until then.
    next_ahead: Duration,
    /// The last answer was too small for a call, and nothing is asked for calls until then.
    is_short: bool,
    next_for_calls: Duration,
    /// When an answer was too small for a second time, and the amount that was left for all.
    refused: Option<(Duration, Amount)>,
}

impl AccountLimit {
    /// The part of an amount that is limited.
    pub fn limited(self, amount: Amount) -> Amount {
        Amount {
            cost_usd: if self.cost_usd.is_some() { amount.cost_usd } else { Decimal::ZERO },
            tokens: if self.tokens.is_some() { amount.tokens } else { 0 },
        }
    }
}

impl BudgetLease {
    /// The amount that calls may yet hold.
    pub fn free(&self, in_use: Amount) -> Amount {
        self.amount.minus(in_use)
    }

    /// A call holds so much.
    pub fn use_up(&mut self, now: Duration, more: Amount) {
        self.recent.add(now, more);
        self.last_used = now;
    }

    /// A call waits for so much. False: the ledger said just now that there is not as much.
    pub fn await_more(&mut self, now: Duration, in_use: Amount, more: Amount) -> bool {
        if let Some((_, left)) = self.refused.filter(|_| self.is_refused(now)) {
            let reachable = left.plus(self.free(in_use));
            if reachable.cost_usd < more.cost_usd || reachable.tokens == 0 && more.tokens > 0 {
                return false;
            }
        }
        self.waiting = self.waiting.plus(more);
        self.needed = self.needed.max(more);
        true
    }

    /// The ledger has added this amount to the spent one.
    pub fn settle(&mut self, amount: Amount) {
        self.amount = self.amount.minus(amount);
    }

    /// The request to the ledger now, if there is one.
    pub fn request(&mut self, now: Duration, in_use: Amount) -> Option<LeaseRequest> {
        if self.is_asking {
            return None;
        }
        // A model may cost more than was held for it, and a limit may be new.
        self.amount = self.amount.max(in_use);
        let free = self.free(in_use);
        let recent = self.recent.per_second(now);
        let is_waited_for = !self.waiting.is_zero() && now >= self.next_for_calls;
        let is_idle = now.saturating_sub(self.last_used) >= IDLE;
        let is_low = !is_idle && now >= self.next_ahead && !free.plus(free).covers(recent);
        let gives_back = self.waiting.is_zero() && (is_idle || self.is_refused(now));
        let is_stale =
            (self.is_uncertain || self.stored != self.amount) && now.saturating_sub(self.last_asked) >= MAX_UNSYNCED;
        if !(is_waited_for || is_low || gives_back && !free.is_zero() || is_stale) {
            return None;
        }
        if gives_back {
            self.amount = self.amount.minus(free);
        }
        let (mut wanted, mut needed) = (Amount::ZERO, Amount::ZERO);
        if is_waited_for {
            needed = std::mem::take(&mut self.needed).minus(free);
            wanted = std::mem::take(&mut self.waiting);
        }
        if !gives_back {
            wanted = wanted.plus(ahead_of(recent)).minus(free).max(needed);
        }
        self.sequence += 1;
        self.is_asking = true;
        self.last_asked = now;
        Some(LeaseRequest { sequence: self.sequence, releases: self.releases, kept: self.amount, wanted, needed })
    }

    /// The ledger answered the last request. Calls that wait try again.
    pub fn answered(&mut self, now: Duration, request: &LeaseRequest, answer: LeaseAnswer) {
        self.stop_asking();
        self.release(answer.releases);
        if request.releases < self.releases {
            self.is_uncertain = true;
            return;
        }
        self.is_uncertain = false;
        self.stored = request.kept.plus(answer.granted);
        self.amount = self.amount.plus(answer.granted);
        match (answer.granted.covers(request.needed), self.is_short) {
            (true, _) => (self.is_short, self.refused) = (false, None),
            (false, false) => (self.is_short, self.next_for_calls) = (true, now + CONFIRMATION),
            (false, true) => self.refused = Some((now, answer.left)),
        }
        self.next_ahead = if answer.granted.is_zero() { now + REFUSAL_TTL } else { now };
    }

    /// The leases were released so often in all. If that is more than was known, nothing is leased any more: the amount
    /// in use is asked for anew.
    pub fn release(&mut self, releases: i64) {
        if releases > self.releases {
            self.releases = releases;
            (self.amount, self.stored) = (Amount::ZERO, Amount::ZERO);
            self.is_uncertain = true;
        }
    }

    /// Whether that request waits for its answer.
    #[cfg(test)]
    pub(super) fn is_asking(&self, sequence: i64) -> bool {
        self.is_asking && self.sequence == sequence
    }

    /// No answer came: a granted amount, if any, is given back with the next request.
    pub fn unanswered(&mut self, now: Duration) {
        self.stop_asking();
        self.is_uncertain = true;
        self.next_ahead = now + REFUSAL_TTL;
    }

    fn stop_asking(&mut self) {
        self.is_asking = false;
        (self.waiting, self.needed) = (Amount::ZERO, Amount::ZERO);
    }

    fn is_refused(&self, now: Duration) -> bool {
        self.refused.is_some_and(|(when, _)| now.saturating_sub(when) < REFUSAL_TTL)
    }
}

#[cfg(test)]
mod tests;
