use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check::Findings;

/// The audit trail: one hash-chained line for each call.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// Default: `audit.jsonl` in the state directory.
    pub file: Option<PathBuf>,
    pub durability: Durability,
    /// Lines that may wait to be written; when the queue is full, calls are refused and no line is dropped.
    pub max_queued: usize,
    /// What happens when the trail is found damaged, moved or cut off, at the start or while the gateway runs.
    pub on_damage: OnDamage,
    /// Closed segments are removed this many days after they were closed; without it they are kept.
    pub retention_days: Option<u32>,
    /// The index has the calls and events of so many days.
    pub index_days: u32,
    /// Beyond so many megabytes the oldest calls leave the index.
    pub index_max_megabytes: u32,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self {
            file: None,
            durability: Durability::Relaxed,
            max_queued: 65_536,
            on_damage: OnDamage::NewChain,
            retention_days: None,
            index_days: 30,
            index_max_megabytes: 5_120,
        }
    }
}

impl AuditConfig {
    pub(super) fn check(&self, findings: &mut Findings) {
        findings.above_zero("audit.max_queued", self.max_queued);
        findings.above_zero_or_none("audit.retention_days", self.retention_days);
        findings.above_zero("audit.index_days", self.index_days);
        findings.above_zero("audit.index_max_megabytes", self.index_max_megabytes);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Lines reach the disk within 50 ms, and at shutdown.
    Relaxed,
    /// A reply waits until its line is on the disk (one fsync for all waiting lines).
    Strict,
}

/// What a line has of a call's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditArguments {
    /// The SHA-256 of their canonical JSON.
    Digest,
    /// That, and the arguments as the caller sent them, up to 16 KiB: secrets too.
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDamage {
    /// The gateway keeps what it finds aside, and continues in a new chain whose first line states what was found.
    NewChain,
    /// The gateway does not start; while it runs it refuses calls until the file is back.
    Refuse,
}
