//! Sessions whose instances are no interpreters, by a clock that is paused.

use std::pin::pin;
use std::sync::atomic::AtomicBool;

use futures_util::FutureExt;

use super::*;
use sekisho_core::call::{CallContext, Caller, Via};
use sekisho_core::tool_scope::ToolScope;

/// Says whether it lives, and counts those that do.
#[derive(Debug)]
struct Instance {
    is_alive: Arc<AtomicBool>,
    _counted: Arc<()>,
}

impl SessionInstance for Instance {
    fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Relaxed)
    }
}

struct Made {
    sessions: Sessions<Instance>,
    is_alive: Arc<AtomicBool>,
    counted: Arc<()>,
}

const IDLE: Duration = Duration::from_secs(900);
const LIFETIME: Duration = Duration::from_secs(3_600);

fn made(max: usize, max_per_caller: usize, memory_bytes: u64) -> Made {
    let limits = SessionLimits { max, max_per_caller, memory_bytes, idle: IDLE, lifetime: LIFETIME };
    let sessions = Sessions::new(limits, SandboxMetrics::for_tests());
    Made { sessions, is_alive: Arc::new(AtomicBool::new(true)), counted: Arc::default() }
}

fn owner(caller: &str) -> Owner {
    Owner { tenant: "tenant".into(), caller: caller.into() }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(5))
}

/// A turn in which a program can run.
async fn begun<'m>(made: &'m Made, caller: &str, name: &str) -> (bool, Turn<'m, Instance>) {
    let mut turn = made.sessions.enter(&owner(caller), Some(Rights::default()), name, soon()).await.unwrap();
    let is_new = turn.instance().is_none();
    if is_new {
        let (is_alive, _counted) = (Arc::clone(&made.is_alive), Arc::clone(&made.counted));
        turn.begin(Instance { is_alive, _counted });
    }
    turn.runs();
    (is_new, turn)
}

/// A whole call: whether it began with a fresh instance, why the one before had ended, and whether this one rests.
async fn call(made: &Made, caller: &str, name: &str, bytes: u64) -> (bool, Option<SessionEnd>, bool) {
    let (is_new, mut turn) = begun(made, caller, name).await;
    turn.count_call();
    let end = turn.rests(bytes);
    (is_new, turn.report(is_new, end).previous_end, end.is_none())
}

impl Made {
    fn living(&self) -> usize {
        Arc::strong_count(&self.counted) - 1
    }

    fn names(&self, caller: &str) -> Vec<String> {
        self.sessions.list(&owner(caller)).iter().map(|session| session.name.to_string()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_found_again_by_its_caller_alone() {
    let made = made(10, 10, 1_000);
    assert_eq!(call(&made, "ann", "a", 10).await, (true, None, true));
    assert_eq!(call(&made, "ann", "a", 20).await, (false, None, true));
    assert_eq!(call(&made, "bob", "a", 30).await, (true, None, true));
    assert_eq!((made.names("ann"), made.names("eve")), (vec!["a".to_owned()], Vec::new()));
    let of_ann = made.sessions.list(&owner("ann")).remove(0);
    assert_eq!((of_ann.calls, of_ann.memory_bytes, of_ann.generation, of_ann.is_used), (2, 20, 1, false));
    assert!(!made.sessions.delete(&owner("eve"), "a") && made.sessions.try_enter(&owner("eve"), "a").is_none());
    assert_eq!((made.living(), made.sessions.memory.used()), (2, 50));
}

/// Otherwise code that a program with fewer rights leaves behind would call tools with more.
#[tokio::test(start_paused = true)]
async fn a_session_is_entered_only_with_the_rights_with_which_it_began() {
    let made = made(10, 10, 1_000);
    call(&made, "ann", "a", 1).await;
    let ann = |roles: &[&str]| Caller::new("ann", "tenant", roles.iter().map(|role| (*role).to_owned()).collect());
    let with_role = CallContext::new("python_executor", Arc::new(ann(&["admin"])), Via::Rest);
    let narrow_key = ann(&[]).with_managed_key("k1".into(), ToolScope::default().narrowed(["x".to_owned()]));
    let with_narrow_key = CallContext::new("python_executor", Arc::new(narrow_key), Via::Rest);
    let mut of_agent = CallContext::new("python_executor", Arc::new(ann(&[])), Via::Agent);
    let (sorted, mixed) = (ann(&["a", "b"]), ann(&["b", "a"]));
    let of = |caller| Rights::of(&CallContext::new("python_executor", Arc::new(caller), Via::Rest));
    assert!(of(sorted) == of(mixed) && of(ann(&[])) == Rights::of(&of_agent));
    of_agent.nesting.scope = of_agent.nesting.scope.narrowed(&[], ["pay".to_owned()]);
    for other in [with_role, with_narrow_key, of_agent] {
        let rights = Some(Rights::of(&other));
        let refused = made.sessions.enter(&owner("ann"), rights, "a", soon()).await.err().unwrap();
        assert_eq!(refused.code(), ErrorCode::Denied, "{other:?}");
        assert!(made.sessions.enter(&owner("ann"), rights, "other", soon()).await.is_ok());
    }
    assert!(made.sessions.enter(&owner("ann"), None, "a", soon()).await.is_ok(), "no program runs");
    assert_eq!(call(&made, "ann", "a", 1).await, (false, None, true), "it goes on");
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_session_take_turns_in_their_order() {
    let made = made(10, 10, 1_000);
    let (_, mut first) = begun(&made, "ann", "a").await;
    let mut second = pin!(begun(&made, "ann", "a"));
    let mut third = pin!(begun(&made, "ann", "a"));
    assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
    assert!(begun(&made, "ann", "other").now_or_never().is_some(), "another session does not wait");
    assert!(made.sessions.try_enter(&owner("ann"), "a").is_none());
    first.rests(1);
    drop(first);
    assert!(third.as_mut().now_or_never().is_none());
    let (is_new, mut turn) = second.await;
    assert!(!is_new);
    turn.rests(1);
    drop(turn);
    assert!(!third.await.0);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_until_its_deadline_and_no_longer() {
    let made = made(10, 10, 1_000);
    let (_, _turn) = begun(&made, "ann", "a").await;
    let begun = tokio::time::Instant::now();
    let refused = made.sessions.enter(&owner("ann"), Some(Rights::default()), "a", soon()).await.err().unwrap();
    assert_eq!((refused.code(), begun.elapsed()), (ErrorCode::Overloaded, Duration::from_secs(5)));
    let at_once =
        made.sessions.enter(&owner("ann"), Some(Rights::default()), "a", Deadline::after(Duration::ZERO)).await;
    assert!(at_once.is_err(), "a program does not wait for a session that its caller has");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ended_with_a_call_begins_anew_and_says_why() {
    let made = made(10, 10, 1_000);
    for (number, end) in [SessionEnd::Timeout, SessionEnd::Trap, SessionEnd::Memory].into_iter().enumerate() {
        let (is_new, mut turn) = begun(&made, "ann", "a").await;
        let mut waiting = pin!(begun(&made, "ann", "a"));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!((is_new, turn.ends(end)), (true, Some(end)));
        assert_eq!(turn.report(is_new, Some(end)).generation, 2 * number as u64 + 1);
        drop(turn);
        let (is_new, mut turn) = waiting.await;
        let report = turn.report(is_new, None);
        assert_eq!((report.is_new, report.previous_end), (true, Some(end)));
        turn.ends(SessionEnd::Exited);
    }
    assert_eq!((made.living(), made.sessions.memory.used(), made.names("ann").len()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_its_program_runs_ends_the_session_and_one_that_did_not_begin_leaves_none() {
    let made = made(10, 10, 1_000);
    drop(made.sessions.enter(&owner("ann"), Some(Rights::default()), "a", soon()).await.unwrap());
    assert!(made.sessions.open.is_empty());
    drop(begun(&made, "ann", "a").await);
    assert_eq!(made.living(), 0);
    assert_eq!(call(&made, "ann", "a", 1).await, (true, Some(SessionEnd::Cancelled), true));
    // A call that waits for capacity, and gives up.
    drop(made.sessions.enter(&owner("ann"), Some(Rights::default()), "a", soon()).await.unwrap());
    assert_eq!(call(&made, "ann", "a", 1).await, (false, None, true));
}

#[tokio::test(start_paused = true)]
async fn sessions_end_when_they_are_idle_or_old() {
    let made = made(10, 10, 1_000);
    call(&made, "ann", "idle", 1).await;
    call(&made, "ann", "used", 1).await;
    tokio::time::advance(IDLE - Duration::from_secs(1)).await;
    call(&made, "ann", "used", 1).await;
    made.sessions.end_expired();
    assert_eq!(made.living(), 2);
    tokio::time::advance(Duration::from_secs(1)).await;
    made.sessions.end_expired();
    assert_eq!(made.names("ann"), ["used"]);
    assert_eq!(call(&made, "ann", "idle", 1).await, (true, Some(SessionEnd::Idle), true));
    // Without anybody who looks, too, and not during a call.
    tokio::time::advance(IDLE).await;
    assert_eq!(call(&made, "ann", "idle", 1).await, (true, Some(SessionEnd::Idle), true));
    let (_, mut turn) = begun(&made, "ann", "idle").await;
    tokio::time::advance(IDLE * 2).await;
    made.sessions.end_expired();
    assert_eq!(turn.rests(1), None);
    turn.count_call();
    drop(turn);
    assert!(!call(&made, "ann", "idle", 1).await.0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_used_all_the_time_ends_after_its_lifetime() {
    let made = made(10, 10, 1_000);
    let mut calls = 0;
    let end = loop {
        let (is_new, previous_end, _) = call(&made, "ann", "a", 1).await;
        if calls > 0 && is_new {
            break previous_end;
        }
        calls += 1;
        tokio::time::advance(IDLE / 2).await;
    };
    assert_eq!((calls, end), (8, Some(SessionEnd::Lifetime)));
}

#[tokio::test(start_paused = true)]
async fn sessions_of_a_worker_that_died_end() {
    let made = made(10, 10, 1_000);
    call(&made, "ann", "a", 1).await;
    made.is_alive.store(false, Ordering::Relaxed);
    let (is_new, mut turn) = {
        let turn = made.sessions.enter(&owner("ann"), Some(Rights::default()), "a", soon()).await.unwrap();
        (turn.instance().is_none(), turn)
    };
    assert_eq!(turn.report(is_new, None).previous_end, Some(SessionEnd::WorkerDied));
    turn.begin(Instance { is_alive: Arc::clone(&made.is_alive), _counted: Arc::clone(&made.counted) });
    drop(turn);
    made.sessions.end_expired();
    assert_eq!((made.living(), made.names("ann").len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_makes_space_for_a_new_one() {
    let made = made(10, 2, 1_000);
    for name in ["a", "b", "a", "c"] {
        call(&made, "ann", name, 1).await;
    }
    assert_eq!(made.names("ann"), ["a", "c"]);
    let (_, mut busy) = begun(&made, "ann", "a").await;
    call(&made, "ann", "d", 1).await;
    assert_eq!(made.names("ann"), ["a", "d"], "one that is in use stays");
    let (_, other) = begun(&made, "ann", "d").await;
    let refused = made.sessions.enter(&owner("ann"), Some(Rights::default()), "e", soon()).await.err().unwrap();
    assert_eq!(refused.code(), ErrorCode::Overloaded);
    busy.rests(1);
    drop((busy, other));
    assert_eq!(call(&made, "ann", "c", 1).await, (true, Some(SessionEnd::Evicted), true));
}

#[tokio::test(start_paused = true)]
async fn memory_is_divided_fairly_and_what_does_not_fit_is_not_kept() {
    let made = made(10, 10, 100);
    for name in ["a", "b", "c"] {
        assert!(call(&made, "ann", name, 30).await.2);
    }
    assert!(call(&made, "ann", "d", 40).await.2, "in place of the oldest one");
    assert_eq!(made.names("ann"), ["b", "c", "d"]);
    assert!(call(&made, "bob", "a", 30).await.2, "in place of one of the caller with three");
    assert_eq!((made.names("ann"), made.sessions.memory.used()), (vec!["c".to_owned(), "d".to_owned()], 100));
    assert!(call(&made, "bob", "a", 40).await.2, "in place of one of the caller that holds more");
    assert!(!call(&made, "ann", "large", 101).await.2, "more than all may hold takes nothing from others");
    assert_eq!((made.names("ann").len(), made.names("bob").len(), made.sessions.memory.used()), (1, 1, 80));
    // A session that needs less gives back the rest.
    assert!(call(&made, "ann", "d", 5).await.2);
    assert_eq!(made.sessions.memory.used(), 45);
}

#[tokio::test(start_paused = true)]
async fn a_large_session_takes_nothing_from_callers_with_small_ones() {
    let made = made(10, 10, 100);
    for name in ["a", "b", "c", "d"] {
        assert!(call(&made, "ann", name, 5).await.2);
    }
    assert!(call(&made, "eve", "a", 10).await.2);
    assert!(!call(&made, "eve", "b", 90).await.2, "there is no space for it");
    assert!(!call(&made, "eve", "c", 85).await.2);
    assert_eq!((made.names("ann").len(), made.names("eve").len(), made.sessions.memory.used()), (4, 0, 20));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_deleted_ends_at_once_also_during_a_call() {
    let made = made(10, 10, 1_000);
    call(&made, "ann", "a", 1).await;
    assert!(made.sessions.delete(&owner("ann"), "a") && !made.sessions.delete(&owner("ann"), "a"));
    assert_eq!(made.living(), 0);
    let (is_new, mut turn) = begun(&made, "ann", "a").await;
    assert_eq!(turn.report(is_new, None).previous_end, Some(SessionEnd::Deleted));
    let over = turn.over();
    assert!(made.sessions.delete(&owner("ann"), "a") && over.is_cancelled());
    assert_eq!(turn.rests(1), Some(SessionEnd::Deleted));
    drop(turn);
    assert_eq!((made.living(), made.sessions.memory.used()), (0, 0));
    assert_eq!(call(&made, "ann", "a", 1).await, (true, Some(SessionEnd::Deleted), true));
}

#[test]
fn an_end_that_the_store_does_not_know_is_kept_once_and_up_to_a_number() {
    let sessions = made(3, 3, 1_000).sessions;
    let key = SessionKey { owner: owner("ann"), name: "a".into() };
    let end = |fence, end| sessions.record_later(EndToRecord { key: key.clone(), fence, end });
    end(1, Some(SessionEnd::Deleted));
    // As often as another replica wants it, while the store does not answer.
    (0..100).for_each(|_| sessions.give_back(&key, 1));
    let ends = sessions.take_ends_to_record();
    assert_eq!(ends.iter().map(|end| (end.fence, end.end)).collect::<Vec<_>>(), [(1, Some(SessionEnd::Deleted))]);
    (0..100).for_each(|fence| end(fence, None));
    assert_eq!((sessions.take_ends_to_record().len(), sessions.take_ends_to_record().len()), (3 * UNRECORDED, 0));
}
