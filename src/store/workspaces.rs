//! Workspaces that replicas share: which files each has. Their contents are in object storage, and a call that works in one has
//! it by a lease.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use tokio::time::Instant;

use super::replicas::micros;
use super::work::{WORKSPACE, WorkLease};
use super::{AtStore, Store, StoreError};

/// The right to work in a workspace, for one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceLock {
    pub(super) lease: WorkLease,
    /// The version of the files: another one each time they are stored, and empty before.
    pub version: String,
    /// As they were [saved](WorkspaceStore::save).
    pub files: String,
}

impl WorkspaceLock {
    /// Of the workspace.
    pub fn name(&self) -> &str {
        self.lease.id()
    }
}

/// Workspaces that replicas share: the table `workspaces`. Their holders are in `work`.
#[derive(Debug, Clone)]
pub struct WorkspaceStore(pub(super) Store);

impl WorkspaceStore {
    /// Takes a workspace for a call at `replica`. `None`: another call has it.
    pub async fn lock(&self, name: &str, replica: &str) -> Result<Option<WorkspaceLock>, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let sql = format!(
            "INSERT INTO workspaces (name, version, files, fence, held_until, last_used)
             VALUES ($1, '', '{{}}', 0, 0, {}) ON CONFLICT (name) DO NOTHING",
            self.0.engine.now_expression()
        );
        sqlx::query(AssertSqlSafe(sql)).bind(name).execute(&mut *transaction).await.at(&self.0)?;
        let Some(lease) = work.take_within(&mut transaction, (WORKSPACE, name), Some(replica)).await? else {
            work.end(transaction, false).await?;
            return Ok(None);
        };
        let read = sqlx::query_as("SELECT version, files FROM workspaces WHERE name = $1").bind(name);
        let (version, files): (String, String) = read.fetch_one(&mut *transaction).await.at(&self.0)?;
        work.end(transaction, true).await?;
        Ok(Some(WorkspaceLock { lease, version, files }))
    }

    /// Holds a workspace for longer, again and again. Each time is a use of it. It goes on after the workspace counts as lost, since
    /// only a call that has lost it has its changes refused.
    pub async fn keep_renewing(&self, lock: &WorkspaceLock) -> Infallible {
        loop {
            self.0.work().keep_renewing(&lock.lease, Instant::now()).await;
        }
    }

    /// Stores which files a workspace has, as this version, and gives it back. False, and nothing is stored: it was lost.
    /// Errors: [`StoreError`]; it may have been stored.
    pub async fn save(&self, lock: &WorkspaceLock, version: &str, files: &str) -> Result<bool, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let is_held = work.release_within(&mut transaction, &lock.lease).await?;
        if is_held {
            let saved = sqlx::query("UPDATE workspaces SET version = $2, files = $3 WHERE name = $1");
            let saved = saved.bind(lock.name()).bind(version).bind(files).execute(&mut *transaction).await;
            saved.at(&self.0)?;
        }
        work.end(transaction, is_held).await?;
        Ok(is_held)
    }

    /// Gives a workspace back as it was, unless it was lost.
    /// Errors: [`StoreError`]; it expires by itself then.
    pub async fn unlock(&self, lock: &WorkspaceLock) -> Result<(), StoreError> {
        self.0.work().release(&lock.lease).await.map(drop)
    }

    /// Removes a workspace, also from under a replica that works in it.
    pub async fn remove(&self, name: &str) -> Result<(), StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        sqlx::query("DELETE FROM workspaces WHERE name = $1").bind(name).execute(&mut *transaction).await.at(&self.0)?;
        work.remove_within(&mut transaction, WORKSPACE, name).await?;
        work.end(transaction, true).await
    }

    /// Removes the workspaces that no replica has used for `idle` and no call has, except `kept`.
    /// Errors: [`StoreError`]. Workspaces removed until then stay removed.
    pub async fn remove_idle(&self, idle: Duration, kept: &HashSet<String>) -> Result<(), StoreError> {
        let (now, is_free) = (self.0.engine.now_expression(), WORKSPACE.is_free(self.0.engine, "workspaces"));
        let is_idle = format!("last_used <= {now} - $1 AND {is_free}");
        let sql = format!("SELECT name FROM workspaces WHERE {is_idle}");
        let names: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(sql)).bind(micros(idle)).fetch_all(&self.0.pool).await.at(&self.0)?;
        for name in names.iter().filter(|name| !kept.contains(*name)) {
            let sql = format!("DELETE FROM workspaces WHERE name = $2 AND {is_idle}");
            sqlx::query(AssertSqlSafe(sql)).bind(micros(idle)).bind(name).execute(&self.0.pool).await.at(&self.0)?;
        }
        Ok(())
    }

    /// The files of a workspace as they were stored last; `None` for one that is not there.
    pub async fn files(&self, name: &str) -> Result<Option<String>, StoreError> {
        let files = sqlx::query_scalar("SELECT files FROM workspaces WHERE name = $1").bind(name);
        files.fetch_optional(&self.0.pool).await.at(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockState;
    use crate::test_support::{beat, expire_workspace, test_store};

    /// With the replicas of these tests.
    async fn shared_store() -> Store {
        let store = test_store().await;
        for replica in ["one", "other", "third"] {
            beat(&store, replica).await;
        }
        store
    }

    async fn renews(store: &Store, lock: &WorkspaceLock) -> bool {
        store.work().renew(&lock.lease).await.unwrap() == LockState::Held
    }

    #[tokio::test]
    async fn one_call_has_a_workspace_until_it_gives_it_back() {
        let store = shared_store().await;
        let lock = store.workspaces().lock("w", "one").await.unwrap().unwrap();
        assert_eq!((lock.version.as_str(), lock.files.as_str()), ("", "{}"));
        assert_eq!(store.workspaces().lock("w", "other").await.unwrap(), None);
        assert!(store.workspaces().lock("another", "other").await.unwrap().is_some());
        assert!(renews(&store, &lock).await);
        assert!(store.workspaces().save(&lock, "v1", "{\"a\":1}").await.unwrap());
        let next = store.workspaces().lock("w", "other").await.unwrap().unwrap();
        assert_eq!((next.version.as_str(), next.files.as_str()), ("v1", "{\"a\":1}"));
        store.workspaces().unlock(&next).await.unwrap();
        let next = store.workspaces().lock("w", "one").await.unwrap().unwrap();
        assert_eq!(next.version, "v1", "given back as it was");
    }

    #[tokio::test]
    async fn what_a_call_stores_that_lost_its_workspace_is_refused() {
        let store = shared_store().await;
        let lost = store.workspaces().lock("w", "one").await.unwrap().unwrap();
        expire_workspace(&store, "w").await;
        let lock = store.workspaces().lock("w", "other").await.unwrap().unwrap();
        assert!(!renews(&store, &lost).await);
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
        assert!(store.workspaces().lock("w", "other").await.unwrap().is_some());
        assert!(!store.workspaces().save(&lost, "v1", "{}").await.unwrap());
        assert!(!renews(&store, &lost).await);
    }

    #[tokio::test]
    async fn idle_workspaces_are_removed_and_others_stay() {
        let store = shared_store().await;
        for name in ["idle", "kept", "used"] {
            let lock = store.workspaces().lock(name, "one").await.unwrap().unwrap();
            store.workspaces().unlock(&lock).await.unwrap();
        }
        let kept = HashSet::from(["kept".to_owned()]);
        store.workspaces().remove_idle(Duration::from_secs(3_600), &kept).await.unwrap();
        assert!(store.workspaces().files("idle").await.unwrap().is_some());
        sqlx::query("UPDATE workspaces SET last_used = 0 WHERE name <> 'used'").execute(&store.pool).await.unwrap();
        store.workspaces().remove_idle(Duration::from_secs(3_600), &kept).await.unwrap();
        let found = async |name| store.workspaces().files(name).await.unwrap().is_some();
        assert_eq!((found("idle").await, found("kept").await, found("used").await), (false, true, true));
    }

    /// A call that works for longer than a workspace may be idle, and one whose replica was killed.
    #[tokio::test]
    async fn a_workspace_is_not_idle_while_a_call_has_it() {
        let store = shared_store().await;
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
        assert!(renews(&store, &lock).await);
        assert!(store.workspaces().save(&lock, "v1", "{}").await.unwrap());
        assert!(!remove_idle().await, "a call had it just now");
        store.workspaces().lock("w", "other").await.unwrap().unwrap();
        make_old().await;
        expire_workspace(&store, "w").await;
        assert!(remove_idle().await, "its call is gone");
    }
}
