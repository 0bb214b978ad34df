//! What the stages and sources stand on: HTTP to other services, the store, the audit trail, callers' identities, metrics,
//! logs and traces. Each large dependency has its one home here.

pub mod audit;
pub mod auth;
pub(crate) mod batch_queue;
pub mod metrics;
pub mod outbound;
pub mod readiness;
pub mod remote_gateway;
pub mod store;
pub mod telemetry;
