//! `/recorded-runs`: runs that were recorded, as files, and runs of programs that are played again from a file.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::approval_wait;
use super::body::JsonBody;
use super::column::{Column, Form, Listed};
use super::documentation::ReplyBody;
use super::list::{LatestFirst, Page, PageQuery};
use super::parameters::{Name, Parameters};
use super::reply;
use super::request::RequestMeta;
use super::runs::check_still_runs_code;
use crate::reply::ErrorReply;
use sekisho_calls::journals::{Journals, RecordedCall, RunContext};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::run_file::{RunFile, SealedRun};
use sekisho_gateway::Gateway;
use sekisho_store::ListedRecordedRun;

/// A run that was recorded.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = RecordedRun)]
pub struct RecordedRunBody {
    /// Of a program, the id of the call that began it; of a run of a conversation, its id.
    pub id: String,
    /// `agent` or `program`.
    pub kind: String,
    /// The agent, or the tool that ran the program.
    pub name: String,
    pub bytes: u64,
    pub created_at: String,
    pub expires_at: String,
}

impl Listed for RecordedRunBody {
    const NAME: &'static str = "recorded-runs";
    const ROUTE: &'static str = "/recorded-runs";
    const NONE: &'static str =
        "no recorded runs: with `recording.runs: true`, runs of agents and programs are recorded";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).headed("run"),
        Column::new("kind", Form::Text).headed("kind"),
        Column::new("name", Form::Name).headed("name"),
        Column::new("bytes", Form::Count).headed("bytes"),
        Column::new("created_at", Form::Moment).headed("recorded"),
        Column::new("expires_at", Form::Moment).headed("expires"),
    ];
}

/// A run as a file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RecordedRunFile)]
pub struct RecordedRunFile {
    /// JSON lines: a header, all that the run got from outside, and its end.
    pub file: String,
}

/// Lists the caller's recorded runs, the latest first.
#[utoipa::path(get, path = "/recorded-runs", operation_id = "listRecordedRuns", tag = "tools", params(PageQuery),
    responses((status = 200, body = Page<RecordedRunBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let all = gateway.pipeline.journals.recordings.list(&meta.caller).await?;
    let page = Page::from_all(all, &query, |run| LatestFirst::new(run.created, &*run.id))?;
    Ok(reply::json(StatusCode::OK, &page.map(RecordedRunBody::from)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportParameters {
    /// Sealed: only its caller opens it, at a gateway with the key.
    #[serde(default)]
    sealed: bool,
}

/// Exports a recorded run of the caller as a file.
#[utoipa::path(get, path = "/recorded-runs/{id}", operation_id = "exportRecordedRun", tag = "tools",
    params(("id" = String, Path), ExportParameters),
    responses((status = 200, body = RecordedRunFile), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn export(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    Parameters(parameters): Parameters<ExportParameters>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let recordings = &gateway.pipeline.journals.recordings;
    let file = match parameters.sealed {
        true => serde_json::to_string(&recordings.get_sealed(&meta.caller, &id).await?).map_err(CallError::internal)?,
        false => recordings.get(&meta.caller, &id).await?,
    };
    Ok(reply::json(StatusCode::OK, &RecordedRunFile { file }))
}

/// Opens a sealed file of the caller.
#[utoipa::path(post, path = "/recorded-runs/open", operation_id = "openRecordedRun", tag = "tools", request_body = RecordedRunFile,
    responses((status = 200, body = RecordedRunFile), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn open(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    JsonBody(body, _): JsonBody<RecordedRunFile>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let wrong =
        || CallError::new(ErrorCode::InvalidRequest, "`file` is no sealed file of `sekisho runs export --sealed`");
    let sealed = SealedRun::parse(&body.file).ok_or_else(wrong)?;
    let file = gateway.pipeline.journals.recordings.open(&meta.caller, &sealed)?;
    Ok(reply::json(StatusCode::OK, &RecordedRunFile { file }))
}

/// Plays the run of a program again, as a call of the tool that ran it: the program is executed with the answers of the file, and
/// nothing is called. Another request of the program, or another result, is the error `replay_diverged`.
#[utoipa::path(post, path = "/recorded-runs/replay", operation_id = "replayRecordedRun", tag = "tools", request_body = RecordedRunFile,
    responses((status = 200, body = ReplyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn replay(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    JsonBody(body, _): JsonBody<RecordedRunFile>,
) -> Result<Response, ErrorReply> {
    let file = RunFile::parse(&body.file)
        .map_err(|problem| CallError::new(ErrorCode::InvalidRequest, format!("`file`: {problem}")))?;
    let RecordedCall { arguments, context } = Journals::call_of_file(&file)?;
    // Values of a session have labels, which the file cannot give them.
    let context = RunContext { session: None, values_of: None, ..context };
    let mut incoming = meta.call(context.tool.clone(), arguments, context.into(), false, &gateway)?;
    check_still_runs_code(&gateway, &incoming.call)?;
    incoming.call.resumption.idempotency_key = None;
    incoming.call.resumption.replay = Some(Arc::new(file));
    Ok(approval_wait::answer(&gateway, &meta, incoming).await)
}

impl From<ListedRecordedRun> for RecordedRunBody {
    fn from(run: ListedRecordedRun) -> Self {
        let ListedRecordedRun { id, kind, name, bytes, created, expires } = run;
        Self { id, kind, name, bytes, created_at: created.to_string(), expires_at: expires.to_string() }
    }
}
