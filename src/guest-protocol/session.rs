//! Messages to a worker about sessions: interpreters that live on between jobs.

use serde::{Deserialize, Serialize};

/// Identifies a session, over all workers.
pub type SessionId = u64;

/// The state of a session that holds more is not kept while its next program runs: to copy so much takes some 50 ms in new memory, and
/// 8 ms in memory that was used before. A lower bound would end sessions with tables of usual sizes, for 0.1 to 1 ms a MiB.
pub const MAX_STATE_BYTES: u64 = 64 << 20;

/// The part of a job in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSession {
    pub id: SessionId,
    pub entry: SessionEntry,
}

/// How a job enters its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionEntry {
    /// In a fresh interpreter.
    Begin,
    /// In the interpreter of the jobs before.
    Continue,
    /// There too, and instead of a program our own code lists the variables: as the result. The limit of its memory
    /// counts beside the memory of the session.
    Inspect,
}
