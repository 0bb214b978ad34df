use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio::time::{advance, sleep};

use super::shelf::{LARGEST_REPLY_BYTES, MOST_BYTES};
use super::*;

const BODY: [u8; 32] = [1; 32];
const OTHER_BODY: [u8; 32] = [2; 32];
const A_WHILE: Duration = Duration::from_secs(1);

fn replies(most: usize) -> Replies<usize> {
    Replies::new(&SessionConfig { max_idempotency_keys: most, idempotency_seconds: 100, ..SessionConfig::default() })
}

fn key(key: &str) -> ReplyKey {
    ReplyKey::new(&Caller::new("ann", "acme", Vec::new()), "calculator", key).unwrap()
}

fn patient() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Runs a call that takes a while and answers with `reply`; the answer, and whether it was replayed.
async fn call(replies: &Replies<usize>, key: ReplyKey, reply: usize) -> (usize, bool) {
    let run = || async move {
        sleep(A_WHILE).await;
        reply
    };
    match replies.once(key, BODY, patient(), run, |_| Some(1)).await.unwrap() {
        Once::Ran(reply) => (*reply, false),
        Once::Replayed(reply) => (*reply, true),
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_duplicates_run_once_and_get_the_same_reply() {
    let replies = replies(10);
    let runs = AtomicUsize::new(0);
    let calls = (0..100).map(|_| {
        replies.once(
            key("k"),
            BODY,
            patient(),
            || async {
                sleep(A_WHILE).await;
                runs.fetch_add(1, Ordering::Relaxed)
            },
            |_| Some(1),
        )
    });
    let answers = join_all(calls).await;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    let replayed = answers.iter().filter(|answer| matches!(answer, Ok(Once::Replayed(reply)) if **reply == 0));
    assert_eq!(replayed.count(), 99);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn duplicates_on_several_threads_run_once() {
    let replies = Arc::new(replies(10));
    let runs = Arc::new(AtomicUsize::new(0));
    let calls = (0..200).map(|_| {
        let (replies, runs) = (Arc::clone(&replies), Arc::clone(&runs));
        tokio::spawn(async move {
            let run = || async {
                tokio::task::yield_now().await;
                runs.fetch_add(1, Ordering::Relaxed)
            };
            replies.once(key("k"), BODY, patient(), run, |_| Some(1)).await.map(|_| ())
        })
    });
    for answer in join_all(calls).await {
        answer.unwrap().unwrap();
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_later_duplicate_gets_the_stored_reply() {
    let replies = replies(10);
    assert_eq!(call(&replies, key("k"), 7).await, (7, false));
    assert_eq!(call(&replies, key("k"), 8).await, (7, true));
}

#[tokio::test(start_paused = true)]
async fn when_the_first_is_cancelled_one_of_the_waiting_runs() {
    let replies = Arc::new(replies(10));
    let first = {
        let replies = Arc::clone(&replies);
        tokio::spawn(
            async move { replies.once(key("k"), BODY, patient(), pending::<usize>, |_| Some(1)).await.is_ok() },
        )
    };
    sleep(A_WHILE).await;
    let waiting = async { join(call(&replies, key("k"), 1), call(&replies, key("k"), 2)).await };
    let cancel = async {
        sleep(A_WHILE).await;
        first.abort();
    };
    let ((one, other), ()) = join(waiting, cancel).await;
    assert_eq!(one.0, other.0);
    assert!(one.1 != other.1, "one ran, the other got its reply");
}

#[tokio::test(start_paused = true)]
async fn a_panic_makes_room_for_the_next() {
    let replies = Arc::new(replies(10));
    let first = {
        let replies = Arc::clone(&replies);
        let run = || async { panic!("the tool fell over") };
        tokio::spawn(async move { replies.once(key("k"), BODY, patient(), run, |_| Some(1)).await.is_ok() })
    };
    assert!(first.await.is_err());
    assert_eq!(call(&replies, key("k"), 2).await, (2, false));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_not_executed_is_not_stored() {
    let replies = replies(10);
    for expected in 0..2 {
        let answer = replies.once(key("k"), BODY, patient(), || async { expected }, |_| None).await;
        assert!(matches!(answer, Ok(Once::Ran(reply)) if *reply == expected));
    }
    assert!(replies.is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_body_is_a_conflict_while_the_first_runs_and_after() {
    let replies = replies(10);
    let first = call(&replies, key("k"), 1);
    let second = async {
        sleep(A_WHILE / 2).await;
        replies.once(key("k"), OTHER_BODY, patient(), || async { 2 }, |_| Some(1)).await.unwrap_err().code()
    };
    assert_eq!(join(first, second).await.1, ErrorCode::IdempotencyConflict);
    let after = replies.once(key("k"), OTHER_BODY, patient(), || async { 2 }, |_| Some(1)).await;
    assert_eq!(after.unwrap_err().code(), ErrorCode::IdempotencyConflict);
}

#[tokio::test(start_paused = true)]
async fn who_waits_waits_until_his_own_deadline() {
    let replies = replies(10);
    let first = call(&replies, key("k"), 1);
    let second = async {
        let soon = Deadline::after(A_WHILE / 2);
        replies.once(key("k"), BODY, soon, || async { 2 }, |_| Some(1)).await.unwrap_err().code()
    };
    let (first, second) = join(first, second).await;
    assert_eq!((first, second), ((1, false), ErrorCode::Timeout));
}

#[tokio::test(start_paused = true)]
async fn a_reply_expires() {
    let replies = replies(10);
    call(&replies, key("k"), 1).await;
    advance(Duration::from_secs(99)).await;
    assert_eq!(call(&replies, key("k"), 2).await, (1, true));
    advance(Duration::from_secs(1)).await;
    assert_eq!(call(&replies, key("k"), 3).await, (3, false));
    advance(Duration::from_secs(100)).await;
    replies.evict_expired();
    assert!(replies.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_oldest_reply_goes_first_when_there_are_too_many() {
    let replies = replies(2);
    for name in ["one", "two", "three"] {
        call(&replies, key(name), 1).await;
    }
    assert_eq!(replies.len(), 2);
    assert_eq!(call(&replies, key("two"), 2).await, (1, true));
    assert_eq!(call(&replies, key("one"), 2).await, (2, false));
}

#[tokio::test(start_paused = true)]
async fn a_key_belongs_to_one_tenant_caller_and_tool() {
    let replies = replies(10);
    let owners = [("acme", "ann", "a"), ("acme", "ann", "b"), ("acme", "bob", "a"), ("rival", "ann", "a")];
    for (reply, (tenant, caller, tool)) in owners.into_iter().enumerate() {
        let key = ReplyKey::new(&Caller::new(caller, tenant, Vec::new()), tool, "k").unwrap();
        assert_eq!(call(&replies, key, reply).await, (reply, false));
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_calls_leave_nothing_behind() {
    let replies = replies(10);
    for _ in 0..100 {
        let first = call(&replies, key("k"), 1);
        let waiting = call(&replies, key("k"), 1);
        let both = join(first, waiting);
        assert!(tokio::time::timeout(A_WHILE / 2, both).await.is_err());
    }
    assert!(replies.is_empty());
}

#[test]
fn keys_are_visible_ascii() {
    let ann = Caller::new("ann", "acme", Vec::new());
    let (longest, too_long) = ("k".repeat(LONGEST_KEY), "k".repeat(LONGEST_KEY + 1));
    for key in ["k", "\"8e03978e-40d5\"", &longest] {
        assert!(ReplyKey::new(&ann, "calculator", key).is_ok(), "{key}");
    }
    for key in ["", "a b", "tab\t", "é", "nul\0", &too_long] {
        let error = ReplyKey::new(&ann, "calculator", key).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRequest, "{key}");
    }
}

/// Runs a call whose reply has so many bytes; whether it was run.
async fn call_of(replies: &Replies<usize>, name: &str, bytes: usize) -> Result<bool, ErrorCode> {
    let answer = replies.once(key(name), BODY, patient(), || async { bytes }, |bytes| Some(*bytes)).await;
    answer.map(|once| matches!(once, Once::Ran(_))).map_err(|error| error.code())
}

#[tokio::test(start_paused = true)]
async fn a_reply_too_large_to_keep_reaches_all_who_wait_and_the_call_is_never_run_again() {
    let replies = replies(10);
    let run = || async {
        sleep(A_WHILE).await;
        LARGEST_REPLY_BYTES + 1
    };
    let first = replies.once(key("k"), BODY, patient(), run, |bytes| Some(*bytes));
    let (first, waiting) = join(first, call_of(&replies, "k", 0)).await;
    assert!(matches!(first, Ok(Once::Ran(_))));
    assert_eq!(waiting, Ok(false), "who waits gets the reply");
    assert_eq!(call_of(&replies, "k", 0).await, Err(ErrorCode::IdempotencyConflict), "who comes later does not");
    assert_eq!(replies.lock().kept_bytes(), 0);
    advance(Duration::from_secs(100)).await;
    assert_eq!(call_of(&replies, "k", 0).await, Ok(true), "an expired key is a new one");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_replies_make_room_in_bytes_and_their_keys_stay() {
    let replies = replies(1_000);
    let fit = MOST_BYTES / LARGEST_REPLY_BYTES;
    for n in 0..fit + 2 {
        assert_eq!(call_of(&replies, &n.to_string(), LARGEST_REPLY_BYTES).await, Ok(true));
    }
    assert_eq!(replies.lock().kept_bytes(), MOST_BYTES);
    for n in 0..2 {
        assert_eq!(call_of(&replies, &n.to_string(), 1).await, Err(ErrorCode::IdempotencyConflict));
    }
    for n in 2..fit + 2 {
        assert_eq!(call_of(&replies, &n.to_string(), 1).await, Ok(false));
    }
}

#[tokio::test(start_paused = true)]
async fn forgotten_replies_give_their_bytes_back() {
    let replies = replies(2);
    for (name, bytes) in [("a", 10), ("b", LARGEST_REPLY_BYTES + 1), ("c", 30), ("d", 40)] {
        assert_eq!(call_of(&replies, name, bytes).await, Ok(true));
    }
    assert_eq!(replies.lock().kept_bytes(), 70, "c and d");
    advance(Duration::from_secs(100)).await;
    replies.evict_expired();
    assert_eq!(replies.lock().kept_bytes(), 0);
    assert!(replies.is_empty());
}
