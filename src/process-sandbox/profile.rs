//! What a program gets.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A program and all it gets. Goes to the helper process over a descriptor, never in arguments or the environment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Profile {
    /// A name, which is looked up in the `PATH` of `env`, or a path.
    pub program: String,
    pub args: Vec<String>,
    /// All variables of the program.
    pub env: Vec<(String, String)>,
    /// Of the program. Without one, its home.
    pub cwd: Option<PathBuf>,
    pub folders: Vec<Folder>,
    /// The folder that the program has as its home. Without one, a home in memory.
    pub home: Option<PathBuf>,
    /// Folders that nothing may grant, and nothing that contains one of them: the state directory, the user's home.
    pub hidden: Vec<PathBuf>,
    pub network: Network,
    pub limits: Limits,
}

/// A folder or file of the host that the program sees at its own path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    pub path: PathBuf,
    pub write: bool,
}

/// Addresses that a program may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Its own loopback only.
    None,
    /// Public addresses.
    #[default]
    Public,
    /// Only these hosts.
    Hosts(Vec<String>),
}

/// What a program may use at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes and threads.
    pub processes: u64,
    /// Open descriptors of one process.
    pub open_files: u64,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of memory of all its processes, where there is a control group; else of the address space of one.
    pub memory_bytes: u64,
    /// Bytes in `/tmp` and in a home in memory, each.
    pub temporary_bytes: u64,
}
