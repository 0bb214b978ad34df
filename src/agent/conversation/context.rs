//! The context of a run: the session that it continues, its row, its journal and its tools.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Sleep;

use super::history::{History, OpenCall};
use super::journal::{Journal, Journaled, KeptUsage};
use super::live::LiveRun;
use super::lock::HeldLock;
use super::run_event::SystemSubtype;
use super::session::Session;
use super::{ConversationRuns, RunRequest, StopCause, add, additions, check, recovery, system, unknown_conversation};
use crate::conversation_prompt::{WorkspaceInfo, about_skills};
use crate::event_log::EventLog;
use crate::message::{ToolMessage, UserMessage};
use crate::session_prefix::SessionPrefix;
use crate::toolbox::ToolboxLayer;
use crate::usage::UsageByAgent;
use crate::{AgentRequest, Event, Pauses, Toolbox};
use sekisho_calls::budget::DeferredCharges;
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::failpoint;
use sekisho_store::{ConversationRun, RunStatus};

/// After a part of an answer: models do not go on with a text of their own.
const GO_ON: &str = "Go on with the task: you were interrupted.";

/// Everything about one run (C7).
pub(super) struct Context {
    pub(super) request: RunRequest,
    pub(super) run: ConversationRun,
    pub(super) live: Arc<LiveRun>,
    pub(super) log: EventLog,
    pub(super) journal: Arc<Journal>,
    pub(super) toolbox: Arc<dyn Toolbox>,
    /// Calls of the run before without an answer, until they have one in `answers`.
    pub(super) open: Vec<OpenCall>,
    pub(super) answers: Vec<ToolMessage>,
    /// Calls for which the run before paused: the loop makes those that have no answer in `answers`.
    pub(super) paused: Vec<OpenCall>,
    /// The messages of the session.
    history: History,
    /// The beginning of its requests to the model.
    pub(super) prefix: Arc<SessionPrefix>,
    pub(super) title: Option<String>,
    pub(super) workspace: Option<WorkspaceInfo>,
    /// By agent and model, with the usage of sub-agents.
    pub(super) usage: UsageByAgent,
    pub(super) kept_usage: KeptUsage,
}

impl ConversationRuns {
    /// The session that the run continues, and the run's row.
    pub(super) async fn context(
        &self,
        mut request: RunRequest,
        live: Arc<LiveRun>,
        log: &EventLog,
        lock: &HeldLock,
    ) -> Result<Context, CallError> {
        let (store, budgets) = (self.store(), &self.gateway().pipeline.budget);
        // With the lock, nobody else runs the conversation: a run that still seems to run has ended with its process.
        recovery::recover(store, budgets, &lock.lock).await?;
        let id = &request.conversation.id;
        let found = store.conversations().get(&request.caller.key, id).await.map_err(CallError::from)?;
        let conversation = found.ok_or_else(|| unknown_conversation(id))?;
        check(&conversation)?;
        self.check_goes_on(&request).await?;
        let charges = DeferredCharges::new(budgets, store, &live.id);
        let usage = UsageByAgent::stored_with_charges(Arc::clone(&charges));
        let session = self.session(&request, &conversation, &usage).await?;
        let Session { id: session_id, mut history, kept, compacted } = session;
        self.check_resumes(&request, &history.open).await?;
        if request.goes_on.is_some() && history.ends_with_text() {
            request.user_input = Some(GO_ON.into());
        }
        let begun = store.now();
        let mut run = new_run(&request, &live, session_id, begun);
        if !store.conversation_runs().begin(&lock.lock, &mut run).await.map_err(CallError::from)? {
            return Err(lock_lost());
        }
        failpoint::reach("run.begun");
        add(log, &system(SystemSubtype::Init, &run));
        compacted.iter().for_each(|event| add(log, event));
        let of_run = (&*run.id, &*run.agent);
        let max_bytes = request.profile.max_result_bytes;
        let journal = Journal::new(store.clone(), lock.lock.clone(), of_run, (usage.clone(), charges), max_bytes);
        _ = request.toolbox.run.set(Arc::clone(&live.id));
        let toolbox: Arc<dyn Toolbox> = Arc::clone(&request.toolbox) as Arc<dyn Toolbox>;
        let found = additions::workspace(&request, self.gateway().workspaces()).await;
        // Files that could not be listed are not gone.
        let files = found.as_ref().filter(|(_, is_listed)| *is_listed).map(|(workspace, _)| workspace.files.clone());
        let workspace = found.map(|(workspace, _)| workspace);
        let prefix = Arc::new(SessionPrefix {
            store: store.clone(),
            conversation: run.conversation.clone(),
            session: run.session_id.clone(),
            agent: run.agent.clone(),
            run: run.number,
            kept,
            files,
            skills: about_skills(&request.skills, workspace.is_some()),
        });
        let open = std::mem::take(&mut history.open);
        let (title, answers, log, kept_usage) =
            (conversation.title, Vec::new(), log.clone(), journal.keep_storing_usage());
        Ok(Context {
            request,
            run,
            live,
            log,
            journal,
            toolbox,
            open,
            answers,
            paused: Vec::new(),
            history,
            prefix,
            title,
            workspace,
            usage,
            kept_usage,
        })
    }
}

impl Context {
    pub(super) fn options(&mut self) -> AgentRequest {
        let request = &self.request;
        let profile = additions::profile(request, self.workspace.as_ref());
        let (toolbox, journal) = (Arc::clone(&self.toolbox), Arc::clone(&self.journal));
        let layer = ToolboxLayer::new(move |toolbox| Arc::new(Journaled { toolbox, journal: Arc::clone(&journal) }));
        let history = std::mem::take(&mut self.history);
        let input = history.with(self.answers.clone(), request.user_input.clone().map(UserMessage::from));
        // Without the names of files in the workspace, which others may have chosen.
        request.toolbox.begin(&request.profile.prompt, &input.messages);
        AgentRequest {
            scopes: request.scopes.clone(),
            trace: request.trace.clone(),
            conversation: Some(self.run.conversation.as_str().into()),
            run: Some(self.run.id.as_str().into()),
            abort: self.live.stop.clone(),
            observer: Some(self.journal.observer()),
            layer: Some(layer),
            usage: self.usage.clone(),
            pauses: Pauses::InConversation,
            options: request.options.clone(),
            session: request.toolbox.session.as_ref().map(|session| Arc::clone(&session.id)),
            prefix: Some(Arc::clone(&self.prefix)),
            ..AgentRequest::new(&request.agent, profile, Arc::clone(&request.caller), toolbox, input.with_news())
        }
    }

    /// After an event of the agent: a session that is too long for its model is continued by another one.
    pub(super) async fn close_session(&self, event: &Event) {
        if !matches!(event, Event::Compacted { .. }) {
            return;
        }
        if let Err(error) = self.prefix.close().await {
            tracing::warn!(cause = error.cause(), run = self.run.id, "the next run does not begin another session");
        }
    }

    /// Sends an event to whoever watches the run. The run waits for a client that does not read, until its own end.
    pub(super) async fn show(&self, event: &Event, end: Pin<&mut Sleep>) {
        let Some(watcher) = &self.request.watcher else { return };
        tokio::select! {
            biased;
            // Without a receiver, nobody watches any more.
            _ = watcher.send(event.clone()) => {}
            () = self.live.stop.cancelled() => {}
            () = end => self.live.stop(StopCause::TimeOut),
        }
    }
}

fn new_run(request: &RunRequest, live: &LiveRun, session_id: String, begun: DatabaseTime) -> ConversationRun {
    ConversationRun {
        id: live.id.to_string(),
        conversation: live.conversation.clone(),
        number: 0,
        session_id,
        agent: request.agent.clone(),
        claimed_executor: request.executor.clone(),
        user_input: request.user_input.clone().unwrap_or_default(),
        status: RunStatus::Running,
        error: None,
        begun,
        ended: None,
    }
}

fn lock_lost() -> CallError {
    let message = "the run lost the lock of its conversation before it began, and did nothing; send the request again";
    CallError::new(ErrorCode::ConversationLocked, message)
}
