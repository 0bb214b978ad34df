//! Budgets.
use crate::call::CallContext;
use crate::config::BudgetConfig;
use crate::error::CallError;
use crate::registry::Tool;
use rust_decimal::Decimal;

#[derive(Debug)]
pub struct Budgets;

/// Money and tokens set aside for one call in every scope it belongs to; given back on drop.
#[derive(Debug)]
#[must_use]
pub struct Hold {
    max_text_tokens: u64,
    cost_usd: Decimal,
    before: Left,
}

/// What a call really cost, once and for all.
#[derive(Debug, Clone)]
pub struct Charge {
    pub cost_usd: Decimal,
    pub tokens: u64,
    pub before: Left,
    pub after: Left,
}

/// What is left in the narrowest scope of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Left {
    pub cost_usd: Decimal,
    pub tokens: u64,
}

impl Budgets {
    pub fn new(_config: &BudgetConfig) -> Self {
        Self
    }
    pub fn reconfigure(&self, _config: &BudgetConfig) {}
    pub fn reserve(&self, _call: &CallContext, _tool: &Tool) -> Result<Hold, CallError> {
        todo!()
    }
    pub fn evict_idle(&self) {}
    /// Money and tokens held right now over all scopes; zero when nothing runs.
    pub fn held(&self) -> Left {
        todo!()
    }
}

impl Hold {
    /// The text of the output is cut to this many tokens, so that the reservation is an upper bound.
    pub fn max_text_tokens(&self) -> u64 {
        self.max_text_tokens
    }
    pub fn before(&self) -> Left {
        self.before
    }
    /// Turns the hold into a charge of the tool's price and the tokens really used.
    pub fn charge(self, _tokens: u64) -> Charge {
        todo!()
    }
}
