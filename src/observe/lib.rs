//! The operators' view of the calls: metrics, logs and traces, readiness, the records of calls, and their figures.

pub mod batch_queue;
pub mod call_records;
pub mod descriptors;
pub mod figures;
pub mod metrics;
pub mod readiness;
pub mod telemetry;
