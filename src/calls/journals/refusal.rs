//! Why a run cannot be resumed, and the next steps of its caller.

use std::time::Duration;

use super::{TOO_LARGE, UnknownCall};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::StoreError;

const RUN_ANEW: &str = "run the program anew";

/// The same for a run of another caller or endpoint, and for one that has ended.
pub(super) fn unknown() -> CallError {
    let message = format!(
        "there is no run with this id that this caller can resume here: it has ended, or is no longer kept; {RUN_ANEW}"
    );
    CallError::new(ErrorCode::NotFound, message)
}

pub(super) fn is_running() -> CallError {
    let message = "the run is under way: wait for its end, and resume it if it stops";
    CallError::new(ErrorCode::ConversationLocked, message).retry_after(Duration::from_secs(5))
}

pub(super) fn unusable(reason: Option<&str>) -> CallError {
    let reason = reason.unwrap_or("it has no journal");
    CallError::new(ErrorCode::TooLarge, format!("the run cannot be resumed: {reason}; {RUN_ANEW}"))
}

/// `unknown`: the calls that could be settled.
pub(super) fn no_such_call(unknown: impl Iterator<Item = UnknownCall>) -> CallError {
    let unknown: Vec<_> = unknown.map(|call| format!("{} (of {})", call.number, call.tool)).collect();
    let message = match unknown.is_empty() {
        true => "the run has no call whose outcome is not known: resume it".to_owned(),
        false => format!("`call` is the number of a call whose outcome is not known: {}", unknown.join(", ")),
    };
    CallError::new(ErrorCode::InvalidRequest, message)
}

pub(super) fn too_large_answer() -> CallError {
    CallError::new(ErrorCode::TooLarge, format!("with this answer, {TOO_LARGE}: give the program less of it"))
}

pub(super) fn another_call() -> CallError {
    let message = "the run was begun by a call of another tool, or with other arguments: send the same call";
    CallError::new(ErrorCode::ReplayDiverged, message)
}

pub(super) fn damaged(run: &str) -> CallError {
    tracing::error!(run, "the journal of a program's run does not open");
    let message = format!("the run cannot be resumed: its journal is damaged, or its key is not in force; {RUN_ANEW}");
    CallError::new(ErrorCode::ReplayDiverged, message)
}

pub(super) fn unavailable(error: &StoreError) -> CallError {
    tracing::error!(%error, "the journals of programs cannot be read or written");
    let message = "the journals of programs cannot be read or written now; resume the run again shortly";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(1)).caused_by(error)
}
