//! What callers search for and then call, by tenant: the search ranks by it. In memory only: after a restart it is learnt anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use sekisho_core::bounded::BoundedMap;
use sekisho_core::call::CallContext;
use sekisho_core::caller::Caller;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_tool_search::{Usage, UsedTool};

/// Maximum tenants whose calls count, about 1 MB each.
const MAX_TENANTS: usize = 32;
/// Maximum callers whose last search is known.
const MAX_CALLERS: usize = 4_096;
/// Maximum characters of a search that are kept.
const MAX_QUERY: usize = 1_024;
/// Maximum calls after a search that are kept, and seconds for which calls belong to it.
const MAX_AFTER: usize = 8;
const SEARCH_SECONDS: u64 = 600;

/// What callers search for and then call.
#[derive(Debug)]
pub struct UsedTools {
    /// By the tenant's id.
    tenants: RwLock<BoundedMap<Arc<str>, Tenant>>,
    /// By the caller's key.
    searches: Mutex<BoundedMap<Arc<str>, Search>>,
    /// Whether there was a search since the start: without one a call takes no lock, and counts nothing that no search would read.
    has_searched: AtomicBool,
}

#[derive(Debug)]
struct Tenant {
    usage: Arc<RwLock<Usage>>,
    last_used: u64,
}

/// The last search of a caller, and its calls since.
#[derive(Debug)]
struct Search {
    query: String,
    at: u64,
    called: Vec<String>,
}

impl Default for UsedTools {
    fn default() -> Self {
        Self {
            tenants: RwLock::new(BoundedMap::new(MAX_TENANTS)),
            searches: Mutex::new(BoundedMap::new(MAX_CALLERS)),
            has_searched: AtomicBool::new(false),
        }
    }
}

impl UsedTools {
    /// Calls `read` with the counts of the caller's tenant.
    pub fn of<R>(&self, caller: &Caller, read: impl FnOnce(Option<&Usage>) -> R) -> R {
        let usage = self.tenants.read().get(&caller.tenant).map(|tenant| Arc::clone(&tenant.usage));
        match usage {
            Some(usage) => {
                let usage = usage.read();
                read(Some(&*usage))
            }
            None => read(None),
        }
    }

    /// The tools that callers of the caller's tenant call, the most used first.
    pub fn most_used(&self, caller: &Caller) -> Vec<String> {
        self.of(caller, |usage| {
            let tools = usage.map(Usage::most_used).unwrap_or_default();
            tools.into_iter().map(str::to_owned).collect()
        })
    }

    /// The caller searches: the calls that follow belong to this query.
    pub fn searched(&self, caller: &Caller, query: &str, now: Timestamp) {
        self.has_searched.store(true, Ordering::Relaxed);
        let search = Search { query: query.chars().take(MAX_QUERY).collect(), at: seconds(now), called: Vec::new() };
        let mut searches = self.searches.lock();
        searches.evict_for(&caller.key, |_, search| Some(search.at));
        let _before = searches.try_insert(Arc::clone(&caller.key), search);
    }

    /// A call of a tool has ended. One that was refused, or that the caller cancelled, says nothing about the tool.
    pub fn called(&self, call: &CallContext, error: Option<&CallError>, now: Timestamp) {
        if !self.has_searched.load(Ordering::Relaxed) {
            return;
        }
        let has_failed = match error {
            None => false,
            Some(error) if says_that_the_tool_fails(error.code()) => true,
            Some(_) => return,
        };
        if call.target.is_some() || call.dry_run {
            return;
        }
        let now = seconds(now);
        let (query, before) = self.search_of(call, has_failed, now).unzip();
        let before = before.unwrap_or_default();
        let before: Vec<_> = before.iter().map(String::as_str).collect();
        let usage = self.usage_of(&call.caller, now);
        // While a search reads, a call is not counted: counts need not be exact, and a call does not wait.
        if let Some(mut usage) = usage.as_ref().and_then(|usage| usage.try_write()) {
            usage.add(UsedTool { tool: &call.tool, query: query.as_deref(), before: &before, has_failed }, now);
        }
    }

    /// The search that a call belongs to, and the tools called after it and before this call.
    fn search_of(&self, call: &CallContext, has_failed: bool, now: u64) -> Option<(String, Vec<String>)> {
        let mut searches = self.searches.lock();
        let search = searches.get_mut(&call.caller.key)?;
        if now.saturating_sub(search.at) > SEARCH_SECONDS {
            searches.remove(&call.caller.key);
            return None;
        }
        let found = (search.query.clone(), search.called.clone());
        if !has_failed && search.called.len() < MAX_AFTER && !search.called.contains(&call.tool) {
            search.called.push(call.tool.clone());
        }
        Some(found)
    }

    /// The counts of a tenant. Where there is no room, the counts of the tenant go that has called nothing for the longest time.
    fn usage_of(&self, caller: &Caller, now: u64) -> Option<Arc<RwLock<Usage>>> {
        let known = self.tenants.read().get(&caller.tenant).map(|tenant| (Arc::clone(&tenant.usage), tenant.last_used));
        if let Some((usage, last_used)) = known
            && last_used == now
        {
            return Some(usage);
        }
        let mut tenants = self.tenants.write();
        tenants.evict_for(&caller.tenant, |_, tenant| Some(tenant.last_used));
        let make = || Tenant { usage: Arc::default(), last_used: now };
        let tenant = tenants.get_or_try_insert_with(Arc::clone(&caller.tenant), make)?;
        tenant.last_used = now;
        Some(Arc::clone(&tenant.usage))
    }
}

/// Whether an error says that the tool, or the service behind it, does not work.
fn says_that_the_tool_fails(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UpstreamError
            | ErrorCode::CircuitOpen
            | ErrorCode::Timeout
            | ErrorCode::InvalidOutput
            | ErrorCode::ToolError
    )
}

fn seconds(now: Timestamp) -> u64 {
    u64::try_from(now.as_second()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
