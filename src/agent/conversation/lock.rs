//! The lock of a conversation while a run has it (C4–C6): renewed, and given back whatever happens.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::live::{LiveRun, StopCause};
use sekisho_store::{ConversationLock, ConversationStore, LockState};

/// How long a run may hold its conversation (C4).
pub(super) const MAX_HOLD: Duration = Duration::from_secs(600);

/// Gives the lock back when it is dropped.
#[derive(Debug)]
pub(super) struct HeldLock {
    pub(super) lock: ConversationLock,
    store: ConversationStore,
    renewal: AbortHandle,
    is_released: bool,
}

impl HeldLock {
    /// Renews the lock, which was asked for at that moment, from now on. The run is stopped when the lock is lost, or asked to.
    pub(super) fn new(lock: ConversationLock, asked: Instant, store: ConversationStore, run: Arc<LiveRun>) -> Self {
        let renewal = tokio::spawn(renew(lock.clone(), asked, store.clone(), run)).abort_handle();
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

async fn unlock(store: &ConversationStore, lock: &ConversationLock) {
    if let Err(error) = store.unlock(lock).await {
        tracing::warn!(%error, conversation = lock.conversation(), "the lock of a conversation is given back when it expires");
    }
}

async fn renew(lock: ConversationLock, taken: Instant, store: ConversationStore, run: Arc<LiveRun>) {
    let cause = match timeout_at(taken + MAX_HOLD, store.keep_renewing(&lock, taken)).await {
        Err(_) => StopCause::TimeOut,
        Ok(LockState::AskedToStop) => StopCause::Request,
        Ok(LockState::Lost | LockState::Held) => StopCause::LockLost,
    };
    run.stop(cause);
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_store::replica::LOST_AFTER;
    use sekisho_store::test_support::{conversation, test_store};

    #[tokio::test]
    async fn a_run_whose_lock_cannot_be_renewed_is_stopped() {
        let store = test_store().await;
        store.conversations().add(&conversation("c", "ann"), 1).await.unwrap();
        let lock = store.conversations().lock("c", None).await.unwrap().unwrap();
        store.close().await;
        tokio::time::pause();
        let (run, begun) = (LiveRun::for_tests(), Instant::now());
        let _held = HeldLock::new(lock, begun, store.conversations(), Arc::clone(&run));
        run.stop.cancelled().await;
        assert_eq!(run.cause(), StopCause::LockLost);
        assert!(begun.elapsed() < LOST_AFTER, "{:?}: before another replica takes it", begun.elapsed());
    }

    #[tokio::test]
    async fn a_lock_is_given_back_also_by_a_run_that_panics() {
        let store = test_store().await;
        store.conversations().add(&conversation("c", "ann"), 10).await.unwrap();
        let take = async || store.conversations().lock("c", None).await.unwrap();
        let held = HeldLock::new(take().await.unwrap(), Instant::now(), store.conversations(), LiveRun::for_tests());
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
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        HeldLock::new(next, Instant::now(), store.conversations(), LiveRun::for_tests()).release().await;
        assert!(take().await.is_some());
    }
}
