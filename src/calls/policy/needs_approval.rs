//! A call that the policies permit once a person has approved it.

use std::sync::Arc;

use super::set::{PolicySet, Verdict};
use super::{Decision, Permit, denied, evaluate_masks, refusal};
use crate::approval::{AskedCall, Grant};
use crate::tool::{Tool, ValidArguments};
use sekisho_config::ApprovalRule;
use sekisho_core::call::{CallContext, CallKind};
use sekisho_core::error::{CallError, ErrorCode};

/// The decision of the policies about a call that they do not refuse.
#[derive(Debug)]
pub enum Authorized {
    Permitted(Permit),
    NeedsApproval(NeedsApproval),
}

/// The arguments of a call until it is approved, and why it must be.
#[derive(Debug)]
pub struct NeedsApproval {
    arguments: ValidArguments,
    version: Arc<str>,
    cached: bool,
    reasons: Vec<String>,
    /// It is the tool's first use by the caller that needs approval.
    first_use: bool,
    masks: Vec<String>,
}

impl Authorized {
    /// The permit of a call that needs no approval.
    /// Errors: `approval_required`, with all reasons.
    pub fn without_approval(self) -> Result<Permit, CallError> {
        match self {
            Self::Permitted(permit) => Ok(permit),
            Self::NeedsApproval(needs) => Err(needs.refusal()),
        }
    }

    pub(super) fn arguments(&self) -> &ValidArguments {
        match self {
            Self::Permitted(permit) => &permit.arguments,
            Self::NeedsApproval(needs) => &needs.arguments,
        }
    }

    /// The version of the policies that decided.
    pub(super) fn version(&self) -> &Arc<str> {
        match self {
            Self::Permitted(permit) => permit.version(),
            Self::NeedsApproval(needs) => needs.version(),
        }
    }

    /// The same with further reasons why a person must approve the call, which come from no cache.
    /// Errors: as [`NeedsApproval::new`].
    pub(super) fn requiring(
        self,
        reasons: Vec<String>,
        set: &PolicySet,
        call: &CallContext,
        tool: &Tool,
    ) -> Result<Self, CallError> {
        Ok(match self {
            Self::Permitted(permit) if reasons.is_empty() => Self::Permitted(Permit { cached: false, ..permit }),
            Self::Permitted(Permit { arguments, version, .. }) => {
                let verdict = Verdict { denials: Vec::new(), approvals: reasons };
                let decision = Decision::new(verdict, &version, false);
                Self::NeedsApproval(NeedsApproval::new(set, call, tool, arguments, decision)?)
            }
            Self::NeedsApproval(mut needs) => {
                let new: Vec<_> = reasons.into_iter().filter(|reason| !needs.reasons.contains(reason)).collect();
                needs.reasons.extend(new);
                Self::NeedsApproval(NeedsApproval { cached: false, ..needs })
            }
        })
    }
}

impl NeedsApproval {
    /// Errors: `denied`: the masks of the arguments for approvers cannot be evaluated.
    pub(super) fn new(
        set: &PolicySet,
        call: &CallContext,
        tool: &Tool,
        arguments: ValidArguments,
        decision: Decision,
    ) -> Result<Self, CallError> {
        let Decision { version, cached, approvals: mut reasons, .. } = decision;
        let masks = evaluate_masks(set, call, tool, &arguments)
            .map_err(|failure| denied(Decision::failed(failure, &set.version)))?;
        if tool.metadata.kind == CallKind::Effects {
            reasons.push("the effects of a program need approval".to_owned());
        } else if tool.metadata.approval == ApprovalRule::Always {
            reasons.push(format!("{} always needs approval", tool.name()));
        }
        let first_use = tool.metadata.approval == ApprovalRule::FirstUse;
        Ok(Self { arguments, version, cached, reasons, first_use, masks })
    }

    /// The call as it is shown to an approver.
    pub fn asked<'a>(&'a self, call: &'a CallContext, tool: &'a Tool) -> AskedCall<'a> {
        AskedCall {
            call,
            tool,
            arguments: &self.arguments,
            reasons: &self.reasons,
            first_use: self.first_use,
            masks: &self.masks,
            policy_version: &self.version,
        }
    }

    /// The call is approved. Later stages may still refuse it.
    pub fn permit(self, grant: Grant) -> Permit {
        let Self { arguments, version, cached, .. } = self;
        Permit { arguments, version, cached, grant: Some(grant) }
    }

    /// The version of the policies that ask for approval.
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }

    pub(super) fn reasons(&self) -> impl Iterator<Item = &str> {
        self.reasons.iter().map(String::as_str)
    }

    fn refusal(mut self) -> CallError {
        if self.first_use {
            self.reasons.push("the first use of this tool by a caller needs approval".to_owned());
        }
        refusal(ErrorCode::ApprovalRequired, "require_approval", self.reasons).decided_by(self.version)
    }
}
