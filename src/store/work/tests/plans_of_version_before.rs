//! A process of the version before takes plans by the columns of `plans` only, while replicas are upgraded.

use sqlx::AssertSqlSafe;

use super::*;
use crate::{PlanLease, StoredPlan};

/// A process of the version before, by the statements of that version on PostgreSQL.
struct Before<'a>(&'a Store);

impl Before<'_> {
    /// Whether it finds the plan interrupted, and goes on with it.
    async fn takes(&self) -> bool {
        let now = format!("{} / 1000", self.0.engine.now_expression());
        let sql = format!("SELECT {now} - seen FROM plans WHERE id = 'a'");
        let unseen_for: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.0.pool).await.unwrap();
        let replace =
            format!("UPDATE plans SET status = 'running', wish = '', holder = 'before', seen = {now} WHERE id = 'a'");
        unseen_for >= 15_000 && self.changes(replace).await
    }

    async fn save(&self) -> bool {
        let save =
            "UPDATE plans SET state = '{\"before\":1}' WHERE id = 'a' AND holder = 'before' AND status = 'running'";
        self.changes(save.to_owned()).await
    }

    async fn pause(&self) -> bool {
        let save = "UPDATE plans SET status = 'paused' WHERE id = 'a' AND holder = 'before' AND status = 'running'";
        self.changes(save.to_owned()).await
    }

    /// The wish of the caller that its run learns.
    async fn beat(&self) -> Option<String> {
        let now = format!("{} / 1000", self.0.engine.now_expression());
        let beat = format!("UPDATE plans SET seen = {now} WHERE id = 'a' AND holder = 'before' RETURNING wish");
        sqlx::query_scalar(AssertSqlSafe(beat)).fetch_optional(&self.0.pool).await.unwrap()
    }

    async fn changes(&self, sql: String) -> bool {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0.pool).await.unwrap().rows_affected() > 0
    }
}

async fn found(store: &Store) -> StoredPlan {
    store.plans().get("ann", "a").await.unwrap().unwrap()
}

async fn resume(store: &Store) -> Option<PlanLease> {
    store.plans().resume(&found(store).await, "{}", Some("one"), store.now()).await.unwrap()
}

async fn saves(store: &Store, lease: &PlanLease, status: &str) -> bool {
    store.plans().save(lease, (status, "{}"), &[], store.now()).await.unwrap().is_some()
}

#[tokio::test]
async fn two_versions_never_both_run_a_plan() {
    let store = new_store().await;
    let before = Before(&store);
    let ours = resume(&store).await.unwrap();
    assert!(!before.takes().await, "this version has it");
    assert!(saves(&store, &ours, "running").await);
    assert!(!before.takes().await, "this version has it for longer");
    store.plans().give_up(&ours).await.unwrap();
    assert!(before.takes().await);
    assert!(!found(&store).await.is_interrupted, "the version before runs it");
    assert_eq!(resume(&store).await, None, "the version before runs it");
    assert!(!saves(&store, &ours, "running").await);
    assert!(before.save().await && before.pause().await);
    assert!(resume(&store).await.is_some());
}

#[tokio::test]
async fn a_run_of_either_version_that_lost_its_plan_to_the_other_one_writes_nothing() {
    let store = new_store().await;
    let before = Before(&store);
    let lost = resume(&store).await.unwrap();
    end_leases(&store).await;
    assert!(before.takes().await);
    assert!(!saves(&store, &lost, "running").await && !saves(&store, &lost, "finished").await);
    store.plans().end(&lost, "cancelled", store.now()).await.unwrap();
    store.plans().give_up(&lost).await.unwrap();
    assert!(before.save().await, "it still runs it");

    end_leases(&store).await;
    let ours = resume(&store).await.unwrap();
    assert!(!before.save().await && !before.pause().await);
    assert_eq!(before.beat().await, None);
    assert!(saves(&store, &ours, "finished").await);
}

#[tokio::test]
async fn each_version_tells_runs_of_the_other_one_to_end() {
    let store = new_store().await;
    let before = Before(&store);
    let ours = resume(&store).await.unwrap();
    // As the version before writes it.
    store.change_rows("UPDATE plans SET wish = 'cancel' WHERE id = 'a' AND status = 'running'").await;
    assert_eq!(store.work().renew(&ours.lease).await.unwrap(), LockState::AskedToStop);
    store.plans().give_up(&ours).await.unwrap();
    assert!(before.takes().await);
    assert_eq!(before.beat().await.as_deref(), Some(""), "it was not asked");
    assert!(store.plans().set_wish("a", crate::PlanWish::Cancel).await.unwrap());
    assert_eq!(before.beat().await.as_deref(), Some("cancel"));
}
