//! Tasks: calls that clients ask to run in the background, and the requests about them.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt;
use rmcp::model::{CustomResult, ErrorCode as McpErrorCode, ErrorData, InitializeResult, ServerResult};
use serde_json::{Map, Value, json};

use super::{Context, StartedRequest, error_data, parsed_value, ready};
use crate::mcp::extensions::TASKS;
use crate::mcp::headers::Era;
use crate::mcp::tasks::{TaskOwner, TaskState, wanted_ttl};
use sekisho_core::error::{CallError, ErrorCode};

/// Maximum number of tasks that one `subscriptions/listen` follows.
const MAX_FOLLOWED: usize = 256;

impl Context {
    /// A request about a task.
    pub(super) fn task_request(&self, method: &str, params: &Map<String, Value>) -> Result<StartedRequest, ErrorData> {
        self.require_tasks()?;
        let (tasks, owner) = (&self.server.tasks, TaskOwner::of(&self.client, self.era));
        if method == "tasks/list" {
            if params.contains_key("cursor") {
                return Err(ErrorData::invalid_params("the list of tasks has one page; list without a cursor", None));
            }
            let shown: Vec<_> = tasks.list(&owner).iter().map(|state| state.shown(self.era)).collect();
            return Ok(self.task_result(json!({"tasks": shown})));
        }
        let id = params.get("taskId").and_then(Value::as_str);
        let id = id.ok_or_else(|| ErrorData::invalid_params("invalid parameters: `taskId` must be a string", None))?;
        let state = tasks.get(&owner, id)?;
        match method {
            "tasks/result" => Ok(self.start_without_client(|_| result(state).boxed())),
            "tasks/cancel" => self.cancel_task(&state),
            "tasks/update" => {
                let given = params.get("inputResponses").cloned().unwrap_or_else(|| json!({}));
                state.answer(parsed_value(given)?)?;
                Ok(self.task_result(json!({})))
            }
            _ => Ok(self.task_result(state.polled(self.era))),
        }
    }

    /// The tasks whose states a `subscriptions/listen` asks for; `None` if it does not mention tasks. Nothing is
    /// reported about ids that are no tasks of the caller, as the acknowledgement shows.
    /// Errors: the client does not declare the extension, or the ids are invalid or too many.
    pub(super) fn followed_tasks(&self, params: &Map<String, Value>) -> Result<Option<Vec<Arc<TaskState>>>, ErrorData> {
        let Some(ids) = params.get("notifications").and_then(|filter| filter.get("taskIds")) else { return Ok(None) };
        self.require_tasks()?;
        let ids: BTreeSet<String> = parsed_value(ids.clone())?;
        if ids.len() > MAX_FOLLOWED {
            let message = format!("a subscription may follow {MAX_FOLLOWED} tasks; follow the others in another one");
            return Err(ErrorData::invalid_params(message, None));
        }
        let (tasks, owner) = (&self.server.tasks, TaskOwner::of(&self.client, self.era));
        Ok(Some(ids.iter().filter_map(|id| tasks.get(&owner, id).ok()).collect()))
    }

    /// Errors: clients of 2026-07-28 use tasks only if they declare the extension.
    fn require_tasks(&self) -> Result<(), ErrorData> {
        if self.era == Era::Sessions || self.declares(TASKS) {
            return Ok(());
        }
        let required = parsed_value(json!({"extensions": {TASKS: {}}}))?;
        Err(ErrorData::missing_required_client_capability(required))
    }

    fn cancel_task(&self, state: &TaskState) -> Result<StartedRequest, ErrorData> {
        let is_cancelled = self.server.tasks.cancel(state);
        match self.era {
            Era::Stateless => Ok(self.task_result(json!({}))),
            Era::Sessions if is_cancelled => Ok(self.task_result(state.shown(self.era))),
            Era::Sessions => {
                let message = format!("the task has ended: {}", state.shown(self.era)["status"]);
                Err(ErrorData::invalid_params(message, None))
            }
        }
    }

    /// Runs a call of a session as a task; the answer is the task.
    pub(super) fn start_task(&self, started: StartedRequest, wanted: &Value) -> Result<StartedRequest, ErrorData> {
        let owner = TaskOwner::of(&self.client, self.era);
        let state = self.server.tasks.start(&owner, wanted_ttl(wanted), started.running);
        let state = state.map_err(|_| {
            let message = "there are too many tasks; fetch results of tasks that have ended, or cancel some";
            error_data(&CallError::new(ErrorCode::Overloaded, message))
        })?;
        Ok(self.task_result(json!({"task": state.shown(self.era)})))
    }

    fn task_result(&self, mut result: Value) -> StartedRequest {
        if self.era == Era::Stateless {
            result["resultType"] = json!("complete");
        }
        ready(ServerResult::CustomResult(CustomResult(result)))
    }

    /// Errors: the parameter `task` is invalid, or the tool cannot run as a task.
    pub(super) fn check_task(&self, wanted: &Value, tool: &str) -> Result<(), ErrorData> {
        if !wanted.is_object() {
            return Err(ErrorData::invalid_params("invalid parameters: `task` must be an object", None));
        }
        let snapshot = self.server.gateway.pipeline.registry.snapshot();
        match snapshot.get(tool).filter(|tool| !tool.metadata.is_hidden_from(&self.client.caller)) {
            Some(tool) if !tool.metadata.runs_as_task() => {
                let message = format!("the tool {} does not support tasks; call it without `task`", tool.name());
                Err(ErrorData::new(McpErrorCode::METHOD_NOT_FOUND, message, None))
            }
            // The call of an unknown tool fails like any call of one.
            _ => Ok(()),
        }
    }
}

/// The result of the task's call, when it has ended.
async fn result(state: Arc<TaskState>) -> Result<ServerResult, ErrorData> {
    let outcome = state.outcome().await?;
    Ok(ServerResult::CustomResult(CustomResult(state.related(outcome))))
}

/// The answer to `initialize` with the capability of tasks (2025-11-25).
pub(super) fn announced(result: InitializeResult) -> ServerResult {
    let Ok(mut written) = serde_json::to_value(&result) else { return result.into() };
    written["capabilities"]["tasks"] = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
    ServerResult::CustomResult(CustomResult(written))
}

/// A list of tools with the task support of each (2025-11-25). `runs_as_task` is for the name of a tool.
pub(super) fn with_task_support(mut result: ServerResult, runs_as_task: impl Fn(&str) -> bool) -> ServerResult {
    result.strip_result_type_for_legacy_peer();
    let Ok(mut written) = serde_json::to_value(&result) else { return result };
    for tool in written.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        if tool["name"].as_str().is_some_and(&runs_as_task) {
            tool["execution"] = json!({"taskSupport": "optional"});
        }
    }
    ServerResult::CustomResult(CustomResult(written))
}
