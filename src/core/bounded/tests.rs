use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use futures_util::FutureExt;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;

/// Threads that insert at once, and how much each inserts.
const THREADS: usize = 8;
const INSERTIONS: usize = 20_000;

/// Runs `insert` in all threads, with numbers that differ, and `check` in another thread until they end.
fn from_many_threads(insert: impl Fn(usize) + Sync, check: impl Fn() + Sync) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let checking = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                check();
            }
        });
        let insert = &insert;
        let inserting: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || (0..INSERTIONS).for_each(|n| insert(n * THREADS + thread))))
            .collect();
        let inserted = inserting.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>();
        ended.store(true, Ordering::Relaxed);
        checking.join().unwrap();
        assert!(inserted.iter().all(Result::is_ok));
    });
    check();
}

#[test]
fn a_ring_of_many_threads_never_passes_its_bound() {
    let max = 100;
    let ring = Mutex::new(Ring::new(max));
    let insert = |number: usize| _ = ring.lock().push(number);
    from_many_threads(insert, || assert!(ring.lock().len() <= max));
    assert_eq!(ring.lock().len(), max);
}

#[test]
fn a_cache_of_many_threads_never_passes_its_bound() {
    let max = 1_000;
    let (clearing, refusing) = (BoundedCache::new(max), BoundedCache::new(max));
    let insert = |number: usize| {
        clearing.insert(number, number, |_| false);
        refusing.try_insert(number, number, |_, old| old + max < number);
        assert_eq!(refusing.get(&number, |value| Some(*value)).unwrap_or(number), number);
    };
    from_many_threads(insert, || assert!(clearing.len() <= max && refusing.len() <= max));
    assert!(clearing.len() > 0 && refusing.len() > 0);
}

#[test]
fn what_a_full_ring_drops_is_the_oldest() {
    let mut ring = Ring::with_room(2);
    assert_eq!([1, 2, 3].map(|number| ring.push(number)), [None, None, Some(1)]);
    assert_eq!((ring.oldest(), ring.iter().rev().copied().collect::<Vec<_>>()), (Some(&2), vec![3, 2]));
    assert_eq!((ring.pop_newest(), ring.pop_newest(), ring.pop_newest()), (Some(3), Some(2), None));
    assert_eq!((ring.push(4), ring.push(5), ring.pop_oldest(), ring.pop_oldest()), (None, None, Some(4), Some(5)));
    let mut one = Ring::new(0);
    assert_eq!((one.push(1), one.push(2), one.len()), (None, Some(1), 1), "at least one");
}

#[test]
fn a_full_map_refuses_new_keys_alone() {
    let mut map = BoundedMap::new(2);
    assert_eq!((map.try_insert(1, 10), map.try_insert(2, 20)), (Ok(None), Ok(None)));
    assert_eq!((map.try_insert(3, 30), map.try_insert(2, 21)), (Err(30), Ok(Some(20))));
    assert_eq!(map.get_or_try_insert_with(3, || 30), None);
    assert_eq!(map.get_or_try_insert_with(1, || 11), Some(&mut 10));
    assert_eq!(map.insert_after(3, 30, |key, value| (*key, *value) == (1, 10)), Ok(None));
    assert_eq!((map.insert_after(4, 40, |_, _| false), map.contains(&1)), (Err(40), false));
    assert_eq!(map.take(), HashMap::from([(2, 21), (3, 30)]));
    assert_eq!(map.len(), 0);
}

#[test]
fn a_full_map_evicts_the_lowest_rank_for_a_new_key() {
    let mut map = BoundedMap::new(2);
    let rank = |_: &u32, value: &u32| (*value < 90).then_some(*value);
    for (key, value) in [(1, 95), (2, 5)] {
        assert_eq!((map.evict_for(&key, rank), map.try_insert(key, value)), (None, Ok(None)));
    }
    assert_eq!(map.evict_for(&1, rank), None, "it is known");
    assert_eq!((map.evict_for(&3, rank), map.try_insert(3, 96)), (Some((2, 5)), Ok(None)));
    assert_eq!((map.evict_for(&4, rank), map.try_insert(4, 1)), (None, Err(1)), "none has a rank");
}

#[test]
fn a_cache_clears_only_the_part_that_is_full() {
    let max = MIN_OF_PART * MAX_PARTS;
    let cache = BoundedCache::new(max);
    for number in 0..10 * max {
        cache.insert(number, (), |()| false);
        assert!(cache.get(&number, |()| Some(())).is_some());
    }
    assert!((max / 16..=max).contains(&cache.len()), "{}", cache.len());
    let small = BoundedCache::new(MIN_OF_PART - 1);
    (0..MIN_OF_PART - 1).for_each(|number| assert!(small.try_insert(number, number, |_, _| false)));
    assert!(!small.try_insert(MIN_OF_PART, 0, |_, _| false), "one part, and it is full");
    assert!(small.try_insert(MIN_OF_PART, 0, |_, value| *value == 7));
    assert_eq!(small.get(&7, |value| Some(*value)), None);
}

#[test]
fn futures_beyond_the_maximum_are_given_back() {
    let mut futures: BoundedFutures<Ready<u32>> = BoundedFutures::new(2);
    assert_eq!(futures.next().now_or_never(), Some(None), "none under way");
    assert!(futures.push(ready(1)).is_ok() && futures.push(ready(2)).is_ok() && !futures.has_room());
    assert_eq!(futures.push(ready(3)).map_err(Ready::into_inner), Err(3));
    let ended = [futures.next().now_or_never(), futures.next().now_or_never()];
    assert_eq!(ended.into_iter().flatten().flatten().sum::<u32>(), 3);
    assert!(futures.has_room());
}

proptest! {
    #[test]
    fn a_ring_has_the_last_values_after_any_operations(
        max in 1_usize..5,
        operations in prop::collection::vec((0_u8..5, 0_u32..4), 0..100),
    ) {
        let (mut ring, mut model) = (Ring::new(max), Vec::new());
        for (operation, value) in operations {
            match operation {
                0..=2 => {
                    model.push(value);
                    let gone = (model.len() > max).then(|| model.remove(0));
                    prop_assert_eq!(ring.push(value), gone);
                }
                3 => {
                    let at = model.iter().position(|other| *other == value);
                    prop_assert_eq!(ring.take_first(|other| *other == value), at.map(|at| model.remove(at)));
                }
                _ => {
                    ring.retain(|other| *other != value);
                    model.retain(|other| *other != value);
                }
            }
            prop_assert!(ring.len() <= max);
            prop_assert_eq!(ring.iter().copied().collect::<Vec<_>>(), model.clone());
        }
    }

    #[test]
    fn a_map_has_the_entries_of_its_model_after_any_operations(
        max in 1_usize..5,
        operations in prop::collection::vec((0_u8..7, 0_u32..8, 0_u32..8), 0..100),
    ) {
        let (mut map, mut model) = (BoundedMap::new(max), BTreeMap::new());
        for (operation, key, value) in operations {
            let is_full = model.len() >= max && !model.contains_key(&key);
            match operation {
                0 => {
                    let expected = if is_full { Err(value) } else { Ok(model.insert(key, value)) };
                    prop_assert_eq!(map.try_insert(key, value), expected);
                }
                1 => {
                    let expected = if is_full { None } else { Some(*model.entry(key).or_insert(value)) };
                    prop_assert_eq!(map.get_or_try_insert_with(key, || value).copied(), expected);
                }
                2 => {
                    if is_full {
                        model.retain(|_, old| *old % 2 == 0);
                    }
                    let expected = if model.len() >= max && is_full { Err(value) } else { Ok(model.insert(key, value)) };
                    prop_assert_eq!(map.insert_after(key, value, |_, old| old % 2 > 0), expected);
                }
                3 => {
                    if is_full {
                        model.retain(|_, old| *old % 2 == 0);
                    }
                    if is_full && model.len() >= max {
                        model.clear();
                    }
                    model.insert(key, value);
                    map.insert_or_clear(key, value, |old| old % 2 > 0);
                }
                4 => {
                    // By the key: values may be equal.
                    let lowest = model.keys().copied().find(|key| key % 2 == 0).filter(|_| is_full);
                    let gone = lowest.and_then(|key| model.remove_entry(&key));
                    prop_assert_eq!(map.evict_for(&key, |key, _| (key % 2 == 0).then_some(*key)), gone);
                }
                5 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                _ => {
                    map.retain(|_, other| *other != value);
                    model.retain(|_, other| *other != value);
                }
            }
            prop_assert!(map.len() <= max);
            prop_assert_eq!(map.iter().map(|(key, value)| (*key, *value)).collect::<BTreeMap<_, _>>(), model.clone());
            prop_assert_eq!(map.get(&key).copied(), model.get(&key).copied());
            prop_assert_eq!(map.get_mut(&key).copied(), model.get(&key).copied());
        }
    }
}

#[test]
fn what_is_removed_from_a_cache_gives_its_memory_back() {
    let cache = BoundedCache::new(100_000);
    (0..50_000).for_each(|number| cache.insert(number, number, |_| false));
    cache.retain(|key, _| *key % 1_000 == 0);
    assert_eq!(
        (cache.len(), cache.get(&3_000, |value| Some(*value)), cache.get(&1, |value| Some(*value))),
        (50, Some(3_000), None)
    );
    let room: usize = cache.parts.iter().map(|part| part.read().entries.capacity()).sum();
    assert!(room < 5_000, "{room}");
    let mut small = HashMap::from([(1, 1)]);
    let room = small.capacity();
    shrink(&mut small);
    assert_eq!(small.capacity(), room);
}
