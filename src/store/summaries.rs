//! Memory of conversations: one short summary per thread (A42).

use super::text::storable;
use super::{AtStore, Store, StoreError, retried};

/// Two processes may take the same number: which of the two goes first does not matter.
const NEXT_USE: &str = "(SELECT COALESCE(MAX(used), 0) + 1 FROM thread_summaries)";

/// Summaries of threads: the table `thread_summaries`.
#[derive(Debug, Clone)]
pub struct ThreadSummaryStore(pub(super) Store);

impl ThreadSummaryStore {
    /// The summary of a caller's thread, which counts as used from here on.
    pub async fn get(&self, caller_key: &str, thread: &str) -> Result<Option<String>, StoreError> {
        let statement = format!(
            "UPDATE thread_summaries SET used = {NEXT_USE} WHERE caller_key = $1 AND thread = $2 RETURNING summary"
        );
        bound!(sqlx::query_scalar(sqlx::AssertSqlSafe(statement)), caller_key, thread)
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)
    }

    /// Stores a thread's summary, replacing its old one. Beyond `max` in total, the least recently used are
    /// deleted (A44).
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn keep(&self, caller_key: &str, thread: &str, summary: &str, max: u32) -> Result<(), StoreError> {
        retried(|| self.try_keep(caller_key, thread, summary, max)).await
    }

    async fn try_keep(&self, caller_key: &str, thread: &str, summary: &str, max: u32) -> Result<(), StoreError> {
        let mut transaction = self.0.begin().await?;
        let statement = format!(
            "INSERT INTO thread_summaries (caller_key, thread, summary, used) VALUES ($1, $2, $3, {NEXT_USE})
             ON CONFLICT (caller_key, thread) DO UPDATE SET summary = excluded.summary, used = excluded.used"
        );
        bound!(sqlx::query(sqlx::AssertSqlSafe(statement)), caller_key, thread, storable(summary))
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        // The one after the `max` latest, and all before it, are deleted.
        sqlx::query(
            "DELETE FROM thread_summaries
             WHERE used <= (SELECT used FROM thread_summaries ORDER BY used DESC LIMIT 1 OFFSET $1)",
        )
        .bind(i64::from(max))
        .execute(&mut *transaction)
        .await
        .at(&self.0)?;
        transaction.commit().await.at(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{fill_the_disk, free_disk, test_store};

    #[tokio::test]
    async fn a_summary_survives_a_restart_and_is_replaced_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let store = Store::open_file(&path).await.unwrap();
        assert_eq!(store.thread_summaries().get("ann", "t").await.unwrap(), None);
        store.thread_summaries().keep("ann", "t", "first", 10).await.unwrap();
        store.thread_summaries().keep("ann", "t", "second", 10).await.unwrap();
        store.close().await;
        let store = Store::open_file(&path).await.unwrap();
        assert_eq!(store.thread_summaries().get("ann", "t").await.unwrap().as_deref(), Some("second"));
    }

    /// Fault 11.
    #[tokio::test]
    async fn a_guessed_thread_opens_nothing_of_another_caller() {
        let store = test_store().await;
        store.thread_summaries().keep("acme\u{1f}ann", "t", "ann's", 10).await.unwrap();
        store.thread_summaries().keep("acme\u{1f}bob", "t", "bob's", 10).await.unwrap();
        assert_eq!(store.thread_summaries().get("acme\u{1f}ann", "t").await.unwrap().as_deref(), Some("ann's"));
        assert_eq!(store.thread_summaries().get("rival\u{1f}ann", "t").await.unwrap(), None);
    }

    #[tokio::test]
    async fn the_summary_not_used_for_longest_goes_first() {
        let store = test_store().await;
        for thread in ["a", "b", "c"] {
            store.thread_summaries().keep("ann", thread, thread, 3).await.unwrap();
        }
        assert!(store.thread_summaries().get("ann", "a").await.unwrap().is_some());
        store.thread_summaries().keep("bob", "d", "d", 3).await.unwrap();
        for (caller, thread, kept) in [("ann", "a", true), ("ann", "b", false), ("ann", "c", true), ("bob", "d", true)]
        {
            assert_eq!(store.thread_summaries().get(caller, thread).await.unwrap().is_some(), kept, "{thread}");
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_named_and_leaves_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
        store.thread_summaries().keep("ann", "t", "kept", 10).await.unwrap();
        fill_the_disk(&store).await;
        let error = store.thread_summaries().keep("ann", "u", &"x".repeat(100_000), 10).await.unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        free_disk(&store).await;
        assert_eq!(store.thread_summaries().get("ann", "t").await.unwrap().as_deref(), Some("kept"));
    }
}
