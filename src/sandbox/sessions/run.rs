//! A call in a session.

use std::sync::Arc;
use std::time::Duration;

use super::KeptInterpreter;
use super::resume::{TurnCall, image_of, previous_end};
use super::rights::Rights;
use super::session::{Beginning, StoredStanding};
use super::table::Sessions;
use super::turn::Turn;
use crate::CallSession;
use crate::Sandbox;
use crate::admission::Ticket;
use crate::capacity::memory_of_run;
use crate::code_mode::ProgramRun;
use crate::run::{check_no_replay, queue_deadline};
use crate::worker_handle::WorkerHandle;
use sekisho_core::call::{CallContext, Deadline, InterpreterSession, NotStored, SessionEnd};
use sekisho_core::caller::Owner;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::InterpreterKind;
use sekisho_guest_protocol::{End, Job, MAX_STATE_BYTES, Outcome, SessionEntry};

/// The part of a call's time for its checkpoint, at most a quarter of the remaining time.
const CHECKPOINT_TIME: Duration = Duration::from_secs(2);

impl Sandbox {
    /// Runs a job in the caller's session of that name, once it has the session to itself.
    pub(crate) async fn run_job_in_session(
        &self,
        call: &CallContext,
        CallSession { name, every_call }: CallSession<'_>,
        mut job: Job,
        deadline: Deadline,
    ) -> Result<Outcome, CallError> {
        check_no_replay(call)?;
        self.check_depth(call, &job)?;
        let sessions = self.offered_sessions()?;
        self.check_checkpoints(every_call)?;
        let run = ProgramRun::without_journal(self.pipeline_for(&mut job), call);
        let (owner, rights) = (&call.caller.owner, Some(Rights::of(call)));
        let mut turn = self.enter(sessions, (owner, name), rights, queue_deadline(call, deadline)).await?;
        let is_new = turn.instance().is_none();
        let prepared = self.prepare_turn(&mut turn, TurnCall { call, deadline, every_call }, &mut job);
        let (worker, ticket) = Box::pin(prepared).await?;
        let earlier = turn.instance_mut().and_then(|kept| kept.add_program(&job.code));
        let run = ProgramRun { earlier, ..run };
        if every_call {
            turn.store_every_call();
        }
        // Whoever drops this leaves a session that has ended.
        call.progress.interpreter.set(stopped(&turn, is_new, SessionEnd::Cancelled));
        turn.runs();
        let over = turn.over();
        let ends = if turn.is_stored_each_call() { before_checkpoint(deadline) } else { deadline };
        let outcome = tokio::select! {
            outcome = self.execute(&worker, call, job, ticket, ends, run) => outcome,
            () = over.cancelled() => Err(deleted(name)),
        };
        turn.count_call();
        if is_undone(&outcome)
            && let Some(kept) = turn.instance_mut()
        {
            kept.programs = earlier;
        }
        let report = self.rest(&mut turn, &outcome, is_new, deadline).await;
        call.progress.interpreter.set(report);
        outcome
    }

    /// The fate of a session after a program: it rests and is stored if it is to be, or it ends.
    async fn rest(
        &self,
        turn: &mut Turn<'_, KeptInterpreter>,
        outcome: &Result<Outcome, CallError>,
        is_new: bool,
        deadline: Deadline,
    ) -> InterpreterSession {
        let end = match outcome {
            Ok(Outcome { session_bytes: Some(bytes), .. }) => {
                let session = Arc::clone(turn.session());
                self.make_memory(&session, *bytes, deadline).await;
                turn.rests(*bytes)
            }
            Ok(outcome) => turn.ends(end_with(&outcome.end)),
            Err(_) => turn.ends(SessionEnd::WorkerDied),
        };
        if let Some(end) = end {
            return stopped(turn, is_new, end);
        }
        let report = turn.report(is_new, None);
        if is_undone(outcome) {
            let is_checkpointed = turn.is_stored_each_call().then_some(false);
            return InterpreterSession { is_checkpointed, not_stored: Some(NotStored::Stopped), ..report };
        }
        match Box::pin(self.checkpoint(turn, deadline)).await {
            None => report,
            Some(Ok(())) => InterpreterSession { is_checkpointed: Some(true), ..report },
            Some(Err(reason)) => {
                InterpreterSession { is_checkpointed: Some(false), not_stored: Some(reason), ..report }
            }
        }
    }

    /// The sessions, where there are some.
    pub(super) fn offered_sessions(&self) -> Result<&Sessions<KeptInterpreter>, CallError> {
        if self.offers_sessions() {
            return Ok(&self.sessions);
        }
        let message = "`session`: this gateway keeps no interpreters between calls; leave it out";
        Err(CallError::new(ErrorCode::InvalidArguments, message))
    }

    fn check_checkpoints(&self, every_call: bool) -> Result<(), CallError> {
        if every_call && self.session_images().is_none() {
            let message = "`checkpoint`: this gateway stores no sessions; leave it out";
            return Err(CallError::new(ErrorCode::InvalidArguments, message));
        }
        Ok(())
    }

    /// Whether calls may name a session: not with an interpreter that runs once and exits.
    pub(crate) fn offers_sessions(&self) -> bool {
        self.config.sessions.max > 0 && self.interpreter.kind == InterpreterKind::Reactor
    }

    /// Waits for the caller's session of that name; other sessions are stored in its place where that is needed. `rights`: as
    /// for [`Sessions::enter`].
    pub(super) async fn enter<'s>(
        &self,
        sessions: &'s Sessions<KeptInterpreter>,
        (owner, name): (&Owner, &str),
        rights: Option<Rights>,
        deadline: Deadline,
    ) -> Result<Turn<'s, KeptInterpreter>, CallError> {
        loop {
            self.make_place(owner, name, deadline).await;
            let mut turn = sessions.enter(owner, rights, name, deadline).await?;
            if self.is_still_here(&turn).await? {
                return Ok(turn);
            }
            turn.leaves();
        }
    }

    /// Another replica may have taken a session of this one, if this one counted as lost.
    async fn is_still_here(&self, turn: &Turn<'_, KeptInterpreter>) -> Result<bool, CallError> {
        let images = self.session_images().filter(|images| images.is_shared() && turn.instance().is_some());
        match images.zip(turn.stored()) {
            Some((images, stored)) => images.has(turn.key(), stored.fence).await,
            None => Ok(true),
        }
    }

    /// The worker and the capacity for a call; begins a new session, or resumes one. The profile of a session is the
    /// profile of its first call.
    pub(super) async fn prepare_turn(
        &self,
        turn: &mut Turn<'_, KeptInterpreter>,
        of_call: TurnCall<'_>,
        job: &mut Job,
    ) -> Result<(Arc<WorkerHandle>, Ticket), CallError> {
        let TurnCall { call, deadline, .. } = of_call;
        let held = turn.snapshot().memory_bytes;
        if let Some(kept) = turn.instance_mut() {
            kept.listed = None;
            job.profile.clone_from(&kept.profile);
            job.session = Some(kept.entered_by(SessionEntry::Continue));
            job.limits.state_bytes = self.state_bytes(job, held);
            let worker = Arc::clone(&kept.worker);
            return Ok((worker, self.admit(call, job, deadline).await?));
        }
        let Some(images) = self.session_images() else {
            let placed = self.place_new(of_call, job).await?;
            self.begin_anew(turn, &placed.0, job);
            return Ok(placed);
        };
        let taken = images.take(turn.key(), queue_deadline(call, deadline)).await?;
        turn.is_taken(taken.fence);
        if let Some(image) = image_of(turn, &taken) {
            return self.resume(images, turn, (of_call, job), (&taken, image)).await;
        }
        let previous_end = previous_end(turn, &taken);
        let before = taken.image.map(|image| image.object.key);
        let (worker, ticket) = self.place_new(of_call, job).await?;
        let (every_call, age) = (of_call.every_call, Duration::ZERO);
        let generation = images.begin(turn.key(), taken.fence, (every_call, age), before).await?;
        let stored = StoredStanding { fence: taken.fence, every_call, object: None };
        let (is_resumed, rights, calls) = (false, turn.rights(), 0);
        turn.begins_as(Beginning { generation, previous_end, is_resumed, rights, age, calls, stored });
        self.begin_anew(turn, &worker, job);
        Ok((worker, ticket))
    }

    /// How much of a session that holds so much is kept while its next program runs: all of it, where it is not too large and
    /// there is memory for both.
    pub(super) fn state_bytes(&self, job: &Job, held: u64) -> u64 {
        let fits = memory_of_run(job).saturating_add(held) <= self.admission.load().max_memory_bytes;
        if fits && held <= MAX_STATE_BYTES { held } else { 0 }
    }

    async fn place_new(
        &self,
        TurnCall { call, deadline, .. }: TurnCall<'_>,
        job: &mut Job,
    ) -> Result<(Arc<WorkerHandle>, Ticket), CallError> {
        self.choose_profile(job)?;
        self.place(call, job, deadline).await
    }

    /// The job must be sent before anything else is waited for.
    fn begin_anew(&self, turn: &mut Turn<'_, KeptInterpreter>, worker: &Arc<WorkerHandle>, job: &mut Job) {
        let kept = KeptInterpreter::new(Arc::clone(worker), self.sessions.next_id(), job.profile.clone());
        job.session = Some(kept.entered_by(SessionEntry::Begin));
        turn.begin(kept);
    }
}

/// The report on a session whose interpreter ends: with its checkpoint, it goes on from that.
fn stopped(turn: &Turn<'_, KeptInterpreter>, is_new: bool, end: SessionEnd) -> InterpreterSession {
    if !end.leaves_checkpoint() || !turn.has_checkpoint() {
        return turn.report(is_new, Some(end));
    }
    let (is_checkpointed, not_stored) = (Some(false), Some(NotStored::Stopped));
    InterpreterSession { is_checkpointed, not_stored, ..turn.report(is_new, None) }
}

/// Whether the session goes on from the state before its program, which exceeded a limit.
fn is_undone(outcome: &Result<Outcome, CallError>) -> bool {
    let Ok(Outcome { end, session_bytes: Some(_), .. }) = outcome else { return false };
    !matches!(end, End::Exited { .. } | End::Exception { .. })
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

fn before_checkpoint(deadline: Deadline) -> Deadline {
    let spared = CHECKPOINT_TIME.min(deadline.remaining() / 4);
    Deadline(deadline.0.checked_sub(spared).unwrap_or(deadline.0))
}

fn deleted(name: &str) -> CallError {
    CallError::new(ErrorCode::SandboxTrap, format!("the session `{name}` was deleted while the code ran in it"))
}
