//! Money and tokens, as budgets count them.

use rust_decimal::Decimal;
use serde::Serialize;

/// Decimals of a USD stored in a price, so that sums stay exact up to 10^16 USD.
pub const PRICE_DECIMALS: u32 = 12;

/// Money and tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Amount {
    pub cost_usd: Decimal,
    pub tokens: u64,
}

impl Amount {
    pub const ZERO: Self = Self { cost_usd: Decimal::ZERO, tokens: 0 };

    pub fn is_zero(self) -> bool {
        self.tokens == 0 && self.cost_usd.is_zero()
    }

    /// The sum, saturating.
    pub fn plus(self, other: Self) -> Self {
        Self { cost_usd: add(self.cost_usd, other.cost_usd), tokens: self.tokens.saturating_add(other.tokens) }
    }

    /// The difference, saturating at zero.
    pub fn minus(self, other: Self) -> Self {
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
    pub fn max(self, other: Self) -> Self {
        Self { cost_usd: self.cost_usd.max(other.cost_usd), tokens: self.tokens.max(other.tokens) }
    }

    pub fn covers(self, other: Self) -> bool {
        self.cost_usd >= other.cost_usd && self.tokens >= other.tokens
    }
}

/// Most tools cost nothing: skip the addition.
pub fn add(sum: Decimal, more: Decimal) -> Decimal {
    if more.is_zero() { sum } else { sum.saturating_add(more) }
}
