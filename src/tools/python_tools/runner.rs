//! How files are read and functions are called: jobs of the sandbox.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::RwLock;

use sekisho_config::SandboxConfig;
use sekisho_core::call::{Arguments, CallContext, Caller, Deadline, Via};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::{End, Job, JobLimits, ModuleTask, Outcome};
use sekisho_interpreters::packages::Packages;
use sekisho_sandbox::RunPython;
use sekisho_sandbox::limits;

/// The sandbox, and its configuration. Cheap to clone.
#[derive(Clone)]
pub struct FunctionRunner {
    pub(super) config: SandboxConfig,
    pub(super) run: Arc<dyn RunPython>,
    /// Shared by files that are read at the same time, and held by a file that must be read without others.
    turns: Arc<RwLock<()>>,
    /// Identifies the packages with which files are read.
    pub(super) packages: Arc<str>,
}

/// How long a file may be executed to see that it can be.
const MAX_EXECUTION: Duration = Duration::from_secs(10);

/// The same with the wait for capacity, and for workers that are being started.
const MAX_READ: Duration = Duration::from_secs(40);

/// A run that was stopped with less than this left of [`MAX_READ`] had begun late, and had less than [`MAX_EXECUTION`].
const LEAST_LEFT: Duration = Duration::from_secs(1);

/// In the log: the reader of files is no call of a tool.
const READER: &str = "python_tools";

sekisho_core::debug_fields!(FunctionRunner {});

impl FunctionRunner {
    pub fn new(config: &SandboxConfig, run: Arc<dyn RunPython>) -> Self {
        Self { config: config.clone(), run, turns: Arc::default(), packages: Arc::default() }
    }

    /// The same for files that are read with these packages.
    pub(super) fn with_packages(&self, packages: &Packages) -> Self {
        Self { packages: packages.sum().into(), ..self.clone() }
    }

    /// How long a file may be executed to see that it can be.
    pub(super) fn max_execution(&self) -> Duration {
        MAX_EXECUTION.min(Duration::from_secs(self.config.timeout_seconds.into()))
    }

    /// Does something with the code of a file for the gateway itself. It calls no tools.
    pub(super) async fn examine(&self, code: &str, task: ModuleTask) -> Result<Outcome, CallError> {
        let with_others = self.turns.read().await;
        let outcome = self.examine_once(code, task.clone()).await;
        drop(with_others);
        match outcome {
            // The worker has exited, perhaps because of another file.
            Err(error) if matches!(error.code(), ErrorCode::SandboxTrap | ErrorCode::SandboxMemory) => {
                let _alone = self.turns.write().await;
                self.examine_once(code, task).await
            }
            outcome => outcome,
        }
    }

    async fn examine_once(&self, code: &str, task: ModuleTask) -> Result<Outcome, CallError> {
        let caller = Arc::new(Caller::anonymous().owned_by(Owner::gateway().clone()));
        let call = CallContext::new(READER, caller, Via::Sandbox);
        let memory = u64::from(self.config.memory_limit_mb) << 20;
        let limits = JobLimits { tool_calls: 0, ..limits::job_limits(&self.config, memory, MAX_EXECUTION) };
        let (job, deadline) = (self.job(code, task, limits), Deadline::after(MAX_READ));
        let outcome = self.run.run(&call, &Arguments::new(), job, deadline).await?;
        if matches!(outcome.end, End::Timeout) && deadline.remaining() < LEAST_LEFT {
            return Err(CallError::new(ErrorCode::Overloaded, "the sandbox was busy with other runs"));
        }
        Ok(outcome)
    }

    /// The profile is chosen by the code.
    pub(super) fn job(&self, code: &str, task: ModuleTask, limits: JobLimits) -> Job {
        let (code, module, packages) = (code.to_owned(), Some(task), Arc::clone(&self.packages));
        let (profile, stdin, files) = (String::new(), Vec::new(), Vec::new());
        let (session, past, image) = (None, None, None);
        let (proposes, reads_to_end) = (false, false);
        Job {
            id: 0,
            profile,
            code,
            module,
            packages,
            stdin,
            files,
            limits,
            session,
            past,
            proposes,
            reads_to_end,
            image,
        }
    }
}
