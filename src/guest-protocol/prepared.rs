//! A complete interpreter, as a worker gets it, and the fingerprints that name compiled files of workers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A complete interpreter, as a worker needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    pub kind: InterpreterKind,
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    /// The host's files that the guest sees, read-only.
    pub mounts: Vec<Mount>,
    /// Maximum elements of each table with which an instance begins.
    pub table_elements: u32,
    /// From the lightest to the richest.
    pub profiles: Vec<PreparedProfile>,
}

/// A file or folder of the host, and its path for the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub guest_path: String,
    pub host_path: PathBuf,
}

/// A compiled module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedProfile {
    pub name: String,
    pub compiled: PathBuf,
    /// A SHA-256 sum of the initial state of instances; `None` where that state is more than memory and globals, so
    /// that no session can be written down.
    pub snapshot: Option<String>,
}

/// How a module is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterpreterKind {
    /// Keeps running between entries through its export `turn`; can be snapshotted.
    Reactor,
    /// Runs once from `_start` to its exit.
    Command,
}

/// The dependencies of the compiled files of a worker: the version of wasmtime, the engine's settings, the processor's
/// features. The worker's program reports them, since only that program has an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineFingerprints {
    pub interpreter: String,
    pub components: String,
}
