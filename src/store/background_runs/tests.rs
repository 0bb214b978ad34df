//! Who takes a run, and how many.

use super::*;
use crate::test_support::{end_leases, test_store};

fn new<'a>(id: &'a str, tenant: &'a str) -> NewBackgroundRun<'a> {
    let kind = BackgroundKind::Run;
    NewBackgroundRun { id, tenant, caller_key: tenant, conversation: "c", kind, request: "sealed" }
}

fn step(state: BackgroundState, due: Option<Duration>) -> BackgroundStep {
    BackgroundStep { state, status: None, error: None, attempts: 0, notice_error: None, due }
}

async fn taken(store: &Store) -> Option<String> {
    store.background_runs().take(2, None).await.unwrap().map(|(run, _)| run.id)
}

#[tokio::test]
async fn of_a_tenant_so_many_wait_and_so_many_are_taken_at_once() {
    let store = test_store().await;
    assert!(store.background_runs().is_idle().await.unwrap());
    let add = async |id, tenant| store.background_runs().add(new(id, tenant), 3).await.unwrap();
    for (id, tenant, expected) in
        [("1", "a", true), ("2", "a", true), ("3", "a", true), ("4", "a", false), ("5", "b", true)]
    {
        assert_eq!(add(id, tenant).await, expected, "{id}");
    }
    assert!(!store.background_runs().is_idle().await.unwrap());
    let (first, held) = store.background_runs().take(2, None).await.unwrap().unwrap();
    assert_eq!((&*first.id, first.state, first.attempts), ("1", BackgroundState::Queued, 1));
    assert_eq!(taken(&store).await.as_deref(), Some("2"));
    assert_eq!(taken(&store).await.as_deref(), Some("5"), "the next one is of the other tenant");
    assert_eq!(taken(&store).await, None);
    let ended = step(BackgroundState::Ended, None);
    assert!(store.background_runs().give_back(&held, &ended).await.unwrap());
    let ended = store.background_runs().get("a", "1").await.unwrap().unwrap();
    assert_eq!((ended.state, &*ended.request), (BackgroundState::Ended, ""), "its request is forgotten");
    assert_eq!(taken(&store).await.as_deref(), Some("3"));
}

#[tokio::test]
async fn webhooks_of_a_tenant_wait_for_none_of_its_runs_and_for_each_other() {
    let store = test_store().await;
    for id in ["1", "2", "3"] {
        store.background_runs().add(new(id, "a"), 3).await.unwrap();
    }
    let first = store.background_runs().take(2, None).await.unwrap().unwrap();
    let second = store.background_runs().take(2, None).await.unwrap().unwrap();
    for (_, held) in [first, second] {
        let ended = step(BackgroundState::Ended, Some(Duration::ZERO));
        assert!(store.background_runs().give_back(&held, &ended).await.unwrap());
    }
    let mut found = Vec::new();
    while let Some((run, _)) = store.background_runs().take(1, None).await.unwrap() {
        found.push((run.id, run.state, run.request));
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [("1", BackgroundState::Ended), ("3", BackgroundState::Queued)];
    assert_eq!(found, expected.map(|(id, state)| (id.to_owned(), state, "sealed".to_owned())));
}

#[tokio::test]
async fn a_run_whose_process_ended_is_taken_by_another_one_which_alone_changes_it() {
    let store = test_store().await;
    let covered = NewBackgroundRun { kind: BackgroundKind::Covered, ..new("1", "a") };
    let lost = store.background_runs().cover(covered, "r1", Some("one")).await.unwrap();
    assert_eq!(taken(&store).await, None);
    end_leases(&store).await;
    let (run, held) = store.background_runs().take(2, Some("two")).await.unwrap().unwrap();
    assert_eq!((run.kind, &*run.runs), (BackgroundKind::Recovered, &["r1".to_owned()][..]));
    let runs = ["r1".to_owned(), "r2".to_owned()];
    assert!(!store.background_runs().set_runs(&lost, &[]).await.unwrap());
    assert!(store.background_runs().set_runs(&held, &runs).await.unwrap());
    let later = step(BackgroundState::Paused, Some(Duration::from_secs(60)));
    assert!(!store.background_runs().give_back(&lost, &later).await.unwrap());
    assert!(store.background_runs().give_back(&held, &later).await.unwrap());
    store.background_runs().forget(&lost).await.unwrap();
    let found = store.background_runs().get("a", "1").await.unwrap().unwrap();
    assert_eq!((found.state, &*found.runs), (BackgroundState::Paused, &runs[..]));
    assert_eq!(taken(&store).await, None, "it is not due");
}

#[tokio::test]
async fn a_cancelled_run_is_taken_at_once_and_by_its_caller_alone() {
    let store = test_store().await;
    store.background_runs().add(new("1", "a"), 3).await.unwrap();
    let (_, held) = store.background_runs().take(2, None).await.unwrap().unwrap();
    let later = step(BackgroundState::Paused, Some(Duration::from_secs(60)));
    store.background_runs().give_back(&held, &later).await.unwrap();
    store.background_runs().stop("b", "1").await.unwrap();
    assert_eq!(taken(&store).await, None);
    store.background_runs().stop("a", "1").await.unwrap();
    let (run, held) = store.background_runs().take(0, None).await.unwrap().unwrap();
    assert!(run.is_stopped);
    let ended = step(BackgroundState::Ended, None);
    store.background_runs().give_back(&held, &ended).await.unwrap();
    assert_eq!(store.background_runs().of_caller("a", None, 9).await.unwrap().len(), 1);
    assert!(store.background_runs().of_caller("a", Some("1"), 9).await.unwrap().is_empty());
    assert!(store.background_runs().get("b", "1").await.unwrap().is_none());
}
