//! Until the release after the next: the columns in which programs of the version before look for the holder of a thing, written in the
//! same transactions as `work`. Such a program takes a thing by these columns only. Two versions never both have one: a
//! program of this version needs both rows, and has lost a thing when it has lost one of them.

use sqlx::{AnyConnection, AssertSqlSafe};

use super::WorkLease;
use super::take::Taker;
use crate::Engine;
use crate::replica::LOST_AFTER;
use crate::replicas::micros;

/// Of a table with the columns `holder`, `fence`, `held_until` and `last_used`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FormerColumns {
    pub(super) table: &'static str,
    /// The column that has the id of the thing.
    pub(super) key: &'static str,
}

impl FormerColumns {
    /// Whether they name no other holder. A holder that is in `work` loses them as it loses its row there; another one is of the
    /// version before, which has them until they expire.
    pub(super) async fn take(
        self,
        engine: Engine,
        connection: &mut AnyConnection,
        taker: Taker<'_>,
    ) -> sqlx::Result<bool> {
        let Self { table, key } = self;
        let (now, lost) = (engine.now_expression(), engine.is_lost("w.replica", ("$6", "$7")));
        let sql = format!(
            "UPDATE {table} SET holder = $2, fence = fence + 1, held_until = {now} + $3, last_used = {now}
             WHERE {key} = $1 AND (holder IS NULL OR held_until <= {now} OR EXISTS
                 (SELECT 1 FROM work AS w WHERE w.kind = $4 AND w.id = $5 AND w.holder = {table}.holder
                      AND w.replica <> $6 AND {lost}))"
        );
        let taken = sqlx::query(AssertSqlSafe(sql))
            .bind(taker.id)
            .bind(taker.holder)
            .bind(micros(taker.kind.lease))
            .bind(taker.kind.name)
            .bind(taker.id)
            .bind(taker.replica)
            .bind(micros(LOST_AFTER));
        Ok(taken.execute(connection).await?.rows_affected() > 0)
    }

    /// Frees those of all holders.
    pub(super) async fn free_all(self, connection: &mut AnyConnection) -> sqlx::Result<()> {
        let sql = format!("UPDATE {} SET holder = NULL WHERE holder IS NOT NULL", self.table);
        sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop)
    }

    /// False: the holder has lost them.
    pub(super) async fn renew(
        self,
        engine: Engine,
        connection: &mut AnyConnection,
        lease: &WorkLease,
    ) -> sqlx::Result<bool> {
        let (Self { table, key }, now) = (self, engine.now_expression());
        let sql =
            format!("UPDATE {table} SET held_until = {now} + $3, last_used = {now} WHERE {key} = $1 AND holder = $2");
        let renewed =
            sqlx::query(AssertSqlSafe(sql)).bind(&lease.id).bind(&lease.holder).bind(micros(lease.kind.lease));
        Ok(renewed.execute(connection).await?.rows_affected() > 0)
    }

    /// False: the holder has lost them.
    pub(super) async fn release(self, connection: &mut AnyConnection, lease: &WorkLease) -> sqlx::Result<bool> {
        let Self { table, key } = self;
        let sql = format!("UPDATE {table} SET holder = NULL WHERE {key} = $1 AND holder = $2");
        let released = sqlx::query(AssertSqlSafe(sql)).bind(&lease.id).bind(&lease.holder);
        Ok(released.execute(connection).await?.rows_affected() > 0)
    }

    /// Whether the holder still has them; nobody takes them before the transaction ends.
    pub(super) async fn are_held(
        self,
        engine: Engine,
        connection: &mut AnyConnection,
        lease: &WorkLease,
    ) -> sqlx::Result<bool> {
        let (Self { table, key }, lock) = (self, engine.share_lock());
        let sql = format!("SELECT {key} FROM {table} WHERE {key} = $1 AND holder = $2 {lock}");
        let held = sqlx::query_scalar(AssertSqlSafe(sql)).bind(&lease.id).bind(&lease.holder);
        let held: Option<String> = held.fetch_optional(connection).await?;
        Ok(held.is_some())
    }
}
