//! The run of a program: its journal, and how it ends.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::ToolPipeline;
use super::wanted::{Wanted, WantedCall};
use sekisho_calls::journals::{NotRecordedError, RunEnd, RunJournal};
use sekisho_core::call::CallContext;
use sekisho_core::error::{CallError, Detail, ErrorCode, NeededApproval};
use sekisho_core::tool_scope::NestedScope;
use sekisho_guest_protocol::{End, GuestFile, Job, ModuleImageId, ModuleTask, Outcome};

/// Characters of arguments that an error shows.
const MAX_SHOWN_ARGUMENTS: usize = 500;

/// The inputs of a program besides the arguments of its call, for when it is run again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProgramInput {
    pub(crate) profile: String,
    pub(crate) files: Vec<GuestFile>,
    pub(crate) keys: RunKeys,
    /// The digest of the code, which is another one where it is not among the arguments and has changed.
    pub(crate) code: [u8; 32],
}

/// The keys of the calls of a run, which are the same in all its parts.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RunKeys {
    /// Begins the key of each call: the same for a call that is sent again with its key.
    pub(super) base: [u8; 32],
    /// Whether each call has a record in the store by its key: where the call that began the run has one.
    pub(super) are_recorded: bool,
}

/// The common data of a program's calls, and its journal.
pub(crate) struct ProgramRun {
    /// None for a program without tools.
    pub(crate) pipeline: Option<Arc<dyn ToolPipeline>>,
    /// None for a program that cannot be run again.
    pub(crate) journal: Option<RunJournal>,
    pub(crate) keys: RunKeys,
    /// In a session, the digest of the programs before it.
    pub(crate) earlier: Option<[u8; 32]>,
    /// The tools that its calls may use.
    pub(crate) scope: NestedScope,
    /// Whether its effects are made together at its end, once they are approved. It has a journal then.
    pub(crate) proposes: bool,
}

/// Why a run ends before its program does.
#[derive(Debug)]
pub(super) enum Stop {
    Approval(NeededByCall),
    Diverged(String),
    OutcomeUnknown(UnknownCall),
    NotRecorded(NotRecordedError),
    /// The caller may not use a tool any more whose answer the program would get again.
    NoAccess {
        tool: String,
        error: CallError,
    },
    /// The effects that the program proposed are refused, or one was not made as it was approved.
    Refused {
        error: CallError,
        /// Resuming it would end in the same way.
        is_over: bool,
    },
}

/// The approval that a call of a program needs.
#[derive(Debug)]
pub(super) struct NeededByCall {
    /// `None`: all effects that the program proposes.
    pub(super) tool: Option<String>,
    /// The message of the refusal.
    pub(super) message: String,
    pub(super) details: Vec<Detail>,
    pub(super) approval: NeededApproval,
}

/// A call that was started before, and of which nobody knows whether it has run.
#[derive(Debug)]
pub(super) struct UnknownCall {
    /// From 1.
    number: u32,
    tool: String,
    /// JSON, shortened.
    arguments: String,
}

impl UnknownCall {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let (number, arguments) = match wanted {
            Wanted::Call(WantedCall { ordinal, arguments: Ok(arguments), .. }) => {
                (ordinal + 1, Value::Object(arguments.clone()).to_string())
            }
            Wanted::Call(WantedCall { ordinal, .. }) => (ordinal + 1, String::new()),
            Wanted::Inquiry(_) => (0, String::new()),
        };
        let arguments = arguments.chars().take(MAX_SHOWN_ARGUMENTS).collect();
        Self { number, tool: wanted.tool().to_owned(), arguments }
    }

    /// For the caller, whose arguments are only in the details.
    fn unsettled(self, run: Arc<str>) -> CallError {
        let Self { number, tool, arguments } = self;
        let message = format!(
            "the run stopped while its call number {number}, of {tool}, was under way, and nobody knows whether it was made: find out, \
             settle it with POST /runs/{run}/settle and {{\"call\": {number}, \"outcome\": \"made\", \"answer\": …}} or \"not_made\", and \
             resume the run"
        );
        let detail = Detail {
            path: format!("call {number}"),
            rule: "unknown_outcome".to_owned(),
            message: format!("{tool}: {arguments}"),
        };
        CallError::new(ErrorCode::UnknownOutcome, message).with_detail(detail).of_run(run)
    }
}

impl ProgramRun {
    /// As in a session: its interpreter's state from earlier programs is in no journal.
    pub(crate) fn without_journal(pipeline: Option<Arc<dyn ToolPipeline>>, call: &CallContext) -> Self {
        let (keys, scope) = (keys_of(call), call.nesting.scope.clone());
        Self { pipeline, journal: None, keys, earlier: None, scope, proposes: false }
    }
}

/// SHA-256 of a program. In a session it includes the programs before it: they may have changed the effect of its text.
pub(crate) fn digest_of(earlier: Option<[u8; 32]>, program: &str) -> [u8; 32] {
    let before = earlier.iter().fold(Sha256::new(), Digest::chain_update);
    before.chain_update(program).finalize().into()
}

/// The same of all that a job executes besides arguments. For a function it has the settings of its file, the modules
/// that it shares with others, its packages, and the image from which it goes on, which decides about the clocks and
/// random bytes that the run reads.
pub(crate) fn digest_of_job(job: &Job) -> [u8; 32] {
    let before = match &job.module {
        Some(ModuleTask::Call(call)) => {
            let packages = digest_of(job.image.map(|ModuleImageId(id)| id), &job.packages);
            Some(digest_of(Some(digest_of(Some(packages), &call.settings)), &call.shared))
        }
        _ => None,
    };
    digest_of(before, &job.code)
}

/// Identifies the run of a program: a call that is sent again with its key is the same run.
pub(crate) fn keys_of(call: &CallContext) -> RunKeys {
    let id = call.id.to_string();
    let (kind, key) = match (&call.resumption.idempotency_key, &call.resumption.upstream_key) {
        (Some(key), _) => ("key", key.as_str()),
        (None, Some(key)) => ("upstream key", &**key),
        (None, None) => ("call", id.as_str()),
    };
    let parts = [&*call.caller.key, &*call.tool, kind, key].into_iter();
    let hash =
        parts.fold(Sha256::new(), |hash, part| hash.chain_update((part.len() as u64).to_be_bytes()).chain_update(part));
    RunKeys { base: hash.finalize().into(), are_recorded: call.resumption.idempotency_key.is_some() }
}

/// Ends the journal of a run, and gives the result for its caller: a run that has stopped can be resumed.
pub(super) async fn end_run(
    journal: RunJournal,
    stop: Option<Stop>,
    outcome: Result<Outcome, CallError>,
) -> Result<Outcome, CallError> {
    let (run, lost) = (Arc::clone(journal.id()), journal.lost());
    let stopped = RunEnd::Stopped { approval: None };
    match (stop, outcome) {
        (Some(Stop::Approval(needed)), _) => {
            let end = RunEnd::Stopped { approval: Some(&needed.approval.id) };
            let is_kept = journal.end(end).await;
            Err(if is_kept { needed.resumable(run) } else { needed.not_resumable(lost) })
        }
        (Some(Stop::Diverged(what)), _) => {
            journal.end(stopped).await;
            Err(diverged(&what))
        }
        (Some(Stop::OutcomeUnknown(call)), _) => {
            journal.end(stopped).await;
            Err(call.unsettled(run))
        }
        (Some(Stop::NotRecorded(error)), _) => {
            let is_kept = journal.end(stopped).await;
            Err(not_recorded(&error, run, is_kept))
        }
        (Some(Stop::NoAccess { tool, error }), _) => {
            journal.end(stopped).await;
            Err(no_access(&tool, &error))
        }
        (Some(Stop::Refused { error, is_over }), _) => {
            let is_kept = journal.end(if is_over { RunEnd::Ended } else { stopped }).await;
            Err(if is_kept && !is_over { resumable(&error, run) } else { error })
        }
        (None, Ok(outcome)) => {
            let has_ended = matches!(outcome.end, End::Exited { .. } | End::Exception { .. });
            if has_ended && !journal.is_caught_up() {
                journal.end(stopped).await;
                return Err(diverged("it ended before it had made all of its calls again"));
            }
            let is_cut_off = matches!(outcome.end, End::Timeout | End::Cancelled);
            journal.end(if is_cut_off { stopped } else { RunEnd::Ended }).await;
            Ok(outcome)
        }
        (None, Err(error)) => {
            let is_kept = journal.end(stopped).await;
            Err(if is_kept { resumable(&error, run) } else { error })
        }
    }
}

impl NeededByCall {
    fn resumable(self, run: Arc<str>) -> CallError {
        let Self { tool, message, details, approval } = self;
        let what = tool.map_or_else(|| "proposes effects".to_owned(), |tool| format!("called {tool}"));
        let message = format!(
            "the program {what}: {message}, or resume its run with POST /runs/{run}/resume; what it has called before is not \
             called again"
        );
        let error = CallError::new(ErrorCode::ApprovalRequired, message).with_details(details);
        error.needing(approval).of_run(run)
    }

    fn not_resumable(self, reason: Option<&str>) -> CallError {
        let Self { tool, details, approval: NeededApproval { id, url, .. }, .. } = self;
        let reason = reason.unwrap_or("its journal could not be written");
        let Some(tool) = tool else {
            let message =
                format!("the program proposes effects, and its run cannot be resumed, since {reason}: propose fewer");
            return CallError::new(ErrorCode::TooLarge, message).with_details(details);
        };
        let message = format!(
            "the program called {tool}, which a person must approve at {url}, and its run cannot be resumed, since {reason}: make \
             that call on its own with the header `X-Approval-Id: {id}`, and run a program without it"
        );
        CallError::new(ErrorCode::ApprovalRequired, message).with_details(details)
    }
}

fn resumable(error: &CallError, run: Arc<str>) -> CallError {
    let message = format!(
        "{}; resume it with POST /runs/{run}/resume: what it has called before is not called again",
        error.message()
    );
    CallError::new(error.code(), message).with_details(error.details().to_vec()).of_run(run)
}

fn diverged(what: &str) -> CallError {
    let message = format!("the program that was resumed did something else than before: {what}; run it anew");
    CallError::new(ErrorCode::ReplayDiverged, message)
}

fn no_access(tool: &str, error: &CallError) -> CallError {
    let message = format!(
        "the program would get an answer of {tool} from before, and its caller may not use that tool now: {}; resume its run \
         once the caller may",
        error.message()
    );
    CallError::new(error.code(), message).with_details(error.details().to_vec())
}

/// Logs the cause, which may have the path of the store.
fn not_recorded(error: &NotRecordedError, run: Arc<str>, is_kept: bool) -> CallError {
    tracing::error!(%error, run = &*run, "the journal of a program's run could not be written; the run has stopped");
    let message = match error {
        NotRecordedError::Taken => "the run was resumed by another call, which goes on with it",
        NotRecordedError::Failed(_) if is_kept => {
            "what the program does cannot be recorded now, so it was stopped; resume its run shortly"
        }
        NotRecordedError::Failed(_) => {
            "what the program does cannot be recorded now, so it was stopped before its first call that must not be made twice; \
             send it again shortly"
        }
    };
    let refusal = CallError::new(ErrorCode::Overloaded, message);
    // Another call goes on with a run that was taken.
    if is_kept || *error == NotRecordedError::Taken { refusal.of_run(run) } else { refusal }
}

/// The answer to such a call where nobody can say more.
pub(super) fn outcome_unknown(tool: &str) -> CallError {
    let message = format!(
        "this call of {tool} was started, and its run stopped before the answer: it is not made again; check what it did"
    );
    CallError::new(ErrorCode::UnknownOutcome, message)
}
