//! The start of a call that is about to be sent. A dry run ends before.

use super::Pipeline;
use super::recorded::Recorded;
use crate::policy::Permit;
use crate::tool::Tool;
use sekisho_core::call::CallContext;
use sekisho_core::error::CallError;

/// A call that has begun: it is recorded, its approval is used, and its session is open. Only [`Pipeline::start`] makes it.
#[derive(Debug)]
#[must_use]
pub(super) struct Start(());

impl Pipeline {
    /// Begins a call that every stage before execution has admitted; `None` for a dry run.
    /// Errors: the call must not be sent: its record cannot be written, its approval is used up, or no session can be
    /// opened.
    pub(super) async fn start(
        &self,
        call: &CallContext,
        tool: &Tool,
        permit: &Permit,
        recorded: Option<&mut Recorded>,
    ) -> Result<Option<Start>, CallError> {
        if call.dry_run {
            return Ok(None);
        }
        if let Some(recorded) = recorded {
            // Boxed, because few calls have a key.
            Box::pin(recorded.start(call, call.deadline(tool.timeout()))).await?;
        }
        if let Some(grant) = permit.grant() {
            Box::pin(self.approvals.use_grant(grant, call)).await?;
        }
        self.sessions.open_for(call)?;
        Ok(Some(Start(())))
    }
}
