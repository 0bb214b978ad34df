use super::*;
use crate::ReplicaIdentity;
use crate::test_support::{age_program_runs, test_store};

const ANN: ProgramRunOwner<'static> = ProgramRunOwner { tenant: "acme", caller_key: "acme\u{1f}ann", endpoint: "all" };
const LOST_AFTER: Duration = Duration::from_secs(10);

async fn begin(store: &Store, id: &str, runner: &str) {
    let new = NewProgramRun { id, owner: ANN, arguments: "a1", runner, part: "first" };
    store.program_runs().begin(new).await.unwrap();
}

async fn take(store: &Store, id: &str, runner: &str) -> Option<i64> {
    store.program_runs().take(id, ANN, runner, LOST_AFTER).await.unwrap()
}

fn fence(id: &str, fence: i64) -> ProgramRunFence<'_> {
    ProgramRunFence { id, fence }
}

async fn beat(store: &Store, id: &str) {
    let replica = ReplicaIdentity {
        id,
        host: "h",
        version: "1",
        configuration: "c",
        policies: "p",
        address: None,
        degraded: "[]",
    };
    store.replicas().beat(replica, LOST_AFTER).await.unwrap();
}

#[tokio::test]
async fn a_journal_is_written_by_one_process_in_the_order_of_its_parts() {
    let store = test_store().await;
    begin(&store, "r", "p1").await;
    assert!(store.program_runs().add_part(fence("r", 1), 1, "second").await.unwrap());
    assert!(!store.program_runs().add_part(fence("r", 1), 1, "another").await.unwrap(), "it has that part");
    assert!(!store.program_runs().add_part(fence("r", 2), 2, "other fence").await.unwrap());
    let parts = store.program_runs().parts("r").await.unwrap();
    assert_eq!(parts, [(0, "first".to_owned()), (1, "second".to_owned())]);

    assert!(store.program_runs().stop(fence("r", 1), Some("approval")).await.unwrap());
    assert!(!store.program_runs().add_part(fence("r", 1), 2, "late").await.unwrap(), "it has stopped");
    assert_eq!(take(&store, "r", "p2").await, Some(2));
    assert!(!store.program_runs().add_part(fence("r", 1), 2, "late").await.unwrap(), "another process has it");
    assert!(!store.program_runs().stop(fence("r", 1), None).await.unwrap());
    assert!(store.program_runs().add_part(fence("r", 2), 2, "third").await.unwrap());
    store.program_runs().forget(fence("r", 1)).await.unwrap();
    assert_eq!(store.program_runs().parts("r").await.unwrap().len(), 3, "it is not its own any more");
    store.program_runs().forget(fence("r", 2)).await.unwrap();
    assert_eq!(store.program_runs().parts("r").await.unwrap(), []);
    assert_eq!(store.program_runs().get("r", ANN).await.unwrap(), None);
}

#[tokio::test]
async fn a_run_is_taken_by_one_and_from_a_process_that_is_gone() {
    let store = test_store().await;
    beat(&store, "live").await;
    begin(&store, "of-live", "live").await;
    begin(&store, "of-dead", "dead").await;
    assert_eq!(take(&store, "of-live", "me").await, None, "its process lives");
    assert_eq!(take(&store, "of-live", "live").await, Some(2), "its own, which knows whether it runs");
    assert_eq!(take(&store, "of-dead", "live").await, Some(2));
    assert_eq!(take(&store, "of-dead", "me").await, None);
    assert!(store.program_runs().stop(fence("of-dead", 2), None).await.unwrap());
    let (one, other) = tokio::join!(take(&store, "of-dead", "a"), take(&store, "of-dead", "b"));
    // Neither of the two is a replica that lives: the later one takes it from the other, whose fence is lost.
    assert!(one != other, "{one:?} {other:?}");
}

#[tokio::test]
async fn a_run_is_found_by_its_owner_and_by_what_it_waits_for() {
    let store = test_store().await;
    begin(&store, "r", "p").await;
    for other in [
        ProgramRunOwner { tenant: "other", ..ANN },
        ProgramRunOwner { caller_key: "acme\u{1f}bob", ..ANN },
        ProgramRunOwner { endpoint: "part", ..ANN },
    ] {
        assert_eq!(store.program_runs().get("r", other).await.unwrap(), None, "{other:?}");
        assert_eq!(store.program_runs().take("r", other, "p", LOST_AFTER).await.unwrap(), None, "{other:?}");
        assert_eq!(store.program_runs().of_owner(other).await.unwrap(), [], "{other:?}");
    }
    assert_eq!(store.program_runs().awaiting(ANN, "a1", "x").await.unwrap(), None);
    store.program_runs().stop(fence("r", 1), Some("x")).await.unwrap();
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
    assert_eq!(take(&store, "r", "p").await, Some(2));
    store.program_runs().give_up(fence("r", 2), "too large").await.unwrap();
    let found = store.program_runs().get("r", ANN).await.unwrap().unwrap();
    assert_eq!((found.state, found.reason.as_deref()), (ProgramRunState::Unusable, Some("too large")));
    assert_eq!(take(&store, "r", "p").await, None);
    assert_eq!(store.program_runs().parts("r").await.unwrap(), []);
}

#[tokio::test]
async fn runs_expire_and_a_caller_has_a_number_of_them() {
    let store = test_store().await;
    for number in 0..=MAX_RUNS_OF_CALLER {
        let id = format!("r{number:03}");
        begin(&store, &id, "p").await;
        store.program_runs().stop(fence(&id, 1), None).await.unwrap();
    }
    begin(&store, "last", "p").await;
    assert_eq!(store.program_runs().get("r000", ANN).await.unwrap(), None, "the oldest one was removed");
    assert_eq!(store.program_runs().parts("r000").await.unwrap(), []);
    assert!(store.program_runs().get("r002", ANN).await.unwrap().is_some());
    age_program_runs(&store, RUN_TTL).await;
    assert_eq!(store.program_runs().of_owner(ANN).await.unwrap(), []);
    assert_eq!(take(&store, "last", "p").await, None);
    store.program_runs().forget_expired().await.unwrap();
    assert_eq!(store.program_runs().parts("last").await.unwrap(), []);
}
