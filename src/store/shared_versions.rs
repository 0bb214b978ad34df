//! Counters by which replicas learn that another one changed keys, registrations or resources.

use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Database};

use super::{Store, StoreError};

impl Store {
    /// Runs a statement that changes registrations or resources, and lets other replicas know. How many rows it changed.
    pub(super) async fn change_shared(
        &self,
        statement: Query<'_, Any, <Any as Database>::Arguments>,
    ) -> Result<u64, StoreError> {
        let failed = |error| self.failed(error);
        let mut transaction = self.durable.begin_with(self.engine.begin_statement()).await.map_err(failed)?;
        // This is first: others that change a version wait here, so that the rows that the statement reads stay true.
        self.count_change(&mut transaction, "registrations").await?;
        let changed = statement.execute(&mut *transaction).await.map_err(failed)?;
        transaction.commit().await.map_err(failed)?;
        Ok(changed.rows_affected())
    }

    /// Gives a subject of `shared_versions` its next version, in the transaction of the change.
    pub(super) async fn count_change(&self, transaction: &mut AnyConnection, subject: &str) -> Result<(), StoreError> {
        sqlx::query(
            "INSERT INTO shared_versions (subject, version) VALUES ($1, 1)
             ON CONFLICT (subject) DO UPDATE SET version = shared_versions.version + 1",
        )
        .bind(subject)
        .execute(transaction)
        .await
        .map(drop)
        .map_err(|error| self.failed(error))
    }
}
