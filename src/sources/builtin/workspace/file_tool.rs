//! The executor all file tools share: finds the session's workspace and runs a job in it.

use super::{Workspace, Workspaces};
use crate::core::call::{Arguments, ToolOutput};
use crate::core::error::{CallError, ErrorCode};
use crate::core::session::Session;
use crate::tool::{Attempt, Execution, Executor};

/// What one file tool does. The last argument is the largest output in bytes.
pub(super) type Job = fn(&Workspace, &Arguments, usize) -> Result<ToolOutput, CallError>;

#[derive(Debug)]
pub(in super::super) struct FileTool {
    pub(in super::super) workspaces: Workspaces,
    pub(in super::super) reach: Reach,
    pub(in super::super) job: Job,
}

/// Whether a missing workspace is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Reach {
    Read,
    Write,
}

impl Executor for FileTool {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let session = attempt.call.session.as_deref().ok_or_else(no_session)?;
            self.run_in(Session::workspace_name(session), arguments, attempt.max_output_bytes).await
        })
    }
}

impl FileTool {
    pub(in super::super) async fn run_in(
        &self,
        workspace: &str,
        arguments: &Arguments,
        max_output_bytes: usize,
    ) -> Result<ToolOutput, CallError> {
        let (job, arguments) = (self.job, arguments.clone());
        self.workspaces.work(workspace, self.reach, move |workspace| job(workspace, &arguments, max_output_bytes)).await
    }
}

fn no_session() -> CallError {
    CallError::new(
        ErrorCode::InvalidRequest,
        "files belong to the workspace of a session; send a `session_id` with the call (`--session` on the command line), any name you choose",
    )
}
