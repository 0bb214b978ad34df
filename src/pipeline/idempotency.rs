//! `Idempotency-Key`: a call that is sent again is answered again, not run again.
//!
//! A key belongs to a tenant, a caller and a tool. The first call that comes with it runs; one that
//! comes while it runs waits for it; one that comes later gets the stored reply. Only a reply that
//! says the tool was run is stored: a refused call may be sent again and then runs.
//!
//! Replies are bounded in bytes too ([`shelf`]). One that is too large to be kept, or has to make room,
//! leaves its key behind: who waits still gets it, who comes later is refused, and nothing runs twice.

mod shelf;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use self::shelf::{Place, Shelf, State, Wait};
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
    /// body; `bytes_to_store` says of a reply how many bytes it holds, or `None` when the tool was not
    /// run for it. Where the first call is cancelled, or its tool not run, the next one that waits is run.
    ///
    /// # Errors
    /// `idempotency_conflict` when the key came with another body before, or its reply is no longer
    /// kept; `timeout` when the first call is still running at `deadline`.
    pub async fn once<F: Future<Output = R>>(
        &self,
        key: ReplyKey,
        digest: [u8; 32],
        deadline: Deadline,
        run: impl FnOnce() -> F,
        bytes_to_store: impl FnOnce(&R) -> Option<usize>,
    ) -> Result<Once<R>, CallError> {
        let key = Arc::new(key);
        loop {
            let mut first = match self.enter(&key, digest)? {
                Entered::First(turn) => {
                    let reply = Arc::new(run().await);
                    if let Some(bytes) = bytes_to_store(&reply) {
                        turn.store(Arc::clone(&reply), bytes);
                    }
                    return Ok(Once::Ran(reply));
                }
                Entered::Stored(reply) => return Ok(Once::Replayed(reply)),
                Entered::Running(first) => first,
            };
            match timeout_at(deadline.0, first.wait_for(Option::is_some)).await {
                Err(_) => return Err(still_running()),
                Ok(Ok(reply)) => {
                    if let Some(reply) = &*reply {
                        return Ok(Once::Replayed(Arc::clone(reply)));
                    }
                }
                // Closed without a reply to give on: the first call was cancelled, or refused.
                Ok(Err(_)) => {}
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
            let (answer, wait) = watch::channel(None);
            shelf.places.insert(Arc::clone(key), Place { digest, state: State::Running(wait) });
            return Ok(Entered::First(Turn { replies: self, key: Arc::clone(key), stored: false, answer }));
        };
        if place.digest != digest {
            return Err(conflict());
        }
        match &place.state {
            State::Kept { reply, .. } => Ok(Entered::Stored(Arc::clone(reply))),
            State::Running(wait) => Ok(Entered::Running(wait.clone())),
            State::LetGo => Err(no_longer_kept()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf<R>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call finds when it comes with a key.
enum Entered<'a, R> {
    First(Turn<'a, R>),
    Running(Wait<R>),
    Stored(Arc<R>),
}

/// The right to run the call. Without a stored reply, its end makes room for the next.
struct Turn<'a, R> {
    replies: &'a Replies<R>,
    key: Arc<ReplyKey>,
    stored: bool,
    /// Sends or closes when the shelf is in order, and wakes those who wait.
    answer: watch::Sender<Option<Arc<R>>>,
}

impl<R> Turn<'_, R> {
    fn store(mut self, reply: Arc<R>, bytes: usize) {
        self.replies.lock().store(&self.key, Arc::clone(&reply), bytes);
        self.stored = true;
        self.answer.send_replace(Some(reply));
    }
}

impl<R> Drop for Turn<'_, R> {
    fn drop(&mut self) {
        if !self.stored {
            self.replies.lock().places.remove(&self.key);
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

fn no_longer_kept() -> CallError {
    let message = "this call was run already, and its reply is too large to be kept until now; \
                   look at what it did, and send a new Idempotency-Key to run it again";
    CallError::new(ErrorCode::IdempotencyConflict, message)
}

fn still_running() -> CallError {
    let message = "the first call with this Idempotency-Key is still running; send it again later for its reply";
    CallError::new(ErrorCode::Timeout, message)
}

#[cfg(test)]
mod tests;
