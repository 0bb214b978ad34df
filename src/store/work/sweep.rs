//! Rows that nobody needs are removed.

use sqlx::{AnyConnection, AssertSqlSafe};

use super::{WorkKind, WorkStore};
use crate::{AtStore, StoreError};

impl WorkStore {
    /// Removes the rows of all kinds that have expired and have no holder.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("DELETE FROM work WHERE expires <= {now} AND (holder IS NULL OR held_until <= {now})");
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// Removes the row of a thing that is removed, within a transaction: also from under its holder.
    pub(crate) async fn remove_within(
        &self,
        connection: &mut AnyConnection,
        kind: WorkKind,
        id: &str,
    ) -> Result<(), StoreError> {
        let removed = sqlx::query("DELETE FROM work WHERE kind = $1 AND id = $2").bind(kind.name).bind(id);
        removed.execute(connection).await.map(drop).at(&self.0)
    }
}
