//! `POST /tools/mcp/register`: registers MCP servers over HTTP.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::recorded;
use crate::body::FromAdministrator;
use crate::documentation::ReplyBody;
use crate::reply;
use crate::reply::ErrorReply;
use sekisho_audit::EventKind;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{AddServerError, Gateway};
use sekisho_mcp_client::McpRegistration;

/// The result of a registration.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Added {
    success: bool,
    /// The name of the only tool, or the prefix of several.
    tool_name: String,
    /// Names of the tools.
    tools: Vec<String>,
    message: String,
}

/// Offers the tools of an MCP server, and stores the registration for the next start. A server that was registered
/// under the same name is replaced. For administrators: a server of one of the tenant `default` is shared, that of another is of its
/// tenant alone.
#[utoipa::path(post, path = "/tools/mcp/register", operation_id = "registerMcpServer", tag = "mcp", request_body = McpRegistration,
    responses((status = 200, body = Added), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn register(
    State(gateway): State<Arc<Gateway>>,
    FromAdministrator { by, meta, body, .. }: FromAdministrator<McpRegistration>,
) -> Result<Response, ErrorReply> {
    let name = body.name.clone();
    let service = Arc::clone(&gateway);
    // Boxed, because it is large.
    let register =
        Box::pin(
            async move { service.mcp_registrations().register(by, body).await.map_err(|error| not_added(&error)) },
        );
    let tools = recorded(&gateway, &meta, EventKind::McpServerRegistered, &name, register).await?;
    tracing::info!(server = name, caller = &*meta.caller.id, "an MCP server was registered");
    let mut message = match tools.len() {
        1 => "1 tool is offered".to_owned(),
        count => format!("{count} tools are offered"),
    };
    let source = format!("mcp:{name}");
    message.push_str(&quarantine_note(&gateway, &source));
    if let Some(problem) = gateway.mcp_servers().degraded(&source) {
        message.push_str("; ");
        message.push_str(&problem);
    }
    let tool_name = match tools.as_slice() {
        [only] => only.clone(),
        _ => name,
    };
    Ok(reply::json(StatusCode::OK, &Added { success: true, tool_name, tools, message }))
}

/// Names the tools that the lock quarantines.
pub(crate) fn quarantine_note(gateway: &Gateway, source: &str) -> String {
    match gateway.tool_offer().quarantined_of(source).as_slice() {
        [] => String::new(),
        held_back => format!("; quarantined until `sekisho lock approve`: {}", held_back.join(", ")),
    }
}

pub fn not_added(error: &AddServerError) -> CallError {
    let code = match error {
        AddServerError::Unusable { .. } => ErrorCode::UpstreamError,
        AddServerError::TooMany | AddServerError::TooManyOfTenant => ErrorCode::Overloaded,
        AddServerError::NameTaken(_) => ErrorCode::NameTaken,
        AddServerError::Store(_) | AddServerError::Unwritable(_) => return CallError::internal(error),
        _ => ErrorCode::InvalidRequest,
    };
    CallError::new(code, error.to_string())
}
