//! A replica of the version before takes conversations by the columns of `conversations` only, while replicas are upgraded.

use sqlx::AssertSqlSafe;

use super::*;
use crate::{ConversationLock, TurnMessage};

/// A replica of the version before, by the statements of that version. Its lock is the one with the fence of the row.
struct Before<'a>(&'a Store);

impl Before<'_> {
    async fn lock(&self) -> Option<i64> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE conversations SET holder = 'before', fence = fence + 1, held_until = {now} + 15000000
             WHERE id = 'a' AND (holder IS NULL OR held_until <= {now}) RETURNING fence"
        );
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_optional(&self.0.pool).await.unwrap()
    }

    async fn renew(&self, fence: i64) -> LockState {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE conversations SET held_until = {now} + 15000000 WHERE id = 'a' AND fence = {fence} AND holder IS NOT NULL
             RETURNING stop_fence"
        );
        let renewed: Option<i64> = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_optional(&self.0.pool).await.unwrap();
        match renewed {
            None => LockState::Lost,
            Some(stop_fence) if fence == stop_fence => LockState::AskedToStop,
            Some(_) => LockState::Held,
        }
    }

    async fn stop_run(&self) {
        self.0.change_rows("UPDATE conversations SET stop_fence = fence WHERE id = 'a' AND holder IS NOT NULL").await;
    }

    async fn add_turn(&self, fence: i64) -> bool {
        let sql = format!(
            "INSERT INTO turn_journal (run, turn, message)
             SELECT 'r', 1, '{{}}' FROM conversations WHERE id = 'a' AND fence = {fence} AND holder = 'before'"
        );
        self.changes(sql).await
    }

    async fn unlock(&self, fence: i64) -> bool {
        self.changes(format!("UPDATE conversations SET holder = NULL WHERE id = 'a' AND fence = {fence}")).await
    }

    async fn changes(&self, sql: String) -> bool {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0.pool).await.unwrap().rows_affected() > 0
    }
}

async fn lock(store: &Store, replica: &str) -> Option<ConversationLock> {
    store.conversations().lock("a", Some(replica)).await.unwrap()
}

async fn adds_turn(store: &Store, lock: &ConversationLock) -> bool {
    let turn = TurnMessage { turn: 2, message: "{}".into() };
    store.conversation_runs().add_turn(lock, "r", &turn).await.unwrap()
}

#[tokio::test]
async fn two_versions_never_both_run_a_conversation() {
    let store = new_store().await;
    let before = Before(&store);
    let ours = lock(&store, "one").await.unwrap();
    assert_eq!(before.lock().await, None, "this version has it");
    assert_eq!(store.work().renew(&ours.lease).await.unwrap(), LockState::Held);
    assert_eq!(before.lock().await, None, "this version has it for longer");
    assert!(adds_turn(&store, &ours).await);
    store.conversations().unlock(&ours).await.unwrap();
    let theirs = before.lock().await.unwrap();
    assert_eq!(lock(&store, "one").await, None, "the version before has it");
    assert_eq!(before.renew(theirs).await, LockState::Held);
    assert!(before.add_turn(theirs).await);
    assert!(!store.conversations().delete("a").await.unwrap(), "the version before has it");
    assert!(before.unlock(theirs).await);
    assert!(lock(&store, "one").await.is_some());
}

#[tokio::test]
async fn a_run_of_either_version_that_lost_its_conversation_to_the_other_one_writes_nothing() {
    let store = new_store().await;
    let before = Before(&store);
    let lost = lock(&store, "one").await.unwrap();
    end_leases(&store).await;
    let theirs = before.lock().await.unwrap();
    assert_eq!(store.work().renew(&lost.lease).await.unwrap(), LockState::Lost);
    assert!(!adds_turn(&store, &lost).await);
    store.conversations().unlock(&lost).await.unwrap();
    assert_eq!(lock(&store, "other").await, None, "the version before still has it");

    end_leases(&store).await;
    let ours = lock(&store, "other").await.unwrap();
    assert_eq!(before.renew(theirs).await, LockState::Lost);
    assert!(!before.add_turn(theirs).await);
    assert!(!before.unlock(theirs).await);
    assert!(adds_turn(&store, &ours).await);
}

#[tokio::test]
async fn each_version_asks_runs_of_the_other_one_to_stop() {
    let store = new_store().await;
    let before = Before(&store);
    let ours = lock(&store, "one").await.unwrap();
    before.stop_run().await;
    assert_eq!(store.work().renew(&ours.lease).await.unwrap(), LockState::AskedToStop);
    store.conversations().unlock(&ours).await.unwrap();
    let theirs = before.lock().await.unwrap();
    assert_eq!(before.renew(theirs).await, LockState::Held, "it was not asked");
    store.conversations().stop_run("a").await.unwrap();
    assert_eq!(before.renew(theirs).await, LockState::AskedToStop);
}

/// The next version may not write the columns: its holder is in `work` only.
#[tokio::test]
async fn a_conversation_that_the_next_version_runs_is_neither_taken_nor_changed_nor_removed() {
    let store = new_store().await;
    let theirs = lock(&store, "one").await.unwrap();
    store.change_rows("UPDATE conversations SET holder = NULL, held_until = 0").await;
    assert_eq!(lock(&store, "other").await, None);
    assert!(!store.conversations().delete("a").await.unwrap());
    assert_eq!(store.conversations().oldest("ann", &conversation("a", "ann").labels).await.unwrap(), None);
    let reset = crate::ConversationChange { session_id: Some(None), ..crate::ConversationChange::default() };
    assert!(!store.conversations().change("a", &reset, store.now()).await.unwrap());
    assert!(!adds_turn(&store, &theirs).await, "this version needs both rows");
}
