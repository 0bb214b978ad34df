//! The policy stage: the checks and the policy set, the external policy, and the approval of a person.

use std::sync::Arc;

use super::Pipeline;
use super::recorded::Recorded;
use crate::policy::{Authorized, NeedsApproval, Permit};
use crate::tool::{Tool, ValidArguments};
use sekisho_config::ApprovalRule;
use sekisho_core::call::CallContext;
use sekisho_core::error::CallError;

impl Pipeline {
    /// Whether the call may need approval at all, or one that its code makes: for others nothing is kept to make them again.
    pub fn may_need_approval(&self, call: &CallContext) -> bool {
        let asks = |tool: &Arc<Tool>| tool.metadata.approval != ApprovalRule::Never || tool.metadata.sandboxed;
        let tool_asks = || match call.target {
            // Without the error for an unknown tool, which names similar ones: the call gets that later.
            None => self.registry.snapshot().get(&call.tool).is_some_and(asks),
            Some(_) => self.registry.find_for(call).as_ref().is_ok_and(asks),
        };
        self.policy.asks_approval() || self.flow.asks() || tool_asks()
    }

    /// Permits a call that nothing refuses and that has its approval, where it needs one.
    pub(super) async fn permit(
        &self,
        call: &CallContext,
        tool: &Tool,
        arguments: ValidArguments,
        recorded: Option<&Recorded>,
    ) -> Result<Permit, CallError> {
        if self.journals.recordings.has_decisions() {
            *call.progress.policy_input.lock() = self.policy.recorded_input(call, tool, &arguments);
        }
        match self.authorize(call, tool, arguments).await? {
            Authorized::Permitted(permit) => Ok(permit),
            // Boxed, because few calls need approval.
            Authorized::NeedsApproval(needs) => Box::pin(self.approve(call, tool, needs, recorded)).await,
        }
    }

    /// The decision of all policies about a call.
    pub(super) async fn authorize(
        &self,
        call: &CallContext,
        tool: &Tool,
        arguments: ValidArguments,
    ) -> Result<Authorized, CallError> {
        let authorized = self.policy.authorize(call, tool, arguments)?;
        match self.policy.asks_external() {
            // Boxed, because few gateways have one.
            true => Box::pin(self.policy.ask_external(call, tool, authorized)).await,
            false => Ok(authorized),
        }
    }

    /// Permits a call that is approved, or asks for it.
    /// Errors: `approval_required`, once the approval was asked for.
    async fn approve(
        &self,
        call: &CallContext,
        tool: &Tool,
        needs: NeedsApproval,
        recorded: Option<&Recorded>,
    ) -> Result<Permit, CallError> {
        let grant = self.approvals.grant(needs.asked(call, tool), recorded.and_then(Recorded::approved)).await;
        match grant {
            Ok(grant) => Ok(needs.permit(grant)),
            Err(error) => {
                let rules = self.policy.rules_that_asked(&needs);
                Err(error.decided_by(Arc::clone(needs.version())).of_rules(rules))
            }
        }
    }
}
