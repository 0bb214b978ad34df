//! `/me/sources`: the sources that callers get on request. `/admin/sources` and `/admin/source-requests`: their profiles, and the
//! decisions of administrators.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::admin::{record_change, recorded};
use super::body::{FromAdministrator, JsonBody};
use super::column::{Column, Form, Listed};
use super::documentation::ReplyBody;
use super::list::{LatestFirst, Page, PageQuery};
use super::parameters::{Name, Parameters};
use super::reply;
use super::request::RequestMeta;
use crate::reply::ErrorReply;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_core::error::CallError;
use sekisho_gateway::{CatalogueEntry, Gateway, ProfileTool, SourceDecision, SourceProfile};
use sekisho_store::{Audience, RequestState, SourceRequestFilter, StoredSourceRequest};

/// A source of the catalogue, as the caller sees it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = CatalogueSource)]
pub struct CatalogueSourceBody {
    /// `mcp:SERVER` or `openapi:COLLECTION`.
    pub source: String,
    /// Its purpose.
    pub text: String,
    /// `on`, or else what became of the caller's request: `asked`, `refused`, `withdrawn`; `off` without one.
    pub state: String,
    /// When the caller asked, or an administrator decided; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<String>,
}

/// A request for a source of the catalogue.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = SourceRequest)]
pub struct SourceRequestBody {
    pub id: String,
    /// `mcp:SERVER` or `openapi:COLLECTION`.
    pub source: String,
    /// The id of who asked.
    pub caller: String,
    pub tenant: String,
    /// The managed key by which it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub reason: String,
    /// `asked`, `approved`, `refused` or `withdrawn`.
    pub state: String,
    /// For whom it was switched on: `user`, `key` or `tenant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// RFC 3339.
    pub asked_at: String,
    pub changed_at: String,
}

/// The profile of a source, for whoever decides about it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = SourceProfile)]
pub struct SourceProfileBody {
    pub source: String,
    pub text: String,
    /// The program with the packages that it fetches, or the origin of the server; empty for a collection.
    pub address: String,
    /// What its program is granted, as YAML; `sandbox: off` for a program without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    pub tools: Vec<ProfileToolBody>,
    /// Why the tools are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A tool of a source.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = ProfileTool)]
pub struct ProfileToolBody {
    pub name: String,
    pub dangerous: bool,
    /// A person must approve some of its calls.
    pub approval: bool,
}

/// A request of a caller for a source.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = NewSourceRequest)]
pub(super) struct AskBody {
    /// The purpose; at most 1000 bytes.
    reason: String,
}

/// What an administrator decides about a request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SourceDecision)]
pub(super) struct DecisionBody {
    decision: DecisionKind,
    /// With `approve`: for whom the source is switched on.
    #[serde(default, rename = "for")]
    audience: WantedAudience,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SourceDecisionKind)]
enum DecisionKind {
    /// Switch the source on.
    Approve,
    Refuse,
    /// Switch the source off for whom it was switched on.
    Withdraw,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SourceAudience)]
enum WantedAudience {
    /// The user who asked, with all of its keys.
    #[default]
    User,
    /// The managed key by which it was asked.
    Key,
    /// All callers of the tenant.
    Tenant,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RequestQuery {
    /// `asked`, `approved`, `refused` or `withdrawn`; by default all.
    state: Option<String>,
    /// Entries of the page: 50 if omitted, at most 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// `next` of the page before.
    after: Option<String>,
}

impl Listed for CatalogueSourceBody {
    const NAME: &'static str = "catalogue";
    const ROUTE: &'static str = "/me/sources";
    const NONE: &'static str = "no sources: `catalogue.sources` of the configuration has those that callers ask for";
    const COLUMNS: &'static [Column] = &[
        Column::new("source", Form::Name).titled("catalogue-source").headed("source"),
        Column::new("state", Form::Text).titled("catalogue-state").headed("state"),
        Column::new("text", Form::Line).titled("catalogue-text").headed("purpose"),
        Column::new("changed_at", Form::Moment).titled("catalogue-changed").headed("since"),
    ];
}

impl Listed for SourceRequestBody {
    const NAME: &'static str = "source-requests";
    const ROUTE: &'static str = "/admin/source-requests";
    const NONE: &'static str = "no requests for sources";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).headed("id"),
        Column::new("source", Form::Name).titled("catalogue-source").headed("source"),
        Column::new("caller", Form::Name).titled("catalogue-caller").headed("caller"),
        Column::new("tenant", Form::Name).titled("call-tenant").headed("tenant"),
        Column::new("state", Form::Text).titled("catalogue-state").headed("state"),
        Column::new("audience", Form::Text).titled("catalogue-audience").headed("for"),
        Column::new("reason", Form::Line).titled("catalogue-reason").headed("reason"),
        Column::new("asked_at", Form::Moment).titled("catalogue-asked").headed("asked"),
    ];
}

impl Listed for ProfileToolBody {
    const NAME: &'static str = "tools";
    const ROUTE: &'static str = "/admin/sources/{source}";
    const NONE: &'static str = "no tools";
    const COLUMNS: &'static [Column] = &[
        Column::new("name", Form::Name).titled("tool-name").headed("tool"),
        Column::new("dangerous", Form::Text).titled("catalogue-dangerous").headed("dangerous"),
        Column::new("approval", Form::Text).titled("catalogue-approval").headed("approval"),
    ];
}

/// The sources that are allowed but off, with the state of each for the caller, in the order of their names.
#[utoipa::path(get, path = "/me/sources", operation_id = "listCatalogue", tag = "catalogue", params(PageQuery),
    responses((status = 200, body = Page<CatalogueSourceBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let limit = query.limit()?;
    let after = query.after.as_deref().unwrap_or_default();
    let mut entries = gateway.source_catalogue().entries(&meta.caller).await?;
    entries.retain(|entry| entry.source.as_str() > after);
    let page = Page::from_read(entries, limit, |entry| entry.source.clone());
    Ok(reply::json(StatusCode::OK, &page.map(CatalogueSourceBody::from)))
}

/// Asks for a source of the catalogue. A request that waits, or is approved, stays as it is.
#[utoipa::path(post, path = "/me/sources/{source}", operation_id = "requestSource", tag = "catalogue",
    params(("source" = String, Path, description = "`mcp:SERVER` or `openapi:COLLECTION`.")), request_body = AskBody,
    responses((status = 200, body = SourceRequestBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn ask(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(source): Name,
    JsonBody(body, _): JsonBody<AskBody>,
) -> Result<Response, ErrorReply> {
    let (catalogue, caller) = (Arc::clone(gateway.source_catalogue()), Arc::clone(&meta.caller));
    let subject = source.clone();
    let change = async move { catalogue.ask(&caller, &source, &body.reason).await };
    let request = recorded(&gateway, &meta, EventKind::SourceRequested, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &SourceRequestBody::from(request)))
}

/// The requests for sources of the callers whom the administrator administers, the latest first.
#[utoipa::path(get, path = "/admin/source-requests", operation_id = "listSourceRequests", tag = "catalogue", params(RequestQuery),
    responses((status = 200, body = Page<SourceRequestBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn requests(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<RequestQuery>,
) -> Result<Response, ErrorReply> {
    meta.caller.require_administrator()?;
    let RequestQuery { state, limit, after } = query;
    let state = state.map(|state| state.parse::<RequestState>().map_err(|_| CallError::invalid(STATES))).transpose()?;
    let query = PageQuery { limit, after };
    let limit = query.limit()?;
    let place = query.after::<LatestFirst>()?;
    let after = place.as_ref().map(|place| (place.created.0, place.key.as_str()));
    let filter = SourceRequestFilter { state, after, ..SourceRequestFilter::default() };
    // One more than is shown says whether there is a next page.
    let found = gateway.source_catalogue().requests(&meta.caller, filter, limit + 1).await?;
    let key = |request: &StoredSourceRequest| LatestFirst::new(request.asked, request.id.clone()).to_string();
    Ok(reply::json(StatusCode::OK, &Page::from_read(found, limit, key).map(SourceRequestBody::from)))
}

const STATES: &str = "`state` must be `asked`, `approved`, `refused` or `withdrawn`";

/// The profile of a source of the catalogue: the sandbox of its program, and its tools. A server that nobody has yet is started once in
/// its sandbox, to list its tools.
#[utoipa::path(get, path = "/admin/sources/{source}", operation_id = "showSourceProfile", tag = "catalogue",
    params(("source" = String, Path, description = "`mcp:SERVER` or `openapi:COLLECTION`.")),
    responses((status = 200, body = SourceProfileBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn profile(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(source): Name,
) -> Result<Response, ErrorReply> {
    let profile = gateway.source_catalogue().profile(&meta.caller, &source).await?;
    Ok(reply::json(StatusCode::OK, &SourceProfileBody::from(profile)))
}

/// Decides about a request: approves it, so that its source is on at once, refuses it, or withdraws it, so that the source is off at
/// once for whom it was switched on.
#[utoipa::path(post, path = "/admin/source-requests/{id}", operation_id = "decideSourceRequest", tag = "catalogue",
    params(("id" = String, Path, description = "The id of the request.")), request_body = DecisionBody,
    responses((status = 200, body = SourceRequestBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn decide(
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    FromAdministrator { meta, body, .. }: FromAdministrator<DecisionBody>,
) -> Result<Response, ErrorReply> {
    let (decision, kind) = body.read();
    let request = gateway.source_catalogue().request(&meta.caller, &id).await?;
    let audience = match decision {
        SourceDecision::Approve(audience) => Some(audience),
        SourceDecision::Refuse | SourceDecision::Withdraw => request.audience,
    };
    let audience = audience.map(<&str>::from).map(|audience| format!(", for the {audience}")).unwrap_or_default();
    let event = AuditEvent {
        subject: Some(request.source),
        detail: Some(format!("{} of the tenant {}{audience}", request.caller_id, request.tenant)),
        caller: Some(Arc::clone(&meta.caller)),
        ..AuditEvent::new(kind).of_request(meta.request.as_ref(), meta.trace.as_ref())
    };
    let (catalogue, caller) = (Arc::clone(gateway.source_catalogue()), Arc::clone(&meta.caller));
    let change = async move { catalogue.decide(&caller, &id, decision).await };
    let decided = record_change(&gateway, event, change).await?;
    Ok(reply::json(StatusCode::OK, &SourceRequestBody::from(decided)))
}

impl DecisionBody {
    fn read(&self) -> (SourceDecision, EventKind) {
        let audience = match self.audience {
            WantedAudience::User => Audience::User,
            WantedAudience::Key => Audience::Key,
            WantedAudience::Tenant => Audience::Tenant,
        };
        match self.decision {
            DecisionKind::Approve => (SourceDecision::Approve(audience), EventKind::SourceSwitchedOn),
            DecisionKind::Refuse => (SourceDecision::Refuse, EventKind::SourceRefused),
            DecisionKind::Withdraw => (SourceDecision::Withdraw, EventKind::SourceSwitchedOff),
        }
    }
}

impl From<CatalogueEntry> for CatalogueSourceBody {
    fn from(CatalogueEntry { source, text, is_on, request }: CatalogueEntry) -> Self {
        let state = match request.as_ref().map(|request| request.state) {
            _ if is_on => "on",
            // By another request of the same right, or of a key that the caller does not send now.
            None | Some(RequestState::Approved) => "off",
            Some(state) => state.into(),
        };
        Self { source, text, state: state.to_owned(), changed_at: request.map(|request| request.changed.to_string()) }
    }
}

impl From<StoredSourceRequest> for SourceRequestBody {
    fn from(request: StoredSourceRequest) -> Self {
        let moment = |moment: Timestamp| moment.to_string();
        Self {
            id: request.id,
            source: request.source,
            caller: request.caller_id,
            tenant: request.tenant,
            key: request.key_id,
            reason: request.reason,
            state: <&str>::from(request.state).to_owned(),
            audience: request.audience.map(|audience| <&str>::from(audience).to_owned()),
            decided_by: request.decided_by,
            asked_at: moment(request.asked),
            changed_at: moment(request.changed),
        }
    }
}

impl From<SourceProfile> for SourceProfileBody {
    fn from(profile: SourceProfile) -> Self {
        let SourceProfile { source, text, address, sandbox, tools, problem } = profile;
        Self { source, text, address, sandbox, tools: tools.into_iter().map(ProfileToolBody::from).collect(), problem }
    }
}

impl From<ProfileTool> for ProfileToolBody {
    fn from(ProfileTool { name, is_dangerous, needs_approval }: ProfileTool) -> Self {
        Self { name, dangerous: is_dangerous, approval: needs_approval }
    }
}
