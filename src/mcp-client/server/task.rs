//! Calls that a server runs as tasks, of 2025-11-25 or of the tasks extension of 2026-07-28: the gateway polls the task
//! until it is done, so that its caller waits as for any call.

use std::collections::HashSet;
use std::time::Duration;

use rmcp::model::{ErrorCode as McpErrorCode, ErrorData};
use serde_json::{Map, Value, json};

use super::session::{Session, answer_questions};
use crate::text::bounded;
use crate::transport::connection::Connection;
use crate::transport::message::Failure;
use sekisho_core::call::CallContext;
use sekisho_core::error::{CallError, ErrorCode};

/// The intervals between polls: the server's suggestion, within these bounds, or the default.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MAX_INTERVAL: Duration = Duration::from_secs(10);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of questions of one task.
const MAX_QUESTIONS: usize = 32;

/// How long a server is asked to keep a task after its call's deadline: questions pause the deadline.
pub(super) const TTL_MARGIN: Duration = Duration::from_secs(300);

/// Whether a server of 2025-11-25 runs calls of a tool as tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TaskSupport {
    #[default]
    Forbidden,
    Optional,
    Required,
}

impl TaskSupport {
    /// As the server lists the tool.
    pub(crate) fn of(tool: &Value) -> Self {
        match tool.pointer("/execution/taskSupport").and_then(Value::as_str) {
            Some("required") => Self::Required,
            Some("optional") => Self::Optional,
            _ => Self::Forbidden,
        }
    }

    /// Whether to ask for a task.
    pub(super) fn is_used(self, call: &CallContext) -> bool {
        self == Self::Required || (self == Self::Optional && call.client.as_task)
    }
}

/// A task that the server has created. Dropped before it is done, it is cancelled.
pub(super) struct UpstreamTask<'a> {
    session: &'a Session,
    call: &'a CallContext,
    id: String,
    interval: Duration,
    /// The keys of questions that were answered; the server may take a while to take note.
    answered: HashSet<String>,
    is_done: bool,
}

impl<'a> UpstreamTask<'a> {
    /// The task that a result of `tools/call` names, if it names one.
    pub(super) fn of(result: &Value, session: &'a Session, call: &'a CallContext) -> Option<Self> {
        let task = match result.get("resultType").and_then(Value::as_str) {
            Some("task") => result,
            _ => result.get("task").filter(|_| !session.is_modern() && result.get("content").is_none())?,
        };
        let id = task.get("taskId").and_then(Value::as_str)?.to_owned();
        Some(Self { session, call, id, interval: interval(task), answered: HashSet::new(), is_done: false })
    }

    /// Waits for the call's result.
    pub(super) async fn finish(mut self) -> Result<Value, Failure> {
        loop {
            tokio::time::sleep(self.interval).await;
            let mut task = self.ask("tasks/get", Map::new()).await?;
            self.interval = interval(&task);
            let status = task.get("status").and_then(Value::as_str).unwrap_or_default().to_owned();
            match status.as_str() {
                "working" => {}
                "cancelled" => return Err(self.ended("the MCP server cancelled the task of the call")),
                // In sessions, the server sends its questions while its client waits for the result.
                "completed" | "failed" | "input_required" if !self.session.is_modern() => {
                    let mut result = self.ask("tasks/result", Map::new()).await;
                    self.is_done = true;
                    result.iter_mut().for_each(remove_task_id);
                    return result;
                }
                "completed" => {
                    self.is_done = true;
                    return task.get_mut("result").map(Value::take).ok_or(Failure::Invalid);
                }
                "failed" => {
                    self.is_done = true;
                    return Err(failed(&task));
                }
                "input_required" => self.answer(task).await?,
                _ => return Err(Failure::Invalid),
            }
        }
    }

    /// Requests the input that the task waits for from the call's client.
    async fn answer(&mut self, mut task: Value) -> Result<(), Failure> {
        if let Some(questions) = task.get_mut("inputRequests").and_then(Value::as_object_mut) {
            questions.retain(|key, _| !self.answered.contains(key));
            if questions.is_empty() {
                return Ok(());
            }
            self.answered.extend(questions.keys().cloned());
        }
        if self.answered.len() > MAX_QUESTIONS {
            let problem = format!("the task of the MCP server asked more than {MAX_QUESTIONS} questions");
            return Err(Failure::Call(CallError::new(ErrorCode::UpstreamError, problem)));
        }
        let (answers, _) = answer_questions(task, self.call.client.peer.as_ref()).await.map_err(Failure::Call)?;
        self.ask("tasks/update", Map::from_iter([("inputResponses".to_owned(), answers)])).await.map(drop)
    }

    async fn ask(&self, method: &str, mut params: Map<String, Value>) -> Result<Value, Failure> {
        params.insert("taskId".to_owned(), self.id.clone().into());
        self.session.ask_once(self.call, method, &params, None).await
    }

    fn ended(&mut self, message: &str) -> Failure {
        self.is_done = true;
        Failure::Call(CallError::new(ErrorCode::UpstreamError, message))
    }
}

impl Drop for UpstreamTask<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let params = Map::from_iter([("taskId".to_owned(), self.id.as_str().into())]);
            Connection::ask_later(&self.session.connection, "tasks/cancel", params, self.session.meta(self.call));
        }
    }
}

/// Removes the server's id of a task from the `_meta` of a result or of parameters: it is unknown to clients.
pub(super) fn remove_task_id(holder: &mut Value) {
    let Some(meta) = holder.get_mut("_meta").and_then(Value::as_object_mut) else { return };
    if meta.shift_remove("io.modelcontextprotocol/related-task").is_some() && meta.is_empty() {
        holder.as_object_mut().map(|members| members.shift_remove("_meta"));
    }
}

/// The suggested interval between polls (`pollInterval` before 2026-07-28).
fn interval(task: &Value) -> Duration {
    let suggested = task.get("pollIntervalMs").or_else(|| task.get("pollInterval")).and_then(Value::as_f64);
    let suggested = suggested.and_then(|suggested| Duration::try_from_secs_f64(suggested / 1000.0).ok());
    suggested.map_or(DEFAULT_INTERVAL, |suggested| suggested.clamp(MIN_INTERVAL, MAX_INTERVAL))
}

/// The JSON-RPC error that a task of 2026-07-28 ended with.
fn failed(task: &Value) -> Failure {
    let error = task.get("error").cloned().and_then(|error| serde_json::from_value(error).ok());
    Failure::Refused(error.unwrap_or_else(|| {
        let text = task.get("statusMessage").and_then(Value::as_str).unwrap_or("the task failed");
        ErrorData::new(McpErrorCode::INTERNAL_ERROR, bounded(text), None)
    }))
}

/// The parameter `task` of a call.
pub(super) fn requested(time_left: Duration) -> Value {
    let ttl = time_left.saturating_add(TTL_MARGIN).as_millis();
    json!({"ttl": u64::try_from(ttl).unwrap_or(u64::MAX)})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use sekisho_core::call::{CallClient, Caller, Via};

    #[test]
    fn a_task_is_requested_if_the_tool_requires_it_or_the_client_wants_it() {
        let plain = CallContext::new("t", Arc::new(Caller::new("a", "t", Vec::new())), Via::Mcp);
        let as_task = CallContext { client: CallClient { as_task: true, ..CallClient::default() }, ..plain.repeated() };
        for (support, expected) in [
            (json!("required"), (true, true)),
            (json!("optional"), (false, true)),
            (json!("forbidden"), (false, false)),
            (json!("sometimes"), (false, false)),
            (Value::Null, (false, false)),
        ] {
            let support = TaskSupport::of(&json!({"execution": {"taskSupport": support}}));
            assert_eq!((support.is_used(&plain), support.is_used(&as_task)), expected, "{support:?}");
        }
        assert_eq!(requested(Duration::from_secs(60)), json!({"ttl": 360_000}));
    }

    #[test]
    fn clients_do_not_see_the_ids_of_servers_tasks() {
        let related = || json!({"io.modelcontextprotocol/related-task": {"taskId": "t"}});
        let with_more = json!({"io.modelcontextprotocol/related-task": {"taskId": "t"}, "mine": 1});
        for (meta, expected) in [
            (related(), json!({"message": "Who?"})),
            (with_more, json!({"message": "Who?", "_meta": {"mine": 1}})),
            (json!({}), json!({"message": "Who?", "_meta": {}})),
            (json!(7), json!({"message": "Who?", "_meta": 7})),
        ] {
            let mut question = json!({"message": "Who?", "_meta": meta});
            remove_task_id(&mut question);
            assert_eq!(question, expected);
        }
    }

    #[test]
    fn the_interval_between_polls_is_bounded() {
        for (task, milliseconds) in [
            (json!({"pollInterval": 500}), 500),
            (json!({"pollIntervalMs": 1500.5}), 1500),
            (json!({"pollIntervalMs": 0}), 100),
            (json!({"pollIntervalMs": -1}), 1000),
            (json!({"pollIntervalMs": 1e300}), 1000),
            (json!({"pollInterval": 3_600_000}), 10_000),
            (json!({"pollInterval": "soon"}), 1000),
        ] {
            assert_eq!(interval(&task).as_millis(), milliseconds, "{task}");
        }
    }
}
