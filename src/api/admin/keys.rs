//! `/admin/keys`: keys that administrators manage. All routes need the role `admin`; nobody gives a key more rights
//! than their own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
use crate::list::{Page, PageQuery};
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::EventKind;
use sekisho_auth::new_key_id;
use sekisho_config::Secret;
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::CallError;
use sekisho_gateway::{Gateway, KeyAdministrator, WantedKey};
use sekisho_store::StoredKey;

/// How long the token before is accepted after a rotation, if the request does not say.
const OVERLAP_SECONDS: u64 = 3_600;
const MAX_OVERLAP_SECONDS: u64 = 30 * 24 * 3_600;

/// What a key is to be: at most what its administrator has.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKey {
    /// The caller's id, in budgets, logs and policies: all keys of a person are one caller. The key's id by default.
    person: Option<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    roles: Vec<String>,
    /// That of the administrator by default. Another one only for administrators of the tenant `default`.
    tenant: Option<String>,
    /// The tools that may be seen and called with it, as names or patterns whose final `*` matches any rest; all by default.
    tools: Option<Vec<String>>,
    /// RFC 3339. Without it, the key does not expire.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// How a key is rotated.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    /// How long the token before is accepted: an hour by default, 30 days at most; 0 for no longer.
    #[schema(minimum = 0, maximum = 2_592_000)]
    overlap_seconds: Option<u64>,
}

/// A key, without its token.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyBody {
    pub id: String,
    pub tenant: String,
    pub person: String,
    pub description: String,
    pub roles: Vec<String>,
    /// Absent: all tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// `active`, `expired` or `revoked`.
    pub status: String,
    pub created_at: String,
    /// Tenant and id of who created it.
    pub created_by: String,
    /// The persons who have had a token of it, or of a key by which it was made. For approvals each of them counts as its holder.
    pub creators: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
    /// At this replica to the second, at others some seconds later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<String>,
    /// Until when the token before the last rotation is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_token_until: Option<String>,
}

impl Listed for KeyBody {
    const NAME: &'static str = "keys";
    const ROUTE: &'static str = "/admin/keys";
    const NONE: &'static str = "no managed keys: `sekisho keys create` makes one";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).titled("key-id").headed("id"),
        Column::new("tenant", Form::Name).headed("tenant"),
        Column::new("person", Form::Name).titled("approval-person").headed("person"),
        Column::new("description", Form::Line).titled("tool-description").headed("description"),
        Column::new("roles", Form::Text).titled("explain-roles").headed("roles"),
        Column::new("tools", Form::Text).headed("tools").absent("all"),
        Column::new("status", Form::Text).titled("tool-state").headed("status"),
        Column::new("created_at", Form::Moment),
        Column::new("expires_at", Form::Moment).headed("expires"),
        Column::new("last_used_at", Form::Moment).titled("key-last-used").headed("last used"),
    ];
}

/// A key with its token, which is shown this once.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct KeyWithToken {
    /// Sent as `Authorization: Bearer TOKEN` or `X-API-Key: TOKEN`.
    pub token: String,
    pub key: KeyBody,
}

/// Lists the keys of the caller's tenant, in the order of their ids; for administrators of the tenant `default`, those of all
/// tenants.
#[utoipa::path(get, path = "/admin/keys", operation_id = "listKeys", tag = "operation", params(PageQuery),
    responses((status = 200, body = Page<KeyBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.caller.require_administrator()?;
    let limit = query.limit()?;
    let after = query.after.as_deref().unwrap_or_default();
    // One key more than the page shows says whether there is a next page.
    let keys = gateway.keys().list(administrator(&meta), after, limit + 1).await?;
    let page = Page::from_read(keys, limit, |key| key.id.clone());
    Ok(reply::json(StatusCode::OK, &page.map(|key| KeyBody::of(key, gateway.store().now()))))
}

/// Creates a key. Its token is in the answer, and nowhere else.
#[utoipa::path(post, path = "/admin/keys", operation_id = "createKey", tag = "operation", request_body = NewKey,
    responses((status = 201, body = KeyWithToken), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    FromAdministrator { meta, body, .. }: FromAdministrator<NewKey>,
) -> Result<Response, ErrorReply> {
    let (id, service) = (new_key_id(), Arc::clone(&gateway));
    let checked = gateway.keys().check(administrator(&meta), &id, body.wanted()?);
    // A refusal is in the trail too.
    let change = async move { service.keys().create(checked?).await };
    let created = recorded(&gateway, &meta, EventKind::KeyCreated, &id, change).await?;
    Ok(reply::json(StatusCode::CREATED, &KeyWithToken::of(created, gateway.store().now())))
}

/// Shows a key, without its token.
#[utoipa::path(get, path = "/admin/keys/{id}", operation_id = "getKey", tag = "operation", params(("id" = String, Path)),
    responses((status = 200, body = KeyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    meta.caller.require_administrator()?;
    let key = gateway.keys().find(administrator(&meta), &id).await?;
    Ok(reply::json(StatusCode::OK, &KeyBody::of(key, gateway.store().now())))
}

/// Revokes a key, for ever: it is refused at once, and by other replicas within two seconds.
#[utoipa::path(delete, path = "/admin/keys/{id}", operation_id = "revokeKey", tag = "operation", params(("id" = String, Path)),
    responses((status = 200, body = KeyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn revoke(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    meta.caller.require_administrator()?;
    let id = gateway.keys().find(administrator(&meta), &id).await?.id;
    let (service, subject) = (Arc::clone(&gateway), id.clone());
    let change = async move { service.keys().revoke(&id).await };
    let revoked = recorded(&gateway, &meta, EventKind::KeyRevoked, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &KeyBody::of(revoked, gateway.store().now())))
}

/// Gives a key another token, which is in the answer and nowhere else. The one before is accepted for a time, so that clients
/// can change over.
#[utoipa::path(post, path = "/admin/keys/{id}/rotate", operation_id = "rotateKey", tag = "operation",
    params(("id" = String, Path)), request_body = Rotation,
    responses((status = 200, body = KeyWithToken), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn rotate(
    Name(id): Name,
    State(gateway): State<Arc<Gateway>>,
    FromAdministrator { meta, body, .. }: FromAdministrator<Rotation>,
) -> Result<Response, ErrorReply> {
    let overlap = body.overlap()?;
    let by = administrator(&meta);
    let key = gateway.keys().find(by, &id).await?;
    let (checked, service, subject) = (gateway.keys().check_rotation(by, &key), Arc::clone(&gateway), key.id.clone());
    let (caller, over_socket) = (Arc::clone(&meta.caller), meta.over_socket);
    let change = async move {
        checked?;
        service.keys().rotate(KeyAdministrator { caller: &caller, over_socket }, &key, overlap).await
    };
    let rotated = recorded(&gateway, &meta, EventKind::KeyRotated, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &KeyWithToken::of(rotated, gateway.store().now())))
}

/// Without the token, which must be in no log.
impl fmt::Debug for KeyWithToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyWithToken").field("key", &self.key).finish_non_exhaustive()
    }
}

fn administrator(meta: &RequestMeta) -> KeyAdministrator<'_> {
    KeyAdministrator { caller: &meta.caller, over_socket: meta.over_socket }
}

impl NewKey {
    fn wanted(self) -> Result<WantedKey, CallError> {
        let Self { person, description, roles, tenant, tools, expires_at } = self;
        // In microseconds, as the store has it: otherwise a key would seem to outlive one with the same end.
        let moment = |text: String| Timestamp::from_microsecond(text.parse::<Timestamp>()?.as_microsecond());
        let expires = expires_at.map(moment).transpose().map_err(|_| {
            CallError::invalid("`expires_at` must be a moment as in RFC 3339, such as 2027-01-31T00:00:00Z".to_owned())
        })?;
        Ok(WantedKey { person, description, roles, tenant, tools, expires })
    }
}

impl Rotation {
    fn overlap(&self) -> Result<Duration, CallError> {
        match self.overlap_seconds.unwrap_or(OVERLAP_SECONDS) {
            seconds @ 0..=MAX_OVERLAP_SECONDS => Ok(Duration::from_secs(seconds)),
            _ => Err(CallError::invalid(format!("`overlap_seconds` must be at most {MAX_OVERLAP_SECONDS}"))),
        }
    }
}

impl KeyBody {
    fn of(key: StoredKey, now: DatabaseTime) -> Self {
        let text = |moment: Timestamp| moment.to_string();
        let previous = key.previous.as_ref().map(|(_, until)| *until).filter(|until| *until > *now);
        Self {
            status: match (key.revoked, key.has_ended(now)) {
                (Some(_), _) => "revoked",
                (None, true) => "expired",
                (None, false) => "active",
            }
            .to_owned(),
            created_at: text(key.created),
            expires_at: key.expires.map(text),
            revoked_at: key.revoked.map(text),
            last_used_at: key.last_used.map(text),
            previous_token_until: previous.map(text),
            id: key.id,
            tenant: key.tenant,
            person: key.person,
            description: key.description,
            roles: key.roles,
            tools: key.tools,
            created_by: key.created_by,
            creators: key.creators,
        }
    }
}

impl KeyWithToken {
    fn of((key, token): (StoredKey, Secret), now: DatabaseTime) -> Self {
        Self { token: token.expose().to_owned(), key: KeyBody::of(key, now) }
    }
}
