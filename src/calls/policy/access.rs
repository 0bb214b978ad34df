//! Decides which tools a caller may use, as far as this is possible without a call. Used by every listing of tools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use regorus::Value;

use super::set::{PolicySet, Verdict};
use super::{input, refusal};
use crate::registry::{Part, Search, Snapshot};
use crate::tool::{Missing, Tool};
use crate::used_tools::UsedTools;
use sekisho_core::bounded::BoundedCache;
use sekisho_core::call::{CallKind, Caller};
use sekisho_core::error::{CallError, ErrorCode};

/// Whether a caller may use a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// No reason against it. Rules that read more than tool and user are evaluated only for a call.
    Usable,
    /// No reason against it but the scopes of the caller's token: its client may get another one.
    NeedsScopes,
    /// A call would be refused, by a check or by the policy set, for these reasons.
    Refused(Box<[String]>),
    /// The tool is hidden from the caller.
    Hidden,
}

/// The tools of one snapshot of the registry, with one caller's access to each.
#[derive(Debug, Clone)]
pub struct CallerTools {
    set: Arc<PolicySet>,
    snapshot: Arc<Snapshot>,
    caller: Arc<Caller>,
    /// In the order of `snapshot`.
    access: Arc<[Access]>,
    used: Arc<UsedTools>,
}

impl CallerTools {
    /// All tools that are not hidden from the caller, sorted by name. The tool that reads stored results is missing: it
    /// is listed for models that get handles of them.
    pub fn visible(&self) -> impl Iterator<Item = (&Arc<Tool>, &Access)> {
        self.listed().filter(|(_, access)| **access != Access::Hidden)
    }

    /// The tools that the caller may use, sorted by name.
    pub fn usable(&self) -> impl Iterator<Item = &Arc<Tool>> {
        let is_usable = |tool: &Tool, access: &Access| access.is_usable() && !tool.metadata.is_off_for(&self.caller);
        self.all().filter(move |(tool, access)| is_usable(tool, access)).map(|(tool, _)| tool)
    }

    /// The usable tools for models that match a query best, with their scores, ranked also by the tools that the caller's tenant used. The
    /// calls that follow count for this query.
    pub fn search(&self, query: &str, at_most: usize) -> Vec<(&Arc<Tool>, f64)> {
        let may_be_found = |tool: &Arc<Tool>| {
            let is_on = !tool.metadata.is_off_for(&self.caller);
            let is_for_search = is_on && tool.metadata.is_for_models() && !tool.metadata.reads_results();
            is_for_search && self.access_to(tool.name()).is_some_and(Access::is_usable)
        };
        self.used.searched(&self.caller, query, Timestamp::now());
        self.used.of(&self.caller, |usage| {
            self.snapshot.search_where(Search { query, at_most, part: Part::All, usage }, may_be_found)
        })
    }

    /// The access to every tool of the snapshot, in its order.
    pub fn access(&self) -> &[Access] {
        &self.access
    }

    /// The requirements of a tool that the caller does not meet.
    pub fn missing(&self, tool: &Tool, access: &Access) -> Vec<Missing> {
        let checks = self.set.checks.unmet(&tool.metadata, &self.caller).map(|unmet| Missing {
            check: unmet.check.as_str(),
            roles: unmet.roles.to_vec(),
            message: unmet.message(),
        });
        let refused = |reason: &String| Missing { check: "policy", roles: Vec::new(), message: reason.clone() };
        checks.chain(access.reasons().iter().map(refused)).collect()
    }

    /// The tool, if the caller may use it.
    /// Errors: the error with which a call would be refused.
    pub fn find(&self, name: &str) -> Result<&Arc<Tool>, CallError> {
        let tool = self.snapshot.find(name, &self.caller)?;
        self.set.checks.pass(&tool.metadata, &self.caller)?;
        match self.access_to(name) {
            Some(Access::Refused(reasons)) => Err(refusal(ErrorCode::Denied, "deny", reasons.to_vec())),
            _ => Ok(tool),
        }
    }

    /// A text with the number of tools that the caller may not use, and their requirements; `None` when there are none.
    pub fn left_out(&self) -> Option<String> {
        let mut needs = BTreeMap::<String, usize>::new();
        for (tool, access) in self.listed().filter(|(_, access)| !access.is_usable()) {
            let unmet: Vec<_> = self.set.checks.unmet(&tool.metadata, &self.caller).map(|unmet| unmet.need()).collect();
            let need = match access.reasons() {
                [] => unmet.join(" and "),
                _ => "a policy that lets this caller use it".to_owned(),
            };
            *needs.entry(need).or_default() += 1;
        }
        let (count, all) = (needs.values().sum::<usize>(), self.listed().count());
        let needs = needs.iter().map(|(need, tools)| format!("{tools} {} {need}", plural(*tools, "needs", "need")));
        let needs = needs.collect::<Vec<_>>().join("; ");
        (count > 0)
            .then(|| format!("{count} of {all} tools {} left out for this caller: {needs}", plural(count, "is", "are")))
    }

    /// The tools of every list. Tools of another tenant, and of sources that are off, are in none, and are not counted either.
    fn listed(&self) -> impl Iterator<Item = (&Arc<Tool>, &Access)> {
        let is_foreign =
            |tool: &Tool| tool.metadata.is_of_another_tenant(&self.caller) || tool.metadata.is_off_for(&self.caller);
        self.all().filter(move |(tool, _)| !tool.metadata.reads_results() && !is_foreign(tool))
    }

    fn all(&self) -> impl Iterator<Item = (&Arc<Tool>, &Access)> {
        self.snapshot.tools().iter().zip(self.access.iter())
    }

    fn access_to(&self, name: &str) -> Option<&Access> {
        let at = self.snapshot.tools().binary_search_by(|tool| tool.name().cmp(name)).ok()?;
        self.access.get(at)
    }
}

impl Access {
    pub fn is_usable(&self) -> bool {
        *self == Self::Usable
    }

    /// Whether a client that can sign its user in again may use the tool.
    pub fn is_usable_with_scopes(&self) -> bool {
        matches!(self, Self::Usable | Self::NeedsScopes)
    }

    fn reasons(&self) -> &[String] {
        match self {
            Self::Refused(reasons) => reasons,
            Self::Usable | Self::NeedsScopes | Self::Hidden => &[],
        }
    }
}

fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// The computed access of callers for one policy set and one snapshot of the registry.
#[derive(Debug, Default)]
pub(super) struct Listings {
    present: ArcSwapOption<Listing>,
    pub(super) used: Arc<UsedTools>,
}

#[derive(Debug)]
struct Listing {
    set: Arc<PolicySet>,
    snapshot: Arc<Snapshot>,
    by_caller: BoundedCache<Arc<Caller>, Arc<[Access]>>,
}

/// Maximum (tool, caller) pairs, about 16 bytes each; and maximum callers.
const MAX_KEPT: usize = 1_000_000;
const MAX_CALLERS: usize = 4_096;

/// Maximum time to evaluate the rules for one listing. The remaining tools stay listed, because a call evaluates the
/// rules anyway.
const RULES_TIMEOUT: Duration = Duration::from_millis(250);

impl Listings {
    pub(super) fn tools_for(&self, set: Arc<PolicySet>, snapshot: &Arc<Snapshot>, caller: &Arc<Caller>) -> CallerTools {
        let listing = self.of(&set, snapshot);
        let known = listing.by_caller.get(caller, |known| Some(Arc::clone(known)));
        let access = known.unwrap_or_else(|| {
            let access = access_to_all(&set, snapshot, caller);
            // A token is no part of who a caller is, and would stay here for as long as the policies and tools do.
            listing.by_caller.insert(caller.without_token(), Arc::clone(&access), |_| false);
            access
        });
        let (snapshot, caller, used) = (Arc::clone(snapshot), Arc::clone(caller), Arc::clone(&self.used));
        CallerTools { set, snapshot, caller, access, used }
    }

    fn of(&self, set: &Arc<PolicySet>, snapshot: &Arc<Snapshot>) -> Arc<Listing> {
        let is_of = |kept: &Arc<Listing>| Arc::ptr_eq(&kept.set, set) && Arc::ptr_eq(&kept.snapshot, snapshot);
        self.present.load_full().filter(is_of).unwrap_or_else(|| {
            let (set, snapshot) = (Arc::clone(set), Arc::clone(snapshot));
            let max_callers = (MAX_KEPT / snapshot.tools().len().max(1)).clamp(1, MAX_CALLERS);
            let fresh = Arc::new(Listing { set, snapshot, by_caller: BoundedCache::new(max_callers) });
            self.present.store(Some(Arc::clone(&fresh)));
            fresh
        })
    }
}

fn access_to_all(set: &PolicySet, snapshot: &Snapshot, caller: &Arc<Caller>) -> Arc<[Access]> {
    // The machine's own clock: this is work, which a paused tokio clock would not see.
    let started = Instant::now();
    let can_decide = set.reads.same_for_all_calls_of(CallKind::Tool);
    // Rules that read nothing have the same result for every tool.
    let same = (can_decide && !set.reads_input).then(|| set.evaluate(&Value::new_object()).ok());
    let rules = |tool: &Tool| match &same {
        Some(verdict) => verdict.clone(),
        None if !can_decide || started.elapsed() > RULES_TIMEOUT => None,
        None => set.evaluate(&input::subject(&tool.metadata, &tool.flags, caller)).ok(),
    };
    snapshot.tools().iter().map(|tool| access(set, tool, caller, rules)).collect()
}

/// Whether the caller may use the tool. If the evaluation fails, the tool stays listed, and a call of it is refused.
fn access(set: &PolicySet, tool: &Tool, caller: &Caller, rules: impl FnOnce(&Tool) -> Option<Verdict>) -> Access {
    if tool.metadata.is_hidden_from(caller) {
        return Access::Hidden;
    }
    let needs_scopes = set.checks.needs_only_scopes(&tool.metadata, caller);
    if !needs_scopes && set.checks.unmet(&tool.metadata, caller).next().is_some() {
        return Access::Refused(Box::default());
    }
    match rules(tool) {
        Some(Verdict { denials, .. }) if !denials.is_empty() => Access::Refused(denials.into()),
        _ if needs_scopes => Access::NeedsScopes,
        _ => Access::Usable,
    }
}

#[cfg(test)]
mod tests;
