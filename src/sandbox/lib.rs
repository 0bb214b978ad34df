//! Runs untrusted Python: a fresh interpreter for each call, without network or access to the host's files.
//!
//! Isolation has two layers. The first is WebAssembly. The second is a worker process of our own binary with almost
//! no rights: no network, no files but the interpreter's, a seccomp filter, resource limits. The gateway runs one
//! worker per core (`pool`). A worker runs many calls as fibers on one thread (`sekisho_guest_worker`), since resetting
//! copy-on-write memory from several threads of one process does not scale.
//!
//! A run:
//!
//! ```text
//! gateway                                  worker process                    guest (WebAssembly)
//!   |                                        |                                 |
//!   |                                        | makes an instance in advance -->| starts, calls `host.call`
//!   | chooses the profile                    |                                 | and waits for its program
//!   | waits for capacity (`admission`)       |                                 |
//!   | Run(job) ----------------------------->| program and limits ------------>| runs
//!   |                                        |<------------- result, pictures  |
//!   |                                        |<------------- files, stdout     |
//!   |<------------------------- Done(outcome)| resets the memory               x
//!   | frees the capacity                     |
//! ```
//!
//! A program may call tools while it runs ([`code_mode`]): its worker passes each call on to the gateway, and suspends the
//! program until the answer is here.
//!
//! A call may name a session, whose interpreter lives on after it ([`sessions`]). A job may have a module of functions that are
//! tools in place of a program: they are found, or one of them is called ([`ModuleTask`](sekisho_guest_protocol::ModuleTask)).
//!
//! Components run in workers of their own, like programs ([`components`]).
//!
//! The gateway side loads no WebAssembly: it counts runs, queues them and exchanges frames ([`sekisho_guest_protocol`]).

mod admission;
mod capacity;
mod classes;
mod code_mode;
mod components;
mod control_group;
pub mod limits;
mod module_images;
mod pool;
mod run;
mod search;
mod sessions;
mod worker_handle;
mod worker_setup;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};

pub use self::admission::SandboxLoad;
pub use self::code_mode::{HITS, MAX_HITS, PYTHON, RUN_PYTHON, SEARCH_TOOLS, ToolPipeline, model_hit, model_tools};
pub use self::components::{ComponentHttp, ExaminedFile, FileToExamine, RunComponents, Unexamined};
pub use self::sessions::{CallSession, SessionDetails, SessionImages, SessionInfo, SessionPlace, Variable};

use self::admission::Admission;
use self::capacity::Capacity;
use self::classes::Classes;
use self::components::ComponentWorkers;
use self::module_images::ModuleImages;
use self::search::Found;
use self::sessions::{KeptInterpreter, SessionLimits, Sessions};
use sekisho_config::SandboxConfig;
use sekisho_core::call::{Arguments, CallContext, Deadline};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::{EngineFingerprints, Job, Outcome};
use sekisho_interpreters::interpreter::{Manifest, ManifestError};
use sekisho_interpreters::packages::Packages;
use sekisho_observe::metrics::SandboxMetrics;
use sekisho_observe::readiness::Readiness;

/// A run under way. Dropping it, as when the client disconnects, must stop the run.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<Outcome, CallError>> + Send + 'a>>;

/// A change of the workers under way.
pub type Changing<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Runs Python: the sandbox, or a substitute in tests.
pub trait RunPython: Send + Sync {
    /// Runs one job for a call once capacity is free, and ends before `deadline`. Marks the call as sent when a worker receives
    /// the job. A job without a profile gets one by its code. Fails with `overloaded`, `warming_up`, `sandbox_trap`, `internal`
    /// where nothing can run, `invalid_arguments` for an unknown profile, or `denied` for a program that may not be run by
    /// another. A program that fails is not an error here: the outcome reports it.
    ///
    /// The run can be resumed by another call with the same `arguments`, which then names it. Fails with `approval_required`
    /// when a call of the program needs an approval, and with `replay_diverged`.
    fn run<'a>(&'a self, call: &'a CallContext, arguments: &'a Arguments, job: Job, deadline: Deadline) -> Running<'a>;

    /// The same in a session of the caller, which it begins if there is none. Notes the session in the call. Fails with
    /// `session_lost` when the stored state of the session cannot be opened.
    fn run_in_session<'a>(
        &'a self,
        call: &'a CallContext,
        session: CallSession<'a>,
        job: Job,
        deadline: Deadline,
    ) -> Running<'a>;

    /// Whether calls may name a session.
    fn has_sessions(&self) -> bool;

    /// Gives modules these packages from now on, and no others. A job whose module was read with others fails with
    /// `warming_up`.
    fn use_packages<'a>(&'a self, packages: &'a Packages) -> Changing<'a>;
}

/// The gateway's side of the sandbox. Starts no worker before the first run.
pub struct Sandbox {
    config: SandboxConfig,
    interpreter: Manifest,
    /// Why the module of `sandbox.wasm_path` cannot be read. The gateway runs without Python then.
    unread_module: Option<String>,
    admission: Admission,
    sessions: Sessions<KeptInterpreter>,
    /// Where sessions are stored; they end when they are idle where it is not set.
    images: OnceLock<SessionImages>,
    classes: Classes,
    components: ComponentWorkers,
    metrics: SandboxMetrics,
    readiness: Arc<Readiness>,
    /// The pipeline for the calls of programs; none where no gateway has been built around the sandbox.
    pipeline: OnceLock<Weak<dyn ToolPipeline>>,
    found: ArcSwapOption<Found>,
    /// The packages that modules can import besides the interpreter's own.
    packages: ArcSwap<Packages>,
    module_images: ModuleImages,
    /// Whether a process sets up the part that the last search lacked.
    is_being_set_up: AtomicBool,
    /// Held during the search for the interpreter, so that only one pool is started.
    looking: tokio::sync::Mutex<()>,
    fingerprints: tokio::sync::OnceCell<EngineFingerprints>,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sandbox").field("interpreter", &self.interpreter.name).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Reads no files but the module of `sandbox.wasm_path`: the first run does, or
    /// [`look_for_interpreter`](Self::look_for_interpreter). A module that cannot be read is reported by readiness.
    /// Errors: when the configured interpreter cannot be used.
    pub fn new(
        config: &SandboxConfig,
        metrics: SandboxMetrics,
        readiness: Arc<Readiness>,
    ) -> Result<Self, ManifestError> {
        let capacity = Capacity::of(config);
        let limits = SessionLimits::new(&config.sessions, capacity.session_bytes);
        let (interpreter, unread_module) = match (Manifest::chosen(config), &config.wasm_path) {
            (Err(error @ ManifestError::Unreadable(..)), Some(module)) => {
                (Manifest::of_unread_module(module)?, Some(error.to_string()))
            }
            (chosen, _) => (chosen?, None),
        };
        Ok(Self {
            interpreter,
            unread_module,
            classes: Classes::default(),
            components: ComponentWorkers::default(),
            admission: Admission::new(capacity, metrics.clone()),
            sessions: Sessions::new(limits, metrics.clone()),
            images: OnceLock::new(),
            metrics,
            readiness,
            pipeline: OnceLock::new(),
            found: ArcSwapOption::empty(),
            packages: ArcSwap::default(),
            module_images: ModuleImages::default(),
            is_being_set_up: AtomicBool::new(false),
            looking: tokio::sync::Mutex::default(),
            fingerprints: tokio::sync::OnceCell::new(),
            config: config.clone(),
        })
    }

    /// Sets the pipeline for the calls of programs, once. It is not kept alive: its tools keep the sandbox.
    pub fn connect(&self, pipeline: &Arc<dyn ToolPipeline>) {
        let _ = self.pipeline.set(Arc::downgrade(pipeline));
    }

    /// The configuration at the start: a reload does not change it.
    pub fn config(&self) -> &SandboxConfig {
        &self.config
    }

    /// The used part of the capacity now.
    pub fn load(&self) -> SandboxLoad {
        self.admission.load()
    }

    /// The profiles of the interpreter, from the lightest to the richest.
    pub fn profiles(&self) -> Vec<&str> {
        self.interpreter.profiles.iter().map(|profile| profile.name.as_str()).collect()
    }

    /// Stores the sessions, ends the worker processes and waits until they have exited.
    pub async fn close(&self) {
        self.store_all_sessions().await;
        self.components.close().await;
        if let Some(Found::Prepared(available)) = self.found.load().as_deref() {
            available.background.close().await;
            available.pool.close().await;
        }
    }
}

/// The sandbox cannot run anything yet.
fn warming_up(message: &str) -> CallError {
    /// Setting up an interpreter takes minutes, starting a worker a tenth of a second.
    const RETRY_AFTER: Duration = Duration::from_secs(5);
    CallError::new(ErrorCode::WarmingUp, message).retry_after(RETRY_AFTER)
}
