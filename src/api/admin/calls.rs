//! `/admin/calls`: the calls of the index, as far as the caller may see them.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::call_export::{CallFile, call_file};
use super::call_query::CallQuery;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{Page, PageQuery};
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::{HistoryFilter, HistoryPage, PastCall};
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::{RateState, Stage, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::{CallSummary, FailureNotes, Status, Violation};
use sekisho_gateway::{Gateway, NextStep};
use sekisho_store::{CountedUse, Facet, IndexedCall};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FormQuery {
    /// All calls as a file instead of a page: `csv`, `json`, or `jsonl` with an object on each line.
    #[param(value_type = Option<String>)]
    format: Option<CallFile>,
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
    /// The rules of `tools.guards` that found something; absent where that is none.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(required = false, value_type = Vec<String>)]
    pub guards: &'a [Arc<str>],
    request_id: Option<&'a str>,
    /// The managed key that the caller sent.
    key: Option<&'a str>,
    session: Option<&'a str>,
    /// The run of an agent or program that made it.
    run: Option<&'a str>,
    /// SHA-256 of the program that made it.
    program: Option<&'a str>,
    /// The approval by which it was made, or that it needs.
    approval: Option<&'a str>,
    /// The address of the client.
    #[schema(value_type = Option<String>)]
    client: Option<IpAddr>,
    trace_id: Option<String>,
    /// SHA-256 of the arguments' canonical JSON.
    arguments_sha256: String,
    /// The status of the upstream's answer, of a call that failed by it.
    http_status: Option<u16>,
    /// The upstream that was called.
    upstream: Option<&'a str>,
    /// The state of the upstream's circuit breaker at that time.
    #[schema(value_type = Option<String>)]
    breaker: Option<BreakerState>,
    /// The rules that it violated.
    #[schema(value_type = Vec<Violation>)]
    violations: &'a [Violation],
    /// What else is known about a call that did not succeed.
    #[schema(value_type = Option<FailureNotes>)]
    failure: Option<&'a FailureNotes>,
    /// What to do next about it, in a word.
    next_step: Option<&'static str>,
    /// Who made the calls that used up the limit that refused it: of one call.
    pub used_up_by: Vec<UsedUpBy>,
    /// Why it failed, which may quote the upstream: of one call, for the console roles `operator` and `admin`.
    pub words: Option<String>,
    /// Calls that were refused alike and are one entry; mostly 1.
    pub calls: u64,
}

/// The calls of a caller with a tool that a limit counted.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct UsedUpBy {
    tenant: String,
    caller: String,
    tool: String,
    calls: u64,
    /// USD, as an exact decimal.
    #[schema(value_type = String)]
    cost: Decimal,
}

/// The most frequent values of a field.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FacetBody {
    name: &'static str,
    /// The most frequent first.
    values: Vec<FacetValue>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FacetValue {
    value: String,
    calls: u64,
}

/// The columns of calls. `cost`: where an entry has its exact cost.
const fn columns(cost: &'static str) -> [Column; 12] {
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
        Column::new("tokens", Form::Count),
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

/// Lists calls of the index, without arguments: the caller's own; with a role of `console`, those of the tenant; for administrators of
/// the tenant `default`, of all. The latest first, or as `sort` says. A page may have fewer calls than asked for, and go on.
#[utoipa::path(get, path = "/admin/calls", operation_id = "listRecentCalls", tag = "operation",
    params(CallQuery, PageQuery, FormQuery, ("before" = Option<String>, Query, deprecated, description = "Deprecated name of `after`, to be dropped in 0.3.")),
    responses((status = 200, body = CallPage<'_>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<CallQuery>,
    Parameters(page): Parameters<PageQuery>,
    Parameters(FormQuery { format }): Parameters<FormQuery>,
) -> Result<Response, ErrorReply> {
    let (limit, after, filter, order) = (page.limit()?, page.after()?, query.filter()?, query.order()?);
    if let Some(file) = format {
        return Ok(call_file(gateway, Arc::clone(&meta.caller), filter, order, file).await?);
    }
    let found = gateway.history().calls(&meta.caller, filter, order, after.as_ref(), limit).await?;
    let calls: Vec<_> = found.calls.iter().map(CallBody::of_indexed).collect();
    let page = Page { items: calls.clone(), next: found.next.map(|next| next.to_string()) };
    Ok(reply::json(StatusCode::OK, &CallPage { page, calls }))
}

/// The most frequent values of calls, of the latest fifty thousand or so that may be wanted: status, code, stage, tool, server, caller
/// and tenant.
#[utoipa::path(get, path = "/admin/calls/facets", operation_id = "countCalls", tag = "operation", params(CallQuery),
    responses((status = 200, body = Vec<FacetBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn facets(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<CallQuery>,
) -> Result<Response, ErrorReply> {
    let facets = gateway.history().facets(&meta.caller, query.filter()?).await?;
    let facets = facets.into_iter().map(|Facet { name, values }| FacetBody {
        name,
        values: values.into_iter().map(|(value, calls)| FacetValue { value, calls }).collect(),
    });
    Ok(reply::json(StatusCode::OK, &facets.collect::<Vec<_>>()))
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

/// One call.
#[utoipa::path(get, path = "/admin/calls/{id}", operation_id = "getRecentCall", tag = "operation", params(("id" = String, Path)),
    responses((status = 200, body = CallBody<'_>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let found = gateway.history().call(&meta.caller, &id).await?;
    let words = gateway.history().words(&meta.caller, &found.call).await?;
    let used_up_by = gateway.history().used_up_by(&meta.caller, &found.call).await?;
    let used_up_by = used_up_by.into_iter().map(UsedUpBy::from).collect();
    Ok(reply::json(StatusCode::OK, &CallBody { words, used_up_by, ..CallBody::of_indexed(&found) }))
}

impl From<CountedUse> for UsedUpBy {
    fn from(CountedUse { tenant, caller, tool, calls, cost_usd }: CountedUse) -> Self {
        Self { tenant, caller, tool, calls, cost: cost_usd.normalize() }
    }
}

impl<'a> CallBody<'a> {
    pub fn of_indexed(found: &'a IndexedCall) -> Self {
        Self { calls: found.calls, ..Self::of(&found.call) }
    }

    pub fn of(call: &'a CallSummary) -> Self {
        let micros = |took: std::time::Duration| took.as_nanos() as f64 / 1_000.0;
        Self {
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
            guards: &call.guards,
            request_id: (!call.request_id.is_empty()).then_some(&*call.request_id),
            key: call.key.as_deref(),
            session: call.session.as_deref(),
            run: call.run.as_deref(),
            program: call.program.as_deref(),
            approval: call.approval.as_deref(),
            client: call.client,
            trace_id: call.trace_id.map(hex::encode),
            arguments_sha256: hex::encode(call.arguments_digest),
            http_status: call.http_status,
            upstream: call.breaker.as_ref().map(|(upstream, _)| &**upstream),
            breaker: call.breaker.as_ref().map(|(_, state)| *state),
            violations: &call.violations,
            failure: call.failure.as_deref(),
            next_step: NextStep::of(call).map(NextStep::as_str),
            used_up_by: Vec::new(),
            words: None,
            calls: 1,
        }
    }
}
