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
use super::column::{Column, Form, Listed};
use super::documentation::ReplyBody;
use super::list::{Page, PageQuery};
use super::parameters::{Name, Parameters};
use super::reply;
use super::request::RequestMeta;
use crate::reply::ErrorReply;
use sekisho_audit::{AuditEvent, EventKind};
use sekisho_gateway::Gateway;
use sekisho_sandbox::{SessionDetails, SessionInfo, Variable};

impl Listed for SessionInfo {
    const NAME: &'static str = "sessions";
    const ROUTE: &'static str = "/sessions";
    const NONE: &'static str = "no sessions: a call of python_executor with the argument `session` begins one";
    const COLUMNS: &'static [Column] = &[
        Column::new("session", Form::Name).titled("result-session").headed("session"),
        Column::new("generation", Form::Count).headed("generation"),
        Column::new("is_used", Form::Text),
        Column::new("calls", Form::Count).titled("session-calls").headed("calls"),
        Column::new("memory_bytes", Form::Bytes).titled("session-memory").headed("memory"),
        Column::new("began_at", Form::Moment).at("/created_at"),
        Column::new("last_used_at", Form::Moment).titled("session-last-used").headed("last used"),
        Column::new("ends_in_seconds", Form::Seconds).titled("session-ends").headed("ends in"),
        Column::new("place", Form::Text).headed("place"),
        Column::new("stored_bytes", Form::Bytes).headed("stored"),
    ];
}

impl Listed for Variable {
    const NAME: &'static str = "variables";
    const ROUTE: &'static str = "/sessions/{id}";
    const NONE: &'static str = "no variables: the programs of the session have defined nothing";
    const COLUMNS: &'static [Column] = &[
        Column::new("name", Form::Name).titled("session-variable").headed("variable"),
        Column::new("type", Form::Name).titled("schema-type").headed("type"),
        Column::new("size_bytes", Form::Count).titled("result-bytes").headed("bytes"),
    ];
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = InterpreterSessionList)]
pub(super) struct SessionList {
    #[serde(flatten)]
    page: Page<SessionInfo>,
    /// Deprecated name of `items`, to be dropped in 0.3. All sessions, by name, where no page is asked for.
    #[schema(deprecated)]
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

/// Lists the caller's sessions of interpreters, by name.
#[utoipa::path(get, path = "/sessions", operation_id = "listSessions", tag = "tools", params(PageQuery),
    responses((status = 200, body = SessionList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    let all = gateway.sandbox().list_sessions(&meta.caller.owner).await?;
    let (page, sessions) = Page::from_all_with_old_name(all, &query, |found| found.session.clone())?;
    Ok(reply::json(StatusCode::OK, &SessionList { page, sessions }))
}

/// Shows a session of an interpreter with its global variables: name, type and size of each. They are null while a call
/// has it, and while it is stored or at another replica.
#[utoipa::path(get, path = "/sessions/{id}", operation_id = "showSession", tag = "tools",
    params(("id" = String, Path, description = "The argument `session` of the calls.")),
    responses((status = 200, body = SessionDetails), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let (service, owner) = (Arc::clone(&gateway), meta.caller.owner.clone());
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
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
) -> Result<Response, ErrorReply> {
    let event = event_of(&meta, EventKind::InterpreterSessionDeleted, &id);
    let (service, owner) = (Arc::clone(&gateway), meta.caller.owner.clone());
    record_change(&gateway, event, async move { service.sandbox().delete_session(&owner, &id).await }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Copies a session of an interpreter: variables, imports and files. The copies are sessions with names of their own,
/// and have other random numbers.
#[utoipa::path(post, path = "/sessions/{id}/fork", operation_id = "forkSession", tag = "tools",
    params(("id" = String, Path, description = "The argument `session` of the calls.")), request_body = ForkBody,
    responses((status = 201, body = SessionList), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn fork(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(id): Name,
    JsonBody(body, _): JsonBody<ForkBody>,
) -> Result<Response, ErrorReply> {
    let event = event_of(&meta, EventKind::InterpreterSessionForked, &id);
    let (service, owner) = (Arc::clone(&gateway), meta.caller.owner.clone());
    let copying = async move { service.sandbox().fork_session(&owner, &id, body.count).await };
    let sessions = record_change(&gateway, event, copying).await?;
    let page = Page { items: sessions.clone(), next: None };
    Ok(reply::json(StatusCode::CREATED, &SessionList { page, sessions }))
}

fn event_of(meta: &RequestMeta, kind: EventKind, id: &str) -> AuditEvent {
    AuditEvent {
        subject: Some(id.to_owned()),
        caller: Some(Arc::clone(&meta.caller)),
        ..AuditEvent::new(kind).of_request(meta.request.as_ref(), meta.trace.as_ref())
    }
}
