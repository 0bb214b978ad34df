use super::*;
use crate::test_support::{age_program_runs, age_replica, beat, end_leases, test_store};

const ANN: ProgramRunOwner<'static> = ProgramRunOwner { tenant: "acme", caller_key: "acme\u{1f}ann", endpoint: "all" };

async fn begin(store: &Store, id: &str, replica: Option<&str>) -> ProgramRunLease {
    let new = NewProgramRun { id, owner: ANN, arguments: "a1", replica, part: "first" };
    store.program_runs().begin(new).await.unwrap()
}

async fn take(store: &Store, id: &str, replica: Option<&str>) -> Option<ProgramRunLease> {
    store.program_runs().take(id, ANN, replica).await.unwrap()
}

#[tokio::test]
async fn a_journal_is_written_by_one_process_in_the_order_of_its_parts() {
    let store = test_store().await;
    let (runs, first) = (store.program_runs(), begin(&store, "r", None).await);
    assert!(runs.add_part(&first, 1, "second").await.unwrap());
    assert!(!runs.add_part(&first, 1, "another").await.unwrap(), "it has that part");
    let parts = runs.parts("r").await.unwrap();
    assert_eq!(parts, [(0, "first".to_owned()), (1, "second".to_owned())]);

    assert!(runs.stop(&first, Some("approval")).await.unwrap());
    assert!(!runs.add_part(&first, 2, "late").await.unwrap(), "it has stopped");
    let next = take(&store, "r", None).await.unwrap();
    assert!(!runs.add_part(&first, 2, "late").await.unwrap(), "another process has it");
    assert!(!runs.stop(&first, None).await.unwrap());
    runs.give_up(&first, "late").await.unwrap();
    assert!(runs.add_part(&next, 2, "third").await.unwrap());
    runs.forget(&first).await.unwrap();
    assert_eq!(runs.parts("r").await.unwrap().len(), 3, "it is not its own any more");
    runs.forget(&next).await.unwrap();
    assert_eq!(runs.parts("r").await.unwrap(), []);
    assert_eq!(runs.get("r", ANN).await.unwrap(), None);
}

#[tokio::test]
async fn a_run_is_taken_by_one_and_from_a_process_that_is_gone() {
    let store = test_store().await;
    for replica in ["live", "me"] {
        beat(&store, replica).await;
        age_replica(&store, replica, LOST_AFTER).await;
    }
    begin(&store, "of-live", Some("live")).await;
    begin(&store, "of-dead", Some("dead")).await;
    begin(&store, "of-none", None).await;
    for (id, is_free) in [("of-live", false), ("of-dead", true), ("of-none", false)] {
        assert_eq!(store.program_runs().is_held(id, Some("me")).await.unwrap(), !is_free, "{id}");
        assert_eq!(take(&store, id, Some("me")).await.is_some(), is_free, "{id}");
    }
    assert_eq!(take(&store, "of-live", Some("live")).await, None, "its own");
    assert_eq!(take(&store, "of-dead", Some("live")).await, None, "it was taken");
    end_leases(&store).await;
    for id in ["of-live", "of-none"] {
        assert!(!store.program_runs().is_held(id, None).await.unwrap(), "{id}");
        let (one, other) = tokio::join!(take(&store, id, None), take(&store, id, None));
        assert_ne!(one.is_some(), other.is_some(), "{id}: {one:?} {other:?}");
    }
}

/// Such as where the database did not take its end.
#[tokio::test]
async fn a_run_that_its_process_did_not_stop_can_be_resumed_as_long_as_it_is_kept() {
    let store = test_store().await;
    beat(&store, "live").await;
    begin(&store, "r", Some("live")).await;
    end_leases(&store).await;
    let day = micros(RUN_TTL) - micros(Duration::from_secs(3_600));
    store.change_rows(&format!("UPDATE work SET expires = expires - {day}")).await;
    store.work().sweep().await.unwrap();
    assert!(!store.program_runs().is_held("r", Some("live")).await.unwrap());
    assert!(take(&store, "r", Some("live")).await.is_some());
}

#[tokio::test]
async fn a_run_is_found_by_its_owner_and_by_what_it_waits_for() {
    let store = test_store().await;
    let lease = begin(&store, "r", None).await;
    for other in [
        ProgramRunOwner { tenant: "other", ..ANN },
        ProgramRunOwner { caller_key: "acme\u{1f}bob", ..ANN },
        ProgramRunOwner { endpoint: "part", ..ANN },
    ] {
        assert_eq!(store.program_runs().get("r", other).await.unwrap(), None, "{other:?}");
        assert_eq!(store.program_runs().take("r", other, None).await.unwrap(), None, "{other:?}");
        assert_eq!(store.program_runs().of_owner(other).await.unwrap(), [], "{other:?}");
    }
    assert_eq!(store.program_runs().awaiting(ANN, "a1", "x").await.unwrap(), None);
    assert!(store.program_runs().stop(&lease, Some("x")).await.unwrap());
    assert_eq!(store.program_runs().awaiting(ANN, "a1", "x").await.unwrap().as_deref(), Some("r"));
    for (arguments, approval) in [("a2", "x"), ("a1", "y")] {
        assert_eq!(store.program_runs().awaiting(ANN, arguments, approval).await.unwrap(), None);
    }
    for (owner, waits_for) in [(ProgramRunOwner { endpoint: "part", ..ANN }, "x"), (ANN, "z")] {
        store.program_runs().await_approval("r", owner, "z").await.unwrap();
        assert_eq!(store.program_runs().awaiting(ANN, "a1", waits_for).await.unwrap().as_deref(), Some("r"));
    }
    let found = store.program_runs().get("r", ANN).await.unwrap().unwrap();
    assert_eq!((found.state, found.approval.as_deref()), (ProgramRunState::Stopped, Some("z")));
    assert_eq!(store.program_runs().of_owner(ANN).await.unwrap(), [found]);
    let lease = take(&store, "r", None).await.unwrap();
    store.program_runs().give_up(&lease, "too large").await.unwrap();
    let found = store.program_runs().get("r", ANN).await.unwrap().unwrap();
    assert_eq!((found.state, found.reason.as_deref()), (ProgramRunState::Unusable, Some("too large")));
    assert!(!store.program_runs().stop(&lease, None).await.unwrap(), "it cannot be resumed");
    assert_eq!(take(&store, "r", None).await, None);
    assert_eq!(store.program_runs().parts("r").await.unwrap(), []);
}

#[tokio::test]
async fn runs_expire_and_a_caller_has_a_number_of_them() {
    let store = test_store().await;
    for number in 0..=MAX_RUNS_OF_CALLER {
        let id = format!("r{number:03}");
        let lease = begin(&store, &id, None).await;
        assert!(store.program_runs().stop(&lease, None).await.unwrap());
    }
    begin(&store, "last", None).await;
    assert_eq!(store.program_runs().get("r000", ANN).await.unwrap(), None, "the oldest one was removed");
    assert_eq!(store.program_runs().parts("r000").await.unwrap(), []);
    let rows: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM work").fetch_one(&store.pool).await.unwrap();
    assert_eq!(rows, MAX_RUNS_OF_CALLER, "of each run that is kept");
    assert!(store.program_runs().get("r002", ANN).await.unwrap().is_some());
    age_program_runs(&store, RUN_TTL).await;
    assert_eq!(store.program_runs().of_owner(ANN).await.unwrap(), []);
    end_leases(&store).await;
    assert_eq!(take(&store, "last", None).await, None, "it has expired");
    store.program_runs().forget_expired().await.unwrap();
    assert_eq!(store.program_runs().parts("last").await.unwrap(), []);
}
