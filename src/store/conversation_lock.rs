//! The lock of a conversation: the right to run it (C4–C6).

use std::sync::Arc;
use std::time::Duration;

use super::{ConversationStore, Engine, StoreError};
use sekisho_core::database_clock::DatabaseTime;

/// The right to run a conversation, only for its holder, until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationLock {
    pub conversation: String,
    pub holder: Arc<str>,
    /// Grows each time the lock is taken: writes of a holder that lost it are refused.
    pub fence: i64,
}

/// The state of a lock when its holder renews it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    Held,
    /// Its run is to end.
    AskedToStop,
    /// Another holder has it.
    Lost,
}

impl ConversationStore {
    /// Takes the lock of a conversation until `now + lease`, unless another holder has it. `None`: it is held, or there is
    /// no such conversation.
    pub async fn lock(
        &self,
        id: &str,
        holder: &Arc<str>,
        now: DatabaseTime,
        lease: Duration,
    ) -> Result<Option<ConversationLock>, StoreError> {
        let fence: Option<i64> = sqlx::query_scalar(
            "UPDATE conversations SET holder = $2, fence = fence + 1, held_until = $4
             WHERE id = $1 AND (holder IS NULL OR held_until <= $3) RETURNING fence",
        )
        .bind(id)
        .bind(&**holder)
        .bind(now.as_microsecond())
        .bind(end(now, lease))
        .fetch_optional(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        Ok(fence.map(|fence| ConversationLock { conversation: id.to_owned(), holder: Arc::clone(holder), fence }))
    }

    /// Holds a lock for longer, unless another holder has it.
    pub async fn renew_lock(
        &self,
        lock: &ConversationLock,
        now: DatabaseTime,
        lease: Duration,
    ) -> Result<LockState, StoreError> {
        let stop_fence: Option<i64> = sqlx::query_scalar(
            "UPDATE conversations SET held_until = $3 WHERE id = $1 AND fence = $2 AND holder IS NOT NULL
             RETURNING stop_fence",
        )
        .bind(&lock.conversation)
        .bind(lock.fence)
        .bind(end(now, lease))
        .fetch_optional(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        Ok(match stop_fence {
            None => LockState::Lost,
            Some(fence) if fence == lock.fence => LockState::AskedToStop,
            Some(_) => LockState::Held,
        })
    }

    /// Asks the run that holds a conversation's lock, in any process, to stop.
    pub async fn stop_run(&self, id: &str) -> Result<(), StoreError> {
        let asked = sqlx::query("UPDATE conversations SET stop_fence = fence WHERE id = $1 AND holder IS NOT NULL");
        asked.bind(id).execute(&self.0.pool).await.map(drop).map_err(|error| self.0.failed(error))
    }

    /// Gives a lock back, unless another holder has it.
    ///
    /// # Errors
    /// [`StoreError`]; the lock expires by itself then.
    pub async fn unlock(&self, lock: &ConversationLock) -> Result<(), StoreError> {
        let unlocked = sqlx::query("UPDATE conversations SET holder = NULL WHERE id = $1 AND fence = $2");
        let unlocked = unlocked.bind(&lock.conversation).bind(lock.fence).execute(&self.0.pool).await;
        unlocked.map(drop).map_err(|error| self.0.failed(error))
    }

    /// Frees the locks of earlier processes. Only the one process of a state directory uses its file, while other
    /// processes of a database may live: their locks expire.
    pub async fn free_locks(&self) -> Result<(), StoreError> {
        if self.0.engine == Engine::PostgreSql {
            return Ok(());
        }
        let freed = sqlx::query("UPDATE conversations SET holder = NULL WHERE holder IS NOT NULL");
        freed.execute(&self.0.pool).await.map(drop).map_err(|error| self.0.failed(error))
    }
}

fn end(now: DatabaseTime, lease: Duration) -> i64 {
    now.as_microsecond().saturating_add(i64::try_from(lease.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::test_support::conversation_created as conversation;
    use crate::test_support::test_store;

    #[tokio::test]
    async fn one_holder_at_a_time_has_the_lock_until_it_expires() {
        let store = test_store().await;
        store.conversations().add(&conversation("a", "ann", 1), 10).await.unwrap();
        let at = |second| DatabaseTime::from(Timestamp::from_second(second).unwrap());
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let lease = Duration::from_secs(15);
        let lock = async |holder, now| store.conversations().lock("a", holder, at(now), lease).await.unwrap();
        let first = lock(&one, 100).await.unwrap();
        assert_eq!(lock(&other, 110).await, None);
        assert_eq!(store.conversations().renew_lock(&first, at(110), lease).await.unwrap(), LockState::Held);
        assert_eq!(lock(&other, 120).await, None, "it was renewed");
        let second = lock(&other, 125).await.unwrap();
        assert!(second.fence > first.fence);
        assert_eq!(store.conversations().renew_lock(&first, at(126), lease).await.unwrap(), LockState::Lost);
        store.conversations().unlock(&first).await.unwrap();
        assert_eq!(lock(&one, 126).await, None, "a lost lock frees nothing");
        store.conversations().stop_run("a").await.unwrap();
        assert_eq!(store.conversations().renew_lock(&second, at(126), lease).await.unwrap(), LockState::AskedToStop);
        store.conversations().unlock(&second).await.unwrap();
        let third = lock(&one, 126).await.unwrap();
        assert_eq!(store.conversations().renew_lock(&third, at(127), lease).await.unwrap(), LockState::Held);
        assert_eq!(store.conversations().lock("none", &one, at(1), lease).await.unwrap(), None);
    }

    #[tokio::test]
    async fn locks_of_an_earlier_process_are_freed_where_there_is_one_process() {
        let store = test_store().await;
        store.conversations().add(&conversation("a", "ann", 1), 10).await.unwrap();
        let (now, lease) = (DatabaseTime::from(Timestamp::from_second(100).unwrap()), Duration::from_secs(15));
        store.conversations().lock("a", &"earlier".into(), now, lease).await.unwrap().unwrap();
        store.conversations().free_locks().await.unwrap();
        let lock = store.conversations().lock("a", &"this".into(), now, lease).await.unwrap();
        assert_eq!(lock.is_some(), store.engine == Engine::Sqlite);
    }
}
