//! Why a call that needs approval does not run, and the next steps of the caller.

use std::sync::Arc;
use std::time::Duration;

use super::{Approval, Approvals};
use sekisho_core::approval::ApprovalState;
use sekisho_core::call::CallContext;
use sekisho_core::error::{CallError, Detail, ErrorCode, NeededApproval};
use sekisho_store::sealing::SealingError;
use sekisho_store::{PENDING_OF_CALLER, StoreError};

const ASK_AGAIN: &str = "send the call without `X-Approval-Id` to ask again";

impl Approvals {
    /// The call needs this approval, which waits or waits to be used.
    pub(super) fn required(&self, approval: &Approval, reasons: &[String], version: &Arc<str>) -> CallError {
        let needed = self.needed(approval);
        let NeededApproval { id, url, .. } = &needed;
        let next = match approval.is_approved() {
            true => format!("it is approved: send the same call again with the header `X-Approval-Id: {id}`"),
            false => format!(
                "a person must approve this call at {url}: then send it again with the header `X-Approval-Id: {id}`"
            ),
        };
        needs_approval(reasons, &next).decided_by(Arc::clone(version)).needing(needed)
    }

    /// The answer to a caller about an approval that its call needs.
    pub fn needed(&self, approval: &Approval) -> NeededApproval {
        let (id, url) = (Arc::clone(&approval.id), self.page_of(approval));
        NeededApproval { id, expires_at: approval.expires.to_string(), url }
    }
}

/// A dry run asks nobody.
pub(super) fn not_asked(reasons: &[String], version: &Arc<str>) -> CallError {
    let next = "a person must approve this call: send it without `dry_run` to ask for that";
    needs_approval(reasons, next).decided_by(Arc::clone(version))
}

/// The arguments cannot be kept until the decision.
pub(super) fn not_kept(reasons: &[String], error: &SealingError) -> CallError {
    tracing::error!(%error, "no approval can be asked for: the arguments of the call cannot be sealed");
    let next = "a person must approve this call, and none can be asked: tell the operators of this gateway, whose log says why";
    needs_approval(reasons, next).caused_by(error)
}

/// The sealed record of an approval cannot be opened.
pub(super) fn not_opened(problem: &SealingError) -> CallError {
    let SealingError::UnknownKey { .. } = problem else { return CallError::internal(problem) };
    let message = "what was stored of this approval cannot be opened, since the key that sealed it is not in force: restore \
                   `secrets.key` of the gateway that asked, or deny the call, so that it is asked for anew";
    CallError::new(ErrorCode::ApprovalLost, message).caused_by(problem)
}

pub(super) fn too_large(bytes: usize, max: usize) -> CallError {
    let message = format!(
        "a call that needs approval may have {max} bytes of arguments, and this one has {bytes}: send it in smaller parts"
    );
    CallError::new(ErrorCode::TooLarge, message)
}

pub(super) fn too_many_of_caller() -> CallError {
    let message = format!(
        "{PENDING_OF_CALLER} of your calls wait for approval, the maximum: send this one again when some are decided"
    );
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(60))
}

pub(super) fn too_many() -> CallError {
    let message = "too many calls of all callers wait for approval: send this one again when some are decided";
    CallError::new(ErrorCode::Overloaded, message).retry_after(Duration::from_secs(60))
}

pub(super) fn not_found() -> CallError {
    let message = format!("there is no such approval, or it is not yours: {ASK_AGAIN}");
    CallError::new(ErrorCode::NotFound, message)
}

pub(super) fn mismatch(approval: &Approval, call: &CallContext) -> CallError {
    let what = match approval.tool == call.tool {
        true if approval.is_changed() => "for this call with the arguments that an approver wrote".to_owned(),
        true => "for other arguments, another session, endpoint or version of this tool".to_owned(),
        false => format!("for the tool {}", approval.tool),
    };
    CallError::new(ErrorCode::ApprovalMismatch, format!("the approval {} is {what}: {ASK_AGAIN}", approval.id))
}

pub(super) fn outcome_unknown(approval: &Approval) -> CallError {
    let message = format!(
        "the call of the approval {} was started, and the gateway stopped before its answer: check what it did, then {ASK_AGAIN}",
        approval.id
    );
    CallError::new(ErrorCode::UnknownOutcome, message)
}

/// It does not let the call pass any more.
pub(super) fn ended(approval: &Approval) -> CallError {
    let id = &approval.id;
    match approval.state {
        ApprovalState::Denied => {
            let why = approval.denial().map(|denial| denial.reason.as_str()).filter(|reason| !reason.is_empty());
            let why = why.map(|reason| format!(" ({reason})")).unwrap_or_default();
            let message = format!("an approver denied this call{why}: do without it, or {ASK_AGAIN}");
            CallError::new(ErrorCode::ApprovalDenied, message)
        }
        ApprovalState::Unknown => outcome_unknown(approval),
        ApprovalState::Done | ApprovalState::Executing => {
            let message =
                format!("the call of the approval {id} has run, and its reply is not kept any more: {ASK_AGAIN}");
            CallError::new(ErrorCode::IdempotencyConflict, message)
        }
        _ => CallError::new(ErrorCode::ApprovalExpired, format!("the approval {id} has expired: {ASK_AGAIN}")),
    }
}

/// Logs the path of the store, which the reply must not contain.
pub(super) fn unavailable(error: &StoreError) -> CallError {
    tracing::error!(%error, "approvals cannot be read or written");
    let message = "the store of approvals is not available, so the call was not made: send it again later";
    CallError::new(ErrorCode::Overloaded, message).caused_by(error)
}

fn needs_approval(reasons: &[String], next: &str) -> CallError {
    let detail =
        |message: &String| Detail { path: "policy".into(), rule: "require_approval".into(), message: message.clone() };
    CallError::new(ErrorCode::ApprovalRequired, format!("{}; {next}", reasons.join("; ")))
        .with_details(reasons.iter().map(detail).collect())
}
