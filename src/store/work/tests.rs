//! Rules that hold for each kind of things.

mod conversations_of_version_before;
mod plans_of_version_before;
mod program_runs_of_version_before;
mod version_before;

use sqlx::AssertSqlSafe;
use tokio::time::Instant;

use super::*;
use crate::replica::{HEARTBEAT, LOST_AFTER};
use crate::test_support::{age_replica, beat, conversation, end_leases, silence_replicas, test_store};
use sekisho_core::until::until;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// Without columns of the version before.
const NEW: WorkKind =
    WorkKind { name: "new", table: "workspaces", key: "name", lease: MINUTE, ttl: HOUR, former: None };

const KINDS: [WorkKind; 6] = [WORKSPACE, CONVERSATION, PLAN, PROGRAM_RUN, BACKGROUND_RUN, NEW];

/// The thing `a` of the kinds `WORKSPACE` and `NEW`.
const ROW: &str =
    "INSERT INTO workspaces (name, version, files, fence, held_until, last_used) VALUES ('a', '', '{}', 0, 0, 0)";

/// A plan without a run.
const PLAN_ROW: &str =
    "INSERT INTO plans VALUES ('a', 'ann', 'g', '', 'running', '', 'gone', 0, '2026-11-25T00:00:00.000000Z',
                               '2026-11-25T00:00:00.000000Z', '{}')";

/// A run of a program without a process.
const PROGRAM_RUN_ROW: &str =
    "INSERT INTO program_runs (id, tenant, caller_key, endpoint, arguments, state, runner, fence, created, expires)
     VALUES ('a', 'acme', 'ann', 'all', 'a1', 'running', '', 0, 0, 4102444800000000)";

const BACKGROUND_RUN_ROW: &str =
    "INSERT INTO background_runs (id, tenant, caller_key, conversation, kind, state, runs, request, attempts, stopped, created, changed)
     VALUES ('a', 'acme', 'ann', 'c', 'run', 'running', '', '', 0, 0, 0, 0)";

/// A store with the thing `a` of each kind, and three replicas whose heartbeats have no gap.
async fn new_store() -> Store {
    let store = test_store().await;
    for replica in ["one", "other", "third"] {
        beat(&store, replica).await;
        age_replica(&store, replica, HOUR).await;
    }
    store.change_rows(ROW).await;
    store.change_rows(PLAN_ROW).await;
    store.change_rows(PROGRAM_RUN_ROW).await;
    store.change_rows(BACKGROUND_RUN_ROW).await;
    store.conversations().add(&conversation("a", "ann"), 1).await.unwrap();
    store
}

async fn take(store: &Store, kind: WorkKind, replica: &str) -> Option<WorkLease> {
    store.work().take(kind, "a", Some(replica)).await.unwrap()
}

/// Whether a write of the holder takes effect.
async fn may_write(store: &Store, lease: &WorkLease) -> bool {
    let sql = format!("SELECT w.fence {} {}", lease.kind.held(["$1", "$2", "$3"]), store.engine.share_lock());
    let (id, holder, fence) = lease.terms();
    let held: Option<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(id)
        .bind(holder)
        .bind(fence)
        .fetch_optional(&store.pool)
        .await
        .unwrap();
    held.is_some()
}

#[tokio::test]
async fn of_two_takers_at_once_one_has_the_thing() {
    for kind in KINDS {
        let store = new_store().await;
        for _ in 0..10 {
            let (one, other) = tokio::join!(take(&store, kind, "one"), take(&store, kind, "other"));
            assert_ne!(one.is_some(), other.is_some(), "{kind:?}: {one:?} {other:?}");
            assert_eq!(take(&store, kind, "third").await, None, "{kind:?}");
            assert!(store.work().release(&one.or(other).unwrap()).await.unwrap(), "{kind:?}");
        }
    }
}

/// The last step of a holder before it is killed.
#[derive(Debug, Clone, Copy)]
enum LastStep {
    Taken,
    Written,
    Renewed,
    AskedToStop,
}

impl LastStep {
    async fn run(self, store: &Store, lease: &WorkLease) {
        let work = store.work();
        match self {
            Self::Taken => {}
            Self::Written => assert!(may_write(store, lease).await),
            Self::Renewed => assert_eq!(work.renew(lease).await.unwrap(), LockState::Held),
            Self::AskedToStop => {
                work.ask_to_stop(lease.kind, "a").await.unwrap();
                assert_eq!(work.renew(lease).await.unwrap(), LockState::AskedToStop);
            }
        }
    }
}

#[tokio::test]
async fn a_holder_that_wakes_after_its_lease_changes_nothing_once_another_one_has_the_thing() {
    for kind in KINDS {
        for last in [LastStep::Taken, LastStep::Written, LastStep::Renewed, LastStep::AskedToStop] {
            let (store, context) = (new_store().await, format!("{kind:?} {last:?}"));
            let work = store.work();
            let killed = take(&store, kind, "one").await.unwrap();
            last.run(&store, &killed).await;
            assert_eq!(take(&store, kind, "other").await, None, "{context}: its lease has not ended");
            end_leases(&store).await;
            let next = take(&store, kind, "other").await.unwrap();
            assert!(next.fence > killed.fence, "{context}");

            assert!(!may_write(&store, &killed).await, "{context}");
            assert_eq!(work.renew(&killed).await.unwrap(), LockState::Lost, "{context}");
            assert!(!work.release(&killed).await.unwrap(), "{context}");
            assert_eq!(take(&store, kind, "third").await, None, "{context}: the next holder has it");

            assert_eq!(work.renew(&next).await.unwrap(), LockState::Held, "{context}");
            assert!(may_write(&store, &next).await, "{context}");
            assert!(work.release(&next).await.unwrap(), "{context}");
        }
    }
}

#[tokio::test]
async fn a_holder_that_wakes_before_another_one_goes_on() {
    for kind in KINDS {
        let store = new_store().await;
        let lease = take(&store, kind, "one").await.unwrap();
        end_leases(&store).await;
        assert!(may_write(&store, &lease).await, "{kind:?}");
        assert_eq!(store.work().renew(&lease).await.unwrap(), LockState::Held, "{kind:?}");
        assert_eq!(take(&store, kind, "other").await, None, "{kind:?}");
    }
}

/// As a connection that breaks does with its transaction.
#[tokio::test]
async fn a_process_that_is_killed_within_a_step_leaves_the_step_before() {
    for kind in KINDS {
        let store = new_store().await;
        let work = store.work();
        let mut taking = work.begin().await.unwrap();
        assert!(work.take_within(&mut taking, (kind, "a"), Some("one")).await.unwrap().is_some());
        drop(taking);
        let lease = take(&store, kind, "one").await.unwrap();
        assert_eq!(lease.fence, 1, "{kind:?}");
        let mut releasing = work.begin().await.unwrap();
        assert!(work.release_within(&mut releasing, &lease).await.unwrap());
        drop(releasing);
        assert_eq!(take(&store, kind, "other").await, None, "{kind:?}");
        assert!(work.release(&lease).await.unwrap(), "{kind:?}");
    }
}

#[tokio::test]
async fn a_released_thing_is_taken_at_once_and_was_released_once() {
    for kind in KINDS {
        let store = new_store().await;
        let lease = take(&store, kind, "one").await.unwrap();
        assert!(store.work().release(&lease).await.unwrap(), "{kind:?}");
        assert!(!store.work().release(&lease).await.unwrap(), "{kind:?}");
        assert_eq!(store.work().renew(&lease).await.unwrap(), LockState::Lost, "{kind:?}");
        assert!(take(&store, kind, "other").await.is_some(), "{kind:?}");
    }
}

#[tokio::test]
async fn a_holder_that_is_asked_to_stop_learns_it_and_the_next_one_is_not_asked() {
    for kind in KINDS {
        let store = new_store().await;
        let work = store.work();
        work.ask_to_stop(kind, "a").await.unwrap();
        let lease = take(&store, kind, "one").await.unwrap();
        assert_eq!(work.renew(&lease).await.unwrap(), LockState::Held, "{kind:?}: nobody had it then");
        work.ask_to_stop(kind, "a").await.unwrap();
        assert_eq!(work.renew(&lease).await.unwrap(), LockState::AskedToStop, "{kind:?}");
        assert!(work.release(&lease).await.unwrap(), "{kind:?}");
        let next = take(&store, kind, "one").await.unwrap();
        assert_eq!(work.renew(&next).await.unwrap(), LockState::Held, "{kind:?}");
    }
}

async fn held_until(store: &Store) -> i64 {
    sqlx::query_scalar("SELECT held_until FROM work").fetch_one(&store.pool).await.unwrap()
}

#[tokio::test]
async fn a_lease_is_renewed_until_it_is_lost_or_its_holder_is_asked_to_stop() {
    const NEXT_HOLDER: &str = "UPDATE work SET holder = 'next'";
    for kind in KINDS {
        let (store, kind) = (new_store().await, WorkKind { lease: Duration::from_millis(30), ..kind });
        let work = store.work();
        for expected in [LockState::AskedToStop, LockState::Lost] {
            let lease = take(&store, kind, "one").await.unwrap();
            let end = async {
                let first = held_until(&store).await;
                until("it is renewed", async || held_until(&store).await > first).await;
                match expected {
                    LockState::AskedToStop => work.ask_to_stop(kind, "a").await.unwrap(),
                    _ => store.change_rows(NEXT_HOLDER).await,
                }
            };
            let (state, ()) = tokio::join!(work.keep_renewing(&lease, Instant::now()), end);
            assert_eq!(state, expected, "{kind:?}");
            assert_eq!(work.release(&lease).await.unwrap(), expected != LockState::Lost, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn the_heartbeats_of_replicas_only_shorten_leases() {
    for kind in KINDS {
        let store = new_store().await;
        let lost = take(&store, kind, "one").await.unwrap();
        silence_replicas(&store, MINUTE).await;
        beat(&store, "other").await;
        assert_eq!(take(&store, kind, "other").await, None, "{kind:?}: its own heartbeats had a gap");
        age_replica(&store, "other", MINUTE).await;
        let lease = take(&store, kind, "other").await.unwrap();
        assert_eq!(store.work().renew(&lost).await.unwrap(), LockState::Lost, "{kind:?}");
        // A replica that lives has a thing no longer than its lease.
        end_leases(&store).await;
        assert!(take(&store, kind, "third").await.is_some(), "{kind:?}");
        assert_eq!(store.work().renew(&lease).await.unwrap(), LockState::Lost, "{kind:?}");
    }
}

/// Its heartbeat is due within 3 s: until then it counts as lost.
#[tokio::test]
async fn a_replica_that_is_back_keeps_what_it_takes_before_its_heartbeat() {
    for kind in KINDS {
        let store = new_store().await;
        beat(&store, "one").await;
        silence_replicas(&store, MINUTE).await;
        beat(&store, "other").await;
        age_replica(&store, "other", MINUTE).await;
        let lease = take(&store, kind, "one").await.unwrap();
        assert_eq!(take(&store, kind, "other").await, None, "{kind:?}");
        assert_eq!(store.work().renew(&lease).await.unwrap(), LockState::Held, "{kind:?}");
    }
}

#[tokio::test]
async fn things_of_a_replica_that_has_left_are_free_at_once() {
    for kind in KINDS {
        let store = new_store().await;
        let earlier = take(&store, kind, "one").await.unwrap();
        store.replicas().remove("one").await.unwrap();
        let lease = take(&store, kind, "other").await.unwrap();
        assert_eq!(store.work().renew(&earlier).await.unwrap(), LockState::Lost, "{kind:?}");
        assert_eq!(store.work().renew(&lease).await.unwrap(), LockState::Held, "{kind:?}");
    }
}

/// Two gateways on a database without `cluster.enabled`: neither says that it is there.
#[tokio::test]
async fn only_leases_count_for_processes_that_are_no_replicas() {
    for kind in KINDS {
        let store = new_store().await;
        let take_as = async |replica: Option<&str>| store.work().take(kind, "a", replica).await.unwrap();
        let lease = take_as(None).await.unwrap();
        assert_eq!((take_as(None).await, take_as(Some("one")).await), (None, None), "{kind:?}");
        assert!(store.work().release(&lease).await.unwrap(), "{kind:?}");
        let lease = take_as(Some("one")).await.unwrap();
        store.replicas().remove("one").await.unwrap();
        assert_eq!(take_as(None).await, None, "{kind:?}");
        assert_eq!(store.work().renew(&lease).await.unwrap(), LockState::Held, "{kind:?}");
        end_leases(&store).await;
        assert!(take_as(None).await.is_some(), "{kind:?}");
    }
}

#[tokio::test]
async fn things_of_earlier_processes_are_free_where_there_is_one_process() {
    for kind in KINDS {
        let store = new_store().await;
        let earlier = store.work().take(kind, "a", None).await.unwrap().unwrap();
        store.work().free_things_of_earlier_processes().await.unwrap();
        let lease = store.work().take(kind, "a", None).await.unwrap();
        let is_free = store.engine == Engine::Sqlite;
        assert_eq!(lease.is_some(), is_free, "{kind:?}");
        let expected = if is_free { LockState::Lost } else { LockState::Held };
        assert_eq!(store.work().renew(&earlier).await.unwrap(), expected, "{kind:?}");
    }
}

/// After several attempts, and before a replica whose heartbeats end at the same time is lost to others.
#[tokio::test]
async fn a_lease_that_cannot_be_renewed_counts_as_lost_before_another_replica_takes_the_thing() {
    for kind in KINDS {
        let store = new_store().await;
        let lease = take(&store, kind, "one").await.unwrap();
        store.close().await;
        tokio::time::pause();
        let begun = Instant::now();
        assert_eq!(store.work().keep_renewing(&lease, begun).await, LockState::Lost, "{kind:?}");
        let after = begun.elapsed();
        assert!(2 * HEARTBEAT < after && after < LOST_AFTER - HEARTBEAT, "{kind:?}: {after:?}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_replica_does_not_take_a_thing_from_itself() {
    for kind in KINDS {
        let store = new_store().await;
        let lease = take(&store, kind, "one").await.unwrap();
        assert_eq!(take(&store, kind, "one").await, None, "{kind:?}");
        store.replicas().remove("one").await.unwrap();
        assert_eq!(take(&store, kind, "one").await, None, "{kind:?}: it stops, and a call of it still works");
        assert_eq!(store.work().renew(&lease).await.unwrap(), LockState::Held, "{kind:?}");
    }
}

async fn rows(store: &Store) -> i64 {
    sqlx::query_scalar("SELECT COUNT(*) FROM work").fetch_one(&store.pool).await.unwrap()
}

#[tokio::test]
async fn expired_rows_without_a_holder_are_swept() {
    const EXPIRE: &str = "UPDATE work SET expires = 0";
    for kind in KINDS {
        let store = new_store().await;
        let work = store.work();
        let lease = take(&store, kind, "one").await.unwrap();
        store.change_rows(EXPIRE).await;
        work.sweep().await.unwrap();
        assert_eq!(work.renew(&lease).await.unwrap(), LockState::Held, "{kind:?}: it has a holder");
        assert!(work.release(&lease).await.unwrap());
        work.sweep().await.unwrap();
        assert_eq!(rows(&store).await, 1, "{kind:?}: it was released just now");
        store.change_rows(EXPIRE).await;
        work.sweep().await.unwrap();
        assert_eq!(rows(&store).await, 0, "{kind:?}");

        // The row begins anew, with the fence of the earlier holder.
        let next = take(&store, kind, "other").await.unwrap();
        assert_eq!(next.fence, lease.fence, "{kind:?}");
        assert_eq!(work.renew(&lease).await.unwrap(), LockState::Lost, "{kind:?}");
        assert!(!may_write(&store, &lease).await, "{kind:?}");
        // Its holder is gone.
        store.change_rows(EXPIRE).await;
        end_leases(&store).await;
        work.sweep().await.unwrap();
        assert_eq!(work.renew(&next).await.unwrap(), LockState::Lost, "{kind:?}");
    }
}

#[tokio::test]
async fn kinds_have_names_of_their_own() {
    let store = new_store().await;
    let leases = [take(&store, WORKSPACE, "one").await.unwrap(), take(&store, NEW, "other").await.unwrap()];
    store.work().ask_to_stop(NEW, "a").await.unwrap();
    let states = [store.work().renew(&leases[0]).await.unwrap(), store.work().renew(&leases[1]).await.unwrap()];
    assert_eq!(states, [LockState::Held, LockState::AskedToStop]);
}

/// Numbers without a pattern, the same for each seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Three processes take, write and release in any order, and wake with leases that they lost.
#[tokio::test]
async fn in_any_order_of_steps_only_the_last_taker_has_an_effect() {
    for seed in 0..8 {
        let kind = KINDS[usize::try_from(seed).unwrap() % KINDS.len()];
        let mut numbers = Numbers(seed);
        let (store, mut leases) = (new_store().await, Vec::<(WorkLease, bool)>::new());
        let work = store.work();
        for step in 0..60 {
            let context = format!("seed {seed}, step {step}: {leases:?}");
            let has_holder = leases.last().is_some_and(|(_, is_released)| !is_released);
            if leases.is_empty() || numbers.below(4) == 0 {
                let ends = numbers.below(2) == 0;
                if ends {
                    end_leases(&store).await;
                }
                let process = ["one", "other", "third"][usize::try_from(numbers.below(3)).unwrap()];
                let taken = take(&store, kind, process).await;
                assert_eq!(taken.is_some(), ends || !has_holder, "{context}");
                leases.extend(taken.map(|lease| (lease, false)));
                continue;
            }
            let last = leases.len() - 1;
            let at = usize::try_from(numbers.below(3)).unwrap().min(last);
            let (at, action) = (last - at, numbers.below(3));
            let is_held = at == last && has_holder;
            let lease = leases[at].0.clone();
            match action {
                0 => assert_eq!(may_write(&store, &lease).await, is_held, "{context}"),
                1 => assert_eq!(work.renew(&lease).await.unwrap() == LockState::Held, is_held, "{context}"),
                _ => {
                    assert_eq!(work.release(&lease).await.unwrap(), is_held, "{context}");
                    leases[at].1 |= is_held;
                }
            }
        }
    }
}
