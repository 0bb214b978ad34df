//! `POST /tools/mcp/register`: MCP servers by HTTP.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::documentation::ReplyBody;
use crate::api::reply;
use crate::api::request::FromAdministrator;
use crate::core::error::{CallError, ErrorCode};
use crate::gateway::{AddServerError, Gateway};
use crate::sources::mcp::McpRegistration;

/// What was registered.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Added {
    success: bool,
    /// The name of the one tool, or the prefix of several.
    tool_name: String,
    /// Names of the tools.
    tools: Vec<String>,
    message: String,
}

/// Makes tools of an MCP server's, and keeps the registration for the next start. A server registered before
/// under the same name is replaced. For the role `admin`.
#[utoipa::path(post, path = "/tools/mcp/register", tag = "mcp", request_body = McpRegistration,
    responses((status = 200, body = Added), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn register(
    State(gateway): State<Arc<Gateway>>,
    FromAdministrator { caller, body }: FromAdministrator<McpRegistration>,
) -> Result<Response, CallError> {
    let name = body.name.clone();
    let tools = gateway.register_mcp(body).await.map_err(|fault| not_added(&fault))?;
    tracing::info!(server = name, caller = &*caller.id, "an MCP server was registered");
    let mut message = match tools.len() {
        1 => "1 tool is on offer".to_owned(),
        count => format!("{count} tools are on offer"),
    };
    let source = format!("mcp:{name}");
    message.push_str(&waiting(&gateway, &source));
    if let Some(trouble) = gateway.mcp_servers().degraded(&source) {
        message.push_str("; ");
        message.push_str(&trouble);
    }
    let tool_name = match tools.as_slice() {
        [only] => only.clone(),
        _ => name,
    };
    Ok(reply::json(StatusCode::OK, &Added { success: true, tool_name, tools, message }))
}

/// What a lock keeps from being offered.
pub(crate) fn waiting(gateway: &Gateway, source: &str) -> String {
    match gateway.quarantined_of(source).as_slice() {
        [] => String::new(),
        held_back => format!("; quarantined until `sekisho lock approve`: {}", held_back.join(", ")),
    }
}

fn not_added(fault: &AddServerError) -> CallError {
    let code = match fault {
        AddServerError::Unusable { .. } => ErrorCode::UpstreamError,
        AddServerError::TooMany => ErrorCode::Overloaded,
        AddServerError::Store(_) | AddServerError::Unwritable(_) => return CallError::internal(fault),
        _ => ErrorCode::InvalidRequest,
    };
    CallError::new(code, fault.to_string())
}
