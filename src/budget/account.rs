//! One scope's account: what is spent, what is held, and what the store has yet to be told.

use rust_decimal::Decimal;
use serde::Serialize;
use tokio::time::Instant;

/// Money and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Amount {
    pub cost_usd: Decimal,
    pub tokens: u64,
}

impl Amount {
    pub(super) const ZERO: Self = Self { cost_usd: Decimal::ZERO, tokens: 0 };

    pub(super) fn is_zero(self) -> bool {
        self.tokens == 0 && self.cost_usd.is_zero()
    }

    /// The sum, ending at the largest value there is.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            cost_usd: self.cost_usd.saturating_add(other.cost_usd),
            tokens: self.tokens.saturating_add(other.tokens),
        }
    }

    /// The difference, ending at zero.
    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            cost_usd: self.cost_usd.saturating_sub(other.cost_usd).max(Decimal::ZERO),
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }

    fn covers(self, other: Self) -> bool {
        self.cost_usd >= other.cost_usd && self.tokens >= other.tokens
    }
}

/// What counts against a scope's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Balance {
    pub(super) spent: Amount,
    pub(super) held: Amount,
}

impl Balance {
    pub(super) fn used(self) -> Amount {
        self.spent.plus(self.held)
    }
}

#[derive(Debug)]
pub(super) struct Account {
    balance: Balance,
    /// The part of `spent` that the store does not know of; only a day's account is ever saved.
    unsaved: Amount,
    last_used: Instant,
}

impl Account {
    pub(super) fn new() -> Self {
        Self { balance: Balance::default(), unsaved: Amount::ZERO, last_used: Instant::now() }
    }

    pub(super) fn balance(&self) -> Balance {
        self.balance
    }

    pub(super) fn last_used(&self) -> Instant {
        self.last_used
    }

    pub(super) fn hold(&mut self, amount: Amount, now: Instant) {
        self.balance.held = self.balance.held.plus(amount);
        self.last_used = now;
    }

    /// Ends a hold: `spent` of it is gone, the rest is free again.
    pub(super) fn settle(&mut self, held: Amount, spent: Amount, now: Instant) {
        debug_assert!(self.balance.held.covers(held), "a hold of {held:?} is settled twice: {self:?}");
        self.balance.held = self.balance.held.minus(held);
        self.balance.spent = self.balance.spent.plus(spent);
        self.unsaved = self.unsaved.plus(spent);
        self.last_used = now;
    }

    pub(super) fn unsaved(&self) -> Amount {
        self.unsaved
    }

    /// The store has taken in `saved` and now knows of `stored` in all, be it from this process or another.
    pub(super) fn saved(&mut self, saved: Amount, stored: Amount) {
        self.unsaved = self.unsaved.minus(saved);
        self.balance.spent = stored.plus(self.unsaved);
    }
}
