//! `POST /tools/select`: selects the tools that fit a task.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use sekisho_agent::AgentService;
use sekisho_agent::toolbox::{ToolDescription, ToolboxCall};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{JsonBody, ReplyBody, RequestMeta};
use sekisho_calls::policy::CallerTools;
use sekisho_calls::tool::Tool;
use sekisho_core::call::Arguments;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

/// Tools that a model selects from: the first hits of a search.
const MAX_CANDIDATES: usize = 30;

/// Maximum bytes of a task: a description, not a document.
const MAX_TASK: usize = 16 << 10;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SelectRequest {
    /// The task, in words.
    #[schema(min_length = 1)]
    task: String,
    /// Further context of the task; its strings are searched for, too.
    #[schema(value_type = Option<Object>)]
    context: Option<Map<String, Value>>,
    #[serde(default = "excluded")]
    exclude_dangerous: bool,
    #[serde(default = "default_max_tools")]
    #[schema(minimum = 1)]
    max_tools: usize,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Selection<'a> {
    /// Names, best match first.
    selected_tools: Vec<&'a str>,
    /// Calls proposed by the model; empty for a search.
    calls: Vec<SelectedCall>,
    /// What selected the tools: the default agent's profile, or `search` (BM25 over names, descriptions and
    /// parameters) if the profile has no model that answers.
    provider_used: &'a str,
}

#[derive(Debug, Serialize, ToSchema)]
struct SelectedCall {
    tool_name: String,
    #[schema(value_type = Object)]
    parameters: Arguments,
}

/// Selects the tools that fit a task, of those that the caller may use.
#[utoipa::path(post, path = "/tools/select", operation_id = "selectTools", tag = "tools", request_body = SelectRequest,
    responses((status = 200, body = Selection<'_>), (status = "4XX", body = ReplyBody)))]
pub(crate) async fn select(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Extension(agents): Extension<Arc<AgentService>>,
    JsonBody(request, _memory): JsonBody<SelectRequest>,
) -> Result<Response, ErrorReply> {
    request.check()?;
    let tools = gateway.pipeline.tools_for(&meta.caller);
    let config = gateway.configuration().current();
    let agent = &config.agent;
    let candidates = request.search(&tools, MAX_CANDIDATES);
    let calls = match agent.profiles.get(&agent.default_profile) {
        Some(profile) => {
            let described = candidates.iter().map(|tool| ToolDescription::from(&***tool)).collect();
            let payer = (&meta.caller, &meta.scopes);
            agents.select(payer, profile, request.in_words(), described).await
        }
        None => None,
    };
    let Some(calls) = calls else {
        let selected_tools = candidates.iter().take(request.max_tools).map(|tool| tool.name()).collect();
        let selection = Selection { selected_tools, calls: Vec::new(), provider_used: "search" };
        return Ok(reply::json(StatusCode::OK, &selection));
    };
    Ok(reply::json(StatusCode::OK, &chosen(&calls, request.max_tools, &agent.default_profile)))
}

/// The first calls, with no more different tools than requested.
fn chosen<'a>(calls: &'a [ToolboxCall], max_tools: usize, provider_used: &'a str) -> Selection<'a> {
    let mut selected_tools: Vec<&str> = Vec::new();
    let mut within = Vec::new();
    for call in calls {
        let is_new = !selected_tools.contains(&call.tool.as_str());
        if is_new && selected_tools.len() == max_tools {
            continue;
        }
        if is_new {
            selected_tools.push(&call.tool);
        }
        within.push(SelectedCall { tool_name: call.tool.clone(), parameters: call.arguments.clone() });
    }
    Selection { selected_tools, calls: within, provider_used }
}

impl SelectRequest {
    fn check(&self) -> Result<(), CallError> {
        let problem = if self.task.trim().is_empty() {
            "`task` is empty; describe the task in a few words".to_owned()
        } else if self.task.len() > MAX_TASK {
            format!("`task` is longer than {MAX_TASK} bytes; shorten it")
        } else if self.max_tools == 0 {
            "`max_tools` must be 1 or more".to_owned()
        } else {
            return Ok(());
        };
        Err(CallError::new(ErrorCode::InvalidRequest, problem))
    }

    /// The matching tools, best first.
    fn search<'a>(&self, tools: &'a CallerTools, max: usize) -> Vec<&'a Arc<Tool>> {
        let known = self.context.iter().flatten().filter_map(|(_, value)| value.as_str());
        let query = [self.task.as_str()].into_iter().chain(known).collect::<Vec<_>>().join(" ");
        // All hits: dangerous tools are removed before the limit applies.
        let found = tools.search(&query, usize::MAX).into_iter().map(|(tool, _)| tool);
        let fitting = found.filter(|tool| !(self.exclude_dangerous && tool.metadata.dangerous));
        fitting.take(max.max(self.max_tools)).collect()
    }

    /// The task as a model's input.
    fn in_words(&self) -> String {
        match &self.context {
            Some(context) => format!("{}\n\nContext: {}", self.task, Value::Object(context.clone())),
            None => self.task.clone(),
        }
    }
}

fn excluded() -> bool {
    true
}

fn default_max_tools() -> usize {
    2
}
