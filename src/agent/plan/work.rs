//! The common data of a plan's nodes: its agent, tools, events and charges.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::stream::{BoxStream, StreamExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::interrupted::StepToolbox;
use super::page_snapshots::FreshSnapshots;
use super::state::{CallMade, PlanState, PlanStatus};
use crate::message::{UserMessage, UserPart};
use crate::toolbox::{Filtered, RecordedCall, Toolbox, ToolboxCall, ToolboxLayer, shortlist};
use crate::usage::UsageByAgent;
use crate::{
    AgentRequest, AgentService, Event, Message, ModelOptions, PartOfPlan, Prompts, RunError, RunUsage, ToolChoice,
};
use sekisho_calls::budget::{DeferredCharges, TakenCharges};
use sekisho_config::{AgentProfile, ProfilePrompt, ToolFilter};
use sekisho_core::call::{Arguments, BudgetScopes, CallCharging, CallContext, Caller, ChargeSink, TraceParent, Via};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_observe::telemetry;
use sekisho_store::{PlanLease, PlanWish, Store, StoreError};

/// The common data of one plan's nodes.
pub(super) struct Work {
    pub(super) agents: Arc<AgentService>,
    pub(super) id: Arc<str>,
    /// Writes of a run that lost it are refused.
    pub(super) lease: PlanLease,
    pub(super) agent: Arc<str>,
    profile: AgentProfile,
    caller: Arc<Caller>,
    toolbox: Arc<dyn Toolbox>,
    /// The client's options for the answer.
    pub(super) options: ModelOptions,
    scopes: BudgetScopes,
    /// The plan in the trace.
    pub(super) span: Span,
    trace: Option<TraceParent>,
    conversation: Option<Arc<str>>,
    /// The layer of the request: sees the tool calls of every part.
    layer: Option<ToolboxLayer>,
    /// The usage of every part is added, also to the usage of the request.
    usage: UsageByAgent,
    /// Whether the charges are stored with the plan: the charges of a conversation's run are stored with the run.
    stores_charges: bool,
    /// The usage of the plan before this process ran it.
    used_before: RunUsage,
    /// The depth of sub-agents: 0 for an agent that a client runs.
    depth: u32,
    /// Whether files of the plan have a workspace.
    has_workspace: bool,
    /// The images and files of the goal.
    attachments: Vec<UserPart>,
    pub(super) abort: CancellationToken,
    events: mpsc::Sender<Event>,
    /// Events sent by this process.
    pub(super) sent: AtomicU64,
}

impl Work {
    pub(super) fn new(
        agents: Arc<AgentService>,
        (id, lease): (Arc<str>, PlanLease),
        request: AgentRequest,
        state: &PlanState,
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
            conversation,
            abort,
            layer,
            usage,
            depth,
            ..
        } = request;
        let span = telemetry::plan_span(&agent, &id, conversation.as_deref(), trace.as_ref());
        let trace = telemetry::context_of(&span).or(trace);
        let profile = AgentProfile { planner: None, ..(*profile).clone() };
        let toolbox = Arc::new(Filtered { filter: profile.tools.clone(), toolbox });
        let toolbox = Arc::new(FreshSnapshots(toolbox));
        let has_workspace = session.is_some();
        let stores_charges = !usage.has_charges();
        let gateway = agents.gateway();
        let usage = usage.of_part(|| DeferredCharges::new(&gateway.pipeline.budget, gateway.store(), &id));
        Self {
            agents,
            id,
            lease,
            agent,
            profile,
            caller,
            toolbox,
            options,
            scopes,
            span,
            trace,
            conversation,
            layer,
            usage,
            stores_charges,
            used_before: state.used.usage(),
            depth,
            has_workspace,
            attachments: state.attachments.clone(),
            abort,
            events,
            sent: AtomicU64::new(0),
        }
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn usage(&self) -> &UsageByAgent {
        &self.usage
    }

    /// A request of the plan's own that is paid for, beside its parts.
    pub(super) fn paid_call(&self) -> CallContext {
        CallContext {
            charging: CallCharging {
                scopes: self.scopes.clone(),
                sink: self.usage.charges().map(|charges| Arc::clone(charges) as Arc<dyn ChargeSink>),
            },
            ..CallContext::new(String::new(), Arc::clone(&self.caller), Via::Agent)
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

    pub(super) fn store(&self) -> &Store {
        self.agents.gateway().store()
    }

    /// Saves the state, with the usage of the plan until now and its charges.
    pub(super) async fn save(&self, state: &mut PlanState, status: PlanStatus) -> Result<Option<PlanWish>, CallError> {
        let (rows, charges) = match self.stores_charges {
            true => self.usage.take_charges(),
            false => (self.usage.rows(), None),
        };
        let mut amounts = self.used_before.clone();
        rows.iter().for_each(|row| amounts.add(&row.used));
        state.used.set_amounts(&amounts);
        let text = serde_json::to_string(state).map_err(CallError::internal)?;
        let (store, lease) = (self.store().clone(), self.lease.clone());
        // In a task of its own: if the plan were dropped meanwhile, the charges would be stored and written in the background
        // too.
        let saving = tokio::spawn(async move {
            let additions = charges.as_ref().map(TakenCharges::charges).unwrap_or_default();
            let saved = store.plans().save(&lease, (status.as_str(), &text), additions, store.now()).await?;
            let Some((wish, totals)) = saved else { return Ok(None) };
            if let Some(charges) = charges {
                charges.stored(&totals);
            }
            Ok::<_, StoreError>(Some(wish))
        });
        saving.await.map_err(CallError::internal)?.map_err(CallError::from)
    }

    /// Gives the plan back without an end, in a task of its own, as it is [saved](Self::save).
    pub(super) async fn give_up(&self) -> Result<(), CallError> {
        let (plans, lease) = (self.store().plans(), self.lease.clone());
        let given_up = tokio::spawn(async move { plans.give_up(&lease).await });
        given_up.await.map_err(CallError::internal)?.map_err(CallError::from)
    }

    /// Saves the state within a node.
    /// Errors: the store does not take it, or another run has the plan. Nothing may be sent then: it could be sent
    /// twice.
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

    /// Starts a run of the agent for a part of the plan. Without `options`, the client's options that are not about the
    /// answer.
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
            conversation: self.conversation.clone(),
            abort: self.abort.clone(),
            layer: self.layer.clone(),
            usage: self.usage.of_sub_agent(),
            // The parts of a sub-agent that plans start no deeper sub-agents than it may.
            depth: self.depth,
            ..AgentRequest::new(&self.agent, Arc::new(profile), caller, toolbox, messages)
        };
        Ok(Box::pin(self.agents.begin_run(request)).await?.boxed())
    }

    /// The input of a part of the plan. The evaluator judges only results.
    fn with_attachments(&self, input: String, part: PartOfPlan) -> UserMessage {
        let mut message = UserMessage::from(input);
        if !matches!(part, PartOfPlan::Evaluator(_)) {
            message.parts.extend(self.attachments.iter().cloned());
        }
        message
    }

    /// The profile of a step: the agent's own, with the prompt that it carries out a step.
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
        AgentProfile { prompt, tools, code_mode: false, ..self.profile.clone() }
    }

    /// A prompt that names the tools of the agent's steps.
    pub(super) async fn planner_prompt(&self, prompt: String, state: &PlanState) -> String {
        let tools = self.toolbox.list().await.unwrap_or_default();
        let tools = shortlist(tools, self.profile.max_tools, &[Message::User(state.goal().into())]);
        let prompt = ProfilePrompt { replace: Some(prompt), append: None };
        self.prompts().system(self.agents.today(), &tools, &prompt)
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

impl fmt::Debug for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Work").field("id", &self.id).field("agent", &self.agent).finish_non_exhaustive()
    }
}

pub(super) fn taken_over() -> CallError {
    CallError::new(
        ErrorCode::ConversationLocked,
        "the run lost the plan, which another process may have taken over; read the plan, and continue it if it is paused",
    )
}
