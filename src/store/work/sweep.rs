//! Rows that nobody needs are removed, with their entries.

use sqlx::{AnyConnection, AssertSqlSafe};

use super::{WorkKind, WorkStore};
use crate::StoreError;

impl WorkStore {
    /// Removes the rows of all kinds that have expired and have no holder.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is removed then.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let mut transaction = self.begin().await?;
        let now = self.0.engine.now_expression();
        let sql = format!(
            "DELETE FROM work WHERE expires <= {now} AND (holder IS NULL OR held_until <= {now}) RETURNING kind, id"
        );
        let removed: Vec<(String, String)> =
            sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&mut *transaction).await.map_err(failed)?;
        for (kind, id) in removed {
            remove_entries(&mut transaction, &kind, &id).await.map_err(failed)?;
        }
        self.end(transaction, true).await
    }

    /// Removes the row and the entries of a thing that is removed, within a transaction: also from under its holder.
    pub(crate) async fn remove_within(
        &self,
        connection: &mut AnyConnection,
        kind: WorkKind,
        id: &str,
    ) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let removed = sqlx::query("DELETE FROM work WHERE kind = $1 AND id = $2").bind(kind.name).bind(id);
        removed.execute(&mut *connection).await.map_err(failed)?;
        remove_entries(connection, kind.name, id).await.map_err(failed)
    }
}

async fn remove_entries(connection: &mut AnyConnection, kind: &str, id: &str) -> sqlx::Result<()> {
    let removed = sqlx::query("DELETE FROM work_entries WHERE kind = $1 AND id = $2").bind(kind).bind(id);
    removed.execute(connection).await.map(drop)
}
