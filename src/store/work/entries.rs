//! The entries that holders write about a thing, in the order of their numbers. The caller of these functions seals and opens them.

use sqlx::{AnyConnection, AssertSqlSafe};

use super::{WorkKind, WorkLease, WorkStore};
use crate::StoreError;

impl WorkStore {
    /// Adds an entry. False, and nothing is added, when the holder has lost the thing, or that entry is there.
    ///
    /// # Errors
    /// [`StoreError`]; the content of the entry must not take effect.
    pub async fn append(&self, lease: &WorkLease, number: i64, sealed: &str) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let added = self.try_append(&mut transaction, lease, (number, sealed)).await;
        let is_added = added.map_err(|error| self.0.failed(error))?;
        self.end(transaction, is_added).await?;
        Ok(is_added)
    }

    async fn try_append(
        &self,
        connection: &mut AnyConnection,
        lease: &WorkLease,
        (number, sealed): (i64, &str),
    ) -> sqlx::Result<bool> {
        let sql = format!(
            "INSERT INTO work_entries (kind, id, number, sealed)
             SELECT $1, $2, $3, $4 {} {} ON CONFLICT (kind, id, number) DO NOTHING",
            lease.kind.held(["$2", "$5", "$6"]),
            self.0.engine.share_lock()
        );
        let added = sqlx::query(AssertSqlSafe(sql))
            .bind(lease.kind.name)
            .bind(&lease.id)
            .bind(number)
            .bind(sealed)
            .bind(&lease.holder)
            .bind(lease.fence);
        Ok(added.execute(connection).await?.rows_affected() > 0)
    }

    /// The entries about a thing. Who has taken it reads all that earlier holders will ever have written.
    pub async fn read(&self, kind: WorkKind, id: &str) -> Result<Vec<(i64, String)>, StoreError> {
        sqlx::query_as("SELECT number, sealed FROM work_entries WHERE kind = $1 AND id = $2 ORDER BY number")
            .bind(kind.name)
            .bind(id)
            .fetch_all(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))
    }
}
