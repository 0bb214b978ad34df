//! Why a call with an idempotency key is not run, and what to do then.

use crate::core::error::{CallError, ErrorCode};
use crate::infra::store::StoreError;

pub(super) fn conflict() -> CallError {
    let message = "this Idempotency-Key came with another body before; send that body again, or a new key";
    CallError::new(ErrorCode::IdempotencyConflict, message)
}

pub(super) fn no_longer_kept() -> CallError {
    let message = "this call was run already, and its reply is too large to be kept until now; \
                   look at what it did, and send a new Idempotency-Key to run it again";
    CallError::new(ErrorCode::IdempotencyConflict, message)
}

pub(super) fn outcome_unknown() -> CallError {
    let message = "this call was started already, and the gateway stopped before it had an answer: its outcome is \
                   unknown; look at what it did, and send a new Idempotency-Key to run it again";
    CallError::new(ErrorCode::IdempotencyConflict, message)
}

pub(super) fn still_running() -> CallError {
    let message = "the first call with this Idempotency-Key is still running; send it again later for its reply";
    CallError::new(ErrorCode::Timeout, message)
}

pub(super) fn recorded_too_late() -> CallError {
    let message = "the record of this Idempotency-Key could not be written in time, so that the call was not run; \
                   send it again";
    CallError::new(ErrorCode::Timeout, message)
}

pub(super) fn all_open(most: u64) -> CallError {
    let message = format!(
        "your tenant has {most} calls with an Idempotency-Key whose outcome is open (session.max_idempotency_keys), so \
         that this one was not run; send it again when some have ended"
    );
    CallError::new(ErrorCode::Overloaded, message)
}

/// The path of the store is for the log.
pub(super) fn unavailable(error: &StoreError) -> CallError {
    tracing::error!(%error, "a call with an Idempotency-Key is refused");
    let message = "the records of calls with an Idempotency-Key cannot be used now, so that this one was not run; send \
                   it again later, or without the key where it may run twice";
    CallError::new(ErrorCode::Overloaded, message).caused_by(error)
}
