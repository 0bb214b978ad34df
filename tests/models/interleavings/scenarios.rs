//! What threads do with a structure, and what must hold meanwhile and after. Shuttle fails, too, where all threads wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use sekisho_core::caller::Owner;
use sekisho_models::time::Instant;
use shuttle::{future, thread};

use super::structures::bounded::BoundedCache;
use super::structures::share::{NoLease, Share};

/// Longer than a share waits before it looks again.
const LONG: Duration = Duration::from_secs(3_600);

/// A deadline that may pass.
const SHORT: Duration = Duration::from_secs(30);

/// The scenarios by their names.
pub const ALL: [(&str, fn()); 6] = [
    ("all_is_given_back", all_is_given_back),
    ("the_queue_has_a_bound", the_queue_has_a_bound),
    ("one_that_gives_up_leaves_its_place", one_that_gives_up_leaves_its_place),
    ("a_deadline_passes", a_deadline_passes),
    ("a_larger_capacity_wakes_who_waits", a_larger_capacity_wakes_who_waits),
    ("a_cache_has_a_bound", a_cache_has_a_bound),
];

fn owner(name: &str) -> Owner {
    Owner { tenant: "acme".into(), caller: name.into() }
}

/// A call of an owner takes a unit, behind at most so many others.
fn call(share: &Arc<Share>, name: &'static str, (max_waiting, time): (usize, Duration)) -> Call {
    let share = Arc::clone(share);
    thread::spawn(move || {
        let lease = future::block_on(share.acquire(&owner(name), 1, max_waiting, Instant::now() + time))?;
        assert!(share.used() <= share.capacity(), "more than it has");
        thread::yield_now();
        drop(lease);
        Ok(())
    })
}

type Call = thread::JoinHandle<Result<(), NoLease>>;

fn nothing_is_left(share: &Arc<Share>) {
    assert_eq!((share.used(), share.waiting()), (0, 0));
    assert!(share.try_acquire(&owner("last"), share.capacity()).is_some(), "all is there again");
}

fn all_is_given_back() {
    let share = Share::new(2);
    let calls = ["ann", "bob", "ann", "eve"].map(|name| call(&share, name, (10, LONG)));
    for call in calls {
        assert_eq!(call.join().expect("ended"), Ok(()), "there is room in the queue");
    }
    nothing_is_left(&share);
}

fn the_queue_has_a_bound() {
    let share = Share::new(1);
    let held = share.try_acquire(&owner("ann"), 1).expect("free");
    let calls = ["bob", "bob", "eve"].map(|name| call(&share, name, (1, LONG)));
    thread::yield_now();
    assert!(share.waiting() <= 1, "{} wait", share.waiting());
    drop(held);
    let ended = calls.map(|call| call.join().expect("ended"));
    assert!(ended.contains(&Ok(())) && ended.iter().all(|ended| matches!(ended, Ok(()) | Err(NoLease::QueueFull))));
    nothing_is_left(&share);
}

fn one_that_gives_up_leaves_its_place() {
    let share = Share::new(1);
    let held = share.try_acquire(&owner("ann"), 1).expect("free");
    let gives_up = {
        let share = Arc::clone(&share);
        thread::spawn(move || drop(share.acquire(&owner("bob"), 1, 10, Instant::now() + LONG).now_or_never()))
    };
    let waits = call(&share, "eve", (10, LONG));
    drop(held);
    gives_up.join().expect("ended");
    assert_eq!(waits.join().expect("ended"), Ok(()));
    nothing_is_left(&share);
}

fn a_deadline_passes() {
    let share = Share::new(1);
    let calls = ["ann", "bob", "eve"].map(|name| call(&share, name, (10, SHORT)));
    for call in calls {
        assert!(matches!(call.join().expect("ended"), Ok(()) | Err(NoLease::DeadlinePassed)));
    }
    nothing_is_left(&share);
}

fn a_larger_capacity_wakes_who_waits() {
    let share = Share::new(1);
    let held = share.try_acquire(&owner("ann"), 1).expect("free");
    let waits = call(&share, "bob", (10, LONG));
    share.resize(2);
    assert_eq!(waits.join().expect("ended"), Ok(()));
    drop(held);
    nothing_is_left(&share);
}

fn a_cache_has_a_bound() {
    let cache = Arc::new(BoundedCache::new(2));
    let insert = |first: u8| {
        let cache = Arc::clone(&cache);
        thread::spawn(move || {
            for key in first..first + 2 {
                cache.insert(key, key, |_| false);
                assert!(cache.len() <= 2, "{cache:?}");
                assert!(cache.get(&key, |value| Some(*value)).is_none_or(|value| value == key));
            }
        })
    };
    for thread in [0, 2, 4].map(insert) {
        thread.join().expect("ended");
    }
}
