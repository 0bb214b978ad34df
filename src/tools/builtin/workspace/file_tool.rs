//! The executor all file tools share: finds the session's workspace and runs a job in it.

use std::sync::Arc;

use super::{Workspace, Workspaces};
use sekisho_calls::tool::{Attempt, Execution, Executor};
use sekisho_core::call::{Arguments, ToolOutput, Upload};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::session::Session;

/// The work of one file tool.
pub(super) type Job = fn(&Workspace, &FileRequest) -> Result<ToolOutput, CallError>;

/// The request to a file tool.
#[derive(Debug)]
pub(in super::super) struct FileRequest {
    pub(in super::super) arguments: Arguments,
    /// The file that came with the call.
    pub(in super::super) upload: Option<Arc<Upload>>,
    pub(in super::super) max_output_bytes: usize,
}

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
            let session = attempt.call.origin.session.as_deref().ok_or_else(no_session)?;
            let request = FileRequest {
                arguments: arguments.clone(),
                upload: attempt.call.body.upload.clone(),
                max_output_bytes: attempt.max_output_bytes,
            };
            self.run_in(Session::workspace_name(session), request).await
        })
    }
}

impl FileTool {
    pub(in super::super) async fn run_in(
        &self,
        workspace: &str,
        request: FileRequest,
    ) -> Result<ToolOutput, CallError> {
        let job = self.job;
        self.workspaces.work(workspace, self.reach, move |workspace| job(workspace, &request)).await
    }
}

fn no_session() -> CallError {
    CallError::new(
        ErrorCode::InvalidRequest,
        "files belong to the workspace of a session; send a `session_id` with the call (`--session` on the command line), any name you choose",
    )
}
