//! Runs of programs that call tools, and their journals: parts that the caller of these functions seals and that are
//! only added. All moments go by the clock that the processes of the store share.
//!
//! One process at a time writes a journal, by a lease of `work`: each part has the next number, and the process that
//! resumes a run takes a number after it has read the others.

mod read;

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe};
use tokio::time::Instant;

use super::recorded_runs::RecordedRunStore;
use super::replica::LOST_AFTER;
use super::replicas::micros;
use super::work::{LockState, PROGRAM_RUN, WorkLease};
use super::{AtStore, Store, StoreError, retried};

/// How long a run is kept after its lease was last renewed.
pub(super) const RUN_TTL: Duration = Duration::from_secs(24 * 3_600);

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
    /// The replica that runs it; `None`: a process that is no replica.
    pub replica: Option<&'a str>,
    /// The first part of the journal, sealed.
    pub part: &'a str,
}

/// The right to write the journal of a run, for one holder until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRunLease {
    lease: WorkLease,
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

sekisho_core::as_str!(ProgramRunState);

/// A run as stored, without its journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProgramRun {
    pub id: String,
    pub state: ProgramRunState,
    pub approval: Option<String>,
    pub reason: Option<String>,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// Runs of programs and their journals: the tables `program_runs` and `program_run_parts`; their rows in `work` say who has each.
#[derive(Debug, Clone)]
pub struct ProgramRunStore(pub(super) Store);

impl ProgramRunStore {
    /// The store of runs that were recorded.
    pub fn recorded(&self) -> RecordedRunStore {
        self.0.recorded_runs()
    }

    /// Stores a run with the first part of its journal. The process has the run.
    /// Errors: [`StoreError`]; it may have been stored.
    pub async fn begin(&self, new: NewProgramRun<'_>) -> Result<ProgramRunLease, StoreError> {
        retried(|| self.try_begin(new)).await
    }

    async fn try_begin(&self, new: NewProgramRun<'_>) -> Result<ProgramRunLease, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let removed = self.insert(&mut transaction, new).await.at(&self.0)?;
        if let Some(removed) = removed {
            work.remove_within(&mut transaction, PROGRAM_RUN, &removed).await?;
        }
        let lease = work.take_within(&mut transaction, (PROGRAM_RUN, new.id), new.replica).await?;
        work.end(transaction, lease.is_some()).await?;
        let has_holder = || self.0.damaged(format!("the run {} of a program begins, and has a holder", new.id));
        lease.map(|lease| ProgramRunLease { lease }).ok_or_else(has_holder)
    }

    /// Also removes the oldest run of the owner for the new one, and returns its id.
    async fn insert(&self, connection: &mut AnyConnection, new: NewProgramRun<'_>) -> sqlx::Result<Option<String>> {
        let now = self.0.engine.now_expression();
        let insert = format!(
            "INSERT INTO program_runs (id, tenant, caller_key, endpoint, arguments, state, runner, fence, created, expires)
             VALUES ($1, $2, $3, $4, $5, 'running', '', 0, {now}, {now} + $6)"
        );
        sqlx::query(AssertSqlSafe(insert))
            .bind(new.id)
            .bind(new.owner.tenant)
            .bind(new.owner.caller_key)
            .bind(new.owner.endpoint)
            .bind(new.arguments)
            .bind(micros(RUN_TTL))
            .execute(&mut *connection)
            .await?;
        let part = sqlx::query("INSERT INTO program_run_parts (run, number, sealed) VALUES ($1, 0, $2)");
        part.bind(new.id).bind(new.part).execute(&mut *connection).await?;
        let sql = "SELECT id FROM program_runs
             WHERE tenant = $1 AND caller_key = $2 AND state <> 'running'
               AND (SELECT COUNT(*) FROM program_runs WHERE tenant = $1 AND caller_key = $2) > $3
             ORDER BY created, id LIMIT 1";
        let oldest: Option<(String,)> =
            bound!(sqlx::query_as(sql), new.owner.tenant, new.owner.caller_key, MAX_RUNS_OF_CALLER)
                .fetch_optional(&mut *connection)
                .await?;
        let Some((oldest,)) = oldest else { return Ok(None) };
        // It may have been resumed in between.
        let run = sqlx::query("DELETE FROM program_runs WHERE id = $1 AND state <> 'running'").bind(&oldest);
        if run.execute(&mut *connection).await?.rows_affected() == 0 {
            return Ok(None);
        }
        remove_parts(connection, &oldest).await?;
        Ok(Some(oldest))
    }

    /// Adds a part to a journal. False, and nothing is added, when another process has the run or has written that
    /// part.
    /// Errors: [`StoreError`]; its content must not take effect.
    pub async fn add_part(&self, run: &ProgramRunLease, number: i64, part: &str) -> Result<bool, StoreError> {
        let sql = format!(
            "INSERT INTO program_run_parts (run, number, sealed)
             SELECT $1, $2, $3 {} AND thing.state = 'running' {} ON CONFLICT (run, number) DO NOTHING",
            PROGRAM_RUN.held(["$4", "$5", "$6"]),
            self.0.engine.share_lock()
        );
        let (id, holder, fence) = run.lease.terms();
        let added = bound!(sqlx::query(AssertSqlSafe(sql)), id, number, part, id, holder, fence)
            .execute(&self.0.pool)
            .await
            .at(&self.0)?;
        Ok(added.rows_affected() > 0)
    }

    /// Takes a run to resume it, for `replica` or a process that is none: one that has stopped, or that nobody has. `None` when it
    /// cannot be taken.
    pub async fn take(
        &self,
        id: &str,
        owner: ProgramRunOwner<'_>,
        replica: Option<&str>,
    ) -> Result<Option<ProgramRunLease>, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let is_resumable = self.is_resumable(&mut transaction, id, owner).await;
        if !is_resumable.at(&self.0)? {
            work.end(transaction, false).await?;
            return Ok(None);
        }
        let lease = work.take_within(&mut transaction, (PROGRAM_RUN, id), replica).await?;
        let resumed = sqlx::query("UPDATE program_runs SET state = 'running' WHERE id = $1 AND state <> 'unusable'");
        let resumed = resumed.bind(id).execute(&mut *transaction).await.at(&self.0)?;
        let lease = lease.filter(|_| resumed.rows_affected() > 0);
        work.end(transaction, lease.is_some()).await?;
        Ok(lease.map(|lease| ProgramRunLease { lease }))
    }

    /// Whether it is this owner's, and has not expired.
    async fn is_resumable(
        &self,
        connection: &mut AnyConnection,
        id: &str,
        owner: ProgramRunOwner<'_>,
    ) -> sqlx::Result<bool> {
        let sql = format!(
            "SELECT COUNT(*) FROM program_runs WHERE id = $1 AND tenant = $2 AND caller_key = $3 AND endpoint = $4
                 AND state <> 'unusable' AND expires > {}",
            self.0.engine.now_expression()
        );
        let found = sqlx::query_scalar(AssertSqlSafe(sql)).bind(id).bind(owner.tenant);
        let found: i64 = found.bind(owner.caller_key).bind(owner.endpoint).fetch_one(connection).await?;
        Ok(found > 0)
    }

    /// Holds a run for longer, again and again: until another process has it. The lease was asked for at that moment.
    pub async fn keep_renewing(&self, run: &ProgramRunLease, asked: Instant) -> LockState {
        self.0.work().keep_renewing(&run.lease, asked).await
    }

    /// Whether a process has it from which `replica`, or a process that is none, cannot take it.
    pub async fn is_held(&self, id: &str, replica: Option<&str>) -> Result<bool, StoreError> {
        let engine = self.0.engine;
        let sql = format!(
            "SELECT COUNT(*) FROM program_runs WHERE id = $1 AND state = 'running' AND NOT {} AND NOT EXISTS
                 (SELECT 1 FROM work AS w WHERE w.kind = $2 AND w.id = $1 AND w.replica <> $3 AND {})",
            PROGRAM_RUN.is_free(engine, "program_runs"),
            engine.is_lost("w.replica", ("$3", "$4"))
        );
        let found = sqlx::query_scalar(AssertSqlSafe(sql)).bind(id).bind(PROGRAM_RUN.name());
        let found = found.bind(replica).bind(micros(LOST_AFTER)).fetch_one(&self.0.pool).await;
        found.map(|found: i64| found > 0).at(&self.0)
    }

    /// The parts of a journal, in their order.
    pub async fn parts(&self, id: &str) -> Result<Vec<(i64, String)>, StoreError> {
        sqlx::query_as("SELECT number, sealed FROM program_run_parts WHERE run = $1 ORDER BY number")
            .bind(id)
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)
    }

    /// The run is stopped and may be resumed; `approval` is the approval for which it waits, if that approval is new.
    /// False when another process has it, or it cannot be resumed any more.
    pub async fn stop(&self, run: &ProgramRunLease, approval: Option<&str>) -> Result<bool, StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let is_held = work.release_within(&mut transaction, &run.lease).await?;
        let sql = format!(
            "UPDATE program_runs SET state = 'stopped', approval = COALESCE($2, approval), expires = {} + $3
             WHERE id = $1 AND state = 'running'",
            self.0.engine.now_expression()
        );
        let stopped = sqlx::query(AssertSqlSafe(sql)).bind(run.lease.id()).bind(approval).bind(micros(RUN_TTL));
        let stopped = stopped.execute(&mut *transaction).await.at(&self.0)?;
        work.end(transaction, is_held).await?;
        Ok(is_held && stopped.rows_affected() > 0)
    }

    /// The run cannot be resumed any more, for this reason; its journal is removed. The process still has it.
    /// Errors: [`StoreError`]; it may still be resumable.
    pub async fn give_up(&self, run: &ProgramRunLease, reason: &str) -> Result<(), StoreError> {
        let work = self.0.work();
        let mut transaction = work.begin().await?;
        let is_held = work.renew_within(&mut transaction, &run.lease).await? != LockState::Lost;
        let given_up = sqlx::query("UPDATE program_runs SET state = 'unusable', reason = $2 WHERE id = $1");
        given_up.bind(run.lease.id()).bind(reason).execute(&mut *transaction).await.at(&self.0)?;
        remove_parts(&mut transaction, run.lease.id()).await.at(&self.0)?;
        work.end(transaction, is_held).await
    }

    /// Removes a run that has ended, unless another process has it.
    /// Errors: [`StoreError`]; it may still be stored.
    pub async fn forget(&self, run: &ProgramRunLease) -> Result<(), StoreError> {
        let (work, id) = (self.0.work(), run.lease.id());
        let mut transaction = work.begin().await?;
        let is_held = work.release_within(&mut transaction, &run.lease).await?;
        sqlx::query("DELETE FROM program_runs WHERE id = $1").bind(id).execute(&mut *transaction).await.at(&self.0)?;
        remove_parts(&mut transaction, id).await.at(&self.0)?;
        work.remove_within(&mut transaction, PROGRAM_RUN, id).await?;
        work.end(transaction, is_held).await
    }

    /// The run waits for this approval from now on, which the call that resumes it needs.
    pub async fn await_approval(&self, id: &str, owner: ProgramRunOwner<'_>, approval: &str) -> Result<(), StoreError> {
        let sql = "UPDATE program_runs SET approval = $5
                   WHERE id = $1 AND tenant = $2 AND caller_key = $3 AND endpoint = $4";
        let of_run = sqlx::query(sql).bind(id).bind(owner.tenant).bind(owner.caller_key).bind(owner.endpoint);
        of_run.bind(approval).execute(&self.0.pool).await.at(&self.0)?;
        Ok(())
    }

    /// Removes expired runs.
    pub async fn forget_expired(&self) -> Result<(), StoreError> {
        let mut transaction = self.0.begin().await?;
        let sql = format!("DELETE FROM program_runs WHERE expires <= {} RETURNING id", self.0.engine.now_expression());
        let removed: Vec<(String,)> =
            sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&mut *transaction).await.at(&self.0)?;
        for (run,) in removed {
            remove_parts(&mut transaction, &run).await.at(&self.0)?;
        }
        transaction.commit().await.at(&self.0)
    }
}

async fn remove_parts(connection: &mut AnyConnection, run: &str) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM program_run_parts WHERE run = $1").bind(run).execute(connection).await.map(drop)
}

#[cfg(test)]
mod tests;
