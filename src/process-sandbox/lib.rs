//! Runs a program of somebody else, such as an MCP server, with files, processes and a network of its own.
//!
//! The program of the gateway executes itself again as the helper process of each sandbox ([`run_if_helper`]), which sets the sandbox up:
//!
//! ```text
//! gateway ── helper: new namespaces ── process 1 of them: mounts, waits ── the program, without any right
//! ```
//!
//! The program ends with process 1, process 1 with the helper, and the helper with the gateway.

mod applied;
mod cgroup;
mod grants;
mod helper;
mod home;
mod links;
pub mod network;
pub mod packages;
mod profile;
mod start;

pub use applied::{Applied, Layer, Missing};
pub use grants::{Grant, Grants, Reason, Request};
pub use helper::{is_in_every_sandbox, run_if_helper};
pub use home::HomeError;
pub use profile::{Folder, Home, Limits, Network, Packages, Profile};
pub use start::{Guard, StartError, Started, is_available, start};
