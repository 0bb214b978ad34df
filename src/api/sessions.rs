//! `/sessions`: sessions of interpreters, which calls of `python_executor` begin by naming them.
//!
//! A workspace of that name, below `/sessions/{id}/files`, is another thing: calls open it by their `session_id`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::admin::record_change;
use super::body::JsonBody;
use super::documentation::ReplyBody;
use super::parameters::Name;
use super::reply;
use super::request::RequestMeta;
use crate::reply::ErrorReply;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_gateway::Gateway;
use sekisho_sandbox::{SessionDetails, SessionInfo};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InterpreterSessionList)]
pub(super) struct SessionList {
    /// By name.
    sessions: Vec<SessionInfo>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = InterpreterSessionFork)]
pub(super) struct ForkBody {
    /// How many copies are made.
    #[schema(minimum = 1)]
    count: u32,
}

/// Lists the caller's sessions of interpreters.
#[utoipa::path(get, path = "/sessions", operation_id = "listSessions", tag = "tools",
    responses((status = 200, body = SessionList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(origin: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Result<Response, ErrorReply> {
    let sessions = gateway.sandbox().list_sessions(&origin.caller.owner).await?;
    Ok(reply::json(StatusCode::OK, &SessionList { sessions }))
}

/// Shows a session of an interpreter with its global variables: name, type and size of each. They are null while a call
/// has it, and while it is stored or at another replica.
#[utoipa::path(get, path = "/sessions/{id}", operation_id = "showSession", tag = "tools",
    params(("id" = String, Path, description = "The argument `session` of the calls.")),
    responses((status = 200, body = SessionDetails), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn show(
    origin: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let (service, owner) = (Arc::clone(&gateway), origin.caller.owner.clone());
    // To its end, even if the client disconnects: the session would end with it.
    let look = async move { service.sandbox().show_session(&owner, &id).await };
    let details = gateway.background().run_to_end(look).await?;
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
) -> Result<Response, ErrorReply> {
    let event = event_of(&origin, EventKind::InterpreterSessionDeleted, &id);
    let (service, owner) = (Arc::clone(&gateway), origin.caller.owner.clone());
    record_change(&gateway, event, async move { service.sandbox().delete_session(&owner, &id).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Copies a session of an interpreter: variables, imports and files. The copies are sessions with names of their own,
/// and have other random numbers.
#[utoipa::path(post, path = "/sessions/{id}/fork", operation_id = "forkSession", tag = "tools",
    params(("id" = String, Path, description = "The argument `session` of the calls.")), request_body = ForkBody,
    responses((status = 201, body = SessionList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn fork(
    origin: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(body, _): JsonBody<ForkBody>,
) -> Result<Response, ErrorReply> {
    let event = event_of(&origin, EventKind::InterpreterSessionForked, &id);
    let (service, owner) = (Arc::clone(&gateway), origin.caller.owner.clone());
    let copying = async move { service.sandbox().fork_session(&owner, &id, body.count).await };
    let sessions = record_change(&gateway, event, copying).await?;
    Ok(reply::json(StatusCode::CREATED, &SessionList { sessions }))
}

fn event_of(origin: &RequestMeta, kind: EventKind, id: &str) -> AuditEvent {
    AuditEvent {
        subject: Some(id.to_owned()),
        caller: Some(Arc::clone(&origin.caller)),
        ..AuditEvent::new(kind).of_request(origin.request.as_ref(), origin.trace.as_ref())
    }
}
