//! `/api/runs`: runs of conversations that go on without a client.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::bodies::{RunBody, RunErrorBody};
use super::find;
use super::stored_input::StoredInput;
use crate::background::{self, BackgroundRuns, RunWebhook, status_of};
use crate::keyed_turn::{self, Turn};
use sekisho_agent::Message;
use sekisho_agent::conversation::{ConversationRuns, OnUnknown, UnknownCall, stored};
use sekisho_api::column::{Column, Form, Listed};
use sekisho_api::list::{Page, PageQuery};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{DigestedBody, Parameters, ReplyBody, RequestMeta};
use sekisho_config::Secret;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_store::{BackgroundKind, BackgroundRun, BackgroundState};

/// A task for an agent that goes on without its client.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRun {
    #[schema(min_length = 1)]
    user_input: String,
    /// The conversation that goes on; a new one if omitted.
    conversation_id: Option<String>,
    /// The profile or model; by default the conversation's, and of a new one the tenant's.
    model: Option<String>,
    /// As of `POST /api/conversations/{id}/execute`.
    #[schema(value_type = Option<Object>)]
    executor: Option<Value>,
    /// As of `POST /api/conversations/{id}/execute`. They are stored sealed until the run has ended and its webhook was sent.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, String>)]
    tokens: BTreeMap<String, Secret>,
    #[serde(default)]
    preferred_skills: Vec<String>,
    #[serde(default)]
    on_unknown: OnUnknown,
    /// Is told when the run has ended.
    webhook: Option<RunWebhook>,
}

/// A run that goes on without a client.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = BackgroundRun)]
pub struct BackgroundRunBody {
    pub id: String,
    pub conversation_id: String,
    /// Its last run of the conversation; null before the first.
    pub run_id: Option<String>,
    /// `queued`, `running`, `paused` for an approver, `succeeded`, `failed`, `cancelled`, `timed_out` or `interrupted`.
    pub status: String,
    pub error: Option<RunErrorBody>,
    /// The last text of a run that has ended. Only where one run is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The call about which it waits for `POST /api/runs/{id}/resolve`. Only where one run is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<UnknownCall>,
    /// Why the webhook was not taken the last time.
    pub webhook_error: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    pub ended_at: Option<String>,
}

/// A run of a conversation, or one that goes on without a client.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum ShownRun {
    Run(RunBody),
    Background(BackgroundRunBody),
}

impl Listed for BackgroundRunBody {
    const NAME: &'static str = "background-runs";
    const ROUTE: &'static str = "/api/runs";
    const COLUMNS: &'static [Column] = &[
        Column::new("id", Form::Name),
        Column::new("created_at", Form::Moment).titled("run-begun"),
        Column::new("status", Form::Text).titled("call-outcome"),
        Column::new("code", Form::Name).at("/error/code"),
        Column::new("conversation_id", Form::Name),
        Column::new("ended_at", Form::Moment).titled("run-ended"),
    ];
}

/// Begins a run that goes on without its client, also when the gateway is restarted. It is `queued` until its tenant has a free
/// place.
#[utoipa::path(post, path = "/api/runs", operation_id = "createRun", tag = "conversations", request_body = NewRun,
    responses((status = 202, body = BackgroundRunBody), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn create(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    DigestedBody(request, memory, body): DigestedBody<NewRun>,
) -> Result<Response, ErrorReply> {
    let turn = Turn { route: "/api/runs".to_owned(), body };
    let served = Arc::clone(&gateway);
    keyed_turn::answer(&gateway, meta, turn, move |meta, _progress| async move {
        let _memory = memory;
        Ok::<_, ErrorReply>(submit(&meta, &served, &background, request).await?)
    })
    .await
}

async fn submit(
    meta: &RequestMeta,
    gateway: &Gateway,
    background: &BackgroundRuns,
    request: NewRun,
) -> Result<Response, CallError> {
    if request.user_input.trim().is_empty() {
        return Err(CallError::new(ErrorCode::InvalidRequest, "`user_input` is empty; describe the task"));
    }
    request.webhook.as_ref().map(RunWebhook::check).transpose()?;
    let conversation = match &request.conversation_id {
        Some(id) => Some(find(gateway, meta, id).await?),
        None => None,
    };
    let tokens = request.tokens.iter().map(|(name, token)| (name.clone(), token.expose().to_owned())).collect();
    let input = StoredInput {
        executor: request.executor,
        tokens,
        preferred_skills: request.preferred_skills,
        on_unknown: request.on_unknown,
        ..StoredInput::message(request.user_input, request.model)
    };
    let (id, kind) = (Uuid::now_v7().to_string(), BackgroundKind::Run);
    let new = background::NewRun { kind, id, conversation, input, asked: None, webhook: request.webhook };
    let run = background.submit(meta, new).await?;
    Ok(reply::json(StatusCode::ACCEPTED, &BackgroundRunBody::from(run)))
}

/// The caller's runs that go on without a client, the last one first. Those that ended are listed for a week.
#[utoipa::path(get, path = "/api/runs", operation_id = "listBackgroundRuns", tag = "conversations", params(PageQuery),
    responses((status = 200, body = Page<BackgroundRunBody>), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn list(
    meta: RequestMeta,
    State(gateway): State<Arc<Gateway>>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Response, ErrorReply> {
    meta.require_list_of_own()?;
    let limit = query.limit_in_store()?;
    let store = gateway.store().background_runs();
    let found = store.of_caller(&meta.caller.key, query.after.as_deref(), limit + 1).await.map_err(CallError::from)?;
    let page = Page::from_read(found, limit as usize, |last| last.id.clone()).map(BackgroundRunBody::from);
    Ok(reply::json(StatusCode::OK, &page))
}

/// One run, with its result.
pub(super) async fn shown(
    gateway: &Gateway,
    runs: &ConversationRuns,
    run: BackgroundRun,
) -> Result<BackgroundRunBody, CallError> {
    let last = run.runs.last().cloned();
    let waits_for = last.as_deref().and_then(|last| runs.asks_about(&run.caller_key, last));
    let result = match last {
        Some(last) if run.state == BackgroundState::Ended => Some(last_text(gateway, &last).await?),
        _ => None,
    };
    Ok(BackgroundRunBody { result, waits_for, ..BackgroundRunBody::from(run) })
}

/// The last text of a run; empty where it ended without one.
pub(crate) async fn last_text(gateway: &Gateway, run: &str) -> Result<String, CallError> {
    let messages = gateway.store().conversation_logs().messages_of_run(run).await.map_err(CallError::from)?;
    let last = messages.last().map(|message| stored::read(message)).transpose().map_err(CallError::internal)?;
    Ok(match last {
        Some(Message::Assistant(turn)) => turn.text(),
        _ => String::new(),
    })
}

impl From<BackgroundRun> for BackgroundRunBody {
    fn from(run: BackgroundRun) -> Self {
        let ended_at = (run.state == BackgroundState::Ended).then(|| run.changed.to_string());
        Self {
            status: status_of(&run).to_owned(),
            id: run.id,
            conversation_id: run.conversation,
            run_id: run.runs.last().cloned(),
            error: run.error.map(|error| RunErrorBody { code: error.code, message: error.message }),
            result: None,
            waits_for: None,
            webhook_error: run.notice_error,
            created_at: run.created.to_string(),
            ended_at,
        }
    }
}
