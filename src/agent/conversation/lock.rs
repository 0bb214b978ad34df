//! The lock of a conversation while a run has it (C4–C6): renewed, and given back whatever happens.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::live::{LiveRun, StopCause};
use crate::infra::store::{ConversationLock, LockState, Store};

/// A lock that is not renewed for this long is free: its process has ended, or hangs.
pub(super) const LEASE: Duration = Duration::from_secs(15);

/// Interval of renewals.
const RENEWAL: Duration = Duration::from_secs(5);

/// How long a run may hold its conversation (C4).
const MAX_HOLD: Duration = Duration::from_secs(600);

/// Gives the lock back when it is dropped.
#[derive(Debug)]
pub(super) struct HeldLock {
    pub(super) lock: ConversationLock,
    store: Store,
    renewal: AbortHandle,
    is_released: bool,
}

impl HeldLock {
    /// Renews the lock from now on. The run is stopped when the lock is lost, or asked to.
    pub(super) fn new(lock: ConversationLock, store: Store, run: Arc<LiveRun>) -> Self {
        let renewal = tokio::spawn(renew(lock.clone(), store.clone(), run)).abort_handle();
        Self { lock, store, renewal, is_released: false }
    }

    pub(super) async fn release(mut self) {
        self.is_released = true;
        self.renewal.abort();
        unlock(&self.store, &self.lock).await;
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.renewal.abort();
        if !self.is_released
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (store, lock) = (self.store.clone(), self.lock.clone());
            runtime.spawn(async move { unlock(&store, &lock).await });
        }
    }
}

async fn unlock(store: &Store, lock: &ConversationLock) {
    if let Err(error) = store.unlock_conversation(lock).await {
        tracing::warn!(%error, conversation = lock.conversation, "the lock of a conversation is given back when it expires");
    }
}

async fn renew(lock: ConversationLock, store: Store, run: Arc<LiveRun>) {
    let end = Instant::now() + MAX_HOLD;
    loop {
        sleep(RENEWAL).await;
        match store.renew_conversation_lock(&lock, Timestamp::now(), LEASE).await {
            Ok(LockState::Held) if Instant::now() < end => {}
            Ok(LockState::Held) => return run.stop(StopCause::TimeOut),
            Ok(LockState::AskedToStop) => return run.stop(StopCause::Request),
            Ok(LockState::Lost) => return run.stop(StopCause::LockLost),
            // What is stored in the end is refused if another process has the lock by then.
            Err(error) => tracing::warn!(%error, "the lock of a conversation could not be renewed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infra::store::test_support::{conversation, test_store};

    #[tokio::test]
    async fn a_lock_is_given_back_also_by_a_run_that_panics() {
        let store = test_store().await;
        store.add_conversation(&conversation("c", "ann")).await.unwrap();
        let take = async || store.lock_conversation("c", &Arc::from("p"), Timestamp::now(), LEASE).await.unwrap();
        let held = HeldLock::new(take().await.unwrap(), store.clone(), LiveRun::for_tests());
        assert!(take().await.is_none());
        let panicked = tokio::spawn(async move {
            let _held = held;
            panic!("a run that panics");
        });
        panicked.await.unwrap_err();
        let until = Instant::now() + Duration::from_secs(5);
        let next = loop {
            match take().await {
                Some(lock) => break lock,
                None => assert!(Instant::now() < until, "the lock is still held"),
            }
            sleep(Duration::from_millis(10)).await;
        };
        HeldLock::new(next, store.clone(), LiveRun::for_tests()).release().await;
        assert!(take().await.is_some());
    }
}
