//! The context of a run: the session that it continues, its row, its journal and its tools.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Sleep;
use uuid::Uuid;

use super::history::{History, OpenCall};
use super::journal::{Journal, Journaled, KeptUsage};
use super::live::LiveRun;
use super::lock::HeldLock;
use super::run_event::SystemSubtype;
use super::{ConversationRuns, RunRequest, StopCause, add, additions, check, recovery, system, unknown_conversation};
use crate::conversation_prompt::WorkspaceInfo;
use crate::event_log::EventLog;
use crate::message::{ToolMessage, UserMessage};
use crate::toolbox::ToolboxLayer;
use crate::usage::UsageByAgent;
use crate::{AgentRequest, Event, Message, Pauses, Toolbox};
use sekisho_calls::budget::DeferredCharges;
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::failpoint;
use sekisho_store::{ConversationRun, RunStatus};

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
    /// The input of the model.
    pub(super) messages: Vec<Message>,
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
        request: RunRequest,
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
        let charges = DeferredCharges::new(budgets, store, &live.id);
        let usage = UsageByAgent::stored_with_charges(Arc::clone(&charges));
        let (history, compacted) = self.history(&request, &conversation, &usage).await?;
        self.check_resumes(&request, &history.open).await?;
        let begun = store.now();
        let mut run = new_run(&request, &live, conversation.session_id, begun);
        if !store.conversation_runs().begin(&lock.lock, &mut run).await.map_err(CallError::from)? {
            return Err(lock_lost());
        }
        failpoint::reach("run.begun");
        add(log, &system(SystemSubtype::Init, &run));
        compacted.iter().for_each(|event| add(log, event));
        let of_run = (&*run.id, &*run.agent);
        let max_bytes = request.profile.max_result_bytes;
        let journal = Journal::new(store.clone(), lock.lock.clone(), of_run, (usage.clone(), charges), max_bytes);
        let toolbox: Arc<dyn Toolbox> = Arc::clone(&request.toolbox) as Arc<dyn Toolbox>;
        let workspace = additions::workspace(&request, self.gateway().workspaces()).await;
        let History { messages, open } = history;
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
            messages,
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
        let history = History { messages: std::mem::take(&mut self.messages), open: Vec::new() };
        let messages = history.with(self.answers.clone(), request.user_input.clone().map(UserMessage::from));
        // Without the names of files in the workspace, which others may have chosen.
        request.toolbox.begin(&request.profile.prompt, &messages);
        AgentRequest {
            scopes: request.scopes.clone(),
            trace: request.trace.clone(),
            abort: self.live.stop.clone(),
            observer: Some(self.journal.observer()),
            layer: Some(layer),
            usage: self.usage.clone(),
            pauses: Pauses::InConversation,
            session: request.toolbox.session.as_ref().map(|session| Arc::clone(&session.id)),
            ..AgentRequest::new(&request.agent, profile, Arc::clone(&request.caller), toolbox, messages)
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

fn new_run(request: &RunRequest, live: &LiveRun, session_id: Option<String>, begun: DatabaseTime) -> ConversationRun {
    ConversationRun {
        id: live.id.to_string(),
        conversation: live.conversation.clone(),
        number: 0,
        session_id: session_id.unwrap_or_else(|| Uuid::now_v7().to_string()),
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
