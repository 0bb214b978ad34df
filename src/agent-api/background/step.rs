//! One step of a run that goes on without its client: a run of its conversation, or its webhook. How far it is, the rows of
//! its runs say; nothing of it is only in memory.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{BackgroundRuns, StoredRequest, webhook};
use sekisho_agent::Message;
use sekisho_agent::conversation::{RunRequest, StartedRun, StopCause, new_run_id, stored, unknown_conversation};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::failpoint;
use sekisho_store::{
    BackgroundKind, BackgroundLease, BackgroundRun, BackgroundState, BackgroundStep, LockState, RunStatus, StoredError,
};

/// Runs of the conversation for one request, without those after a decision of a person: a run that ends its process each time is
/// given up.
const MAX_ATTEMPTS: i64 = 10;

/// Pause before another attempt, which grows with their number.
const RETRY: Duration = Duration::from_secs(3);

/// Interval of looks for the decision of a person.
const PAUSED_POLL: Duration = Duration::from_secs(5);

/// The next step of a run.
#[derive(Debug, Clone, PartialEq)]
enum Next {
    /// Its run has not begun.
    Begin,
    /// Its run ended with its process.
    GoOn,
    /// Its run paused for approvers.
    Resume,
    Nothing(RunStatus, Option<StoredError>),
}

impl BackgroundRuns {
    /// Does the next step of a run, and gives the run back.
    pub(super) async fn work_on(&self, run: &BackgroundRun, lease: &BackgroundLease) {
        let store = self.store();
        let step = match self.step(run, lease).await {
            Ok(step) => step,
            Err(error) => {
                tracing::warn!(
                    cause = error.cause(),
                    run = run.id,
                    "a run that goes on without a client is tried again"
                );
                again(run, run.state)
            }
        };
        failpoint::reach("background.ended");
        let is_over = step.state == BackgroundState::Ended && run.kind == BackgroundKind::Recovered;
        let stored = match is_over {
            // Its client reads the run of the conversation.
            true => store.forget(lease).await,
            false => store.give_back(lease, &step).await.map(drop),
        };
        if let Err(error) = stored {
            tracing::warn!(%error, run = run.id, "the state of a run is stored by the process that takes it next");
        }
    }

    async fn step(&self, run: &BackgroundRun, lease: &BackgroundLease) -> Result<BackgroundStep, CallError> {
        let request = match (self.opened(run), run.status) {
            (Ok(request), _) => request,
            (Err(error), None) => return Ok(ended(RunStatus::Failed, Some(stored_error(&error)), false)),
            // It has ended, and the receiver of its webhook is not known.
            (Err(error), Some(status)) => {
                let notice_error = Some(error.message().to_owned());
                return Ok(BackgroundStep { notice_error, ..ended(status, run.error.clone(), false) });
            }
        };
        if run.state == BackgroundState::Ended {
            let notified = webhook::notify(self.gateway(), run, &request);
            let notified = self.gateway().background().closing().run_until_cancelled(notified).await;
            return Ok(notified.unwrap_or_else(|| again(run, run.state)));
        }
        let has_webhook = request.webhook.is_some();
        let mut runs = run.runs.clone();
        let next = self.next_of(&run.caller_key, &mut runs).await?;
        if let Next::Nothing(status, error) = next {
            return Ok(ended(status, error, has_webhook));
        }
        if run.is_stopped {
            return Ok(ended(RunStatus::Cancelled, None, has_webhook));
        }
        if run.attempts > MAX_ATTEMPTS {
            let (code, message) = (RunStatus::Interrupted.as_str().to_owned(), GIVEN_UP.to_owned());
            return Ok(ended(RunStatus::Interrupted, Some(StoredError { code, message }), has_webhook));
        }
        if next == Next::Resume && self.waits_for_approver(&runs).await? {
            return Ok(paused());
        }
        let store = self.store();
        let (id, failure) = match self.begin((run, lease), request, &next, &mut runs).await {
            Ok((started, renewed)) => {
                (Some(started.id()), follow(started, store.keep_renewing(lease, renewed)).await.err())
            }
            Err(error) => (None, Some(error)),
        };
        let after = self.next_of(&run.caller_key, &mut runs).await?;
        let has_begun = id.is_some_and(|id| runs.last().is_some_and(|last| **last == *id));
        Ok(match (after, failure) {
            (Next::Nothing(status, error), _) if has_begun => ended(status, error, has_webhook),
            (Next::Resume, _) if has_begun => paused(),
            (_, Some(error)) if !has_begun => refused(run, &next, &error, has_webhook),
            // Its process is closed, or lost its conversation.
            _ => again(run, BackgroundState::Running),
        })
    }

    /// The next step by the rows of its runs. An id of a run that did not begin is removed.
    async fn next_of(&self, caller_key: &str, runs: &mut Vec<String>) -> Result<Next, CallError> {
        let store = self.gateway().store().conversation_runs();
        while let Some(id) = runs.last() {
            let Some(row) = store.get(caller_key, id).await? else {
                runs.pop();
                continue;
            };
            return Ok(match row.status {
                RunStatus::Running | RunStatus::Interrupted => Next::GoOn,
                RunStatus::Paused => Next::Resume,
                RunStatus::Cancelled if StopCause::Shutdown.has_ended(&row) || StopCause::LockLost.has_ended(&row) => {
                    Next::GoOn
                }
                status => Next::Nothing(status, row.error),
            });
        }
        Ok(Next::Begin)
    }

    /// Whether nobody has decided about the calls for which its last run paused.
    async fn waits_for_approver(&self, runs: &[String]) -> Result<bool, CallError> {
        let (gateway, mut waits) = (self.gateway(), false);
        let Some(run) = runs.last() else { return Ok(false) };
        for message in gateway.store().conversation_logs().messages_of_run(run).await? {
            let Message::Assistant(turn) = stored::read(&message).map_err(CallError::internal)? else { continue };
            for approval in turn.calls().filter_map(|call| call.approval.as_ref()) {
                match gateway.pipeline.approvals.undecided(approval).await {
                    Ok(Some(_)) => waits = true,
                    // The call itself finds out the decision.
                    Ok(None) | Err(_) => return Ok(false),
                }
            }
        }
        Ok(waits)
    }

    /// Begins a run of the conversation, whose id is stored before: with the moment from which on its lease counts.
    /// Errors: why it does not begin.
    async fn begin(
        &self,
        (run, lease): (&BackgroundRun, &BackgroundLease),
        request: StoredRequest,
        next: &Next,
        runs: &mut Vec<String>,
    ) -> Result<(StartedRun, Instant), CallError> {
        let agents = self.runs.agents();
        let sender = request.sender(agents, &run.caller_key).await?;
        let found = self.gateway().store().conversations().get(&run.caller_key, &run.conversation).await?;
        let conversation = found.ok_or_else(|| unknown_conversation(&run.conversation))?;
        let mut wanted = request.into_run(&sender, agents, conversation).await?;
        if *next != Next::Begin {
            if wanted.profile.planner.is_some() {
                return Err(CallError::new(ErrorCode::UnknownOutcome, NO_PLAN));
            }
            wanted.user_input = None;
            wanted.goes_on = runs.last().filter(|_| *next == Next::GoOn).map(|last| last.as_str().into());
        }
        let id = new_run_id();
        runs.push(id.to_string());
        let renewed = Instant::now();
        if !self.store().set_runs(lease, runs).await? {
            return Err(CallError::new(ErrorCode::ConversationLocked, "another process goes on with the run"));
        }
        failpoint::reach("background.begins");
        Ok((self.runs.start(RunRequest { id: Some(id), ..wanted })?, renewed))
    }
}

/// Waits for the end of a run, which is stopped when its caller cancels it or another process has it.
async fn follow(started: StartedRun, renewal: impl Future<Output = LockState>) -> Result<(), CallError> {
    let live = Arc::clone(&started.run);
    let mut reply = pin!(started.reply());
    tokio::select! {
        reply = &mut reply => reply.map(drop),
        state = renewal => {
            live.stop(if state == LockState::AskedToStop { StopCause::Request } else { StopCause::LockLost });
            reply.await.map(drop)
        }
    }
}

const GIVEN_UP: &str = "the run was begun again too often: its process ended each time";

const NO_PLAN: &str = "the process of a run that plans ended, and the run does not go on; send the goal again";

fn refused(run: &BackgroundRun, next: &Next, error: &CallError, has_webhook: bool) -> BackgroundStep {
    match error.code() {
        ErrorCode::ApprovalRequired => paused(),
        // Cancelled: its process is closed. A run that waits for its conversation has not been attempted.
        ErrorCode::ConversationLocked | ErrorCode::Overloaded | ErrorCode::Cancelled => {
            let state = if *next == Next::Begin { BackgroundState::Queued } else { run.state };
            BackgroundStep { attempts: run.attempts.saturating_sub(1), ..again(run, state) }
        }
        _ => ended(RunStatus::Failed, Some(stored_error(error)), has_webhook),
    }
}

/// A process takes it again, later each time.
fn again(run: &BackgroundRun, state: BackgroundState) -> BackgroundStep {
    let (attempts, error, notice_error) = (run.attempts, run.error.clone(), run.notice_error.clone());
    let due = Some(RETRY * u32::try_from(attempts).unwrap_or(1).clamp(1, 10));
    BackgroundStep { state, status: run.status, error, attempts, notice_error, due }
}

fn paused() -> BackgroundStep {
    let (state, due) = (BackgroundState::Paused, Some(PAUSED_POLL));
    BackgroundStep { state, status: None, error: None, attempts: 0, notice_error: None, due }
}

fn ended(status: RunStatus, error: Option<StoredError>, has_webhook: bool) -> BackgroundStep {
    let due = has_webhook.then_some(Duration::ZERO);
    let (state, status) = (BackgroundState::Ended, Some(status));
    BackgroundStep { state, status, error, attempts: 0, notice_error: None, due }
}

fn stored_error(error: &CallError) -> StoredError {
    StoredError { code: error.code().as_str().to_owned(), message: error.message().to_owned() }
}
