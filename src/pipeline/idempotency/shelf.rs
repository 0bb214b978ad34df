//! What is kept under idempotency keys: bounded in number, in age and in bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::ReplyKey;
use crate::config::SessionConfig;

/// Bytes that all kept replies may hold together.
pub(super) const MOST_BYTES: usize = 64 << 20;

/// Bytes of the largest reply that is kept, so that one reply does not push out all others.
pub(super) const LARGEST_REPLY_BYTES: usize = 4 << 20;

/// Tells those who wait: the reply of the first call, once it is to be given to all.
pub(super) type Wait<R> = watch::Receiver<Option<Arc<R>>>;

#[derive(Debug)]
pub(super) struct Shelf<R> {
    pub(super) places: HashMap<Arc<ReplyKey>, Place<R>>,
    /// The keys of calls that were run, oldest first.
    order: VecDeque<(Instant, Arc<ReplyKey>)>,
    /// Those of them whose replies are kept, in the same order.
    kept: VecDeque<Arc<ReplyKey>>,
    kept_bytes: usize,
    kept_for: Duration,
    most: usize,
}

#[derive(Debug)]
pub(super) struct Place<R> {
    pub(super) digest: [u8; 32],
    pub(super) state: State<R>,
}

#[derive(Debug)]
pub(super) enum State<R> {
    Running(Wait<R>),
    Kept {
        reply: Arc<R>,
        bytes: usize,
    },
    /// The call was run; its reply was too large to keep, or larger things came since.
    LetGo,
}

impl<R> Shelf<R> {
    pub(super) fn new(config: &SessionConfig) -> Self {
        let mut shelf = Self {
            places: HashMap::new(),
            order: VecDeque::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            kept_for: Duration::ZERO,
            most: 0,
        };
        shelf.reconfigure(config);
        shelf
    }

    pub(super) fn reconfigure(&mut self, config: &SessionConfig) {
        self.kept_for = Duration::from_secs(config.idempotency_seconds);
        self.most = config.max_idempotency_keys;
        self.forget_beyond_most();
    }

    /// Notes that the call was run, and keeps its reply, of so many bytes, if it is not too large.
    pub(super) fn store(&mut self, key: &Arc<ReplyKey>, reply: Arc<R>, bytes: usize) {
        let Some(place) = self.places.get_mut(key) else { return };
        self.order.push_back((Instant::now(), Arc::clone(key)));
        if bytes > LARGEST_REPLY_BYTES {
            place.state = State::LetGo;
        } else {
            place.state = State::Kept { reply, bytes };
            self.kept.push_back(Arc::clone(key));
            self.kept_bytes += bytes;
            while self.kept_bytes > MOST_BYTES {
                self.let_go_of_oldest();
            }
        }
        self.forget_beyond_most();
    }

    pub(super) fn forget_expired(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(stored, _)| now.duration_since(*stored) >= self.kept_for) {
            self.forget_oldest();
        }
    }

    /// Bytes of the replies that are kept.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    fn forget_beyond_most(&mut self) {
        while self.order.len() > self.most {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, key)) = self.order.pop_front() else { return };
        if self.kept.front().is_some_and(|oldest| Arc::ptr_eq(oldest, &key)) {
            self.let_go_of_oldest();
        }
        self.places.remove(&key);
    }

    /// The key stays, so that the call is not run again.
    fn let_go_of_oldest(&mut self) {
        let Some(key) = self.kept.pop_front() else { return };
        if let Some(place) = self.places.get_mut(&key)
            && let State::Kept { bytes, .. } = std::mem::replace(&mut place.state, State::LetGo)
        {
            self.kept_bytes -= bytes;
        }
    }
}
