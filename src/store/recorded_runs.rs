//! Runs that were recorded, sealed by the caller of these functions. All moments go by the clock that the processes of the store share.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::replicas::micros;
use super::text::storable;
use super::{AtStore, Store, StoreError, retried};

/// The only one who reads a recorded run.
#[derive(Debug, Clone, Copy)]
pub struct RecordedRunOwner<'a> {
    pub tenant: &'a str,
    pub caller_key: &'a str,
}

/// A run to be kept.
#[derive(Debug, Clone, Copy)]
pub struct NewRecordedRun<'a> {
    pub id: &'a str,
    pub owner: RecordedRunOwner<'a>,
    pub kind: &'a str,
    pub name: &'a str,
    /// Before it was sealed.
    pub bytes: usize,
    pub sealed: &'a str,
    pub lifetime: Duration,
}

/// A run in a list, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRecordedRun {
    pub id: String,
    pub kind: String,
    pub name: String,
    pub bytes: u64,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// Id, kind, name, bytes, created, expires.
type ListedRow = (String, String, String, i64, i64, i64);

/// Runs that were recorded: the table `recorded_runs`.
#[derive(Debug, Clone)]
pub struct RecordedRunStore(pub(super) Store);

impl RecordedRunStore {
    /// Keeps a run, in place of one with its id. Of more than `max_runs` of the caller the oldest go.
    /// Errors: [`StoreError`]; it may have been kept.
    pub async fn keep(&self, new: NewRecordedRun<'_>, max_runs: u32) -> Result<(), StoreError> {
        retried(|| self.try_keep(new, max_runs)).await
    }

    async fn try_keep(&self, new: NewRecordedRun<'_>, max_runs: u32) -> Result<(), StoreError> {
        let mut transaction = self.0.begin().await?;
        let now = self.0.engine.now_expression();
        let insert = format!(
            "INSERT INTO recorded_runs (id, tenant, caller_key, kind, name, bytes, sealed, created, expires)
             VALUES ($1, $2, $3, $4, $5, $6, $7, {now}, {now} + $8)
             ON CONFLICT (caller_key, id) DO UPDATE SET kind = excluded.kind, name = excluded.name, bytes = excluded.bytes,
                 sealed = excluded.sealed, created = excluded.created, expires = excluded.expires"
        );
        sqlx::query(AssertSqlSafe(insert))
            .bind(new.id)
            .bind(new.owner.tenant)
            .bind(new.owner.caller_key)
            .bind(new.kind)
            .bind(storable(new.name))
            .bind(i64::try_from(new.bytes).unwrap_or(i64::MAX))
            .bind(new.sealed)
            .bind(micros(new.lifetime))
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        let sql = "DELETE FROM recorded_runs WHERE caller_key = $1 AND id <> $2 AND id NOT IN
             (SELECT id FROM recorded_runs WHERE caller_key = $1 ORDER BY created DESC, id DESC LIMIT $3)";
        bound!(sqlx::query(sql), new.owner.caller_key, new.id, i64::from(max_runs))
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        transaction.commit().await.at(&self.0)
    }

    /// The sealed text of the run with that id, if it is the owner's and has not expired.
    pub async fn get(&self, id: &str, owner: RecordedRunOwner<'_>) -> Result<Option<String>, StoreError> {
        let sql = format!(
            "SELECT sealed FROM recorded_runs WHERE id = $1 AND tenant = $2 AND caller_key = $3 AND expires > {}",
            self.0.engine.now_expression()
        );
        bound!(sqlx::query_scalar(AssertSqlSafe(sql)), id, owner.tenant, owner.caller_key)
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)
    }

    /// All runs of a caller, the latest first.
    pub async fn of_caller(&self, owner: RecordedRunOwner<'_>) -> Result<Vec<ListedRecordedRun>, StoreError> {
        let sql = format!(
            "SELECT id, kind, name, bytes, created, expires FROM recorded_runs
             WHERE tenant = $1 AND caller_key = $2 AND expires > {} ORDER BY created DESC, id DESC",
            self.0.engine.now_expression()
        );
        let rows: Vec<ListedRow> = bound!(sqlx::query_as(AssertSqlSafe(sql)), owner.tenant, owner.caller_key)
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.into_iter().map(|row| self.listed(row)).collect()
    }

    fn listed(&self, (id, kind, name, bytes, created, expires): ListedRow) -> Result<ListedRecordedRun, StoreError> {
        let moment = |micros: i64| {
            let moment = Timestamp::from_microsecond(micros);
            moment.map_err(|_| self.0.damaged(format!("the recorded run {id} has a moment out of range")))
        };
        let (created, expires) = (moment(created)?, moment(expires)?);
        Ok(ListedRecordedRun { id, kind, name, bytes: u64::try_from(bytes).unwrap_or_default(), created, expires })
    }

    /// Removes expired runs.
    pub async fn forget_expired(&self) -> Result<(), StoreError> {
        let sql = format!("DELETE FROM recorded_runs WHERE expires <= {}", self.0.engine.now_expression());
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0.pool).await.at(&self.0)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;

    const ANN: RecordedRunOwner<'static> = RecordedRunOwner { tenant: "acme", caller_key: "acme\u{1f}ann" };
    const HOUR: Duration = Duration::from_secs(3_600);

    async fn keep(store: &Store, id: &str, owner: RecordedRunOwner<'_>, sealed: &str, lifetime: Duration) {
        let new = NewRecordedRun { id, owner, kind: "agent", name: "main", bytes: 7, sealed, lifetime };
        store.recorded_runs().keep(new, 2).await.unwrap();
    }

    #[tokio::test]
    async fn a_run_is_found_by_its_owner_alone_until_it_expires() {
        let store = test_store().await;
        let runs = store.recorded_runs();
        keep(&store, "one", ANN, "first", HOUR).await;
        keep(&store, "one", ANN, "again", HOUR).await;
        keep(&store, "over", ANN, "x", Duration::ZERO).await;
        assert_eq!(runs.get("one", ANN).await.unwrap().as_deref(), Some("again"));
        for other in
            [RecordedRunOwner { tenant: "other", ..ANN }, RecordedRunOwner { caller_key: "acme\u{1f}bob", ..ANN }]
        {
            assert_eq!(runs.get("one", other).await.unwrap(), None, "{other:?}");
            assert_eq!(runs.of_caller(other).await.unwrap(), []);
        }
        assert_eq!(runs.get("over", ANN).await.unwrap(), None);
        let listed = runs.of_caller(ANN).await.unwrap();
        assert_eq!(listed.iter().map(|run| (&*run.id, run.bytes)).collect::<Vec<_>>(), [("one", 7)]);
        runs.forget_expired().await.unwrap();
        let left: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM recorded_runs").fetch_one(&store.pool).await.unwrap();
        assert_eq!(left, 1);
    }

    #[tokio::test]
    async fn the_oldest_runs_of_a_caller_go() {
        let store = test_store().await;
        let bob = RecordedRunOwner { caller_key: "acme\u{1f}bob", ..ANN };
        for (id, owner) in [("b", bob), ("1", ANN), ("2", ANN), ("3", ANN)] {
            keep(&store, id, owner, "x", HOUR).await;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let ids = async |owner| {
            let listed = store.recorded_runs().of_caller(owner).await.unwrap();
            listed.into_iter().map(|run| run.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(ANN).await, ["3", "2"]);
        assert_eq!(ids(bob).await, ["b"]);
    }
}
