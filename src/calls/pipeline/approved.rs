//! Calls that a person must approve: how they are asked for, and calls that are sent again with an approval.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::Pipeline;
use super::idempotency::{IdempotentOutcome, POLL, RequestDigest};
use super::receipt::Answered;
use super::recorded::{Entered, Recorded};
use crate::approval::Standing;
use crate::policy::{NeedsApproval, Permit};
use crate::tool::Tool;
use sekisho_config::ApprovalRule;
use sekisho_core::call::{Arguments, CallContext, Deadline, Stage};
use sekisho_core::error::{CallError, ErrorCode};

impl Pipeline {
    /// Whether the call may need approval at all, or one that its code makes: for others nothing is kept to make them again.
    pub fn may_need_approval(&self, call: &CallContext) -> bool {
        let asks = |tool: &Arc<Tool>| tool.metadata.approval != ApprovalRule::Never || tool.metadata.sandboxed;
        self.policy.asks_approval() || self.registry.find_for(call).as_ref().is_ok_and(asks)
    }

    /// Makes a call that names an approval, or resumes the run of its program. A run that waits for the approval is resumed. If
    /// the call then needs an approval of its own, the run waits for that: its program is not run from the beginning.
    pub(super) async fn call_of_run(self: &Arc<Self>, mut call: CallContext, arguments: Arguments) -> Answered {
        if call.resumed_run.is_none() {
            self.resume_what_waits(&mut call, &arguments).await;
        }
        let Some(run) = call.resumed_run.clone() else { return self.make_call(call, arguments).await };
        let asking = call.repeated();
        let answered = self.make_call(call, arguments).await;
        if let (Some(needed), None) = (answered.needed_approval(), answered.stopped_run()) {
            self.journals.await_approval(&asking, &run, &needed.id).await;
        }
        answered
    }

    /// Has a call resume the run of its program, if that waits for the approval which the call names.
    async fn resume_what_waits(&self, call: &mut CallContext, arguments: &Arguments) {
        let Some(approval) = call.approval.clone() else { return };
        let Some(run) = self.run_awaiting(call, arguments, &approval).await else { return };
        call.resumed_run = Some(run);
        // One of a call that the program makes is used by that.
        if !self.is_for_itself(call, arguments, &approval).await {
            call.approval = None;
        }
    }

    /// Whether an approval is for this call, not for one that its program makes.
    async fn is_for_itself(&self, call: &CallContext, arguments: &Arguments, approval: &str) -> bool {
        let Ok(tool) = self.registry.find_for(call) else { return false };
        let Ok(valid) = tool.valid_arguments(arguments.clone(), &call.prompt_params) else { return false };
        self.approvals.check_binding(approval, call, &tool, &valid).await.is_ok()
    }

    /// The run of the call's program that waits for an approval.
    pub async fn run_awaiting(&self, call: &CallContext, arguments: &Arguments, approval: &str) -> Option<Arc<str>> {
        let tool = self.registry.find_for(call).ok().filter(|tool| tool.metadata.sandboxed)?;
        let valid = tool.valid_arguments(arguments.clone(), &call.prompt_params).ok()?;
        match self.journals.awaiting(call, valid.sent(), approval).await {
            Ok(run) => run,
            Err(error) => {
                // The approval cannot be read either, and the call is refused.
                tracing::error!(%error, "the runs that wait for approvals cannot be read");
                None
            }
        }
    }

    /// Permits a call that is approved, or asks for it.
    ///
    /// # Errors
    /// `approval_required`, once it was asked for.
    pub(super) async fn approve(
        &self,
        call: &CallContext,
        tool: &Tool,
        needs: NeedsApproval,
        recorded: Option<&Recorded>,
    ) -> Result<Permit, CallError> {
        let grant = self.approvals.grant(needs.asked(call, tool), recorded.and_then(Recorded::approved)).await;
        match grant {
            Ok(grant) => Ok(needs.permit(grant)),
            Err(error) => Err(error.decided_by(Arc::clone(needs.version()))),
        }
    }

    /// Whether a call with a key or an approval must be run, or already has a reply.
    ///
    /// # Errors
    /// `unauthenticated` or `denied` for a caller who may not use the tool; those of the key and of the approval.
    pub(super) async fn enter(&self, call: &CallContext, arguments: &Arguments) -> Result<Entered, CallError> {
        let mut recorded = Recorded::default();
        let Ok(tool) = self.registry.find_for(call) else { return Ok(Entered::First(recorded.into())) };
        // A narrower key of the same person, or a token with fewer scopes, gets no reply of a call that was made with more.
        self.policy.check_access(&tool, &call.caller).map_err(|error| error.at_stage(Stage::Policy))?;
        let deadline = call.deadline(tool.timeout());
        // What reads stored results has no effect, and is checked each time: its reply is that of another tool.
        if let Some(key) = call.idempotency_key.as_ref().filter(|_| !tool.metadata.reads_results()) {
            match self.replies.enter(call, key, RequestDigest::new(call, &tool, arguments), deadline).await? {
                IdempotentOutcome::Answered(reply) => return Ok(Entered::Answered(reply)),
                IdempotentOutcome::First(guard) => recorded.key = Some(guard),
            }
        }
        match &call.approval {
            None => Ok(Entered::First(recorded.into())),
            Some(id) => self.enter_approved(call, &tool, (id, arguments), deadline, recorded).await,
        }
    }

    /// The approval is checked before a reply is given: only the call that was approved gets it.
    async fn enter_approved(
        &self,
        call: &CallContext,
        tool: &Tool,
        (id, arguments): (&Arc<str>, &Arguments),
        deadline: Deadline,
        recorded: Recorded,
    ) -> Result<Entered, CallError> {
        let valid = tool.valid_arguments(arguments.clone(), &call.prompt_params)?;
        let binding = self.approvals.check_binding(id, call, tool, &valid).await?;
        let mut was_made = false;
        loop {
            let guard = match self.replies.enter_approved(call, id, &binding, deadline).await? {
                IdempotentOutcome::Answered(reply) => return Ok(Entered::Answered(reply)),
                IdempotentOutcome::First(guard) => guard,
            };
            match self.approvals.standing(id, call, tool, &valid).await? {
                Standing::Open => return Ok(Entered::First(recorded.into())),
                Standing::Once(approved) => {
                    let recorded = Recorded { approved: Some((approved, guard)), ..recorded };
                    return Ok(Entered::First(recorded.into()));
                }
                // It was made at another replica after its reply was looked up here: look once more.
                Standing::Made(refusal) if was_made => return Err(refusal),
                Standing::Made(_) => was_made = true,
                Standing::RunsElsewhere if deadline.has_passed() => return Err(still_running()),
                Standing::RunsElsewhere => {
                    drop(guard);
                    sleep_until(deadline.0.min(Instant::now() + POLL)).await;
                }
            }
        }
    }
}

fn still_running() -> CallError {
    let message = "the call of this approval is still running at another replica; send it again later for its reply";
    CallError::new(ErrorCode::Timeout, message)
}

#[cfg(test)]
mod tests;
