//! Runs a plan from node to node, with its state in the store after each.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_stream::stream;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::interrupted::StepToolbox;
use super::nodes;
use super::page_snapshots::FreshSnapshots;
use super::state::{CallMade, Node, PlanState, PlanStatus};
use crate::agent::message::{AssistantTurn, TurnPart, UserMessage, UserPart};
use crate::agent::toolbox::{Filtered, RecordedCall, Toolbox, ToolboxCall, ToolboxLayer, shortlist};
use crate::agent::usage::UsageByAgent;
use crate::agent::{
    AgentRequest, AgentService, Event, FinishReason, Message, ModelOptions, PartOfPlan, Prompts, RunError, RunUsage,
    ToolChoice,
};
use crate::budget::TakenCharges;
use crate::config::{AgentProfile, ProfilePrompt, ToolFilter};
use crate::core::call::{Arguments, BudgetScopes, Caller, TraceParent};
use crate::core::error::{CallError, ErrorCode};
use crate::core::failpoint;
use crate::infra::store::{PlanKey, PlanWish, Store, StoreError};

/// How often a plan that is on says so in the store.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(3);

/// Events that wait for a slow client.
const WAITING_EVENTS: usize = 64;

/// What the nodes of one plan work with.
pub(super) struct Work {
    pub(super) agents: Arc<AgentService>,
    pub(super) id: Arc<str>,
    pub(super) agent: Arc<str>,
    profile: AgentProfile,
    caller: Arc<Caller>,
    toolbox: Arc<dyn Toolbox>,
    /// Of the client, for the answer.
    pub(super) options: ModelOptions,
    scopes: BudgetScopes,
    trace: Option<TraceParent>,
    /// Of the request: sees the tool calls of every part.
    layer: Option<ToolboxLayer>,
    /// That of every part is added, and to that of the request.
    usage: UsageByAgent,
    /// Whether the charges are stored with the plan: those of a run of a conversation are stored with the run.
    stores_charges: bool,
    /// What the plan had used before this process ran it.
    used_before: RunUsage,
    /// Of sub-agents: 0 for an agent that a client runs.
    depth: u32,
    /// Whether files of the plan have a workspace.
    has_workspace: bool,
    /// The images and files of the goal.
    attachments: Vec<UserPart>,
    abort: CancellationToken,
    events: mpsc::Sender<Event>,
    /// Events sent by this process.
    sent: AtomicU64,
}

/// Why a plan is not on any more.
enum Ended {
    Status(PlanStatus),
    Failed(RunError),
    /// Another process runs it.
    Lost,
}

/// Runs a plan whose row this process holds. The last two events are [`Event::Finished`] and [`Event::Usage`]. Dropping the
/// stream cancels the plan.
pub(super) fn run(
    agents: Arc<AgentService>,
    id: Arc<str>,
    request: AgentRequest,
    mut state: PlanState,
) -> impl Stream<Item = Event> + Send + 'static {
    let (sender, mut events) = mpsc::channel(WAITING_EVENTS);
    let attachments = state.attachments.clone();
    let work = Work { attachments, ..Work::new(agents, id, request, state.used.usage(), sender) };
    stream! {
        let mut guard = CancelOnDrop(Some((work.store().clone(), work.key())), Arc::clone(&work.agents));
        let mut driven = Box::pin(drive(&work, &mut state));
        let ended = loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => yield event,
                ended = &mut driven => break ended,
            }
        };
        drop(driven);
        while let Ok(event) = events.try_recv() {
            yield event;
        }
        let last = close(&work, &mut state, ended).await;
        guard.0 = None;
        for event in last {
            yield event;
        }
    }
}

/// Visits nodes until the plan ends, waits or fails.
async fn drive(work: &Work, state: &mut PlanState) -> Ended {
    tokio::select! {
        ended = visit_all(work, state) => ended,
        () = beat(work) => Ended::Lost,
    }
}

async fn visit_all(work: &Work, state: &mut PlanState) -> Ended {
    let before = state.last_event;
    loop {
        state.last_event = before + work.sent.load(Ordering::Relaxed);
        match work.save(state, PlanStatus::Running).await {
            Ok(Some(PlanWish::GoOn)) => {}
            Ok(Some(PlanWish::Pause)) => return Ended::Status(PlanStatus::Paused),
            Ok(Some(PlanWish::Cancel)) => return Ended::Status(PlanStatus::Cancelled),
            Ok(None) => return Ended::Lost,
            Err(error) => return Ended::Failed(RunError::from(&error)),
        }
        if state.node == Node::ExecutorDispatch && state.awaits_approval {
            return Ended::Status(PlanStatus::WaitingForApproval);
        }
        work.send(Event::Node { node: state.node }).await;
        let is_last = state.node == Node::End;
        let node = state.node;
        failpoint::reach(format_args!("plan.{node:?}"));
        let visited = Box::pin(nodes::visit(work, state)).await;
        failpoint::reach(format_args!("plan.{node:?}.visited"));
        if work.abort.is_cancelled() {
            return Ended::Status(PlanStatus::Cancelled);
        }
        match visited {
            Err(error) => return Ended::Failed(error),
            Ok(()) if is_last => return Ended::Status(state.outcome.unwrap_or(PlanStatus::Finished)),
            Ok(()) => {}
        }
    }
}

/// Says in the store that the plan is on; ends when another process took it. A wish to cancel ends the node at once.
async fn beat(work: &Work) {
    let mut ticks = tokio::time::interval(HEARTBEAT);
    loop {
        ticks.tick().await;
        match work.store().beat_plan(&work.key(), Timestamp::now()).await {
            Ok(Some(PlanWish::Cancel)) => work.abort.cancel(),
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => tracing::warn!(%error, plan = %work.id, "a plan cannot say in the store that it is on"),
        }
    }
}

/// Saves how the plan ended; the last events.
async fn close(work: &Work, state: &mut PlanState, ended: Ended) -> Vec<Event> {
    let (status, error) = match ended {
        Ended::Status(status) => (status, None),
        Ended::Failed(error) => (PlanStatus::Failed, Some(error)),
        Ended::Lost => {
            return last_events(state, FinishReason::Error, vec![Event::Error(RunError::from(&taken_over()))]);
        }
    };
    if let Some(error) = &error {
        error.message.clone_into(&mut state.reason);
    }
    if let Err(error) = work.save(state, status).await {
        tracing::warn!(%error, plan = %work.id, "the end of a plan could not be stored");
    }
    let message = match (status, state.reason.as_str()) {
        (PlanStatus::WaitingForApproval, _) => "The plan waits for approval.".to_owned(),
        (PlanStatus::Paused, _) => "The plan is paused.".to_owned(),
        (PlanStatus::Cancelled, _) => "The plan was cancelled.".to_owned(),
        (PlanStatus::Impossible, reason) => format!("The goal was not reached: {reason}"),
        _ => String::new(),
    };
    let reason = match status {
        PlanStatus::Finished => FinishReason::Stop,
        PlanStatus::Impossible => FinishReason::Limit,
        PlanStatus::Failed => FinishReason::Error,
        _ => FinishReason::Aborted,
    };
    let status = Some(Event::Status { status: status.as_str().to_owned(), message });
    let status = status.filter(|_| !matches!(reason, FinishReason::Stop | FinishReason::Error));
    last_events(state, reason, error.map(Event::Error).into_iter().chain(status).collect())
}

fn taken_over() -> CallError {
    CallError::new(ErrorCode::ConversationLocked, "another process took the plan over")
}

fn last_events(state: &PlanState, reason: FinishReason, first: Vec<Event>) -> Vec<Event> {
    let parts = vec![TurnPart::Text(state.answer.clone())];
    let answer = Message::Assistant(AssistantTurn { parts, ..AssistantTurn::default() });
    let messages = if state.answer.is_empty() { Vec::new() } else { vec![answer] };
    let last = [Event::Finished { reason, messages }, Event::Usage(state.used.usage())];
    first.into_iter().chain(last).collect()
}

impl Work {
    fn new(
        agents: Arc<AgentService>,
        id: Arc<str>,
        request: AgentRequest,
        used_before: RunUsage,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let AgentRequest {
            agent,
            profile,
            caller,
            toolbox,
            options,
            session,
            scopes,
            trace,
            abort,
            layer,
            usage,
            depth,
            ..
        } = request;
        let profile = AgentProfile { planner: None, ..(*profile).clone() };
        let toolbox = Arc::new(Filtered { filter: profile.tools.clone(), toolbox });
        let toolbox = Arc::new(FreshSnapshots(toolbox));
        let has_workspace = session.is_some();
        let stores_charges = !usage.has_charges();
        let usage = usage.of_part(&agents.gateway().pipeline.budget);
        Self {
            agents,
            id,
            agent,
            profile,
            caller,
            toolbox,
            options,
            scopes,
            trace,
            layer,
            usage,
            stores_charges,
            used_before,
            depth,
            has_workspace,
            attachments: Vec::new(),
            abort,
            events,
            sent: AtomicU64::new(0),
        }
    }

    pub(super) async fn send(&self, event: Event) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        // Without a client, the plan is about to be dropped.
        let _gone = self.events.send(event).await;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.abort.is_cancelled()
    }

    pub(super) fn prompts(&self) -> &Prompts {
        self.agents.prompts()
    }

    fn store(&self) -> &Store {
        self.agents.gateway().store()
    }

    fn key(&self) -> PlanKey {
        PlanKey { id: Arc::clone(&self.id), holder: self.agents.plans().process() }
    }

    /// Saves the state, with what the plan used until now and the charges for that.
    async fn save(&self, state: &mut PlanState, status: PlanStatus) -> Result<Option<PlanWish>, CallError> {
        let (rows, charges) = match self.stores_charges {
            true => self.usage.take_charges(),
            false => (self.usage.rows(), None),
        };
        let mut amounts = self.used_before.clone();
        rows.iter().for_each(|row| amounts.add(&row.used));
        state.used.set_amounts(&amounts);
        let text = serde_json::to_string(state).map_err(CallError::internal)?;
        let (store, key) = (self.store().clone(), self.key());
        // In a task of its own: if the plan were dropped meanwhile, the charges would be stored and written in the background
        // too.
        let saving = tokio::spawn(async move {
            let additions = charges.as_ref().map(TakenCharges::usage).unwrap_or_default();
            let saved = store.save_plan(&key, (status.as_str(), &text), additions, Timestamp::now()).await?;
            let Some((wish, totals)) = saved else { return Ok(None) };
            if let Some(charges) = charges {
                charges.stored(&totals);
            }
            Ok::<_, StoreError>(Some(wish))
        });
        saving.await.map_err(CallError::internal)?.map_err(CallError::from)
    }

    /// Saves the state within a node.
    ///
    /// # Errors
    /// The store does not take it, or another process has the plan. Nothing may be sent then: it could be sent twice.
    pub(super) async fn keep(&self, state: &mut PlanState) -> Result<(), RunError> {
        match self.save(state, PlanStatus::Running).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(RunError::from(&taken_over())),
            Err(error) => Err(RunError::from(&error)),
        }
    }

    /// The tools of a step, after these calls of an interrupted run.
    pub(super) fn step_toolbox(&self, attempt: u32, calls: &[CallMade]) -> Arc<dyn Toolbox> {
        Arc::new(StepToolbox {
            toolbox: Arc::clone(&self.toolbox),
            gateway: Arc::clone(self.agents.gateway()),
            caller: Arc::clone(&self.caller),
            attempt: self.attempt(attempt),
            charges: self.usage.charges().cloned(),
            calls: Mutex::new(calls.to_vec()),
        })
    }

    /// The key of a call that an attempt at a step makes.
    pub(super) fn key_of(&self, attempt: u32, call: &str) -> Arc<str> {
        RecordedCall::key_of(&self.attempt(attempt), call)
    }

    fn attempt(&self, number: u32) -> String {
        format!("{}/{number}", self.id)
    }

    /// Starts a run of the agent for a part of the plan. Without `options`, those of the client that are not about the answer.
    pub(super) async fn begin(
        &self,
        profile: AgentProfile,
        input: String,
        part: PartOfPlan,
        options: Option<ModelOptions>,
    ) -> Result<BoxStream<'static, Event>, CallError> {
        self.begin_with(Arc::clone(&self.toolbox), profile, input, part, options).await
    }

    /// The same with other tools.
    pub(super) async fn begin_with(
        &self,
        toolbox: Arc<dyn Toolbox>,
        profile: AgentProfile,
        input: String,
        part: PartOfPlan,
        options: Option<ModelOptions>,
    ) -> Result<BoxStream<'static, Event>, CallError> {
        let of_client = || ModelOptions {
            max_tokens: None,
            stop: Vec::new(),
            tool_choice: ToolChoice::Auto,
            output: None,
            ..self.options.clone()
        };
        let options = ModelOptions { part_of_plan: Some(part), ..options.unwrap_or_else(of_client) };
        let caller = Arc::clone(&self.caller);
        let messages = vec![Message::User(self.with_attachments(input, part))];
        let request = AgentRequest {
            options,
            scopes: self.scopes.clone(),
            trace: self.trace.clone(),
            abort: self.abort.clone(),
            layer: self.layer.clone(),
            usage: self.usage.of_sub_agent(),
            // Of a sub-agent that plans, the parts start no deeper sub-agents than it may.
            depth: self.depth,
            ..AgentRequest::new(&self.agent, Arc::new(profile), caller, toolbox, messages)
        };
        Ok(Box::pin(self.agents.begin_run(request)).await?.boxed())
    }

    /// What a part of the plan is told. The evaluator judges results alone.
    fn with_attachments(&self, input: String, part: PartOfPlan) -> UserMessage {
        let mut message = UserMessage::from(input);
        if !matches!(part, PartOfPlan::Evaluator(_)) {
            message.parts.extend(self.attachments.iter().cloned());
        }
        message
    }

    /// The profile of a step: the agent's own, which is told that it carries out a step.
    pub(super) fn step_profile(&self, state: &PlanState) -> AgentProfile {
        let mark = [state.planner.error_prefix(), state.planner.error_word(), "Error:"];
        let mark = mark.into_iter().find(|mark| !mark.is_empty()).unwrap_or_default();
        let prompt = self.prompts().plan_step(mark);
        let append = match &self.profile.prompt.append {
            Some(own) => format!("{own}\n\n{prompt}"),
            None => prompt,
        };
        let prompt = ProfilePrompt { append: Some(append), ..self.profile.prompt.clone() };
        AgentProfile { prompt, tools: ToolFilter::default(), ..self.profile.clone() }
    }

    /// The profile of a request without tools.
    pub(super) fn own_profile(&self, prompt: String) -> AgentProfile {
        let prompt = ProfilePrompt { replace: Some(prompt), append: None };
        let tools = ToolFilter { include: Vec::new(), exclude: vec!["*".to_owned()] };
        AgentProfile { prompt, tools, ..self.profile.clone() }
    }

    /// A prompt that names the tools of the agent's steps.
    pub(super) async fn planner_prompt(&self, prompt: String, state: &PlanState) -> String {
        let tools = self.toolbox.list().await.unwrap_or_default();
        let tools = shortlist(tools, self.profile.max_tools, &[Message::User(state.goal().into())]);
        let prompt = ProfilePrompt { replace: Some(prompt), append: None };
        self.prompts().system(jiff::Zoned::now().date(), &tools, &prompt)
    }

    /// Keeps a whole page in the workspace, by a call of `file_write` that is checked like any other; its path.
    pub(super) async fn keep_snapshot(&self, attempt: u32, snapshot: &str) -> Option<String> {
        if !self.has_workspace {
            return None;
        }
        let path = format!("plans/{}/page-{attempt}.md", self.id);
        let arguments = Arguments::from_iter([("path".into(), json!(path)), ("content".into(), json!(snapshot))]);
        let call = ToolboxCall::new(format!("page-{attempt}"), "file_write", arguments);
        let answer = self.toolbox.call(call).await;
        if !answer.success {
            tracing::info!(plan = %self.id, reason = answer.text, "a page of a plan is not kept in the workspace");
        }
        answer.success.then_some(path)
    }
}

/// Marks a plan as cancelled whose client is gone.
struct CancelOnDrop(Option<(Store, PlanKey)>, Arc<AgentService>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some((store, key)) = self.0.take() else { return };
        self.1.gateway().in_background(async move {
            if let Err(error) = store.end_plan(&key, PlanStatus::Cancelled.as_str(), Timestamp::now()).await {
                tracing::warn!(%error, plan = %key.id, "a cancelled plan could not be stored as such");
            }
        });
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Work").field("id", &self.id).field("agent", &self.agent).finish_non_exhaustive()
    }
}
