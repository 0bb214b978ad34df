//! `/tools`: what tools there are, and calling them.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::documentation::ReplyBody;
use super::reply;
use super::request::{ExecuteNamedRequest, ExecuteRequest, Incoming, JsonBody, Name, Origin, Parameters};
use crate::error::{CallError, ErrorCode};
use crate::gateway::Gateway;
use crate::pipeline::Answered;
use crate::registry::{Metadata, Snapshot, Tool, ToolMetadata, ToolSchema, ToolSummary};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    category: Option<String>,
    #[serde(default)]
    exclude_dangerous: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParameters {
    category: Option<String>,
    #[serde(default)]
    exclude_dangerous: bool,
    /// `full` for objects instead of names.
    detail: Option<Detail>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Detail {
    Full,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SearchParameters {
    /// Words to look for in names, descriptions and parameter names.
    q: String,
    /// Most tools to answer with; 10 unless told, 100 at most.
    limit: Option<usize>,
}

/// The names of all tools, or with `detail=full` what each is.
#[utoipa::path(get, path = "/tools/list", tag = "tools", params(ListParameters),
    responses((status = 200, description = "Names, or objects", body = Vec<serde_json::Value>), (status = "4XX", body = ReplyBody)))]
pub(super) async fn list(
    _origin: Origin,
    State(gateway): State<Arc<Gateway>>,
    Parameters(parameters): Parameters<ListParameters>,
) -> Response {
    let filter = Filter { category: parameters.category, exclude_dangerous: parameters.exclude_dangerous };
    let snapshot = gateway.pipeline.registry.snapshot();
    let chosen = filter.choose(&snapshot);
    match parameters.detail {
        Some(Detail::Full) => {
            let servers = gateway.mcp_servers();
            let summary = |tool| ToolSummary::of(tool).degraded(servers.degraded(&tool.metadata.source));
            let held_back = snapshot.quarantined().filter(|tool| filter.admits(&tool.metadata));
            let mut listed: Vec<_> = chosen.map(summary).chain(held_back.map(ToolSummary::of_quarantined)).collect();
            listed.sort_by(|one, other| one.name().cmp(other.name()));
            ok(&listed)
        }
        None => ok(&chosen.map(Tool::name).collect::<Vec<_>>()),
    }
}

/// The categories there are.
#[utoipa::path(get, path = "/tools/categories", tag = "tools",
    responses((status = 200, body = Vec<String>), (status = "4XX", body = ReplyBody)))]
pub(super) async fn categories(_origin: Origin, State(gateway): State<Arc<Gateway>>) -> Response {
    let snapshot = gateway.pipeline.registry.snapshot();
    ok(&snapshot.tools().iter().map(|tool| tool.metadata.category.as_str()).collect::<BTreeSet<_>>())
}

/// The schemas of all tools.
#[utoipa::path(get, path = "/tools/schemas", tag = "tools", params(Filter),
    responses((status = 200, body = Vec<ToolSchema<'_>>), (status = "4XX", body = ReplyBody)))]
pub(super) async fn schemas(
    _origin: Origin,
    State(gateway): State<Arc<Gateway>>,
    Parameters(filter): Parameters<Filter>,
) -> Response {
    let snapshot = gateway.pipeline.registry.snapshot();
    ok(&filter.choose(&snapshot).map(ToolSchema::of).collect::<Vec<_>>())
}

/// The tools that fit a query best (BM25), best first.
#[utoipa::path(get, path = "/tools/search", tag = "tools", params(SearchParameters),
    responses((status = 200, body = Vec<ToolSummary<'_>>), (status = "4XX", body = ReplyBody)))]
pub(super) async fn search(
    _origin: Origin,
    State(gateway): State<Arc<Gateway>>,
    Parameters(parameters): Parameters<SearchParameters>,
) -> Response {
    const DEFAULT_HITS: usize = 10;
    const MAX_HITS: usize = 100;
    let snapshot = gateway.pipeline.registry.snapshot();
    let hits = snapshot.search(&parameters.q, parameters.limit.unwrap_or(DEFAULT_HITS).min(MAX_HITS));
    ok(&hits.into_iter().map(|(tool, score)| ToolSummary::of(tool).scored(score)).collect::<Vec<_>>())
}

/// One tool's schemas.
#[utoipa::path(get, path = "/tools/{name}/schema", tag = "tools", params(("name" = String, Path)),
    responses((status = 200, body = ToolSchema<'_>), (status = "4XX", body = ReplyBody)))]
pub(super) async fn schema(
    _origin: Origin,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
) -> Result<Response, CallError> {
    let tool = gateway.pipeline.registry.find(&name)?;
    Ok(ok(&ToolSchema::whole(&tool)))
}

/// One tool's metadata.
#[utoipa::path(get, path = "/tools/{name}/metadata", tag = "tools", params(("name" = String, Path)),
    responses((status = 200, body = ToolMetadata<'_>), (status = "4XX", body = ReplyBody)))]
pub(super) async fn metadata(
    _origin: Origin,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
) -> Result<Response, CallError> {
    let tool = gateway.pipeline.registry.find(&name)?;
    Ok(ok(&ToolMetadata::of(&tool)))
}

/// Runs a tool.
#[utoipa::path(post, path = "/tools/{name}/execute", tag = "tools", params(("name" = String, Path)),
    request_body = ExecuteRequest,
    responses((status = 200, body = ReplyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn execute(
    origin: Origin,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
    JsonBody(request): JsonBody<ExecuteRequest>,
) -> Result<Response, CallError> {
    let incoming = request.into_call(name, &origin, &gateway)?;
    Ok(run(&gateway, incoming).await.into_response())
}

/// Runs the tool named in the body.
#[utoipa::path(post, path = "/tools/execute", tag = "tools", request_body = ExecuteNamedRequest,
    responses((status = 200, body = ReplyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn execute_named(
    origin: Origin,
    State(gateway): State<Arc<Gateway>>,
    JsonBody(request): JsonBody<ExecuteNamedRequest>,
) -> Result<Response, CallError> {
    let incoming = request.into_call(&origin, &gateway)?;
    Ok(run(&gateway, incoming).await.into_response())
}

/// Calls in one batch.
const MAX_BATCH: usize = 100;

/// Runs several tools side by side (`TOOL_PARALLELISM` at once) and answers in the order asked.
#[utoipa::path(post, path = "/tools/batch-execute", tag = "tools", request_body = Vec<ExecuteNamedRequest>,
    responses((status = 200, body = Vec<ReplyBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn batch_execute(
    origin: Origin,
    State(gateway): State<Arc<Gateway>>,
    JsonBody(requests): JsonBody<Vec<ExecuteNamedRequest>>,
) -> Result<Response, CallError> {
    origin.forbid_idempotency_key()?;
    if requests.len() > MAX_BATCH {
        let message = format!("a batch holds {MAX_BATCH} calls at most, this one has {}", requests.len());
        return Err(CallError::new(ErrorCode::InvalidRequest, message));
    }
    let incoming =
        requests.into_iter().map(|request| request.into_call(&origin, &gateway)).collect::<Result<Vec<_>, _>>()?;
    let parallelism = gateway.config().limits.parallelism as usize;
    let replies: Vec<_> = futures_util::stream::iter(incoming)
        .map(|incoming| run(&gateway, incoming))
        .buffered(parallelism)
        .collect()
        .await;
    Ok(ok(&replies.iter().map(|answered| &*answered.reply).collect::<Vec<_>>()))
}

/// Runs a call on the checkpoint.
pub(super) async fn run(gateway: &Gateway, incoming: Incoming) -> Answered {
    gateway.pipeline.call(incoming.call, incoming.arguments).await
}

impl Filter {
    fn choose<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Tool> {
        snapshot.tools().iter().map(|tool| &**tool).filter(|tool| self.admits(&tool.metadata))
    }

    fn admits(&self, metadata: &Metadata) -> bool {
        self.category.as_ref().is_none_or(|category| metadata.category == *category)
            && !(self.exclude_dangerous && metadata.dangerous)
    }
}

fn ok(body: &(impl Serialize + ?Sized)) -> Response {
    reply::json(StatusCode::OK, body)
}
