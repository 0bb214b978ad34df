//! The operators' view of the calls: metrics, logs and traces, readiness, the most recent calls, and their figures.

pub mod batch_queue;
pub mod descriptors;
pub mod figures;
pub mod metrics;
pub mod readiness;
pub mod recent_calls;
pub mod telemetry;
