//! Runs of programs that call tools, and their journals: parts that the caller of these functions seals and that are
//! only added. All moments go by the clock that the processes of the store share.
//!
//! One process at a time writes a journal: each part has the next number, and the process that resumes a run takes a
//! number after it has read the others.

mod read;

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::replicas::micros;
use super::{Store, StoreError, retried};

/// How long a run is kept after it was last written.
const RUN_TTL: Duration = Duration::from_secs(24 * 3_600);

/// Runs of one caller that are kept; the oldest that does not run is removed for another.
const MAX_RUNS_OF_CALLER: i64 = 100;

/// The only one who resumes a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramRunOwner<'a> {
    pub tenant: &'a str,
    pub caller_key: &'a str,
    /// Digest of the tools that are left to the caller.
    pub endpoint: &'a str,
}

/// A run whose journal begins.
#[derive(Debug, Clone, Copy)]
pub struct NewProgramRun<'a> {
    pub id: &'a str,
    pub owner: ProgramRunOwner<'a>,
    /// SHA-256 of the arguments of the call that runs it, in hex.
    pub arguments: &'a str,
    /// The process that runs it.
    pub runner: &'a str,
    /// The first part of the journal, sealed.
    pub part: &'a str,
}

/// The right to write the journal of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramRunFence<'a> {
    pub id: &'a str,
    pub fence: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum ProgramRunState {
    /// A process runs it, or was killed.
    Running,
    Stopped,
    /// It cannot be resumed.
    Unusable,
}

impl ProgramRunState {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A run as stored, without its journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProgramRun {
    pub id: String,
    pub state: ProgramRunState,
    pub approval: Option<String>,
    pub reason: Option<String>,
    pub runner: String,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// Runs of programs and their journals: the tables `program_runs` and `program_run_parts`. It reads `replicas` to find lost
/// processes.
#[derive(Debug, Clone)]
pub struct ProgramRunStore(pub(super) Store);

impl ProgramRunStore {
    /// Stores a run with the first part of its journal; its fence is 1.
    ///
    /// # Errors
    /// [`StoreError`]; it may have been stored.
    pub async fn begin(&self, new: NewProgramRun<'_>) -> Result<(), StoreError> {
        retried(|| self.try_begin(new)).await
    }

    async fn try_begin(&self, new: NewProgramRun<'_>) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        let now = self.0.engine.now_expression();
        let insert = format!(
            "INSERT INTO program_runs (id, tenant, caller_key, endpoint, arguments, state, runner, fence, created, expires)
             VALUES ($1, $2, $3, $4, $5, 'running', $6, 1, {now}, {now} + $7)"
        );
        sqlx::query(AssertSqlSafe(insert))
            .bind(new.id)
            .bind(new.owner.tenant)
            .bind(new.owner.caller_key)
            .bind(new.owner.endpoint)
            .bind(new.arguments)
            .bind(new.runner)
            .bind(micros(RUN_TTL))
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        let part = sqlx::query("INSERT INTO program_run_parts (run, number, sealed) VALUES ($1, 0, $2)");
        part.bind(new.id).bind(new.part).execute(&mut *transaction).await.map_err(failed)?;
        let oldest: Option<(String,)> = sqlx::query_as(
            "SELECT id FROM program_runs
             WHERE tenant = $1 AND caller_key = $2 AND state <> 'running'
               AND (SELECT COUNT(*) FROM program_runs WHERE tenant = $1 AND caller_key = $2) > $3
             ORDER BY created, id LIMIT 1",
        )
        .bind(new.owner.tenant)
        .bind(new.owner.caller_key)
        .bind(MAX_RUNS_OF_CALLER)
        .fetch_optional(&mut *transaction)
        .await
        .map_err(failed)?;
        if let Some((oldest,)) = oldest {
            // It may have been resumed in between.
            let run = sqlx::query("DELETE FROM program_runs WHERE id = $1 AND state <> 'running'").bind(&oldest);
            if run.execute(&mut *transaction).await.map_err(failed)?.rows_affected() > 0 {
                remove_parts(&mut transaction, &oldest).await.map_err(failed)?;
            }
        }
        transaction.commit().await.map_err(failed)
    }

    /// Adds a part to a journal. False, and nothing is added, when another process has the run or has written that
    /// part.
    ///
    /// # Errors
    /// [`StoreError`]; its content must not take effect.
    pub async fn add_part(&self, run: ProgramRunFence<'_>, number: i64, part: &str) -> Result<bool, StoreError> {
        let sql = format!(
            "INSERT INTO program_run_parts (run, number, sealed)
             SELECT $1, $2, $3 FROM program_runs WHERE id = $4 AND fence = $5 AND state = 'running' {}
             ON CONFLICT (run, number) DO NOTHING",
            self.0.engine.share_lock()
        );
        let added = sqlx::query(AssertSqlSafe(sql))
            .bind(run.id)
            .bind(number)
            .bind(part)
            .bind(run.id)
            .bind(run.fence)
            .execute(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(added.rows_affected() > 0)
    }

    /// Takes a run to resume it: one that has stopped, or whose process is `runner` or lost. Returns the
    /// fence; `None` when it cannot be taken.
    pub async fn take(
        &self,
        id: &str,
        owner: ProgramRunOwner<'_>,
        runner: &str,
        lost_after: Duration,
    ) -> Result<Option<i64>, StoreError> {
        let (now, lost) = (self.0.engine.now_expression(), self.0.engine.is_lost("program_runs.runner", ("$5", "$7")));
        let sql = format!(
            "UPDATE program_runs SET state = 'running', runner = $5, fence = fence + 1, expires = {now} + $6
             WHERE id = $1 AND tenant = $2 AND caller_key = $3 AND endpoint = $4 AND expires > {now}
               AND (state = 'stopped' OR (state = 'running' AND (runner = $5 OR {lost})))
             RETURNING fence"
        );
        sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(id)
            .bind(owner.tenant)
            .bind(owner.caller_key)
            .bind(owner.endpoint)
            .bind(runner)
            .bind(micros(RUN_TTL))
            .bind(micros(lost_after))
            .fetch_optional(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))
    }

    /// Whether a process other than `runner` runs it and is not lost.
    pub async fn runs_elsewhere(&self, id: &str, runner: &str, lost_after: Duration) -> Result<bool, StoreError> {
        let sql = format!(
            "SELECT COUNT(*) FROM program_runs WHERE id = $1 AND state = 'running' AND runner <> $2 AND NOT {}",
            self.0.engine.is_lost("program_runs.runner", ("$2", "$3"))
        );
        let found = sqlx::query_scalar(AssertSqlSafe(sql)).bind(id).bind(runner).bind(micros(lost_after));
        found.fetch_one(&self.0.pool).await.map(|found: i64| found > 0).map_err(|error| self.0.failed(error))
    }

    /// The parts of a journal, in their order.
    pub async fn parts(&self, id: &str) -> Result<Vec<(i64, String)>, StoreError> {
        sqlx::query_as("SELECT number, sealed FROM program_run_parts WHERE run = $1 ORDER BY number")
            .bind(id)
            .fetch_all(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))
    }

    /// The run is stopped and may be resumed; `approval` is the approval for which it waits, if that approval is new.
    /// False when another process has it.
    pub async fn stop(&self, run: ProgramRunFence<'_>, approval: Option<&str>) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE program_runs SET state = 'stopped', approval = COALESCE($3, approval), expires = {} + $4
             WHERE id = $1 AND fence = $2 AND state = 'running'",
            self.0.engine.now_expression()
        );
        let stopped = sqlx::query(AssertSqlSafe(sql)).bind(run.id).bind(run.fence).bind(approval).bind(micros(RUN_TTL));
        let stopped = stopped.execute(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        Ok(stopped.rows_affected() > 0)
    }

    /// The run cannot be resumed any more, for this reason; its journal is removed.
    ///
    /// # Errors
    /// [`StoreError`]; it may still be resumable.
    pub async fn give_up(&self, run: ProgramRunFence<'_>, reason: &str) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        let sql = "UPDATE program_runs SET state = 'unusable', reason = $3 WHERE id = $1 AND fence = $2";
        let given_up = sqlx::query(sql).bind(run.id).bind(run.fence).bind(reason).execute(&mut *transaction).await;
        if given_up.map_err(failed)?.rows_affected() > 0 {
            remove_parts(&mut transaction, run.id).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Removes a run that has ended.
    ///
    /// # Errors
    /// [`StoreError`]; it may still be stored.
    pub async fn forget(&self, run: ProgramRunFence<'_>) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        let removed = sqlx::query("DELETE FROM program_runs WHERE id = $1 AND fence = $2").bind(run.id).bind(run.fence);
        if removed.execute(&mut *transaction).await.map_err(failed)?.rows_affected() > 0 {
            remove_parts(&mut transaction, run.id).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// The run waits for this approval from now on, which the call that resumes it needs.
    pub async fn await_approval(&self, id: &str, owner: ProgramRunOwner<'_>, approval: &str) -> Result<(), StoreError> {
        let sql = "UPDATE program_runs SET approval = $5
                   WHERE id = $1 AND tenant = $2 AND caller_key = $3 AND endpoint = $4";
        let of_run = sqlx::query(sql).bind(id).bind(owner.tenant).bind(owner.caller_key).bind(owner.endpoint);
        of_run.bind(approval).execute(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        Ok(())
    }

    /// Removes expired runs.
    pub async fn forget_expired(&self) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        let sql = format!("DELETE FROM program_runs WHERE expires <= {} RETURNING id", self.0.engine.now_expression());
        let removed: Vec<(String,)> =
            sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&mut *transaction).await.map_err(failed)?;
        for (run,) in removed {
            remove_parts(&mut transaction, &run).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }
}

async fn remove_parts(connection: &mut AnyConnection, run: &str) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM program_run_parts WHERE run = $1").bind(run).execute(connection).await.map(drop)
}

#[cfg(test)]
mod tests;
