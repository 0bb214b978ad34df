//! The tools that a run may call.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::{AgentRequest, AgentService};
use crate::catalog::Tenant;
use crate::skill_tool::{SkillWorkspace, WithSkills};
use crate::subagents::{self, SubAgents};
use crate::toolbox::{CodeMode, Shortlist, call_tool, wait, with_deferred};
use crate::{Event, Message, ToolDescription, Toolbox};
use sekisho_config::SKILL;
use sekisho_core::error::CallError;
use sekisho_gateway::Gateway;

/// The tools that a run may call.
pub(super) struct Offer {
    pub(super) toolbox: Arc<dyn Toolbox>,
    pub(super) tools: Vec<ToolDescription>,
    /// All that a call can reach, and not only those that the model accepts; `None`: they could not be listed.
    pub(super) all: Option<Vec<ToolDescription>>,
    /// The events of its sub-agents.
    pub(super) started: Option<UnboundedReceiver<Event>>,
}

impl AgentService {
    /// The tools of the run: the tools of the request, as many as the model accepts, `Skill` where the tenant has
    /// skills, `Task` where the agent may start sub-agents, and in a session `CallTool` and `Wait`.
    pub(super) async fn offer(
        self: &Arc<Self>,
        request: &AgentRequest,
        history: &[Message],
    ) -> Result<Offer, CallError> {
        let types = match request.depth < subagents::MAX_DEPTH {
            true => self.catalog.subagents(&request.profile.subagents),
            false => BTreeMap::new(),
        };
        let id = Arc::clone(&request.caller.tenant);
        let tenant = Tenant { settings: self.catalog.tenant(&id).await?, id };
        let skills = match request.profile.tools.admits(SKILL) {
            true => self.catalog.skills_of(&tenant).await?,
            false => BTreeMap::new(),
        };
        let of_session = of_session(request);
        let others = usize::from(!types.is_empty()) + usize::from(!skills.is_empty()) + of_session.len();
        let Listed { mut toolbox, mut tools, mut all } = match request.profile.code_mode {
            true => {
                let code_mode = CodeMode { toolbox: Arc::clone(&request.toolbox) };
                let tools = code_mode.tools().await;
                Listed { toolbox: Arc::new(code_mode), all: Some(tools.clone()), tools }
            }
            false => offer(&self.gateway, request, history, others).await,
        };
        if !tools.is_empty() {
            tools.extend(of_session);
        }
        if !skills.is_empty() {
            let with_skills = WithSkills { offered: toolbox, skills, workspace: self.workspace_of(request) };
            tools.insert(0, with_skills.description());
            all.iter_mut().for_each(|all| all.push(with_skills.description()));
            toolbox = Arc::new(with_skills);
        }
        let (toolbox, tools, started) = if types.is_empty() {
            (toolbox, tools, None)
        } else {
            let models = self.catalog.models(&tenant).await?;
            #[expect(clippy::disallowed_methods, reason = "one task sends and receives, and receives first")]
            let (events, started) = mpsc::unbounded_channel();
            let with_task = SubAgents::new(self, request, types, models, toolbox, events);
            all.iter_mut().for_each(|all| all.push(with_task.description()));
            let tools = iter::once(with_task.description()).chain(tools).collect();
            (Arc::new(with_task) as Arc<dyn Toolbox>, tools, Some(started))
        };
        let toolbox = match &request.layer {
            Some(layer) => layer.over(toolbox),
            None => toolbox,
        };
        Ok(Offer { toolbox, tools, all, started })
    }

    fn workspace_of(&self, request: &AgentRequest) -> Option<SkillWorkspace> {
        let session = request.session.as_deref()?;
        let session = self.gateway.pipeline.sessions.prepare(&request.caller, session).ok()?;
        let name = session.workspace_name().to_owned();
        Some(SkillWorkspace { workspaces: self.gateway.workspaces().clone(), name })
    }
}

/// The tools that a run of a session has beside others.
fn of_session(request: &AgentRequest) -> Vec<ToolDescription> {
    if request.prefix.is_none() || request.profile.code_mode {
        return Vec::new();
    }
    [call_tool(), wait()].into_iter().filter(|tool| request.profile.tools.admits(&tool.name)).collect()
}

/// The tools of a request, without the tools that the agent adds itself.
pub(super) struct Listed {
    toolbox: Arc<dyn Toolbox>,
    pub(super) tools: Vec<ToolDescription>,
    all: Option<Vec<ToolDescription>>,
}

/// The toolbox and its tools, as many as the model accepts beside `others`, or its provider searches. If the tools cannot be
/// listed, the run logs it and continues without them (A68).
pub(super) async fn offer(gateway: &Gateway, request: &AgentRequest, history: &[Message], others: usize) -> Listed {
    let Ok(listed) = request.toolbox.list().await else {
        return Listed { toolbox: Arc::clone(&request.toolbox), tools: Vec::new(), all: None };
    };
    let others = request.client_tools.len() + others;
    let (count, remaining) = (listed.len(), request.profile.max_tools.saturating_sub(others));
    // Only a session compares them with the tools of later runs.
    let all = Some(request.prefix.as_ref().map_or_else(Vec::new, |_| listed.clone()));
    let tools = with_deferred(listed, (remaining, request.profile.deferred_tools()), history);
    let left_out = count.saturating_sub(tools.len());
    gateway.pipeline.settlement.metrics.record_tools_left_out(&request.agent, left_out);
    let toolbox = Arc::new(Shortlist { tools: tools.clone(), toolbox: Arc::clone(&request.toolbox) });
    Listed { toolbox, tools, all }
}
