use jiff::Timestamp;

use super::*;
use crate::replica::LOST_AFTER;
use crate::test_support::{beat, fill_the_disk, free_disk, test_store};

fn at(microsecond: i64) -> DatabaseTime {
    Timestamp::from_microsecond(microsecond).unwrap().into()
}

fn owner(caller: &str) -> RecordOwner {
    RecordOwner { tenant: "acme".into(), caller_key: caller.into() }
}

/// The reply of a row with so many bytes.
fn row(bytes: u64) -> RemovedReply {
    RemovedReply { bytes, object: None }
}

async fn start(store: &Store, id: &str, caller: &str, now: i64) -> Result<bool, StoreError> {
    let owner = owner(caller);
    store.idempotency().start(StartedCall { id, owner: &owner, request: "r", runner: None, named: None }, at(now)).await
}

fn call(id: &str, started: i64) -> RecordFence<'_> {
    RecordFence { id, started: at(started) }
}

async fn outcome(store: &Store, id: &str) -> Option<RecordedOutcome> {
    store.idempotency().get(id).await.unwrap().map(|record| record.outcome)
}

#[tokio::test]
async fn a_record_is_started_once_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sekisho.db");
    let store = Store::open_file(&path).await.unwrap();
    assert!(start(&store, "a", "ann", 1).await.unwrap());
    assert!(!start(&store, "a", "bob", 2).await.unwrap(), "there is one already");
    assert!(start(&store, "b", "ann", 1).await.unwrap());
    assert!(store.idempotency().end(call("b", 1), KeptReply::Text("{\"n\":1.10}"), at(5)).await.unwrap());
    assert!(!store.idempotency().end(call("c", 1), KeptReply::Text("{}"), at(5)).await.unwrap());
    store.close().await;
    let store = Store::open_file(&path).await.unwrap();
    assert_eq!(outcome(&store, "a").await, Some(RecordedOutcome::Unknown));
    let kept = store.idempotency().get("b").await.unwrap().unwrap();
    let expected = RecordedOutcome::Answered("{\"n\":1.10}".to_owned());
    assert_eq!((kept.request.as_str(), kept.kept_since, kept.outcome), ("r", at(5), expected));
    assert_eq!(outcome(&store, "c").await, None);
    let owned = OwnedRecords { owner: owner("ann"), records: 2, bytes: 10 };
    assert_eq!(store.idempotency().by_owner().await.unwrap(), [owned]);
}

#[tokio::test]
async fn a_call_with_a_key_waits_for_the_disk_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    let mode = async |pool| sqlx::query_scalar("PRAGMA synchronous").fetch_one(pool).await;
    let (normal, full): (i64, i64) = (1, 2);
    assert_eq!((mode(&store.durable).await.unwrap(), mode(&store.pool).await.unwrap()), (full, normal));
    assert!(start(&store, "a", "ann", 1).await.unwrap());
    assert_eq!(outcome(&store, "a").await, Some(RecordedOutcome::Unknown), "all connections see it");
    store.durable.close().await;
    assert!(start(&store, "b", "ann", 1).await.is_err(), "it is recorded there alone");
    assert!(store.idempotency().end(call("a", 1), KeptReply::Nothing, at(5)).await.unwrap());
}

#[tokio::test]
async fn the_least_recently_used_answered_record_of_an_owner_goes_first() {
    let store = test_store().await;
    for (now, (id, caller)) in (1..).zip([("running", "ann"), ("a", "ann"), ("b", "ann"), ("c", "bob")]) {
        start(&store, id, caller, now).await.unwrap();
    }
    for (started, id) in (2..).zip(["a", "b", "c"]) {
        store.idempotency().end(call(id, started), KeptReply::Text("12345"), at(started + 8)).await.unwrap();
    }
    store.idempotency().record_use("a", at(20)).await.unwrap();
    assert_eq!(store.idempotency().drop_oldest_reply(&owner("ann")).await.unwrap(), Some(5));
    assert_eq!(outcome(&store, "b").await, Some(RecordedOutcome::ReplyDropped));
    assert_eq!(store.idempotency().forget_oldest(&owner("ann")).await.unwrap(), Some(row(0)), "b");
    assert_eq!(outcome(&store, "b").await, None);
    assert_eq!(store.idempotency().forget_oldest(&owner("ann")).await.unwrap(), Some(row(5)), "a");
    assert_eq!(store.idempotency().forget_oldest(&owner("ann")).await.unwrap(), None, "the other runs");
    assert_eq!(store.idempotency().drop_oldest_reply(&owner("ann")).await.unwrap(), None);
    assert_eq!(outcome(&store, "running").await, Some(RecordedOutcome::Unknown));
    assert!(outcome(&store, "c").await.is_some(), "another's stay");
}

#[tokio::test]
async fn old_records_are_removed_and_counted() {
    let store = test_store().await;
    for (id, caller, now) in [("a", "ann", 1), ("b", "bob", 2), ("c", "ann", 3)] {
        start(&store, id, caller, now).await.unwrap();
    }
    store.idempotency().end(call("b", 2), KeptReply::Text("123"), at(2)).await.unwrap();
    assert_eq!(store.idempotency().forget_until(at(2)).await.unwrap(), [(owner("bob"), row(3))]);
    let open = store.idempotency().open_until(at(2), None, LOST_AFTER).await.unwrap();
    assert_eq!(open, [OpenRecord { id: "a".to_owned(), owner: owner("ann"), started: at(1) }]);
    for (id, started) in [("a", 1), ("c", 3)] {
        assert!(store.idempotency().forget(call(id, started)).await.unwrap());
        assert!(!store.idempotency().forget(call(id, started)).await.unwrap());
    }
    assert!(store.idempotency().by_owner().await.unwrap().is_empty());
}

/// A call that outlived its record, because its process was cut off from the database, for example.
#[tokio::test]
async fn a_call_does_not_end_a_later_one_with_the_same_key() {
    let store = test_store().await;
    start(&store, "a", "ann", 1).await.unwrap();
    assert!(store.idempotency().forget(call("a", 1)).await.unwrap(), "it counts as lost");
    start(&store, "a", "ann", 5).await.unwrap();
    assert!(!store.idempotency().end(call("a", 1), KeptReply::Text("early"), at(6)).await.unwrap());
    assert!(!store.idempotency().forget(call("a", 1)).await.unwrap());
    assert_eq!(outcome(&store, "a").await, Some(RecordedOutcome::Unknown));
    assert!(store.idempotency().end(call("a", 5), KeptReply::Text("late"), at(7)).await.unwrap());
    assert!(!store.idempotency().forget(call("a", 5)).await.unwrap(), "it has an answer");
    assert_eq!(outcome(&store, "a").await, Some(RecordedOutcome::Answered("late".to_owned())));
}

#[tokio::test]
async fn the_call_of_a_replica_that_lives_is_left_to_it() {
    let store = test_store().await;
    for replica in ["own", "other"] {
        beat(&store, replica).await;
    }
    let owner = owner("ann");
    for id in ["own", "other", "gone"] {
        let new = StartedCall { id, owner: &owner, request: "r", runner: Some(id), named: None };
        assert!(store.idempotency().start(new, at(1)).await.unwrap());
    }
    let open = store.idempotency().open_until(at(1), Some("own"), LOST_AFTER).await.unwrap();
    let mut open: Vec<_> = open.into_iter().map(|record| record.id).collect();
    open.sort();
    assert_eq!(open, ["gone", "own"]);
}

#[tokio::test]
async fn a_record_names_the_object_with_its_reply_until_it_is_removed() {
    let store = test_store().await;
    let object = |name: &str| {
        let key = BlobKey::of(["replies", "tenant", name]);
        StoredBlob { key, sha256: "ab".repeat(32), bytes: 6 << 20 }
    };
    for (id, now) in [("a", 1), ("b", 2)] {
        start(&store, id, "ann", now).await.unwrap();
        assert!(store.idempotency().end(call(id, now), KeptReply::Object(&object(id)), at(now)).await.unwrap());
    }
    assert_eq!(outcome(&store, "a").await, Some(RecordedOutcome::AnsweredByObject(object("a"))));
    let owned = OwnedRecords { owner: owner("ann"), records: 2, bytes: 0 };
    assert_eq!(store.idempotency().by_owner().await.unwrap(), [owned], "bytes are those of the rows");
    assert_eq!(store.idempotency().drop_oldest_reply(&owner("ann")).await.unwrap(), None);
    let removed = |name| RemovedReply { bytes: 0, object: Some(object(name).key) };
    let oldest = store.idempotency().forget_oldest(&owner("ann")).await.unwrap();
    assert_eq!(oldest, Some(removed("a")));
    assert_eq!(store.idempotency().forget_until(at(2)).await.unwrap(), [(owner("ann"), removed("b"))]);
}

#[tokio::test]
async fn on_a_full_disk_nothing_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    fill_the_disk(&store).await;
    let owner = RecordOwner { caller_key: "x".repeat(100_000).into(), ..owner("ann") };
    let call = StartedCall { id: "a", owner: &owner, request: "r", runner: None, named: None };
    let error = store.idempotency().start(call, at(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    free_disk(&store).await;
    assert_eq!(outcome(&store, "a").await, None);
    assert!(store.idempotency().start(call, at(1)).await.unwrap());
}

#[tokio::test]
async fn calls_without_an_answer_and_equal_calls_are_found_by_their_owner() {
    let store = test_store().await;
    let records = store.idempotency();
    for (id, caller, now) in [("a", "ann", 1), ("b", "ann", 2), ("c", "bob", 3)] {
        let owner = owner(caller);
        let named = Some(NamedCall { tool: "pay", call_id: id });
        let call = StartedCall { id, owner: &owner, request: "r", runner: None, named };
        assert!(records.start(call, at(now)).await.unwrap());
    }
    start(&store, "turn", "ann", 4).await.unwrap();
    assert!(records.end(call("b", 2), KeptReply::Text("12345"), at(5)).await.unwrap());
    let open = async |caller| {
        let open = records.open_effects("acme", caller).await.unwrap();
        let mut open: Vec<_> = open.into_iter().map(|effect| (effect.call_id, effect.tool, effect.started)).collect();
        open.sort();
        open
    };
    let found = |id: &str, now| (id.to_owned(), "pay".to_owned(), at(now));
    assert_eq!(open(None).await, [found("a", 1), found("c", 3)], "a turn has no tool");
    assert_eq!(open(Some("bob")).await, [found("c", 3)]);
    assert_eq!(records.open_effects("globex", None).await.unwrap(), []);
    let equal = async |after| {
        let equal = records.equal_effects(&owner("ann"), "r", at(after)).await.unwrap();
        equal.into_iter().map(|effect| (effect.id, effect.has_answer)).collect::<Vec<_>>()
    };
    assert_eq!(equal(0).await, [("a".into(), false), ("turn".into(), false), ("b".into(), true)]);
    assert_eq!(equal(4).await, [("b".into(), true)]);
    assert_eq!(records.forget_answered("b").await.unwrap(), Some(row(5)));
    assert_eq!(records.forget_answered("a").await.unwrap(), None, "it has no answer");
}
