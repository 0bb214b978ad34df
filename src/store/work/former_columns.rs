//! Until the release after the next: the columns in which programs of the version before look for the holder of a thing, written in the
//! same transactions as `work`. Such a program takes a thing by these columns only. Two versions never both have one: a
//! program of this version needs both rows, and has lost a thing when it has lost one of them.

use sqlx::{AnyConnection, AssertSqlSafe};

use super::take::Taker;
use super::{LockState, PROGRAM_RUN, WorkKind, WorkLease};
use crate::Engine;
use crate::program_runs::RUN_TTL;
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
    /// While `state` is `running`: `runner`, a replica or another process, which has the run until it is lost; `fence`, and `expires`
    /// with 24 h from each renewal.
    ProgramRun,
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
        let unrenewed = engine.is_unrenewed("$3", "$7");
        let sql = format!(
            "UPDATE {table} SET {} = $2, {}, {} WHERE {key} = $1 AND ({} OR EXISTS
                 (SELECT 1 FROM work AS w WHERE w.kind = $4 AND w.id = $5 AND {}
                      AND w.replica <> $6 AND {lost} AND {unrenewed}))",
            self.holder(),
            self.begins_anew(),
            self.held_until(&format!("{now} + $3"), engine),
            self.are_free(engine, table, "$6"),
            self.are_of("w", table)
        );
        let taken = sqlx::query(AssertSqlSafe(sql))
            .bind(taker.id)
            .bind(self.holder_name(taker.holder, taker.replica))
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
            Self::Workspace | Self::ProgramRun => "1 = 0",
            Self::Conversation => "stop_fence = fence",
            Self::Plan => "wish = 'cancel'",
        };
        let sql = format!(
            "UPDATE {table} SET {} WHERE {key} = $1 AND {} = $2
             RETURNING CASE WHEN {asked} THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END",
            self.held_until(&format!("{now} + $3"), engine),
            self.holder()
        );
        let renewed: Option<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(&lease.id)
            .bind(self.holder_name(&lease.holder, lease.replica.as_deref()))
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
        let (free, holder) = (self.without_holder(), self.holder());
        let sql = format!("UPDATE {table} SET {free} WHERE {key} = $1 AND {holder} = $2");
        let holder = self.holder_name(&lease.holder, lease.replica.as_deref());
        Ok(sqlx::query(AssertSqlSafe(sql)).bind(&lease.id).bind(holder).execute(connection).await?.rows_affected() > 0)
    }

    /// Asks a holder of either version to stop.
    pub(super) async fn ask_to_stop(
        self,
        connection: &mut AnyConnection,
        (kind, id): (WorkKind, &str),
    ) -> sqlx::Result<()> {
        let asks = match self {
            Self::Workspace | Self::ProgramRun => return Ok(()),
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
            Self::ProgramRun => "state = 'running'",
        };
        let sql = format!("UPDATE {table} SET {} WHERE {held}", self.without_holder());
        sqlx::query(AssertSqlSafe(sql)).execute(connection).await.map(drop)
    }

    /// The condition that the columns of a row name no holder of the version before that goes on. `taker`: an expression of the replica
    /// that takes the thing.
    pub(super) fn are_free(self, engine: Engine, row: &str, taker: &str) -> String {
        let now = engine.now_expression();
        match self {
            Self::Workspace | Self::Conversation => format!("({row}.holder IS NULL OR {row}.held_until <= {now})"),
            Self::Plan => format!("({row}.status <> 'running' OR {row}.seen <= {now} / 1000 - {ALIVE_MS})"),
            // Of a holder of this version `work` says until when it has the run.
            Self::ProgramRun => format!(
                "({row}.state <> 'running' OR EXISTS (SELECT 1 FROM work AS own WHERE own.kind = '{}' AND own.id = {row}.id AND {})
                  OR {})",
                PROGRAM_RUN.name,
                self.are_of("own", row),
                engine.is_lost(&format!("{row}.runner"), (taker, &micros(LOST_AFTER).to_string()))
            ),
        }
    }

    /// The condition that the columns of a row name the holder in a row of `work`.
    pub(super) fn are_of(self, work: &str, row: &str) -> String {
        match self {
            Self::Workspace | Self::Conversation | Self::Plan => format!("{work}.holder = {row}.holder"),
            Self::ProgramRun => format!("COALESCE({work}.replica, {work}.holder) = {row}.runner"),
        }
    }

    fn holder(self) -> &'static str {
        match self {
            Self::Workspace | Self::Conversation | Self::Plan => "holder",
            Self::ProgramRun => "runner",
        }
    }

    /// In the column of the holder.
    fn holder_name<'a>(self, holder: &'a str, replica: Option<&'a str>) -> &'a str {
        match self {
            Self::Workspace | Self::Conversation | Self::Plan => holder,
            Self::ProgramRun => replica.unwrap_or(holder),
        }
    }

    fn begins_anew(self) -> &'static str {
        match self {
            Self::Workspace | Self::Conversation | Self::ProgramRun => "fence = fence + 1",
            Self::Plan => "wish = ''",
        }
    }

    fn held_until(self, end: &str, engine: Engine) -> String {
        match self {
            Self::Workspace => format!("held_until = {end}, last_used = {}", engine.now_expression()),
            Self::Conversation => format!("held_until = {end}"),
            Self::Plan => format!("seen = ({end}) / 1000 - {ALIVE_MS}"),
            Self::ProgramRun => {
                format!("expires = {end} + {}", micros(RUN_TTL.saturating_sub(PROGRAM_RUN.lease)))
            }
        }
    }

    fn without_holder(self) -> &'static str {
        match self {
            Self::Workspace | Self::Conversation => "holder = NULL",
            Self::Plan => "seen = 0",
            Self::ProgramRun => "runner = ''",
        }
    }
}
