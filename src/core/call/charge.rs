//! The charge of a call, stored together with the other results of the call.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::civil::Date;
use rust_decimal::Decimal;

use crate::caller::Caller;
use crate::error::CallError;

/// Takes the charge of a call, to store it together with the other results of the call.
pub trait ChargeSink: fmt::Debug + Send + Sync {
    /// The id of the charge of a call that is about to be sent.
    fn open(&self) -> Arc<str>;

    /// Stores the maximum cost of a call before the call is sent. If the process is killed, the call is charged this
    /// amount.
    /// Errors: the store does not take it; the call must not be sent then.
    fn reserve(&self, reservation: Reservation) -> BoxFuture<'_, Result<(), CallError>>;

    /// Takes a charge: for a reservation, or for a call that costs no money and has no reservation.
    fn charged(&self, charged: ChargedCall<'_>);
}

/// The maximum cost of a call.
#[derive(Debug, Clone)]
pub struct Reservation {
    pub id: Arc<str>,
    pub caller: Arc<Caller>,
    /// In UTC.
    pub day: Date,
    pub cost_usd: Decimal,
    /// The turn of a model; `None` for a tool.
    pub turn: Option<ReservedTurn>,
}

/// The turn of a model for which money is reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedTurn {
    pub model: UsedModel,
    /// Estimated.
    pub prompt_tokens: u64,
    /// At most.
    pub completion_tokens: u64,
}

/// The model of a turn, and who used it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsedModel {
    /// The run's agent, which has the name of its profile, or the type of a sub-agent.
    pub agent: Arc<str>,
    /// As in profiles.
    pub provider: Arc<str>,
    /// The provider's id.
    pub model: Arc<str>,
}

/// Tokens and cost of turns of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelTurns {
    pub turns: u64,
    /// With the next two.
    pub prompt_tokens: u64,
    /// Read from the provider's cache.
    pub cached_tokens: u64,
    /// Written to the provider's cache.
    pub cache_write_tokens: u64,
    /// With the reasoning.
    pub completion_tokens: u64,
    /// Where the provider counts them.
    pub reasoning_tokens: u64,
    pub cost_usd: Decimal,
}

impl ModelTurns {
    /// The tokens of the prompts and the completions.
    pub fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            turns: self.turns.saturating_add(other.turns),
            prompt_tokens: self.prompt_tokens.saturating_add(other.prompt_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            completion_tokens: self.completion_tokens.saturating_add(other.completion_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            cost_usd: self.cost_usd.saturating_add(other.cost_usd),
        }
    }
}

/// The charge of a call: nothing, if its reservation is released.
#[derive(Debug, Clone, Copy)]
pub struct ChargedCall<'a> {
    /// The id of its reservation; `None`: none was stored.
    pub id: Option<&'a Arc<str>>,
    pub caller: &'a Caller,
    /// In UTC.
    pub day: Date,
    pub cost_usd: Decimal,
    pub tokens: u64,
    /// The turn of a model that it is for.
    pub turn: Option<(&'a UsedModel, ModelTurns)>,
}
