//! `/sign-ins`: sign-ins of callers to upstreams that are called as their callers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::admin::record_change;
use super::column::{Column, Form, Listed};
use super::documentation::ReplyBody;
use super::list::{LatestFirst, Page, PageQuery};
use super::parameters::{Name, Parameters};
use super::reply;
use super::request::RequestMeta;
use crate::reply::ErrorReply;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_core::error::NeededSignIn;
use sekisho_gateway::{Gateway, SignedInCaller};
use sekisho_store::StoredUserToken;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RevokedQuery {
    /// The id of another caller; needs the role `admin`.
    pub caller: Option<String>,
    /// The tenant of that caller, for administrators of the tenant `default`; without it, those with this id in all tenants.
    pub tenant: Option<String>,
}

/// A caller who has signed in to an upstream.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = SignIn)]
pub struct SignInBody {
    /// `mcp:SERVER` or `openapi:COLLECTION`.
    pub source: String,
    pub caller: String,
    pub tenant: String,
    /// What the caller has granted.
    pub scopes: Vec<String>,
    /// RFC 3339.
    pub created_at: String,
    /// When its tokens were renewed last.
    pub changed_at: String,
    /// Deprecated name of `created_at`, to be dropped in 0.3.
    #[schema(deprecated)]
    signed_in_at: String,
    /// Deprecated name of `changed_at`, to be dropped in 0.3.
    #[schema(deprecated)]
    renewed_at: String,
}

impl Listed for SignInBody {
    const NAME: &'static str = "sign-ins";
    const ROUTE: &'static str = "/sign-ins";
    const NONE: &'static str =
        "no sign-ins: `sekisho sign-ins start` begins one at an upstream that is called as its callers";
    const COLUMNS: &'static [Column] = &[
        Column::new("source", Form::Name).titled("sign-ins-source").headed("source"),
        Column::new("caller", Form::Name).titled("call-caller").headed("caller"),
        Column::new("tenant", Form::Name).headed("tenant"),
        Column::new("scopes", Form::Line).titled("sign-ins-scopes").headed("scopes"),
        Column::new("signed_in_at", Form::Moment).at("/created_at").titled("sign-ins-since").headed("signed in"),
        Column::new("renewed_at", Form::Moment).at("/changed_at").titled("sign-ins-renewed"),
    ];
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct SignInList {
    #[serde(flatten)]
    pub page: Page<SignInBody>,
    /// Deprecated name of `items`, to be dropped in 0.3. All sign-ins, the latest first, where no page is asked for.
    #[schema(deprecated)]
    sign_ins: Vec<SignInBody>,
    /// Upstreams that the caller can sign in to and has not, of those with a tool that it may see.
    pub available: Vec<String>,
}

impl From<StoredUserToken> for SignInBody {
    fn from(token: StoredUserToken) -> Self {
        Self {
            source: token.source,
            caller: token.caller_id,
            tenant: token.tenant,
            scopes: token.scopes.split_whitespace().map(str::to_owned).collect(),
            created_at: token.created.to_string(),
            changed_at: token.changed.to_string(),
            signed_in_at: token.created.to_string(),
            renewed_at: token.changed.to_string(),
        }
    }
}

/// Lists the upstreams that the caller has signed in to, and those that it can sign in to; for administrators, the sign-ins of
/// their tenant, the latest first. Without tokens.
#[utoipa::path(get, path = "/sign-ins", operation_id = "listSignIns", tag = "sign-ins", params(PageQuery),
    responses((status = 200, body = SignInList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let all = gateway.sign_ins().list(&meta.caller).await?;
    let key = |token: &StoredUserToken| {
        LatestFirst::new(token.created, hex::encode(format!("{} {}", token.caller_key, token.source)))
    };
    let (page, sign_ins) = Page::from_all_with_old_name(all, &query, key)?;
    let available = gateway.sign_ins().missing(&meta.caller).await?;
    let sign_ins = sign_ins.into_iter().map(SignInBody::from).collect();
    Ok(reply::json(StatusCode::OK, &SignInList { page: page.map(SignInBody::from), sign_ins, available }))
}

/// Begins the caller's sign-in to an upstream: the page to open in the caller's browser, and a one-time code for it.
#[utoipa::path(post, path = "/sign-ins/{source}", operation_id = "beginSignIn", tag = "sign-ins",
    params(("source" = String, Path, description = "`mcp:SERVER` or `openapi:COLLECTION`.")),
    responses((status = 200, body = NeededSignIn), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub async fn begin(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(source): Name,
) -> Result<Response, ErrorReply> {
    let (service, caller, event) =
        (Arc::clone(&gateway), Arc::clone(&meta.caller), event(&meta, EventKind::SignInStarted, &source));
    let change = async move { service.sign_ins().offer(&caller, &source).await };
    let needed = record_change(&gateway, event, change).await?;
    Ok(([(CACHE_CONTROL, "no-store")], reply::json(StatusCode::OK, &needed)).into_response())
}

/// Revokes the caller's sign-in to an upstream: its tokens are forgotten here, and revoked where they came from if that can be
/// done.
#[utoipa::path(delete, path = "/sign-ins/{source}", operation_id = "revokeSignIn", tag = "sign-ins",
    params(("source" = String, Path, description = "`mcp:SERVER` or `openapi:COLLECTION`."), RevokedQuery),
    responses((status = 204, description = "It is revoked."), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn revoke(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(source): Name,
    Parameters(query): Parameters<RevokedQuery>,
) -> Result<Response, ErrorReply> {
    let (service, caller, event) =
        (Arc::clone(&gateway), Arc::clone(&meta.caller), event(&meta, EventKind::SignInRevoked, &source));
    let change = async move {
        let RevokedQuery { caller: id, tenant } = &query;
        let of = id.as_deref().map(|id| SignedInCaller { id, tenant: tenant.as_deref() });
        service.sign_ins().revoke(&caller, &source, of).await
    };
    record_change(&gateway, event, change).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn event(meta: &RequestMeta, kind: EventKind, source: &str) -> AuditEvent {
    AuditEvent {
        subject: Some(source.to_owned()),
        caller: Some(Arc::clone(&meta.caller)),
        ..AuditEvent::new(kind).of_request(meta.request.as_ref(), meta.trace.as_ref())
    }
}
