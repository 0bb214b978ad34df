//! Runs of conversations that go on without a client: each has a row until it has ended, and one process at a time works on it,
//! by a lease of `work`.

use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row as _};
use tokio::time::Instant;

use super::replicas::micros;
use super::text::storable;
use super::work::{BACKGROUND_RUN, LockState, WorkLease};
use super::{AtStore, RunStatus, Store, StoreError, StoredError, retried};
use sekisho_core::database_clock::DatabaseTime;

/// How long a row is kept after its run has ended and its webhook was sent.
const ENDED_TTL: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Rows of runs of one caller that have ended; the oldest goes for another one.
const MAX_ENDED_OF_CALLER: i64 = 1_000;

/// Ids of runs that a row has: the last ones.
const MAX_RUN_IDS: usize = 50;

/// Rows that are looked at for one that can be taken: other processes may take some meanwhile.
const CANDIDATES: i64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum BackgroundKind {
    /// Of `POST /api/runs`.
    Run,
    /// Of `POST /v1/responses` with `background`.
    Response,
    /// The run of a client, while its process lives.
    Covered,
    /// The run of a client whose process ended.
    Recovered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum BackgroundState {
    Queued,
    /// A process works on it, or ended while it did.
    Running,
    /// It waits for a person.
    Paused,
    Ended,
}

sekisho_core::as_str!(BackgroundState);

/// A run that begins.
#[derive(Debug, Clone, Copy)]
pub struct NewBackgroundRun<'a> {
    pub id: &'a str,
    pub tenant: &'a str,
    pub caller_key: &'a str,
    pub conversation: &'a str,
    pub kind: BackgroundKind,
    /// Sealed.
    pub request: &'a str,
}

/// A run as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundRun {
    pub id: String,
    pub tenant: String,
    pub caller_key: String,
    pub conversation: String,
    pub kind: BackgroundKind,
    pub state: BackgroundState,
    /// How it ended.
    pub status: Option<RunStatus>,
    pub error: Option<StoredError>,
    /// The ids of its runs of the conversation; the last one may not have begun.
    pub runs: Vec<String>,
    /// Sealed.
    pub request: String,
    pub attempts: i64,
    /// Why its webhook was not taken the last time.
    pub notice_error: Option<String>,
    /// Whether its caller has cancelled it.
    pub is_stopped: bool,
    pub created: DatabaseTime,
    pub changed: DatabaseTime,
}

/// The right to work on a run, for one process until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundLease {
    lease: WorkLease,
}

/// A run whose holder gives it back.
#[derive(Debug, Clone)]
pub struct BackgroundStep {
    pub state: BackgroundState,
    pub status: Option<RunStatus>,
    pub error: Option<StoredError>,
    pub attempts: i64,
    /// Why its webhook was not taken.
    pub notice_error: Option<String>,
    /// When a process takes it next, from now on; `None`: nothing is left to do.
    pub due: Option<Duration>,
}

const COLUMNS: &str = "id, tenant, caller_key, conversation, kind, state, status, error_code, error, runs, request, attempts, stopped, created, changed, notice_error";

/// Runs that go on without a client: the table `background_runs`. Their holders are in `work`.
#[derive(Debug, Clone)]
pub struct BackgroundRunStore(pub(super) Store);

impl BackgroundRunStore {
    /// Stores a run that waits. False, and nothing is stored, if `max` runs of its tenant wait. On PostgreSQL, requests at the same
    /// moment may exceed the maximum.
    /// Errors: [`StoreError`]; it may have been stored.
    pub async fn add(&self, new: NewBackgroundRun<'_>, max: u32) -> Result<bool, StoreError> {
        retried(|| self.try_add(new, max)).await
    }

    async fn try_add(&self, new: NewBackgroundRun<'_>, max: u32) -> Result<bool, StoreError> {
        let mut transaction = self.0.work().begin().await?;
        let condition =
            "(SELECT COUNT(*) FROM background_runs WHERE tenant = $2 AND state IN ('queued', 'paused')) < $8";
        let waiting = (BackgroundState::Queued, "");
        let is_added = self.insert(&mut transaction, new, waiting, (condition, i64::from(max))).await.at(&self.0)?;
        let sql = "DELETE FROM background_runs WHERE caller_key = $1 AND state = 'ended' AND due IS NULL AND id IN
             (SELECT id FROM background_runs WHERE caller_key = $1 AND state = 'ended' ORDER BY changed DESC, id LIMIT $3 OFFSET $2)";
        let forgotten = sqlx::query(sql).bind(new.caller_key).bind(MAX_ENDED_OF_CALLER).bind(i64::MAX);
        forgotten.execute(&mut *transaction).await.at(&self.0)?;
        self.0.work().end(transaction, is_added).await?;
        Ok(is_added)
    }

    /// Stores the run of a client, which this process works on: `replica`, or a process that is none.
    /// Errors: [`StoreError`]; it may have been stored.
    pub async fn cover(
        &self,
        new: NewBackgroundRun<'_>,
        run: &str,
        replica: Option<&str>,
    ) -> Result<BackgroundLease, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let inserted = self.insert(&mut transaction, new, (BackgroundState::Running, run), ("$8 = 0", 0)).await;
        inserted.at(&self.0)?;
        let lease = work.take_within(&mut transaction, (BACKGROUND_RUN, new.id), replica).await?;
        work.end(transaction, lease.is_some()).await?;
        let has_holder = || self.0.damaged(format!("the run {} begins, and has a holder", new.id));
        lease.map(|lease| BackgroundLease { lease }).ok_or_else(has_holder)
    }

    async fn insert(
        &self,
        connection: &mut AnyConnection,
        new: NewBackgroundRun<'_>,
        (state, runs): (BackgroundState, &str),
        (condition, value): (&str, i64),
    ) -> sqlx::Result<bool> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "INSERT INTO background_runs
                (id, tenant, caller_key, conversation, kind, state, runs, request, attempts, stopped, due, created, changed)
             SELECT $1, $2, $3, $4, $5, $6, $7, $9, 0, 0, {now}, {now}, {now} WHERE {condition}"
        );
        let inserted = sqlx::query(AssertSqlSafe(sql))
            .bind(new.id)
            .bind(new.tenant)
            .bind(new.caller_key)
            .bind(new.conversation)
            .bind(<&str>::from(new.kind))
            .bind(state.as_str())
            .bind(runs)
            .bind(value)
            .bind(new.request)
            .execute(connection)
            .await?;
        Ok(inserted.rows_affected() > 0)
    }

    /// Takes the run that has been due for longest and that nobody works on, for `replica` or a process that is none: also one
    /// whose process ended. Of a tenant at most `max_running` are taken at once, and as many that have ended, for their webhooks; those
    /// that are cancelled in any case.
    pub async fn take(
        &self,
        max_running: u32,
        replica: Option<&str>,
    ) -> Result<Option<(BackgroundRun, BackgroundLease)>, StoreError> {
        for id in self.due(max_running).await? {
            if let Some(taken) = retried(|| self.try_take(&id, replica)).await? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    async fn due(&self, max_running: u32) -> Result<Vec<String>, StoreError> {
        let (engine, now) = (self.0.engine, self.0.engine.now_expression());
        let sql = format!(
            "SELECT id FROM background_runs AS b WHERE due <= {now} AND {}
               AND ((stopped = 1 AND state <> 'ended')
                    OR $1 > (SELECT COUNT(*) FROM background_runs AS o JOIN work AS w ON w.id = o.id
                             WHERE o.tenant = b.tenant AND (o.state = 'ended') = (b.state = 'ended') AND o.kind <> 'covered'
                               AND w.kind = $2 AND w.holder IS NOT NULL AND w.held_until > {now}))
             ORDER BY due, id LIMIT $3",
            BACKGROUND_RUN.is_free(engine, "b")
        );
        let found = sqlx::query_scalar(AssertSqlSafe(sql)).bind(i64::from(max_running)).bind(BACKGROUND_RUN.name());
        found.bind(CANDIDATES).fetch_all(&self.0.pool).await.at(&self.0)
    }

    /// Whether nothing is left to do for any run.
    pub async fn is_idle(&self) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar("SELECT due FROM background_runs WHERE due IS NOT NULL LIMIT 1");
        let due: Option<i64> = found.fetch_optional(&self.0.pool).await.at(&self.0)?;
        Ok(due.is_none())
    }

    async fn try_take(
        &self,
        id: &str,
        replica: Option<&str>,
    ) -> Result<Option<(BackgroundRun, BackgroundLease)>, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let lease = work.take_within(&mut transaction, (BACKGROUND_RUN, id), replica).await?;
        // Another process may have had it meanwhile.
        let sql = format!(
            "UPDATE background_runs SET kind = CASE WHEN kind = 'covered' THEN 'recovered' ELSE kind END, attempts = attempts + 1
             WHERE id = $1 AND due <= {} RETURNING {COLUMNS}",
            self.0.engine.now_expression()
        );
        let row = sqlx::query(AssertSqlSafe(sql)).bind(id).fetch_optional(&mut *transaction).await.at(&self.0)?;
        let taken = match (row, lease) {
            (Some(row), Some(lease)) => Some((self.run_of(&row)?, BackgroundLease { lease })),
            _ => None,
        };
        work.end(transaction, taken.is_some()).await?;
        Ok(taken)
    }

    /// Holds a run for longer, again and again: until another process has it, or its caller cancels it. The lease was asked for at
    /// that moment.
    pub async fn keep_renewing(&self, held: &BackgroundLease, asked: Instant) -> LockState {
        self.0.work().keep_renewing(&held.lease, asked).await
    }

    /// Stores the ids of its runs, before the last of them begins: it is running. False, and nothing is stored: another process has it.
    /// Errors: [`StoreError`]; the run must not begin.
    pub async fn set_runs(&self, held: &BackgroundLease, runs: &[String]) -> Result<bool, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let is_held = work.renew_within(&mut transaction, &held.lease).await? != LockState::Lost;
        let last = runs[runs.len().saturating_sub(MAX_RUN_IDS)..].join(" ");
        let set = sqlx::query("UPDATE background_runs SET runs = $2, state = 'running' WHERE id = $1");
        let set = set.bind(held.lease.id()).bind(last).execute(&mut *transaction).await;
        set.at(&self.0)?;
        work.end(transaction, is_held).await?;
        Ok(is_held)
    }

    /// Gives a run back after a step. False, and nothing is stored: another process has it. Where nothing is left to do, the request
    /// is forgotten; a response repeats its own.
    /// Errors: [`StoreError`]; the lease ends by itself then, and another process takes the run.
    pub async fn give_back(&self, held: &BackgroundLease, step: &BackgroundStep) -> Result<bool, StoreError> {
        retried(|| self.try_give_back(held, step)).await
    }

    async fn try_give_back(&self, held: &BackgroundLease, step: &BackgroundStep) -> Result<bool, StoreError> {
        let (work, now) = (self.0.work(), self.0.engine.now_expression());
        let mut transaction = work.begin().await?;
        let is_held = work.release_within(&mut transaction, &held.lease).await?;
        let sql = format!(
            "UPDATE background_runs SET state = $2, status = $3, error_code = $4, error = $5, attempts = $6,
                notice_error = $7, due = CASE WHEN $8 < 0 THEN NULL ELSE {now} + $8 END,
                request = CASE WHEN kind = 'run' AND $8 < 0 THEN '' ELSE request END,
                changed = CASE WHEN state = 'ended' THEN changed ELSE {now} END WHERE id = $1"
        );
        let changed = sqlx::query(AssertSqlSafe(sql))
            .bind(held.lease.id())
            .bind(step.state.as_str())
            .bind(step.status.map(RunStatus::as_str))
            .bind(step.error.as_ref().map(|error| error.code.as_str()))
            .bind(step.error.as_ref().map(|error| storable(&error.message)))
            .bind(step.attempts)
            .bind(step.notice_error.as_deref().map(storable))
            .bind(step.due.map_or(-1, micros));
        changed.execute(&mut *transaction).await.at(&self.0)?;
        work.end(transaction, is_held).await?;
        Ok(is_held)
    }

    /// Removes the row of a client's run that has ended, unless another process has it.
    /// Errors: [`StoreError`]; it may still be stored.
    pub async fn forget(&self, held: &BackgroundLease) -> Result<(), StoreError> {
        let (work, id) = (self.0.work(), held.lease.id());
        let mut transaction = work.begin().await?;
        let is_held = work.release_within(&mut transaction, &held.lease).await?;
        let removed = sqlx::query("DELETE FROM background_runs WHERE id = $1").bind(id);
        removed.execute(&mut *transaction).await.at(&self.0)?;
        work.remove_within(&mut transaction, BACKGROUND_RUN, id).await?;
        work.end(transaction, is_held).await
    }

    /// A run of a caller.
    pub async fn get(&self, caller_key: &str, id: &str) -> Result<Option<BackgroundRun>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM background_runs WHERE id = $1 AND caller_key = $2");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(caller_key).fetch_optional(&self.0.pool).await;
        row.at(&self.0)?.map(|row| self.run_of(&row)).transpose()
    }

    /// A caller's runs of `POST /api/runs`, the last one first, at most `max` with an id below `before`.
    pub async fn of_caller(
        &self,
        caller_key: &str,
        before: Option<&str>,
        max: u32,
    ) -> Result<Vec<BackgroundRun>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM background_runs WHERE caller_key = $1 AND kind = 'run' AND (id < $2 OR $2 IS NULL)
             ORDER BY id DESC LIMIT $3"
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(caller_key).bind(before).bind(i64::from(max));
        let rows = rows.fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.iter().map(|row| self.run_of(row)).collect()
    }

    /// Cancels a run of a caller, unless it has ended: its process learns it, and the next one ends it.
    pub async fn stop(&self, caller_key: &str, id: &str) -> Result<(), StoreError> {
        let (work, now) = (self.0.work(), self.0.engine.now_expression());
        let mut transaction = work.begin().await?;
        work.ask_to_stop_within(&mut transaction, (BACKGROUND_RUN, id)).await?;
        let sql = format!(
            "UPDATE background_runs SET stopped = 1, due = CASE WHEN due > {now} THEN {now} ELSE due END
             WHERE id = $1 AND caller_key = $2 AND state <> 'ended'"
        );
        let stopped = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(caller_key).execute(&mut *transaction).await;
        let is_theirs = stopped.at(&self.0)?.rows_affected() > 0;
        work.end(transaction, is_theirs).await
    }

    /// Removes the rows of runs that ended long ago.
    pub async fn forget_ended(&self) -> Result<(), StoreError> {
        let sql = format!(
            "DELETE FROM background_runs WHERE state = 'ended' AND due IS NULL AND changed < {} - $1",
            self.0.engine.now_expression()
        );
        sqlx::query(AssertSqlSafe(sql)).bind(micros(ENDED_TTL)).execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    fn run_of(&self, row: &AnyRow) -> Result<BackgroundRun, StoreError> {
        let text = |index: usize| row.try_get::<String, _>(index).at(&self.0);
        let option = |index: usize| row.try_get::<Option<String>, _>(index).at(&self.0);
        let number = |index: usize| row.try_get::<i64, _>(index).at(&self.0);
        let unknown = |value: &str| self.0.damaged(format!("a background run has the word {value:?}"));
        let (kind, state, status) = (text(4)?, text(5)?, option(6)?);
        let message = option(8)?.unwrap_or_default();
        Ok(BackgroundRun {
            id: text(0)?,
            tenant: text(1)?,
            caller_key: text(2)?,
            conversation: text(3)?,
            kind: kind.parse().map_err(|_| unknown(&kind))?,
            state: state.parse().map_err(|_| unknown(&state))?,
            status: status.map(|status| status.parse().map_err(|_| unknown(&status))).transpose()?,
            error: option(7)?.map(|code| StoredError { code, message }),
            runs: text(9)?.split_whitespace().map(str::to_owned).collect(),
            request: text(10)?,
            attempts: number(11)?,
            is_stopped: number(12)? != 0,
            created: self.0.moment(number(13)?)?,
            changed: self.0.moment(number(14)?)?,
            notice_error: option(15)?,
        })
    }
}

#[cfg(test)]
mod tests;
