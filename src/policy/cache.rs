//! What is worth keeping from call to call: the half of the policy input that a (tool, caller) pair
//! fixes, and the verdict itself where the policies read nothing but that half.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;
use regorus::Value;

use super::input;
use super::set::Verdict;
use crate::core::call::Caller;
use crate::tool::Tool;

/// Belongs to one policy set and goes with it, so that nothing outlives a reload.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// By a hash over tool and caller; [`Known::is_of`] tells apart what shares one.
    pairs: DashMap<u64, Arc<Known>>,
    hasher: RandomState,
}

/// A tool and a caller seen before.
#[derive(Debug)]
pub(super) struct Known {
    tool: u64,
    caller: Arc<Caller>,
    /// The policy input's `tool`, `metadata` and `user`.
    pub(super) subject: Value,
    /// Set once, and only where it holds for every call of this pair.
    pub(super) verdict: OnceLock<Verdict>,
}

/// Pairs kept at once, some 2 KB each. Beyond it all are forgotten: simpler than an order of use,
/// and a pair costs a few microseconds to learn again.
const MAX_PAIRS: usize = 4_096;

impl Cache {
    pub(super) fn known(&self, tool: &Tool, caller: &Arc<Caller>) -> Arc<Known> {
        let hash = self.hasher.hash_one((tool.id, &*caller.key, &caller.roles, caller.anonymous));
        self.find(hash, tool, caller).unwrap_or_else(|| self.learn(hash, tool, caller))
    }

    fn find(&self, hash: u64, tool: &Tool, caller: &Arc<Caller>) -> Option<Arc<Known>> {
        let known = self.pairs.get(&hash)?;
        known.is_of(tool, caller).then(|| known.clone())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    #[cold]
    fn learn(&self, hash: u64, tool: &Tool, caller: &Arc<Caller>) -> Arc<Known> {
        let known = Arc::new(Known {
            tool: tool.id,
            caller: caller.clone(),
            subject: input::subject(&tool.metadata, caller),
            verdict: OnceLock::new(),
        });
        if self.pairs.len() >= MAX_PAIRS {
            self.pairs.clear();
        }
        self.pairs.insert(hash, known.clone());
        known
    }
}

impl Known {
    /// Compares values, roles included: a caller who signs in with other roles is another pair.
    fn is_of(&self, tool: &Tool, caller: &Arc<Caller>) -> bool {
        self.tool == tool.id && (Arc::ptr_eq(&self.caller, caller) || self.caller == *caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::plain_tool;

    #[test]
    fn pairs_with_the_same_hash_are_told_apart() {
        let cache = Cache::default();
        let (one, other) = (plain_tool("one"), plain_tool("other"));
        let caller =
            |roles: &[&str]| Arc::new(Caller::new("alice", "acme", roles.iter().map(ToString::to_string).collect()));
        cache.learn(1, &one, &caller(&["admin"]));
        assert!(cache.find(1, &one, &caller(&["admin"])).is_some());
        assert!(cache.find(1, &one, &caller(&[])).is_none());
        assert!(cache.find(1, &other, &caller(&["admin"])).is_none());
    }
}
