//! `/effects`: calls without an answer. One whose outcome is not known is resolved when it is sent again, or by a person.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

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
use sekisho_calls::pipeline::{Effect, EffectState, Resolution};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EffectQuery {
    /// `running` or `unknown`; both if omitted.
    #[param(value_type = Option<String>)]
    status: Option<Status>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Running,
    Unknown,
}

/// A call without an answer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Effect)]
pub struct EffectBody {
    /// The id of the call.
    pub id: String,
    pub tool: String,
    /// `running`, or `unknown`: its process ended, or its upstream was cut off, before the answer.
    pub status: String,
    pub created_at: String,
}

impl Listed for EffectBody {
    const NAME: &'static str = "effects";
    const ROUTE: &'static str = "/effects";
    const NONE: &'static str = "no effects: a recorded call whose answer is missing is listed until it is resolved";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name).headed("call"),
        Column::new("tool", Form::Name).headed("tool"),
        Column::new("status", Form::Text).headed("status"),
        Column::new("created_at", Form::Moment).headed("started"),
    ];
}

/// What became of a call.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = EffectResolution)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveBody {
    outcome: ResolvedOutcome,
    /// Of a call that was made: the result of the tool, which the caller gets who sends it again.
    #[serde(default)]
    #[schema(required = false)]
    answer: Value,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ResolvedOutcome {
    /// Sent again, the call gets `answer`.
    Made,
    /// Sent again, it is made.
    NotMade,
}

/// Lists the caller's calls without an answer, the latest first; for an administrator, all of the tenant. Calls with an
/// `Idempotency-Key` or an approval are recorded, and with `session.record_effects` others, too.
#[utoipa::path(get, path = "/effects", operation_id = "listEffects", tag = "tools", params(EffectQuery, PageQuery),
    responses((status = 200, body = Page<EffectBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(EffectQuery { status }): Parameters<EffectQuery>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let (tenant, caller_key) = scope(&meta);
    let mut effects = gateway.pipeline.replies.effects(&tenant, caller_key.as_deref()).await?;
    effects.retain(|effect| status.is_none_or(|status| status == Status::of(effect.state)));
    let page = Page::from_all(effects, &query, |effect| LatestFirst::new(*effect.started, &*effect.id))?;
    Ok(reply::json(StatusCode::OK, &page.map(EffectBody::from)))
}

/// Says what became of a call whose outcome is not known. For its caller, and for administrators of its tenant; the audit trail has it.
#[utoipa::path(post, path = "/effects/{id}/resolve", operation_id = "resolveEffect", tag = "tools",
    params(("id" = String, Path, description = "An id of the list.")), request_body = ResolveBody,
    responses((status = 204, description = "It is resolved."), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn resolve(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(body, _): JsonBody<ResolveBody>,
) -> Result<StatusCode, ErrorReply> {
    meta.require_list_of_own()?;
    let resolution = body.resolution()?;
    let event = AuditEvent {
        subject: Some(id.clone()),
        detail: Some(if matches!(resolution, Resolution::NotMade) { "not made" } else { "made" }.to_owned()),
        caller: Some(Arc::clone(&meta.caller)),
        ..AuditEvent::new(EventKind::EffectResolved).of_request(meta.request.as_ref(), meta.trace.as_ref())
    };
    let (replies, (tenant, caller_key)) = (Arc::clone(&gateway.pipeline.replies), scope(&meta));
    let change = async move { replies.resolve((&tenant, caller_key.as_deref()), &id, resolution).await };
    record_change(&gateway, event, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whose calls a caller sees: its own, or as an administrator all of its tenant.
fn scope(meta: &RequestMeta) -> (Arc<str>, Option<Arc<str>>) {
    let caller = &meta.caller;
    let is_own = !caller.administers(&caller.tenant);
    (Arc::clone(&caller.tenant), is_own.then(|| Arc::clone(&caller.key)))
}

impl Status {
    fn of(state: EffectState) -> Self {
        match state {
            EffectState::Running => Self::Running,
            EffectState::Unknown => Self::Unknown,
        }
    }
}

impl From<Effect> for EffectBody {
    fn from(effect: Effect) -> Self {
        let Effect { id, tool, state, started } = effect;
        Self { id, tool, status: state.as_str().to_owned(), created_at: started.to_string() }
    }
}

impl ResolveBody {
    /// # Errors
    /// `invalid_request`: an answer of a call that was not made.
    fn resolution(self) -> Result<Resolution, CallError> {
        match (self.outcome, self.answer) {
            (ResolvedOutcome::Made, answer) => Ok(Resolution::Made(answer)),
            (ResolvedOutcome::NotMade, Value::Null) => Ok(Resolution::NotMade),
            (ResolvedOutcome::NotMade, _) => {
                let message = "`answer` is for the outcome `made`: leave it out, or say that the call was made";
                Err(CallError::new(ErrorCode::InvalidRequest, message))
            }
        }
    }
}
