//! `/admin/oauth/sessions`: sessions of users with clients of the authorization server, for administrators of their tenant.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::recorded;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{Page, PageQuery};
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::EventKind;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_store::BrokerSession;

/// A user who signed in with a client.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = OauthSession)]
pub struct OauthSessionBody {
    pub id: String,
    pub tenant: String,
    /// The name by which the provider knows the user.
    pub user: String,
    /// The user's id at the provider (`sub`).
    pub subject: String,
    pub client: String,
    /// As the client named itself.
    pub client_name: String,
    /// RFC 3339.
    pub created_at: String,
    /// When its tokens were refreshed last.
    pub changed_at: String,
    /// When it ends without a refresh.
    pub expires_at: String,
}

impl Listed for OauthSessionBody {
    const NAME: &'static str = "oauth-sessions";
    const ROUTE: &'static str = "/admin/oauth/sessions";
    const NONE: &'static str =
        "no sessions: they begin when a user signs in with a client at the authorization server (`auth.broker`)";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).headed("id"),
        Column::new("tenant", Form::Name).headed("tenant"),
        Column::new("user", Form::Name).headed("user"),
        Column::new("subject", Form::Name),
        Column::new("client", Form::Name),
        Column::new("client_name", Form::Line).headed("client"),
        Column::new("created_at", Form::Moment).headed("signed in"),
        Column::new("changed_at", Form::Moment).headed("refreshed"),
        Column::new("expires_at", Form::Moment).headed("expires"),
    ];
}

impl From<BrokerSession> for OauthSessionBody {
    fn from(session: BrokerSession) -> Self {
        Self {
            id: session.id,
            tenant: session.tenant,
            user: session.login,
            subject: session.subject,
            client: session.client,
            client_name: session.client_name,
            created_at: session.created.to_string(),
            changed_at: session.changed.to_string(),
            expires_at: session.expires.to_string(),
        }
    }
}

/// Lists the sessions of the caller's tenant, in the order of their ids; for administrators of the tenant `default`, of all tenants.
#[utoipa::path(get, path = "/admin/oauth/sessions", operation_id = "listOauthSessions", tag = "authorization", params(PageQuery),
    responses((status = 200, body = Page<OauthSessionBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.caller.require_administrator()?;
    let limit = query.limit()?;
    let after = query.after.as_deref().unwrap_or_default();
    // One session more than the page shows says whether there is a next page.
    let sessions = gateway.broker().sessions(tenant_of(&meta), after, limit + 1).await?;
    let page = Page::from_read(sessions, limit, |session| session.id.clone());
    Ok(reply::json(StatusCode::OK, &page.map(OauthSessionBody::from)))
}

/// Ends a session: its refresh token counts no more, and its access token for a few seconds.
#[utoipa::path(delete, path = "/admin/oauth/sessions/{id}", operation_id = "endOauthSession", tag = "authorization",
    params(("id" = String, Path)),
    responses((status = 204, description = "It has ended."), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn end(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    meta.caller.require_administrator()?;
    let (service, tenant) = (Arc::clone(&gateway), tenant_of(&meta).map(str::to_owned));
    let subject = id.clone();
    let change = async move {
        let ended = service.broker().end_session(&id, tenant.as_deref()).await?;
        ended.map(drop).ok_or_else(|| {
            CallError::new(ErrorCode::NotFound, "there is no such session: `sekisho sign-ins sessions` lists them")
        })
    };
    recorded(&gateway, &meta, EventKind::OauthSessionEnded, &subject, change).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The tenant whose sessions an administrator sees; `None` for all.
fn tenant_of(meta: &RequestMeta) -> Option<&str> {
    (!meta.caller.administers_shared()).then_some(&*meta.caller.tenant)
}
