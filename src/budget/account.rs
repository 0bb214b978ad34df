//! One scope's account: the amounts spent, held, and not written to the store yet.

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

    /// The sum, saturating.
    pub(super) fn plus(self, other: Self) -> Self {
        Self { cost_usd: add(self.cost_usd, other.cost_usd), tokens: self.tokens.saturating_add(other.tokens) }
    }

    /// The difference, saturating at zero.
    pub(super) fn minus(self, other: Self) -> Self {
        Self {
            cost_usd: if other.cost_usd.is_zero() {
                self.cost_usd
            } else {
                self.cost_usd.saturating_sub(other.cost_usd).max(Decimal::ZERO)
            },
            tokens: self.tokens.saturating_sub(other.tokens),
        }
    }

    /// The larger of each.
    fn max(self, other: Self) -> Self {
        Self { cost_usd: self.cost_usd.max(other.cost_usd), tokens: self.tokens.max(other.tokens) }
    }

    fn covers(self, other: Self) -> bool {
        self.cost_usd >= other.cost_usd && self.tokens >= other.tokens
    }
}

/// Most tools cost nothing: skip the addition.
fn add(sum: Decimal, more: Decimal) -> Decimal {
    if more.is_zero() { sum } else { sum.saturating_add(more) }
}

/// What counts against a scope's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Balance {
    pub(super) spent: Amount,
    pub(super) held: Amount,
}

impl Balance {
    /// What is left of a limit of money.
    pub(super) fn left_of_cost(&self, most: Decimal) -> Decimal {
        most.saturating_sub(add(self.spent.cost_usd, self.held.cost_usd)).max(Decimal::ZERO)
    }

    /// What is left of a limit of tokens.
    pub(super) fn left_of_tokens(&self, most: u64) -> u64 {
        most.saturating_sub(self.spent.tokens.saturating_add(self.held.tokens))
    }
}

#[derive(Debug)]
pub(super) struct Account {
    balance: Balance,
    /// The part of `spent` that is in the store; only a day's account is ever saved.
    saved: Amount,
    /// The part of `spent` that somebody stores together with what it was for.
    deferred: Amount,
    /// When a call last took or returned the account; only for named scopes.
    last_used: Instant,
}

impl Account {
    pub(super) fn new() -> Self {
        Self { balance: Balance::default(), saved: Amount::ZERO, deferred: Amount::ZERO, last_used: Instant::now() }
    }

    pub(super) fn balance(&self) -> &Balance {
        &self.balance
    }

    pub(super) fn last_used(&self) -> Instant {
        self.last_used
    }

    pub(super) fn touch(&mut self, now: Instant) {
        self.last_used = now;
    }

    pub(super) fn hold(&mut self, amount: Amount) {
        self.balance.held = self.balance.held.plus(amount);
    }

    /// Ends a hold: `spent` of it is spent, the rest is free again.
    pub(super) fn settle(&mut self, held: Amount, spent: Amount) {
        debug_assert!(self.balance.held.covers(held), "a hold of {held:?} is settled twice: {self:?}");
        self.balance.held = self.balance.held.minus(held);
        self.balance.spent = self.balance.spent.plus(spent);
    }

    /// What was spent and is not in the store, whoever stores it.
    pub(super) fn outstanding(&self) -> Amount {
        self.balance.spent.minus(self.saved)
    }

    /// What is to be written to the store in the background.
    pub(super) fn unsaved(&self) -> Amount {
        self.outstanding().minus(self.deferred)
    }

    /// Leaves a part of what was spent to somebody who stores it.
    pub(super) fn defer(&mut self, amount: Amount) {
        self.deferred = self.deferred.plus(amount);
    }

    /// That part is stored by now.
    pub(super) fn release(&mut self, amount: Amount) {
        self.deferred = self.deferred.minus(amount);
    }

    /// The store has added `added` and then had `total`, from this process or another. Of several that were added at once, an
    /// earlier one may be told later.
    pub(super) fn saved(&mut self, added: Amount, total: Amount) {
        let outstanding = self.outstanding().minus(added);
        self.saved = self.saved.max(total);
        self.balance.spent = self.saved.plus(outstanding);
    }
}
