use super::*;
use crate::ReplicaIdentity;
use crate::test_support::{age_sessions, test_store};

const ANN: InterpreterSessionKey<'static> =
    InterpreterSessionKey { tenant: "acme", caller_key: "acme\u{1f}ann", name: "a" };
const LOST_AFTER: Duration = Duration::from_secs(10);
const TIMES: SessionTimes = SessionTimes { lifetime: Duration::from_secs(3_600), lost_after: LOST_AFTER };
const MAX_BYTES: u64 = 30;

async fn beat(store: &Store, id: &str) {
    let (host, version, configuration, policies, degraded) = ("h", "1", "c", "p", "[]");
    let replica = ReplicaIdentity { id, host, version, configuration, policies, address: None, degraded };
    store.replicas().beat(replica, LOST_AFTER).await.unwrap();
}

const NEW: NewInterpreterSession =
    NewInterpreterSession { every_call: false, age: Duration::ZERO, lifetime: TIMES.lifetime };

async fn take(store: &Store, key: InterpreterSessionKey<'_>, runner: &str) -> Option<TakenSession> {
    store.interpreter_sessions().take(key, runner, TIMES).await.unwrap()
}

/// The fence of a session that has begun.
async fn begun<'a>(store: &Store, key: InterpreterSessionKey<'a>, runner: &str) -> InterpreterSessionFence<'a> {
    let fence = InterpreterSessionFence { key, fence: take(store, key, runner).await.unwrap().fence };
    store.interpreter_sessions().begin(fence, NEW).await.unwrap().unwrap();
    fence
}

fn image(name: &str) -> SessionImage {
    SessionImage {
        profile: "data".to_owned(),
        interpreter: "i1".to_owned(),
        snapshot: "s1".to_owned(),
        rights: "r1".to_owned(),
        programs: "p1".to_owned(),
        object: StoredBlob { key: BlobKey::of(["sessions", name]), sha256: "00".to_owned(), bytes: 10 },
    }
}

/// Stores an image of 10 bytes; the objects that went for it.
async fn keep(store: &Store, session: InterpreterSessionFence<'_>, name: &str, releases: bool) -> Option<Vec<BlobKey>> {
    let new = NewSessionImage { image: &image(name), every_call: !releases, calls: 3, releases };
    store.interpreter_sessions().keep_image(session, new, MAX_BYTES).await.unwrap()
}

#[tokio::test]
async fn one_process_has_a_session_until_it_releases_it_or_is_lost() {
    let store = test_store().await;
    beat(&store, "one").await;
    beat(&store, "two").await;
    let new = take(&store, ANN, "one").await.unwrap();
    assert_eq!((new.fence, new.generation, &new.ended, &new.image), (1, 0, &None, &None));
    let first = InterpreterSessionFence { key: ANN, fence: 1 };
    assert_eq!(store.interpreter_sessions().begin(first, NEW).await.unwrap(), Some(1));
    assert_eq!(take(&store, ANN, "two").await, None, "its process lives");
    assert!(store.interpreter_sessions().is_held(first).await.unwrap());
    assert_eq!(keep(&store, first, "image", true).await, Some(vec![]));
    assert!(!store.interpreter_sessions().is_held(first).await.unwrap(), "it was released");
    let taken = take(&store, ANN, "two").await.unwrap();
    assert_eq!((taken.fence, taken.generation, taken.calls), (2, 1, 3));
    assert_eq!((taken.image, taken.every_call), (Some(image("image")), false));
    assert!(taken.left > Duration::from_secs(3_500) && taken.age < Duration::from_secs(60));
    // Writes of the earlier process are refused.
    assert_eq!(keep(&store, first, "late", true).await, None);
    assert!(!store.interpreter_sessions().forget_image(first).await.unwrap());
    assert_eq!(store.interpreter_sessions().end(first, "idle").await.unwrap(), None);
    assert_eq!(store.interpreter_sessions().begin(first, NEW).await.unwrap(), None);
    let second = InterpreterSessionFence { fence: 2, ..first };
    assert!(store.interpreter_sessions().forget_image(second).await.unwrap());
    store.interpreter_sessions().release(first).await.unwrap();
    assert!(store.interpreter_sessions().is_held(second).await.unwrap(), "that is of another one");
    // The session of a process that is no live replica.
    store.replicas().remove("two").await.unwrap();
    let taken = take(&store, ANN, "one").await.unwrap();
    assert_eq!((taken.fence, taken.generation, taken.image, taken.ended), (3, 1, None, None));
}

#[tokio::test]
async fn a_session_that_has_ended_says_why_and_begins_anew() {
    let store = test_store().await;
    let first = begun(&store, ANN, "p").await;
    keep(&store, first, "image", false).await;
    assert!(store.interpreter_sessions().has_image_in(&image("image").object.key).await.unwrap());
    assert_eq!(store.interpreter_sessions().end(first, "trap").await.unwrap(), Some(image("image").object.key));
    assert!(
        !store.interpreter_sessions().has_image_in(&image("image").object.key).await.unwrap(),
        "nothing reads it any more"
    );
    assert_eq!(store.interpreter_sessions().end(first, "idle").await.unwrap(), None, "the first reason counts");
    assert_eq!(keep(&store, first, "late", true).await, None, "one that was being written as it ended");
    assert_eq!(store.interpreter_sessions().count_images().await.unwrap(), (0, 0));
    let taken = take(&store, ANN, "q").await.unwrap();
    assert_eq!((taken.generation, taken.ended.as_deref()), (1, Some("trap")));
    let second = InterpreterSessionFence { fence: taken.fence, ..first };
    assert_eq!(
        store.interpreter_sessions().begin(second, NewInterpreterSession { every_call: true, ..NEW }).await.unwrap(),
        Some(2)
    );
    let taken = take(&store, ANN, "q").await.unwrap();
    assert_eq!((taken.generation, taken.ended, taken.image, taken.every_call), (2, None, None, true));
}

#[tokio::test]
async fn a_session_is_asked_for_where_it_is() {
    let store = test_store().await;
    beat(&store, "one").await;
    let first = begun(&store, ANN, "one").await;
    assert_eq!(store.interpreter_sessions().wanted("one").await.unwrap(), []);
    assert!(store.interpreter_sessions().ask_for(ANN, AskedOfSession::Release).await.unwrap());
    let wanted = store.interpreter_sessions().wanted("one").await.unwrap();
    assert_eq!((wanted.len(), wanted[0].name.as_str(), wanted[0].asked), (1, "a", AskedOfSession::Release));
    store.interpreter_sessions().refuse_to_release(first).await.unwrap();
    assert!(!store.interpreter_sessions().ask_for(ANN, AskedOfSession::Release).await.unwrap(), "it has refused");
    assert_eq!(store.interpreter_sessions().wanted("one").await.unwrap(), []);
    assert!(store.interpreter_sessions().ask_for(ANN, AskedOfSession::Delete).await.unwrap());
    assert_eq!(store.interpreter_sessions().wanted("one").await.unwrap()[0].asked, AskedOfSession::Delete);
    store.interpreter_sessions().end(first, "deleted").await.unwrap();
    assert_eq!(store.interpreter_sessions().wanted("one").await.unwrap(), []);
}

#[tokio::test]
async fn a_caller_sees_what_other_processes_have_and_what_can_be_resumed() {
    let store = test_store().await;
    beat(&store, "other").await;
    let key = |name| InterpreterSessionKey { name, ..ANN };
    begun(&store, key("elsewhere"), "other").await;
    begun(&store, key("here"), "me").await;
    let taken = begun(&store, key("taken"), "me").await;
    keep(&store, taken, "taken", false).await;
    let stored = begun(&store, key("stored"), "me").await;
    keep(&store, stored, "stored", true).await;
    begun(&store, key("lost"), "dead").await;
    let checkpointed = begun(&store, key("checkpointed"), "dead").await;
    keep(&store, checkpointed, "checkpointed", false).await;
    let ended = begun(&store, key("ended"), "other").await;
    store.interpreter_sessions().end(ended, "trap").await.unwrap();
    take(&store, key("new"), "other").await;
    let whose = (ANN.tenant, ANN.caller_key);
    let listed = store.interpreter_sessions().of_caller(whose, "me", LOST_AFTER).await.unwrap();
    let shown = |one: &ListedSession| (one.name.clone(), one.is_elsewhere, one.bytes);
    let expected = [
        ("checkpointed", false, Some(10)),
        ("elsewhere", true, None),
        ("stored", false, Some(10)),
        ("taken", false, Some(10)),
    ];
    let expected = expected.map(|(name, is_elsewhere, bytes)| (name.to_owned(), is_elsewhere, bytes));
    assert_eq!(listed.iter().map(shown).collect::<Vec<_>>(), expected);
    assert!(listed[0].every_call && listed[0].calls == 3 && !listed[2].every_call);
    assert_eq!(store.interpreter_sessions().of_caller(("other", ANN.caller_key), "me", LOST_AFTER).await.unwrap(), []);
    assert_eq!(store.interpreter_sessions().count_images().await.unwrap(), (3, 30));
}

/// Otherwise nobody could end or copy one that is not in the list.
#[tokio::test]
async fn a_session_is_found_by_its_name_however_many_there_are() {
    let store = test_store().await;
    beat(&store, "other").await;
    for number in 0..501 {
        begun(&store, InterpreterSessionKey { name: &format!("s{number:03}"), ..ANN }, "other").await;
    }
    assert_eq!(
        store.interpreter_sessions().of_caller((ANN.tenant, ANN.caller_key), "me", LOST_AFTER).await.unwrap().len(),
        500
    );
    for (name, is_there) in [("s500", true), ("s000", true), ("none", false)] {
        let found =
            store.interpreter_sessions().get(InterpreterSessionKey { name, ..ANN }, "me", LOST_AFTER).await.unwrap();
        assert_eq!(found.map(|found| found.name), is_there.then(|| name.to_owned()));
    }
}

#[tokio::test]
async fn a_session_may_begin_with_an_age() {
    let store = test_store().await;
    let fence = InterpreterSessionFence { key: ANN, fence: take(&store, ANN, "p").await.unwrap().fence };
    let age = TIMES.lifetime - Duration::from_secs(100);
    store.interpreter_sessions().begin(fence, NewInterpreterSession { age, ..NEW }).await.unwrap().unwrap();
    let taken = take(&store, ANN, "p").await.unwrap();
    assert!(taken.age >= age && taken.left <= Duration::from_secs(100), "{taken:?}");
}

/// The images of a killed gateway, for example: nobody releases them.
#[tokio::test]
async fn images_of_processes_that_are_gone_end_with_their_time_too() {
    let store = test_store().await;
    beat(&store, "other").await;
    for runner in ["gone", "other", "me"] {
        let session = begun(&store, InterpreterSessionKey { name: runner, ..ANN }, runner).await;
        keep(&store, session, runner, false).await;
    }
    age_sessions(&store, TIMES.lifetime).await;
    let objects = store.interpreter_sessions().forget_expired("me", LOST_AFTER).await.unwrap();
    assert_eq!(objects, [image("gone").object.key], "each of the others ends its own");
    let taken = take(&store, InterpreterSessionKey { name: "gone", ..ANN }, "me").await.unwrap();
    assert_eq!(taken.ended.as_deref(), Some("lifetime"));
}

#[tokio::test]
async fn images_of_a_tenant_are_bounded_and_expire() {
    let store = test_store().await;
    let key = |caller_key, name| InterpreterSessionKey { caller_key, name, ..ANN };
    for name in ["a1", "a2"] {
        let session = begun(&store, key("acme\u{1f}ann", name), "p").await;
        assert_eq!(keep(&store, session, name, true).await, Some(vec![]));
        age_sessions(&store, Duration::from_secs(1)).await;
    }
    let live = begun(&store, key("acme\u{1f}bob", "b1"), "p").await;
    assert_eq!(keep(&store, live, "b1", false).await, Some(vec![]));
    let session = begun(&store, key("acme\u{1f}bob", "b2"), "p").await;
    assert_eq!(keep(&store, session, "b2", true).await, Some(vec![image("a1").object.key]), "ann has more");
    let gone = take(&store, key("acme\u{1f}ann", "a1"), "p").await.unwrap();
    assert_eq!(gone.ended.as_deref(), Some("evicted"));
    assert_eq!(store.interpreter_sessions().forget_expired("p", LOST_AFTER).await.unwrap(), []);
    age_sessions(&store, TIMES.lifetime).await;
    let objects = store.interpreter_sessions().forget_expired("p", LOST_AFTER).await.unwrap();
    assert_eq!(objects.len(), 2, "of those that no process has: {objects:?}");
    let old = take(&store, key("acme\u{1f}ann", "a2"), "p").await.unwrap();
    assert_eq!((old.ended.as_deref(), old.left), (Some("lifetime"), Duration::ZERO));
    age_sessions(&store, ENDED_TTL).await;
    store.interpreter_sessions().forget_expired("p", LOST_AFTER).await.unwrap();
    assert_eq!(take(&store, key("acme\u{1f}ann", "a2"), "p").await.unwrap().generation, 0, "it is forgotten");
}
