//! A bounded map whose entries belong to owners: sessions, open questions.
//!
//! A full map loses an entry for each new one: the least recently used of the owner itself, unless another tenant, or
//! another caller of the tenant, has more entries. How many entries one owner can have is bounded as in a [`Share`],
//! so that a map whose entries cannot go has space for others.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::caller::Owner;
use super::share::{Lease, Share};

/// The map. Keys are unique over all owners.
#[derive(Debug)]
pub struct PerOwner<K, V> {
    share: Arc<Share>,
    max_of_caller: AtomicUsize,
    state: Mutex<State<K, V>>,
}

/// An entry that was not added: the map is full, and nothing may go any more.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAdded<K, V> {
    pub value: V,
    /// The entries that were removed for it. They are not in the map any more.
    pub gone: Vec<(K, V)>,
}

#[derive(Debug)]
struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// Only callers that have entries.
    callers: HashMap<Arc<str>, CallerEntries<K>>,
    /// The number of entries of each tenant that has some.
    tenants: HashMap<Arc<str>, usize>,
    /// The number of the last use of any entry.
    last_use: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    owner: Owner,
    used: u64,
    _lease: Lease,
}

#[derive(Debug)]
struct CallerEntries<K> {
    tenant: Arc<str>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Clone + Eq + Hash, V> PerOwner<K, V> {
    /// At most `max` entries in all, and `max_of_caller` of one caller; both at least 1.
    pub fn new(max: usize, max_of_caller: usize) -> Self {
        let state = State { entries: HashMap::new(), callers: HashMap::new(), tenants: HashMap::new(), last_use: 0 };
        Self {
            share: Share::new(max as u64),
            max_of_caller: AtomicUsize::new(max_of_caller.max(1)),
            state: Mutex::new(state),
        }
    }

    /// Sets another maximum. Entries above it stay until their caller adds one.
    pub fn set_max_of_caller(&self, max: usize) {
        self.max_of_caller.store(max.max(1), Ordering::Relaxed);
    }

    /// Adds an entry, or replaces the entry of the same key. Returns the entries that were removed for it: those for
    /// which `may_go` is true.
    /// Errors: [`NotAdded`], when the map is full and nothing may go.
    pub fn insert(
        &self,
        owner: &Owner,
        key: K,
        value: V,
        may_go: impl Fn(&K, &V) -> bool,
    ) -> Result<Vec<(K, V)>, NotAdded<K, V>> {
        self.insert_into(&mut self.state.lock(), owner, key, value, may_go)
    }

    /// Marks the entry as used and returns the value that `find` reads from it. Without an entry, or if `find` returns
    /// nothing, adds the value.
    /// Errors: the value, as [`PerOwner::insert`].
    pub fn find_or_insert<R>(
        &self,
        owner: &Owner,
        key: &K,
        find: impl FnOnce(&mut V) -> Option<R>,
        value: V,
        may_go: impl Fn(&K, &V) -> bool,
    ) -> Result<Option<R>, V> {
        let mut state = self.state.lock();
        state.mark_used(key);
        if let Some(found) = state.entries.get_mut(key).and_then(|entry| find(&mut entry.value)) {
            return Ok(Some(found));
        }
        let added = self.insert_into(&mut state, owner, key.clone(), value, may_go);
        // Values are dropped without the lock.
        drop(state);
        added.map(|_gone| None).map_err(|NotAdded { value, .. }| value)
    }

    fn insert_into(
        &self,
        state: &mut State<K, V>,
        owner: &Owner,
        key: K,
        value: V,
        may_go: impl Fn(&K, &V) -> bool,
    ) -> Result<Vec<(K, V)>, NotAdded<K, V>> {
        let mut gone: Vec<(K, V)> = state.remove(&key).map(|value| (key.clone(), value)).into_iter().collect();
        let max_of_caller = self.max_of_caller.load(Ordering::Relaxed);
        while state.of_caller(owner) >= max_of_caller {
            let Some(own) = state.oldest_of(&owner.caller, &may_go) else {
                return Err(NotAdded { value, gone });
            };
            gone.extend(state.remove(&own).map(|value| (own, value)));
        }
        let lease = loop {
            if let Some(lease) = self.share.try_acquire(owner, 1) {
                break lease;
            }
            let Some(other) = state.next_to_go(owner, &may_go) else {
                return Err(NotAdded { value, gone });
            };
            gone.extend(state.remove(&other).map(|value| (other, value)));
        };
        state.add(owner, key, value, lease);
        Ok(gone)
    }

    /// Reads or changes a value, and marks it as used.
    pub fn with<R>(&self, key: &K, read: impl FnOnce(&mut V) -> R) -> Option<R> {
        let mut state = self.state.lock();
        state.mark_used(key);
        state.entries.get_mut(key).map(|entry| read(&mut entry.value))
    }

    /// Does not mark the entry as used.
    pub fn contains(&self, key: &K) -> bool {
        self.state.lock().entries.contains_key(key)
    }

    pub fn remove(&self, key: &K) -> Option<V> {
        self.remove_if(key, |_| true)
    }

    /// Removes an entry if this is true for it.
    pub fn remove_if(&self, key: &K, is_to_go: impl FnOnce(&V) -> bool) -> Option<V> {
        let mut state = self.state.lock();
        let is_to_go = state.entries.get(key).is_some_and(|entry| is_to_go(&entry.value));
        is_to_go.then(|| state.remove(key)).flatten()
    }

    /// Removes the least recently used entry of a caller.
    pub fn remove_oldest_of(&self, owner: &Owner) -> Option<V> {
        self.remove_oldest_that(owner, |_, _| true)
    }

    /// Removes the least recently used entry of a caller for which `may_go` is true.
    pub fn remove_oldest_that(&self, owner: &Owner, may_go: impl Fn(&K, &V) -> bool) -> Option<V> {
        let mut state = self.state.lock();
        let oldest = state.oldest_of(&owner.caller, &may_go)?;
        state.remove(&oldest)
    }

    /// All values, the least recently used first.
    pub fn by_use(&self) -> Vec<V>
    where
        V: Clone,
    {
        let state = self.state.lock();
        let mut entries: Vec<_> = state.entries.values().collect();
        entries.sort_unstable_by_key(|entry| entry.used);
        entries.into_iter().map(|entry| entry.value.clone()).collect()
    }

    /// Reads the entry that a new one of the owner would replace, among the entries for which `may_go` is true. `None`
    /// also while there is space.
    pub fn next_for_entry<R>(
        &self,
        owner: &Owner,
        may_go: impl Fn(&K, &V) -> bool,
        read: impl FnOnce(&V) -> R,
    ) -> Option<R> {
        let state = self.state.lock();
        let next = if state.of_caller(owner) >= self.max_of_caller.load(Ordering::Relaxed) {
            state.oldest_of(&owner.caller, &may_go)?
        } else if self.share.try_acquire(owner, 1).is_some() {
            return None;
        } else {
            state.next_to_go(owner, &may_go)?
        };
        state.entries.get(&next).map(|entry| read(&entry.value))
    }

    pub fn for_each(&self, mut visit: impl FnMut(&mut V)) {
        self.state.lock().entries.values_mut().for_each(|entry| visit(&mut entry.value));
    }

    /// Removes all entries for which this is true, and returns them.
    pub fn take_if(&self, is_to_go: impl Fn(&V) -> bool) -> Vec<(K, V)> {
        let mut state = self.state.lock();
        let of_entry = |(key, entry): (&K, &Entry<V>)| is_to_go(&entry.value).then(|| key.clone());
        let keys: Vec<K> = state.entries.iter().filter_map(of_entry).collect();
        keys.into_iter().filter_map(|key| state.remove(&key).map(|value| (key, value))).collect()
    }

    pub fn len(&self) -> usize {
        self.state.lock().entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Clone + Eq + Hash, V> State<K, V> {
    fn of_caller(&self, owner: &Owner) -> usize {
        self.callers.get(&owner.caller).map_or(0, |caller| caller.by_use.len())
    }

    fn of_tenant(&self, tenant: &Arc<str>) -> usize {
        self.tenants.get(tenant).copied().unwrap_or_default()
    }

    /// The entry that makes space for one more of `owner`.
    fn next_to_go(&self, owner: &Owner, may_go: &impl Fn(&K, &V) -> bool) -> Option<K> {
        let (of_tenant, of_caller) = (self.of_tenant(&owner.tenant), self.of_caller(owner));
        let candidates = self.callers.iter().filter_map(|(name, caller)| {
            let is_own = *name == owner.caller;
            let (is_own_tenant, count) = (caller.tenant == owner.tenant, caller.by_use.len());
            let tenant_count = self.of_tenant(&caller.tenant);
            let has_more = if is_own_tenant { is_more(count, of_caller) } else { is_more(tenant_count, of_tenant) };
            if !is_own && !has_more {
                return None;
            }
            let order = (tenant_count, is_own_tenant, count, is_own);
            Some((order, self.oldest_of(name, may_go)?))
        });
        candidates.max_by_key(|(order, _)| *order).map(|(_, key)| key)
    }

    /// The least recently used entry of a caller that may go.
    fn oldest_of(&self, caller: &Arc<str>, may_go: &impl Fn(&K, &V) -> bool) -> Option<K> {
        let keys = self.callers.get(caller)?.by_use.values();
        let mut can_go = keys.filter(|key| self.entries.get(*key).is_some_and(|entry| may_go(key, &entry.value)));
        can_go.next().cloned()
    }

    fn add(&mut self, owner: &Owner, key: K, value: V, lease: Lease) {
        self.last_use += 1;
        let used = self.last_use;
        let none = || CallerEntries { tenant: Arc::clone(&owner.tenant), by_use: BTreeMap::new() };
        let caller = self.callers.entry(Arc::clone(&owner.caller)).or_insert_with(none);
        caller.by_use.insert(used, key.clone());
        *self.tenants.entry(Arc::clone(&owner.tenant)).or_default() += 1;
        self.entries.insert(key, Entry { value, owner: owner.clone(), used, _lease: lease });
    }

    fn mark_used(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(caller) = self.callers.get_mut(&entry.owner.caller) else { return };
        self.last_use += 1;
        caller.by_use.remove(&entry.used);
        entry.used = self.last_use;
        caller.by_use.insert(entry.used, key.clone());
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        let Entry { value, owner, used, .. } = self.entries.remove(key)?;
        if let Some(caller) = self.callers.get_mut(&owner.caller) {
            caller.by_use.remove(&used);
            if caller.by_use.is_empty() {
                self.callers.remove(&owner.caller);
            }
        }
        if let Some(count) = self.tenants.get_mut(&owner.tenant) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&owner.tenant);
            }
        }
        Some(value)
    }
}

/// Whether an owner with `count` entries loses one to an owner that has `own`: it would not have fewer then. An owner
/// without any gets one.
fn is_more(count: usize, own: usize) -> bool {
    count > own + 1 || own == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner(tenant: usize, caller: usize) -> Owner {
        Owner { tenant: format!("t{tenant}").into(), caller: format!("t{tenant} c{caller}").into() }
    }

    fn any(_: &u32, _: &u32) -> bool {
        true
    }

    #[test]
    fn a_caller_loses_its_own_least_recently_used_entry() {
        let map = PerOwner::new(100, 2);
        let (ann, bob) = (owner(0, 0), owner(0, 1));
        assert_eq!(map.insert(&bob, 9, 90, any), Ok(vec![]));
        assert_eq!(map.insert(&ann, 1, 10, any), Ok(vec![]));
        assert_eq!(map.insert(&ann, 2, 20, any), Ok(vec![]));
        assert_eq!(map.with(&1, |value| *value), Some(10));
        assert_eq!(map.by_use(), [90, 20, 10]);
        assert_eq!(map.insert(&ann, 3, 30, any), Ok(vec![(2, 20)]));
        assert_eq!(map.insert(&ann, 4, 40, |key, _| *key != 1), Ok(vec![(3, 30)]));
        assert_eq!(map.insert(&ann, 5, 50, |_, _| false), Err(NotAdded { value: 50, gone: vec![] }));
        assert_eq!((map.remove(&1), map.remove(&1), map.len()), (Some(10), None, 2));
        assert_eq!(map.take_if(|value| *value == 40), [(4, 40)]);
        assert_eq!(map.remove_if(&9, |value| *value == 1), None);
    }

    #[test]
    fn what_went_for_an_entry_that_was_not_added_is_given_to_the_caller() {
        let map = PerOwner::new(100, 4);
        let ann = owner(0, 0);
        for key in 0..4 {
            assert_eq!(map.insert(&ann, key, key * 10, any), Ok(vec![]));
        }
        map.set_max_of_caller(1);
        let gone = vec![(0, 0), (2, 20)];
        assert_eq!(map.insert(&ann, 4, 40, |key, _| key % 2 == 0), Err(NotAdded { value: 40, gone }));
        let gone = vec![(3, 30)];
        assert_eq!(map.insert(&ann, 3, 31, |_, _| false), Err(NotAdded { value: 31, gone }), "of the same key");
        assert_eq!(map.by_use(), [10]);
    }

    #[test]
    fn many_callers_of_one_tenant_take_nothing_from_another_tenant() {
        let map = PerOwner::new(8, 4);
        let (mut number, rival) = (0, owner(1, 0));
        let mut insert = |owner: &Owner| {
            number += 1;
            map.insert(owner, number, number, any)
        };
        for caller in 0..8 {
            insert(&owner(0, caller)).unwrap();
        }
        // One of the first tenant goes, although its callers have one each.
        assert_eq!(insert(&rival).unwrap().len(), 1);
        assert_eq!(insert(&rival).unwrap().len(), 1);
        for caller in 0..32 {
            insert(&owner(0, caller)).unwrap();
        }
        let state = map.state.lock();
        assert_eq!((state.of_caller(&rival), state.entries.len()), (2, 8));
    }

    #[test]
    fn what_would_go_is_seen_before_it_goes() {
        let map = PerOwner::new(4, 2);
        let (ann, bob) = (owner(0, 0), owner(1, 0));
        assert_eq!(map.next_for_entry(&ann, any, |value| *value), None, "there is space");
        for key in 0..2 {
            map.insert(&ann, key, key * 10, any).unwrap();
        }
        assert_eq!(map.next_for_entry(&ann, any, |value| *value), Some(0), "of its own");
        assert_eq!(map.next_for_entry(&ann, |key, _| *key != 0, |value| *value), Some(10));
        assert_eq!(map.next_for_entry(&bob, any, |value| *value), None);
        assert_eq!(map.insert(&ann, 2, 20, any), Ok(vec![(0, 0)]));
    }

    #[test]
    fn what_cannot_go_leaves_a_reserve_for_others() {
        let map = PerOwner::new(8, 8);
        let keep = |_: &u32, _: &u32| false;
        assert_eq!(map.insert(&owner(1, 0), 0, 0, keep), Ok(vec![]));
        let kept = (1..=8).filter(|n| map.insert(&owner(0, 0), *n, *n, keep).is_ok()).count();
        assert_eq!(kept, 6);
        assert_eq!(map.insert(&owner(1, 0), 9, 9, keep), Ok(vec![]));
    }

    proptest! {
        #[test]
        fn counts_hold_after_any_operations(
            max in 1_usize..6,
            max_of_caller in 1_usize..4,
            operations in prop::collection::vec((0_usize..3, 0_usize..3, 0_u32..12, 0_u8..4), 0..200),
        ) {
            let map = PerOwner::new(max, max_of_caller);
            for (tenant, caller, key, operation) in operations {
                match operation {
                    0 | 1 => drop(map.insert(&owner(tenant, caller), key, key, |key, _| operation == 0 || key % 3 > 0)),
                    2 => drop(map.remove(&key)),
                    _ => drop(map.with(&key, |value| *value)),
                }
                let state = map.state.lock();
                prop_assert!(state.entries.len() <= max);
                prop_assert_eq!(state.entries.len() as u64, map.share.used());
                prop_assert_eq!(state.tenants.values().sum::<usize>(), state.entries.len());
                for caller in state.callers.values() {
                    prop_assert!((1..=max_of_caller).contains(&caller.by_use.len()));
                    for (used, key) in &caller.by_use {
                        prop_assert_eq!(state.entries.get(key).map(|entry| entry.used), Some(*used));
                    }
                }
            }
        }
    }
}
