//! The policy stage: the checks and the policy set, the external policy, and the approval of a person.

use super::Pipeline;
use super::recorded::Recorded;
use crate::policy::{Authorized, Permit};
use crate::tool::{Tool, ValidArguments};
use sekisho_core::call::CallContext;
use sekisho_core::error::CallError;

impl Pipeline {
    /// Permits a call that nothing refuses, and that is approved if it must be.
    pub(super) async fn permit(
        &self,
        call: &CallContext,
        tool: &Tool,
        arguments: ValidArguments,
        recorded: Option<&Recorded>,
    ) -> Result<Permit, CallError> {
        match self.authorize(call, tool, arguments).await? {
            Authorized::Permitted(permit) => Ok(permit),
            // Boxed, because few calls need approval.
            Authorized::NeedsApproval(needs) => Box::pin(self.approve(call, tool, needs, recorded)).await,
        }
    }

    /// What all policies say of a call.
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
}
