//! The changes of an approval's state. Each names the state that it starts from, so that only one of two changes at
//! once holds.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use super::{COLUMNS, StoredApproval, micros};
use crate::{ApprovalStore, AtStore, MAX_ROWS, StoreError, retried, stays_prepared};
use sekisho_core::approval::{ApprovalScope, ApprovalState};

/// The decision of an approver.
#[derive(Debug, Clone, Copy)]
pub struct DecidedApproval<'a> {
    pub state: ApprovalState,
    /// JSON.
    pub decisions: &'a str,
    pub scope: Option<ApprovalScope>,
    /// How long it can be used from now on; `None` leaves its end as it is.
    pub ttl: Option<Duration>,
    /// Sealed: the arguments of the call, with the arguments that the approver put in their place; `None` leaves them
    /// as they are.
    pub arguments: Option<&'a str>,
}

impl ApprovalStore {
    /// Stores decisions about approvals as they were read: all of them, or none. False: one has changed since, or expired.
    /// Errors: [`StoreError`]; they may have been stored.
    pub async fn decide(&self, decisions: &[(&StoredApproval, DecidedApproval<'_>)]) -> Result<bool, StoreError> {
        // In one order, so that two approvers who decide about the same calls at once do not wait for each other.
        let mut ordered: Vec<_> = decisions.iter().collect();
        ordered.sort_unstable_by(|(one, _), (other, _)| one.id.cmp(&other.id));
        retried(|| self.try_decide(&ordered)).await
    }

    async fn try_decide(&self, decisions: &[&(&StoredApproval, DecidedApproval<'_>)]) -> Result<bool, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE approvals SET state = $3, decisions = $4, scope = $5, revision = revision + 1, changed = {now},
                 expires = CASE WHEN $6 > 0 THEN {now} + $6 ELSE expires END, arguments = COALESCE($7, arguments),
                 pending_digest = CASE WHEN $3 = 'pending' THEN pending_digest ELSE NULL END
             WHERE id = $1 AND revision = $2 AND expires > {now}"
        );
        let mut transaction = self.0.durable.begin_with(self.0.engine.begin_statement()).await.at(&self.0)?;
        for (read, decided) in decisions {
            let stored = sqlx::query(AssertSqlSafe(sql.clone()))
                .bind(&read.id)
                .bind(read.revision)
                .bind(decided.state.as_str())
                .bind(decided.decisions)
                .bind(decided.scope.map(ApprovalScope::as_str))
                .bind(decided.ttl.map_or(0, micros))
                .bind(decided.arguments)
                .execute(&mut *transaction)
                .await
                .at(&self.0)?;
            if stored.rows_affected() == 0 {
                transaction.rollback().await.at(&self.0)?;
                return Ok(false);
            }
        }
        transaction.commit().await.at(&self.0)?;
        Ok(true)
    }

    /// A call is about to be sent, by `runner`; the fence that ends it. `None`: it is not approved any more.
    /// Errors: [`StoreError`]; the call must not be sent.
    pub async fn start_call(&self, id: &str, runner: &str) -> Result<Option<i64>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE approvals SET state = 'executing', fence = fence + 1, runner = $2, uses = uses + 1,
                 revision = revision + 1, changed = {now}
             WHERE id = $1 AND state = 'approved' AND scope = 'once' AND expires > {now}
             RETURNING fence"
        );
        sqlx::query_scalar(AssertSqlSafe(sql)).bind(id).bind(runner).fetch_optional(&self.0.durable).await.at(&self.0)
    }

    /// The call has ended, or was not sent and may be made again. False: another process found it lost.
    pub async fn end_call(&self, id: &str, fence: i64, was_sent: bool) -> Result<bool, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE approvals SET state = CASE WHEN $3 = 1 THEN 'done' ELSE 'approved' END,
                 uses = CASE WHEN $3 = 1 THEN uses ELSE uses - 1 END, revision = revision + 1, changed = {now}
             WHERE id = $1 AND fence = $2 AND state = 'executing'"
        );
        let ended = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(fence).bind(i64::from(was_sent));
        let ended = ended.execute(&self.0.pool).await.at(&self.0)?;
        Ok(ended.rows_affected() > 0)
    }

    /// A call is about to be sent by an approval that covers several. False: it does not hold any more.
    /// Errors: [`StoreError`]; the call must not be sent.
    pub async fn record_use(&self, id: &str) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE approvals SET uses = uses + 1
             WHERE id = $1 AND state = 'approved' AND scope <> 'once' AND expires > {}",
            self.0.engine.now_expression()
        );
        Ok(sqlx::query(AssertSqlSafe(sql)).bind(id).execute(&self.0.durable).await.at(&self.0)?.rows_affected() > 0)
    }

    /// The call with this fence has no runner any more. False: it has ended, or was found lost already.
    pub async fn lose_call(&self, id: &str, fence: i64) -> Result<bool, StoreError> {
        let sql = format!(
            "UPDATE approvals SET state = 'unknown', revision = revision + 1, changed = {}
             WHERE id = $1 AND fence = $2 AND state = 'executing'",
            self.0.engine.now_expression()
        );
        let lost = sqlx::query(AssertSqlSafe(sql)).bind(id).bind(fence).execute(&self.0.durable).await;
        Ok(lost.at(&self.0)?.rows_affected() > 0)
    }

    /// Finds the calls whose runner is another process and is lost, and whose outcome is therefore unknown.
    pub async fn lose_calls_of_others(
        &self,
        runner: &str,
        lost_after: Duration,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        let (now, lost) = (self.0.engine.now_expression(), self.0.engine.is_lost("approvals.runner", ("$1", "$2")));
        let sql = format!(
            "UPDATE approvals SET state = 'unknown', revision = revision + 1, changed = {now}
             WHERE state = 'executing' AND runner <> $1 AND {lost}
             RETURNING {COLUMNS}"
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(runner).bind(micros(lost_after));
        let rows = rows.fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.iter().map(|row| self.approval_of(row, None)).collect()
    }

    /// Marks the approvals that nobody decided or used in time as expired; returns them.
    pub async fn expire(&self) -> Result<Vec<StoredApproval>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE approvals SET state = 'expired', pending_digest = NULL, revision = revision + 1, changed = {now}
             WHERE state IN ('pending', 'approved') AND expires <= {now}
             RETURNING {COLUMNS}"
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.iter().map(|row| self.approval_of(row, None)).collect()
    }

    /// Removes approvals that were asked for longer ago.
    pub async fn forget_older_than(&self, age: Duration) -> Result<u64, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "DELETE FROM approvals WHERE created <= {now} - $1 AND state NOT IN ('pending', 'approved', 'executing')"
        );
        Ok(sqlx::query(AssertSqlSafe(sql)).bind(micros(age)).execute(&self.0.pool).await.at(&self.0)?.rows_affected())
    }

    /// The ids among these whose approvals wait no more.
    pub async fn decided_among(&self, ids: &[String]) -> Result<Vec<String>, StoreError> {
        let mut decided = Vec::new();
        for ids in ids.chunks(MAX_ROWS) {
            let parameters: Vec<_> = (1..=ids.len()).map(|number| format!("${number}")).collect();
            let sql =
                format!("SELECT id FROM approvals WHERE state <> 'pending' AND id IN ({})", parameters.join(", "));
            let query = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(ids.len()));
            let query = ids.iter().fold(query, sqlx::query::Query::bind);
            let rows = query.fetch_all(&self.0.pool).await.at(&self.0)?;
            for row in rows {
                decided.push(row.try_get(0).at(&self.0)?);
            }
        }
        Ok(decided)
    }
}
