//! What the programs of a session may call.

use crate::core::call::CallContext;
use crate::core::token_scopes::TokenScopes;
use crate::core::tool_scope::{NestedScope, ToolScope};

/// What decides, besides the caller, which tools the programs of a call may call. All calls of a session have the same:
/// what a program leaves behind runs in the next call, with what that may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rights {
    roles: Vec<String>,
    tools: ToolScope,
    scopes: TokenScopes,
    nested_scope: NestedScope,
}

impl Rights {
    pub(super) fn of(call: &CallContext) -> Self {
        let mut roles = call.caller.roles.clone();
        roles.sort_unstable();
        Self {
            roles,
            tools: call.caller.tools.clone(),
            scopes: call.caller.scopes.clone(),
            nested_scope: call.nested_scope.clone(),
        }
    }
}
