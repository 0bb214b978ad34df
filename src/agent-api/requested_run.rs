//! A run of an agent for a request: its tools, and who it is for.

use std::sync::Arc;

use sekisho_agent::toolbox::InProcess;
use sekisho_agent::{AgentRequest, Message};
use sekisho_api::RequestMeta;
use sekisho_config::AgentProfile;
use sekisho_core::call::BudgetScopes;
use sekisho_core::session::Session;
use sekisho_gateway::Gateway;

/// The tools that an agent may call for this request: the tools that are on in the session.
pub(super) fn toolbox(meta: &RequestMeta, gateway: &Arc<Gateway>, session: Option<Arc<Session>>) -> InProcess {
    let mut toolbox = InProcess::new(Arc::clone(gateway), Arc::clone(&meta.caller));
    let run = toolbox.scopes.request.take();
    InProcess {
        scopes: BudgetScopes { request: meta.scopes.request.clone().or(run), is_run: true, ..meta.scopes.clone() },
        request: meta.request.clone(),
        off: session.as_ref().map(|session| session.tools_off()).unwrap_or_default(),
        session,
        trace: meta.trace.clone(),
        ..toolbox
    }
}

/// The agent request for this HTTP request.
pub(super) fn agent_request(
    meta: &RequestMeta,
    agent: &str,
    profile: Arc<AgentProfile>,
    toolbox: Arc<InProcess>,
    messages: Vec<Message>,
) -> AgentRequest {
    toolbox.begin(&profile.prompt, &messages);
    let scopes = toolbox.scopes.clone();
    AgentRequest {
        thread: meta.thread.clone(),
        scopes,
        trace: meta.trace.clone(),
        ..AgentRequest::new(agent, profile, Arc::clone(&meta.caller), toolbox, messages)
    }
}
