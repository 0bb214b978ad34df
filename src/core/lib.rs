//! The shared types: the caller, the call, its deadline, its result, and its errors. State and types only: no
//! configuration, no input or output.

#[cfg(not(target_os = "linux"))]
compile_error!("sekisho runs on Linux; on macOS and Windows run it in a container");

pub mod administration;
pub mod amount;
pub mod approval;
pub mod boot_clock;
pub mod bounded;
pub mod breaker_state;
pub mod call;
pub mod caller;
#[cfg(any(test, feature = "test-support"))]
pub mod checkout;
pub mod client_request;
pub mod coercion;
pub mod database_clock;
mod derives;
pub mod error;
pub mod failpoint;
#[cfg(any(test, feature = "test-support"))]
pub mod fuzz;
pub mod guard_finding;
pub mod headers;
pub mod host;
pub mod identity_assertion;
pub mod json;
pub mod lease;
pub mod mcp_headers;
pub mod nearest_name;
pub mod owner_only_files;
pub mod peer;
pub mod per_owner;
pub mod reading;
pub mod record;
pub mod redaction;
pub mod run_file;
pub mod session;
pub mod share;
#[cfg(any(test, feature = "test-support"))]
pub mod slack;
pub mod source_access;
pub mod spiffe_id;
pub mod text_direction;
pub mod thread_clock;
pub mod token_scopes;
pub mod tool_scope;
pub mod transform_finding;
#[cfg(any(test, feature = "test-support"))]
pub mod until;
pub mod visible_text;
