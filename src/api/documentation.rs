//! `/openapi.json`: the service's own description, generated from its routes.

mod flattened;
mod shared;

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};
use serde_json::Value;
use utoipa::openapi::OpenApi;
use utoipa::{OpenApi as _, ToSchema};

use super::request::{ExecuteNamedRequest, ExecuteRequest};
use sekisho_calls::pipeline::Receipt;
use sekisho_core::call::Stage;
use sekisho_core::error::{Detail, NeededApproval, NeededSignIn};
use sekisho_gateway::Gateway;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "sekisho", description = "A gateway for AI agents' tool calls.", contact(name = "sekisho")),
    servers((url = "/", description = "This gateway.")),
    tags(
        (name = "tools", description = "Lists, describes, selects and runs tools."),
        (name = "public", description = "The same in a shorter form, without dangerous tools."),
        (name = "agents", description = "Agents that run tools, for chats and for clients of the OpenAI and Anthropic APIs."),
        (name = "conversations", description = "Conversations with agents that are stored: their runs, messages and logs."),
        (name = "plans", description = "Plans of agents: begun, followed, paused, changed and continued."),
        (name = "approvals", description = "Calls that a person must approve: listed, shown, approved and denied."),
        (name = "catalogue", description = "Sources of tools that callers get on request."),
        (name = "sign-ins", description = "Sign-ins of callers to upstreams that are called as their callers."),
        (name = "authorization", description = "The gateway as authorization server of clients whose users sign in at an identity provider."),
        (name = "openapi", description = "Registers tools of OpenAPI documents."),
        (name = "mcp", description = "Registers MCP servers, and signs in to them."),
        (name = "operation", description = "Health and metrics.")
    ),
    components(schemas(ExecuteRequest, ExecuteNamedRequest, ReplyBody))
)]
struct Description;

pub(super) fn document() -> OpenApi {
    Description::openapi()
}

/// Serves the finished document, serialized once.
pub(super) fn route(document: &OpenApi) -> MethodRouter<Arc<Gateway>> {
    let mut document = serde_json::to_value(document).unwrap_or_default();
    shared::describe(&mut document);
    let body = Bytes::from(document.to_string());
    get(async move || ([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// The reply to every execute route, and the body of every error. The service writes
/// [`Reply`](sekisho_calls::pipeline::Reply); a snapshot test compares the two.
#[derive(Debug, ToSchema)]
#[schema(as = Reply)]
#[expect(dead_code, reason = "only describes what `Reply` serialises to")]
pub struct ReplyBody {
    success: bool,
    output: Value,
    text: String,
    error: Option<String>,
    #[schema(value_type = Object)]
    metadata: Value,
    execution_time_ms: u64,
    usage: UsageBody,
    error_info: Option<ErrorInfoBody>,
    receipt: Receipt,
}

#[derive(Debug, ToSchema)]
#[schema(as = Usage)]
#[expect(dead_code, reason = "only describes")]
struct UsageBody {
    tokens: u64,
    cost_usd: f64,
}

#[derive(Debug, ToSchema)]
#[schema(as = ErrorInfo)]
#[expect(dead_code, reason = "only describes")]
pub struct ErrorInfoBody {
    /// From the closed list of error codes.
    code: String,
    message: String,
    stage: Option<Stage>,
    retryable: bool,
    retry_after_ms: Option<u64>,
    details: Vec<Detail>,
    alternatives: Vec<String>,
    /// What `approval_required` waits for.
    #[schema(required = false)]
    approval: Option<NeededApproval>,
    /// What `sign_in_required` waits for.
    #[schema(required = false)]
    sign_in: Option<NeededSignIn>,
    /// The run of the call's program, which can be resumed.
    #[schema(required = false)]
    run: Option<String>,
}
