//! `/api/v1/tools`: the public API; dangerous tools are not listed.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use rust_decimal::prelude::ToPrimitive;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::approval_wait;
use crate::body::JsonBody;
use crate::documentation::ReplyBody;
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::{ExecuteRequest, RequestMeta};
use sekisho_calls::policy::Access;
use sekisho_calls::tool::Tool;
use sekisho_gateway::Gateway;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PublicParameters {
    category: Option<String>,
    /// Only tools that the caller may use.
    #[serde(default)]
    usable: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PublicTool<'a> {
    name: &'a str,
    description: &'a str,
    #[schema(value_type = Object)]
    parameters: &'a Value,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PublicToolDetail<'a> {
    name: &'a str,
    description: &'a str,
    category: &'a str,
    version: &'a str,
    #[schema(value_type = Object)]
    parameters: &'a Value,
    timeout_seconds: u32,
    cost_per_use: f64,
}

/// Lists the tools that are not dangerous, except those that their `roles` hide from the caller.
#[utoipa::path(get, path = "/api/v1/tools", operation_id = "listPublicTools", tag = "public", params(PublicParameters),
    responses((status = 200, body = Vec<PublicTool<'_>>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(PublicParameters { category, usable }): Parameters<PublicParameters>,
) -> Response {
    let tools = gateway.pipeline.tools_for(&meta.caller);
    let is_listed = |(tool, access): &(&Arc<Tool>, &Access)| {
        let is_of_category = category.as_ref().is_none_or(|category| tool.metadata.category == *category);
        !tool.metadata.dangerous && is_of_category && (!usable || access.is_usable())
    };
    let listed = tools.visible().filter(is_listed).map(|(tool, _)| PublicTool {
        name: tool.name(),
        description: &tool.metadata.description,
        parameters: tool.input.document(),
    });
    reply::json(StatusCode::OK, &listed.collect::<Vec<_>>())
}

/// Returns one tool.
#[utoipa::path(get, path = "/api/v1/tools/{name}", operation_id = "getPublicTool", tag = "public", params(("name" = String, Path)),
    responses((status = 200, body = PublicToolDetail<'_>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn show(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
) -> Result<Response, ErrorReply> {
    let tool = gateway.pipeline.registry.find(&name, &meta.caller)?;
    let metadata = &tool.metadata;
    Ok(reply::json(
        StatusCode::OK,
        &PublicToolDetail {
            name: &metadata.name,
            description: &metadata.description,
            category: &metadata.category,
            version: &metadata.version,
            parameters: tool.input.document(),
            timeout_seconds: metadata.timeout_seconds,
            cost_per_use: metadata.cost_per_use.to_f64().unwrap_or(f64::MAX),
        },
    ))
}

/// Runs a tool.
#[utoipa::path(post, path = "/api/v1/tools/{name}/execute", operation_id = "executePublicTool", tag = "public", params(("name" = String, Path)),
    request_body = ExecuteRequest,
    responses((status = 200, body = ReplyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn execute(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
    JsonBody(request, memory): JsonBody<ExecuteRequest>,
) -> Result<Response, ErrorReply> {
    let incoming = request.into_call(name, &meta, &gateway)?.holding(&memory);
    drop(memory);
    Ok(approval_wait::answer(&gateway, &meta, incoming).await)
}
