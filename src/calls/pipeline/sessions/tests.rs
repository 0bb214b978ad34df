use futures_util::FutureExt;
use rust_decimal::Decimal;

use super::*;
use sekisho_core::call::Via;

fn caller(tenant: &str, id: &str) -> Caller {
    Caller::new(id, tenant, Vec::new())
}

fn sessions(max_per_caller: usize) -> Sessions {
    Sessions::new(&SessionConfig { max_per_caller, idle_seconds: 60, ..SessionConfig::default() })
}

/// The ids of all sessions that are evicted until now.
fn evicted(sessions: &Sessions) -> Vec<String> {
    sessions.evict_idle();
    let mut evicted = sessions.take_evicted();
    evicted.retain(|session| !sessions.is_used(session));
    evicted.iter().map(EvictedSession::workspace).collect()
}

fn open(sessions: &Sessions, caller: &Caller, id: &str) -> Result<Arc<Session>, CallError> {
    let session = sessions.prepare(caller, id)?;
    let mut call = CallContext::new("t", Arc::new(caller.clone()), Via::Rest);
    call.origin.session = Some(Arc::clone(&session));
    sessions.open_for(&call)?;
    Ok(session)
}

#[test]
fn a_session_is_the_same_for_every_call_of_its_caller() {
    let (sessions, ann) = (sessions(10), caller("acme", "ann"));
    let first = open(&sessions, &ann, "s").unwrap();
    first.settle(Decimal::new(5, 2));
    for again in [open(&sessions, &ann, "s").unwrap(), sessions.prepare(&ann, "s").unwrap()] {
        assert_eq!((again.calls(), again.cost_usd()), (1, Decimal::new(5, 2)));
    }
    assert_eq!(sessions.len(), 1);
}

#[test]
fn a_guessed_id_opens_nothing_of_another_caller_or_tenant() {
    let sessions = sessions(10);
    let ann = open(&sessions, &caller("acme", "ann"), "secret").unwrap();
    ann.settle(Decimal::ONE);
    for other in [caller("acme", "bob"), caller("rival", "ann"), Caller::anonymous()] {
        let own = open(&sessions, &other, "secret").unwrap();
        assert_eq!(own.calls(), 0);
        assert_ne!(own.workspace_name(), ann.workspace_name());
    }
}

#[test]
fn calls_that_are_not_executed_open_no_session_and_leave_nothing() {
    let (sessions, ann) = (sessions(2), caller("acme", "ann"));
    let kept = open(&sessions, &ann, "kept").unwrap();
    kept.settle(Decimal::ONE);
    drop(kept);
    let concurrent = sessions.prepare(&ann, "s").unwrap();
    assert!(Arc::ptr_eq(&concurrent, &sessions.prepare(&ann, "s").unwrap()));
    for n in 0..10_000 {
        sessions.prepare(&ann, &n.to_string()).unwrap();
    }
    assert!(sessions.prepared.lock().capacity() < 100);
    assert_eq!((sessions.len(), sessions.prepare(&ann, "kept").unwrap().calls()), (1, 1));
    sessions.open(&ann, &concurrent).unwrap();
    assert!(Arc::ptr_eq(&concurrent, &sessions.prepare(&ann, "s").unwrap()));
}

#[tokio::test]
async fn the_least_recently_used_session_goes_for_one_too_many() {
    let (sessions, ann) = (sessions(2), caller("acme", "ann"));
    let first = open(&sessions, &ann, "one").unwrap();
    let gone = open(&sessions, &ann, "two").unwrap().workspace_name().to_owned();
    open(&sessions, &ann, "three").unwrap();
    assert_eq!(evicted(&sessions), [gone]);
    let third = sessions.prepare(&ann, "three").unwrap();
    let error = open(&sessions, &ann, "four").unwrap_err();
    assert_eq!(error.code(), ErrorCode::Overloaded, "both are in use");
    open(&sessions, &caller("acme", "bob"), "four").unwrap();
    drop(first);
    open(&sessions, &ann, "four").unwrap();
    drop(third);
    open(&sessions, &ann, "one").unwrap();
    let gone = sessions.prepare(&ann, "three").unwrap().workspace_name().to_owned();
    assert_eq!(evicted(&sessions), [gone], "the other one was opened again");
}

#[test]
fn however_many_sessions_are_evicted_their_names_are_bounded_and_somebody_is_told() {
    let (sessions, ann) = (sessions(2), caller("acme", "ann"));
    let evict = |from: usize, count: usize| {
        (from..from + count).for_each(|n| drop(open(&sessions, &ann, &n.to_string()).unwrap()));
    };
    evict(0, MAX_EVICTED / 2 + 1);
    assert!(sessions.many_evicted().now_or_never().is_none());
    evict(MAX_EVICTED, 1);
    assert!(sessions.many_evicted().now_or_never().is_some());
    evict(2 * MAX_EVICTED, 2 * MAX_EVICTED);
    assert_eq!(sessions.evicted.lock().len(), MAX_EVICTED);
    assert!(sessions.many_evicted().now_or_never().is_none(), "once, until they are taken");
    let names = [workspace_of(&ann.key, "0"), workspace_of(&ann.key, &(4 * MAX_EVICTED - 3).to_string())];
    let taken = sessions.take_evicted();
    sessions.give_back(taken);
    let taken: Vec<_> = sessions.take_evicted().iter().map(EvictedSession::workspace).collect();
    assert_eq!((taken.len(), names.map(|name| taken.contains(&name))), (MAX_EVICTED, [false, true]));
    assert!(evicted(&sessions).is_empty());
    let mut workspaces = sessions.workspaces();
    let named = sessions.prepare(&ann, "named by a call").unwrap();
    workspaces.push(named.workspace_name().to_owned());
    let mut all = sessions.workspaces();
    workspaces.sort_unstable();
    all.sort_unstable();
    assert_eq!((all.len(), all), (3, workspaces));
}

#[test]
fn one_that_was_evicted_is_seen_to_be_used_again_at_any_time() {
    let (sessions, ann) = (sessions(1), caller("acme", "ann"));
    for id in ["one", "two", "three"] {
        drop(open(&sessions, &ann, id).unwrap());
    }
    let evicted = sessions.take_evicted();
    let is_used = || evicted.iter().map(|session| (session.id(), sessions.is_used(session))).collect::<Vec<_>>();
    assert_eq!(is_used(), [("two", false), ("one", false)]);
    let named = sessions.prepare(&ann, "one").unwrap();
    assert_eq!(is_used(), [("two", false), ("one", true)]);
    drop(named);
    drop(open(&sessions, &ann, "two").unwrap());
    assert_eq!(is_used(), [("two", true), ("one", false)]);
}

#[test]
fn ids_are_anything_that_can_be_printed() {
    let (sessions, ann) = (sessions(100), caller("acme", "ann"));
    let longest = "字".repeat(MAX_ID_CHARS);
    for id in ["1", "a b", "../../etc/passwd", "関所", longest.as_str()] {
        sessions.prepare(&ann, id).unwrap();
    }
    let (too_long, far_too_long) = ("x".repeat(MAX_ID_CHARS + 1), "x".repeat(1 << 20));
    for id in ["", "a\nb", "nul\0", "\u{1f}", "\u{85}", &too_long, &far_too_long] {
        assert_eq!(sessions.prepare(&ann, id).unwrap_err().code(), ErrorCode::InvalidRequest, "{id:.20?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_idle_session_that_nobody_uses_is_evicted() {
    let (sessions, ann) = (sessions(10), caller("acme", "ann"));
    let in_use = open(&sessions, &ann, "in use").unwrap();
    let idle = open(&sessions, &ann, "idle").unwrap().workspace_name().to_owned();
    tokio::time::advance(Duration::from_secs(59)).await;
    open(&sessions, &ann, "fresh").unwrap();
    assert!(evicted(&sessions).is_empty());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(evicted(&sessions), [idle]);
    assert!(Arc::ptr_eq(&in_use, &sessions.prepare(&ann, "in use").unwrap()));
    drop(in_use);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(evicted(&sessions).len(), 2);
    assert!(sessions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_long_call_keeps_its_session_from_its_end_on() {
    let (sessions, ann) = (sessions(10), caller("acme", "ann"));
    let session = open(&sessions, &ann, "s").unwrap();
    tokio::time::advance(Duration::from_secs(600)).await;
    session.settle(Decimal::ZERO);
    drop(session);
    assert!(evicted(&sessions).is_empty());
}

#[test]
fn parallel_opens_make_one_session_and_keep_to_the_maximum() {
    let (sessions, ann) = (sessions(5), caller("acme", "ann"));
    let opened: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| (0..5).filter(|n| open(&sessions, &ann, &n.to_string()).is_ok()).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((sessions.len(), opened), (5, 80));
}
