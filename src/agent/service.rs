//! The agent service: starts runs, and keeps the state that they share.

mod beginning;
mod offer;
mod outcome;
mod own_requests;
mod recording;
mod request;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use thiserror::Error;
use tokio::sync::Semaphore;

use super::catalog::{Catalog, Tenant};
use super::client_calls::{self, Restored, SentPrefix};
use super::front_matter::UnusableFile;
use super::models::fallback::{Fallback, WithFallbacks};
use super::plan::{NewPlan, Plans};
use super::run_file::RunRecord;
use super::run_recorder::RunRecorder;
use super::subagents;
use super::toolbox::OfTenant;
use super::usage::UsageByAgent;
use super::{Agent, Event, Message, Model, Prompts, RunInput, RunUsage, UnreadablePrompt, context, models, prompts};
use sekisho_config::{AgentConfig, AgentProfile, PlannerConfig};
use sekisho_core::call::Caller;
use sekisho_core::database_clock::DatabaseClock;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::Gateway;

use self::beginning::{Beginning, conversation};
use self::offer::{Listed, offer};
use self::outcome::Outcome;

pub use self::request::{AgentRequest, Pauses};

/// Maximum concurrent runs of all callers.
const MAX_RUNS: usize = 1_000;

/// Maximum concurrent thread summaries; a reply above it leaves its thread's summary unchanged.
const MAX_SUMMARIES: usize = 50;

/// A file that agents need and that cannot be used.
#[derive(Debug, Error)]
pub enum AgentFileError {
    #[error(transparent)]
    Prompt(#[from] UnreadablePrompt),
    #[error(transparent)]
    File(#[from] UnusableFile),
}

/// Starts the runs of agents that use a gateway's tools.
pub struct AgentService {
    gateway: Arc<Gateway>,
    catalog: Catalog,
    prompts: Prompts,
    slots: Arc<Semaphore>,
    summaries: Arc<Semaphore>,
    plans: Plans,
    /// Of the date in prompts.
    clock: Arc<DatabaseClock>,
}

impl AgentService {
    /// Errors: a configured folder of prompts, skills or sub-agents, or a file in it, cannot be used.
    pub fn new(gateway: &Arc<Gateway>) -> Result<Arc<Self>, AgentFileError> {
        Self::by_clock(gateway, Arc::clone(gateway.store().clock()))
    }

    /// As [`new`](Self::new), with the date of the prompts by another clock than the store's.
    /// Errors: as [`new`](Self::new).
    pub fn by_clock(gateway: &Arc<Gateway>, clock: Arc<DatabaseClock>) -> Result<Arc<Self>, AgentFileError> {
        let directory = gateway.configuration().current().agent.prompts_directory.clone();
        let agents = Arc::new(Self {
            gateway: Arc::clone(gateway),
            catalog: Catalog::load(gateway)?,
            prompts: directory.as_deref().map_or_else(|| Ok(Prompts::default()), Prompts::load)?,
            slots: Arc::new(Semaphore::new(MAX_RUNS)),
            summaries: Arc::new(Semaphore::new(MAX_SUMMARIES)),
            plans: Plans::default(),
            clock,
        });
        gateway.background().each_minute(&agents, |agents| agents.plans.logs.remove_expired());
        Ok(agents)
    }

    /// The gateway whose tools its agents use.
    pub fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// The tenants, models, skills and types of sub-agents.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(super) fn plans(&self) -> &Plans {
        &self.plans
    }

    pub(super) fn prompts(&self) -> &Prompts {
        &self.prompts
    }

    /// Starts a run, or with a profile that has a planner a plan. Dropping the stream ends it.
    /// Errors: `overloaded` if too many agents run, `upstream_error` if the profile's model cannot be used,
    /// `invalid_request` for an option that its provider cannot keep, or of a plan for tools of the client.
    pub async fn begin(self: &Arc<Self>, request: AgentRequest) -> Result<BoxStream<'static, Event>, CallError> {
        let request = request.without_agent_for_task();
        match request.profile.planner.clone() {
            Some(planner) => Box::pin(self.begin_plan(request, planner)).await,
            None => Ok(Box::pin(self.begin_run(request)).await?.boxed()),
        }
    }

    /// Starts a plan in a conversation.
    async fn begin_plan(
        self: &Arc<Self>,
        request: AgentRequest,
        planner: PlannerConfig,
    ) -> Result<BoxStream<'static, Event>, CallError> {
        let reminder = self.thread_summary(&request).await;
        let outcome = Outcome {
            service: Arc::clone(self),
            profile: Arc::clone(&request.profile),
            caller: Arc::clone(&request.caller),
            scopes: request.scopes.clone(),
            input: request.messages.clone(),
            thread: request.thread.clone(),
            old: reminder,
            pauses: request.pauses,
            sent: SentPrefix::default(),
        };
        let reminder = outcome.old.as_deref().map(prompts::reminder).map(Message::System);
        let Restored { messages: mut history, .. } = self.history(&request).await?;
        client_calls::forget_paused(&mut history);
        let messages = reminder.into_iter().chain(history).collect();
        let request = AgentRequest { messages, ..request };
        let events = self.follow_plan(NewPlan { request, planner, approve: false }).await?;
        let mut outcome = Some(outcome);
        let events = events.inspect(move |event| {
            if let Event::Finished { reason, messages } = event
                && let Some(outcome) = outcome.take()
            {
                outcome.summarize_thread(*reason, messages);
            }
        });
        Ok(events.boxed())
    }

    /// Starts a run of the agent loop, whether or not the profile has a planner.
    /// Errors: as [`begin`](Self::begin).
    pub(super) async fn begin_run(
        self: &Arc<Self>,
        mut request: AgentRequest,
    ) -> Result<impl Stream<Item = Event> + Send + 'static, CallError> {
        let slot = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| CallError::new(ErrorCode::Overloaded, "too many agents run at once; try again later"))?;
        request.options.check(&request.profile)?;
        if request.depth == 0 {
            self.admit(&mut request).await?;
        }
        request.limit_tools();
        let gateway = &self.gateway;
        let model = open(&request.profile, gateway)?;
        let history = self.history(&request).await?;
        let offer = self.offer(&request, &history.messages).await?;
        let reminder = self.thread_summary(&request).await;
        let Beginning { messages, toolbox, started, sent } =
            self.beginning(&request, history, offer, reminder.as_deref()).await?;
        let summarizer = self.summarizer(&request.profile);
        let mut recording = recording::begin(gateway, &request, &messages, summarizer.as_ref());
        let record = recording.as_ref().map(|recording| Arc::clone(&recording.record));
        let toolbox = match &record {
            Some(record) => record.over(toolbox),
            None => toolbox,
        };
        let call_ids = record.as_deref().map(RunRecord::call_ids).unwrap_or_default();
        let meter = Arc::new(request.meter(gateway).recorded_in(record));
        let mut recorder = RunRecorder::open(gateway, &request, Arc::clone(&meter));
        let AgentRequest {
            profile,
            caller,
            messages: input,
            client_tools,
            options,
            thread,
            scopes,
            abort,
            usage,
            observer,
            pauses,
            ..
        } = request;
        let agent = Agent { model, toolbox, profile: Arc::clone(&profile), summarizer };
        let events = agent.run(RunInput {
            messages,
            client_tools,
            options,
            abort,
            meter,
            span: recorder.span(),
            observer,
            pauses: pauses != Pauses::Never,
            call_ids,
        });
        let service = Arc::clone(self);
        let mut outcome =
            Some(Outcome { service, profile, caller, scopes, input, thread, old: reminder, pauses, sent });
        Ok(async_stream::stream! {
            let _taken = slot;
            let mut events = pin!(subagents::merged(events, started));
            while let Some(event) = events.next().await {
                recorder.record(&event);
                if let (Event::Resumed { answer }, Some(outcome)) = (&event, &outcome) {
                    outcome.keep_resumed(answer).await;
                }
                if let Event::Finished { reason, messages } = &event
                    && let Some(recording) = recording.take()
                {
                    Box::pin(recording.end(*reason, messages)).await;
                }
                if let Event::Finished { reason, messages } = &event
                    && let Some(outcome) = outcome.take()
                {
                    // Before the client knows the calls that it is to run.
                    outcome.keep_paused(*reason, messages).await;
                    outcome.summarize_thread(*reason, messages);
                }
                yield with_sub_agents(event, &usage);
            }
        })
    }

    /// The names of the models and profiles that a caller's runs can use: their tenant has them, they are active, and their
    /// providers open.
    /// Errors: `invalid_request` if the tenant is inactive; `overloaded` if the store is away.
    pub async fn usable_models(&self, caller: &Caller) -> Result<Vec<String>, CallError> {
        let tenant = self.catalog.active_tenant(&caller.tenant).await?;
        let mut usable = Vec::new();
        for name in self.catalog.models(&tenant).await? {
            let found = self.catalog.model_of(&tenant, Some(&name)).await;
            if found.is_ok_and(|found| open(&found.profile, &self.gateway).is_ok()) {
                usable.push(name);
            }
        }
        Ok(usable)
    }

    /// Whether [`usable_models`](Self::usable_models) has the model.
    /// Errors: `not_found`: there is no such model or profile, it is inactive, the caller's tenant may not use it, or
    /// it cannot be used, for example without a key; `invalid_request`: the tenant is inactive.
    pub async fn check_model(&self, caller: &Caller, name: &str) -> Result<(), CallError> {
        let tenant = self.catalog.active_tenant(&caller.tenant).await?;
        let found = self.catalog.model_of(&tenant, Some(name)).await;
        let opened = found.and_then(|found| open(&found.profile, &self.gateway).map(drop));
        opened.map_err(|error| match error.code() {
            ErrorCode::InvalidRequest | ErrorCode::UpstreamError => {
                let alternatives = error.alternatives().to_vec();
                CallError::new(ErrorCode::NotFound, error.message()).with_alternatives(alternatives)
            }
            _ => error,
        })
    }

    /// The estimated tokens of the first request to the model in a run.
    /// Errors: `invalid_request` if the caller's tenant may not run the agent.
    pub async fn count_prompt(&self, mut request: AgentRequest) -> Result<u64, CallError> {
        self.admit(&mut request).await?;
        request.limit_tools();
        let Restored { messages: history, prefix } = self.history(&request).await?;
        let Listed { tools, .. } = offer(&self.gateway, &request, &history, 0).await;
        let reminder = self.thread_summary(&request).await;
        let prefix = prefix.filter(|prefix| *prefix.agent == *request.agent);
        let prompt = prefix.map_or_else(|| self.system_prompt(&request.profile, &tools), |prefix| prefix.system);
        let messages = conversation(prompt, history, reminder.as_deref());
        let tools: Vec<_> = tools.into_iter().chain(request.client_tools).collect();
        Ok(context::tokens_of(&messages, &tools))
    }

    /// Checks that the caller's tenant may run the agent, and limits the tools to those that it has.
    async fn admit(&self, request: &mut AgentRequest) -> Result<(), CallError> {
        let tenant = self.catalog.active_tenant(&request.caller.tenant).await?;
        self.check_agent(&tenant, &request.agent).await?;
        if !tenant.settings.has_every_source() {
            let (gateway, toolbox) = (Arc::clone(&self.gateway), Arc::clone(&request.toolbox));
            request.toolbox = Arc::new(OfTenant { gateway, tenant: tenant.settings, toolbox });
        }
        Ok(())
    }

    async fn check_agent(&self, tenant: &Tenant, name: &str) -> Result<(), CallError> {
        if tenant.settings.has_model(name) {
            return Ok(());
        }
        let message = format!("there is no agent {name:?} for this tenant; use one of the others");
        Err(CallError::new(ErrorCode::InvalidRequest, message).with_alternatives(self.catalog.models(tenant).await?))
    }

    /// The conversation so far: the client's messages, and the messages of its paused runs; documents as far as the
    /// model reads them.
    async fn history(&self, request: &AgentRequest) -> Result<Restored, CallError> {
        let (store, messages) = (self.gateway.store(), request.messages.clone());
        let mut history = client_calls::restore(store, &request.caller.key, messages).await?;
        if !models::reads_documents(&request.profile) {
            history.messages.iter_mut().for_each(Message::forget_documents);
        }
        Ok(history)
    }

    async fn thread_summary(&self, request: &AgentRequest) -> Option<String> {
        let thread =
            request.thread.as_deref().filter(|_| self.gateway.configuration().current().agent.memory.summaries)?;
        let summary = self.gateway.store().thread_summaries().get(&request.caller.key, thread).await;
        summary.unwrap_or_else(|error| {
            tracing::warn!(%error, "a run continues without its thread's summary");
            None
        })
    }
}

/// The profile with that name.
/// Errors: `invalid_request`, with the names of all profiles.
pub fn profile(config: &AgentConfig, name: &str) -> Result<Arc<AgentProfile>, CallError> {
    match config.profiles.get(name) {
        Some(profile) => Ok(Arc::new(profile.clone())),
        None => {
            let shown: String = name.chars().take(100).collect();
            let names: Vec<_> = config.profiles.keys().cloned().collect();
            let message = format!(
                "there is no agent {shown:?}, only {}; `GET /v1/models` lists those that can be used",
                names.join(", ")
            );
            Err(CallError::new(ErrorCode::InvalidRequest, message).with_alternatives(names))
        }
    }
}

/// Tokens and cost of the whole run include its sub-agents; turns and calls are its own.
fn with_sub_agents(event: Event, usage: &UsageByAgent) -> Event {
    let Event::Usage(own) = event else { return event };
    let RunUsage { turns, tool_calls, duration_ms, .. } = own;
    Event::Usage(RunUsage { turns, tool_calls, duration_ms, ..usage.total() })
}

/// The model of a profile, with the fallbacks that can be used.
fn open(profile: &AgentProfile, gateway: &Gateway) -> Result<Arc<dyn Model>, CallError> {
    let open = |profile: &AgentProfile| {
        models::open(profile, gateway.outbound(), &gateway.pipeline.settlement.metrics)
            .map_err(|problem| CallError::new(ErrorCode::UpstreamError, problem.to_string()).permanently())
    };
    let model = open(profile)?;
    if profile.fallbacks.is_empty() {
        return Ok(model);
    }
    let config = gateway.configuration().current();
    let mut fallbacks = Vec::new();
    for fallback in &profile.fallbacks {
        let Some(other) = config.agent.profiles.get(&fallback.profile) else { continue };
        match open(other) {
            Ok(model) => {
                fallbacks.push(Fallback { config: fallback.clone(), model, profile: Arc::new(other.clone()) });
            }
            Err(problem) => tracing::warn!(profile = fallback.profile, %problem, "a fallback cannot be used"),
        }
    }
    Ok(Arc::new(WithFallbacks { model, fallbacks }))
}

impl fmt::Debug for AgentService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AgentService").field("slots", &self.slots).finish_non_exhaustive()
    }
}
