//! Sessions of interpreters: the process of each, and the images of sessions that can go on without it, sealed by the
//! caller of these functions. All moments go by the clock that the processes of the store share.
//!
//! One process at a time has a session: it takes it with the next fence, and writes of an earlier process are refused.

mod images;
mod listed;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, FromRow, Row};

use super::replicas::micros;
use super::{AtStore, Store, StoreError};
use sekisho_outbound::blobs::{BlobKey, StoredBlob};

pub use self::images::NewSessionImage;
pub use self::listed::{AskedOfSession, ListedSession, WantedSession};

/// How long it is known why a session has ended, and of which generation it was.
const ENDED_TTL: Duration = Duration::from_secs(24 * 3_600);

/// A session of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterpreterSessionKey<'a> {
    pub tenant: &'a str,
    /// The key of its owner: unique over all tenants.
    pub caller_key: &'a str,
    pub name: &'a str,
}

/// The right to write the state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterpreterSessionFence<'a> {
    pub key: InterpreterSessionKey<'a>,
    pub fence: i64,
}

/// The image of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionImage {
    pub profile: String,
    /// Digests of the interpreter, and of the profile's snapshot.
    pub interpreter: String,
    pub snapshot: String,
    /// Digests of the rights with which the session began, and of the programs that it has run.
    pub rights: String,
    pub programs: String,
    pub object: StoredBlob,
}

/// A session that a process has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenSession {
    pub fence: i64,
    /// 0 before it has begun.
    pub generation: u64,
    /// Why it has ended.
    pub ended: Option<String>,
    pub image: Option<SessionImage>,
    pub every_call: bool,
    pub calls: u64,
    pub age: Duration,
    /// Zero once it is as old as it may be.
    pub left: Duration,
}

/// A session that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewInterpreterSession {
    pub every_call: bool,
    /// The age of the copied session for a copy; otherwise zero.
    pub age: Duration,
    /// Counts from its age.
    pub lifetime: Duration,
}

/// How long sessions live, and how long a process may be silent that has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimes {
    pub lifetime: Duration,
    pub lost_after: Duration,
}

/// Sessions of interpreters and their images: the table `interpreter_sessions`. It reads `replicas` to find lost processes.
#[derive(Debug, Clone)]
pub struct InterpreterSessionStore(pub(super) Store);

impl InterpreterSessionStore {
    /// Takes a session, or makes one that has not begun, unless another process has it that is not lost.
    /// Errors: [`StoreError`]; it may have been taken.
    pub async fn take(
        &self,
        key: InterpreterSessionKey<'_>,
        runner: &str,
        times: SessionTimes,
    ) -> Result<Option<TakenSession>, StoreError> {
        let now = self.0.engine.now_expression();
        let lost = self.0.engine.is_lost("interpreter_sessions.runner", ("$4", "$7"));
        let sql = format!(
            "INSERT INTO interpreter_sessions
                 (caller_key, name, tenant, generation, fence, runner, every_call, calls, began, used, ends, expires)
             VALUES ($1, $2, $3, 0, 1, $4, 0, 0, {now}, {now}, {now} + $5, {now} + $6)
             ON CONFLICT (caller_key, name) DO UPDATE
             SET fence = interpreter_sessions.fence + 1, runner = excluded.runner, asked = NULL
             WHERE interpreter_sessions.runner IS NULL OR interpreter_sessions.runner = excluded.runner
                OR {lost}
             RETURNING fence, generation, ended, every_call, calls, {now} - began, ends - {now},
                 profile, interpreter, snapshot, rights, programs, object, object_sha256, object_bytes"
        );
        sqlx::query_as(AssertSqlSafe(sql))
            .bind(key.caller_key)
            .bind(key.name)
            .bind(key.tenant)
            .bind(runner)
            .bind(micros(times.lifetime))
            .bind(micros(times.lifetime.saturating_add(ENDED_TTL)))
            .bind(micros(times.lost_after))
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)
    }

    /// A session that was taken begins, with a fresh interpreter. Returns the new generation. `None` when another
    /// process has it.
    /// Errors: [`StoreError`]; it may have begun.
    pub async fn begin(
        &self,
        session: InterpreterSessionFence<'_>,
        NewInterpreterSession { every_call, age, lifetime }: NewInterpreterSession,
    ) -> Result<Option<u64>, StoreError> {
        let (now, left) = (self.0.engine.now_expression(), lifetime.saturating_sub(age));
        let sql = format!(
            "UPDATE interpreter_sessions SET generation = generation + 1, ended = NULL, every_call = $4, calls = 0,
                 profile = NULL, interpreter = NULL, snapshot = NULL, rights = NULL, programs = NULL, object = NULL,
                 object_sha256 = NULL, object_bytes = NULL, began = {now} - $5, used = {now}, ends = {now} + $6,
                 expires = {now} + $7
             WHERE caller_key = $1 AND name = $2 AND fence = $3 RETURNING generation"
        );
        let generation: Option<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(session.key.caller_key)
            .bind(session.key.name)
            .bind(session.fence)
            .bind(i64::from(every_call))
            .bind(micros(age))
            .bind(micros(left))
            .bind(micros(left.saturating_add(ENDED_TTL)))
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)?;
        Ok(generation.map(unsigned))
    }

    /// The session has ended, for this reason. Returns its object, if it had one; nothing where another process has it.
    /// Errors: [`StoreError`]; it may not have ended.
    pub async fn end(&self, session: InterpreterSessionFence<'_>, reason: &str) -> Result<Option<BlobKey>, StoreError> {
        let sql = format!(
            "UPDATE interpreter_sessions SET ended = $4, runner = NULL, asked = NULL, expires = {} + $5
             WHERE caller_key = $1 AND name = $2 AND fence = $3 AND ended IS NULL RETURNING object",
            self.0.engine.now_expression()
        );
        let object: Option<Option<String>> = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(session.key.caller_key)
            .bind(session.key.name)
            .bind(session.fence)
            .bind(reason)
            .bind(micros(ENDED_TTL))
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)?;
        Ok(object.flatten().as_deref().and_then(BlobKey::parse))
    }

    /// The process has the session no more; its stored state stays.
    /// Errors: [`StoreError`]; the process may still have it.
    pub async fn release(&self, session: InterpreterSessionFence<'_>) -> Result<(), StoreError> {
        let sql = "UPDATE interpreter_sessions SET runner = NULL, asked = NULL
                   WHERE caller_key = $1 AND name = $2 AND fence = $3";
        let query = sqlx::query(sql).bind(session.key.caller_key).bind(session.key.name).bind(session.fence);
        query.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// Whether the process with this fence still has the session.
    pub async fn is_held(&self, session: InterpreterSessionFence<'_>) -> Result<bool, StoreError> {
        let sql = "SELECT COUNT(*) FROM interpreter_sessions
                   WHERE caller_key = $1 AND name = $2 AND fence = $3 AND runner IS NOT NULL";
        let query = sqlx::query_scalar(sql).bind(session.key.caller_key).bind(session.key.name).bind(session.fence);
        let rows: i64 = query.fetch_one(&self.0.pool).await.at(&self.0)?;
        Ok(rows > 0)
    }
}

/// A row of the statement that takes a session.
impl FromRow<'_, AnyRow> for TakenSession {
    fn from_row(row: &AnyRow) -> sqlx::Result<Self> {
        let text = |column: &str| row.try_get::<Option<String>, _>(column).map(Option::unwrap_or_default);
        let number = |column: usize| row.try_get::<i64, _>(column);
        let image = match row.try_get::<Option<String>, _>("object")?.as_deref().and_then(BlobKey::parse) {
            Some(key) => {
                let bytes = unsigned(row.try_get::<Option<i64>, _>("object_bytes")?.unwrap_or_default());
                Some(SessionImage {
                    profile: text("profile")?,
                    interpreter: text("interpreter")?,
                    snapshot: text("snapshot")?,
                    rights: text("rights")?,
                    programs: text("programs")?,
                    object: StoredBlob { key, sha256: text("object_sha256")?, bytes },
                })
            }
            None => None,
        };
        Ok(Self {
            fence: number(0)?,
            generation: unsigned(number(1)?),
            ended: row.try_get(2)?,
            image,
            every_call: number(3)? > 0,
            calls: unsigned(number(4)?),
            age: Duration::from_micros(unsigned(number(5)?)),
            left: Duration::from_micros(unsigned(number(6)?)),
        })
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
