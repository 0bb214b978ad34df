//! How replicas divide a budget or a rate between them: each leases a slice ahead of need from a ledger that all share, and
//! grants calls from its slice without asking.
//!
//! The rules of the ledger ([`budget::decide`], [`rate::take`]) and of a replica ([`budget::BudgetLease`],
//! [`rate::RateLease`]) are here, with the clock passed in. The ledger itself is in the store. `simulation` runs them with
//! crashes, delays and lost answers.

pub mod budget;
pub mod rate;
#[cfg(test)]
mod simulation;
mod use_window;
