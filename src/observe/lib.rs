//! The operators' view of the calls: metrics, logs and traces, readiness, and the records of calls.

pub mod batch_queue;
pub mod call_records;
pub mod descriptors;
pub mod metrics;
pub mod readiness;
pub mod telemetry;
