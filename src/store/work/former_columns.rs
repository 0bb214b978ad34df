//! Until the release after the next: the columns in which programs of the version before look for the holder of a thing, written in the
//! same transactions as `work`. Such a program takes a thing by these columns only. Two versions never both have one: a
//! program of this version needs both rows, and has lost a thing when it has lost one of them.

use sqlx::{AnyConnection, AssertSqlSafe};

use super::take::Taker;
use super::{LockState, WorkKind, WorkLease};
use crate::Engine;
use crate::replica::LOST_AFTER;
use crate::replicas::micros;

/// How long after its last renewal a plan of the version before has a holder, in milliseconds.
const ALIVE_MS: i64 = 15_000;

/// The columns of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormerColumns {
    /// `holder`, `fence`, `held_until`, and `last_used` with the time of each renewal.
    Workspace,
    /// `holder`, `fence`, `held_until`, and `stop_fence` with the fence of a holder that is asked to stop.
    Conversation,
    /// While `status` is `running`: `holder`, `seen` with the milliseconds of each renewal, and `wish`. Its process counts as gone
    /// 15 s after the last renewal.
    Plan,
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
            "UPDATE {table} SET holder = $2, {}, {} WHERE {key} = $1 AND ({} OR EXISTS
                 (SELECT 1 FROM work AS w WHERE w.kind = $4 AND w.id = $5 AND w.holder = {table}.holder
                      AND w.replica <> $6 AND {lost}))",
            self.begins_anew(),
            self.held_until(&format!("{now} + $3"), engine),
            self.are_free(engine, table)
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
        let asked = match self {
            Self::Workspace => "1 = 0",
            Self::Conversation => "stop_fence = fence",
            Self::Plan => "wish = 'cancel'",
        };
        let sql = format!(
            "UPDATE {table} SET {} WHERE {key} = $1 AND holder = $2
             RETURNING CASE WHEN {asked} THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END",
            self.held_until(&format!("{now} + $3"), engine)
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
        let sql = format!("UPDATE {table} SET {} WHERE {key} = $1 AND holder = $2", self.without_holder());
        let released = sqlx::query(AssertSqlSafe(sql)).bind(&lease.id).bind(&lease.holder);
        Ok(released.execute(connection).await?.rows_affected() > 0)
    }

    /// Asks a holder of either version to stop.
    pub(super) async fn ask_to_stop(
        self,
        connection: &mut AnyConnection,
        (kind, id): (WorkKind, &str),
    ) -> sqlx::Result<()> {
        let asks = match self {
            Self::Workspace => return Ok(()),
            Self::Conversation => "stop_fence = fence WHERE holder IS NOT NULL",
            Self::Plan => "wish = 'cancel' WHERE status = 'running'",
        };
        let sql = format!("UPDATE {} SET {asks} AND {} = $1", kind.table, kind.key);
        sqlx::query(AssertSqlSafe(sql)).bind(id).execute(connection).await.map(drop)
    }

    /// Frees the columns of all holders.
    pub(super) async fn free_all(self, connection: &mut AnyConnection, table: &str) -> sqlx::Result<()> {
        let held = match self {
            Self::Workspace | Self::Conversation => "holder IS NOT NULL",
            Self::Plan => "status = 'running'",
        };
        let sql = format!("UPDATE {table} SET {} WHERE {held}", self.without_holder());
        sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop)
    }

    /// The condition that the columns of a row name no holder whose lease goes on.
    pub(super) fn are_free(self, engine: Engine, row: &str) -> String {
        let now = engine.now_expression();
        match self {
            Self::Workspace | Self::Conversation => format!("({row}.holder IS NULL OR {row}.held_until <= {now})"),
            Self::Plan => format!("({row}.status <> 'running' OR {row}.seen <= {now} / 1000 - {ALIVE_MS})"),
        }
    }

    fn begins_anew(self) -> &'static str {
        match self {
            Self::Workspace | Self::Conversation => "fence = fence + 1",
            Self::Plan => "wish = ''",
        }
    }

    fn held_until(self, end: &str, engine: Engine) -> String {
        match self {
            Self::Workspace => format!("held_until = {end}, last_used = {}", engine.now_expression()),
            Self::Conversation => format!("held_until = {end}"),
            Self::Plan => format!("seen = ({end}) / 1000 - {ALIVE_MS}"),
        }
    }

    fn without_holder(self) -> &'static str {
        match self {
            Self::Workspace | Self::Conversation => "holder = NULL",
            Self::Plan => "seen = 0",
        }
    }
}
