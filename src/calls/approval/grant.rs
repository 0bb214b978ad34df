//! The use of an approval by a call.

use std::sync::Arc;

use super::{Approval, Approvals, Binding, refusal};
use crate::tool::{Tool, ValidArguments};
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_core::approval::ApprovalState;
use sekisho_core::call::CallContext;
use sekisho_core::error::CallError;
use sekisho_core::{failpoint, json};
use sekisho_observe::metrics::ApprovalEvent;
use sekisho_store::replica::LOST_AFTER;

/// Proof that a call needs no approval, or has one. Only [`Approvals`] makes it.
#[derive(Debug)]
pub struct Grant(pub(super) Kind);

#[derive(Debug)]
pub(super) enum Kind {
    /// The tool was used with approval before, or the call is an effect of a program whose effects are approved.
    NotNeeded,
    /// [`ApprovedCall`] is started before the call is sent.
    Once,
    /// By an approval with this id that covers several calls.
    Several(Arc<str>),
}

/// The permission of an approval that a call names.
#[derive(Debug)]
pub enum Standing {
    /// It waits, or covers several calls: the policies decide whether the call needs it.
    Open,
    /// This call may be made, once.
    Once(ApprovedCall),
    /// Another replica makes the call.
    RunsElsewhere,
    /// The call was made. Its reply is on record; the refusal is for the case that it is not kept any more.
    Made(CallError),
}

/// An approved call that has not been made yet. The caller holds the only right in this process to make it.
#[derive(Debug)]
pub struct ApprovedCall {
    approvals: Arc<Approvals>,
    approval: Box<Approval>,
    /// The call that was compared with the approval.
    binding: Binding,
    /// Once it is about to be sent.
    fence: Option<i64>,
}

impl Approvals {
    /// The binding of a call that names an approval, if the approval is for this call.
    /// Errors: `not_found` for one of another caller, `approval_mismatch`.
    pub async fn check_binding(
        &self,
        id: &str,
        call: &CallContext,
        tool: &Tool,
        arguments: &ValidArguments,
    ) -> Result<Binding, CallError> {
        self.binding_in(&self.find(id).await?, call, tool, arguments)
    }

    /// The permission of the approval for this call. No other task in this process makes it meanwhile.
    /// Errors: `approval_mismatch`, `approval_denied`, `approval_expired`, `unknown_outcome`.
    pub async fn standing(
        self: &Arc<Self>,
        id: &str,
        call: &CallContext,
        tool: &Tool,
        arguments: &ValidArguments,
    ) -> Result<Standing, CallError> {
        let approval = self.find(id).await?;
        match approval.state {
            ApprovalState::Pending => Ok(Standing::Open),
            ApprovalState::Approved if approval.covers_several() => Ok(Standing::Open),
            ApprovalState::Approved => {
                // An approver may have changed the arguments after they were compared. From now on nobody can.
                let binding = self.binding_in(&approval, call, tool, arguments)?;
                let (approvals, approval) = (Arc::clone(self), Box::new(approval));
                Ok(Standing::Once(ApprovedCall { approvals, approval, binding, fence: None }))
            }
            ApprovalState::Executing if self.runs_elsewhere(&approval).await? => Ok(Standing::RunsElsewhere),
            ApprovalState::Executing => {
                self.lose(&approval).await?;
                Err(refusal::outcome_unknown(&approval))
            }
            ApprovalState::Done => Ok(Standing::Made(refusal::ended(&approval))),
            _ => Err(refusal::ended(&approval)),
        }
    }

    /// Counts a call that an approval of several calls lets through, before it is sent.
    /// Errors: `approval_expired`: it does not hold any more. `overloaded` when the count cannot be written.
    pub async fn use_grant(&self, grant: &Grant, call: &CallContext) -> Result<(), CallError> {
        let Kind::Several(id) = &grant.0 else { return Ok(()) };
        let slot = self.audit.reserve()?;
        if !self.store.approvals().record_use(id).await.map_err(|error| refusal::unavailable(&error))? {
            return Err(refusal::ended(&self.find(id).await?));
        }
        self.metrics.approval(ApprovalEvent::Used);
        _ = slot.write_event(used(id, call));
        Ok(())
    }

    fn binding_in(
        &self,
        approval: &Approval,
        call: &CallContext,
        tool: &Tool,
        arguments: &ValidArguments,
    ) -> Result<Binding, CallError> {
        if approval.caller_key != *call.caller.key {
            return Err(refusal::not_found());
        }
        let binding = Binding::of(call, tool, arguments);
        let is_same_call = match self.changed_arguments(approval)? {
            None => approval.stored.call_digest == binding.call,
            // The call that was asked for, but with these arguments.
            Some(changed) => {
                let asked = tool.valid_arguments(self.arguments(approval)?, &call.origin.prompt_params);
                asked.is_ok_and(|asked| approval.stored.call_digest == Binding::of(call, tool, &asked).call)
                    && json::digest(&changed) == json::digest(arguments.as_map())
            }
        };
        let is_same_session = binding.session.is_some() && approval.stored.session_digest == binding.session;
        if is_same_call || (approval.covers_several() && is_same_session) {
            return Ok(binding);
        }
        Err(refusal::mismatch(approval, call))
    }

    /// Whether another replica, which is not lost, makes the call.
    async fn runs_elsewhere(&self, approval: &Approval) -> Result<bool, CallError> {
        match (&approval.stored.runner, self.replica.get()) {
            (Some(runner), Some(own)) if **runner != **own => {
                let lost = self.store.replicas().is_lost(runner, own, LOST_AFTER).await;
                lost.map(|lost| !lost).map_err(|error| refusal::unavailable(&error))
            }
            _ => Ok(false),
        }
    }

    async fn lose(&self, approval: &Approval) -> Result<(), CallError> {
        let lost = self.store.approvals().lose_call(&approval.id, approval.stored.fence).await;
        if lost.map_err(|error| refusal::unavailable(&error))? {
            self.record_lost(approval);
        }
        Ok(())
    }
}

impl ApprovedCall {
    /// Errors: `approval_mismatch`: the call is another one by now, such as of a tool that a reload changed while the
    /// call waited.
    pub(super) fn check(&self, binding: &Binding, call: &CallContext) -> Result<(), CallError> {
        if self.binding == *binding { Ok(()) } else { Err(refusal::mismatch(&self.approval, call)) }
    }

    /// Whether the approver was shown all of these reasons.
    pub(super) fn has_shown(&self, reasons: &[String]) -> bool {
        self.approval.shows(reasons)
    }

    /// Writes that the call is about to be sent. False: another replica makes it, or has made it.
    /// Errors: why the approval does not hold any more; `overloaded` when it cannot be written. The call must not be
    /// sent.
    pub async fn start(&mut self, call: &CallContext) -> Result<bool, CallError> {
        let (approvals, id) = (&self.approvals, &self.approval.id);
        let slot = approvals.audit.reserve()?;
        failpoint::reach("approval.starting");
        let started = approvals.store.approvals().start_call(id, approvals.runner()).await;
        self.fence = started.map_err(|error| refusal::unavailable(&error))?;
        if self.fence.is_some() {
            failpoint::reach("approval.executing");
            approvals.metrics.approval(ApprovalEvent::Used);
            _ = slot.write_event(used(id, call));
            return Ok(true);
        }
        let now = approvals.find(id).await?;
        match now.state {
            ApprovalState::Executing | ApprovalState::Done => Ok(false),
            _ => Err(refusal::ended(&now)),
        }
    }

    /// The call has ended. A call that was not sent may be made again.
    pub async fn end(self, was_sent: bool) {
        let Some(fence) = self.fence else { return };
        failpoint::reach("approval.ending");
        match self.approvals.store.approvals().end_call(&self.approval.id, fence, was_sent).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(approval = &*self.approval.id, "an approved call ended after it counted as lost");
            }
            Err(error) => tracing::error!(%error, "the end of an approved call could not be recorded"),
        }
        failpoint::reach("approval.ended");
    }
}

/// The line of the audit trail about a use: the call has its own.
fn used(id: &str, call: &CallContext) -> AuditEvent {
    AuditEvent {
        subject: Some(id.to_owned()),
        detail: Some(format!("call {}", call.id)),
        caller: Some(Arc::clone(&call.caller)),
        ..AuditEvent::new(EventKind::ApprovalUsed).of_request(call.origin.request.as_ref(), call.origin.trace.as_ref())
    }
}
