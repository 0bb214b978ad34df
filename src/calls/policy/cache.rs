//! Caches the part of the policy input that is fixed for a (tool, caller) pair, and the verdict if the
//! policies read only that part.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use regorus::Value;

use super::input;
use super::set::Verdict;
use crate::tool::Tool;
use sekisho_core::bounded::BoundedCache;
use sekisho_core::call::Caller;

/// The cache belongs to one policy set and is dropped with the set. So a reload clears it.
#[derive(Debug)]
pub(super) struct Cache {
    /// By a hash of tool and caller; [`Known::is_of`] detects collisions.
    pairs: BoundedCache<u64, Arc<Known>>,
    hasher: RandomState,
}

/// The entry of a tool and a caller.
#[derive(Debug)]
pub(super) struct Known {
    tool: u64,
    /// Without its token.
    caller: Arc<Caller>,
    /// The policy input's `tool`, `metadata` and `user`.
    pub(super) subject: Value,
    /// Set once, and only if it applies to every call of this pair.
    pub(super) verdict: OnceLock<Verdict>,
}

/// Maximum pairs, about 2 KB each. When it is reached, a part of the cache is cleared: this is simpler than an LRU
/// order, and a pair takes only microseconds to compute again.
const MAX_PAIRS: usize = 4_096;

impl Default for Cache {
    fn default() -> Self {
        Self { pairs: BoundedCache::new(MAX_PAIRS), hasher: RandomState::new() }
    }
}

impl Cache {
    pub(super) fn known(&self, tool: &Tool, caller: &Arc<Caller>) -> Arc<Known> {
        let hash = self.hasher.hash_one((tool.id, &*caller.key, &caller.roles, caller.anonymous));
        self.find(hash, tool, caller).unwrap_or_else(|| self.learn(hash, tool, caller))
    }

    fn find(&self, hash: u64, tool: &Tool, caller: &Arc<Caller>) -> Option<Arc<Known>> {
        self.pairs.get(&hash, |known| known.is_of(tool, caller).then(|| known.clone()))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    #[cold]
    fn learn(&self, hash: u64, tool: &Tool, caller: &Arc<Caller>) -> Arc<Known> {
        let known = Arc::new(Known {
            tool: tool.id,
            caller: caller.without_token(),
            subject: input::subject(&tool.metadata, &tool.flags, caller),
            verdict: OnceLock::new(),
        });
        self.pairs.insert(hash, known.clone(), |_| false);
        known
    }
}

impl Known {
    /// Compares all that `subject` has of a caller: one with other roles is another pair. Several keys of one caller share
    /// a pair.
    fn is_of(&self, tool: &Tool, caller: &Arc<Caller>) -> bool {
        let known = &self.caller;
        let is_same = || (&known.key, &known.roles, known.anonymous) == (&caller.key, &caller.roles, caller.anonymous);
        self.tool == tool.id && (Arc::ptr_eq(known, caller) || is_same())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::plain_tool;
    use sekisho_core::caller::SubjectToken;

    #[test]
    fn pairs_with_the_same_hash_are_distinguished() {
        let cache = Cache::default();
        let (one, other) = (plain_tool("one"), plain_tool("other"));
        let caller =
            |roles: &[&str]| Arc::new(Caller::new("alice", "acme", roles.iter().map(ToString::to_string).collect()));
        cache.learn(1, &one, &caller(&["admin"]));
        assert!(cache.find(1, &one, &caller(&["admin"])).is_some());
        assert!(cache.find(1, &one, &caller(&[])).is_none());
        assert!(cache.find(1, &other, &caller(&["admin"])).is_none());
    }

    #[test]
    fn no_token_of_a_caller_is_kept() {
        let (cache, tool) = (Cache::default(), plain_tool("one"));
        let caller = |text: &str| {
            let token = SubjectToken {
                text: text.to_owned(),
                issuer: "https://issuer".to_owned(),
                subject: "alice".to_owned(),
                audiences: Vec::new(),
                expires: 0,
                session: None,
            };
            Arc::new(Caller::new("alice", "acme", Vec::new()).with_token(token))
        };
        let known = cache.known(&tool, &caller("first"));
        assert!(known.caller.token.get().is_none());
        assert!(Arc::ptr_eq(&known, &cache.known(&tool, &caller("second"))), "another token of the same caller");
    }
}
