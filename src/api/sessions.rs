//! `/sessions`: sessions of interpreters, which calls of `python_executor` begin by naming them.
//!
//! A workspace of that name, below `/sessions/{id}/files`, is another thing: calls open it by their `session_id`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::admin::record_change;
use super::documentation::ReplyBody;
use super::parameters::Name;
use super::reply;
use super::request::RequestMeta;
use crate::core::error::CallError;
use crate::gateway::Gateway;
use crate::infra::audit::{AuditEvent, EventKind};
use crate::sandbox::{SessionDetails, SessionInfo};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InterpreterSessionList)]
pub(super) struct SessionList {
    /// By name.
    sessions: Vec<SessionInfo>,
}

/// Lists the caller's sessions of interpreters.
#[utoipa::path(get, path = "/sessions", operation_id = "listSessions", tag = "tools",
    responses((status = 200, body = SessionList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(origin: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Response {
    let sessions = gateway.sandbox().list_sessions(&origin.caller.owner);
    reply::json(StatusCode::OK, &SessionList { sessions })
}

/// Shows a session of an interpreter with its global variables: name, type and size of each. They are null while a call
/// has it.
#[utoipa::path(get, path = "/sessions/{id}", operation_id = "showSession", tag = "tools",
    params(("id" = String, Path, description = "The argument `session` of the calls.")),
    responses((status = 200, body = SessionDetails), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn show(
    origin: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, CallError> {
    let (service, owner) = (Arc::clone(&gateway), origin.caller.owner.clone());
    // To its end, even if the client disconnects: the session would end with it.
    let look = async move { service.sandbox().show_session(&owner, &id).await };
    let details = gateway.run_to_end(look).await?;
    Ok(reply::json(StatusCode::OK, &details))
}

/// Ends a session of an interpreter, and the call that has it.
#[utoipa::path(delete, path = "/sessions/{id}", operation_id = "deleteSession", tag = "tools",
    params(("id" = String, Path, description = "The argument `session` of the calls.")),
    responses((status = 204, description = "It has ended."), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn delete(
    origin: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, CallError> {
    let event = AuditEvent {
        subject: Some(id.clone()),
        caller: Some(Arc::clone(&origin.caller)),
        ..AuditEvent::new(EventKind::InterpreterSessionDeleted)
            .of_request(origin.request.as_ref(), origin.trace.as_ref())
    };
    let (service, owner) = (Arc::clone(&gateway), origin.caller.owner.clone());
    record_change(&gateway, event, async move { service.sandbox().delete_session(&owner, &id) }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
