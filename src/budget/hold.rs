//! The reservation of a call, and its final charge.

use std::mem;
use std::sync::Arc;

use rust_decimal::Decimal;

use super::Left;
use super::account::Amount;
use super::accounts::Accounts;
use super::scope::Limits;

/// Money and tokens reserved for one call in each of its scopes; refunded on drop.
#[derive(Debug)]
#[must_use = "a dropped hold is refunded"]
pub struct Hold {
    /// Empty once charged.
    accounts: Accounts,
    limits: Arc<Limits>,
    reserved: Amount,
    before: Left,
}

/// The final cost of a call.
#[derive(Debug, Clone)]
pub struct Charge {
    pub cost_usd: Decimal,
    pub tokens: u64,
    pub before: Left,
    /// Other calls of the same scopes may have spent or held amounts meanwhile.
    pub after: Left,
}

impl Hold {
    pub(super) fn new(accounts: Accounts, limits: Arc<Limits>, reserved: Amount, before: Left) -> Self {
        Self { accounts, limits, reserved, before }
    }

    /// The output's text is truncated to this many tokens, so that the reservation is an upper bound.
    pub fn max_text_tokens(&self) -> u64 {
        self.reserved.tokens
    }

    pub fn before(&self) -> Left {
        self.before
    }

    /// Turns the hold into a charge of the real cost, even where that is more: a model's answer must be paid,
    /// whatever was expected.
    pub fn charge_cost(mut self, cost_usd: Decimal) {
        let spent = Amount { cost_usd: super::rounded(cost_usd), tokens: 0 };
        mem::take(&mut self.accounts).settle(self.reserved, spent);
    }

    /// Turns the hold into a charge of the tool's price and the tokens really used, which are never more than those
    /// reserved.
    pub fn charge(mut self, tokens: u64) -> Charge {
        debug_assert!(tokens <= self.reserved.tokens, "{tokens} tokens charged, {} reserved", self.reserved.tokens);
        let used = Amount { tokens: tokens.min(self.reserved.tokens), ..self.reserved };
        let balances = mem::take(&mut self.accounts).settle(self.reserved, used);
        let after = self.limits.left(&balances);
        Charge { cost_usd: used.cost_usd, tokens: used.tokens, before: self.before, after }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        mem::take(&mut self.accounts).settle(self.reserved, Amount::ZERO);
    }
}
