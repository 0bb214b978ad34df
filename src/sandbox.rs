//! Runs untrusted Python: a fresh interpreter for each call, without network or access to the host's files.
//!
//! Isolation has two layers. The first is WebAssembly. The second is a worker process of our own binary with almost
//! no rights: no network, no files but the interpreter's, a seccomp filter, resource limits. The gateway runs one
//! worker per core (`pool`). A worker runs many calls as fibers on one thread ([`worker`]), since resetting
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
//! tools in place of a program: they are found, or one of them is called ([`protocol::ModuleTask`]).
//!
//! Components run in workers of their own, like programs ([`components`]).
//!
//! The gateway side loads no WebAssembly: it counts runs, queues them and exchanges frames ([`protocol`]).

mod admission;
mod capacity;
mod classes;
mod code_mode;
pub mod compiled;
mod components;
mod control_group;
pub mod engine;
pub mod files;
pub mod interpreter;
mod limits;
mod module_images;
pub mod mounts;
pub mod owner_only_files;
pub mod packages;
mod pool;
pub mod prepare;
pub mod protocol;
mod python;
mod read_recorder;
mod run;
mod sessions;
pub mod wasi;
pub mod worker;
mod worker_handle;
mod worker_setup;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio_util::sync::CancellationToken;

pub use self::admission::SandboxLoad;
pub use self::code_mode::{HITS, MAX_HITS, PYTHON, RUN_PYTHON, SEARCH_TOOLS, ToolPipeline, model_hit, model_tools};
pub use self::components::{ComponentHttp, ExaminedFile, FileToExamine, RunComponents, Unexamined};
pub use self::sessions::{CallSession, SessionDetails, SessionImages, SessionInfo};

use self::admission::Admission;
use self::capacity::Capacity;
use self::classes::Classes;
use self::components::ComponentWorkers;
use self::interpreter::{Manifest, ManifestError};
use self::module_images::ModuleImages;
use self::packages::Packages;
use self::pool::{COMPONENT, Pool, Start};
use self::protocol::{Job, Outcome};
use self::sessions::{KeptInterpreter, SessionLimits, Sessions};
use self::worker_setup::{ReadyProfile, Setup};
use crate::config::SandboxConfig;
use crate::core::call::{Arguments, CallContext, Deadline};
use crate::core::error::{CallError, ErrorCode};
use crate::infra::metrics::SandboxMetrics;
use crate::infra::readiness::Readiness;

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
    /// `session_lost` when what was stored of it cannot be opened.
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

/// The gateway's side of the sandbox. Starts no process before the first run.
pub struct Sandbox {
    config: SandboxConfig,
    interpreter: Manifest,
    admission: Admission,
    sessions: Sessions<KeptInterpreter>,
    /// Where sessions are stored; they end when they are idle where it is not set.
    images: OnceLock<SessionImages>,
    classes: Classes,
    components: ComponentWorkers,
    metrics: SandboxMetrics,
    readiness: Arc<Readiness>,
    /// What calls of programs pass; none where no gateway has been built around the sandbox.
    pipeline: OnceLock<Weak<dyn ToolPipeline>>,
    found: ArcSwapOption<Found>,
    /// What modules can import besides the interpreter's own.
    packages: ArcSwap<Packages>,
    module_images: ModuleImages,
    /// Whether a process sets up what the last search lacked.
    is_being_set_up: AtomicBool,
    /// Held during the search for the interpreter, so that only one pool is started.
    looking: tokio::sync::Mutex<()>,
}

/// The result of searching for the interpreter.
#[derive(Debug)]
enum Found {
    Prepared(Available),
    Missing,
}

/// What can run programs.
#[derive(Debug)]
struct Available {
    pool: Pool,
    /// The workers of the second class ([`classes`]), which start with the first run in them.
    background: Pool,
    /// Those that are compiled, from the lightest on.
    profiles: Vec<ReadyProfile>,
    /// Whether these are all profiles.
    is_complete: bool,
    /// Identifies the packages that modules can import.
    packages: String,
}

/// In `/readyz`: the profiles that are still being compiled.
const PROFILES: &str = "sandbox_profiles";

/// Interval of the search for an interpreter.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

impl fmt::Debug for Sandbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sandbox").field("interpreter", &self.interpreter.name).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Reads no files: the first run does, or [`look_for_interpreter`](Self::look_for_interpreter).
    ///
    /// # Errors
    /// When the configured interpreter cannot be used.
    pub fn new(
        config: &SandboxConfig,
        metrics: SandboxMetrics,
        readiness: Arc<Readiness>,
    ) -> Result<Self, ManifestError> {
        let capacity = Capacity::of(config);
        let limits = SessionLimits::new(&config.sessions, capacity.session_bytes);
        Ok(Self {
            interpreter: Manifest::chosen(config)?,
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
            config: config.clone(),
        })
    }

    /// Sets what calls of programs pass, once. It is not kept alive: its tools keep the sandbox.
    pub fn connect(&self, pipeline: &Arc<dyn ToolPipeline>) {
        let _ = self.pipeline.set(Arc::downgrade(pipeline));
    }

    /// The configuration at the start: a reload does not change it.
    pub fn config(&self) -> &SandboxConfig {
        &self.config
    }

    /// What is used of the capacity now.
    pub fn load(&self) -> SandboxLoad {
        self.admission.load()
    }

    /// The profiles of the interpreter, from the lightest to the richest.
    pub fn profiles(&self) -> Vec<&str> {
        self.interpreter.profiles.iter().map(|profile| profile.name.as_str()).collect()
    }

    /// Searches until the interpreter is set up with all its profiles; readiness reports while it is not.
    pub async fn look_for_interpreter(&self, closing: CancellationToken) {
        loop {
            if self.locate().await.is_complete() {
                return;
            }
            if closing.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_none() {
                return;
            }
        }
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

    async fn locate(&self) -> Arc<Found> {
        let _nobody_else = self.looking.lock().await;
        let (before, packages) = (self.found.load_full(), self.packages.load_full());
        let sum = packages.sum();
        if let Some(found) = before.as_ref().filter(|found| found.is_complete() && found.has_packages(&sum)) {
            return Arc::clone(found);
        }
        let (config, interpreter) = (self.config.clone(), self.interpreter.clone());
        // Reads files, and computes the names of the engine's compiled files.
        let looked = tokio::task::spawn_blocking(move || worker_setup::locate(&config, &interpreter, &packages)).await;
        let looked =
            looked.unwrap_or_else(|panic| Err(format!("the search for the interpreter failed: {panic}").into()));
        let lacking = looked.as_ref().map_or_else(Some, |setup| setup.incomplete.as_ref());
        self.is_being_set_up.store(lacking.is_some_and(|lacking| lacking.is_being_set_up), Ordering::Relaxed);
        let found = match looked {
            Ok(setup) => {
                match &setup.incomplete {
                    Some(lacking) => self.readiness.degrade(PROFILES, lacking.reason.clone()),
                    None => self.readiness.restore(PROFILES),
                }
                let is_enough =
                    |found: &Found| found.profiles().len() >= setup.profiles.len() && found.has_packages(&sum);
                if let Some(before) = before.filter(|found| is_enough(found)) {
                    return before;
                }
                self.readiness.restore(COMPONENT);
                Found::Prepared(self.available(setup))
            }
            Err(missing) => {
                // Workers that run are kept: a search that fails later says nothing about them.
                if let Some(before) = before.filter(|found| matches!(**found, Found::Prepared(_))) {
                    return before;
                }
                self.readiness.degrade(COMPONENT, missing.reason);
                Found::Missing
            }
        };
        let found = Arc::new(found);
        if let Some(Found::Prepared(before)) = self.found.swap(Some(Arc::clone(&found))).as_deref() {
            before.pool.retire();
            before.background.retire();
        }
        found
    }

    fn available(&self, Setup { program, load, profiles, incomplete, packages }: Setup) -> Available {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let pool = |is_background: bool| {
            let mut program = program.clone();
            program.arguments.extend(is_background.then(|| "--background".into()));
            Pool::new(Start {
                program,
                load: load.clone(),
                workers: self.config.workers.map_or_else(cores, |workers| workers as usize),
                component: COMPONENT,
                is_counted: !is_background,
                metrics: self.metrics.clone(),
                readiness: Arc::clone(&self.readiness),
            })
        };
        let (pool, background) = (pool(false), pool(true));
        Available { pool, background, profiles, is_complete: incomplete.is_none(), packages }
    }

    /// The workers; `packages`: for a module that was read with these. While they cannot run this profile: `warming_up` if it
    /// is being set up, else `internal`. The first call searches itself if no search has run yet.
    async fn pool(&self, profile: &str, packages: Option<&str>, is_background: bool) -> Result<Pool, CallError> {
        let found = match self.found.load_full() {
            Some(found) => found,
            None => self.locate().await,
        };
        match &*found {
            Found::Prepared(available) if packages.is_some_and(|packages| packages != available.packages) => {
                Err(warming_up("the packages of tools have changed, and this tool is read anew"))
            }
            Found::Prepared(available) if available.profiles.iter().any(|ready| ready.name == profile) => {
                Ok(if is_background { available.background.clone() } else { available.pool.clone() })
            }
            Found::Prepared(_) => Err(self.lacks(&format!("the profile `{profile}` of the Python interpreter"))),
            Found::Missing => Err(self.lacks("the Python interpreter")),
        }
    }

    /// A sum of what instances of a profile begin with; `None` where its sessions cannot be stored, or it cannot run yet.
    fn snapshot_of(&self, profile: &str) -> Option<String> {
        self.found.load().as_ref()?.profile(profile)?.snapshot.clone()
    }

    /// The same for modules, which see packages and data files while they are executed.
    fn module_base_of(&self, profile: &str) -> Option<String> {
        self.found.load().as_ref()?.profile(profile)?.module_base.clone()
    }

    fn lacks(&self, what: &str) -> CallError {
        if self.is_being_set_up.load(Ordering::Relaxed) {
            return warming_up(&format!("{what} is being set up, which takes some minutes"));
        }
        let message =
            format!("{what} is not set up here, and nothing sets it up; /readyz tells the operator what to do");
        CallError::new(ErrorCode::Internal, message)
    }
}

impl Found {
    fn profiles(&self) -> &[ReadyProfile] {
        match self {
            Self::Prepared(available) => &available.profiles,
            Self::Missing => &[],
        }
    }

    fn profile(&self, name: &str) -> Option<&ReadyProfile> {
        self.profiles().iter().find(|ready| ready.name == name)
    }

    fn is_complete(&self) -> bool {
        matches!(self, Self::Prepared(available) if available.is_complete)
    }

    fn has_packages(&self, sum: &str) -> bool {
        matches!(self, Self::Prepared(available) if available.packages == sum)
    }
}

/// The sandbox cannot run anything yet.
fn warming_up(message: &str) -> CallError {
    /// Setting up an interpreter takes minutes, starting a worker a tenth of a second.
    const RETRY_AFTER: Duration = Duration::from_secs(5);
    CallError::new(ErrorCode::WarmingUp, message).retry_after(RETRY_AFTER)
}
