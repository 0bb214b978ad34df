//! The messages between gateway and worker: length-prefixed frames over a socket pair, which is the worker's standard
//! input. Neither side trusts the other's lengths.

mod component;
mod image;
mod module;
mod prepared;
pub mod read_recorder;
mod session;
mod tools;
mod whole_bytes;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};

pub use self::component::{
    ComponentCall, ComponentFolder, ComponentGrants, ComponentLoad, ComponentsLoad, Examination, Examined, Export,
    FoundExport, HttpFailure, HttpRequest, HttpResponse, MAX_FOLDER_ENTRIES, MAX_HTTP_BODY_BYTES, ModuleKind,
    max_copied_bytes,
};
pub use self::image::{DamagedImageError, MAX_PART_BYTES, PART_BYTES, Pieces};
pub use self::image::{ImageCursor, RequestId, SessionReply, SessionRequest};
pub use self::module::{FunctionCall, ModuleImageId, ModuleImageMessage, ModuleTask, Tried};
pub use self::prepared::{EngineFingerprints, InterpreterKind, Mount, Prepared, PreparedProfile};
pub use self::session::{JobSession, MAX_STATE_BYTES, SessionEntry, SessionId};
pub use self::tools::{
    MAX_HELD_REPLY_BYTES, MAX_NESTING, MAX_OPEN_REQUESTS, MAX_VALUE_BYTES, ReadSoFar, ReadStanding, ToolQuestion,
    ToolReply, ToolRequest,
};

use sekisho_core::reading::Reading;

/// Identifies the calls of one worker.
pub type JobId = u64;

/// From the gateway to a worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// First, and once: the interpreter or module that the worker will run. The reply is [`FromWorker::Ready`].
    Load(Box<Load>),
    /// In place of [`Load`](Self::Load): components and commands.
    LoadComponents(Box<ComponentsLoad>),
    /// In place of both: a file that is examined. The reply is [`FromWorker::Examined`], after which the process ends.
    Examine(Box<Examination>),
    Run(Box<Job>),
    /// A call of a component or a command; the reply is the reply of a [`Run`](Self::Run).
    Call(Box<ComponentCall>),
    /// The client disconnected: the worker stops the job at once and replies with [`End::Cancelled`], after which its
    /// memory is free again.
    Cancel(JobId),
    /// There is memory for the job again: the reply to [`FromWorker::Waking`].
    Continue(JobId),
    /// The reply to a [`FromWorker::Ask`] of the job.
    Answer(JobId, Box<ToolReply>),
    /// Ends a session between its calls, or gives up the part of it that is restored; without a reply, also where there
    /// is none.
    EndSession(SessionId),
    /// The reply is a [`FromWorker::Session`].
    Session(RequestId, Box<SessionRequest>),
    ModuleImage(Box<ModuleImageMessage>),
}

/// From a worker to the gateway.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// The program is loaded, and the process is hardened.
    Ready(Box<Greeting>),
    /// The contents of a file, or why it cannot be used.
    Examined(Box<Result<Examined, String>>),
    Done(JobId, Box<Outcome>),
    /// The job sleeps. Until it wakes, it uses these bytes of linear memory and no more.
    Sleeping(JobId, u64),
    /// The job has slept, and waits for [`ToWorker::Continue`].
    Waking(JobId),
    /// The job's program asks something of tools.
    Ask(JobId, Box<ToolRequest>),
    /// The reply to a [`ToWorker::Session`].
    Session(RequestId, Box<SessionReply>),
}

/// The first message of a worker.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Greeting {
    /// The protections that this kernel does not support.
    pub missing_protections: Vec<String>,
    /// The ids of components that cannot be loaded, and why.
    pub unloadable: Vec<(String, String)>,
}

/// The data that a worker needs before it is hardened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Load {
    pub interpreter: Prepared,
    /// Maximum number of runs and sessions at once in this worker. Each costs address space, not memory.
    pub instances: u32,
    /// The operator's data files, which every run finds under `/input`, read-only.
    pub data_files: Vec<GuestFile>,
    /// The packages that modules see besides the interpreter's files, read-only.
    pub packages: Vec<Mount>,
}

/// One run of an interpreter: of a fresh one, or of a session.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    /// Name of a profile of the worker's interpreter.
    pub profile: String,
    pub code: String,
    /// The use of the code, if it is no program.
    pub module: Option<ModuleTask>,
    /// Identifies the packages with which the module was read. Only for the gateway.
    #[serde(skip)]
    pub packages: Arc<str>,
    #[serde(with = "whole_bytes")]
    pub stdin: Vec<u8>,
    /// Placed under `/input`, read-only.
    pub files: Vec<GuestFile>,
    pub limits: JobLimits,
    /// The session that it is a call of.
    pub session: Option<JobSession>,
    /// For a resumed run: the values that the program reads again.
    pub past: Option<Vec<Reading>>,
    /// Whether the effects of the program are made together at its end, once a person has approved them. Only for the gateway.
    #[serde(skip)]
    pub proposes: bool,
    /// Whether its outcome has the values that it read after its last request: where its run is recorded, or played again.
    pub reads_to_end: bool,
    /// For a call of a function: the image of its module. Where the worker has it, the module is not executed again.
    pub image: Option<ModuleImageId>,
}

/// The work of a worker.
#[derive(Debug)]
pub enum Work {
    Program(Box<Job>),
    Component(Box<ComponentCall>),
}

impl Work {
    pub fn limits(&self) -> &JobLimits {
        match self {
            Self::Program(job) => &job.limits,
            Self::Component(call) => &call.limits,
        }
    }

    /// The message that has a worker run it under this id.
    pub fn numbered(self, id: JobId) -> ToWorker {
        match self {
            Self::Program(job) => ToWorker::Run(Box::new(Job { id, ..*job })),
            Self::Component(call) => ToWorker::Call(Box::new(ComponentCall { id, ..*call })),
        }
    }
}

impl From<Job> for Work {
    fn from(job: Job) -> Self {
        Self::Program(Box::new(job))
    }
}

impl From<ComponentCall> for Work {
    fn from(call: ComponentCall) -> Self {
        Self::Component(Box::new(call))
    }
}

/// A file of the guest: its path is relative to `/input` for an input, to `/output` for an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFile {
    pub path: String,
    #[serde(with = "whole_bytes")]
    pub content: Vec<u8>,
}

/// The limits of one run, enforced by the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobLimits {
    /// From the moment the worker starts the job, without the time in which it waits for tools.
    pub wall_time: Duration,
    /// With that time.
    pub total_time: Duration,
    /// Linear memory, in total.
    pub memory_bytes: u64,
    /// Stored of each of stdout and stderr; the rest is counted and dropped.
    pub stream_bytes: u64,
    /// The encoded result.
    pub result_bytes: u64,
    /// All images together.
    pub image_bytes: u64,
    /// All files together, without holes.
    pub file_bytes: u64,
    /// Files and folders.
    pub max_files: u32,
    pub max_open_files: u32,
    /// Read from the host's random source.
    pub random_bytes: u64,
    /// Calls of `host.call`.
    pub host_calls: u32,
    /// Calls of tools. Zero: the program has no tools.
    pub tool_calls: u32,
    /// For a call of a session that holds no more: its state is kept while the program runs, and where that exceeds a limit the
    /// session goes on from it. At most [`MAX_STATE_BYTES`].
    pub state_bytes: u64,
}

/// How a run ended, and its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub end: End,
    /// The last expression as JSON text, from the guest's own encoder.
    pub result: Option<String>,
    pub stdout: Captured,
    pub stderr: Captured,
    pub files: Vec<GuestFile>,
    /// Figures that the program left open, as PNG.
    pub images: Vec<Vec<u8>>,
    pub usage: Usage,
    /// For a session that goes on: the bytes that it holds until its next call.
    pub session_bytes: Option<u64>,
    /// With [`Job::reads_to_end`], the values that the program has read after its last request.
    pub read: Option<ReadSoFar>,
}

impl Outcome {
    /// The outcome of a run without output.
    pub fn without_output(end: End) -> Self {
        Self {
            end,
            result: None,
            stdout: Captured::default(),
            stderr: Captured::default(),
            files: Vec::new(),
            images: Vec::new(),
            usage: Usage::default(),
            session_bytes: None,
            read: None,
        }
    }
}

/// Why the run ended, as measured by the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum End {
    /// The program ran to its end or called `exit`.
    Exited {
        code: i32,
    },
    /// An uncaught exception. Line and column count from one, in the caller's source.
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
    /// A limit on output, files, random bytes or host calls ended the run; its name.
    Output(String),
    /// The interpreter failed: a trap, a stack overflow, an error of the guest's runtime.
    Trap(String),
    Cancelled,
}

/// The start of a stream, with its end where it is long, and its total length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    #[serde(with = "whole_bytes")]
    pub bytes: Vec<u8>,
    pub total: u64,
}

/// Resource usage, measured by the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub wall_time: Duration,
    pub cpu_time: Duration,
    /// The longest part of it without a chance for other runs: a copy of much memory is one step.
    pub longest_step: Duration,
    pub peak_memory_bytes: u64,
    /// Whether it read the time of day or random bytes, so that another run of the same code can differ.
    pub read_time_or_random: bool,
}

/// Maximum length: frames contain the files and pictures of one run. A longer one is an error.
const MAX_FRAME_BYTES: usize = 256 << 20;
/// The length before each frame, little-endian.
const LENGTH_BYTES: usize = size_of::<u32>();
/// Maximum capacity allocated before the bytes have arrived.
const READ_AHEAD_BYTES: usize = 64 << 10;

/// Encodes a message as a frame.
/// Errors: when it is longer than the maximum frame.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = postcard::to_extend(message, vec![0; LENGTH_BYTES]).map_err(io::Error::other)?;
    let length = frame.len() - LENGTH_BYTES;
    let announced = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME_BYTES);
    let announced =
        announced.ok_or_else(|| io::Error::other(format!("a message of {length} bytes is too long for a frame")))?;
    frame.splice(..LENGTH_BYTES, announced.to_le_bytes());
    Ok(frame)
}

/// Reads frames from a stream.
#[derive(Debug)]
pub struct Frames<S> {
    stream: S,
    come: BytesMut,
}

impl<S: AsyncRead + Unpin> Frames<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, come: BytesMut::new() }
    }

    /// The next message; `None` where the stream ends between two. Cancel safe: no bytes are lost when the future is
    /// dropped.
    /// Errors: I/O errors, and a frame that is incomplete, too long, or not a message.
    pub async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            // Grows with the bytes received, not with the announced length.
            self.come.reserve(READ_AHEAD_BYTES);
            if self.stream.read_buf(&mut self.come).await? == 0 {
                return if self.come.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(announced) = self.come.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*announced) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(io::Error::other(format!("a frame of {length} bytes was announced")));
        }
        let Some(frame) = self.come.get(LENGTH_BYTES..LENGTH_BYTES + length) else { return Ok(None) };
        let message = postcard::from_bytes(frame).map_err(io::Error::other)?;
        self.come.advance(LENGTH_BYTES + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests;
