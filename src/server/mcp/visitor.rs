//! Who asks, and what their calls belong to.

use std::sync::Arc;

use super::client::Client;
use crate::call::{BudgetScopes, CallContext, Caller, TraceParent, Via};

/// One request's sender.
#[derive(Debug)]
pub(super) struct Visitor {
    pub caller: Arc<Caller>,
    pub scopes: BudgetScopes,
    /// The MCP session, which is also the session of the calls in it.
    pub session: Option<String>,
    pub trace: Option<TraceParent>,
    /// Show three tools that find and call all others, instead of all of them.
    pub search: bool,
}

impl Visitor {
    /// Somebody with nothing but an identity.
    pub(super) fn new(caller: Arc<Caller>) -> Self {
        Self { caller, scopes: BudgetScopes::default(), session: None, trace: None, search: false }
    }

    pub(super) fn call(&self, tool: String, client: Arc<Client>) -> CallContext {
        CallContext {
            scopes: self.scopes.clone(),
            trace: self.trace.clone(),
            peer: Some(client),
            ..CallContext::new(tool, Arc::clone(&self.caller), Via::Mcp)
        }
    }
}
