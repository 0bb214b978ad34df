//! Sekisho (関所), the checkpoint on an old road where every traveller was looked at once, properly,
//! and let through or not: a service through which AI agents run tools.
//!
//! Modules in reading order. [`pipeline`] is the page to read first: the life of a tool call.

// Faces: how calls come in.
pub mod agent;
pub mod cli;
pub mod server;

// The checkpoint: what every call passes.
pub mod breaker;
pub mod budget;
pub mod gateway;
pub mod limits;
pub mod pipeline;
pub mod policy;
pub mod registry;
pub mod session;

// Where tools come from.
pub mod sources;

// Mechanisms.
pub mod audit;
pub mod auth;
mod batch;
pub mod config;
pub mod json;
pub mod metrics;
pub mod other_gateway;
pub mod outbound;
pub mod readiness;
pub mod sandbox;
pub mod store;
pub mod telemetry;

// The words everybody uses, and what can go wrong with a call.
pub mod call;
pub mod error;
pub mod peer;
pub mod record;
pub mod redaction;

#[cfg(test)]
mod fuzz;
