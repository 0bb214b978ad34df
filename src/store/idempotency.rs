//! Calls with an idempotency key: which were started, and their replies.

use std::sync::Arc;

use super::{Store, StoreError};
use sekisho_core::database_clock::DatabaseTime;
use sekisho_outbound::blobs::{BlobKey, StoredBlob};

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
}

/// The record of a call with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    pub request: String,
    pub kept_since: DatabaseTime,
    pub outcome: RecordedOutcome,
    /// The replica that ran the call, if a replica ran it.
    pub runner: Option<String>,
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

/// Request, `kept_since`, `answered`, reply, runner, and the object with its digest and length.
type RecordRow = (String, i64, i64, Option<String>, Option<String>, Option<String>, Option<String>, Option<i64>);

/// Calls with an idempotency key and their replies: the table `idempotency_records`.
#[derive(Debug, Clone)]
pub struct IdempotencyStore(pub(super) Store);

impl IdempotencyStore {
    pub async fn get(&self, id: &str) -> Result<Option<IdempotencyRecord>, StoreError> {
        let row: Option<RecordRow> = sqlx::query_as(
            "SELECT request, kept_since, answered, reply, runner, object, object_sha256, object_bytes
             FROM idempotency_records WHERE id = $1",
        )
        .bind(id)
        .fetch_optional(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        let Some((request, kept_since, answered, reply, runner, object, sha256, bytes)) = row else { return Ok(None) };
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
        Ok(Some(IdempotencyRecord { request, kept_since, outcome, runner }))
    }

    /// Records a call before it is sent, also for the time after a crash of the machine. False when there is such a record
    /// already.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is recorded then.
    pub async fn start(&self, call: StartedCall<'_>, now: DatabaseTime) -> Result<bool, StoreError> {
        let added = sqlx::query(
            "INSERT INTO idempotency_records (id, tenant, caller_key, request, answered, bytes, kept_since, last_used, runner)
             VALUES ($1, $2, $3, $4, 0, 0, $5, $5, $6) ON CONFLICT (id) DO NOTHING",
        )
        .bind(call.id)
        .bind(&*call.owner.tenant)
        .bind(&*call.owner.caller_key)
        .bind(call.request)
        .bind(now.as_microsecond())
        .bind(call.runner)
        .execute(&self.0.durable)
        .await
        .map_err(|error| self.0.failed(error))?;
        Ok(added.rows_affected() > 0)
    }

    /// Keeps the answer of a recorded call, from now on. False when there is no such record any more.
    ///
    /// # Errors
    /// [`StoreError`]; the call's outcome stays unknown then.
    pub async fn end(&self, id: &str, reply: KeptReply<'_>, now: DatabaseTime) -> Result<bool, StoreError> {
        let (text, object) = match reply {
            KeptReply::Text(text) => (Some(text), None),
            KeptReply::Object(object) => (None, Some(object)),
            KeptReply::Nothing => (None, None),
        };
        let length = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let ended = sqlx::query(
            "UPDATE idempotency_records SET answered = 1, reply = $2, bytes = $3, kept_since = $4, last_used = $4,
                 object = $5, object_sha256 = $6, object_bytes = $7
             WHERE id = $1",
        )
        .bind(id)
        .bind(text)
        .bind(length(text.map_or(0, |text| text.len() as u64)))
        .bind(now.as_microsecond())
        .bind(object.map(|object| object.key.to_string()))
        .bind(object.map(|object| object.sha256.as_str()))
        .bind(object.map(|object| length(object.bytes)))
        .execute(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        Ok(ended.rows_affected() > 0)
    }

    /// Notes that a record was of use.
    pub async fn record_use(&self, id: &str, now: DatabaseTime) -> Result<(), StoreError> {
        let used = sqlx::query("UPDATE idempotency_records SET last_used = $2 WHERE id = $1");
        let used = used.bind(id).bind(now.as_microsecond()).execute(&self.0.pool).await;
        used.map(drop).map_err(|error| self.0.failed(error))
    }

    /// Removes a record; returns the bytes of its reply.
    pub async fn forget(&self, id: &str) -> Result<Option<u64>, StoreError> {
        let removed: Vec<(i64,)> = sqlx::query_as("DELETE FROM idempotency_records WHERE id = $1 RETURNING bytes")
            .bind(id)
            .fetch_all(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(removed.first().map(|(bytes,)| count(*bytes)))
    }

    /// Removes the owner's least recently used record of a call that was answered.
    pub async fn forget_oldest(&self, owner: &RecordOwner) -> Result<Option<RemovedReply>, StoreError> {
        let removed: Vec<(i64, Option<String>)> = sqlx::query_as(
            "DELETE FROM idempotency_records WHERE id =
             (SELECT id FROM idempotency_records WHERE tenant = $1 AND caller_key = $2 AND answered = 1
              ORDER BY last_used LIMIT 1)
             RETURNING bytes, object",
        )
        .bind(&*owner.tenant)
        .bind(&*owner.caller_key)
        .fetch_all(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        Ok(removed.into_iter().next().map(|(bytes, object)| RemovedReply::of(bytes, object)))
    }

    /// Removes the owner's least recently used reply, not its record; returns its bytes.
    pub async fn drop_oldest_reply(&self, owner: &RecordOwner) -> Result<Option<u64>, StoreError> {
        let oldest: Option<(String, i64)> = sqlx::query_as(
            "SELECT id, bytes FROM idempotency_records WHERE tenant = $1 AND caller_key = $2 AND reply IS NOT NULL
             ORDER BY last_used LIMIT 1",
        )
        .bind(&*owner.tenant)
        .bind(&*owner.caller_key)
        .fetch_optional(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        let Some((id, bytes)) = oldest else { return Ok(None) };
        // Another process may have been faster.
        let dropped =
            sqlx::query("UPDATE idempotency_records SET reply = NULL, bytes = 0 WHERE id = $1 AND reply IS NOT NULL");
        let dropped = dropped.bind(id).execute(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        Ok(Some(if dropped.rows_affected() > 0 { count(bytes) } else { 0 }))
    }

    /// Removes the records stored at that time or before; returns the caller and reply of each.
    pub async fn forget_until(&self, moment: DatabaseTime) -> Result<Vec<(RecordOwner, RemovedReply)>, StoreError> {
        let removed: Vec<(String, String, i64, Option<String>)> = sqlx::query_as(
            "DELETE FROM idempotency_records WHERE kept_since <= $1 RETURNING tenant, caller_key, bytes, object",
        )
        .bind(moment.as_microsecond())
        .fetch_all(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
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
        .map_err(|error| self.0.failed(error))?;
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
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::test_support::{fill_the_disk, free_disk, test_store};

    fn at(microsecond: i64) -> DatabaseTime {
        Timestamp::from_microsecond(microsecond).unwrap().into()
    }

    fn owner(caller: &str) -> RecordOwner {
        RecordOwner { tenant: "acme".into(), caller_key: caller.into() }
    }

    /// The reply of a row with so many bytes.
    fn row(bytes: u64) -> RemovedReply {
        RemovedReply { bytes, object: None }
    }

    async fn start(store: &Store, id: &str, caller: &str, now: i64) -> Result<bool, StoreError> {
        let owner = owner(caller);
        store.idempotency().start(StartedCall { id, owner: &owner, request: "r", runner: None }, at(now)).await
    }

    async fn outcome(store: &Store, id: &str) -> Option<RecordedOutcome> {
        store.idempotency().get(id).await.unwrap().map(|record| record.outcome)
    }

    #[tokio::test]
    async fn a_record_is_started_once_and_survives_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let store = Store::open_file(&path).await.unwrap();
        assert!(start(&store, "a", "ann", 1).await.unwrap());
        assert!(!start(&store, "a", "bob", 2).await.unwrap(), "there is one already");
        assert!(start(&store, "b", "ann", 1).await.unwrap());
        assert!(store.idempotency().end("b", KeptReply::Text("{\"n\":1.10}"), at(5)).await.unwrap());
        assert!(!store.idempotency().end("c", KeptReply::Text("{}"), at(5)).await.unwrap());
        store.close().await;
        let store = Store::open_file(&path).await.unwrap();
        assert_eq!(outcome(&store, "a").await, Some(RecordedOutcome::Unknown));
        let kept = store.idempotency().get("b").await.unwrap().unwrap();
        let expected = RecordedOutcome::Answered("{\"n\":1.10}".to_owned());
        assert_eq!((kept.request.as_str(), kept.kept_since, kept.outcome), ("r", at(5), expected));
        assert_eq!(outcome(&store, "c").await, None);
        let owned = OwnedRecords { owner: owner("ann"), records: 2, bytes: 10 };
        assert_eq!(store.idempotency().by_owner().await.unwrap(), [owned]);
    }

    #[tokio::test]
    async fn a_call_with_a_key_waits_for_the_disk_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
        let mode = async |pool| sqlx::query_scalar("PRAGMA synchronous").fetch_one(pool).await;
        let (normal, full): (i64, i64) = (1, 2);
        assert_eq!((mode(&store.durable).await.unwrap(), mode(&store.pool).await.unwrap()), (full, normal));
        assert!(start(&store, "a", "ann", 1).await.unwrap());
        assert_eq!(outcome(&store, "a").await, Some(RecordedOutcome::Unknown), "all connections see it");
        store.durable.close().await;
        assert!(start(&store, "b", "ann", 1).await.is_err(), "it is recorded there alone");
        assert!(store.idempotency().end("a", KeptReply::Nothing, at(5)).await.unwrap());
    }

    #[tokio::test]
    async fn the_least_recently_used_answered_record_of_an_owner_goes_first() {
        let store = test_store().await;
        for (now, (id, caller)) in (1..).zip([("running", "ann"), ("a", "ann"), ("b", "ann"), ("c", "bob")]) {
            start(&store, id, caller, now).await.unwrap();
        }
        for (now, id) in (10..).zip(["a", "b", "c"]) {
            store.idempotency().end(id, KeptReply::Text("12345"), at(now)).await.unwrap();
        }
        store.idempotency().record_use("a", at(20)).await.unwrap();
        assert_eq!(store.idempotency().drop_oldest_reply(&owner("ann")).await.unwrap(), Some(5));
        assert_eq!(outcome(&store, "b").await, Some(RecordedOutcome::ReplyDropped));
        assert_eq!(store.idempotency().forget_oldest(&owner("ann")).await.unwrap(), Some(row(0)), "b");
        assert_eq!(outcome(&store, "b").await, None);
        assert_eq!(store.idempotency().forget_oldest(&owner("ann")).await.unwrap(), Some(row(5)), "a");
        assert_eq!(store.idempotency().forget_oldest(&owner("ann")).await.unwrap(), None, "the other runs");
        assert_eq!(store.idempotency().drop_oldest_reply(&owner("ann")).await.unwrap(), None);
        assert_eq!(outcome(&store, "running").await, Some(RecordedOutcome::Unknown));
        assert!(outcome(&store, "c").await.is_some(), "another's stay");
    }

    #[tokio::test]
    async fn old_records_are_removed_and_counted() {
        let store = test_store().await;
        for (id, caller, now) in [("a", "ann", 1), ("b", "bob", 2), ("c", "ann", 3)] {
            start(&store, id, caller, now).await.unwrap();
        }
        store.idempotency().end("b", KeptReply::Text("123"), at(2)).await.unwrap();
        let removed = store.idempotency().forget_until(at(2)).await.unwrap();
        assert_eq!(removed, [(owner("ann"), row(0)), (owner("bob"), row(3))]);
        assert_eq!(store.idempotency().forget("c").await.unwrap(), Some(0));
        assert_eq!(store.idempotency().forget("c").await.unwrap(), None);
        assert!(store.idempotency().by_owner().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_record_names_the_object_with_its_reply_until_it_is_removed() {
        let store = test_store().await;
        let object = |name: &str| {
            let key = BlobKey::of(["replies", "tenant", name]);
            StoredBlob { key, sha256: "ab".repeat(32), bytes: 6 << 20 }
        };
        for (id, now) in [("a", 1), ("b", 2)] {
            start(&store, id, "ann", now).await.unwrap();
            assert!(store.idempotency().end(id, KeptReply::Object(&object(id)), at(now)).await.unwrap());
        }
        assert_eq!(outcome(&store, "a").await, Some(RecordedOutcome::AnsweredByObject(object("a"))));
        let owned = OwnedRecords { owner: owner("ann"), records: 2, bytes: 0 };
        assert_eq!(store.idempotency().by_owner().await.unwrap(), [owned], "bytes are those of the rows");
        assert_eq!(store.idempotency().drop_oldest_reply(&owner("ann")).await.unwrap(), None);
        let removed = |name| RemovedReply { bytes: 0, object: Some(object(name).key) };
        let oldest = store.idempotency().forget_oldest(&owner("ann")).await.unwrap();
        assert_eq!(oldest, Some(removed("a")));
        assert_eq!(store.idempotency().forget_until(at(2)).await.unwrap(), [(owner("ann"), removed("b"))]);
    }

    #[tokio::test]
    async fn on_a_full_disk_nothing_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
        fill_the_disk(&store).await;
        let owner = RecordOwner { caller_key: "x".repeat(100_000).into(), ..owner("ann") };
        let call = StartedCall { id: "a", owner: &owner, request: "r", runner: None };
        let error = store.idempotency().start(call, at(1)).await.unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
        free_disk(&store).await;
        assert_eq!(outcome(&store, "a").await, None);
        assert!(store.idempotency().start(call, at(1)).await.unwrap());
    }
}
