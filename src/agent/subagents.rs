//! Sub-agents: agents that an agent starts with the tool `Task` (C24–C28).
//!
//! They run within their call: in parallel with the other calls of the turn, and dropped with the run.

pub(super) mod files;
mod task;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use async_stream::stream;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use self::task::{Answer, Started, Task, description};
use super::catalog::INHERIT;
use super::service::{AgentRequest, AgentService};
use super::toolbox::{ToolAnswer, ToolDescription, Toolbox, ToolboxCall, ToolboxLayer, ToolboxUnreachable};
use super::usage::UsageByAgent;
use super::{Event, Message};
use sekisho_config::{AgentProfile, ProfilePrompt, SubAgentType, TASK};
use sekisho_core::call::{BudgetScopes, Caller, TraceParent};
use sekisho_core::error::CallError;
use sekisho_observe::telemetry;
use sekisho_sandbox::PYTHON;

/// Sub-agents within each other: one of the third level starts no more.
pub(super) const MAX_DEPTH: u32 = 3;

/// A toolbox with the tool `Task`.
pub(super) struct SubAgents {
    service: Arc<AgentService>,
    /// The agent's own tools.
    offered: Arc<dyn Toolbox>,
    types: BTreeMap<String, SubAgentType>,
    /// Names of models that `Task` may name.
    models: Vec<String>,
    parent: Parent,
    /// The events beside the calls' results.
    events: UnboundedSender<Event>,
}

/// The settings that a sub-agent has from the agent that starts it.
struct Parent {
    profile: Arc<AgentProfile>,
    caller: Arc<Caller>,
    /// All its tools, from which the type's filter selects.
    toolbox: Arc<dyn Toolbox>,
    layer: Option<ToolboxLayer>,
    scopes: BudgetScopes,
    trace: Option<TraceParent>,
    conversation: Option<Arc<str>>,
    usage: UsageByAgent,
    depth: u32,
    abort: CancellationToken,
}

impl SubAgents {
    /// For a request whose agent may start these types. `offered`: the agent's own tools.
    pub(super) fn new(
        service: &Arc<AgentService>,
        request: &AgentRequest,
        types: BTreeMap<String, SubAgentType>,
        models: Vec<String>,
        offered: Arc<dyn Toolbox>,
        events: UnboundedSender<Event>,
    ) -> Self {
        let parent = Parent {
            profile: Arc::clone(&request.profile),
            caller: Arc::clone(&request.caller),
            toolbox: Arc::clone(&request.toolbox),
            layer: request.layer.clone(),
            scopes: request.scopes.clone(),
            trace: request.trace.clone(),
            conversation: request.conversation.clone(),
            usage: request.usage.clone(),
            depth: request.depth,
            abort: request.abort.clone(),
        };
        Self { service: Arc::clone(service), offered, types, models, parent, events }
    }

    /// The description of `Task` for the model.
    pub(super) fn description(&self) -> ToolDescription {
        description(&self.types, &self.models)
    }

    async fn start(&self, call: ToolboxCall) -> Result<ToolAnswer, CallError> {
        let task = Task::read(call.arguments)?;
        let kind = self.types.get(&task.subagent_type).ok_or_else(|| task.unknown_type(&self.types))?;
        let profile = Arc::new(self.profile(kind, task.model.as_deref()).await?);
        let agent: Arc<str> = task.subagent_type.as_str().into();
        let tool_use_id = call.id.clone();
        // Dropped after the events, when all of them are counted.
        let mut started =
            Started::new(call.id, Arc::clone(&agent), profile.model(), &self.parent.usage, self.events.clone());
        let parent = &self.parent;
        let messages = vec![Message::User(task.prompt.into())];
        let (caller, toolbox) = (Arc::clone(&parent.caller), Arc::clone(&parent.toolbox));
        let request = AgentRequest {
            scopes: parent.scopes.clone(),
            trace: telemetry::current().or_else(|| parent.trace.clone()),
            conversation: parent.conversation.clone(),
            abort: parent.abort.child_token(),
            layer: parent.layer.clone(),
            usage: started.usage.clone(),
            depth: parent.depth + 1,
            ..AgentRequest::new(&agent, profile, caller, toolbox, messages)
        };
        let mut events = pin!(self.service.begin(request).await?);
        let mut answer = Answer::default();
        while let Some(event) = events.next().await {
            // Its own sub-agents are visible too.
            let is_of_its_own = |event: &Event| {
                matches!(event, Event::SubAgentBegin { .. } | Event::SubAgentText { .. } | Event::SubAgentEnd { .. })
            };
            if is_of_its_own(&event) {
                let _run_has_ended = self.events.send(event);
                continue;
            }
            if let Event::Content { text } = &event {
                let (tool_use_id, text) = (tool_use_id.clone(), text.clone());
                let _run_has_ended = self.events.send(Event::SubAgentText { tool_use_id, text });
            }
            answer.record(event);
        }
        let answer = answer.into_tool_answer();
        started.success = answer.success;
        Ok(answer)
    }

    /// The type's prompt, tools and limits, and the model: the call's, the type's, the one for all sub-agents, or the
    /// model of the agent that starts it.
    async fn profile(&self, kind: &SubAgentType, asked: Option<&str>) -> Result<AgentProfile, CallError> {
        let parent = &*self.parent.profile;
        let named = asked.or(kind.model.as_deref()).filter(|name| !name.is_empty());
        let base = match named {
            Some(INHERIT) => parent.clone(),
            named => self.service.catalog().model_of_subagent(&self.parent.caller.tenant, named, parent).await?,
        };
        Ok(AgentProfile {
            prompt: ProfilePrompt { replace: Some(kind.prompt.clone()), append: None },
            tools: kind.tools.clone(),
            code_mode: base.code_mode && kind.tools.admits(PYTHON),
            subagents: kind.subagents.clone(),
            max_turns: kind.max_turns.unwrap_or(parent.max_turns),
            max_tool_calls: kind.max_tool_calls.unwrap_or(parent.max_tool_calls),
            max_run_seconds: kind.max_run_seconds.unwrap_or(parent.max_run_seconds),
            run_tokens: kind.run_tokens.unwrap_or(parent.run_tokens),
            ..base
        })
    }
}

impl Toolbox for SubAgents {
    fn list(&self) -> BoxFuture<'_, Result<Vec<ToolDescription>, ToolboxUnreachable>> {
        Box::pin(async {
            let mut tools = self.offered.list().await?;
            tools.retain(|tool| tool.name != TASK);
            tools.insert(0, self.description());
            Ok(tools)
        })
    }

    fn call(&self, call: ToolboxCall) -> BoxFuture<'_, ToolAnswer> {
        if call.tool != TASK {
            return self.offered.call(call);
        }
        Box::pin(async move { self.start(call).await.unwrap_or_else(|error| task::refused(&error)) })
    }
}

/// The events of a run, with the events of its sub-agents as they happen.
pub(super) fn merged(
    run: impl Stream<Item = Event> + Send + 'static,
    mut started: Option<UnboundedReceiver<Event>>,
) -> impl Stream<Item = Event> + Send + 'static {
    stream! {
        let mut run = pin!(run);
        loop {
            let (event, is_of_run) = tokio::select! {
                biased;
                Some(event) = next_of(&mut started) => (Some(event), false),
                event = run.next() => (event, true),
            };
            let Some(event) = event else { break };
            // The end of a sub-agent comes before the result of its call, which the run may have at the same moment.
            if is_of_run {
                while let Some(earlier) = started.as_mut().and_then(|started| started.try_recv().ok()) {
                    yield earlier;
                }
            }
            yield event;
        }
    }
}

async fn next_of(started: &mut Option<UnboundedReceiver<Event>>) -> Option<Event> {
    match started {
        Some(started) => started.recv().await,
        None => None,
    }
}

#[cfg(test)]
mod tests;
