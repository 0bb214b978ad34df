//! Workspaces that replicas share: which files each has, and which replica works in it. Their contents are in object storage.

use std::collections::HashSet;
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::{Store, StoreError};

/// How long a replica has a workspace without saying again that it works in it.
pub const WORKSPACE_LEASE: Duration = Duration::from_secs(30);

/// The right to work in a workspace, for one replica until it expires by the database's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceLock {
    pub name: String,
    /// The call that has it.
    pub holder: String,
    /// Grows each time the lock is taken: writes of a call that lost it are refused.
    pub fence: i64,
    /// The version of the files: another one each time they are stored, and empty before.
    pub version: String,
    /// As they were [saved](WorkspaceStore::save).
    pub files: String,
}

/// Workspaces that replicas share, with their locks: the table `workspaces`.
#[derive(Debug, Clone)]
pub struct WorkspaceStore(pub(super) Store);

impl WorkspaceStore {
    /// Takes a workspace for `holder`, a text that only this call has. `None`: another call has it.
    pub async fn lock(&self, name: &str, holder: &str) -> Result<Option<WorkspaceLock>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "INSERT INTO workspaces AS w (name, version, files, holder, fence, held_until, last_used)
             VALUES ($1, '', '{{}}', $2, 1, {now} + $3, {now})
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, fence = w.fence + 1,
                 held_until = excluded.held_until, last_used = excluded.last_used
             WHERE w.holder IS NULL OR w.held_until <= {now}
             RETURNING fence, version, files"
        );
        let taken: Option<(i64, String, String)> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(name)
            .bind(holder)
            .bind(micros(WORKSPACE_LEASE))
            .fetch_optional(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        let (name, holder) = (name.to_owned(), holder.to_owned());
        Ok(taken.map(|(fence, version, files)| WorkspaceLock { name, holder, fence, version, files }))
    }

    /// Holds a workspace for longer, and is a use of it. False: it was lost.
    pub async fn renew(&self, lock: &WorkspaceLock) -> Result<bool, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE workspaces SET held_until = {now} + $4, last_used = {now}
             WHERE name = $1 AND fence = $2 AND holder = $3"
        );
        let renewed = sqlx::query(AssertSqlSafe(sql))
            .bind(&lock.name)
            .bind(lock.fence)
            .bind(&lock.holder)
            .bind(micros(WORKSPACE_LEASE))
            .execute(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(renewed.rows_affected() > 0)
    }

    /// Stores which files a workspace has, as this version, and gives it back. False, and nothing is stored: it was lost.
    ///
    /// # Errors
    /// [`StoreError`]; it may have been stored.
    pub async fn save(&self, lock: &WorkspaceLock, version: &str, files: &str) -> Result<bool, StoreError> {
        let stored = sqlx::query(
            "UPDATE workspaces SET files = $5, version = $4, holder = NULL
             WHERE name = $1 AND fence = $2 AND holder = $3",
        )
        .bind(&lock.name)
        .bind(lock.fence)
        .bind(&lock.holder)
        .bind(version)
        .bind(files)
        .execute(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        Ok(stored.rows_affected() > 0)
    }

    /// Gives a workspace back as it was.
    ///
    /// # Errors
    /// [`StoreError`]; it expires by itself then.
    pub async fn unlock(&self, lock: &WorkspaceLock) -> Result<(), StoreError> {
        let unlocked =
            sqlx::query("UPDATE workspaces SET holder = NULL WHERE name = $1 AND fence = $2 AND holder = $3");
        let unlocked = unlocked.bind(&lock.name).bind(lock.fence).bind(&lock.holder).execute(&self.0.pool).await;
        unlocked.map(drop).map_err(|error| self.0.failed(error))
    }

    /// Removes a workspace, also from under a replica that works in it.
    pub async fn remove(&self, name: &str) -> Result<(), StoreError> {
        let removed = sqlx::query("DELETE FROM workspaces WHERE name = $1").bind(name).execute(&self.0.pool);
        removed.await.map(drop).map_err(|error| self.0.failed(error))
    }

    /// Removes the workspaces that no replica has used for `idle` and no call has, except `kept`.
    ///
    /// # Errors
    /// [`StoreError`]. Workspaces removed until then stay removed.
    pub async fn remove_idle(&self, idle: Duration, kept: &HashSet<String>) -> Result<(), StoreError> {
        let now = self.0.engine.now_expression();
        let is_idle = format!("last_used <= {now} - $1 AND (holder IS NULL OR held_until <= {now})");
        let sql = format!("SELECT name FROM workspaces WHERE {is_idle}");
        let names: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(micros(idle))
            .fetch_all(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        for name in names.iter().filter(|name| !kept.contains(*name)) {
            let sql = format!("DELETE FROM workspaces WHERE name = $2 AND {is_idle}");
            let removed = sqlx::query(AssertSqlSafe(sql)).bind(micros(idle)).bind(name).execute(&self.0.pool).await;
            removed.map_err(|error| self.0.failed(error))?;
        }
        Ok(())
    }

    /// The files of a workspace as they were stored last; `None` for one that is not there.
    pub async fn files(&self, name: &str) -> Result<Option<String>, StoreError> {
        let files = sqlx::query_scalar("SELECT files FROM workspaces WHERE name = $1").bind(name);
        files.fetch_optional(&self.0.pool).await.map_err(|error| self.0.failed(error))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{expire_workspace, test_store};

    #[tokio::test]
    async fn one_call_has_a_workspace_until_it_gives_it_back() {
        let store = test_store().await;
        let lock = store.workspaces().lock("w", "one").await.unwrap().unwrap();
        assert_eq!((lock.version.as_str(), lock.files.as_str()), ("", "{}"));
        assert_eq!(store.workspaces().lock("w", "other").await.unwrap(), None);
        assert!(store.workspaces().lock("another", "other").await.unwrap().is_some());
        assert!(store.workspaces().renew(&lock).await.unwrap());
        assert!(store.workspaces().save(&lock, "v1", "{\"a\":1}").await.unwrap());
        let next = store.workspaces().lock("w", "other").await.unwrap().unwrap();
        assert_eq!((next.version.as_str(), next.files.as_str()), ("v1", "{\"a\":1}"));
        store.workspaces().unlock(&next).await.unwrap();
        let next = store.workspaces().lock("w", "one").await.unwrap().unwrap();
        assert_eq!((next.version.as_str(), next.fence), ("v1", 3), "given back as it was");
    }

    #[tokio::test]
    async fn what_a_call_stores_that_lost_its_workspace_is_refused() {
        let store = test_store().await;
        let lost = store.workspaces().lock("w", "one").await.unwrap().unwrap();
        expire_workspace(&store, "w").await;
        let lock = store.workspaces().lock("w", "other").await.unwrap().unwrap();
        assert!(!store.workspaces().renew(&lost).await.unwrap());
        assert!(!store.workspaces().save(&lost, "v1", "{\"lost\":1}").await.unwrap());
        store.workspaces().unlock(&lost).await.unwrap();
        assert_eq!(store.workspaces().lock("w", "third").await.unwrap(), None, "the other still has it");
        assert!(store.workspaces().save(&lock, "v1", "{\"kept\":1}").await.unwrap());
        assert!(!store.workspaces().save(&lock, "v1", "{\"again\":1}").await.unwrap(), "it was given back");
        assert_eq!(store.workspaces().files("w").await.unwrap().as_deref(), Some("{\"kept\":1}"));
        // Removed from under its holder, also where another call begins anew.
        let lost = store.workspaces().lock("w", "one").await.unwrap().unwrap();
        store.workspaces().remove("w").await.unwrap();
        assert!(!store.workspaces().save(&lost, "v1", "{}").await.unwrap());
        assert_eq!(store.workspaces().files("w").await.unwrap(), None);
        while store.workspaces().lock("w", "other").await.unwrap().unwrap().fence < lost.fence {
            expire_workspace(&store, "w").await;
        }
        assert!(!store.workspaces().save(&lost, "v1", "{}").await.unwrap());
        assert!(!store.workspaces().renew(&lost).await.unwrap());
    }

    #[tokio::test]
    async fn idle_workspaces_are_removed_and_others_stay() {
        let store = test_store().await;
        for name in ["idle", "kept", "used"] {
            let lock = store.workspaces().lock(name, "one").await.unwrap().unwrap();
            store.workspaces().unlock(&lock).await.unwrap();
        }
        let kept = HashSet::from(["kept".to_owned()]);
        store.workspaces().remove_idle(Duration::from_secs(3_600), &kept).await.unwrap();
        assert!(store.workspaces().files("idle").await.unwrap().is_some());
        let old = sqlx::query("UPDATE workspaces SET last_used = 0 WHERE name <> 'used'");
        old.execute(&store.pool).await.unwrap();
        store.workspaces().remove_idle(Duration::from_secs(3_600), &kept).await.unwrap();
        let found = async |name| store.workspaces().files(name).await.unwrap().is_some();
        assert_eq!((found("idle").await, found("kept").await, found("used").await), (false, true, true));
    }

    /// A call that works for longer than a workspace may be idle, and one whose replica was killed.
    #[tokio::test]
    async fn a_workspace_is_not_idle_while_a_call_has_it() {
        let store = test_store().await;
        let remove_idle = async || {
            store.workspaces().remove_idle(Duration::from_secs(3_600), &HashSet::new()).await.unwrap();
            store.workspaces().files("w").await.unwrap().is_none()
        };
        let make_old = async || {
            sqlx::query("UPDATE workspaces SET last_used = 0").execute(&store.pool).await.unwrap();
        };
        let lock = store.workspaces().lock("w", "one").await.unwrap().unwrap();
        make_old().await;
        assert!(!remove_idle().await, "a call has it");
        assert!(store.workspaces().renew(&lock).await.unwrap());
        assert!(store.workspaces().save(&lock, "v1", "{}").await.unwrap());
        assert!(!remove_idle().await, "a call had it just now");
        store.workspaces().lock("w", "other").await.unwrap().unwrap();
        make_old().await;
        expire_workspace(&store, "w").await;
        assert!(remove_idle().await, "its call is gone");
    }
}
