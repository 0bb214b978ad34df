//! `/api/chat`: agents for clients that store no conversation of their own; and the tools that a session may use.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::body::JsonBody;
use super::documentation::ReplyBody;
use super::event_stream;
use super::reply;
use super::request::{Parameters, RequestMeta, forbid_other_sites};
use crate::agent::catalog::ResolvedModel;
use crate::agent::summary::CompletedCall;
use crate::agent::{AgentRequest, AgentService, Event, Message, RunUsage};
use crate::config::{AgentProfile, PlannerConfig};
use crate::core::error::{CallError, ErrorCode};
use crate::gateway::Gateway;

/// The next message of a conversation.
#[derive(Debug, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChatRequest {
    #[schema(min_length = 1)]
    #[param(min_length = 1)]
    message: String,
    /// The session whose conversation continues; without one a new session begins.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    #[param(min_length = 1, max_length = 128)]
    session_id: Option<String>,
    /// The profile of the agent, or a model; the default one of the tenant if omitted.
    model: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChatReply {
    reply: String,
    /// Send it with the next message.
    #[schema(value_type = String)]
    session_id: Arc<str>,
    /// The tool calls made for the reply, in order.
    tool_calls: Vec<ToolCallMade>,
    /// A summary of the calls by the model, in at most three short items.
    summary: Vec<String>,
    #[schema(value_type = Object)]
    usage: RunUsage,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
struct ToolCallMade {
    name: String,
    /// `null` if the model wrote no JSON object.
    #[schema(value_type = Option<Object>)]
    arguments: Option<Map<String, Value>>,
    success: bool,
    text: String,
}

/// The tools that a session's agents may use.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolSettings {
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    session_id: String,
    /// Tool → whether it is on. In the request: the tools to change. In the reply: all tools.
    tools: BTreeMap<String, bool>,
}

/// Sends a message to an agent; the session stores the conversation.
#[utoipa::path(post, path = "/api/chat", operation_id = "chat", tag = "agents", request_body = ChatRequest,
    responses((status = 200, body = ChatReply), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn chat(
    origin: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    JsonBody(request, _memory): JsonBody<ChatRequest>,
) -> Result<Response, CallError> {
    let (session_id, request_to_agent) = request.into_agent_request(&origin, &agents).await?;
    let (profile, question, scopes) =
        (Arc::clone(&request_to_agent.profile), request_to_agent.messages.clone(), request_to_agent.scopes.clone());
    let events: Vec<_> = agents.begin(request_to_agent).await?.collect().await;
    let mut reply = ChatReply::of(session_id, events)?;
    let calls: Vec<_> = reply
        .tool_calls
        .iter()
        .map(|call| CompletedCall { tool: &call.name, success: call.success, text: &call.text })
        .collect();
    if let [Message::User(question)] = &question[..] {
        reply.summary = agents.sum_up((&origin.caller, &scopes), &profile, &question.text(), &calls).await;
    }
    Ok(reply::json(StatusCode::OK, &reply))
}

/// The same as a stream: first `{"type": "session", "session_id"}`, then the run's events. Older than
/// `/v1/chat/completions`, which new clients should use.
#[utoipa::path(get, path = "/api/chat/stream", operation_id = "streamChat", tag = "agents", params(ChatRequest),
    responses((status = 200, description = "Server-sent events, `[DONE]` at the end", content_type = "text/event-stream"),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn stream(
    origin: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    parts: Parts,
    request: Result<Parameters<ChatRequest>, CallError>,
) -> Result<Response, CallError> {
    stream_run(&origin, &agents, &parts, request, false).await
}

/// The same with a plan: the goal is divided into steps, which the agent runs one after the other. Older than `/api/plans`,
/// which new clients should use.
#[utoipa::path(get, path = "/api/planner/stream", operation_id = "streamPlan", tag = "plans", params(ChatRequest),
    responses((status = 200, description = "Server-sent events, `[DONE]` at the end", content_type = "text/event-stream"),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn plan_stream(
    origin: RequestMeta,
    Extension(agents): Extension<Arc<AgentService>>,
    parts: Parts,
    request: Result<Parameters<ChatRequest>, CallError>,
) -> Result<Response, CallError> {
    stream_run(&origin, &agents, &parts, request, true).await
}

/// `plans`: whether an agent without a planner gets one.
async fn stream_run(
    origin: &RequestMeta,
    agents: &Arc<AgentService>,
    parts: &Parts,
    request: Result<Parameters<ChatRequest>, CallError>,
    plans: bool,
) -> Result<Response, CallError> {
    forbid_other_sites(parts)?;
    let Parameters(request) = request?;
    let (session_id, mut request_to_agent) = request.into_agent_request(origin, agents).await?;
    if plans && request_to_agent.profile.planner.is_none() {
        let planner = Some(PlannerConfig::default());
        request_to_agent.profile = Arc::new(AgentProfile { planner, ..(*request_to_agent.profile).clone() });
    }
    let events = event_stream::first(agents.begin(request_to_agent).await?).await?;
    let session = json!({"type": "session", "session_id": session_id}).to_string();
    // Never fails: an event has no map with keys that are not strings.
    let run_events = events.map(|event| serde_json::to_string(&event).unwrap_or_default());
    let data = futures_util::stream::iter([session]).chain(run_events);
    Ok(event_stream::respond(data, json!({"type": "content", "text": ""}).to_string()))
}

/// Switches tools on or off for the agents of a session (A8).
#[utoipa::path(post, path = "/api/tools/settings", operation_id = "setToolSettings", tag = "agents", request_body = ToolSettings,
    responses((status = 200, body = ToolSettings), (status = "4XX", body = ReplyBody)))]
pub(super) async fn tool_settings(
    origin: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    JsonBody(ToolSettings { session_id, tools }, _memory): JsonBody<ToolSettings>,
) -> Result<Response, CallError> {
    for name in tools.keys() {
        gateway.pipeline.registry.find(name, &origin.caller)?;
    }
    let sessions = &gateway.pipeline.sessions;
    let session = sessions.prepare(&origin.caller, &session_id)?;
    sessions.open(&origin.caller, &session)?;
    let off = session.switch_tools(&tools);
    let known = gateway.pipeline.tools_for(&origin.caller);
    let tools = known.visible().map(|(tool, _)| (tool.name().to_owned(), !off.contains(tool.name()))).collect();
    Ok(reply::json(StatusCode::OK, &ToolSettings { session_id, tools }))
}

impl ChatRequest {
    async fn into_agent_request(
        self,
        origin: &RequestMeta,
        agents: &AgentService,
    ) -> Result<(Arc<str>, AgentRequest), CallError> {
        if self.message.trim().is_empty() {
            return Err(CallError::new(ErrorCode::InvalidRequest, "`message` is empty; describe the task"));
        }
        let gateway = agents.gateway();
        let ResolvedModel { name, profile } =
            agents.catalog().model(&origin.caller.tenant, self.model.as_deref()).await?;
        let id = self.session_id.unwrap_or_else(|| Uuid::new_v4().to_string());
        let session = gateway.pipeline.sessions.prepare(&origin.caller, &id)?;
        let id = Arc::clone(&session.id);
        let toolbox = Arc::new(origin.toolbox(gateway, Some(session)));
        let mut request_to_agent =
            origin.agent_request(&name, profile, toolbox, vec![Message::User(self.message.into())]);
        request_to_agent.session = Some(Arc::clone(&id));
        Ok((id, request_to_agent))
    }
}

impl ChatReply {
    /// # Errors
    /// The run's own error, with the content before it as its output.
    fn of(session_id: Arc<str>, events: Vec<Event>) -> Result<Self, CallError> {
        let mut reply = Self {
            reply: String::new(),
            session_id,
            tool_calls: Vec::new(),
            summary: Vec::new(),
            usage: RunUsage::default(),
        };
        let mut requested: Vec<(String, Map<String, Value>)> = Vec::new();
        let mut failure = None;
        for event in events {
            let (id, name, success, text) = match event {
                Event::Content { text } => {
                    reply.reply.push_str(&text);
                    continue;
                }
                // Text before a call is not part of the answer.
                Event::ToolInput { id, arguments, .. } => {
                    reply.reply.clear();
                    requested.push((id, arguments));
                    continue;
                }
                Event::ToolResult { id, tool_name, result } => (id, tool_name, true, result),
                Event::ToolError { id, tool_name, error } => (id, tool_name, false, error),
                Event::Error(error) => {
                    failure = Some(CallError::from(error));
                    continue;
                }
                Event::Status { message, .. } => {
                    reply.reply =
                        [reply.reply.trim_end(), &format!("[{message}]")].join("\n\n").trim_start().to_owned();
                    continue;
                }
                Event::Usage(usage) => {
                    reply.usage = usage;
                    continue;
                }
                Event::Thinking { .. }
                | Event::Compacted { .. }
                | Event::ClientToolCall { .. }
                | Event::SubAgentBegin { .. }
                | Event::SubAgentText { .. }
                | Event::SubAgentEnd { .. }
                | Event::PartFailed(_)
                | Event::Plan { .. }
                | Event::Step { .. }
                | Event::Evaluation { .. }
                | Event::Node { .. }
                | Event::Finished { .. } => continue,
            };
            let arguments =
                requested.iter().position(|(requested, _)| *requested == id).map(|index| requested.remove(index).1);
            reply.tool_calls.push(ToolCallMade { name, arguments, success, text });
        }
        match failure {
            None => Ok(reply),
            Some(error) if reply.reply.is_empty() => Err(error),
            Some(error) => Err(error.with_output(reply.reply.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::RunError;
    use crate::agent::models::ModelError;

    fn content(text: &str) -> Event {
        Event::Content { text: text.into() }
    }

    fn input(id: &str, x: u32) -> Event {
        let Value::Object(arguments) = json!({"x": x}) else { panic!("an object") };
        Event::ToolInput { id: id.into(), tool_name: "add".into(), arguments }
    }

    fn result(id: &str, result: &str) -> Event {
        Event::ToolResult { id: id.into(), tool_name: "add".into(), result: result.into() }
    }

    fn reply(events: Vec<Event>) -> Result<ChatReply, CallError> {
        ChatReply::of("s".into(), events)
    }

    #[test]
    fn the_reply_is_the_last_text_and_each_call_has_its_arguments() {
        let broken = Event::ToolError { id: "z".into(), tool_name: "add".into(), error: "no JSON".into() };
        let events = vec![
            content("Let me see."),
            input("a", 1),
            input("b", 2),
            result("a", "1"),
            result("b", "2"),
            // A model may repeat the id in its next turn.
            input("a", 3),
            result("a", "3"),
            broken,
            content("It is "),
            content("six."),
        ];
        let reply = serde_json::to_value(reply(events).unwrap()).unwrap();
        assert_eq!(reply["reply"], "It is six.");
        let call = |arguments: Value, success: bool, text: &str| json!({"name": "add", "arguments": arguments, "success": success, "text": text});
        let expected = json!([
            call(json!({"x": 1}), true, "1"),
            call(json!({"x": 2}), true, "2"),
            call(json!({"x": 3}), true, "3"),
            call(Value::Null, false, "no JSON"),
        ]);
        assert_eq!(reply["tool_calls"], expected);
    }

    #[test]
    fn an_error_carries_the_text_so_far_and_a_limit_is_added_after_it() {
        let error = Event::Error(RunError::from(&ModelError::Timeout));
        let failed = reply(vec![content("It is"), error]).unwrap_err();
        assert_eq!((failed.code(), failed.output()), (ErrorCode::Timeout, Some(&json!("It is"))));
        let limit = || Event::Status { status: "max_turns".into(), message: "50 turns".into() };
        assert_eq!(reply(vec![content("It is"), limit()]).unwrap().reply, "It is\n\n[50 turns]");
        assert_eq!(reply(vec![limit()]).unwrap().reply, "[50 turns]");
    }
}
