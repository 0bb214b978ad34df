//! The stored conversation behind a session, and the run of it that answers a message.

use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;

use super::ChatRequest;
use crate::background::BackgroundRuns;
use crate::connected_client::{ConnectedClient, OnDisconnect};
use crate::conversations::execute::ExecuteConversation;
use crate::conversations::of_api;
use crate::conversations::stored_input::StoredInput;
use sekisho_agent::conversation::{ConversationRuns, StartedRun};
use sekisho_agent::{Event, RunError};
use sekisho_api::RequestMeta;
use sekisho_config::{AgentProfile, PlannerConfig};
use sekisho_core::call::BudgetScopes;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;
use sekisho_store::Conversation;

/// The label of the conversations that begin here.
const API: &str = "chat";

/// Events that wait for a client; the run waits with the next one.
const MAX_WAITING_EVENTS: usize = 64;

/// The run that answers a message. Dropping its events cancels it, and its results so far are stored.
pub(super) struct ChatRun {
    /// The id of the conversation.
    pub(super) session_id: String,
    pub(super) run_id: Arc<str>,
    pub(super) profile: Arc<AgentProfile>,
    pub(super) scopes: BudgetScopes,
    pub(super) events: BoxStream<'static, Event>,
}

impl ChatRun {
    /// `plans`: whether an agent without a planner gets one.
    /// Errors: `invalid_request`: the message is empty, or the caller's tenant has no such model; `unknown_session`:
    /// the caller has no such conversation; and the errors of [`ConversationRuns::start`].
    pub(super) async fn begin(
        request: ChatRequest,
        meta: &RequestMeta,
        (runs, background): (&Arc<ConversationRuns>, &BackgroundRuns),
        plans: bool,
    ) -> Result<Self, CallError> {
        let ChatRequest { message, session_id, model } = request;
        if message.trim().is_empty() {
            return Err(CallError::new(ErrorCode::InvalidRequest, "`message` is empty; describe the task"));
        }
        let agents = runs.agents();
        let conversation = match &session_id {
            Some(id) => find(meta, agents.gateway(), id).await?,
            None => of_api::new((&meta.caller, API), agents, model.as_deref(), &message).await?,
        };
        let input = StoredInput::message(message.clone(), model.clone());
        let mut run = ExecuteConversation::message(message, model).into_run(meta, agents, conversation).await?;
        if plans && run.profile.planner.is_none() {
            let planner = Some(PlannerConfig::default());
            run.profile = Arc::new(AgentProfile { planner, ..(*run.profile).clone() });
        }
        if session_id.is_none() {
            of_api::keep(agents.gateway().store(), &run.conversation).await?;
        }
        let (watcher, events) = mpsc::channel(MAX_WAITING_EVENTS);
        run.watcher = Some(watcher);
        let session_id = run.conversation.id.clone();
        let (profile, scopes) = (Arc::clone(&run.profile), run.scopes.clone());
        let started = runs.start(background.covered(meta, run, input).await?)?;
        Ok(Self { session_id, run_id: started.id(), profile, scopes, events: watched(started, events).boxed() })
    }
}

async fn find(meta: &RequestMeta, gateway: &Gateway, id: &str) -> Result<Conversation, CallError> {
    gateway.pipeline.sessions.prepare(&meta.caller, id)?;
    let found = gateway.store().conversations().get(&meta.caller.key, id).await.map_err(CallError::from)?;
    found.ok_or_else(|| {
        let shown: String = id.chars().take(100).collect();
        let message =
            format!("there is no session {shown:?}, or not any more; leave `session_id` out to begin a new one");
        CallError::new(ErrorCode::UnknownSession, message)
    })
}

/// The events of a run, until its end is stored; an error where it did not begin.
fn watched(started: StartedRun, mut events: mpsc::Receiver<Event>) -> impl Stream<Item = Event> + Send + 'static {
    let client = ConnectedClient::new(&started.run, OnDisconnect::Cancel);
    async_stream::stream! {
        let mut has_failed = false;
        while let Some(event) = events.recv().await {
            has_failed |= matches!(event, Event::Error(_));
            yield event;
        }
        if let Err(error) = started.reply().await
            && !has_failed
        {
            yield Event::Error(RunError::from(&error));
        }
        client.leave();
    }
}
