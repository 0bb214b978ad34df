//! `/admin/servers`: the MCP servers and OpenAPI collections, and the actions of administrators.

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
use crate::list::{Page, PageQuery, invalid_after};
use crate::parameters::{Names, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::EventKind;
use sekisho_core::administration::{Administrator, AdministratorProof};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{Gateway, SourceKind, SourceState, SourceStatus};
use sekisho_mcp_client::{HostConnections, McpRegistration};
use sekisho_openapi::Registration;
use sekisho_openapi::read::report::{Note, Report};

/// The servers and collections, each in the order of their names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServerList {
    #[serde(flatten)]
    page: Page<ServerBody>,
    /// Deprecated name of `items`, to be dropped in 0.3.
    #[schema(deprecated)]
    servers: Vec<ServerBody>,
}

/// A server or collection as it is now.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ServerBody {
    pub kind: SourceKind,
    pub name: String,
    /// The program, or scheme, host and port; of a document, where it was read.
    address: String,
    pub state: SourceState,
    /// When it came into its state, as RFC 3339, UTC.
    since: Option<String>,
    /// What is wrong.
    pub reason: Option<String>,
    /// Registered over HTTP, and not in the configuration.
    registered: bool,
    /// The tenant that registered it, which alone uses it; null for what is shared.
    tenant: Option<String>,
    /// Names of the tools.
    tools: Vec<String>,
    /// Names of the tools whose upstream fails: of the latest calls no more succeeded than failed by its fault.
    pub failing: Vec<String>,
    /// Names of the tools that wait for approval.
    pub quarantined: Vec<String>,
    /// Whether it takes a user's sign-in.
    can_sign_in: bool,
    /// What became of each operation of a document.
    fidelity: Option<FidelityBody>,
    /// Connections of a program in a sandbox, by host; for who sees the calls of all tenants, or administers the server's.
    connections: Vec<HostConnections>,
    /// Layers of the sandbox of the last program that was started, as docs/security.md names them.
    layers: Vec<String>,
}

impl Listed for ServerBody {
    const NAME: &'static str = "servers";
    const ROUTE: &'static str = "/admin/servers";
    const COLUMNS: &'static [Column] = &[
        Column::new("name", Form::Name).titled("server-name"),
        Column::new("kind", Form::Text).titled("server-kind"),
        Column::new("state", Form::Text).titled("tool-state"),
        Column::new("since", Form::Moment).titled("server-since"),
        Column::new("reason", Form::Line).titled("server-reason"),
        Column::new("address", Form::Text),
        Column::new("registered", Form::Text),
        Column::new("tools", Form::Entries).titled("nav-tools"),
        Column::new("quarantined", Form::Entries),
    ];
}

impl Listed for HostConnections {
    const NAME: &'static str = "connections";
    const ROUTE: &'static str = "/admin/servers/{kind}/{name}";
    const COLUMNS: &'static [Column] = &[
        Column::new("host", Form::Name).titled("connection-host").headed("host"),
        Column::new("allowed", Form::Count).titled("connection-allowed").headed("allowed"),
        Column::new("refused", Form::Count).titled("connection-refused").headed("refused"),
        Column::new("datagrams", Form::Count).titled("connection-datagrams").headed("datagrams refused"),
        Column::new("reason", Form::Text).titled("server-reason").headed("why the last was refused"),
    ];
}

/// What became of each operation of a document.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct FidelityBody {
    operations: usize,
    tools: usize,
    /// Operations that work as the document says.
    works: usize,
    /// Operations that work, but differ from the document.
    approximated: Vec<Note>,
    /// Operations whose credentials are not configured.
    needs_credentials: Vec<Note>,
    /// Operations that are not offered.
    lost: Vec<Note>,
}

/// What would be registered: one of the two.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TestRequest {
    mcp: Option<McpRegistration>,
    openapi: Option<Registration>,
}

/// The result of a test.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TestBody {
    success: bool,
    fidelity: Option<FidelityBody>,
}

/// The result of a reconnection.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Reconnected {
    success: bool,
}

/// The result of a removal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RemovedServer {
    success: bool,
}

/// Lists the MCP servers and OpenAPI collections: all for administrators of the tenant `default`, otherwise those with a tool
/// that the caller may see, and for an administrator of a tenant also what is of the tenant.
#[utoipa::path(get, path = "/admin/servers", operation_id = "listServers", tag = "operation", params(PageQuery),
    responses((status = 200, body = ServerList), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let limit = query.limit()?;
    let mut sources = gateway.sources().list(&meta.caller).await;
    if let Some(after) = &query.after {
        let (kind, name) = after.split_once(':').unwrap_or_default();
        let kind = read_kind(kind).map_err(|_| invalid_after())?;
        sources.retain(|source| (source.kind, &*source.name) > (kind, name));
    }
    let page = Page::from_read(sources, limit, SourceStatus::source).map(ServerBody::from);
    let servers = page.items.clone();
    Ok(reply::json(StatusCode::OK, &ServerList { page, servers }))
}

/// One of these servers and collections.
#[utoipa::path(get, path = "/admin/servers/{kind}/{name}", operation_id = "getServer", tag = "operation",
    params(("kind" = SourceKind, Path), ("name" = String, Path)),
    responses((status = 200, body = ServerBody), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Names(kind, name): Names,
) -> Result<Response, ErrorReply> {
    let status = gateway.sources().find(&meta.caller, read_kind(&kind)?, &name).await?;
    Ok(reply::json(StatusCode::OK, &ServerBody::from(status)))
}

/// Connects a server, or reads a document, as a registration does, and offers nothing. For administrators.
#[utoipa::path(post, path = "/admin/servers/test", operation_id = "testServer", tag = "operation", request_body = TestRequest,
    responses((status = 200, body = TestBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn test(
    State(gateway): State<Arc<Gateway>>,
    FromAdministrator { by, body, .. }: FromAdministrator<TestRequest>,
) -> Result<Response, ErrorReply> {
    let fidelity = match (body.mcp, body.openapi) {
        (Some(server), None) => {
            gateway.mcp_registrations().try_out(&by, &server).await.map_err(|error| super::mcp::not_added(&error))?;
            None
        }
        (None, Some(document)) => {
            let read = gateway.collections().try_out(&by, &document).await;
            Some(FidelityBody::of(&read.map_err(|error| super::openapi::not_registered(&error))?.report))
        }
        _ => return Err(CallError::new(ErrorCode::InvalidRequest, "send one of `mcp` and `openapi`").into()),
    };
    Ok(reply::json(StatusCode::OK, &TestBody { success: true, fidelity }))
}

/// Connects an MCP server again now, or fetches a document that could not be reached. Does not wait for it. For administrators of
/// the tenant `default`; what is of a tenant also for those of the tenant.
#[utoipa::path(post, path = "/admin/servers/{kind}/{name}/reconnect", operation_id = "reconnectServer", tag = "operation",
    params(("kind" = SourceKind, Path), ("name" = String, Path)),
    responses((status = 200, body = Reconnected), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn reconnect(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Names(kind, name): Names,
) -> Result<Response, ErrorReply> {
    let kind = read_kind(&kind)?;
    let (by, status) = administered(&gateway, &meta, kind, &name).await?;
    let (service, subject) = (Arc::clone(&gateway), status.source());
    let change = async move { Ok(service.sources().reconnect(&by, kind, &name)) };
    let success = recorded(&gateway, &meta, EventKind::ServerReconnected, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &Reconnected { success }))
}

/// Removes a server or collection that was registered over HTTP, with its tools, also from the next start. One of the
/// configuration is removed there. For administrators of the tenant `default`; what is of a tenant also for those of the tenant.
#[utoipa::path(delete, path = "/admin/servers/{kind}/{name}", operation_id = "removeServer", tag = "operation",
    params(("kind" = SourceKind, Path), ("name" = String, Path)),
    responses((status = 200, body = RemovedServer), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn remove(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Names(kind, name): Names,
) -> Result<Response, ErrorReply> {
    let (by, status) = administered(&gateway, &meta, read_kind(&kind)?, &name).await?;
    let (service, event) = (Arc::clone(&gateway), removal_event(status.kind));
    let change = async move {
        let SourceStatus { kind, name, .. } = &status;
        if !status.registered {
            let message = format!("the configuration defines {name}; remove it from there");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        let removed = match kind {
            SourceKind::Mcp => service.mcp_registrations().unregister(by, name).await.map_err(CallError::from)?,
            SourceKind::Openapi => service
                .collections()
                .unregister(by, name)
                .await
                .map_err(|error| super::openapi::not_registered(&error))?,
        };
        match removed {
            true => Ok(()),
            false => Err(CallError::new(ErrorCode::NotFound, format!("another request has removed {name}"))),
        }
    };
    recorded(&gateway, &meta, event, &name, change).await?;
    tracing::info!(kind, name, caller = &*meta.caller.id, "a server was removed");
    Ok(reply::json(StatusCode::OK, &RemovedServer { success: true }))
}

/// A server or collection, and the proof that the caller may change it.
///
/// # Errors
/// `denied`; `not_found`: there is none, or none that the caller sees.
async fn administered(
    gateway: &Gateway,
    meta: &RequestMeta,
    kind: SourceKind,
    name: &str,
) -> Result<(Administrator, SourceStatus), CallError> {
    // A caller who is no administrator learns nothing of existing servers.
    Administrator::of(&meta.caller)?;
    let status = gateway.sources().find(&meta.caller, kind, name).await?;
    Ok((Administrator::for_owner(&meta.caller, &status.owner)?, status))
}

fn removal_event(kind: SourceKind) -> EventKind {
    match kind {
        SourceKind::Mcp => EventKind::McpServerRemoved,
        SourceKind::Openapi => EventKind::CollectionRemoved,
    }
}

fn read_kind(text: &str) -> Result<SourceKind, CallError> {
    let kind = SourceKind::ALL.iter().copied().find(|kind| kind.as_str() == text);
    kind.ok_or_else(|| CallError::new(ErrorCode::NotFound, "a server is of the kind `mcp` or `openapi`"))
}

impl From<SourceStatus> for ServerBody {
    fn from(status: SourceStatus) -> Self {
        let since = status.since.and_then(|since| Timestamp::try_from(since).ok());
        Self {
            kind: status.kind,
            name: status.name,
            address: status.address,
            state: status.state,
            since: since.map(|since| since.to_string()),
            reason: status.reason,
            registered: status.registered,
            tenant: status.owner.tenant().map(str::to_owned),
            tools: status.tools,
            failing: status.failing,
            quarantined: status.quarantined,
            can_sign_in: status.can_sign_in,
            fidelity: status.collection.map(|collection| FidelityBody::of(&collection.report)),
            connections: status.connections,
            layers: status.layers.into_iter().map(str::to_owned).collect(),
        }
    }
}

impl FidelityBody {
    fn of(report: &Report) -> Self {
        Self {
            operations: report.operations,
            tools: report.tools,
            works: report.works.len(),
            approximated: report.approximated.clone(),
            needs_credentials: report.needs_credentials.clone(),
            lost: report.lost.clone(),
        }
    }
}
