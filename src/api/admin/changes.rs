//! `/admin/changes`: changes of the configuration that administrators propose, apply and undo while the gateway runs.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::configuration::CheckBody;
use super::recorded;
use crate::body::FromSharedAdministrator;
use crate::column::{Column, Form, Listed};
use crate::documentation::ReplyBody;
use crate::list::{LatestFirst, Page, PageQuery};
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::RequestMeta;
use sekisho_audit::EventKind;
use sekisho_core::administration::{AdministratorProof, SharedAdministrator};
use sekisho_core::error::CallError;
use sekisho_core::record::shortened;
use sekisho_gateway::{ChangePreview, ChangeTrial, Gateway, TriedCalls};
use sekisho_store::StoredChange;

/// A change of the configuration.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = ConfigurationChange)]
pub struct ConfigurationChangeBody {
    pub id: String,
    /// `proposed`, `applied` or `undone`.
    pub state: String,
    pub comment: String,
    pub proposed_by: String,
    /// RFC 3339.
    pub proposed_at: String,
    /// Who applied or undid it.
    pub decided_by: Option<String>,
    pub changed_at: String,
    /// A JSON merge patch (RFC 7396).
    #[schema(value_type = Object)]
    pub patch: Value,
}

/// A change, and its effects now: of applying it, or of undoing it where it is in force.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConfigurationChangePreview)]
pub(super) struct PreviewBody {
    #[serde(flatten)]
    change: ConfigurationChangeBody,
    /// Absent for a change that was undone.
    effect: Option<CheckBody>,
    trial: Option<ChangeTrial>,
}

/// What to propose.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewConfigurationChange)]
pub(crate) struct ProposeRequest {
    /// A JSON merge patch (RFC 7396) over the configuration's file: null removes a setting.
    #[schema(value_type = Object)]
    patch: Value,
    /// The purpose; at most 1000 bytes.
    #[serde(default)]
    comment: String,
}

/// The settings of which the administrator knows that the change opens them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = ConfigurationChangeConfirmation)]
pub(crate) struct ConfirmRequest {
    opens: Vec<String>,
}

impl Listed for ConfigurationChangeBody {
    const NAME: &'static str = "configuration-changes";
    const ROUTE: &'static str = "/admin/changes";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).titled("change-id").leading(),
        Column::new("state", Form::Text).titled("catalogue-state"),
        Column::new("comment", Form::Line).titled("change-comment"),
        Column::new("proposed_by", Form::Name).titled("change-proposed-by"),
        Column::new("proposed_at", Form::Moment).titled("change-proposed-at"),
        Column::new("decided_by", Form::Name).titled("change-decided-by"),
        Column::new("changed_at", Form::Moment).titled("change-changed-at"),
    ];
}

impl Listed for TriedCalls {
    const NAME: &'static str = "tried-calls";
    const ROUTE: &'static str = "/admin/changes/{id}";
    const COLUMNS: &'static [Column] = &[
        Column::new("setting", Form::Name).titled("configuration-key"),
        Column::new("tool", Form::Name).titled("tool-name"),
        Column::new("tenant", Form::Name).titled("call-tenant"),
        Column::new("caller", Form::Name).titled("call-caller"),
        Column::new("calls", Form::Count).titled("change-calls"),
        Column::new("call_id", Form::Name),
    ];
}

/// The changes of the configuration, the latest first.
#[utoipa::path(get, path = "/admin/changes", operation_id = "listConfigurationChanges", tag = "operation", params(PageQuery),
    responses((status = 200, body = Page<ConfigurationChangeBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let by = SharedAdministrator::of(&meta.caller)?;
    let (limit, place) = (query.limit()?, query.after::<LatestFirst>()?);
    let after = place.as_ref().map(|place| (place.created.0, place.key.as_str()));
    // One more than is shown says whether there is a next page.
    let found = gateway.configuration_changes(by, after, limit + 1).await?;
    let key = |change: &StoredChange| LatestFirst::new(change.proposed, change.id.clone()).to_string();
    let page = Page::from_read(found, limit, key).map(ConfigurationChangeBody::from);
    Ok(reply::json(StatusCode::OK, &page))
}

/// Proposes a change of the configuration: shows its difference with everything that it opens, and tries it on the latest calls of the index. Nothing is
/// applied. For administrators of the tenant `default`.
#[utoipa::path(post, path = "/admin/changes", operation_id = "proposeConfigurationChange", tag = "operation", request_body = ProposeRequest,
    responses((status = 200, body = PreviewBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn propose(
    State(gateway): State<Arc<Gateway>>,
    FromSharedAdministrator { by, meta, body, .. }: FromSharedAdministrator<ProposeRequest>,
) -> Result<Response, ErrorReply> {
    let topics: Vec<_> = body.patch.as_object().into_iter().flatten().map(|(topic, _)| topic.as_str()).collect();
    let subject = shortened(&topics.join(", ")).to_owned();
    let (asked, caller) = (Arc::clone(&gateway), Arc::clone(&meta.caller));
    let change = async move { asked.propose_change(&caller, by, body.patch, body.comment).await };
    let preview = recorded(&gateway, &meta, EventKind::ConfigurationChangeProposed, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &PreviewBody::from(preview)))
}

/// A change with its effects now: of applying it, or of undoing it where it is in force.
#[utoipa::path(get, path = "/admin/changes/{id}", operation_id = "getConfigurationChange", tag = "operation",
    params(("id" = String, Path)),
    responses((status = 200, body = PreviewBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let preview = gateway.configuration_change(SharedAdministrator::of(&meta.caller)?, &id).await?;
    Ok(reply::json(StatusCode::OK, &PreviewBody::from(preview)))
}

/// Applies a proposed change, at all replicas. Each setting that it opens must be named.
#[utoipa::path(post, path = "/admin/changes/{id}/apply", operation_id = "applyConfigurationChange", tag = "operation",
    params(("id" = String, Path)), request_body = ConfirmRequest,
    responses((status = 200, body = ConfigurationChangeBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn apply(
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    FromSharedAdministrator { by, meta, body, .. }: FromSharedAdministrator<ConfirmRequest>,
) -> Result<Response, ErrorReply> {
    let (asked, caller, subject) = (Arc::clone(&gateway), Arc::clone(&meta.caller), shortened(&id).to_owned());
    let change = async move { asked.apply_change(&caller, by, &id, &body.opens).await };
    let applied = recorded(&gateway, &meta, EventKind::ConfigurationChangeApplied, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &ConfigurationChangeBody::from(applied)))
}

/// Takes a change out of force, at all replicas; later ones stay. Each setting that this opens must be named.
#[utoipa::path(post, path = "/admin/changes/{id}/undo", operation_id = "undoConfigurationChange", tag = "operation",
    params(("id" = String, Path)), request_body = ConfirmRequest,
    responses((status = 200, body = ConfigurationChangeBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn undo(
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    FromSharedAdministrator { by, meta, body, .. }: FromSharedAdministrator<ConfirmRequest>,
) -> Result<Response, ErrorReply> {
    let (asked, caller, subject) = (Arc::clone(&gateway), Arc::clone(&meta.caller), shortened(&id).to_owned());
    let change = async move { asked.undo_change(&caller, by, &id, &body.opens).await };
    let undone = recorded(&gateway, &meta, EventKind::ConfigurationChangeUndone, &subject, change).await?;
    Ok(reply::json(StatusCode::OK, &ConfigurationChangeBody::from(undone)))
}

/// The changes in force as one JSON merge patch over the configuration's file, in YAML.
#[utoipa::path(get, path = "/admin/changes/export", operation_id = "exportConfigurationChanges", tag = "operation",
    responses((status = 200, body = String, content_type = "application/yaml"), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn export(meta: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Result<Response, ErrorReply> {
    SharedAdministrator::of(&meta.caller)?;
    let changes = gateway.configuration().current().changes();
    let text = yaml_serde::to_string(&changes).map_err(CallError::internal)?;
    Ok(([(CONTENT_TYPE, "application/yaml")], text).into_response())
}

impl From<StoredChange> for ConfigurationChangeBody {
    fn from(change: StoredChange) -> Self {
        let StoredChange { id, patch, comment, state, proposed_by, persons: _, decided_by, proposed, changed } = change;
        Self {
            id,
            state: <&str>::from(state).to_owned(),
            comment,
            proposed_by,
            proposed_at: proposed.to_string(),
            decided_by,
            changed_at: changed.to_string(),
            patch: serde_json::from_str(&patch).unwrap_or_default(),
        }
    }
}

impl From<ChangePreview> for PreviewBody {
    fn from(ChangePreview { change, effect }: ChangePreview) -> Self {
        let (effect, trial) = effect.map(|(check, trial)| (CheckBody::from(check), trial)).unzip();
        Self { change: change.into(), effect, trial }
    }
}
