//! The context of a call besides its arguments, and the part of it that its program's calls inherit.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use sekisho_core::call::CallContext;

/// As the caller sent it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunContext {
    pub tool: String,
    pub session: Option<String>,
    /// The run or conversation of an agent, or the session of an MCP client, where that has its values.
    pub values_of: Option<String>,
    /// The text of the user.
    pub user_text: Option<String>,
    pub request: Option<String>,
    pub agent: Option<String>,
    pub task: Option<String>,
    pub claimed_user: Option<String>,
    pub prompt_params: Map<String, Value>,
    pub tool_parameters: Map<String, Value>,
}

impl RunContext {
    /// As [`CallOrigin::session_of_values`](sekisho_core::call::CallOrigin::session_of_values).
    pub fn session_of_values(&self) -> Option<&str> {
        self.values_of.as_deref().or(self.session.as_deref())
    }

    pub(super) fn of(call: &CallContext) -> Self {
        Self {
            tool: call.tool.clone(),
            session: call.origin.session.as_ref().map(|session| session.id.to_string()),
            values_of: call.origin.values_of.as_deref().map(str::to_owned),
            user_text: call.origin.user_text.as_deref().map(str::to_owned),
            request: call.charging.scopes.request.clone(),
            agent: call.charging.scopes.agent.clone(),
            task: call.charging.scopes.task.clone(),
            claimed_user: call.origin.claimed_user.clone(),
            prompt_params: call.origin.prompt_params.clone(),
            tool_parameters: call.origin.tool_parameters.clone(),
        }
    }
}
