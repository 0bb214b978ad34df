//! Records of calls whose outcome is not known, and of equal calls.

use super::{IdempotencyStore, RecordOwner, RemovedReply};
use crate::{AtStore, StoreError};
use sekisho_core::database_clock::DatabaseTime;

/// A call without an answer: it runs, or its outcome is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenEffect {
    /// Of the record.
    pub id: String,
    pub owner: RecordOwner,
    pub tool: String,
    pub call_id: String,
    pub started: DatabaseTime,
    /// The replica that ran the call, if a replica ran it.
    pub runner: Option<String>,
}

/// The record of a call with the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EqualEffect {
    /// Of the record.
    pub id: String,
    pub has_answer: bool,
    /// The replica that ran the call, if a replica ran it.
    pub runner: Option<String>,
}

/// Id, tenant, caller, tool, call, `kept_since` and runner.
type OpenRow = (String, String, String, String, String, i64, Option<String>);

impl IdempotencyStore {
    /// The calls of a tenant without an answer; of one caller, or of all.
    pub async fn open_effects(&self, tenant: &str, caller_key: Option<&str>) -> Result<Vec<OpenEffect>, StoreError> {
        let sql = "SELECT id, tenant, caller_key, tool, call_id, kept_since, runner FROM idempotency_records
             WHERE tenant = $1 AND ($2 = '' OR caller_key = $2) AND answered = 0
                 AND tool IS NOT NULL AND call_id IS NOT NULL";
        let rows: Vec<OpenRow> = bound!(sqlx::query_as(sql), tenant, caller_key.unwrap_or_default())
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        let effects = rows.into_iter().map(|(id, tenant, caller_key, tool, call_id, started, runner)| {
            let owner = RecordOwner { tenant: tenant.into(), caller_key: caller_key.into() };
            Ok(OpenEffect { id, owner, tool, call_id, started: self.0.moment(started)?, runner })
        });
        effects.collect()
    }

    /// The records of an owner with the same request that were stored after that time, the oldest first.
    pub async fn equal_effects(
        &self,
        owner: &RecordOwner,
        request: &str,
        after: DatabaseTime,
    ) -> Result<Vec<EqualEffect>, StoreError> {
        let sql = "SELECT id, answered, runner FROM idempotency_records
             WHERE caller_key = $1 AND request = $2 AND tenant = $3 AND kept_since > $4 ORDER BY kept_since LIMIT 100";
        let rows: Vec<(String, i64, Option<String>)> =
            bound!(sqlx::query_as(sql), &*owner.caller_key, request, &*owner.tenant, after.as_microsecond())
                .fetch_all(&self.0.pool)
                .await
                .at(&self.0)?;
        let effects =
            rows.into_iter().map(|(id, answered, runner)| EqualEffect { id, has_answer: answered != 0, runner });
        Ok(effects.collect())
    }

    /// Removes the record of a call that was answered.
    pub async fn forget_answered(&self, id: &str) -> Result<Option<RemovedReply>, StoreError> {
        let sql = "DELETE FROM idempotency_records WHERE id = $1 AND answered = 1 RETURNING bytes, object";
        let removed: Vec<(i64, Option<String>)> =
            sqlx::query_as(sql).bind(id).fetch_all(&self.0.pool).await.at(&self.0)?;
        Ok(removed.into_iter().next().map(|(bytes, object)| RemovedReply::of(bytes, object)))
    }
}
