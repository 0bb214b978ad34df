use std::time::Duration;

use futures_util::future::join_all;

use super::*;
use crate::replica::LOST_AFTER;
use crate::test_support::{age_approval as age, test_store};

/// As asked by this caller for a call with this digest.
async fn ask(store: &Store, id: &str, caller: &str, call: &str) -> Asked {
    ask_in(store, id, (caller, call), None).await
}

/// The same for a call of a group.
async fn ask_in(store: &Store, id: &str, (caller, call): (&str, &str), group_digest: Option<&str>) -> Asked {
    let new = NewApproval {
        id,
        tenant: "acme",
        caller_key: caller,
        caller_id: caller,
        tool: "pay",
        pending_digest: &format!("{caller} {call}"),
        call_digest: call,
        tool_digest: "pay 1",
        session_digest: Some("pay 1 in s"),
        group_digest,
        details: "{}",
        arguments: "sealed",
    };
    store.approvals().ask(new).await.unwrap()
}

async fn decide(store: &Store, id: &str, state: ApprovalState, scope: ApprovalScope, ttl: Duration) -> bool {
    let read = store.approvals().get(id).await.unwrap().unwrap();
    let decided = DecidedApproval { state, decisions: "[1]", scope: Some(scope), ttl: Some(ttl), arguments: None };
    store.approvals().decide(&[(&read, decided)]).await.unwrap()
}

async fn state_of(store: &Store, id: &str) -> ApprovalState {
    store.approvals().get(id).await.unwrap().unwrap().state
}

#[tokio::test]
async fn equal_requests_are_one_until_it_is_decided_or_expires() {
    let store = test_store().await;
    let Asked::New(first) = ask(&store, "1", "ann", "a").await else { panic!() };
    assert_eq!((first.state, first.expires), (ApprovalState::Pending, first.created + PENDING_TTL));
    assert_eq!(ask(&store, "2", "ann", "a").await, Asked::Known(first));
    assert!(matches!(ask(&store, "3", "bob", "a").await, Asked::New(_)), "of another caller");
    assert!(decide(&store, "1", ApprovalState::Denied, ApprovalScope::Once, PENDING_TTL).await);
    assert!(matches!(ask(&store, "4", "ann", "a").await, Asked::New(_)));
    age(&store, "4", PENDING_TTL).await;
    assert_eq!(state_of(&store, "4").await, ApprovalState::Expired, "before anybody writes it");
    assert!(!decide(&store, "4", ApprovalState::Approved, ApprovalScope::Once, PENDING_TTL).await);
    assert!(matches!(ask(&store, "5", "ann", "a").await, Asked::New(_)));
    assert_eq!(store.approvals().count_pending().await.unwrap(), 2);
}

#[tokio::test]
async fn a_decision_and_a_start_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
    for (id, scope) in [("once", ApprovalScope::Once), ("minutes", ApprovalScope::Minutes)] {
        ask(&store, id, "ann", id).await;
        assert!(decide(&store, id, ApprovalState::Approved, scope, PENDING_TTL).await);
    }
    ask(&store, "waits", "ann", "waits").await;
    let read = store.approvals().get("waits").await.unwrap().unwrap();
    store.durable.close().await;
    let denied =
        DecidedApproval { state: ApprovalState::Denied, decisions: "[]", scope: None, ttl: None, arguments: None };
    assert!(store.approvals().decide(&[(&read, denied)]).await.is_err());
    assert!(store.approvals().start_call("once", "r").await.is_err());
    assert!(store.approvals().record_use("minutes").await.is_err());
    assert_eq!(state_of(&store, "once").await, ApprovalState::Approved, "they are written there alone");
}

#[tokio::test]
async fn equal_requests_at_the_same_time_are_one() {
    let store = test_store().await;
    let ids: Vec<_> = (0..20).map(|id| id.to_string()).collect();
    let asked = join_all(ids.iter().map(|id| ask(&store, id, "ann", "a"))).await;
    let new = asked.iter().filter(|asked| matches!(asked, Asked::New(_))).count();
    let known = asked.iter().filter(|asked| matches!(asked, Asked::Known(_))).count();
    assert_eq!((new, known), (1, 19));
}

#[tokio::test]
async fn a_caller_has_at_most_a_hundred_that_wait() {
    let store = test_store().await;
    for number in 0..PENDING_OF_CALLER {
        assert!(matches!(ask(&store, &format!("{number}"), "ann", &format!("{number}")).await, Asked::New(_)));
    }
    assert_eq!(ask(&store, "more", "ann", "more").await, Asked::TooManyOfCaller);
    assert!(matches!(ask(&store, "known", "ann", "0").await, Asked::Known(_)));
    assert!(matches!(ask(&store, "bob", "bob", "more").await, Asked::New(_)), "another caller has a hundred too");
    age(&store, "0", PENDING_TTL).await;
    assert!(matches!(ask(&store, "more", "ann", "more").await, Asked::New(_)));
}

#[tokio::test]
async fn a_decision_may_change_the_arguments() {
    let store = test_store().await;
    ask(&store, "1", "ann", "a").await;
    for (arguments, expected) in [(None, "sealed"), (Some("sealed again"), "sealed again"), (None, "sealed again")] {
        let read = store.approvals().get("1").await.unwrap().unwrap();
        let state = ApprovalState::Pending;
        let decided = DecidedApproval { state, decisions: "[]", scope: None, ttl: None, arguments };
        assert!(store.approvals().decide(&[(&read, decided)]).await.unwrap());
        assert_eq!(store.approvals().get("1").await.unwrap().unwrap().arguments, expected);
    }
}

#[tokio::test]
async fn of_many_starts_one_makes_the_call() {
    let store = test_store().await;
    ask(&store, "1", "ann", "a").await;
    assert_eq!(store.approvals().start_call("1", "r").await.unwrap(), None, "it waits");
    assert!(decide(&store, "1", ApprovalState::Approved, ApprovalScope::Once, PENDING_TTL).await);
    assert!(!store.approvals().was_approved_before("pay 1").await.unwrap());
    let approvals = store.approvals();
    let started = join_all((0..20).map(|_| approvals.start_call("1", "r"))).await;
    let fences: Vec<_> = started.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(fences, [1]);
    assert_eq!(state_of(&store, "1").await, ApprovalState::Executing);
    // It was not sent: it may be made again, and then the first runner has nothing to say any more.
    assert!(store.approvals().end_call("1", 1, false).await.unwrap());
    assert_eq!(store.approvals().start_call("1", "r").await.unwrap(), Some(2));
    assert!(!store.approvals().end_call("1", 1, true).await.unwrap());
    assert!(store.approvals().end_call("1", 2, true).await.unwrap());
    assert_eq!(state_of(&store, "1").await, ApprovalState::Done);
    assert_eq!(store.approvals().start_call("1", "r").await.unwrap(), None);
    assert!(store.approvals().was_approved_before("pay 1").await.unwrap());
}

#[tokio::test]
async fn a_call_whose_runner_is_gone_has_an_unknown_outcome() {
    let store = test_store().await;
    for id in ["1", "2"] {
        ask(&store, id, "ann", id).await;
        assert!(decide(&store, id, ApprovalState::Approved, ApprovalScope::Once, PENDING_TTL).await);
    }
    store.approvals().start_call("1", "gone").await.unwrap();
    store.approvals().start_call("2", "own").await.unwrap();
    let lost = store.approvals().lose_calls_of_others("own", LOST_AFTER).await.unwrap();
    assert_eq!(lost.iter().map(|lost| lost.id.as_str()).collect::<Vec<_>>(), ["1"]);
    assert_eq!(
        (state_of(&store, "1").await, state_of(&store, "2").await),
        (ApprovalState::Unknown, ApprovalState::Executing)
    );
    assert!(!store.approvals().end_call("1", 1, true).await.unwrap(), "whoever comes back has lost it");
    assert!(store.approvals().lose_call("2", 1).await.unwrap());
    assert!(!store.approvals().lose_call("2", 1).await.unwrap());
}

#[tokio::test]
async fn an_approval_of_several_calls_ends_with_its_time_or_a_denial() {
    let store = test_store().await;
    ask(&store, "1", "ann", "a").await;
    let minute = Duration::from_secs(60);
    assert!(decide(&store, "1", ApprovalState::Approved, ApprovalScope::Session, minute).await);
    assert_eq!(store.approvals().start_call("1", "r").await.unwrap(), None, "it is none of one call");
    for _ in 0..3 {
        assert!(store.approvals().record_use("1").await.unwrap());
    }
    let open = store.approvals().list_open("another call", Some("pay 1 in s")).await.unwrap();
    assert_eq!((open.len(), open[0].uses), (1, 3));
    assert!(store.approvals().list_open("another call", None).await.unwrap().is_empty());
    age(&store, "1", minute).await;
    assert!(!store.approvals().record_use("1").await.unwrap());
    let expired = store.approvals().expire().await.unwrap();
    assert_eq!((expired.len(), expired[0].state), (1, ApprovalState::Expired));
    assert!(store.approvals().expire().await.unwrap().is_empty());
}

#[tokio::test]
async fn lists_are_by_tenant_caller_state_and_tool_and_old_records_go() {
    let store = test_store().await;
    for (id, caller) in [("1", "ann"), ("2", "bob"), ("3", "ann")] {
        ask(&store, id, caller, id).await;
        age(&store, id, Duration::from_micros(3 - id.parse::<u64>().unwrap())).await;
    }
    let ids = async |filter: ApprovalFilter<'_>| {
        let found = store.approvals().list(ApprovalFilter { max: 10, ..filter }).await.unwrap();
        found.into_iter().map(|found| found.id).collect::<Vec<_>>()
    };
    let all = ApprovalFilter::default();
    assert_eq!(ids(all).await, ["3", "2", "1"]);
    assert_eq!(ids(ApprovalFilter { caller_key: Some("ann"), ..all }).await, ["3", "1"]);
    assert_eq!(ids(ApprovalFilter { caller: Some("bob"), ..all }).await, ["2"]);
    assert_eq!(ids(ApprovalFilter { tenant: Some("other"), ..all }).await, [""; 0]);
    assert_eq!(ids(ApprovalFilter { tool: Some("refund"), ..all }).await, [""; 0]);
    decide(&store, "3", ApprovalState::Denied, ApprovalScope::Once, PENDING_TTL).await;
    age(&store, "2", PENDING_TTL).await;
    assert_eq!(ids(ApprovalFilter { state: Some(ApprovalState::Pending), ..all }).await, ["1"]);
    assert_eq!(ids(ApprovalFilter { state: Some(ApprovalState::Expired), ..all }).await, ["2"]);
    assert_eq!(ids(ApprovalFilter { state: Some(ApprovalState::Denied), ..all }).await, ["3"]);
    let decided = store.approvals().decided_among(&["1".to_owned(), "3".to_owned(), "none".to_owned()]).await.unwrap();
    assert_eq!(decided, ["3"]);
    age(&store, "3", Duration::from_secs(86_400)).await;
    assert_eq!(store.approvals().forget_older_than(Duration::from_secs(86_000)).await.unwrap(), 1);
    assert!(store.approvals().get("3").await.unwrap().is_none());
}

#[tokio::test]
async fn calls_of_a_group_that_wait_are_one_item_of_the_list() {
    let store = test_store().await;
    for (id, group) in
        [("1", Some("turn")), ("2", Some("turn")), ("3", Some("other")), ("4", None), ("5", Some("turn"))]
    {
        ask_in(&store, id, ("ann", id), group).await;
        age(&store, id, Duration::from_micros(5 - id.parse::<u64>().unwrap())).await;
    }
    let listed = async || {
        let all = ApprovalFilter { max: 10, ..ApprovalFilter::default() };
        let found = store.approvals().list(all).await.unwrap();
        found.into_iter().map(|found| found.id).collect::<Vec<_>>()
    };
    let waiting = async || {
        let found = store.approvals().list_waiting("turn", 10).await.unwrap();
        found.into_iter().map(|found| (found.id, found.arguments)).collect::<Vec<_>>()
    };
    let with_arguments =
        |ids: &[&str]| ids.iter().map(|id| ((*id).to_owned(), "sealed".to_owned())).collect::<Vec<_>>();
    assert_eq!(listed().await, ["4", "3", "1"]);
    assert_eq!(waiting().await, with_arguments(&["1", "2", "5"]));
    let counts = store.approvals().count_waiting(&["turn", "other", "none"]).await.unwrap();
    assert_eq!(counts, HashMap::from([("turn".to_owned(), 3), ("other".to_owned(), 1)]));
    assert!(store.approvals().count_waiting(&[]).await.unwrap().is_empty());
    // A decided one is a record of its own, and the next one that waits takes its place.
    assert!(decide(&store, "1", ApprovalState::Approved, ApprovalScope::Once, PENDING_TTL).await);
    assert_eq!(listed().await, ["4", "3", "2", "1"]);
    assert_eq!(waiting().await, with_arguments(&["2", "5"]));
    age(&store, "2", PENDING_TTL).await;
    assert_eq!(waiting().await, with_arguments(&["5"]));
    let of_tool =
        ApprovalFilter { tool: Some("pay"), state: Some(ApprovalState::Pending), max: 10, ..ApprovalFilter::default() };
    let found = store.approvals().list(of_tool).await.unwrap();
    assert_eq!(found.iter().map(|found| found.id.as_str()).collect::<Vec<_>>(), ["5", "4", "3"]);
}

#[tokio::test]
async fn decisions_about_several_are_stored_together_or_not_at_all() {
    let store = test_store().await;
    let ids = ["1", "2", "3"];
    for id in ids {
        ask_in(&store, id, ("ann", id), Some("turn")).await;
    }
    let read = join_all(ids.map(|id| async { store.approvals().get(id).await.unwrap().unwrap() })).await;
    let decided = |state| DecidedApproval { state, decisions: "[1]", scope: None, ttl: None, arguments: None };
    let states = async || join_all(ids.map(|id| state_of(&store, id))).await;
    let (yes, no) = (decided(ApprovalState::Approved), decided(ApprovalState::Denied));
    let all = [(&read[2], no), (&read[0], yes), (&read[1], yes)];
    // One of them is not any more as it was read: none is decided.
    assert!(decide(&store, "2", ApprovalState::Pending, ApprovalScope::Once, PENDING_TTL).await);
    assert!(!store.approvals().decide(&all).await.unwrap());
    assert_eq!(states().await, [ApprovalState::Pending; 3]);
    let second = store.approvals().get("2").await.unwrap().unwrap();
    let all = [(&read[2], no), (&read[0], yes), (&second, yes)];
    // Nor where one has expired.
    age(&store, "3", PENDING_TTL).await;
    assert!(!store.approvals().decide(&all).await.unwrap());
    assert_eq!(states().await, [ApprovalState::Pending, ApprovalState::Pending, ApprovalState::Expired]);
    assert!(store.approvals().decide(&all[1..]).await.unwrap());
    assert_eq!(states().await, [ApprovalState::Approved, ApprovalState::Approved, ApprovalState::Expired]);
}

#[tokio::test]
async fn of_calls_of_a_group_that_are_asked_for_at_once_one_is_the_first() {
    let store = test_store().await;
    let ids: Vec<_> = (0..8).map(|id| id.to_string()).collect();
    let asked = join_all(ids.iter().map(|id| ask_in(&store, id, ("ann", id), Some("turn")))).await;
    let first = asked.iter().filter(|asked| matches!(asked, Asked::New(_))).count();
    let further = asked.iter().filter(|asked| matches!(asked, Asked::Further(_))).count();
    assert_eq!((first, further), (1, 7));
    assert!(matches!(ask_in(&store, "other", ("ann", "a"), Some("other")).await, Asked::New(_)));
    assert!(matches!(ask(&store, "none", "ann", "b").await, Asked::New(_)));
    // Those that have waited for a while are of an earlier turn.
    for id in &ids {
        age(&store, id, AT_ONCE).await;
    }
    assert!(matches!(ask_in(&store, "next", ("ann", "c"), Some("turn")).await, Asked::New(_)));
    assert!(matches!(ask_in(&store, "last", ("ann", "d"), Some("turn")).await, Asked::Further(_)));
}
