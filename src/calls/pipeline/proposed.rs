//! A call that a program proposes: what an approver is shown of it. It is not made.

use super::Pipeline;
use crate::approval::ProposedEffect;
use crate::budget::price_of;
use crate::policy::Authorized;
use sekisho_core::call::{Arguments, CallContext, Stage};
use sekisho_core::error::CallError;

impl Pipeline {
    /// The call as an effect of a program, if it could be made now once it is approved. Takes no token, slot or hold.
    /// Errors: the refusal of the call: `unknown_tool`, `invalid_arguments`, `denied` …
    pub async fn proposed(&self, call: &CallContext, arguments: Arguments) -> Result<ProposedEffect, CallError> {
        let tool = self.registry.find_for(call).map_err(|error| error.at_stage(Stage::Find))?;
        let valid = tool.valid_arguments(arguments.clone(), &call.origin.prompt_params);
        let valid = valid.map_err(|error| error.at_stage(Stage::Validate))?;
        // Without a call, nothing is counted.
        let unmade = CallContext { dry_run: true, ..call.repeated() };
        let valid = self.flow.judged(&unmade, &tool, valid, self.policy.reads_flow()).await;
        let sha256 = tool.sent_call(call, valid.sent()).digest(&tool);
        let masks = self.policy.masks(call, &tool, &valid)?;
        let reasons = match self.authorize(call, &tool, valid).await.map_err(|error| error.at_stage(Stage::Policy))? {
            Authorized::Permitted(_) => Vec::new(),
            Authorized::NeedsApproval(needs) => self.approvals.reasons_of(&needs.asked(call, &tool)).await?,
        };
        Ok(ProposedEffect {
            call: 0,
            tool: tool.name().to_owned(),
            arguments,
            sha256,
            cost_usd: price_of(&tool.metadata).to_string(),
            labels: tool.metadata.labels.clone(),
            reasons,
            masks,
            approvals_needed: tool.metadata.approvals_needed,
            refers_to: Vec::new(),
            struck: false,
        })
    }
}
