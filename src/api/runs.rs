//! `/runs`: runs of programs that stopped before their end, and go on when they are resumed. A call whose outcome is not known is
//! settled before.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::admin::record_change;
use super::approval_wait;
use super::body::JsonBody;
use super::documentation::ReplyBody;
use super::list::{LatestFirst, Page, PageQuery};
use super::parameters::{Name, Parameters};
use super::reply;
use super::request::{RequestMeta, SessionContext};
use crate::column::{Column, Form, Listed};
use crate::reply::ErrorReply;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_calls::journals::{RecordedCall, Settlement, UnknownCall};
use sekisho_core::call::{Arguments, CallContext};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_sandbox::PYTHON;
use sekisho_store::StoredProgramRun;

/// A run of a program that has a journal.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = ProgramRun)]
pub struct ProgramRunBody {
    /// The id of the call that began it.
    pub id: String,
    /// `running`, `stopped` or `unusable`. One whose gateway was killed is `running` and can be resumed.
    pub state: String,
    /// The approval that it waits for.
    pub approval: Option<String>,
    /// Why an unusable one cannot be resumed.
    pub reason: Option<String>,
    pub created_at: String,
    pub expires_at: String,
}

impl Listed for ProgramRunBody {
    const NAME: &'static str = "runs";
    const ROUTE: &'static str = "/runs";
    const NONE: &'static str =
        "no runs: one whose gateway stopped, or that waits for an approval, is listed until it has ended";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).titled("program-run").headed("run"),
        Column::new("state", Form::Text).titled("program-run-state").headed("state"),
        Column::new("approval", Form::Name).headed("approval"),
        Column::new("reason", Form::Line).headed("reason"),
        Column::new("created_at", Form::Moment).titled("column-created").headed("created"),
        Column::new("expires_at", Form::Moment).titled("approval-expires").headed("expires"),
    ];
}

/// The calls of a run that must be settled before it is resumed.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = UnsettledProgramRun)]
pub struct UnsettledRunBody {
    pub id: String,
    /// Started, and without an answer when the run stopped.
    pub unknown_calls: Vec<UnknownCall>,
}

impl Listed for UnknownCall {
    const NAME: &'static str = "unknown-calls";
    const ROUTE: &'static str = "/runs/{id}";
    const COLUMNS: &'static [Column] = &[
        Column::new("call", Form::Count).headed("call"),
        Column::new("tool", Form::Name).headed("tool"),
        Column::new("arguments_sha256", Form::Name).headed("arguments SHA-256"),
    ];
}

/// What became of a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SettleBody {
    /// The number of the call; not needed where there is only one.
    call: Option<u32>,
    outcome: Outcome,
    /// Of a call that was made: the result of the tool, which the program gets.
    #[serde(default)]
    #[schema(required = false)]
    answer: Value,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SettledOutcome)]
enum Outcome {
    /// The program gets `answer`.
    Made,
    /// It is made when the run is resumed.
    NotMade,
    /// Nobody can say: the program gets the error `unknown_outcome`.
    Unknown,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProgramRunList)]
pub(super) struct RunList {
    #[serde(flatten)]
    page: Page<ProgramRunBody>,
    /// Deprecated name of `items`, to be dropped in 0.3. All runs, the latest first, where no page is asked for.
    #[schema(deprecated)]
    runs: Vec<ProgramRunBody>,
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
    let runs = runs.into_iter().map(ProgramRunBody::from).collect();
    Ok(reply::json(StatusCode::OK, &RunList { page: page.map(ProgramRunBody::from), runs }))
}

/// Shows the calls of a run whose outcome is not known: those that were under way when it stopped, of tools that must not be called
/// twice. For its caller, and for administrators of its tenant.
#[utoipa::path(get, path = "/runs/{id}", operation_id = "getProgramRun", tag = "tools", params(("id" = String, Path)),
    responses((status = 200, body = UnsettledRunBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let asking = asking(&meta, &gateway)?;
    unsettled(&gateway, &asking, id).await
}

/// Settles a call of a run whose outcome is not known: says whether it was made, and with which answer. The run goes on with that when
/// it is resumed. For its caller, and for administrators of its tenant; the audit trail has it.
#[utoipa::path(post, path = "/runs/{id}/settle", operation_id = "settleProgramRun", tag = "tools",
    params(("id" = String, Path)), request_body = SettleBody,
    responses((status = 200, body = UnsettledRunBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn settle(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(body, _): JsonBody<SettleBody>,
) -> Result<Response, ErrorReply> {
    let (outcome, call) = (body.outcome, body.call);
    let settlement = body.settlement()?;
    let asking = Arc::<CallContext>::from(asking(&meta, &gateway)?);
    let event = AuditEvent {
        subject: Some(id.clone()),
        detail: Some(match call {
            Some(call) => format!("call {call}: {}", outcome.name()),
            None => format!("its call: {}", outcome.name()),
        }),
        caller: Some(Arc::clone(&meta.caller)),
        ..AuditEvent::new(EventKind::ProgramRunSettled).of_request(meta.request.as_ref(), meta.trace.as_ref())
    };
    let (journals, by, run) = (Arc::clone(&gateway.pipeline.journals), Arc::clone(&asking), id.clone());
    record_change(&gateway, event, async move { journals.settle(&by, &run, (call, settlement)).await }).await?;
    unsettled(&gateway, &asking, id).await
}

async fn unsettled(gateway: &Gateway, asking: &CallContext, id: String) -> Result<Response, ErrorReply> {
    let unknown_calls = gateway.pipeline.journals.unknown_calls(asking, &id).await?;
    Ok(reply::json(StatusCode::OK, &UnsettledRunBody { id, unknown_calls }))
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
pub(super) fn check_still_runs_code(gateway: &Gateway, call: &CallContext) -> Result<(), CallError> {
    // A tool that is gone is refused like any other.
    if gateway.pipeline.registry.find_for(call).map_or(true, |tool| tool.metadata.sandboxed) {
        return Ok(());
    }
    let message = format!("`{}`, which began this run, is another tool now; its run cannot be resumed", call.tool);
    Err(CallError::new(ErrorCode::ReplayDiverged, message))
}

/// A call of the same caller, which says whose runs are meant.
fn asking(meta: &RequestMeta, gateway: &Gateway) -> Result<Box<CallContext>, CallError> {
    Ok(meta.call(PYTHON.to_owned(), Arguments::new(), SessionContext::default(), false, gateway)?.call)
}

impl From<StoredProgramRun> for ProgramRunBody {
    fn from(run: StoredProgramRun) -> Self {
        let StoredProgramRun { id, state, approval, reason, created, expires } = run;
        let (created_at, expires_at) = (created.to_string(), expires.to_string());
        Self { id, state: state.as_str().to_owned(), approval, reason, created_at, expires_at }
    }
}

impl SettleBody {
    /// # Errors
    /// `invalid_request`: an answer of a call that was not made.
    fn settlement(self) -> Result<Settlement, CallError> {
        match (self.outcome, self.answer) {
            (Outcome::Made, answer) => Ok(Settlement::Made(answer)),
            (Outcome::NotMade, Value::Null) => Ok(Settlement::NotMade),
            (Outcome::Unknown, Value::Null) => Ok(Settlement::Unknown),
            (Outcome::NotMade | Outcome::Unknown, _) => {
                let message = "`answer` is for the outcome `made`: leave it out, or say that the call was made";
                Err(CallError::new(ErrorCode::InvalidRequest, message))
            }
        }
    }
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::NotMade => "not made",
            Self::Unknown => "unknown",
        }
    }
}
