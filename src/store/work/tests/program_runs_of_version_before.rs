//! A process of the version before takes runs of programs by the columns of `program_runs` only, while replicas are upgraded.

use sqlx::AssertSqlSafe;

use super::*;
use crate::{ProgramRunLease, ProgramRunOwner};

const ANN: ProgramRunOwner<'static> = ProgramRunOwner { tenant: "acme", caller_key: "ann", endpoint: "all" };

/// The replica `other` of the version before, by the statements of that version.
struct Before<'a>(&'a Store);

impl Before<'_> {
    /// The fence, if it takes the run.
    async fn take(&self) -> Option<i64> {
        let sql = format!(
            "UPDATE program_runs SET state = 'running', runner = 'other', fence = fence + 1
             WHERE id = 'a' AND (state = 'stopped' OR (state = 'running' AND (runner = 'other' OR {})))
             RETURNING fence",
            self.0.engine.is_lost("program_runs.runner", ("'other'", "12000000"))
        );
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_optional(&self.0.pool).await.unwrap()
    }

    async fn add_part(&self, fence: i64, number: i64) -> bool {
        let sql = format!(
            "INSERT INTO program_run_parts (run, number, sealed) SELECT 'a', {number}, 'of the version before'
             FROM program_runs WHERE id = 'a' AND fence = {fence} AND state = 'running'"
        );
        self.changes(sql).await
    }

    async fn stop(&self, fence: i64) -> bool {
        let sql = format!(
            "UPDATE program_runs SET state = 'stopped' WHERE id = 'a' AND fence = {fence} AND state = 'running'"
        );
        self.changes(sql).await
    }

    async fn changes(&self, sql: String) -> bool {
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0.pool).await.unwrap().rows_affected() > 0
    }
}

async fn resume(store: &Store, replica: &str) -> Option<ProgramRunLease> {
    store.program_runs().take("a", ANN, Some(replica)).await.unwrap()
}

#[tokio::test]
async fn two_versions_never_both_have_a_run_of_a_program() {
    let store = new_store().await;
    let (before, runs) = (Before(&store), store.program_runs());
    let ours = resume(&store, "one").await.unwrap();
    assert_eq!(before.take().await, None, "this version has it");
    assert!(runs.add_part(&ours, 0, "of this version").await.unwrap());
    assert!(runs.stop(&ours, None).await.unwrap());
    let fence = before.take().await.unwrap();
    assert_eq!(resume(&store, "one").await, None, "the version before has it");
    assert!(runs.is_held("a", Some("one")).await.unwrap());
    assert!(!runs.add_part(&ours, 1, "late").await.unwrap());
    assert!(before.add_part(fence, 1).await && before.stop(fence).await);
    let ours = resume(&store, "one").await.unwrap();
    assert!(!before.add_part(fence, 2).await, "this version has it");
    assert!(runs.add_part(&ours, 2, "of this version").await.unwrap());
}

#[tokio::test]
async fn a_process_of_either_version_that_lost_a_run_of_a_program_to_the_other_one_writes_nothing() {
    let store = new_store().await;
    let (before, runs) = (Before(&store), store.program_runs());
    let lost = resume(&store, "one").await.unwrap();
    store.replicas().remove("one").await.unwrap();
    let fence = before.take().await.unwrap();
    assert!(!runs.add_part(&lost, 0, "late").await.unwrap());
    assert!(!runs.stop(&lost, None).await.unwrap());
    runs.give_up(&lost, "late").await.unwrap();
    runs.forget(&lost).await.unwrap();
    assert!(before.add_part(fence, 0).await, "it still has it");

    end_leases(&store).await;
    assert_eq!(resume(&store, "third").await, None, "the replica of the version before lives");
    store.replicas().remove("other").await.unwrap();
    let ours = resume(&store, "third").await.unwrap();
    assert!(!before.add_part(fence, 1).await && !before.stop(fence).await);
    assert!(runs.add_part(&ours, 1, "of this version").await.unwrap());
}
