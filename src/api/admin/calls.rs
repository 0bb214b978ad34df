//! `/admin/calls`: the calls that ended last, as far as the caller may see them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{Page, PageQuery};
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::{HistoryFilter, HistoryPage, PastCall};
use sekisho_core::call::{RateState, Stage, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::{CallSummary, Status};
use sekisho_gateway::{CallFilter, Gateway};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallQuery {
    tool: Option<String>,
    /// The id of a caller.
    caller: Option<String>,
    /// `success`, `error`, `refused` or `cancelled`.
    status: Option<String>,
    /// An error code, such as `denied`.
    code: Option<String>,
    /// The id that an agent's run has for it.
    agent_call_id: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    tool: Option<String>,
    /// The id of a caller.
    caller: Option<String>,
    /// `success`, `error`, `refused` or `cancelled`.
    status: Option<String>,
    /// An error code, such as `denied`.
    code: Option<String>,
    call_id: Option<String>,
    /// The first moment, as RFC 3339.
    since: Option<String>,
    /// The moment after the last one, as RFC 3339.
    until: Option<String>,
}

/// Calls from the audit trail, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HistoryBody {
    #[serde(flatten)]
    page: Page<PastCall>,
    /// Deprecated name of `items`, to be dropped in 0.3.
    #[schema(deprecated)]
    calls: Vec<PastCall>,
    /// The time of the oldest line that was looked at.
    searched_to: Option<String>,
}

/// Calls, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CallPage<'a> {
    #[serde(flatten)]
    page: Page<CallBody<'a>>,
    /// Deprecated name of `items`, to be dropped in 0.3.
    #[schema(deprecated)]
    calls: Vec<CallBody<'a>>,
}

/// A call that has ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CallBody<'a> {
    /// Counts up.
    sequence: u64,
    pub call_id: String,
    /// The id that an agent's run has for it, as in the messages of a conversation.
    agent_call_id: Option<&'a str>,
    /// RFC 3339, UTC.
    time: String,
    pub tenant: &'a str,
    pub caller: &'a str,
    #[schema(value_type = String)]
    via: Via,
    depth: u32,
    /// The id of the call whose tool made it.
    parent: Option<String>,
    pub dry_run: bool,
    tool: &'a str,
    #[schema(value_type = String)]
    pub status: Status,
    #[schema(value_type = Option<String>)]
    pub code: Option<ErrorCode>,
    /// The stage that refused the call or failed.
    stage: Option<Stage>,
    /// Why it was refused. Absent where the text could quote arguments or what the tool said.
    reason: Option<&'a str>,
    /// Stage → microseconds, in execution order.
    #[schema(value_type = HashMap<String, f64>)]
    stages: Map<String, Value>,
    duration_us: f64,
    /// USD, as an exact decimal.
    #[schema(value_type = String)]
    cost: Decimal,
    /// The same as a number, which is rounded; from 0.3 on as `cost`.
    #[serde(with = "rust_decimal::serde::float")]
    #[schema(value_type = f64)]
    cost_usd: Decimal,
    tokens: u64,
    attempts: u32,
    rate: Option<RateState>,
    policy_version: Option<&'a str>,
    request_id: Option<&'a str>,
}

/// The columns of calls. `cost`: where an entry has its exact cost.
const fn columns(cost: &'static str) -> [Column; 11] {
    [
        Column::new("time", Form::Moment).titled("call-time"),
        Column::new("tool", Form::Name).titled("tool-name"),
        Column::new("status", Form::Text).titled("call-outcome"),
        Column::new("code", Form::Name),
        Column::new("tenant", Form::Name),
        Column::new("caller", Form::Name).titled("call-caller"),
        Column::new("via", Form::Text),
        Column::new("dry_run", Form::Text),
        Column::new("duration_seconds", Form::Duration).at("/duration_us").titled("call-duration"),
        Column::new("cost_usd", Form::Money).at(cost).titled("call-cost"),
        Column::new("call_id", Form::Name),
    ]
}

impl Listed for CallBody<'_> {
    const NAME: &'static str = "calls";
    const ROUTE: &'static str = "/admin/calls";
    const COLUMNS: &'static [Column] = &columns("/cost");
}

impl Listed for PastCall {
    const NAME: &'static str = "older-calls";
    const ROUTE: &'static str = "/admin/calls/history";
    const COLUMNS: &'static [Column] = &columns("/cost_usd");
}

/// Lists the calls that ended last, at most 2000, without arguments: the caller's own; with a role of `console`, those of
/// the tenant. The newest first.
#[utoipa::path(get, path = "/admin/calls", operation_id = "listRecentCalls", tag = "operation",
    params(CallQuery, PageQuery, ("before" = Option<String>, Query, deprecated, description = "Deprecated name of `after`, to be dropped in 0.3.")),
    responses((status = 200, body = CallPage<'_>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(CallQuery { tool, caller, status, code, agent_call_id }): Parameters<CallQuery>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let (limit, before) = (query.limit()?, query.after()?);
    let filter = CallFilter { tool, caller, status, code, agent_call: agent_call_id, before, after: None };
    let found = gateway.history().recent_calls(&meta.caller, &filter);
    let Page { items, next } = Page::from_read(found, limit, |call| call.sequence.to_string());
    let calls: Vec<_> = items.iter().map(|call| CallBody::of(call)).collect();
    Ok(reply::json(StatusCode::OK, &CallPage { page: Page { items: calls.clone(), next }, calls }))
}

/// Lists calls from the audit trail, the newest first: those of the tenant; for administrators of the tenant `default`, those of
/// all. Needs a role of `console`. A search takes two seconds at most; `next` goes on where it ended.
#[utoipa::path(get, path = "/admin/calls/history", operation_id = "listCalls", tag = "operation",
    params(HistoryQuery, PageQuery, ("before" = Option<String>, Query, deprecated, description = "Deprecated name of `after`, to be dropped in 0.3.")),
    responses((status = 200, body = HistoryBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn history(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(HistoryQuery { tool, caller, status, code, call_id, since, until }): Parameters<HistoryQuery>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let (limit, before) = (query.limit()?, query.after()?);
    let moment = |name: &str, text: Option<String>| {
        let wrong =
            |_| CallError::new(ErrorCode::InvalidRequest, format!("`{name}` is no time such as 2026-01-31T12:00:00Z"));
        text.map(|text| text.parse::<Timestamp>().map_err(wrong)).transpose()
    };
    let (since, until) = (moment("since", since)?, moment("until", until)?);
    let filter =
        HistoryFilter { tool, caller, status, code, call_id, since, until, before, ..HistoryFilter::default() };
    let HistoryPage { calls, next, searched_to } = gateway.history().search(&meta.caller, filter, limit).await?;
    let page = Page { items: calls.clone(), next: next.map(|next| next.to_string()) };
    Ok(reply::json(StatusCode::OK, &HistoryBody { page, calls, searched_to }))
}

/// One of these calls.
#[utoipa::path(get, path = "/admin/calls/{id}", operation_id = "getRecentCall", tag = "operation", params(("id" = String, Path)),
    responses((status = 200, body = CallBody<'_>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let call = gateway.history().recent_call(&meta.caller, &id)?;
    Ok(reply::json(StatusCode::OK, &CallBody::of(&call)))
}

impl<'a> CallBody<'a> {
    pub fn of(call: &'a CallSummary) -> Self {
        let micros = |took: std::time::Duration| took.as_nanos() as f64 / 1_000.0;
        Self {
            sequence: call.sequence,
            call_id: call.id.to_string(),
            agent_call_id: call.agent_call.as_deref(),
            time: Timestamp::try_from(call.time).map(|time| time.to_string()).unwrap_or_default(),
            tenant: &call.tenant,
            caller: &call.caller,
            via: call.via,
            depth: call.depth,
            parent: call.parent.map(|parent| parent.to_string()),
            dry_run: call.dry_run,
            tool: &call.tool,
            status: call.status,
            code: call.code,
            stage: call.stage,
            reason: call.reason.as_deref(),
            stages: call.stages.iter().map(|(stage, took)| (stage.as_str().to_owned(), micros(*took).into())).collect(),
            duration_us: micros(call.duration),
            cost: call.cost_usd.normalize(),
            cost_usd: call.cost_usd,
            tokens: call.tokens,
            attempts: call.attempts,
            rate: call.rate,
            policy_version: call.policy_version.as_deref(),
            request_id: (!call.request_id.is_empty()).then_some(&*call.request_id),
        }
    }
}
