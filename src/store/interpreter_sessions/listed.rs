//! Sessions that a process may not have: listed, and asked for.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::{InterpreterSessionFence, InterpreterSessionKey, unsigned};
use crate::replicas::micros;
use crate::{AtStore, InterpreterSessionStore, StoreError};

/// In place of a name: no session has this one.
const ANY_NAME: &str = "";

/// The request of another process to the process of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum AskedOfSession {
    Release,
    Delete,
}

/// A session that another process has, and wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedSession {
    pub tenant: String,
    pub caller_key: String,
    pub name: String,
    pub fence: i64,
    pub asked: AskedOfSession,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSession {
    pub name: String,
    pub generation: u64,
    pub calls: u64,
    pub every_call: bool,
    /// Whether another process has it.
    pub is_elsewhere: bool,
    /// The bytes of its image.
    pub bytes: Option<u64>,
    pub began: Timestamp,
    pub used: Timestamp,
    pub left: Duration,
}

/// Name, generation, calls, whether each call is stored, whether another process has it, bytes, began, used, left.
type ListedRow = (String, i64, i64, i64, i64, Option<i64>, i64, i64, i64);

impl InterpreterSessionStore {
    /// Asks the process of a session for the session. False when that process has reported that it cannot release the
    /// session.
    pub async fn ask_for(&self, key: InterpreterSessionKey<'_>, asked: AskedOfSession) -> Result<bool, StoreError> {
        let sql = "UPDATE interpreter_sessions SET asked = $3
                   WHERE caller_key = $1 AND name = $2 AND runner IS NOT NULL AND (asked IS NULL OR $3 = 'delete')";
        let query = sqlx::query(sql).bind(key.caller_key).bind(key.name).bind(asked.as_str());
        query.execute(&self.0.pool).await.at(&self.0)?;
        let sql = "SELECT COUNT(*) FROM interpreter_sessions WHERE caller_key = $1 AND name = $2 AND asked = 'kept'";
        let query = sqlx::query_scalar(sql).bind(key.caller_key).bind(key.name);
        let kept: i64 = query.fetch_one(&self.0.pool).await.at(&self.0)?;
        Ok(kept == 0)
    }

    /// Answers that a session cannot be released.
    pub async fn refuse_to_release(&self, session: InterpreterSessionFence<'_>) -> Result<(), StoreError> {
        let sql = "UPDATE interpreter_sessions SET asked = 'kept'
                   WHERE caller_key = $1 AND name = $2 AND fence = $3 AND asked = 'release'";
        let query = sqlx::query(sql).bind(session.key.caller_key).bind(session.key.name).bind(session.fence);
        query.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// The sessions of this process that another one wants.
    pub async fn wanted(&self, runner: &str) -> Result<Vec<WantedSession>, StoreError> {
        let sql = "SELECT tenant, caller_key, name, fence, asked FROM interpreter_sessions
                   WHERE runner = $1 AND asked IN ('release', 'delete') ORDER BY used LIMIT 500";
        let rows: Vec<(String, String, String, i64, String)> =
            sqlx::query_as(sql).bind(runner).fetch_all(&self.0.pool).await.at(&self.0)?;
        let wanted = rows.into_iter().map(|(tenant, caller_key, name, fence, asked)| {
            let asked =
                asked.parse().map_err(|_| self.0.damaged(format!("of the session {name} is asked {asked:?}")))?;
            Ok(WantedSession { tenant, caller_key, name, fence, asked })
        });
        wanted.collect()
    }

    /// The sessions of a caller that have an image, or that another process has, by name.
    pub async fn of_caller(
        &self,
        (tenant, caller_key): (&str, &str),
        runner: &str,
        lost_after: Duration,
    ) -> Result<Vec<ListedSession>, StoreError> {
        self.list(InterpreterSessionKey { tenant, caller_key, name: ANY_NAME }, runner, lost_after).await
    }

    /// The caller's session of this name, with the same condition.
    pub async fn get(
        &self,
        key: InterpreterSessionKey<'_>,
        runner: &str,
        lost_after: Duration,
    ) -> Result<Option<ListedSession>, StoreError> {
        Ok(self.list(key, runner, lost_after).await?.pop())
    }

    async fn list(
        &self,
        key: InterpreterSessionKey<'_>,
        runner: &str,
        lost_after: Duration,
    ) -> Result<Vec<ListedSession>, StoreError> {
        let now = self.0.engine.now_expression();
        let lost = self.0.engine.is_lost("interpreter_sessions.runner", ("$3", "$4"));
        let sql = format!(
            "SELECT name, generation, calls, every_call,
                 CASE WHEN runner <> $3 AND NOT {lost} THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END,
                 object_bytes, began, used, ends - {now}
             FROM interpreter_sessions
             WHERE tenant = $1 AND caller_key = $2 AND ended IS NULL AND generation > 0 AND ends > {now}
                 AND (name = $5 OR $5 = '{ANY_NAME}')
             ORDER BY name LIMIT 500"
        );
        let rows: Vec<ListedRow> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(key.tenant)
            .bind(key.caller_key)
            .bind(runner)
            .bind(micros(lost_after))
            .bind(key.name)
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        let listed = rows.into_iter().map(|row| self.listed_session(row)).collect::<Result<Vec<_>, _>>()?;
        // Without an image, one ends with its process.
        Ok(listed.into_iter().filter(|session| session.is_elsewhere || session.bytes.is_some()).collect())
    }

    fn listed_session(&self, row: ListedRow) -> Result<ListedSession, StoreError> {
        let (name, generation, calls, every_call, is_elsewhere, bytes, began, used, left) = row;
        let moment = |micros: i64| {
            let moment = Timestamp::from_microsecond(micros);
            moment.map_err(|_| self.0.damaged(format!("the session {name} has a moment out of range")))
        };
        let (began, used) = (moment(began)?, moment(used)?);
        Ok(ListedSession {
            name,
            generation: unsigned(generation),
            calls: unsigned(calls),
            every_call: every_call > 0,
            is_elsewhere: is_elsewhere > 0,
            bytes: bytes.map(unsigned),
            began,
            used,
            left: Duration::from_micros(unsigned(left)),
        })
    }
}

sekisho_core::as_str!(AskedOfSession);
