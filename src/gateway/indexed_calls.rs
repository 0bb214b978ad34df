//! The calls and events of the index, as far as a caller may see them: their own; all of their tenant with a role of the
//! console; all of all tenants for administrators without a tenant of their own.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::History;
use super::history::arrival;
use sekisho_config::ConsoleRole;
use sekisho_core::call::CallId;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::{CallSummary, EventRecord};
use sekisho_store::{CallCursor, CallOrder, EventFilter, Facet, FoundCalls, IndexFilter, IndexedCall};

/// The reach of a caller: whose calls it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Own,
    Tenant,
    AllTenants,
}

/// Calls of the tree of one call.
const MAX_NESTED: usize = 200;

/// Maximum times that one call of an agent is looked for, since each time has an entry of its own.
const MAX_TIMES: usize = 8;

impl History {
    /// The filter for the calls that the caller may see; `None` where these are none.
    pub(super) fn within_reach(&self, caller: &Caller, mut filter: IndexFilter) -> Option<IndexFilter> {
        let reach = self.configuration.reach(caller);
        if reach != Reach::AllTenants {
            let tenant = filter.tenant.get_or_insert_with(|| caller.tenant.to_string());
            if **tenant != *caller.tenant {
                return None;
            }
        }
        if reach == Reach::Own {
            filter.owner = Some(caller.owner.caller.to_string());
        }
        Some(filter)
    }

    /// The wanted calls that the caller may see, in an order: at most `limit` after a place.
    /// Errors: the database fails.
    pub async fn calls(
        &self,
        caller: &Caller,
        filter: IndexFilter,
        order: CallOrder,
        after: Option<&CallCursor>,
        limit: usize,
    ) -> Result<FoundCalls, CallError> {
        let Some(filter) = self.within_reach(caller, filter) else { return Ok(FoundCalls::default()) };
        self.index.write().await;
        Ok(self.index.store.calls(&filter, order, after, limit).await?)
    }

    /// The latest of the wanted calls that the caller may see.
    /// Errors: as [`calls`](Self::calls).
    pub async fn latest_calls(
        &self,
        caller: &Caller,
        filter: IndexFilter,
        limit: usize,
    ) -> Result<Vec<IndexedCall>, CallError> {
        Ok(self.calls(caller, filter, CallOrder::Time, None, limit).await?.calls)
    }

    /// The most frequent values of the wanted calls that the caller may see.
    /// Errors: as [`calls`](Self::calls).
    pub async fn facets(&self, caller: &Caller, filter: IndexFilter) -> Result<Vec<Facet>, CallError> {
        let Some(filter) = self.within_reach(caller, filter) else { return Ok(Vec::new()) };
        self.index.write().await;
        Ok(self.index.store.facets(&filter).await?)
    }

    /// One call.
    /// Errors: `not_found`: the index has none, or none that the caller may see; and the errors of
    /// [`calls`](Self::calls).
    pub async fn call(&self, caller: &Caller, id: &str) -> Result<IndexedCall, CallError> {
        let filter =
            IndexFilter { call_id: Some(id.to_ascii_lowercase()), since: arrival(id), ..IndexFilter::default() };
        self.latest_calls(caller, filter, 1).await?.pop().ok_or_else(|| {
            let message = "there is no such call in the index; the audit trail may have it: \
                           `sekisho audit search --call-id ID`";
            CallError::new(ErrorCode::NotFound, message)
        })
    }

    /// Why a call failed, in words that may quote the upstream; `None` for a caller without the role `operator` or `admin`, and
    /// where they are not kept.
    /// Errors: as [`calls`](Self::calls).
    pub async fn words(&self, caller: &Caller, call: &CallSummary) -> Result<Option<String>, CallError> {
        let roles = self.configuration.console_roles(caller);
        if !roles.iter().any(|role| matches!(role, ConsoleRole::Operator | ConsoleRole::Admin)) {
            return Ok(None);
        }
        Ok(self.index.words(call).await?)
    }

    /// The calls of an agent's run with these ids, by them: of one that was made again, the last.
    /// Errors: as [`calls`](Self::calls).
    pub async fn calls_of_agent(
        &self,
        caller: &Caller,
        ids: Vec<String>,
    ) -> Result<HashMap<String, Arc<CallSummary>>, CallError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let limit = ids.len().saturating_mul(MAX_TIMES);
        let filter = IndexFilter { agent_calls: ids, ..IndexFilter::default() };
        let found = self.latest_calls(caller, filter, limit).await?;
        let mut by_id = HashMap::new();
        for IndexedCall { call, .. } in found {
            if let Some(id) = call.agent_call.as_deref().map(str::to_owned) {
                by_id.entry(id).or_insert(call);
            }
        }
        Ok(by_id)
    }

    /// The calls that the tool of a call made, and the calls that their tools made, by the calls that made them, in the order in
    /// which they ended.
    /// Errors: as [`calls`](Self::calls).
    pub async fn calls_below(
        &self,
        caller: &Caller,
        root: CallId,
    ) -> Result<HashMap<CallId, VecDeque<Arc<CallSummary>>>, CallError> {
        let root = root.to_string();
        let since = arrival(&root);
        let (mut below, mut parents, mut left) = (HashMap::<_, VecDeque<_>>::new(), vec![root], MAX_NESTED);
        while !parents.is_empty() && left > 0 {
            let filter = IndexFilter { parents, since, ..IndexFilter::default() };
            let found = self.latest_calls(caller, filter, left).await?;
            left -= found.len().min(left);
            parents =
                found.iter().filter(|found| found.call.nested > 0).map(|found| found.call.id.to_string()).collect();
            for IndexedCall { call, .. } in found {
                if let Some(parent) = call.parent {
                    below.entry(parent).or_default().push_front(call);
                }
            }
        }
        Ok(below)
    }

    /// Events after a place, the latest first, and where to go on: all of the tenant; for administrators of all tenants, all.
    /// Errors: `denied` without a role of the console; the database fails.
    pub async fn events(
        &self,
        caller: &Caller,
        filter: EventFilter,
        after: Option<&CallCursor>,
        limit: usize,
    ) -> Result<(Vec<EventRecord>, Option<CallCursor>), CallError> {
        let tenant = match self.configuration.reach(caller) {
            Reach::AllTenants => filter.tenant.clone(),
            Reach::Tenant => Some(caller.tenant.to_string()),
            Reach::Own => {
                let message = "to see events requires a role of the console (`console.roles`)";
                return Err(CallError::new(ErrorCode::Denied, message));
            }
        };
        self.index.write().await;
        Ok(self.index.store.events(&EventFilter { tenant, ..filter }, after, limit).await?)
    }
}
