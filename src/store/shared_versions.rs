//! Counters by which replicas learn that another one changed keys, registrations or resources.

use sqlx::query::Query;
use sqlx::{Any, AnyConnection, Database};

use super::{AtStore, Store, StoreError};

impl Store {
    /// Runs a statement that changes registrations or resources, and lets other replicas know. How many rows it changed.
    pub(super) async fn change_shared(
        &self,
        statement: Query<'_, Any, <Any as Database>::Arguments>,
    ) -> Result<u64, StoreError> {
        let mut transaction = self.durable.begin_with(self.engine.begin_statement()).await.at(self)?;
        // This is first: others that change a version wait here, so that the rows that the statement reads stay true.
        self.count_change(&mut transaction, "registrations").await?;
        let changed = statement.execute(&mut *transaction).await.at(self)?;
        transaction.commit().await.at(self)?;
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
        .at(self)
    }
}
