//! The audit trail.
use crate::config::Durability;
use crate::error::CallError;
use crate::record::CallRecord;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct Audit;

/// Room for one line, taken before the call runs, so that no line is ever dropped.
#[derive(Debug)]
#[must_use]
pub struct AuditSlot;

impl Audit {
    /// Opens (or goes on with) the trail; verifies its head first.
    pub fn open(_file: PathBuf, _durability: Durability, _max_queued: usize) -> Result<Self, String> {
        Ok(Self)
    }
    /// `overloaded` when the queue is full or the disk refuses.
    pub fn reserve(&self) -> Result<AuditSlot, CallError> {
        Ok(AuditSlot)
    }
    /// Writes what waits, syncs, and stops the writer.
    pub async fn close(&self) {}
}

/// Awaited before answering under `durability: strict`; ready at once otherwise.
#[derive(Debug)]
pub struct Durable;

impl AuditSlot {
    /// Never blocks and never fails; also called from Drop.
    pub fn write(self, _record: &CallRecord<'_>) -> Durable {
        Durable
    }
}

impl Durable {
    pub async fn wait(self) -> Result<(), CallError> {
        Ok(())
    }
}

/// What `sekisho audit verify` found.
#[derive(Debug)]
pub struct Verified {
    pub lines: u64,
}

/// Checks the chain from the first line to the head.
pub fn verify(_file: &Path) -> Result<Verified, String> {
    Ok(Verified { lines: 0 })
}
