//! `/me/credentials`: credentials that callers store for upstreams that are called with them (`identity: stored`).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::admin::record_change;
use super::body::JsonBody;
use super::column::{Column, Form, Listed};
use super::documentation::ReplyBody;
use super::list::{LatestFirst, Page, PageQuery};
use super::parameters::{Name, Parameters};
use super::reply;
use super::request::RequestMeta;
use crate::reply::ErrorReply;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_config::Secret;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{CredentialKind, Gateway, KeptCredential, NewCredential};
use sekisho_store::StoredUserToken;

/// The latest end of a credential: ten years from now.
const MAX_LIFETIME: Duration = Duration::from_secs(3_653 * 24 * 3_600);

/// A credential to store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewCredential)]
pub struct CredentialRequest {
    /// `key`, `basic` or `header`.
    #[schema(value_type = String)]
    pub kind: CredentialKind,
    /// With `basic`.
    #[serde(default)]
    pub username: Option<String>,
    /// The key, the password, or the whole value of the header.
    #[schema(value_type = String)]
    pub secret: Secret,
    /// RFC 3339. It is not sent afterwards.
    #[serde(default)]
    pub expires_at: Option<String>,
}

/// A credential that the caller has stored for an upstream, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = StoredCredential)]
pub struct CredentialBody {
    /// `mcp:SERVER` or `openapi:COLLECTION`.
    pub source: String,
    /// `key`, `basic` or `header`.
    pub kind: String,
    /// RFC 3339.
    pub created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// To about a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
}

/// A credential that was stored just now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeptCredential)]
struct KeptBody {
    #[serde(flatten)]
    credential: CredentialBody,
    /// `passed`: the server's tools were listed with it; `failed`, with `test_error`; `none` for an OpenAPI collection.
    test: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_error: Option<String>,
}

impl Listed for CredentialBody {
    const NAME: &'static str = "credentials";
    const ROUTE: &'static str = "/me/credentials";
    const NONE: &'static str =
        "no credentials: `sekisho sign-ins store` stores one for an upstream that takes those of its callers";
    const COLUMNS: &'static [Column] = &[
        Column::new("source", Form::Name).headed("source"),
        Column::new("kind", Form::Text).headed("kind"),
        Column::new("created_at", Form::Moment).headed("stored"),
        Column::new("expires_at", Form::Moment).headed("expires"),
        Column::new("last_used_at", Form::Moment).headed("last used"),
    ];
}

impl CredentialRequest {
    /// # Errors
    /// `invalid_request` for a moment that is none, or is not within the next ten years.
    pub fn read(self) -> Result<NewCredential, CallError> {
        let Self { kind, username, secret, expires_at } = self;
        let until = |text: String| {
            let end = text.parse::<Timestamp>().ok()?;
            let left = Duration::try_from(end.duration_since(Timestamp::now())).ok()?;
            (!left.is_zero() && left <= MAX_LIFETIME).then_some(left)
        };
        let wrong = || {
            let message =
                "`expires_at` must be a moment within the next ten years as in RFC 3339, such as 2027-01-31T00:00:00Z";
            CallError::new(ErrorCode::InvalidRequest, message)
        };
        let lifetime = expires_at.map(|text| until(text).ok_or_else(wrong)).transpose()?;
        Ok(NewCredential { kind, username: username.filter(|name| !name.is_empty()), secret, lifetime })
    }
}

impl From<StoredUserToken> for CredentialBody {
    fn from(stored: StoredUserToken) -> Self {
        let text = |moment: Timestamp| moment.to_string();
        Self {
            source: stored.source,
            kind: stored.kind.unwrap_or_default(),
            created_at: text(stored.created),
            expires_at: stored.expires.map(text),
            last_used_at: stored.used.map(text),
        }
    }
}

/// Lists the credentials that the caller has stored for upstreams, the latest first, without their secrets.
#[utoipa::path(get, path = "/me/credentials", operation_id = "listCredentials", tag = "sign-ins", params(PageQuery),
    responses((status = 200, body = Page<CredentialBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let all = gateway.sign_ins().credentials(&meta.caller).await?;
    let page = Page::from_all(all, &query, |stored| LatestFirst::new(stored.created, hex::encode(&stored.source)))?;
    Ok(reply::json(StatusCode::OK, &page.map(CredentialBody::from)))
}

/// Stores a credential of the caller for an upstream that takes credentials of its callers, in place of an earlier one. At an MCP
/// server it is tried: the gateway connects and lists the tools. A credential that the server refuses is not kept.
#[utoipa::path(post, path = "/me/credentials/{source}", operation_id = "storeCredential", tag = "sign-ins",
    params(("source" = String, Path, description = "`mcp:SERVER` or `openapi:COLLECTION`.")), request_body = CredentialRequest,
    responses((status = 200, description = "It replaces an earlier one.", body = KeptBody), (status = 201, body = KeptBody),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn store(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(source): Name,
    JsonBody(body, _): JsonBody<CredentialRequest>,
) -> Result<Response, ErrorReply> {
    let new = body.read()?;
    let is_replaced = gateway.sign_ins().credential(&meta.caller, &source).await?.is_some();
    let detail = format!("{}, {}", new.kind.as_str(), if is_replaced { "replaced" } else { "created" });
    let event = AuditEvent { detail: Some(detail), ..event(&meta, EventKind::CredentialStored, &source) };
    let (service, caller) = (Arc::clone(&gateway), Arc::clone(&meta.caller));
    let change = async move { service.sign_ins().store_credential(&caller, &source, &new).await };
    let KeptCredential { stored, test } = record_change(&gateway, event, change).await?;
    let (test, test_error) = match test {
        Some(Ok(())) => ("passed", None),
        Some(Err(reason)) => ("failed", Some(reason)),
        None => ("none", None),
    };
    let status = if is_replaced { StatusCode::OK } else { StatusCode::CREATED };
    Ok(reply::json(status, &KeptBody { credential: stored.into(), test, test_error }))
}

/// Removes the credential that the caller has stored for an upstream.
#[utoipa::path(delete, path = "/me/credentials/{source}", operation_id = "removeCredential", tag = "sign-ins",
    params(("source" = String, Path, description = "`mcp:SERVER` or `openapi:COLLECTION`.")),
    responses((status = 204, description = "It is removed."), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn remove(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(source): Name,
) -> Result<Response, ErrorReply> {
    let (service, caller, event) =
        (Arc::clone(&gateway), Arc::clone(&meta.caller), event(&meta, EventKind::CredentialRemoved, &source));
    let change = async move { service.sign_ins().remove_credential(&caller, &source).await };
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
