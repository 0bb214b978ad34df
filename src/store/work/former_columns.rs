//! Until the release after the next: the columns in which programs of the version before look for the holder of a thing, written in the
//! same transactions as `work`. Such a program takes a thing by these columns only. Two versions never both have one: a
//! program of this version needs both rows, and has lost a thing when it has lost one of them.

use sqlx::{AnyConnection, AssertSqlSafe};

use super::take::Taker;
use super::{LockState, WorkKind, WorkLease};
use crate::Engine;
use crate::replica::LOST_AFTER;
use crate::replicas::micros;

/// Of a table with the columns `holder`, `fence` and `held_until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FormerColumns {
    /// Whether each renewal is a use of the thing, with its time in `last_used`.
    pub(super) has_last_use: bool,
    /// Whether holders are asked to stop by their fence in `stop_fence`.
    pub(super) has_stop_fence: bool,
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
        let WorkKind { table, key, .. } = taker.kind;
        let (now, lost) = (engine.now_expression(), engine.is_lost("w.replica", ("$6", "$7")));
        let sql = format!(
            "UPDATE {table} SET holder = $2, fence = fence + 1, held_until = {now} + $3 {}
             WHERE {key} = $1 AND (holder IS NULL OR held_until <= {now} OR EXISTS
                 (SELECT 1 FROM work AS w WHERE w.kind = $4 AND w.id = $5 AND w.holder = {table}.holder
                      AND w.replica <> $6 AND {lost}))",
            self.last_use(engine)
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

    pub(super) async fn renew(
        self,
        engine: Engine,
        connection: &mut AnyConnection,
        lease: &WorkLease,
    ) -> sqlx::Result<LockState> {
        let (WorkKind { table, key, .. }, now) = (lease.kind, engine.now_expression());
        let asked = if self.has_stop_fence { "stop_fence = fence" } else { "1 = 0" };
        let sql = format!(
            "UPDATE {table} SET held_until = {now} + $3 {} WHERE {key} = $1 AND holder = $2
             RETURNING CASE WHEN {asked} THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END",
            self.last_use(engine)
        );
        let renewed: Option<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(&lease.id)
            .bind(&lease.holder)
            .bind(micros(lease.kind.lease))
            .fetch_optional(connection)
            .await?;
        Ok(match renewed {
            None => LockState::Lost,
            Some(0) => LockState::Held,
            Some(_) => LockState::AskedToStop,
        })
    }

    /// False: the holder has lost them.
    pub(super) async fn release(self, connection: &mut AnyConnection, lease: &WorkLease) -> sqlx::Result<bool> {
        let WorkKind { table, key, .. } = lease.kind;
        let sql = format!("UPDATE {table} SET holder = NULL WHERE {key} = $1 AND holder = $2");
        let released = sqlx::query(AssertSqlSafe(sql)).bind(&lease.id).bind(&lease.holder);
        Ok(released.execute(connection).await?.rows_affected() > 0)
    }

    /// Asks a holder of either version to stop.
    pub(super) async fn ask_to_stop(
        self,
        connection: &mut AnyConnection,
        (kind, id): (WorkKind, &str),
    ) -> sqlx::Result<()> {
        if !self.has_stop_fence {
            return Ok(());
        }
        let WorkKind { table, key, .. } = kind;
        let sql = format!("UPDATE {table} SET stop_fence = fence WHERE {key} = $1 AND holder IS NOT NULL");
        sqlx::query(AssertSqlSafe(sql)).bind(id).execute(connection).await.map(drop)
    }

    /// Frees the columns of all holders.
    pub(super) async fn free_all(connection: &mut AnyConnection, kind: WorkKind) -> sqlx::Result<()> {
        let sql = format!("UPDATE {} SET holder = NULL WHERE holder IS NOT NULL", kind.table);
        sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop)
    }

    /// The condition that the columns of a row name no holder whose lease goes on.
    pub(super) fn are_free(engine: Engine, row: &str) -> String {
        format!("AND ({row}.holder IS NULL OR {row}.held_until <= {})", engine.now_expression())
    }

    fn last_use(self, engine: Engine) -> String {
        if self.has_last_use { format!(", last_used = {}", engine.now_expression()) } else { String::new() }
    }
}
