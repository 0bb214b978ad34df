//! The lock of a conversation while a run has it (C4–C6): renewed, and given back whatever happens.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::live::{LiveRun, StopCause};
use sekisho_store::{ConversationLock, ConversationStore, LockState, Store};

/// A lock that is not renewed for this long is free: its process has ended, or hangs.
pub(super) const LEASE: Duration = Duration::from_secs(15);

/// Interval of renewals.
const RENEWAL: Duration = Duration::from_secs(5);

/// Interval of attempts after one that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Without a renewal for this long the run is stopped: its calls have ended when the lease does, after which another
/// process may run the conversation.
const GIVE_UP: Duration = Duration::from_secs(12);

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
    pub(super) fn new(lock: ConversationLock, asked: Instant, store: Store, run: Arc<LiveRun>) -> Self {
        let conversations = store.conversations();
        let renewal = tokio::spawn(renew(lock.clone(), asked, store, run)).abort_handle();
        Self { lock, store: conversations, renewal, is_released: false }
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
        tracing::warn!(%error, conversation = lock.conversation, "the lock of a conversation is given back when it expires");
    }
}

async fn renew(lock: ConversationLock, taken: Instant, store: Store, run: Arc<LiveRun>) {
    let (conversations, mut renewed, mut pause) = (store.conversations(), taken, RENEWAL);
    loop {
        sleep(pause).await;
        let asked = Instant::now();
        let state = conversations.renew_lock(&lock, store.now(), LEASE);
        match timeout_at(renewed + GIVE_UP, state).await {
            Ok(Ok(LockState::Held)) if asked < taken + MAX_HOLD => (renewed, pause) = (asked, RENEWAL),
            Ok(Ok(LockState::Held)) => return run.stop(StopCause::TimeOut),
            Ok(Ok(LockState::AskedToStop)) => return run.stop(StopCause::Request),
            Ok(Ok(LockState::Lost)) => return run.stop(StopCause::LockLost),
            Ok(Err(error)) => {
                tracing::warn!(%error, conversation = lock.conversation, "the lock of a conversation could not be renewed");
                pause = RETRY;
            }
            Err(_) => {}
        }
        if Instant::now() >= renewed + GIVE_UP {
            tracing::error!(conversation = lock.conversation, "a run is stopped: its lock was not renewed in time");
            return run.stop(StopCause::LockLost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_store::test_support::{conversation, test_store};

    #[tokio::test]
    async fn a_run_whose_lock_cannot_be_renewed_is_stopped_before_another_process_takes_it() {
        let store = test_store().await;
        store.conversations().add(&conversation("c", "ann"), 1).await.unwrap();
        let lock = store.conversations().lock("c", &Arc::from("p"), store.now(), LEASE).await.unwrap().unwrap();
        store.close().await;
        tokio::time::pause();
        let (run, begun) = (LiveRun::for_tests(), Instant::now());
        let _held = HeldLock::new(lock, begun, store, Arc::clone(&run));
        run.stop.cancelled().await;
        assert_eq!(run.cause(), StopCause::LockLost);
        let after = begun.elapsed();
        assert!(RENEWAL + RETRY < after && after < LEASE, "{after:?}: after several attempts, within the lease");
    }

    #[tokio::test]
    async fn a_lock_is_given_back_also_by_a_run_that_panics() {
        let store = test_store().await;
        store.conversations().add(&conversation("c", "ann"), 10).await.unwrap();
        let take = async || store.conversations().lock("c", &Arc::from("p"), store.now(), LEASE).await.unwrap();
        let held = HeldLock::new(take().await.unwrap(), Instant::now(), store.clone(), LiveRun::for_tests());
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
        HeldLock::new(next, Instant::now(), store.clone(), LiveRun::for_tests()).release().await;
        assert!(take().await.is_some());
    }
}
