//! Runs of conversations over HTTP: begun, followed, cancelled and resolved.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::find;
use super::stored_input::StoredInput;
use crate::background::BackgroundRuns;
use crate::connected_client::{ConnectedClient, OnDisconnect};
use crate::keyed_turn::{self, Progress, Turn};
use crate::{requested_run, run_events};
use sekisho_agent::catalog::ResolvedModel;
use sekisho_agent::conversation::run_event::RunEvent;
use sekisho_agent::conversation::{ConversationRuns, Decision, OnBusy, OnUnknown, RunReply, RunRequest, unknown_run};
use sekisho_agent::event_log::LoggedEvent;
use sekisho_agent::{AgentService, ModelOptions};
use sekisho_api::event_stream::{self, LoggedFrame};
use sekisho_api::reply::{self, ErrorReply};
use sekisho_api::{DigestedBody, JsonBody, Name, Parameters, ReplyBody, RequestMeta};
use sekisho_config::Secret;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::failpoint;
use sekisho_gateway::Gateway;
use sekisho_store::Conversation;

/// The id of the run, so that it can be followed after a disconnect before the first event.
pub(crate) const RUN_ID: HeaderName = HeaderName::from_static("x-run-id");

const MAX_EXECUTOR_CHARS: usize = 256;
const MAX_SKILLS: usize = 100;

/// What is said to a conversation (C2).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecuteConversation {
    /// Left out, the run goes on where the one before paused for an approver, once that has decided.
    #[schema(min_length = 1)]
    pub(super) user_input: Option<String>,
    /// Who or what sends it, as a text or an object. Kept and logged as `claimed_executor`: never an identity.
    #[schema(value_type = Option<Object>)]
    pub(super) executor: Option<Value>,
    /// Values for the headers of MCP servers and APIs, by name.
    #[serde(default)]
    #[schema(value_type = std::collections::HashMap<String, String>)]
    pub(super) tokens: BTreeMap<String, Secret>,
    /// Names of skills that the agent is to prefer.
    #[serde(default)]
    pub(super) preferred_skills: Vec<String>,
    /// The profile of this run, in place of the conversation's.
    pub(super) model: Option<String>,
    /// Whether the reply is a stream of events; by default what `Accept` says.
    pub(super) stream: Option<bool>,
    #[serde(default)]
    pub(super) on_busy: OnBusy,
    #[serde(default)]
    pub(super) on_unknown: OnUnknown,
    /// Whether a changed prompt, profile or list of tools counts in this session, too. Its earlier thoughts are no longer sent to
    /// the model then.
    #[serde(default)]
    pub(super) refresh: bool,
    /// With an `Idempotency-Key` the run goes on always.
    #[serde(default)]
    pub(super) on_disconnect: OnDisconnect,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveRequest {
    /// Of the `approval` event, where it has no `approval`.
    call_id: String,
    decision: Decision,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsAfter {
    /// As the header `Last-Event-ID`, which comes first.
    after: Option<u64>,
}

/// Runs a conversation: the agent answers `user_input` with its tools. With `Accept: text/event-stream` (or `stream`) the
/// reply is a stream of `RunEvent`s, each with an id; otherwise one JSON object at the end.
#[utoipa::path(post, path = "/api/conversations/{id}/execute", operation_id = "executeConversation", tag = "conversations",
    params(("id" = String, Path)), request_body = ExecuteConversation,
    responses(
        (status = 200, description = "The result, or server-sent events; the data of each is a `RunEvent`.", content((RunReply = "application/json"), (RunEvent = "text/event-stream"))),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn execute(
    meta: RequestMeta,
    headers: HeaderMap,
    State(gateway): State<Arc<Gateway>>,
    Extension(runs): Extension<Arc<ConversationRuns>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    Name(id): Name,
    DigestedBody(request, memory, body): DigestedBody<ExecuteConversation>,
) -> Result<Response, ErrorReply> {
    failpoint::reach("run.received");
    let conversation = find(&gateway, &meta, &id).await?;
    let is_stream = request.stream.unwrap_or_else(|| accepts_events(&headers));
    let turn = Turn { route: format!("/api/conversations/{id}/execute"), body };
    keyed_turn::answer(&gateway, meta, turn, move |meta, progress| async move {
        let _memory = memory;
        Ok(run(&meta, (&runs, &background), (request, conversation), is_stream, &progress).await?)
    })
    .await
}

async fn run(
    meta: &RequestMeta,
    (runs, background): (&Arc<ConversationRuns>, &BackgroundRuns),
    (request, conversation): (ExecuteConversation, Conversation),
    is_stream: bool,
    progress: &Progress,
) -> Result<Response, CallError> {
    let on_disconnect = request.on_disconnect;
    let input = StoredInput::from(&request);
    let run = request.into_run(meta, runs.agents(), conversation).await?;
    let started = runs.start(background.covered(meta, run, input).await?)?;
    let run_id = started.id();
    progress.is_run(&run_id);
    let client = ConnectedClient::new(&started.run, on_disconnect);
    let mut response = match is_stream {
        true => event_stream::respond_logged(until_done(started.log.follow(None), client)),
        false => {
            let result = started.reply().await;
            client.leave();
            reply::json(StatusCode::OK, &result?)
        }
    };
    if let Ok(run_id) = run_id.parse() {
        response.headers_mut().insert(RUN_ID, run_id);
    }
    Ok(response)
}

/// The events of a run after one of them, also those still to come: while it is on, and for ten minutes after.
#[utoipa::path(get, path = "/api/runs/{id}/events", operation_id = "followRun", tag = "conversations",
    params(("id" = String, Path), EventsAfter, ("Last-Event-ID" = Option<u64>, Header, description = "The last event that the client has.")),
    responses(
        (status = 200, description = "Server-sent events; the data of each is a `RunEvent`.", body = RunEvent, content_type = "text/event-stream"),
        (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn events(
    meta: RequestMeta,
    headers: HeaderMap,
    State(gateway): State<Arc<Gateway>>,
    Extension(runs): Extension<Arc<ConversationRuns>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    Name(id): Name,
    Parameters(EventsAfter { after }): Parameters<EventsAfter>,
) -> Result<Response, ErrorReply> {
    let after = event_stream::last_event_id(&headers)?.or(after);
    let id = background.run_id(&meta.caller.key, id).await?;
    if let Some(log) = runs.events(&meta.caller.key, &id) {
        let events = log.follow(after).take_until(gateway.keys().ended(&meta.caller));
        return Ok(event_stream::respond_logged(events.map(|event| run_events::frame(&event))));
    }
    let run = gateway.store().conversation_runs().get(&meta.caller.key, &id).await.map_err(CallError::from)?;
    let run = run.ok_or_else(|| unknown_run(&id))?;
    let message = format!(
        "the events of this run are no longer kept, or are in another process; its status is `{}`: see \
         `GET /api/runs/{{id}}`",
        run.status.as_str()
    );
    Err(CallError::new(ErrorCode::UnknownResult, message).into())
}

/// Ends a run soon. What it has so far is stored.
#[utoipa::path(post, path = "/api/runs/{id}/cancel", operation_id = "cancelRun", tag = "conversations",
    params(("id" = String, Path)),
    responses((status = 202, description = "It is asked to end, or has ended."), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn cancel(
    meta: RequestMeta,
    Extension(runs): Extension<Arc<ConversationRuns>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    Name(id): Name,
) -> Result<StatusCode, ErrorReply> {
    if background.cancel(&meta.caller.key, &id).await?.is_none() {
        runs.cancel(&meta.caller.key, &id).await?;
    }
    Ok(StatusCode::ACCEPTED)
}

/// Decides about a call that was sent and has no answer, for a run with `on_unknown: pause`.
#[utoipa::path(post, path = "/api/runs/{id}/resolve", operation_id = "resolveRun", tag = "conversations",
    params(("id" = String, Path)), request_body = ResolveRequest,
    responses((status = 202, description = "The run goes on."), (status = "4XX", body = ReplyBody), (status = "5XX", body = ReplyBody)))]
pub(crate) async fn resolve(
    meta: RequestMeta,
    Extension(runs): Extension<Arc<ConversationRuns>>,
    Extension(background): Extension<Arc<BackgroundRuns>>,
    Name(id): Name,
    JsonBody(request, _memory): JsonBody<ResolveRequest>,
) -> Result<StatusCode, ErrorReply> {
    let id = background.run_id(&meta.caller.key, id).await?;
    runs.resolve(&meta.caller.key, &id, &request.call_id, request.decision)?;
    Ok(StatusCode::ACCEPTED)
}

impl ExecuteConversation {
    /// A message, and nothing else that differs from the conversation.
    pub(crate) fn message(user_input: String, model: Option<String>) -> Self {
        Self {
            user_input: Some(user_input),
            executor: None,
            tokens: BTreeMap::new(),
            preferred_skills: Vec::new(),
            model,
            stream: None,
            on_busy: OnBusy::default(),
            on_unknown: OnUnknown::default(),
            refresh: false,
            on_disconnect: OnDisconnect::default(),
        }
    }

    /// The check of the names in the request (C3): the tenant, the model and the skills.
    pub(crate) async fn into_run(
        self,
        meta: &RequestMeta,
        agents: &AgentService,
        conversation: Conversation,
    ) -> Result<RunRequest, CallError> {
        if self.user_input.as_ref().is_some_and(|input| input.trim().is_empty()) {
            return Err(CallError::invalid("`user_input` is empty; describe the task"));
        }
        if self.preferred_skills.len() > MAX_SKILLS {
            return Err(CallError::invalid(format!("`preferred_skills` has more than {MAX_SKILLS} names")));
        }
        let (gateway, catalog) = (agents.gateway(), agents.catalog());
        let tenant = catalog.active_tenant(&meta.caller.tenant).await?;
        let model = self.model.as_deref().unwrap_or(&conversation.agent);
        let ResolvedModel { name, mut profile } = catalog.model_of(&tenant, Some(model)).await?;
        if let Some(branch) = conversation.branch.as_ref().filter(|_| self.model.is_none()) {
            profile = catalog.of_branch(&tenant, &profile, branch).await?;
        }
        let skills = catalog.skills(&tenant, &self.preferred_skills).await?;
        let sessions = &gateway.pipeline.sessions;
        let session = conversation.workspace.then(|| sessions.prepare(&meta.caller, &conversation.id)).transpose()?;
        let mut toolbox = requested_run::toolbox(meta, gateway, session);
        let executor = self.executor.map(claimed).transpose()?;
        toolbox.claimed_user.clone_from(&executor);
        toolbox.conversation = Some(conversation.id.as_str().into());
        let tokens: Map<_, _> = self.tokens.into_iter().map(|(name, token)| (name, token.expose().into())).collect();
        toolbox.tool_parameters.insert("tokens".to_owned(), tokens.into());
        Ok(RunRequest {
            id: None,
            caller: Arc::clone(&meta.caller),
            conversation,
            user_input: self.user_input.map(Into::into),
            goes_on: None,
            executor,
            tenant: tenant.settings,
            skills,
            agent: name.to_string(),
            profile,
            scopes: toolbox.scopes.clone(),
            trace: meta.trace.clone(),
            options: ModelOptions::default(),
            toolbox: Arc::new(toolbox),
            on_busy: self.on_busy,
            on_unknown: self.on_unknown,
            refresh: self.refresh,
            watcher: None,
            cover: None,
        })
    }
}

fn claimed(executor: Value) -> Result<String, CallError> {
    let text = match executor {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match text.chars().count() {
        0..=MAX_EXECUTOR_CHARS => Ok(text),
        _ => Err(CallError::invalid(format!("`executor` has more than {MAX_EXECUTOR_CHARS} characters"))),
    }
}

/// The same events, with the client that must stay for them.
fn until_done(
    events: impl Stream<Item = Arc<LoggedEvent>> + Send + 'static,
    client: ConnectedClient,
) -> impl Stream<Item = LoggedFrame> + Send + 'static {
    async_stream::stream! {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            yield run_events::frame(&event);
        }
        client.leave();
    }
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    })
}
