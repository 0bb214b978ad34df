//! The first step of a call: it resumes the run of a program that waits for the approval of the call.

use std::sync::Arc;

use super::Pipeline;
use super::receipt::Answered;
use sekisho_core::call::{Arguments, CallContext};

/// The run of a program that a call resumes.
#[derive(Debug)]
pub(super) struct ResumedRun {
    id: Arc<str>,
    /// A call of the same caller and endpoint.
    asking: CallContext,
}

impl Pipeline {
    /// Has a call that names an approval resume the run that waits for it. Returns the run that the call resumes, if any.
    pub(super) async fn resume(&self, call: &mut CallContext, arguments: &Arguments) -> Option<Box<ResumedRun>> {
        if call.resumption.approval.is_some() && call.resumption.run.is_none() {
            // Boxed, to keep this rare branch out of the size of the future.
            Box::pin(self.resume_what_waits(call, arguments)).await;
        }
        let id = call.resumption.run.clone()?;
        Some(Box::new(ResumedRun { id, asking: call.repeated() }))
    }

    /// If a call needs an approval of its own, the run that it resumes waits for that: its program is not run from the beginning.
    pub(super) async fn await_approval(&self, resumed: &ResumedRun, answered: &Answered) {
        if let (Some(needed), None) = (answered.needed_approval(), answered.stopped_run()) {
            self.journals.await_approval(&resumed.asking, &resumed.id, &needed.id).await;
        }
    }

    /// The run of the call's program that waits for an approval.
    pub async fn run_awaiting(&self, call: &CallContext, arguments: &Arguments, approval: &str) -> Option<Arc<str>> {
        let tool = self.registry.find_for(call).ok().filter(|tool| tool.metadata.sandboxed)?;
        let valid = tool.valid_arguments(arguments.clone(), &call.origin.prompt_params).ok()?;
        match self.journals.awaiting(call, valid.sent(), approval).await {
            Ok(run) => run,
            Err(error) => {
                // The approval cannot be read either, and the call is refused.
                tracing::error!(%error, "the runs that wait for approvals cannot be read");
                None
            }
        }
    }

    /// Has a call resume the run of its program, if that run waits for the approval which the call names.
    async fn resume_what_waits(&self, call: &mut CallContext, arguments: &Arguments) {
        let Some(approval) = call.resumption.approval.clone() else { return };
        let Some(run) = self.run_awaiting(call, arguments, &approval).await else { return };
        call.resumption.run = Some(run);
        // An approval of a call that the program makes is used by that call.
        if !self.is_for_itself(call, arguments, &approval).await {
            call.resumption.approval = None;
        }
    }

    /// Whether an approval is for this call, not for one that its program makes.
    async fn is_for_itself(&self, call: &CallContext, arguments: &Arguments, approval: &str) -> bool {
        let Ok(tool) = self.registry.find_for(call) else { return false };
        let Ok(valid) = tool.valid_arguments(arguments.clone(), &call.origin.prompt_params) else { return false };
        self.approvals.check_binding(approval, call, &tool, &valid).await.is_ok()
    }
}
