//! Untrusted Python, shut in: a fresh interpreter for each call, with no network and no file of the host.
//!
//! Two walls. WebAssembly is the first; the second is a worker process of our own binary with nothing
//! to reach: no network, no file but the interpreter's, a seccomp filter, resource limits. The gateway
//! keeps one worker a core ([`pool`]); a worker runs many calls as fibers on one thread ([`worker`]),
//! since resetting copy-on-write memory in threads of one process scales backwards.

#[cfg_attr(not(test), expect(dead_code, reason = "the pool that uses it comes next"))]
mod admission;
pub mod compiled;
pub mod door;
pub mod engine;
pub mod files;
pub mod frame;
pub mod guest;
pub mod interpreter;
pub mod mounts;
pub mod prepare;
pub mod private;
mod python;
mod walls;
pub mod wasi;
pub mod worker;
#[cfg_attr(not(test), expect(dead_code, reason = "the pool that uses it comes next"))]
mod worker_process;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::call::Deadline;
use crate::error::CallError;

/// A run under way: dropped when nobody waits for it, so that dropping it must stop the run.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<frame::Outcome, CallError>> + Send + 'a>>;

/// Whatever runs Python: the sandbox, or a stand-in for it.
pub trait RunPython: Send + Sync {
    /// Runs one job for a caller (its [`key`](crate::call::Caller::key)), after a wait for room that ends at
    /// `deadline`. Fails with `overloaded`, `warming_up` or `sandbox_trap`; how a program ends is no failure.
    fn run<'a>(&'a self, caller: &'a Arc<str>, job: frame::Job, deadline: Deadline) -> Running<'a>;
}
