//! Infrastructure for the layers above: HTTP clients, the store, the audit trail, authentication, metrics, logs and
//! traces. Each large dependency is used in one module here.

pub mod audit;
pub mod auth;
pub mod backup;
pub(crate) mod batch_queue;
pub mod blobs;
pub mod clock_difference;
pub mod core_dumps;
pub mod descriptors;
pub mod figures;
pub mod local_socket;
pub mod metrics;
pub mod open_id;
pub mod outbound;
pub mod pem;
pub mod readiness;
pub mod recent_calls;
pub mod remote_gateway;
pub mod replica;
pub mod sealing;
pub(crate) mod sse;
pub mod state_lock;
pub mod store;
pub mod telemetry;
pub mod temporary_folder;
