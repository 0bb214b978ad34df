//! Collections that cannot pass their bound: an insertion makes room or refuses, in the same call. Between a check and
//! an insertion that are two calls, other threads insert.
//!
//! [`Ring`] and [`BoundedMap`] have no lock of their own. State beside them, as a counter, is kept under the same lock.

use std::borrow::Borrow;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::RwLock;

/// Maximum parts of a [`BoundedCache`], and the minimum entries for which a further one is made.
const MAX_PARTS: usize = 16;
const MIN_OF_PART: usize = 64;

/// The last values, the oldest first.
#[derive(Debug)]
pub struct Ring<T> {
    items: VecDeque<T>,
    max: usize,
}

impl<T> Ring<T> {
    /// At most `max` values, at least 1. Takes its memory as it grows.
    pub fn new(max: usize) -> Self {
        Self { items: VecDeque::new(), max: max.max(1) }
    }

    /// Takes all its memory now: it never grows while others wait for its lock.
    pub fn with_room(max: usize) -> Self {
        let max = max.max(1);
        Self { items: VecDeque::with_capacity(max), max }
    }

    /// Adds one. Where it is full, the oldest goes, and is returned.
    pub fn push(&mut self, item: T) -> Option<T> {
        let mut gone = None;
        while self.items.len() >= self.max {
            gone = self.items.pop_front();
        }
        self.items.push_back(item);
        gone
    }

    /// Takes the oldest.
    pub fn pop_oldest(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// Takes the newest.
    pub fn pop_newest(&mut self) -> Option<T> {
        self.items.pop_back()
    }

    /// Takes the oldest for which this is true.
    pub fn take_first(&mut self, is_it: impl FnMut(&T) -> bool) -> Option<T> {
        let at = self.items.iter().position(is_it)?;
        self.items.remove(at)
    }

    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.items.retain(keep);
    }

    /// The oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.items.iter()
    }

    pub fn oldest(&self) -> Option<&T> {
        self.items.front()
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }
}

/// A map with at most `max` keys.
#[derive(Debug)]
pub struct BoundedMap<K, V> {
    entries: HashMap<K, V>,
    max: usize,
}

impl<K: Eq + Hash, V> BoundedMap<K, V> {
    /// At most `max` keys, at least 1. Takes its memory as it grows.
    pub fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), max: max.max(1) }
    }

    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key)
    }

    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.entries.get_mut(key)
    }

    pub fn contains<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.entries.contains_key(key)
    }

    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.remove(key)
    }

    pub fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.entries.retain(keep);
    }

    /// Gives memory back, if it has four times the need of its keys.
    pub fn shrink(&mut self) {
        shrink(&mut self.entries);
    }

    /// In no order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> {
        self.entries.iter()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes all entries.
    pub fn take(&mut self) -> HashMap<K, V> {
        mem::take(&mut self.entries)
    }

    /// Adds a key, or replaces the value of a known one, which is returned.
    /// Errors: the new value: there are `max` other keys.
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, V> {
        if self.is_full_for(&key) {
            return Err(value);
        }
        Ok(self.entries.insert(key, value))
    }

    /// The value of a known key, or else a new one. `None`: there are `max` other keys.
    pub fn get_or_try_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> Option<&mut V> {
        if self.is_full_for(&key) {
            return None;
        }
        Some(self.entries.entry(key).or_insert_with(make))
    }

    /// As [`try_insert`](Self::try_insert); where it is full for a new key, those that may go are removed first.
    /// Errors: the new value: there are `max` other keys, and none may go.
    pub fn insert_after(&mut self, key: K, value: V, mut may_go: impl FnMut(&K, &V) -> bool) -> Result<Option<V>, V> {
        if self.is_full_for(&key) {
            self.entries.retain(|key, value| !may_go(key, value));
        }
        self.try_insert(key, value)
    }

    /// For a cache: where it is full for a new key, the entries go that are over; where none is, all.
    pub fn insert_or_clear(&mut self, key: K, value: V, mut is_over: impl FnMut(&V) -> bool) {
        if self.is_full_for(&key) {
            self.entries.retain(|_, value| !is_over(value));
            if self.entries.len() >= self.max {
                self.entries.clear();
            }
        }
        self.entries.insert(key, value);
    }

    /// Where it is full for this key, removes and returns the entry with the lowest rank. An entry without a rank may
    /// not go.
    pub fn evict_for<R: Ord>(&mut self, key: &K, rank: impl Fn(&K, &V) -> Option<R>) -> Option<(K, V)>
    where
        K: Clone,
    {
        if !self.is_full_for(key) {
            return None;
        }
        let ranked = self.entries.iter().filter_map(|(key, value)| Some((rank(key, value)?, key)));
        let lowest = ranked.min_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, key)| key.clone());
        lowest.and_then(|key| self.entries.remove_entry(&key))
    }

    /// Whether a further key would be one too many, and this is one.
    fn is_full_for(&self, key: &K) -> bool {
        self.entries.len() >= self.max && !self.entries.contains_key(key)
    }
}

/// Gives memory of a map back, if it has more than four times the need of its keys: it may have been much larger.
pub fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 4 * map.len().max(MIN_OF_PART) {
        map.shrink_to(2 * map.len());
    }
}

/// A cache that many calls read at once: parts with a lock each. A part is full by itself, and makes room by itself, so that
/// the cache never has more than `max` entries and may have a few less.
#[derive(Debug)]
pub struct BoundedCache<K, V> {
    parts: Box<[RwLock<BoundedMap<K, V>>]>,
    hasher: RandomState,
}

impl<K: Eq + Hash, V> BoundedCache<K, V> {
    /// At most `max` entries, at least 1.
    pub fn new(max: usize) -> Self {
        let parts = (max / MIN_OF_PART).clamp(1, MAX_PARTS);
        let part = || RwLock::new(BoundedMap::new(max / parts));
        Self { parts: (0..parts).map(|_| part()).collect(), hasher: RandomState::new() }
    }

    /// What `read` returns for the entry of a key. Readers of the same part of the cache do not wait; writers do, so
    /// `read` must not take long.
    pub fn get<R>(&self, key: &K, read: impl FnOnce(&V) -> Option<R>) -> Option<R> {
        self.part(key).read().get(key).and_then(read)
    }

    /// Adds an entry, or replaces the entry of the same key. Where the part of the cache is full for a new key, the
    /// entries for which `is_over` is true are removed; without any, all entries of the part.
    pub fn insert(&self, key: K, value: V, is_over: impl FnMut(&V) -> bool) {
        self.part(&key).write().insert_or_clear(key, value, is_over);
    }

    /// Adds an entry, or replaces the entry of the same key. Where the part of the cache is full for a new key, the
    /// entries for which `may_go` is true are removed. False: there was none.
    pub fn try_insert(&self, key: K, value: V, may_go: impl FnMut(&K, &V) -> bool) -> bool {
        self.part(&key).write().insert_after(key, value, may_go).is_ok()
    }

    /// Removes the entries for which this is false, a part at a time, and gives memory back that few entries need.
    pub fn retain(&self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for part in &self.parts {
            let mut part = part.write();
            part.retain(&mut keep);
            part.shrink();
        }
    }

    #[cfg(any(test, feature = "test-support"))]
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.read().len()).sum()
    }

    #[expect(clippy::cast_possible_truncation, reason = "smaller than the number of parts")]
    fn part(&self, key: &K) -> &RwLock<BoundedMap<K, V>> {
        &self.parts[(self.hasher.hash_one(key) % self.parts.len() as u64) as usize]
    }
}

/// Futures under way in one task, at most `max`.
pub struct BoundedFutures<F> {
    all: FuturesUnordered<F>,
    max: usize,
}

impl<F: Future> BoundedFutures<F> {
    /// At most `max` futures, at least 1.
    pub fn new(max: usize) -> Self {
        Self { all: FuturesUnordered::new(), max: max.max(1) }
    }

    pub fn has_room(&self) -> bool {
        self.all.len() < self.max
    }

    /// Adds one.
    /// Errors: the future: there are `max` others.
    pub fn push(&mut self, future: F) -> Result<(), F> {
        if !self.has_room() {
            return Err(future);
        }
        self.all.push(future);
        Ok(())
    }

    /// The output of the next future that is ready. `None` while no future is under way.
    pub async fn next(&mut self) -> Option<F::Output> {
        self.all.next().await
    }
}

impl<F> fmt::Debug for BoundedFutures<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BoundedFutures").field("max", &self.max).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
