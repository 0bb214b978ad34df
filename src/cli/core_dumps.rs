//! Dumps of the process's memory, which has keys, tokens and arguments of calls.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Keeps this process, and the programs that it starts, from writing core dumps, also where the limit would allow it.
pub fn forbid() {
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        tracing::warn!(%error, "the limit of core dumps cannot be lowered");
    }
}
