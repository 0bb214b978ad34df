//! How the gateway runs a job: capacity, a worker, and the tools of its program.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::admission::Ticket;
use super::capacity::memory_of_run;
use super::code_mode::{ProgramTools, ToolHost, ToolPipeline};
use super::protocol::{End, Job, Outcome};
use super::worker_handle::WorkerHandle;
use super::{RunPython, Running, Sandbox};
use crate::core::call::{CallContext, Deadline};
use crate::core::error::{CallError, ErrorCode};
use crate::infra::metrics::{RunEnd, SandboxMetrics};

/// The run ends this long before its call, so that the reply can report why.
const TIME_TO_ANSWER: Duration = Duration::from_millis(100);

impl Sandbox {
    /// The profile that the caller named, otherwise the one for the code's imports.
    pub(super) fn choose_profile(&self, job: &mut Job) -> Result<(), CallError> {
        let profiles = self.profiles();
        if job.profile.is_empty() {
            let chosen = self.interpreter.profile_for(&job.code);
            job.profile = chosen.map(|profile| profile.name.clone()).unwrap_or_default();
        } else if !profiles.contains(&job.profile.as_str()) {
            let profiles = profiles.join(", ");
            let message = format!("`profile`: this interpreter has {profiles}; omit it to have one chosen");
            return Err(CallError::new(ErrorCode::InvalidArguments, message));
        }
        Ok(())
    }

    async fn admit_and_run(&self, call: &CallContext, mut job: Job, deadline: Deadline) -> Result<Outcome, CallError> {
        self.check_depth(call)?;
        let pipeline = self.pipeline_for(&mut job);
        self.choose_profile(&mut job)?;
        let (worker, ticket) = self.place(call, &job, deadline).await?;
        self.execute(&worker, call, job, ticket, deadline, pipeline).await
    }

    /// What calls of the job's program pass; none for a program without tools.
    pub(super) fn pipeline_for(&self, job: &mut Job) -> Option<Arc<dyn ToolPipeline>> {
        let pipeline = self.pipeline.get().and_then(Weak::upgrade).filter(|_| job.limits.tool_calls > 0);
        if pipeline.is_none() {
            job.limits.tool_calls = 0;
        }
        pipeline
    }

    /// A worker for a job, and the capacity for it.
    pub(super) async fn place(
        &self,
        call: &CallContext,
        job: &Job,
        deadline: Deadline,
    ) -> Result<(Arc<WorkerHandle>, Ticket), CallError> {
        let is_background = self.classes.is_background(&call.caller.owner);
        self.pool(&job.profile, is_background).await?;
        let ticket = self.admit(call, job, deadline).await?;
        // Those of now: the wait may have seen them replaced.
        let worker = self.pool(&job.profile, is_background).await?.worker(deadline).await?;
        Ok((worker, ticket))
    }

    pub(super) async fn admit(&self, call: &CallContext, job: &Job, deadline: Deadline) -> Result<Ticket, CallError> {
        self.admission.enter(&call.caller.owner, memory_of_run(job), patience(call, deadline)).await
    }

    pub(super) async fn execute(
        &self,
        worker: &WorkerHandle,
        call: &CallContext,
        mut job: Job,
        ticket: Ticket,
        deadline: Deadline,
        pipeline: Option<Arc<dyn ToolPipeline>>,
    ) -> Result<Outcome, CallError> {
        // Subtract the time spent waiting.
        let left = deadline.remaining().saturating_sub(TIME_TO_ANSWER);
        job.limits.total_time = job.limits.total_time.min(left);
        job.limits.wall_time = job.limits.wall_time.min(job.limits.total_time);
        let ends = Deadline::after(job.limits.total_time);
        let tools = pipeline.map(|pipeline| ProgramTools::new(pipeline, call, &job.code, job.limits.tool_calls, ends));
        let tools = tools.as_ref().map(|tools| tools as &dyn ToolHost);
        let mut ending = Ending { metrics: &self.metrics, end: RunEnd::Cancelled, cpu_time: Duration::ZERO };
        let outcome = worker.run(job, ticket, &call.sending.flag(), tools).await;
        ending.record(&outcome);
        if let Ok(outcome) = &outcome {
            self.classes.record(&call.caller.owner, &outcome.usage);
        }
        outcome
    }

    /// Refuses a program that another one runs too deep.
    pub(super) fn check_depth(&self, call: &CallContext) -> Result<(), CallError> {
        let most = self.config.code_mode.max_depth;
        if call.depth < most {
            return Ok(());
        }
        let message = format!(
            "a program runs no other one here: `sandbox.code_mode.max_depth` is {most}; do the work in the program itself"
        );
        Err(CallError::new(ErrorCode::Denied, message))
    }
}

impl RunPython for Sandbox {
    fn run<'a>(&'a self, call: &'a CallContext, job: Job, deadline: Deadline) -> Running<'a> {
        Box::pin(self.admit_and_run(call, job, deadline))
    }

    fn run_in_session<'a>(
        &'a self,
        call: &'a CallContext,
        session: &'a str,
        job: Job,
        deadline: Deadline,
    ) -> Running<'a> {
        Box::pin(self.run_job_in_session(call, session, job, deadline))
    }

    fn has_sessions(&self) -> bool {
        self.offers_sessions()
    }
}

/// How long a call waits for capacity. A program that waits for another holds some: the other one does not wait for
/// that.
pub(super) fn patience(call: &CallContext, deadline: Deadline) -> Deadline {
    if call.depth == 0 { deadline } else { Deadline::after(Duration::ZERO) }
}

/// Counts a run when it is dropped: a run without an outcome was cancelled.
struct Ending<'a> {
    metrics: &'a SandboxMetrics,
    end: RunEnd,
    cpu_time: Duration,
}

impl Ending<'_> {
    fn record(&mut self, outcome: &Result<Outcome, CallError>) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                let is_memory = error.code() == ErrorCode::SandboxMemory;
                self.end = if is_memory { RunEnd::Memory } else { RunEnd::WorkerDied };
                return;
            }
        };
        self.cpu_time = outcome.usage.cpu_time;
        self.end = match &outcome.end {
            End::Exited { .. } => RunEnd::Exited,
            End::Exception { .. } => RunEnd::Exception,
            End::Timeout => RunEnd::Timeout,
            End::Memory => RunEnd::Memory,
            End::Output(_) => RunEnd::Output,
            End::Trap(_) => RunEnd::Trap,
            End::Cancelled => RunEnd::Cancelled,
        };
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.metrics.run_ended(self.end, self.cpu_time);
    }
}
