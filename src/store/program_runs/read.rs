//! Runs of programs as they are stored, without their journals.

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::{ProgramRunOwner, StoredProgramRun};
use crate::{AtStore, ProgramRunStore, StoreError};

const COLUMNS: &str = "id, state, approval, reason, created, expires";

/// In the order of the columns.
type Row = (String, String, Option<String>, Option<String>, i64, i64);

impl ProgramRunStore {
    /// A run of that owner.
    pub async fn get(&self, id: &str, owner: ProgramRunOwner<'_>) -> Result<Option<StoredProgramRun>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM program_runs
             WHERE id = $1 AND tenant = $2 AND caller_key = $3 AND endpoint = $4 AND expires > {}",
            self.0.engine.now_expression()
        );
        let row: Option<Row> =
            bound!(sqlx::query_as(AssertSqlSafe(sql)), id, owner.tenant, owner.caller_key, owner.endpoint)
                .fetch_optional(&self.0.pool)
                .await
                .at(&self.0)?;
        row.map(|row| self.run_of(row)).transpose()
    }

    /// The tenant, caller key and endpoint of a run that can be resumed.
    pub async fn owner(&self, id: &str) -> Result<Option<(String, String, String)>, StoreError> {
        let sql = format!(
            "SELECT tenant, caller_key, endpoint FROM program_runs WHERE id = $1 AND state <> 'unusable' AND expires > {}",
            self.0.engine.now_expression()
        );
        sqlx::query_as(AssertSqlSafe(sql)).bind(id).fetch_optional(&self.0.pool).await.at(&self.0)
    }

    /// The run with these arguments that waits for an approval, or waited for it last.
    pub async fn awaiting(
        &self,
        owner: ProgramRunOwner<'_>,
        arguments: &str,
        approval: &str,
    ) -> Result<Option<String>, StoreError> {
        let sql = format!(
            "SELECT id FROM program_runs
             WHERE tenant = $1 AND caller_key = $2 AND endpoint = $3 AND arguments = $4 AND approval = $5
               AND state <> 'unusable' AND expires > {} ORDER BY created LIMIT 1",
            self.0.engine.now_expression()
        );
        sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(owner.tenant)
            .bind(owner.caller_key)
            .bind(owner.endpoint)
            .bind(arguments)
            .bind(approval)
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)
    }

    /// The runs of an owner, the latest first.
    pub async fn of_owner(&self, owner: ProgramRunOwner<'_>) -> Result<Vec<StoredProgramRun>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM program_runs
             WHERE tenant = $1 AND caller_key = $2 AND endpoint = $3 AND expires > {}
             ORDER BY created DESC, id DESC LIMIT 500",
            self.0.engine.now_expression()
        );
        let rows: Vec<Row> = bound!(sqlx::query_as(AssertSqlSafe(sql)), owner.tenant, owner.caller_key, owner.endpoint)
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.into_iter().map(|row| self.run_of(row)).collect()
    }

    fn run_of(&self, row: Row) -> Result<StoredProgramRun, StoreError> {
        let (id, state, approval, reason, created, expires) = row;
        let moment = |micros: i64| {
            let moment = Timestamp::from_microsecond(micros);
            moment.map_err(|_| self.0.damaged(format!("the run {id} of a program has a moment out of range")))
        };
        let (created, expires) = (moment(created)?, moment(expires)?);
        let state =
            state.parse().map_err(|_| self.0.damaged(format!("the run {id} of a program has the state `{state}`")))?;
        Ok(StoredProgramRun { id, state, approval, reason, created, expires })
    }
}
