//! `Idempotency-Key`: a call that is sent again is answered again, not run again.
//!
//! A key belongs to a tenant, a caller and a tool. The first call that comes with it runs; one that
//! comes while it runs waits for it; one that comes later gets the stored reply. Only a reply that
//! says the tool was run is stored: a refused call may be sent again and then runs.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::call::{Arguments, CallContext, Caller, Deadline};
use crate::config::SessionConfig;
use crate::error::{CallError, ErrorCode};
use crate::json;

/// Longest key, in characters.
const LONGEST_KEY: usize = 255;

/// The replies to calls with a key, and the calls whose replies are awaited.
#[derive(Debug)]
pub struct Replies<R> {
    shelf: Mutex<Shelf<R>>,
}

/// What a stored reply belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplyKey {
    /// Tenant and caller ([`Caller::key`]).
    caller: Arc<str>,
    tool: Box<str>,
    key: Box<str>,
}

/// A reply, and whether the call was run for it.
#[derive(Debug)]
pub enum Once<R> {
    Ran(Arc<R>),
    /// Stored, or awaited from the call that came first.
    Replayed(Arc<R>),
}

impl ReplyKey {
    /// # Errors
    /// `invalid_request` unless the key is 1 to 255 visible ASCII characters.
    pub fn new(caller: &Caller, tool: &str, key: &str) -> Result<Self, CallError> {
        if key.is_empty() || key.len() > LONGEST_KEY || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("an Idempotency-Key has 1 to {LONGEST_KEY} visible ASCII characters, no spaces");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
        Ok(Self { caller: Arc::clone(&caller.key), tool: tool.into(), key: key.into() })
    }
}

impl<R> Replies<R> {
    pub fn new(config: &SessionConfig) -> Self {
        Self { shelf: Mutex::new(Shelf::new(config)) }
    }

    pub fn reconfigure(&self, config: &SessionConfig) {
        self.lock().reconfigure(config);
    }

    /// Runs the call, unless one with this key has been run or is running. `digest` is that of the
    /// body; `executed` says of a reply whether it is worth storing. Where the first call is
    /// cancelled, or its reply not stored, the next one that waits is run.
    ///
    /// # Errors
    /// `idempotency_conflict` when the key came with another body before; `timeout` when the first
    /// call is still running at `deadline`.
    pub async fn once<F: Future<Output = R>>(
        &self,
        key: ReplyKey,
        digest: [u8; 32],
        deadline: Deadline,
        run: impl FnOnce() -> F,
        executed: impl FnOnce(&R) -> bool,
    ) -> Result<Once<R>, CallError> {
        let key = Arc::new(key);
        loop {
            let mut first = match self.enter(&key, digest)? {
                Entered::First(turn) => {
                    let reply = Arc::new(run().await);
                    if executed(&reply) {
                        turn.store(Arc::clone(&reply));
                    }
                    return Ok(Once::Ran(reply));
                }
                Entered::Stored(reply) => return Ok(Once::Replayed(reply)),
                Entered::Running(first) => first,
            };
            // Nothing is ever sent: the channel closes when the first call has ended, however it ended.
            if timeout_at(deadline.0, first.changed()).await.is_err() {
                return Err(still_running());
            }
        }
    }

    /// Forgets replies that are old enough; run every minute, so that an idle service forgets too.
    pub fn evict_expired(&self) {
        self.lock().forget_expired(Instant::now());
    }

    /// Stored replies and running calls.
    pub fn len(&self) -> usize {
        self.lock().places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn enter(&self, key: &Arc<ReplyKey>, digest: [u8; 32]) -> Result<Entered<'_, R>, CallError> {
        let mut shelf = self.lock();
        shelf.forget_expired(Instant::now());
        let Some(place) = shelf.places.get(key) else {
            let (ended, wait) = watch::channel(());
            shelf.places.insert(Arc::clone(key), Place { digest, state: State::Running(wait) });
            return Ok(Entered::First(Turn { replies: self, key: Arc::clone(key), stored: false, _ended: ended }));
        };
        if place.digest != digest {
            return Err(conflict());
        }
        Ok(match &place.state {
            State::Stored(reply) => Entered::Stored(Arc::clone(reply)),
            State::Running(wait) => Entered::Running(wait.clone()),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Shelf<R>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call finds when it comes with a key.
enum Entered<'a, R> {
    First(Turn<'a, R>),
    Running(watch::Receiver<()>),
    Stored(Arc<R>),
}

/// The right to run the call. Without a stored reply, its end makes room for the next.
struct Turn<'a, R> {
    replies: &'a Replies<R>,
    key: Arc<ReplyKey>,
    stored: bool,
    /// Dropped last, when the shelf is in order: wakes those who wait.
    _ended: watch::Sender<()>,
}

impl<R> Turn<'_, R> {
    fn store(mut self, reply: Arc<R>) {
        self.replies.lock().store(&self.key, reply);
        self.stored = true;
    }
}

impl<R> Drop for Turn<'_, R> {
    fn drop(&mut self) {
        if !self.stored {
            self.replies.lock().places.remove(&self.key);
        }
    }
}

#[derive(Debug)]
struct Shelf<R> {
    places: HashMap<Arc<ReplyKey>, Place<R>>,
    /// The stored replies, oldest first.
    order: VecDeque<(Instant, Arc<ReplyKey>)>,
    kept: Duration,
    most: usize,
}

#[derive(Debug)]
struct Place<R> {
    digest: [u8; 32],
    state: State<R>,
}

#[derive(Debug)]
enum State<R> {
    Running(watch::Receiver<()>),
    Stored(Arc<R>),
}

impl<R> Shelf<R> {
    fn new(config: &SessionConfig) -> Self {
        let mut shelf = Self { places: HashMap::new(), order: VecDeque::new(), kept: Duration::ZERO, most: 0 };
        shelf.reconfigure(config);
        shelf
    }

    fn reconfigure(&mut self, config: &SessionConfig) {
        self.kept = Duration::from_secs(config.idempotency_seconds);
        self.most = config.max_idempotency_keys;
        self.forget_beyond_most();
    }

    fn store(&mut self, key: &Arc<ReplyKey>, reply: Arc<R>) {
        if let Some(place) = self.places.get_mut(key) {
            place.state = State::Stored(reply);
            self.order.push_back((Instant::now(), Arc::clone(key)));
            self.forget_beyond_most();
        }
    }

    fn forget_expired(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(stored, _)| now.duration_since(*stored) >= self.kept) {
            self.forget_oldest();
        }
    }

    fn forget_beyond_most(&mut self) {
        while self.order.len() > self.most {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.order.pop_front() {
            self.places.remove(&key);
        }
    }
}

/// Of everything that decides what the call does: the same arguments in another session, or as a dry
/// run, are another call.
pub(super) fn digest(call: &CallContext, arguments: &Arguments) -> [u8; 32] {
    let session = call.session.as_ref().map_or("", |session| &session.id);
    Sha256::new()
        .chain_update(json::digest(arguments))
        .chain_update(json::digest(&call.prompt_params))
        .chain_update(json::digest(&call.tool_parameters))
        .chain_update([u8::from(call.dry_run)])
        .chain_update(session)
        .finalize()
        .into()
}

fn conflict() -> CallError {
    let message = "this Idempotency-Key came with another body before; send that body again, or a new key";
    CallError::new(ErrorCode::IdempotencyConflict, message)
}

fn still_running() -> CallError {
    let message = "the first call with this Idempotency-Key is still running; send it again later for its reply";
    CallError::new(ErrorCode::Timeout, message)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::{join, join_all};
    use tokio::time::{advance, sleep};

    use super::*;

    const BODY: [u8; 32] = [1; 32];
    const OTHER_BODY: [u8; 32] = [2; 32];
    const A_WHILE: Duration = Duration::from_secs(1);

    fn replies(most: usize) -> Replies<usize> {
        Replies::new(&SessionConfig {
            max_idempotency_keys: most,
            idempotency_seconds: 100,
            ..SessionConfig::default()
        })
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
        match replies.once(key, BODY, patient(), run, |_| true).await.unwrap() {
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
                |_| true,
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
                replies.once(key("k"), BODY, patient(), run, |_| true).await.map(|_| ())
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
                async move { replies.once(key("k"), BODY, patient(), pending::<usize>, |_| true).await.is_ok() },
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
            tokio::spawn(async move { replies.once(key("k"), BODY, patient(), run, |_| true).await.is_ok() })
        };
        assert!(first.await.is_err());
        assert_eq!(call(&replies, key("k"), 2).await, (2, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_was_not_executed_is_not_stored() {
        let replies = replies(10);
        for expected in 0..2 {
            let answer = replies.once(key("k"), BODY, patient(), || async { expected }, |_| false).await;
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
            replies.once(key("k"), OTHER_BODY, patient(), || async { 2 }, |_| true).await.unwrap_err().code()
        };
        assert_eq!(join(first, second).await.1, ErrorCode::IdempotencyConflict);
        let after = replies.once(key("k"), OTHER_BODY, patient(), || async { 2 }, |_| true).await;
        assert_eq!(after.unwrap_err().code(), ErrorCode::IdempotencyConflict);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_waits_until_his_own_deadline() {
        let replies = replies(10);
        let first = call(&replies, key("k"), 1);
        let second = async {
            let soon = Deadline::after(A_WHILE / 2);
            replies.once(key("k"), BODY, soon, || async { 2 }, |_| true).await.unwrap_err().code()
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
}
