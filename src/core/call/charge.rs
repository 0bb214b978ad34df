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
    ///
    /// # Errors
    /// The store does not take it; the call must not be sent then.
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
    /// The run's agent, or the type of a sub-agent.
    pub agent: Arc<str>,
    /// The provider's id.
    pub model: String,
    /// Estimated.
    pub prompt_tokens: u64,
    /// At most.
    pub completion_tokens: u64,
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
}
