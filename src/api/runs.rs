//! `/runs`: runs of programs that stopped before their end, and go on when they are resumed.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::approval_wait;
use super::documentation::ReplyBody;
use super::list::{LatestFirst, Page, PageQuery};
use super::parameters::{Name, Parameters};
use super::reply;
use super::request::{RequestMeta, SessionContext};
use crate::reply::ErrorReply;
use sekisho_calls::journals::RecordedCall;
use sekisho_core::call::{Arguments, CallContext};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_sandbox::PYTHON;
use sekisho_store::StoredProgramRun;

/// A run of a program that has a journal.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ProgramRun)]
struct RunBody {
    /// The id of the call that began it.
    id: String,
    /// `running`, `stopped` or `unusable`. One whose gateway was killed is `running` and can be resumed.
    state: &'static str,
    /// The approval that it waits for.
    approval: Option<String>,
    /// Why an unusable one cannot be resumed.
    reason: Option<String>,
    created_at: String,
    expires_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProgramRunList)]
pub(super) struct RunList {
    #[serde(flatten)]
    page: Page<RunBody>,
    /// Deprecated name of `items`, to be dropped in 0.3. All runs, the latest first, where no page is asked for.
    #[schema(deprecated)]
    runs: Vec<RunBody>,
}

/// Lists the caller's runs of programs that have not ended, the latest first.
#[utoipa::path(get, path = "/runs", operation_id = "listProgramRuns", tag = "tools", params(PageQuery),
    responses((status = 200, body = RunList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let asking = asking(&meta, &gateway)?;
    let all = gateway.pipeline.journals.list(&asking).await?;
    let (page, runs) = Page::from_all_with_old_name(all, &query, |run| LatestFirst::new(run.created, &*run.id))?;
    let runs = runs.into_iter().map(RunBody::from).collect();
    Ok(reply::json(StatusCode::OK, &RunList { page: page.map(RunBody::from), runs }))
}

/// Resumes a run: the program is executed again, and what it called before is answered as before, neither sent nor charged
/// again. From the first call on that it had not made, all is made as of now.
#[utoipa::path(post, path = "/runs/{id}/resume", operation_id = "resumeProgramRun", tag = "tools",
    params(("id" = String, Path, description = "`error_info.run` of the call that stopped, or an id of the list.")),
    responses((status = 200, body = ReplyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn resume(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let asking = asking(&meta, &gateway)?;
    let RecordedCall { arguments, context } = gateway.pipeline.journals.recorded_call(&asking, &id).await?;
    let mut incoming = meta.call(context.tool.clone(), arguments, context.into(), false, &gateway)?;
    check_still_runs_code(&gateway, &incoming.call)?;
    incoming.call.resumption.run = Some(id.into());
    Ok(approval_wait::answer(&gateway, &meta, incoming).await)
}

/// Refuses to resume a run by a tool of another kind, which would run anew: it may have the name of the one that began it.
fn check_still_runs_code(gateway: &Gateway, call: &CallContext) -> Result<(), CallError> {
    // A tool that is gone is refused like any other.
    if gateway.pipeline.registry.find_for(call).map_or(true, |tool| tool.metadata.sandboxed) {
        return Ok(());
    }
    let message = format!("`{}`, which began this run, is another tool now; its run cannot be resumed", call.tool);
    Err(CallError::new(ErrorCode::ReplayDiverged, message))
}

/// A call of the same caller, which says whose runs are meant.
fn asking(meta: &RequestMeta, gateway: &Gateway) -> Result<CallContext, CallError> {
    Ok(meta.call(PYTHON.to_owned(), Arguments::new(), SessionContext::default(), false, gateway)?.call)
}

impl From<StoredProgramRun> for RunBody {
    fn from(run: StoredProgramRun) -> Self {
        let StoredProgramRun { id, state, approval, reason, created, expires, .. } = run;
        let (created_at, expires_at) = (created.to_string(), expires.to_string());
        Self { id, state: state.as_str(), approval, reason, created_at, expires_at }
    }
}
