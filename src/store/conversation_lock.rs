//! The lock of a conversation: the right to run it (C4–C6).

use tokio::time::Instant;

use super::work::{CONVERSATION, LockState, WorkLease};
use super::{ConversationStore, StoreError};

/// The right to run a conversation, only for its holder, until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationLock {
    pub(super) lease: WorkLease,
}

impl ConversationLock {
    /// The id of the conversation.
    pub fn conversation(&self) -> &str {
        self.lease.id()
    }
}

impl ConversationStore {
    /// Takes the lock of a conversation for a run at `replica`, or at a process that is no replica. `None`: another run has it, or
    /// there is no such conversation.
    pub async fn lock(&self, id: &str, replica: Option<&str>) -> Result<Option<ConversationLock>, StoreError> {
        let lease = self.0.work().take(CONVERSATION, id, replica).await?;
        Ok(lease.map(|lease| ConversationLock { lease }))
    }

    /// Holds a lock, which was asked for at that moment, for longer, again and again: until it is lost, or its run is to end.
    pub async fn keep_renewing(&self, lock: &ConversationLock, asked: Instant) -> LockState {
        self.0.work().keep_renewing(&lock.lease, asked).await
    }

    /// Asks the run that holds a conversation's lock, in any process, to stop.
    pub async fn stop_run(&self, id: &str) -> Result<(), StoreError> {
        self.0.work().ask_to_stop(CONVERSATION, id).await
    }

    /// Gives a lock back, unless another holder has it.
    /// Errors: [`StoreError`]; the lock expires by itself then.
    pub async fn unlock(&self, lock: &ConversationLock) -> Result<(), StoreError> {
        self.0.work().release(&lock.lease).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{conversation, end_leases, test_store};

    #[tokio::test]
    async fn one_holder_at_a_time_has_the_lock_until_it_expires() {
        let store = test_store().await;
        store.conversations().add(&conversation("a", "ann"), 10).await.unwrap();
        let lock = async || store.conversations().lock("a", None).await.unwrap();
        let renew = async |lock: &ConversationLock| store.work().renew(&lock.lease).await.unwrap();
        let first = lock().await.unwrap();
        assert_eq!(lock().await, None);
        assert_eq!(renew(&first).await, LockState::Held);
        end_leases(&store).await;
        let second = lock().await.unwrap();
        assert_eq!(renew(&first).await, LockState::Lost);
        store.conversations().unlock(&first).await.unwrap();
        assert_eq!(lock().await, None, "a lost lock frees nothing");
        store.conversations().stop_run("a").await.unwrap();
        assert_eq!(renew(&second).await, LockState::AskedToStop);
        store.conversations().unlock(&second).await.unwrap();
        let third = lock().await.unwrap();
        assert_eq!(renew(&third).await, LockState::Held);
        assert_eq!(store.conversations().lock("none", None).await.unwrap(), None);
    }
}
