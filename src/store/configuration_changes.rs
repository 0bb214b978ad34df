//! Changes of the configuration that administrators propose, apply and undo: the table `configuration_changes`. Those that are applied
//! have a counter in `shared_versions`, by which replicas learn of them.

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::{AtStore, Store, StoreError};

/// Maximum changes that are kept. A further one takes the place of the oldest that is not applied.
pub const MAX_CHANGES: usize = 1_000;

/// The counter of `shared_versions` that grows with each change that is applied or undone.
const VERSION: &str = "configuration";

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum ChangeState {
    Proposed,
    /// It is in force.
    Applied,
    /// It was in force, and is no longer.
    Undone,
}

/// A change that is about to be stored.
#[derive(Debug, Clone)]
pub struct NewChange {
    pub id: String,
    /// A JSON merge patch, without credentials.
    pub patch: String,
    pub comment: String,
    pub proposed_by: String,
    /// A JSON list: everybody who may have proposed it.
    pub persons: String,
}

/// A change as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredChange {
    pub id: String,
    pub patch: String,
    pub comment: String,
    pub state: ChangeState,
    pub proposed_by: String,
    pub persons: String,
    /// Who applied or undid it.
    pub decided_by: Option<String>,
    pub proposed: Timestamp,
    pub changed: Timestamp,
}

/// In the order of [`COLUMNS`].
type Row = (String, String, String, String, String, String, String, i64, i64);

const COLUMNS: &str = "id, patch, comment, state, proposed_by, persons, decided_by, proposed, changed";

#[derive(Debug, Clone)]
pub struct ConfigurationChangeStore(pub(super) Store);

impl ConfigurationChangeStore {
    /// Keeps a change that is proposed.
    /// Errors: [`StoreError`].
    pub async fn propose(&self, new: &NewChange) -> Result<(), StoreError> {
        self.propose_within(new, MAX_CHANGES).await
    }

    async fn propose_within(&self, new: &NewChange, max: usize) -> Result<(), StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "INSERT INTO configuration_changes ({COLUMNS}, version)
             VALUES ($1, $2, $3, 'proposed', $4, $5, '', {now}, {now}, 0)"
        );
        let mut transaction = self.0.durable.begin_with(self.0.engine.begin_statement()).await.at(&self.0)?;
        sqlx::query(AssertSqlSafe(sql))
            .bind(&new.id)
            .bind(&new.patch)
            .bind(&new.comment)
            .bind(&new.proposed_by)
            .bind(&new.persons)
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        let over = "DELETE FROM configuration_changes WHERE id IN (
                        SELECT id FROM configuration_changes WHERE state <> 'applied'
                        ORDER BY proposed DESC, id LIMIT 1000000 OFFSET $1)";
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        sqlx::query(over).bind(max).execute(&mut *transaction).await.at(&self.0)?;
        transaction.commit().await.at(&self.0)
    }

    /// A number that grows with each change that is applied or undone, by any process.
    pub async fn version(&self) -> Result<i64, StoreError> {
        let version = sqlx::query_scalar("SELECT version FROM shared_versions WHERE subject = $1").bind(VERSION);
        let version: Option<i64> = version.fetch_optional(&self.0.pool).await.at(&self.0)?;
        Ok(version.unwrap_or(0))
    }

    /// The changes in force, in the order in which they were applied.
    pub async fn applied(&self) -> Result<Vec<StoredChange>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM configuration_changes WHERE state = 'applied' ORDER BY version, id");
        let rows: Vec<Row> = sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.into_iter().map(|row| self.stored(row)).collect()
    }

    /// Gives a change that has the state `from` another one; whether it had, and no change was applied or undone since `version`.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn settle(
        &self,
        id: &str,
        (from, to): (ChangeState, ChangeState),
        decided_by: &str,
        version: i64,
    ) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE configuration_changes SET state = $1, decided_by = $2, version = $3, changed = {}
             WHERE id = $4 AND state = $5",
            self.0.engine.now_expression()
        );
        let mut transaction = self.0.durable.begin_with(self.0.engine.begin_statement()).await.at(&self.0)?;
        // Others that settle a change wait here.
        self.0.count_change(&mut transaction, VERSION).await?;
        let counted = sqlx::query_scalar("SELECT version FROM shared_versions WHERE subject = $1").bind(VERSION);
        let counted: i64 = counted.fetch_one(&mut *transaction).await.at(&self.0)?;
        let changed = sqlx::query(AssertSqlSafe(sql))
            .bind(<&str>::from(to))
            .bind(decided_by)
            .bind(counted)
            .bind(id)
            .bind(<&str>::from(from))
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        if changed.rows_affected() == 0 || counted != version + 1 {
            transaction.rollback().await.at(&self.0)?;
            return Ok(false);
        }
        transaction.commit().await.at(&self.0)?;
        Ok(true)
    }

    /// The change with this id.
    pub async fn get(&self, id: &str) -> Result<Option<StoredChange>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM configuration_changes WHERE id = $1");
        let row = sqlx::query_as(AssertSqlSafe(sql)).bind(id).fetch_optional(&self.0.pool).await;
        let row: Option<Row> = row.at(&self.0)?;
        row.map(|row| self.stored(row)).transpose()
    }

    /// At most `max` changes, the latest first. `after`: when the last one of the page before was proposed, and its id.
    pub async fn list(&self, after: Option<(Timestamp, &str)>, max: usize) -> Result<Vec<StoredChange>, StoreError> {
        let (proposed, id) = after.map_or((i64::MAX, ""), |(moment, id)| (moment.as_microsecond(), id));
        let sql = format!(
            "SELECT {COLUMNS} FROM configuration_changes WHERE proposed < $1 OR (proposed = $1 AND id > $2)
             ORDER BY proposed DESC, id LIMIT $3"
        );
        let rows = sqlx::query_as(AssertSqlSafe(sql))
            .bind(proposed)
            .bind(id)
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .fetch_all(&self.0.pool)
            .await;
        let rows: Vec<Row> = rows.at(&self.0)?;
        rows.into_iter().map(|row| self.stored(row)).collect()
    }

    fn stored(&self, row: Row) -> Result<StoredChange, StoreError> {
        let (id, patch, comment, state, proposed_by, persons, decided_by, proposed, changed) = row;
        Ok(StoredChange {
            id,
            patch,
            comment,
            state: state.parse().unwrap_or(ChangeState::Undone),
            proposed_by,
            persons,
            decided_by: (!decided_by.is_empty()).then_some(decided_by),
            proposed: *self.0.moment(proposed)?,
            changed: *self.0.moment(changed)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;

    fn new(id: &str) -> NewChange {
        NewChange {
            id: id.to_owned(),
            patch: format!("{{\"limits\":{{\"max_queued\":{id}}}}}"),
            comment: "why".to_owned(),
            proposed_by: "ann".to_owned(),
            persons: "[\"ann\"]".to_owned(),
        }
    }

    const APPLY: (ChangeState, ChangeState) = (ChangeState::Proposed, ChangeState::Applied);
    const UNDO: (ChangeState, ChangeState) = (ChangeState::Applied, ChangeState::Undone);

    #[tokio::test]
    async fn changes_count_in_the_order_in_which_they_were_applied_until_they_are_undone() {
        let store = test_store().await;
        let changes = store.configuration_changes();
        for id in ["1", "2", "3"] {
            changes.propose(&new(id)).await.unwrap();
        }
        let in_force =
            async || changes.applied().await.unwrap().into_iter().map(|change| change.id).collect::<Vec<_>>();
        assert_eq!((changes.version().await.unwrap(), in_force().await), (0, Vec::new()));
        assert!(changes.settle("2", APPLY, "bob", 0).await.unwrap());
        assert!(!changes.settle("1", APPLY, "bob", 0).await.unwrap(), "another one was applied meanwhile");
        assert!(!changes.settle("2", APPLY, "bob", 1).await.unwrap(), "it is applied");
        assert_eq!(changes.version().await.unwrap(), 1);
        assert!(changes.settle("1", APPLY, "cleo", 1).await.unwrap());
        assert_eq!(in_force().await, ["2", "1"]);
        assert!(changes.settle("2", UNDO, "bob", 2).await.unwrap());
        assert_eq!((changes.version().await.unwrap(), in_force().await), (3, vec!["1".to_owned()]));
        let undone = changes.get("2").await.unwrap().unwrap();
        assert_eq!((undone.state, undone.decided_by.as_deref()), (ChangeState::Undone, Some("bob")));
        assert_eq!(changes.get("4").await.unwrap(), None);
    }

    #[tokio::test]
    async fn so_many_are_kept_beside_those_that_are_applied() {
        let store = test_store().await;
        let changes = store.configuration_changes();
        for id in ["1", "2", "3"] {
            changes.propose(&new(id)).await.unwrap();
        }
        store.change_rows("UPDATE configuration_changes SET proposed = CAST(id AS BIGINT)").await;
        assert!(changes.settle("1", APPLY, "bob", 0).await.unwrap());
        changes.propose_within(&new("4"), 2).await.unwrap();
        let ids = async |after| {
            let found = changes.list(after, 10).await.unwrap();
            found.into_iter().map(|change| change.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(None).await, ["4", "3", "1"]);
        let moment = Timestamp::from_microsecond(3).unwrap();
        assert_eq!(ids(Some((moment, "3"))).await, ["1"]);
    }
}
