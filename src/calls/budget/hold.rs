//! The reservation of a call, and its final charge.

use std::mem;
use std::sync::Arc;

use jiff::civil::Date;
use rust_decimal::Decimal;
use tokio::sync::Notify;

use super::account::{Amount, Balance};
use super::accounts::Accounts;
use super::rules::{RuleHold, RulesOfCall};
use super::scope::{Limits, MaxUsage, PerScope, ScopedAmount};
use super::{Budgets, Left};
use sekisho_core::call::{
    CallContext, Caller, ChargeSink, ChargedCall, ModelTurns, Reservation, ReservedTurn, UsedModel,
};
use sekisho_core::error::CallError;

/// Money and tokens reserved for one call in each of its scopes; refunded on drop.
#[derive(Debug)]
#[must_use = "a dropped hold is refunded"]
pub struct Hold {
    /// Empty once charged.
    accounts: Accounts,
    limits: Arc<Limits>,
    reserved: ScopedAmount,
    before: Left,
    /// The place where the charge is stored, if it is not written in the background.
    deferral: Option<Deferral>,
    /// The same amounts in the accounts of rules, if any matches the call.
    rules: Option<Box<RuleHold>>,
    /// Says that it was charged or refunded.
    freed: Arc<Notify>,
    day: Date,
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

#[derive(Debug)]
struct Deferral {
    sink: Arc<dyn ChargeSink>,
    caller: Arc<Caller>,
    /// The id of the charge, once its reservation is stored.
    reservation: Option<Arc<str>>,
}

impl Hold {
    pub(super) fn new(
        (accounts, freed): (Accounts, &Arc<Notify>),
        limits: Arc<Limits>,
        (reserved, before): (ScopedAmount, Left),
        (call, day): (&CallContext, Date),
    ) -> Self {
        let sink = call.charging.sink.clone();
        let deferral = sink.map(|sink| Deferral { sink, caller: Arc::clone(&call.caller), reservation: None });
        Self { accounts, limits, reserved, before, deferral, rules: None, freed: Arc::clone(freed), day }
    }

    /// Holds the reservation by these rules too.
    /// Errors: one of them has too little left; then the hold is to be dropped.
    pub(super) fn hold_by_rules(&mut self, rules: RulesOfCall, max_usage: &MaxUsage<'_>) -> Result<(), CallError> {
        self.rules = Some(Box::new(rules.hold(max_usage, self.reserved.of_day())?));
        Ok(())
    }

    /// The output's text is truncated to this many tokens, so that the reservation is an upper bound.
    pub fn max_text_tokens(&self) -> u64 {
        self.reserved.every.tokens
    }

    pub fn before(&self) -> Left {
        self.before
    }

    /// Stores the reserved money, before the call is sent, where its charge is not written in the background: if the
    /// process is killed, the amount stays stored. `turn`: the turn of a model.
    /// Errors: the store does not take it; the call must not be sent then.
    pub async fn store(&mut self, turn: Option<ReservedTurn>) -> Result<(), CallError> {
        let cost_usd = self.reserved.every.cost_usd;
        let Some(deferral) = self.deferral.as_mut().filter(|_| !cost_usd.is_zero()) else { return Ok(()) };
        // Known before: the hold may be dropped while it is stored.
        let id = Arc::clone(deferral.reservation.insert(deferral.sink.open()));
        let (caller, day) = (Arc::clone(&deferral.caller), self.day);
        deferral.sink.reserve(Reservation { id, caller, day, cost_usd, turn }).await
    }

    /// Turns the hold of a model's turn into a charge of the real usage, even where that is more than the hold: a model's
    /// answer must be paid. `budgets` and `caller`: those by whom it was reserved.
    pub fn charge_turn(mut self, budgets: &Budgets, caller: &Caller, model: &UsedModel, used: ModelTurns) {
        if self.deferral.is_none() {
            budgets.count_turn(self.day, &caller.key, model, used);
        }
        let every = Amount { cost_usd: super::rounded(used.cost_usd), tokens: 0 };
        self.spend(ScopedAmount { every, day_tokens: used.tokens() }, Some((model, used)));
    }

    /// Turns the hold into a charge of the tool's price and the tokens really used, which are never more than the
    /// reserved ones.
    pub fn charge(mut self, tokens: u64) -> Charge {
        let reserved = self.reserved.every;
        debug_assert!(tokens <= reserved.tokens, "{tokens} tokens charged, {} reserved", reserved.tokens);
        let used = Amount { tokens: tokens.min(reserved.tokens), ..reserved };
        let balances = self.spend(ScopedAmount { every: used, day_tokens: 0 }, None);
        let after = self.limits.left(&balances);
        Charge { cost_usd: used.cost_usd, tokens: used.tokens, before: self.before, after }
    }

    fn spend(&mut self, spent: ScopedAmount, turn: Option<(&UsedModel, ModelTurns)>) -> PerScope<Balance> {
        if let Some(mut rules) = self.rules.take() {
            rules.settle(spent.of_day());
        }
        let deferral = self.deferral.take();
        let balances = mem::take(&mut self.accounts).settle(self.reserved, spent, deferral.is_some());
        if let Some(Deferral { sink, caller, reservation }) = deferral
            && (reservation.is_some() || !spent.of_day().is_zero())
        {
            let Amount { cost_usd, tokens } = spent.of_day();
            sink.charged(ChargedCall {
                id: reservation.as_ref(),
                caller: &caller,
                day: self.day,
                cost_usd,
                tokens,
                turn,
            });
        }
        self.freed.notify_waiters();
        balances
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // After a charge, neither accounts nor the sink are left.
        self.spend(ScopedAmount::ZERO, None);
    }
}
