//! Calls with an idempotency key: which were started, and their replies.

mod effects;

use std::sync::Arc;
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::replicas::micros;
use super::{AtStore, Store, StoreError};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_outbound::blobs::{BlobKey, StoredBlob};

pub use self::effects::{EqualEffect, OpenEffect};

/// The owner of records: its records push out each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordOwner {
    pub tenant: Arc<str>,
    /// [`Caller::key`](sekisho_core::call::Caller).
    pub caller_key: Arc<str>,
}

/// A call that is about to be sent.
#[derive(Debug, Clone, Copy)]
pub struct StartedCall<'a> {
    pub id: &'a str,
    pub owner: &'a RecordOwner,
    pub request: &'a str,
    /// The replica that runs the call, if a replica runs it.
    pub runner: Option<&'a str>,
    /// `None` for a turn of an agent.
    pub named: Option<NamedCall<'a>>,
}

/// The call of a record, for those who look for its effect.
#[derive(Debug, Clone, Copy)]
pub struct NamedCall<'a> {
    pub tool: &'a str,
    pub call_id: &'a str,
}

/// The right to end a call: one that began later with the same key has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordFence<'a> {
    pub id: &'a str,
    /// When the call was recorded.
    pub started: DatabaseTime,
}

/// A call that has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRecord {
    pub id: String,
    pub owner: RecordOwner,
    pub started: DatabaseTime,
}

/// The record of a call with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    pub request: String,
    pub kept_since: DatabaseTime,
    pub outcome: RecordedOutcome,
    /// The replica that ran the call, if a replica ran it.
    pub runner: Option<String>,
    /// Whether it is of a call of a tool, whose effect may be looked for.
    pub is_named: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedOutcome {
    /// The call runs, or its process ended before it did.
    Unknown,
    Answered(String),
    /// As `Answered`; the reply is in object storage.
    AnsweredByObject(StoredBlob),
    /// It has ended, and its reply is not stored.
    ReplyDropped,
}

/// The kept form of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptReply<'a> {
    Text(&'a str),
    Object(&'a StoredBlob),
    Nothing,
}

/// The reply of a removed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedReply {
    /// Bytes of the reply in its row.
    pub bytes: u64,
    /// The object with its reply, which is still there.
    pub object: Option<BlobKey>,
}

/// How many records an owner has, and how many bytes their replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedRecords {
    pub owner: RecordOwner,
    pub records: u64,
    pub bytes: u64,
}

/// Request, `kept_since`, `answered`, reply, runner, the object with its digest and length, and the tool.
type RecordRow =
    (String, i64, i64, Option<String>, Option<String>, Option<String>, Option<String>, Option<i64>, Option<String>);

/// Calls with an idempotency key and their replies: the table `idempotency_records`.
#[derive(Debug, Clone)]
pub struct IdempotencyStore(pub(super) Store);

impl IdempotencyStore {
    pub async fn get(&self, id: &str) -> Result<Option<IdempotencyRecord>, StoreError> {
        let row: Option<RecordRow> = sqlx::query_as(
            "SELECT request, kept_since, answered, reply, runner, object, object_sha256, object_bytes, tool
             FROM idempotency_records WHERE id = $1",
        )
        .bind(id)
        .fetch_optional(&self.0.pool)
        .await
        .at(&self.0)?;
        let Some((request, kept_since, answered, reply, runner, object, sha256, bytes, tool)) = row else {
            return Ok(None);
        };
        let outcome = match (answered, reply, object) {
            (0, ..) => RecordedOutcome::Unknown,
            (_, Some(reply), _) => RecordedOutcome::Answered(reply),
            (_, None, Some(object)) => {
                let key = BlobKey::parse(&object).ok_or_else(|| self.0.damaged(format!("`{object}` is no object")))?;
                let (sha256, bytes) = (sha256.unwrap_or_default(), count(bytes.unwrap_or_default()));
                RecordedOutcome::AnsweredByObject(StoredBlob { key, sha256, bytes })
            }
            (_, None, None) => RecordedOutcome::ReplyDropped,
        };
        let kept_since = self.0.moment(kept_since)?;
        Ok(Some(IdempotencyRecord { request, kept_since, outcome, runner, is_named: tool.is_some() }))
    }

    /// Records a call before it is sent, also for the time after a crash of the machine. False when there is such a record
    /// already.
    /// Errors: [`StoreError`]; nothing is recorded then.
    pub async fn start(&self, call: StartedCall<'_>, now: DatabaseTime) -> Result<bool, StoreError> {
        let added = sqlx::query(
            "INSERT INTO idempotency_records
                 (id, tenant, caller_key, request, answered, bytes, kept_since, last_used, runner, tool, call_id)
             VALUES ($1, $2, $3, $4, 0, 0, $5, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
        )
        .bind(call.id)
        .bind(&*call.owner.tenant)
        .bind(&*call.owner.caller_key)
        .bind(call.request)
        .bind(now.as_microsecond())
        .bind(call.runner)
        .bind(call.named.map(|named| named.tool))
        .bind(call.named.map(|named| named.call_id))
        .execute(&self.0.durable)
        .await
        .at(&self.0)?;
        Ok(added.rows_affected() > 0)
    }

    /// Keeps the answer of a recorded call, from now on. False when its record was removed.
    /// Errors: [`StoreError`]; the call's outcome stays unknown then.
    pub async fn end(
        &self,
        call: RecordFence<'_>,
        reply: KeptReply<'_>,
        now: DatabaseTime,
    ) -> Result<bool, StoreError> {
        let (text, object) = match reply {
            KeptReply::Text(text) => (Some(text), None),
            KeptReply::Object(object) => (None, Some(object)),
            KeptReply::Nothing => (None, None),
        };
        let length = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let ended = sqlx::query(
            "UPDATE idempotency_records SET answered = 1, reply = $2, bytes = $3, kept_since = $4, last_used = $4,
                 object = $5, object_sha256 = $6, object_bytes = $7
             WHERE id = $1 AND answered = 0 AND kept_since = $8",
        )
        .bind(call.id)
        .bind(text)
        .bind(length(text.map_or(0, |text| text.len() as u64)))
        .bind(now.as_microsecond())
        .bind(object.map(|object| object.key.to_string()))
        .bind(object.map(|object| object.sha256.as_str()))
        .bind(object.map(|object| length(object.bytes)))
        .bind(call.started.as_microsecond())
        .execute(&self.0.pool)
        .await
        .at(&self.0)?;
        Ok(ended.rows_affected() > 0)
    }

    /// Notes that a record was of use.
    pub async fn record_use(&self, id: &str, now: DatabaseTime) -> Result<(), StoreError> {
        let used = sqlx::query("UPDATE idempotency_records SET last_used = $2 WHERE id = $1");
        let used = used.bind(id).bind(now.as_microsecond()).execute(&self.0.pool).await;
        used.map(drop).at(&self.0)
    }

    /// Removes the record of a call that has no answer. False when it was removed.
    pub async fn forget(&self, call: RecordFence<'_>) -> Result<bool, StoreError> {
        let sql = "DELETE FROM idempotency_records WHERE id = $1 AND answered = 0 AND kept_since = $2";
        let removed = sqlx::query(sql).bind(call.id).bind(call.started.as_microsecond()).execute(&self.0.pool).await;
        Ok(removed.at(&self.0)?.rows_affected() > 0)
    }

    /// Removes the owner's least recently used record of a call that was answered.
    pub async fn forget_oldest(&self, owner: &RecordOwner) -> Result<Option<RemovedReply>, StoreError> {
        let sql = "DELETE FROM idempotency_records WHERE id =
             (SELECT id FROM idempotency_records WHERE tenant = $1 AND caller_key = $2 AND answered = 1
              ORDER BY last_used LIMIT 1)
             RETURNING bytes, object";
        let removed: Vec<(i64, Option<String>)> =
            bound!(sqlx::query_as(sql), &*owner.tenant, &*owner.caller_key).fetch_all(&self.0.pool).await.at(&self.0)?;
        Ok(removed.into_iter().next().map(|(bytes, object)| RemovedReply::of(bytes, object)))
    }

    /// Removes the owner's least recently used reply, not its record; returns its bytes.
    pub async fn drop_oldest_reply(&self, owner: &RecordOwner) -> Result<Option<u64>, StoreError> {
        let sql =
            "SELECT id, bytes FROM idempotency_records WHERE tenant = $1 AND caller_key = $2 AND reply IS NOT NULL
             ORDER BY last_used LIMIT 1";
        let oldest: Option<(String, i64)> = bound!(sqlx::query_as(sql), &*owner.tenant, &*owner.caller_key)
            .fetch_optional(&self.0.pool)
            .await
            .at(&self.0)?;
        let Some((id, bytes)) = oldest else { return Ok(None) };
        // Another process may have been faster.
        let dropped =
            sqlx::query("UPDATE idempotency_records SET reply = NULL, bytes = 0 WHERE id = $1 AND reply IS NOT NULL");
        let dropped = dropped.bind(id).execute(&self.0.pool).await.at(&self.0)?;
        Ok(Some(if dropped.rows_affected() > 0 { count(bytes) } else { 0 }))
    }

    /// The calls without an answer that were recorded at that time or before, and whose runner is `runner`, no replica, or
    /// lost.
    pub async fn open_until(
        &self,
        moment: DatabaseTime,
        runner: Option<&str>,
        lost_after: Duration,
    ) -> Result<Vec<OpenRecord>, StoreError> {
        let sql = format!(
            "SELECT id, tenant, caller_key, kept_since FROM idempotency_records
             WHERE kept_since <= $1 AND answered = 0 AND (runner IS NULL OR runner = $2 OR {})",
            self.0.engine.is_lost("idempotency_records.runner", ("$2", "$3"))
        );
        let rows: Vec<(String, String, String, i64)> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(moment.as_microsecond())
            .bind(runner.unwrap_or_default())
            .bind(micros(lost_after))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        let open = rows.into_iter().map(|(id, tenant, caller_key, started)| {
            let owner = RecordOwner { tenant: tenant.into(), caller_key: caller_key.into() };
            Ok(OpenRecord { id, owner, started: self.0.moment(started)? })
        });
        open.collect()
    }

    /// Removes the records of answers that were stored at that time or before; returns the caller and reply of each.
    pub async fn forget_until(&self, moment: DatabaseTime) -> Result<Vec<(RecordOwner, RemovedReply)>, StoreError> {
        let removed: Vec<(String, String, i64, Option<String>)> = sqlx::query_as(
            "DELETE FROM idempotency_records WHERE kept_since <= $1 AND answered = 1
             RETURNING tenant, caller_key, bytes, object",
        )
        .bind(moment.as_microsecond())
        .fetch_all(&self.0.pool)
        .await
        .at(&self.0)?;
        let removed = removed.into_iter().map(|(tenant, caller_key, bytes, object)| {
            let owner = RecordOwner { tenant: tenant.into(), caller_key: caller_key.into() };
            (owner, RemovedReply::of(bytes, object))
        });
        Ok(removed.collect())
    }

    /// The records and bytes of each owner.
    pub async fn by_owner(&self) -> Result<Vec<OwnedRecords>, StoreError> {
        let rows: Vec<(String, String, i64, i64)> = sqlx::query_as(
            "SELECT tenant, caller_key, COUNT(*), CAST(SUM(bytes) AS BIGINT) FROM idempotency_records GROUP BY tenant, caller_key",
        )
        .fetch_all(&self.0.pool)
        .await
        .at(&self.0)?;
        let owned = rows.into_iter().map(|(tenant, caller_key, records, bytes)| OwnedRecords {
            owner: RecordOwner { tenant: tenant.into(), caller_key: caller_key.into() },
            records: count(records),
            bytes: count(bytes),
        });
        Ok(owned.collect())
    }
}

impl RemovedReply {
    fn of(bytes: i64, object: Option<String>) -> Self {
        Self { bytes: count(bytes), object: object.and_then(|object| BlobKey::parse(&object)) }
    }
}

/// A count that the database keeps is never negative.
fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

#[cfg(test)]
mod tests;
