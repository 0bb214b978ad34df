//! A call in a session.

use std::sync::Arc;

use super::KeptInterpreter;
use super::rights::Rights;
use super::table::Sessions;
use super::turn::Turn;
use crate::core::call::{CallContext, Deadline, SessionEnd};
use crate::core::error::{CallError, ErrorCode};
use crate::sandbox::Sandbox;
use crate::sandbox::admission::Ticket;
use crate::sandbox::code_mode::ProgramRun;
use crate::sandbox::interpreter::Kind;
use crate::sandbox::protocol::{End, Job, Outcome, SessionEntry};
use crate::sandbox::run::queue_deadline;
use crate::sandbox::worker_handle::WorkerHandle;

impl Sandbox {
    /// Runs a job in the caller's session of that name, once it has the session to itself.
    pub(in crate::sandbox) async fn run_job_in_session(
        &self,
        call: &CallContext,
        name: &str,
        mut job: Job,
        deadline: Deadline,
    ) -> Result<Outcome, CallError> {
        self.check_depth(call, &job)?;
        let sessions = self.offered_sessions()?;
        let run = ProgramRun::without_journal(self.pipeline_for(&mut job), call);
        let rights = Some(Rights::of(call));
        let mut turn = sessions.enter(&call.caller.owner, rights, name, queue_deadline(call, deadline)).await?;
        let is_new = turn.instance().is_none();
        let (worker, ticket) = self.prepare_turn(sessions, &mut turn, call, &mut job, deadline).await?;
        let earlier = turn.instance_mut().and_then(|kept| kept.add_program(&job.code));
        let run = ProgramRun { earlier, ..run };
        // Whoever drops this leaves a session that has ended.
        call.interpreter.set(turn.report(is_new, Some(SessionEnd::Cancelled)));
        turn.runs();
        let over = turn.over();
        let outcome = tokio::select! {
            outcome = self.execute(&worker, call, job, ticket, deadline, run) => outcome,
            () = over.cancelled() => Err(deleted(name)),
        };
        turn.count_call();
        let end = match &outcome {
            Ok(Outcome { session_bytes: Some(bytes), .. }) => turn.rests(*bytes),
            Ok(outcome) => turn.ends(end_with(&outcome.end)),
            Err(_) => turn.ends(SessionEnd::WorkerDied),
        };
        call.interpreter.set(turn.report(is_new, end));
        outcome
    }

    /// The sessions, where there are some.
    pub(super) fn offered_sessions(&self) -> Result<&Sessions<KeptInterpreter>, CallError> {
        if self.offers_sessions() {
            return Ok(&self.sessions);
        }
        let message = "`session`: this gateway keeps no interpreters between calls; leave it out";
        Err(CallError::new(ErrorCode::InvalidArguments, message))
    }

    /// Whether calls may name a session: not with an interpreter that runs once and exits.
    pub(in crate::sandbox) fn offers_sessions(&self) -> bool {
        self.config.sessions.max > 0 && self.interpreter.kind == Kind::Reactor
    }

    /// The worker and the capacity for a call; begins a new session. The profile of a session is that of its first
    /// call.
    async fn prepare_turn(
        &self,
        sessions: &Sessions<KeptInterpreter>,
        turn: &mut Turn<'_, KeptInterpreter>,
        call: &CallContext,
        job: &mut Job,
        deadline: Deadline,
    ) -> Result<(Arc<WorkerHandle>, Ticket), CallError> {
        if let Some(kept) = turn.instance_mut() {
            kept.listed = None;
            job.profile.clone_from(&kept.profile);
            job.session = Some(kept.entered_by(SessionEntry::Continue));
            let worker = Arc::clone(&kept.worker);
            return Ok((worker, self.admit(call, job, deadline).await?));
        }
        self.choose_profile(job)?;
        let (worker, ticket) = self.place(call, job, deadline).await?;
        let kept = KeptInterpreter::new(Arc::clone(&worker), sessions.next_id(), job.profile.clone());
        job.session = Some(kept.entered_by(SessionEntry::Begin));
        turn.begin(kept);
        Ok((worker, ticket))
    }
}

/// Why a session ends with a program that ended so.
pub(super) fn end_with(end: &End) -> SessionEnd {
    match end {
        // The instance did not return from the turn.
        End::Exited { .. } | End::Exception { .. } => SessionEnd::Exited,
        End::Timeout => SessionEnd::Timeout,
        End::Memory => SessionEnd::Memory,
        End::Output(_) => SessionEnd::Output,
        End::Trap(_) => SessionEnd::Trap,
        End::Cancelled => SessionEnd::Cancelled,
    }
}

fn deleted(name: &str) -> CallError {
    CallError::new(ErrorCode::SandboxTrap, format!("the session `{name}` was deleted while the code ran in it"))
}
