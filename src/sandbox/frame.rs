//! What the gateway and a worker say to each other: length-prefixed frames over a socket pair, which
//! is the worker's standard input. Neither end believes the other's lengths.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::prepare::Prepared;

/// Tells the calls of one worker apart.
pub type JobId = u64;

/// From the gateway to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// First, and once: what the worker will run. Answered with [`FromWorker::Ready`].
    Load(Box<Load>),
    Run(Box<Job>),
    /// Nobody waits for the job any more: it is stopped at once and answered with [`End::Cancelled`],
    /// which says that its memory is free again.
    Cancel(JobId),
}

/// From a worker to the gateway.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// The interpreter is loaded and the walls are up; names walls that this kernel cannot build.
    Ready {
        missing_walls: Vec<String>,
    },
    Done(JobId, Box<Outcome>),
}

/// What a worker needs before its walls go up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    pub interpreter: Prepared,
    /// Runs that this worker may be given at once. Each costs address space, not memory.
    pub instances: u32,
    /// The operator's data files, which every run finds under `/input`, read-only.
    pub data_files: Vec<GuestFile>,
}

/// One run of a fresh interpreter.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    /// Name of a profile of the worker's interpreter.
    pub profile: String,
    pub code: String,
    pub stdin: Vec<u8>,
    /// Stand under `/input`, read-only.
    pub files: Vec<GuestFile>,
    pub limits: JobLimits,
}

/// A file of the guest: its path counts from `/input` on the way in, from `/output` on the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFile {
    pub path: String,
    pub content: Vec<u8>,
}

/// What one run may use. Each is enforced by the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobLimits {
    /// From the moment the worker takes the job up.
    pub wall_time: Duration,
    /// Linear memory, whole.
    pub memory_bytes: u64,
    /// Kept of each of stdout and stderr; the rest is counted and dropped.
    pub stream_bytes: u64,
    /// The encoded result, and all images together.
    pub result_bytes: u64,
    /// All files together, holes not counted.
    pub file_bytes: u64,
    /// Files and folders.
    pub max_files: u32,
    pub max_open_files: u32,
    /// Drawn from the host's random source.
    pub random_bytes: u64,
    /// Calls out of the guest through `host.call`.
    pub host_calls: u32,
}

/// How a run ended, and what it left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub end: End,
    /// The last expression as JSON text, as the guest's own encoder gave it through the door.
    pub result: Option<String>,
    pub stdout: Captured,
    pub stderr: Captured,
    pub files: Vec<GuestFile>,
    /// Figures left open, PNG.
    pub images: Vec<Vec<u8>>,
    pub usage: Usage,
}

/// Why the run is over, as the host saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum End {
    /// The program ran to its end or called `exit`.
    Exited {
        code: i32,
    },
    /// An exception reached the top. Line and column count from one, in the caller's source.
    Exception {
        kind: String,
        message: String,
        traceback: String,
        line: Option<u32>,
        column: Option<u32>,
    },
    Timeout,
    /// The host refused to grow the memory, and the program did not recover.
    Memory,
    /// A limit on output, files, random bytes or host calls was hit and ended the run; names it.
    Output(String),
    /// The interpreter broke: a trap, a stack overflow, a fault of the guest's runtime.
    Trap(String),
    Cancelled,
}

/// A stream's beginning, and how long it was in all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    pub bytes: Vec<u8>,
    pub total: u64,
}

/// What the run used, measured by the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub wall_time: Duration,
    pub cpu_time: Duration,
    pub peak_memory_bytes: u64,
}
