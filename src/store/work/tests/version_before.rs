//! A replica of the version before takes workspaces by the columns of `workspaces` only, while replicas are upgraded.

use sqlx::AssertSqlSafe;

use super::*;

/// The right of a replica of the version before, by the statements of that version.
struct Before<'a>(&'a Store);

impl Before<'_> {
    async fn take(&self) -> bool {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "INSERT INTO workspaces AS w (name, version, files, holder, fence, held_until, last_used)
             VALUES ('a', '', '{{}}', 'before', 1, {now} + 30000000, {now})
             ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, fence = w.fence + 1,
                 held_until = excluded.held_until, last_used = excluded.last_used
             WHERE w.holder IS NULL OR w.held_until <= {now}"
        );
        self.changes(sql).await
    }

    async fn save(&self) -> bool {
        let sql = "UPDATE workspaces SET files = 'of the version before', version = 'v', holder = NULL
                   WHERE name = 'a' AND holder = 'before'";
        self.changes(sql.to_owned()).await
    }

    async fn changes(&self, sql: String) -> bool {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0.pool).await.unwrap().rows_affected() > 0
    }
}

#[tokio::test]
async fn two_versions_never_both_have_a_workspace() {
    let store = new_store().await;
    let (before, workspaces) = (Before(&store), store.workspaces());
    let lock = workspaces.lock("a", "one").await.unwrap().unwrap();
    assert!(!before.take().await, "this version has it");
    assert_eq!(store.work().renew(&lock.lease).await.unwrap(), LockState::Held);
    assert!(!before.take().await, "this version has it for longer");
    assert!(workspaces.save(&lock, "1", "of this version").await.unwrap());
    assert!(before.take().await);
    assert_eq!(workspaces.lock("a", "one").await.unwrap(), None, "the version before has it");
    assert!(before.save().await);
    let lock = workspaces.lock("a", "one").await.unwrap().unwrap();
    assert_eq!((lock.version.as_str(), lock.files.as_str()), ("v", "of the version before"));
}

#[tokio::test]
async fn a_holder_of_either_version_that_lost_a_workspace_to_the_other_one_stores_nothing() {
    let store = new_store().await;
    let (before, workspaces) = (Before(&store), store.workspaces());
    let lost = workspaces.lock("a", "one").await.unwrap().unwrap();
    end_leases(&store).await;
    assert!(before.take().await);
    assert_eq!(store.work().renew(&lost.lease).await.unwrap(), LockState::Lost);
    assert!(!workspaces.save(&lost, "1", "late").await.unwrap());
    workspaces.unlock(&lost).await.unwrap();
    assert_eq!(workspaces.lock("a", "other").await.unwrap(), None, "the version before still has it");
    assert_eq!(workspaces.files("a").await.unwrap().as_deref(), Some("{}"));

    end_leases(&store).await;
    let lock = workspaces.lock("a", "other").await.unwrap().unwrap();
    assert!(!before.save().await, "this version has it");
    assert!(workspaces.save(&lock, "2", "of this version").await.unwrap());
    assert_eq!(workspaces.files("a").await.unwrap().as_deref(), Some("of this version"));
}

/// It has no replica in its row, so that its lease is all that counts.
#[tokio::test]
async fn a_workspace_of_a_lost_replica_of_the_version_before_is_free_when_its_lease_ends() {
    let store = new_store().await;
    let lock = store.workspaces().lock("a", "one").await.unwrap().unwrap();
    store.workspaces().unlock(&lock).await.unwrap();
    assert!(Before(&store).take().await);
    store.replicas().remove("one").await.unwrap();
    assert_eq!(store.workspaces().lock("a", "other").await.unwrap(), None);
    end_leases(&store).await;
    assert!(store.workspaces().lock("a", "other").await.unwrap().is_some());
}

/// The next version may not write the columns: its holder is in `work` only.
#[tokio::test]
async fn a_workspace_that_the_next_version_has_is_neither_taken_nor_removed() {
    let store = new_store().await;
    let lock = store.workspaces().lock("a", "one").await.unwrap().unwrap();
    store.change_rows("UPDATE workspaces SET holder = NULL, held_until = 0, last_used = 0").await;
    assert_eq!(store.workspaces().lock("a", "other").await.unwrap(), None);
    store.change_rows("UPDATE workspaces SET last_used = 0").await;
    store.workspaces().remove_idle(HOUR, &std::collections::HashSet::new()).await.unwrap();
    assert!(store.workspaces().files("a").await.unwrap().is_some());
    assert_eq!(store.work().renew(&lock.lease).await.unwrap(), LockState::Lost, "this version needs both rows");
}
