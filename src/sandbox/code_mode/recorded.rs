//! The end of a run that is recorded, and of one that is played again.

use sha2::{Digest, Sha256};

use super::program_run::Stop;
use sekisho_calls::journals::{RunJournal, encode};
use sekisho_core::call::CallContext;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::run_file::RunEnd;
use sekisho_guest_protocol::{End, Outcome, ReadStanding};

/// Records a run whose program has ended by itself, with all that it read.
pub(super) async fn record(journal: &RunJournal, call: &CallContext, policy_version: &str, outcome: &Outcome) {
    let reason = match &outcome.end {
        End::Exited { .. } => "exited",
        End::Exception { .. } => "exception",
        // Where it is cut off depends on time and memory.
        End::Timeout | End::Memory | End::Output(_) | End::Trap(_) | End::Cancelled => return,
    };
    let Some(read) = outcome.read.as_ref().filter(|read| read.standing == ReadStanding::Recorded) else {
        let reason = outcome.read.as_ref().map(|read| read.standing);
        tracing::info!(
            run = &**journal.id(),
            ?reason,
            "the run of a program is not recorded: what it read is not known"
        );
        return;
    };
    let end = RunEnd { reason: reason.to_owned(), result_sha256: digest_of(outcome) };
    journal.record(call, policy_version, read.readings.clone(), end).await;
}

/// The result of a run that was played again.
/// Errors: `replay_diverged`: the program did something else, or its result is another one.
pub(super) fn end_replay(
    journal: &RunJournal,
    stop: Option<Stop>,
    outcome: Result<Outcome, CallError>,
) -> Result<Outcome, CallError> {
    match stop {
        Some(Stop::Diverged(what)) => return Err(differs(&what)),
        Some(_) => return Err(differs("it asked for something that has no answer in the file")),
        None => {}
    }
    let outcome = outcome?;
    let is_behind = outcome.read.as_ref().is_some_and(|read| read.standing != ReadStanding::Recorded);
    if !journal.is_caught_up() || is_behind {
        return Err(differs("it ended before it had done all that is in the file"));
    }
    let has_read_more = outcome.read.as_ref().is_some_and(|read| !read.readings.is_empty());
    match &journal.replay().and_then(|replay| replay.expected.clone()) {
        Some(_) if has_read_more => Err(differs("it read clocks or random bytes that are not in the file")),
        Some(expected) if digest_of(&outcome).as_ref() != Some(expected) => {
            Err(differs("its result has another digest than the one in the file"))
        }
        _ => Ok(outcome),
    }
}

/// SHA-256, in hex, of all that its caller gets, without the usage.
fn digest_of(outcome: &Outcome) -> Option<String> {
    let Outcome { end, result, stdout, stderr, files, images, usage: _, session_bytes: _, read: _ } = outcome;
    let bytes = encode(&(end, result, stdout, stderr, files, images)).ok()?;
    Some(hex::encode(Sha256::digest(bytes)))
}

fn differs(what: &str) -> CallError {
    let message = format!("the run that was played again differs from its file: {what}; nothing was sent");
    CallError::new(ErrorCode::ReplayDiverged, message)
}
