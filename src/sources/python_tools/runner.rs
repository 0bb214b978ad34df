//! How files are read and functions are called: jobs of the sandbox.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::SandboxConfig;
use crate::core::call::{Arguments, CallContext, Caller, Deadline, Via};
use crate::core::caller::Owner;
use crate::core::error::CallError;
use crate::sandbox::RunPython;
use crate::sandbox::protocol::{Job, JobLimits, ModuleTask, Outcome};

/// The sandbox, and its configuration. Cheap to clone.
#[derive(Clone)]
pub struct FunctionRunner {
    pub(super) config: SandboxConfig,
    pub(super) run: Arc<dyn RunPython>,
}

/// How long a file may be executed to see that it can be.
pub(super) const MAX_EXECUTION: Duration = Duration::from_secs(10);

/// The same with the wait for capacity, and for workers that are being started.
const MAX_READ: Duration = Duration::from_secs(40);

/// In the log: what reads files is no call of a tool.
const READER: &str = "python_tools";

impl fmt::Debug for FunctionRunner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FunctionRunner").finish_non_exhaustive()
    }
}

impl FunctionRunner {
    pub fn new(config: &SandboxConfig, run: Arc<dyn RunPython>) -> Self {
        Self { config: config.clone(), run }
    }

    /// Does something with the code of a file for the gateway itself. It calls no tools.
    pub(super) async fn examine(&self, code: &str, task: ModuleTask) -> Result<Outcome, CallError> {
        let caller = Arc::new(Caller::anonymous().owned_by(Owner::gateway().clone()));
        let call = CallContext::new(READER, caller, Via::Sandbox);
        let memory = u64::from(self.config.memory_limit_mb) << 20;
        let limits = JobLimits { tool_calls: 0, ..JobLimits::of(&self.config, memory, MAX_EXECUTION) };
        let job = job(code, task, limits);
        self.run.run(&call, &Arguments::new(), job, Deadline::after(MAX_READ)).await
    }
}

/// The profile is chosen by the code.
pub(super) fn job(code: &str, task: ModuleTask, limits: JobLimits) -> Job {
    let (code, module) = (code.to_owned(), Some(task));
    let (profile, stdin, files) = (String::new(), Vec::new(), Vec::new());
    Job { id: 0, profile, code, module, stdin, files, limits, session: None, past: None }
}
