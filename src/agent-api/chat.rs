//! `/api/chat`: stored conversations for clients that send one message after the other; and the tools that a session may use.

mod reply;
mod session;
mod turn_texts;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use self::reply::ChatReply;
use self::session::ChatRun;
use self::turn_texts::TurnTexts;
use super::background::BackgroundRuns;
use super::conversations::execute::RUN_ID;
use super::keyed_turn::{self, Progress, Turn};
use super::run_events;
use sekisho_agent::Event;
use sekisho_agent::conversation::ConversationRuns;
use sekisho_agent::summary::CompletedCall;
use sekisho_api::reply::ErrorReply;
use sekisho_api::{DigestedBody, JsonBody, Parameters, ReplyBody, RequestMeta, event_stream, forbid_other_sites};
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;

/// The next message of a conversation.
#[derive(Debug, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChatRequest {
    #[schema(min_length = 1)]
    #[param(min_length = 1)]
    message: String,
    /// The session that continues: the id of a conversation of the caller. Without one a new conversation begins.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    #[param(min_length = 1, max_length = 128)]
    session_id: Option<String>,
    /// The profile of the agent, or a model; that of the session if omitted, and of a new one the tenant's default.
    model: Option<String>,
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

/// Sends a message to an agent. The session is a stored conversation, of which each message is a run.
#[utoipa::path(post, path = "/api/chat", operation_id = "chat", tag = "agents", request_body = ChatRequest,
    responses((status = 200, body = ChatReply), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn chat(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Extension(runs): Extension<Arc<ConversationRuns>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    DigestedBody(request, memory, body): DigestedBody<ChatRequest>,
) -> Result<Response, ErrorReply> {
    let turn = Turn { route: "/api/chat".to_owned(), body };
    keyed_turn::answer(&gateway, meta, turn, move |meta, progress| async move {
        let _memory = memory;
        Ok(answer(&meta, (&runs, &background), request, &progress).await?)
    })
    .await
}

async fn answer(
    meta: &RequestMeta,
    (runs, background): (&Arc<ConversationRuns>, &BackgroundRuns),
    request: ChatRequest,
    progress: &Progress,
) -> Result<Response, CallError> {
    let question = request.message.clone();
    let run = ChatRun::begin(request, meta, (runs, background), false).await?;
    progress.is_run(&run.run_id);
    let mut reply = ChatReply::of(run.session_id, run.events.collect().await)?;
    let calls: Vec<_> = reply
        .tool_calls
        .iter()
        .map(|call| CompletedCall { tool: &call.name, success: call.success, text: &call.text })
        .collect();
    let payer = (&meta.caller, &run.scopes);
    reply.summary = runs.agents().sum_up(payer, &run.profile, &question, &calls).await;
    Ok(with_run_id(sekisho_api::reply::json(StatusCode::OK, &reply), &run.run_id))
}

/// The same as a stream: first `{"type": "session", "session_id"}`, then the run's events. Older than
/// `/v1/chat/completions`, which new clients should use.
#[utoipa::path(get, path = "/api/chat/stream", operation_id = "streamChat", tag = "agents", params(ChatRequest),
    responses((status = 200, description = "Server-sent events, `[DONE]` at the end", content_type = "text/event-stream"),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn stream(
    meta: RequestMeta,
    Extension(runs): Extension<Arc<ConversationRuns>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    parts: Parts,
    request: Result<Parameters<ChatRequest>, ErrorReply>,
) -> Result<Response, ErrorReply> {
    Ok(stream_run(&meta, (&runs, &background), &parts, request.map_err(CallError::from), false).await?)
}

/// The same with a plan: the goal is divided into steps, which the agent runs one after the other. Older than `/api/plans`,
/// which new clients should use.
#[utoipa::path(get, path = "/api/planner/stream", operation_id = "streamPlan", tag = "plans", params(ChatRequest),
    responses((status = 200, description = "Server-sent events, `[DONE]` at the end", content_type = "text/event-stream"),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(super) async fn plan_stream(
    meta: RequestMeta,
    Extension(runs): Extension<Arc<ConversationRuns>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    parts: Parts,
    request: Result<Parameters<ChatRequest>, ErrorReply>,
) -> Result<Response, ErrorReply> {
    Ok(stream_run(&meta, (&runs, &background), &parts, request.map_err(CallError::from), true).await?)
}

/// `plans`: whether an agent without a planner gets one.
async fn stream_run(
    meta: &RequestMeta,
    (runs, background): (&Arc<ConversationRuns>, &BackgroundRuns),
    parts: &Parts,
    request: Result<Parameters<ChatRequest>, CallError>,
    plans: bool,
) -> Result<Response, CallError> {
    forbid_other_sites(parts)?;
    let Parameters(request) = request?;
    let run = ChatRun::begin(request, meta, (runs, background), plans).await?;
    let events = run_events::first(run.events).await?;
    let session = json!({"type": "session", "session_id": run.session_id}).to_string();
    let mut texts = TurnTexts::default();
    // Never fails: an event has no map with keys that are not strings.
    let run_events = events.map(move |event| serde_json::to_string(&texts.separated(event)).unwrap_or_default());
    let data = futures_util::stream::iter([session]).chain(run_events);
    let response = event_stream::respond(data, keep_alive());
    Ok(with_run_id(response, &run.run_id))
}

/// An empty text (A33).
fn keep_alive() -> String {
    serde_json::to_string(&Event::Content { text: String::new() }).unwrap_or_default()
}

fn with_run_id(mut response: Response, run_id: &str) -> Response {
    if let Ok(run_id) = run_id.parse() {
        response.headers_mut().insert(RUN_ID, run_id);
    }
    response
}

/// Switches tools on or off for the agents of a session (A8).
#[utoipa::path(post, path = "/api/tools/settings", operation_id = "setToolSettings", tag = "agents", request_body = ToolSettings,
    responses((status = 200, body = ToolSettings), (status = "4XX", body = ReplyBody)))]
pub(super) async fn tool_settings(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    JsonBody(ToolSettings { session_id, tools }, _memory): JsonBody<ToolSettings>,
) -> Result<Response, ErrorReply> {
    for name in tools.keys() {
        gateway.pipeline.registry.find(name, &meta.caller)?;
    }
    let sessions = &gateway.pipeline.sessions;
    let session = sessions.prepare(&meta.caller, &session_id)?;
    sessions.open(&meta.caller, &session)?;
    let off = session.switch_tools(&tools);
    let known = gateway.pipeline.tools_for(&meta.caller);
    let tools = known.visible().map(|(tool, _)| (tool.name().to_owned(), !off.contains(tool.name()))).collect();
    Ok(sekisho_api::reply::json(StatusCode::OK, &ToolSettings { session_id, tools }))
}
