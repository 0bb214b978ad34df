//! `/tools`: lists, describes and calls tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::approval_wait;
use crate::body::{HeldMemory, JsonBody};
use crate::documentation::ReplyBody;
use crate::parameters::{Name, Parameters};
use crate::reply;
use crate::reply::ErrorReply;
use crate::request::{ExecuteNamedRequest, ExecuteRequest, Incoming, RequestMeta};
use sekisho_calls::pipeline::Answered;
use sekisho_calls::policy::{Access, CallerTools};
use sekisho_calls::registry::{ToolMetadata, ToolSchema, ToolSummary};
use sekisho_calls::tool::{Metadata, Tool};
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::{CallContext, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    category: Option<String>,
    #[serde(default)]
    exclude_dangerous: bool,
    /// Only tools that the caller may use.
    #[serde(default)]
    usable: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParameters {
    category: Option<String>,
    #[serde(default)]
    exclude_dangerous: bool,
    /// Only tools that the caller may use.
    #[serde(default)]
    usable: bool,
    /// `full` for objects instead of names.
    #[param(inline)]
    detail: Option<ListDetail>,
    /// Only the tools of this virtual server of `mcp.endpoints`.
    endpoint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ListDetail {
    Full,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SearchParameters {
    /// Words to search for in names, descriptions and parameter names.
    q: String,
    /// Maximum number of tools; default 10, at most 100.
    limit: Option<usize>,
}

/// Lists the names of all tools, or with `detail=full` describes each and whether the caller may use it. Tools that
/// their `roles` hide from the caller are left out.
#[utoipa::path(get, path = "/tools/list", operation_id = "listTools", tag = "tools", params(ListParameters),
    responses((status = 200, description = "Names, or objects", body = Vec<serde_json::Value>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(parameters): Parameters<ListParameters>,
) -> Result<Response, ErrorReply> {
    let ListParameters { category, exclude_dangerous, usable, detail, endpoint } = parameters;
    let filter = Filter { category, exclude_dangerous, usable };
    let caller = match endpoint {
        Some(name) => gateway.configuration().endpoint(&name, &meta.caller)?.narrow(&meta.caller),
        None => meta.caller,
    };
    let snapshot = gateway.pipeline.registry.snapshot();
    let tools = gateway.pipeline.policy.tools_for(&snapshot, &caller);
    let chosen = filter.choose(&tools);
    Ok(match detail {
        Some(ListDetail::Full) => {
            let (servers, breakers) = (gateway.mcp_servers(), &gateway.pipeline.breakers);
            let listed = chosen.map(|(tool, access)| {
                let is_open = tool
                    .upstream()
                    .is_some_and(|upstream| breakers.state(&upstream, &caller.tenant) == BreakerState::Open);
                let circuit = is_open.then(|| "its circuit breaker is open".into());
                let degraded = servers.degraded(&tool.metadata.source).or(circuit);
                ToolSummary::of(tool).degraded(degraded).missing(tools.missing(tool, access))
            });
            let held_back = snapshot
                .quarantined()
                .filter(|tool| !usable && !tool.is_hidden_from(&caller) && filter.admits(&tool.metadata));
            let unavailable = snapshot.unavailable().iter().filter(|tool| {
                let is_wanted = !usable && filter.category.is_none();
                is_wanted && tool.is_described_outside() && !tool.is_hidden_from(&caller)
            });
            let others = held_back.map(ToolSummary::of_quarantined).chain(unavailable.map(ToolSummary::of_unavailable));
            let mut listed: Vec<_> = listed.chain(others).collect();
            listed.sort_by(|one, other| one.name().cmp(other.name()));
            ok(&listed)
        }
        None => ok(&chosen.map(|(tool, _)| tool.name()).collect::<Vec<_>>()),
    })
}

/// The same as `/tools/list`.
#[utoipa::path(get, path = "/tools", operation_id = "listAllTools", tag = "tools", params(ListParameters),
    responses((status = 200, description = "Names, or objects", body = Vec<serde_json::Value>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn list_all(
    meta: RequestMeta,
    gateway: State<Arc<Gateway>>,
    parameters: Parameters<ListParameters>,
) -> Result<Response, ErrorReply> {
    list(meta, gateway, parameters).await
}

/// Lists the categories of all tools.
#[utoipa::path(get, path = "/tools/categories", operation_id = "listCategories", tag = "tools",
    responses((status = 200, body = Vec<String>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn categories(meta: RequestMeta, State(gateway): State<Arc<Gateway>>) -> Response {
    let tools = gateway.pipeline.tools_for(&meta.caller);
    ok(&tools.visible().map(|(tool, _)| tool.metadata.category.as_str()).collect::<BTreeSet<_>>())
}

/// Returns the schemas of all tools except those that their `roles` hide from the caller. With `Prefer: handle` that of
/// `read_result` too.
#[utoipa::path(get, path = "/tools/schemas", operation_id = "listSchemas", tag = "tools", params(Filter),
    responses((status = 200, body = Vec<ToolSchema<'_>>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn schemas(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(filter): Parameters<Filter>,
) -> Response {
    let tools = gateway.pipeline.tools_for(&meta.caller);
    let reader = tools.usable().filter(|tool| meta.preferences.handle && tool.metadata.reads_results());
    let listed = filter.choose(&tools).map(|(tool, _)| tool).chain(reader);
    ok(&listed.map(|tool| ToolSchema::of(tool)).collect::<Vec<_>>())
}

/// Searches the tools that the caller may use (BM25), best match first.
#[utoipa::path(get, path = "/tools/search", operation_id = "searchTools", tag = "tools", params(SearchParameters),
    responses((status = 200, body = Vec<ToolSummary<'_>>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn search(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(parameters): Parameters<SearchParameters>,
) -> Response {
    const DEFAULT_HITS: usize = 10;
    const MAX_HITS: usize = 100;
    let tools = gateway.pipeline.tools_for(&meta.caller);
    let hits = tools.search(&parameters.q, parameters.limit.unwrap_or(DEFAULT_HITS).min(MAX_HITS));
    ok(&hits.into_iter().map(|(tool, score)| ToolSummary::of(tool).scored(score)).collect::<Vec<_>>())
}

/// Returns one tool's schemas.
#[utoipa::path(get, path = "/tools/{name}/schema", operation_id = "getToolSchema", tag = "tools", params(("name" = String, Path)),
    responses((status = 200, body = ToolSchema<'_>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn schema(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
) -> Result<Response, ErrorReply> {
    let tool = gateway.pipeline.registry.find(&name, &meta.caller)?;
    Ok(ok(&ToolSchema::whole(&tool)))
}

/// Returns one tool's metadata.
#[utoipa::path(get, path = "/tools/{name}/metadata", operation_id = "getToolMetadata", tag = "tools", params(("name" = String, Path)),
    responses((status = 200, body = ToolMetadata<'_>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn metadata(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Name(name): Name,
) -> Result<Response, ErrorReply> {
    let tool = gateway.pipeline.registry.find(&name, &meta.caller)?;
    Ok(ok(&ToolMetadata::of(&tool)))
}

/// Runs a tool.
#[utoipa::path(post, path = "/tools/{name}/execute", operation_id = "executeTool", tag = "tools", params(("name" = String, Path)),
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

/// Runs the tool named in the body.
#[utoipa::path(post, path = "/tools/execute", operation_id = "executeNamedTool", tag = "tools", request_body = ExecuteNamedRequest,
    responses((status = 200, body = ReplyBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn execute_named(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    JsonBody(request, memory): JsonBody<ExecuteNamedRequest>,
) -> Result<Response, ErrorReply> {
    let incoming = request.into_call(&meta, &gateway)?.holding(&memory);
    drop(memory);
    Ok(approval_wait::answer(&gateway, &meta, incoming).await)
}

/// Maximum number of calls in one batch.
const MAX_BATCH: usize = 100;

/// Runs several tools in parallel (`TOOL_PARALLELISM` at once) and returns the replies in the order of the calls.
#[utoipa::path(post, path = "/tools/batch-execute", operation_id = "executeBatch", tag = "tools", request_body = Vec<ExecuteNamedRequest>,
    responses((status = 200, body = Vec<ReplyBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn batch_execute(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    JsonBody(requests, memory): JsonBody<Vec<Value>>,
) -> Result<Response, ErrorReply> {
    meta.forbid_headers_of_one_call()?;
    if requests.len() > MAX_BATCH {
        let message = format!("a batch may have at most {MAX_BATCH} calls, this one has {}", requests.len());
        return Err(CallError::new(ErrorCode::InvalidRequest, message).into());
    }
    let parallelism = gateway.configuration().current().limits.parallelism as usize;
    let batch: Arc<str> = Uuid::new_v4().to_string().into();
    let replies: Vec<_> = futures_util::stream::iter(requests)
        .map(|request| one_of_batch(&meta, &gateway, (&batch, request), &memory))
        .buffered(parallelism)
        .collect()
        .await;
    Ok(ok(&replies.iter().map(|answered| &*answered.reply).collect::<Vec<_>>()))
}

/// If a call cannot be read, only that call fails.
async fn one_of_batch(
    meta: &RequestMeta,
    gateway: &Gateway,
    (batch, request): (&Arc<str>, Value),
    memory: &HeldMemory,
) -> Answered {
    let name = request.get("tool_name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let read = ExecuteNamedRequest::from_json(request).and_then(|request| request.into_call(meta, gateway));
    match read {
        Ok(incoming) => {
            let Incoming { mut call, arguments } = incoming.holding(memory);
            call.origin.batch = Some(Arc::clone(batch));
            gateway.pipeline.call(call, arguments).await
        }
        Err(error) => Answered::refused(&CallContext::new(name, Arc::clone(&meta.caller), Via::Rest), error),
    }
}

impl Filter {
    fn choose<'a>(&'a self, tools: &'a CallerTools) -> impl Iterator<Item = (&'a Arc<Tool>, &'a Access)> {
        let is_requested = |access: &Access| !self.usable || access.is_usable();
        tools.visible().filter(move |(tool, access)| is_requested(access) && self.admits(&tool.metadata))
    }

    fn admits(&self, metadata: &Metadata) -> bool {
        self.category.as_ref().is_none_or(|category| metadata.category == *category)
            && !(self.exclude_dangerous && metadata.dangerous)
    }
}

fn ok(body: &(impl Serialize + ?Sized)) -> Response {
    reply::json(StatusCode::OK, body)
}
