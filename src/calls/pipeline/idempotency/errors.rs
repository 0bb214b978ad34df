//! Why a call with an idempotency key is not run, and the next steps of the caller.

use std::time::Duration;

use super::key::RecordKind;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_outbound::blobs::BlobError;
use sekisho_store::StoreError;

pub(super) fn conflict() -> CallError {
    let message = "this Idempotency-Key was used for another call: with a different body, or before the tool changed; look what became of \
                   that call before you send a new key";
    CallError::new(ErrorCode::IdempotencyConflict, message)
}

pub(super) fn no_longer_kept(kind: RecordKind) -> CallError {
    let message = format!(
        "this call has already run, but its reply is no longer stored; check its effect, and {}",
        kind.how_to_run_again()
    );
    CallError::new(ErrorCode::IdempotencyConflict, message)
}

pub(in crate::pipeline) fn outcome_unknown(kind: RecordKind) -> CallError {
    let message = format!(
        "this call was started, but its answer did not arrive: its outcome is unknown; \
         check its effect, and {}",
        kind.how_to_run_again()
    );
    CallError::new(ErrorCode::UnknownOutcome, message)
}

/// A read does not find the effect, which may come yet.
pub(in crate::pipeline) fn no_answer_yet(wait: Duration) -> CallError {
    let message =
        "this call was started, and nothing shows its effect yet; send it again later: it is made only if it was not";
    CallError::new(ErrorCode::UnknownOutcome, message).retry_after(wait)
}

pub(super) fn no_such_effect() -> CallError {
    let message = "you have no call of this id whose outcome is not known; `GET /effects` lists them";
    CallError::new(ErrorCode::NotFound, message)
}

pub(super) fn effect_runs() -> CallError {
    let message = "this call still runs, so its outcome will be known; ask again when it has ended";
    CallError::new(ErrorCode::IdempotencyConflict, message)
}

pub(super) fn still_running(kind: RecordKind) -> CallError {
    let header = kind.header();
    let message = format!("the first call with this {header} is still running; send it again later for its reply");
    CallError::new(ErrorCode::Timeout, message)
}

pub(super) fn ran_elsewhere(kind: RecordKind) -> CallError {
    let header = kind.header();
    let message = format!("a call with this {header} ran at another replica at the same time; this one was not run");
    CallError::new(ErrorCode::IdempotencyConflict, message)
}

pub(super) fn recorded_too_late(kind: RecordKind) -> CallError {
    let header = kind.header();
    let message = format!(
        "the record of this {header} could not be written before the deadline, so the call was not run; send it again"
    );
    CallError::new(ErrorCode::Timeout, message)
}

pub(super) fn all_open(max: u64) -> CallError {
    let message = format!(
        "your tenant has {max} unfinished calls with an Idempotency-Key, the maximum \
         (session.max_idempotency_keys), so this call was not run; send it again when some have ended"
    );
    CallError::new(ErrorCode::Overloaded, message)
}

/// Logs the name of the object, which the reply must not contain.
pub(super) fn reply_out_of_reach(error: &BlobError, kind: RecordKind) -> CallError {
    tracing::error!(%error, "the stored reply of a call cannot be read");
    match error {
        BlobError::Missing { .. } | BlobError::Damaged { .. } => {
            let message = format!(
                "this call has already run, but its stored reply is damaged or gone; check its effect, and {}",
                kind.how_to_run_again()
            );
            CallError::new(ErrorCode::IdempotencyConflict, message).caused_by(error)
        }
        _ => {
            let message = "this call has already run, but its reply cannot be read from object storage now; \
                           send it again later";
            CallError::new(ErrorCode::Overloaded, message).caused_by(error)
        }
    }
}

/// Logs the path of the store, which the reply must not contain.
pub(super) fn unavailable(error: &StoreError) -> CallError {
    tracing::error!(%error, "a call with an Idempotency-Key is refused");
    let message = "the store of Idempotency-Keys is not available, so the call was not run; send it again later, or \
                   without the key if it may run twice";
    CallError::new(ErrorCode::Overloaded, message).caused_by(error)
}
