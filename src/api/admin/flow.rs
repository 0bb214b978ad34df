//! `/admin/flow`: the labels of tools, the questions since the start, and the destinations that are known.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::recorded;
use crate::body::FromAdministrator;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{LatestFirst, Page, PageQuery, invalid_after};
use crate::parameters::Parameters;
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::EventKind;
use sekisho_calls::flow::{FlowReport, ForgetDestinations, KnownDestination, ReportedQuestion};
use sekisho_calls::tool::Tool;
use sekisho_config::FlowMode;
use sekisho_core::call::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

/// Maximum questions of an answer, and destinations of one that names no page.
const MAX_SHOWN: usize = 500;

/// The labels of one tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowToolBody {
    tool: String,
    /// Whether strangers can write its results: `trusted` or `untrusted`.
    trust: &'static str,
    /// The names of the secrets that its results are.
    secrecy: Vec<String>,
    /// The effect of its calls: `send`, `pay`, `delete`, `publish`, `fetch` or `write`; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    sink: Option<&'static str>,
    /// A sentence for each decision.
    why: Vec<String>,
}

/// The questions since the gateway was started.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowReportBody {
    #[schema(value_type = String)]
    pub mode: FlowMode,
    /// RFC 3339. Of this replica, where there are several.
    pub since: String,
    /// Calls of tools with effects.
    pub calls: u64,
    /// Of these the calls about which a person is asked, or would be. Equal questions of a session are one.
    pub asked: u64,
    /// The most frequent first; 500 at most.
    pub questions: Vec<FlowQuestionBody>,
}

/// Equal questions.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowQuestionBody {
    pub tenant: String,
    pub tool: String,
    /// JSON Pointer; empty for the call as a whole.
    pub argument: String,
    /// `untrusted`, `unknown`, or `secret` for a secret that may not leave.
    pub state: String,
    /// The tool whose result has the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub count: u64,
    /// The id of the last call with it.
    pub last_call: String,
}

impl Listed for FlowQuestionBody {
    const NAME: &'static str = "flow-questions";
    const ROUTE: &'static str = "/admin/flow";
    const COLUMNS: &'static [Column] = &[
        Column::new("count", Form::Count).titled("flow-count").headed("count"),
        Column::new("tenant", Form::Name).titled("call-tenant").headed("tenant"),
        Column::new("tool", Form::Name).titled("tool-name").leading().headed("tool"),
        Column::new("argument", Form::Text).titled("flow-argument").headed("argument"),
        Column::new("state", Form::Text).titled("flow-state").headed("state"),
        Column::new("from", Form::Name).titled("flow-from").headed("from"),
        Column::new("last_call", Form::Name).titled("flow-last-call").headed("last call"),
    ];
}

/// The destinations that are known, those that were used last first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowDestinationList {
    #[serde(flatten)]
    page: Page<FlowDestinationBody>,
    /// Deprecated name of `items`, to be dropped in 0.3. 500 where no page is asked for.
    #[schema(deprecated)]
    destinations: Vec<FlowDestinationBody>,
}

/// A destination that is known. It is stored as a hash.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FlowDestinationBody {
    /// Empty for a host: it is known for all tools.
    tool: String,
    /// The argument that named it; empty for a call of the tool itself.
    argument: String,
    /// The caller for whom it is known; absent: all of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<String>,
    /// When it was reached first, as RFC 3339.
    created_at: String,
    /// When it was reached last.
    changed_at: String,
    /// Deprecated name of `created_at`, to be dropped in 0.3.
    #[schema(deprecated)]
    first_seen: String,
    /// Deprecated name of `changed_at`, to be dropped in 0.3.
    #[schema(deprecated)]
    last_seen: String,
    expires_at: String,
}

impl Listed for FlowDestinationBody {
    const NAME: &'static str = "destinations";
    const ROUTE: &'static str = "/admin/flow/destinations";
    const NONE: &'static str = "no destinations: one is known once a call that went there has ended well";
    const COLUMNS: &'static [Column] = &[
        Column::new("tool", Form::Name).headed("tool").absent("(any tool)"),
        Column::new("argument", Form::Name).headed("argument").absent("(any call)"),
        Column::new("caller", Form::Name).headed("caller"),
        Column::new("created_at", Form::Moment).headed("first"),
        Column::new("changed_at", Form::Moment).headed("last"),
        Column::new("expires_at", Form::Moment).headed("expires"),
    ];
}

/// Which destinations are forgotten: those for which all members hold that are set, of which one must be.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ForgetBody {
    /// Of calls of this tool.
    tool: Option<String>,
    /// A mail address, URL, host, account or other destination, as a call names it.
    destination: Option<String>,
    /// RFC 3339: those that were reached for the first time at this moment or later.
    #[schema(format = DateTime)]
    since: Option<String>,
    /// All of the tenant.
    all: bool,
    /// By default the administrator's. Another one only for administrators of the tenant `default`.
    tenant: Option<String>,
}

/// The number of destinations that were forgotten.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Forgotten {
    forgotten: u64,
}

/// The labels of the tools that the caller may see, in the order of their names.
#[utoipa::path(get, path = "/admin/flow/tools", operation_id = "listFlowTools", tag = "operation", params(PageQuery),
    responses((status = 200, body = Page<FlowToolBody>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn tools(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let limit = query.limit()?;
    let after = query.after.as_deref().unwrap_or_default();
    let usable = gateway.pipeline.tools_for(&meta.caller);
    let mut tools: Vec<_> = usable.visible().map(|(tool, _)| tool).filter(|tool| tool.name() > after).collect();
    tools.sort_by(|one, other| one.name().cmp(other.name()));
    tools.truncate(limit + 1);
    let page = Page::from_read(tools, limit, |tool| tool.name().to_owned());
    Ok(reply::json(StatusCode::OK, &page.map(|tool| FlowToolBody::of(tool))))
}

/// The questions since the gateway was started: those that a person was asked, or with `policy.flow: observe` would have been
/// asked. Of the caller's tenant; for administrators of the tenant `default`, of all tenants.
#[utoipa::path(get, path = "/admin/flow", operation_id = "getFlowReport", tag = "operation",
    responses((status = 200, body = FlowReportBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn report(meta: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Result<Response, ErrorReply> {
    meta.caller.require_administrator()?;
    let tenant = (!meta.caller.administers_shared()).then_some(&*meta.caller.tenant);
    Ok(reply::json(StatusCode::OK, &FlowReportBody::of(gateway.pipeline.flow.report(tenant))))
}

/// The destinations that are known for callers of the administrator's tenant, those that were used last first.
#[utoipa::path(get, path = "/admin/flow/destinations", operation_id = "listFlowDestinations", tag = "operation", params(PageQuery),
    responses((status = 200, body = FlowDestinationList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn destinations(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.caller.require_administrator()?;
    let limit = query.limit()?;
    let after = query.after::<LatestFirst>()?.map(read_place).transpose()?;
    let after = after.as_ref().map(|(last_seen, key)| (*last_seen, key.as_str()));
    let names_page = query.limit.is_some() || query.after.is_some();
    let shown = if names_page { limit } else { MAX_SHOWN };
    // One destination more than is shown says whether there is a next page.
    let known = gateway.pipeline.flow.known(&meta.caller.tenant, after, shown + 1).await.map_err(CallError::from)?;
    let destinations = known.iter().take(shown).cloned().map(FlowDestinationBody::from).collect();
    let page = Page::from_read(known, limit, |last| place(last).to_string()).map(FlowDestinationBody::from);
    Ok(reply::json(StatusCode::OK, &FlowDestinationList { page, destinations }))
}

fn place(known: &KnownDestination) -> LatestFirst {
    LatestFirst::new(known.last_seen, hex::encode(&known.key))
}

/// # Errors
/// `invalid_request`: it is no place of the list.
fn read_place(place: LatestFirst) -> Result<(Timestamp, String), CallError> {
    let key = hex::decode(place.key).ok().and_then(|key| String::from_utf8(key).ok());
    let key = key.filter(|key| !key.contains('\0')).ok_or_else(invalid_after)?;
    Ok((place.created.0, key))
}

/// Forgets destinations: calls that go there are asked about again.
#[utoipa::path(post, path = "/admin/flow/forget", operation_id = "forgetFlowDestinations", tag = "operation",
    request_body = ForgetBody,
    responses((status = 200, body = Forgotten), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn forget(
    State(gateway): State<Arc<Gateway>>,
    FromAdministrator { meta, body, .. }: FromAdministrator<ForgetBody>,
) -> Result<Response, ErrorReply> {
    let tenant = body.tenant_for(&meta.caller)?;
    let (forget, service) = (body.wanted()?, Arc::clone(&gateway));
    let subject = tenant.clone();
    let change = async move { service.pipeline.flow.forget(&tenant, &forget).await.map_err(CallError::from) };
    let forgotten = recorded(&gateway, &meta, EventKind::DestinationsForgotten, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &Forgotten { forgotten }))
}

impl FlowToolBody {
    fn of(tool: &Tool) -> Self {
        let labels = tool.labels();
        Self {
            tool: tool.name().to_owned(),
            trust: labels.returns.trust.into(),
            secrecy: labels.returns.secrecy.iter().cloned().collect(),
            sink: labels.sink.as_ref().map(|sink| sink.kind.into()),
            why: labels.why.clone(),
        }
    }
}

impl FlowReportBody {
    fn of(report: FlowReport) -> Self {
        let FlowReport { mode, since, calls, asked, questions } = report;
        let questions = questions.into_iter().take(MAX_SHOWN).map(FlowQuestionBody::from).collect();
        Self { mode, since: since.to_string(), calls, asked, questions }
    }
}

impl From<ReportedQuestion> for FlowQuestionBody {
    fn from(question: ReportedQuestion) -> Self {
        let ReportedQuestion { tenant, tool, argument, state, from, count, last_call } = question;
        Self { tenant, tool, argument, state, from, count, last_call }
    }
}

impl From<KnownDestination> for FlowDestinationBody {
    fn from(known: KnownDestination) -> Self {
        let KnownDestination { key: _, tool, member, caller, first_seen, last_seen, expires } = known;
        let [first_seen, last_seen, expires_at] = [first_seen, last_seen, expires].map(|moment| moment.to_string());
        let (created_at, changed_at) = (first_seen.clone(), last_seen.clone());
        Self { tool, argument: member, caller, created_at, changed_at, first_seen, last_seen, expires_at }
    }
}

impl ForgetBody {
    /// # Errors
    /// `denied`: the caller does not administer the tenant.
    fn tenant_for(&self, caller: &Caller) -> Result<String, CallError> {
        let tenant = self.tenant.clone().unwrap_or_else(|| caller.tenant.to_string());
        if tenant == *caller.tenant || caller.administers(&tenant) {
            return Ok(tenant);
        }
        let message =
            "this requires the role `admin` in that tenant, or in the tenant `default`; use a key that has it";
        Err(CallError::new(ErrorCode::Denied, message))
    }

    /// # Errors
    /// `invalid_request`: no member is set, or `since` is no moment.
    fn wanted(self) -> Result<ForgetDestinations, CallError> {
        let Self { tool, destination, since, all, tenant: _ } = self;
        let since = since
            .map(|text| text.parse::<Timestamp>())
            .transpose()
            .map_err(|_| CallError::invalid("`since` must be a moment as in RFC 3339, such as 2027-01-31T00:00:00Z"))?;
        let forget = ForgetDestinations { tool, destination, since, all };
        if forget == ForgetDestinations::default() {
            return Err(CallError::invalid(
                "set `tool`, `destination` or `since`, or `all: true` for all destinations of the tenant",
            ));
        }
        Ok(forget)
    }
}
