//! The calls that ended last, as far as a caller may see them: their own; the calls of their tenant with a role of the
//! console; the calls of all tenants for administrators without a tenant of their own.

use std::sync::Arc;

use super::History;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::CallSummary;

/// The reach of a caller: whose calls it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Own,
    Tenant,
    AllTenants,
}

/// The wanted calls: calls that fit each criterion that is set.
#[derive(Debug, Clone, Default)]
pub struct CallFilter {
    pub tool: Option<String>,
    pub caller: Option<String>,
    pub status: Option<String>,
    /// An error code, such as `denied`.
    pub code: Option<String>,
    /// The id of the call in an agent's run.
    pub agent_call: Option<String>,
    /// Only older calls than the one with this number.
    pub before: Option<u64>,
    /// Only newer calls than the one with this number.
    pub after: Option<u64>,
}

impl Reach {
    fn covers(self, caller: &Caller, call: &CallSummary) -> bool {
        match self {
            Self::AllTenants => true,
            Self::Tenant => caller.tenant == call.tenant,
            Self::Own => caller.owner == call.owner,
        }
    }
}

impl CallFilter {
    fn admits(&self, call: &CallSummary) -> bool {
        let fits = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
        fits(&self.tool, &call.tool)
            && fits(&self.caller, &call.caller)
            && fits(&self.status, call.status.as_str())
            && fits(&self.code, call.code.map_or("", |code| code.as_str()))
            && fits(&self.agent_call, call.agent_call.as_deref().unwrap_or_default())
            && self.before.is_none_or(|before| call.sequence < before)
    }
}

impl History {
    /// The wanted calls that the caller may see, newest first.
    pub fn recent_calls(&self, caller: &Caller, filter: &CallFilter) -> Vec<Arc<CallSummary>> {
        let reach = self.configuration.reach(caller);
        let recent = &self.pipeline.settlement.recent;
        recent.newest_after(filter.after.unwrap_or(0), |call| reach.covers(caller, call) && filter.admits(call))
    }

    /// The calls made by running tools that the caller may see, in the order in which they ended.
    pub fn recent_nested_calls(&self, caller: &Caller) -> Vec<Arc<CallSummary>> {
        let reach = self.configuration.reach(caller);
        let recent = &self.pipeline.settlement.recent;
        let mut found = recent.newest(|call| call.parent.is_some() && reach.covers(caller, call));
        found.reverse();
        found
    }

    /// One call.
    ///
    /// # Errors
    /// `not_found`: there is none in memory, or none that the caller may see.
    pub fn recent_call(&self, caller: &Caller, id: &str) -> Result<Arc<CallSummary>, CallError> {
        let reach = self.configuration.reach(caller);
        let found = self.pipeline.settlement.recent.newest(|call| reach.covers(caller, call));
        found.into_iter().find(|call| call.id.to_string() == id).ok_or_else(|| {
            let message = "there is no such call among the last 2000; the audit trail may have it: \
                           `sekisho audit search --call-id ID`";
            CallError::new(ErrorCode::NotFound, message)
        })
    }
}
