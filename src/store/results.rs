//! Results that are too large for a model, sealed by the caller of these functions. All moments go by the clock that
//! the processes of the store share.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::replicas::micros;
use super::{AtStore, Store, StoreError, retried};
use sekisho_outbound::blobs::{BlobKey, StoredBlob};

/// The only one who reads a result.
#[derive(Debug, Clone, Copy)]
pub struct ResultOwner<'a> {
    pub tenant: &'a str,
    pub caller_key: &'a str,
    /// A digest of the session; empty without one.
    pub session: &'a str,
}

/// A result to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewResult<'a> {
    pub handle: &'a str,
    pub owner: ResultOwner<'a>,
    pub tool: &'a str,
    pub content_type: &'a str,
    /// Before it was sealed.
    pub bytes: u64,
    pub content: &'a ResultContent,
    pub lifetime: Duration,
}

/// A sealed result, or the object that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultContent {
    Sealed(String),
    Object(StoredBlob),
}

/// A result as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResult {
    /// Empty for one that an earlier version stored.
    pub tool: String,
    pub content_type: String,
    pub content: ResultContent,
}

/// A result in a list, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedResult {
    pub handle: String,
    /// Empty for one that an earlier version stored.
    pub tool: String,
    /// Whether its call belonged to a session: then only calls of that session read it.
    pub in_session: bool,
    pub content_type: String,
    pub bytes: u64,
    pub created: Timestamp,
    pub expires: Timestamp,
}

/// Handle, tool, session, content type, bytes, created, expires.
type ListedRow = (String, String, String, String, i64, i64, i64);

/// Tool, content type, sealed text, and the object with its digest and length.
type ResultRow = (String, String, Option<String>, Option<String>, Option<String>, Option<i64>);

/// Large results of calls: the table `results`.
#[derive(Debug, Clone)]
pub struct ResultStore(pub(super) Store);

impl ResultStore {
    /// Stores a result. While the tenant's results have more than `max_bytes` together, results of the caller with the
    /// most bytes are removed, the oldest first. Returns the objects that no row names any more.
    /// Errors: [`StoreError`]; it may have been stored.
    pub async fn keep(&self, new: NewResult<'_>, max_bytes: u64) -> Result<Vec<BlobKey>, StoreError> {
        retried(|| self.try_keep(new, max_bytes)).await
    }

    async fn try_keep(&self, new: NewResult<'_>, max_bytes: u64) -> Result<Vec<BlobKey>, StoreError> {
        let mut transaction = self.0.begin().await?;
        self.insert(&mut transaction, new).await.at(&self.0)?;
        let sum = "SELECT CAST(SUM(bytes) AS BIGINT) FROM results WHERE tenant = $1";
        let sum: i64 = sqlx::query_scalar(sum).bind(new.owner.tenant).fetch_one(&mut *transaction).await.at(&self.0)?;
        let mut excess = sum.saturating_sub(i64::try_from(max_bytes).unwrap_or(i64::MAX));
        let mut objects = Vec::new();
        while excess > 0 {
            let removed = remove_oldest_of_largest(&mut transaction, new, excess).await.at(&self.0)?;
            if removed.is_empty() {
                break;
            }
            for (bytes, object) in removed {
                excess -= bytes;
                objects.extend(object.as_deref().and_then(BlobKey::parse));
            }
        }
        transaction.commit().await.at(&self.0)?;
        Ok(objects)
    }

    async fn insert(&self, connection: &mut AnyConnection, new: NewResult<'_>) -> sqlx::Result<()> {
        let now = self.0.engine.now_expression();
        let (sealed, object) = match new.content {
            ResultContent::Sealed(text) => (Some(text.as_str()), None),
            ResultContent::Object(object) => (None, Some(object)),
        };
        let insert = format!(
            "INSERT INTO results (handle, tenant, caller_key, session, tool, content_type, bytes, sealed, object,
                 object_sha256, object_bytes, created, expires)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, {now}, {now} + $12)"
        );
        sqlx::query(AssertSqlSafe(insert))
            .bind(new.handle)
            .bind(new.owner.tenant)
            .bind(new.owner.caller_key)
            .bind(new.owner.session)
            .bind(new.tool)
            .bind(new.content_type)
            .bind(signed(new.bytes))
            .bind(sealed)
            .bind(object.map(|object| object.key.to_string()))
            .bind(object.map(|object| object.sha256.as_str()))
            .bind(object.map(|object| signed(object.bytes)))
            .bind(micros(new.lifetime))
            .execute(connection)
            .await
            .map(drop)
    }

    /// The result with that handle, if it is the owner's and has not expired.
    pub async fn get(&self, handle: &str, owner: ResultOwner<'_>) -> Result<Option<StoredResult>, StoreError> {
        let sql = format!(
            "SELECT tool, content_type, sealed, object, object_sha256, object_bytes FROM results
             WHERE handle = $1 AND tenant = $2 AND caller_key = $3 AND session = $4 AND expires > {}",
            self.0.engine.now_expression()
        );
        let found: Option<ResultRow> =
            bound!(sqlx::query_as(AssertSqlSafe(sql)), handle, owner.tenant, owner.caller_key, owner.session)
                .fetch_optional(&self.0.pool)
                .await
                .at(&self.0)?;
        let Some((tool, content_type, sealed, object, sha256, bytes)) = found else { return Ok(None) };
        let content = match (sealed, object.as_deref().and_then(BlobKey::parse)) {
            (Some(text), _) => ResultContent::Sealed(text),
            (None, Some(key)) => {
                let bytes = u64::try_from(bytes.unwrap_or_default()).unwrap_or_default();
                ResultContent::Object(StoredBlob { key, sha256: sha256.unwrap_or_default(), bytes })
            }
            (None, None) => return Err(self.0.damaged(format!("the result {handle} has no content"))),
        };
        Ok(Some(StoredResult { tool, content_type, content }))
    }

    /// At most so many results of a caller, of all its sessions, the latest first; with `before`, results after that
    /// one in this order.
    pub async fn of_caller(
        &self,
        (tenant, caller_key): (&str, &str),
        before: Option<(Timestamp, &str)>,
        max: usize,
    ) -> Result<Vec<ListedResult>, StoreError> {
        let (created, handle) = before.map_or((i64::MAX, ""), |(created, handle)| (created.as_microsecond(), handle));
        let sql = format!(
            "SELECT handle, tool, session, content_type, bytes, created, expires FROM results
             WHERE tenant = $1 AND caller_key = $2 AND expires > {} AND (created < $3 OR (created = $3 AND handle < $4))
             ORDER BY created DESC, handle DESC LIMIT $5",
            self.0.engine.now_expression()
        );
        let rows: Vec<ListedRow> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(tenant)
            .bind(caller_key)
            .bind(created)
            .bind(handle)
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.into_iter().map(|row| self.listed_result(row)).collect()
    }

    fn listed_result(&self, row: ListedRow) -> Result<ListedResult, StoreError> {
        let (handle, tool, session, content_type, bytes, created, expires) = row;
        let moment = |micros: i64| {
            let moment = Timestamp::from_microsecond(micros);
            moment.map_err(|_| self.0.damaged(format!("the result {handle} has a moment out of range")))
        };
        let (created, expires) = (moment(created)?, moment(expires)?);
        let (in_session, bytes) = (!session.is_empty(), u64::try_from(bytes).unwrap_or_default());
        Ok(ListedResult { handle, tool, in_session, content_type, bytes, created, expires })
    }

    /// Whether a row names this object.
    pub async fn has_object(&self, object: &BlobKey) -> Result<bool, StoreError> {
        let rows = sqlx::query_scalar("SELECT COUNT(*) FROM results WHERE object = $1").bind(object.to_string());
        let rows: i64 = rows.fetch_one(&self.0.pool).await.at(&self.0)?;
        Ok(rows > 0)
    }

    /// Removes expired results; returns the objects that no row names any more.
    pub async fn forget_expired(&self) -> Result<Vec<BlobKey>, StoreError> {
        let sql = format!("DELETE FROM results WHERE expires <= {} RETURNING object", self.0.engine.now_expression());
        let removed: Vec<(Option<String>,)> =
            sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&self.0.pool).await.at(&self.0)?;
        Ok(removed.into_iter().filter_map(|(object,)| BlobKey::parse(&object?)).collect())
    }
}

/// Removes as many results as make up the excess, if that caller has them: thousands of small ones in one statement,
/// since other calls wait for the transaction. Never removes the new one: it is smaller than the maximum of a tenant.
async fn remove_oldest_of_largest(
    connection: &mut AnyConnection,
    new: NewResult<'_>,
    excess: i64,
) -> sqlx::Result<Vec<(i64, Option<String>)>> {
    let sql = "DELETE FROM results WHERE handle IN (
             SELECT handle FROM (
                 SELECT handle, CAST(SUM(bytes) OVER (ORDER BY created, handle) AS BIGINT) - bytes AS bytes_before
                 FROM results WHERE tenant = $1 AND handle <> $2 AND caller_key = (
                     SELECT caller_key FROM results WHERE tenant = $1 AND handle <> $2
                     GROUP BY caller_key ORDER BY SUM(bytes) DESC, caller_key LIMIT 1)
             ) AS of_largest WHERE bytes_before < $3)
         RETURNING bytes, object";
    bound!(sqlx::query_as(sql), new.owner.tenant, new.handle, excess).fetch_all(connection).await
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{age_results, test_store};

    const ANN: ResultOwner<'static> = ResultOwner { tenant: "acme", caller_key: "acme\u{1f}ann", session: "" };
    const BOB: ResultOwner<'static> = ResultOwner { caller_key: "acme\u{1f}bob", ..ANN };
    const HOUR: Duration = Duration::from_secs(3_600);

    async fn keep(store: &Store, handle: &str, owner: ResultOwner<'_>, content: &ResultContent) -> Vec<BlobKey> {
        let (tool, content_type) = ("read", "text/plain");
        let new = NewResult { handle, owner, tool, content_type, bytes: 10, content, lifetime: HOUR };
        store.results().keep(new, 30).await.unwrap()
    }

    fn text(text: &str) -> ResultContent {
        ResultContent::Sealed(text.to_owned())
    }

    fn object(name: &str) -> ResultContent {
        let key = BlobKey::of(["results", name]);
        ResultContent::Object(StoredBlob { key, sha256: "00".to_owned(), bytes: 7 })
    }

    #[tokio::test]
    async fn a_result_is_found_by_its_owner_alone() {
        let store = test_store().await;
        keep(&store, "one", ANN, &text("first")).await;
        keep(&store, "two", ANN, &object("x")).await;
        let (tool, content_type) = ("read".to_owned(), "text/plain".to_owned());
        let first = StoredResult { tool, content_type, content: text("first") };
        assert_eq!(store.results().get("one", ANN).await.unwrap(), Some(first));
        assert_eq!(store.results().get("two", ANN).await.unwrap().unwrap().content, object("x"));
        for other in [
            BOB,
            ResultOwner { session: "s", ..ANN },
            ResultOwner { tenant: "other", ..ANN },
            ResultOwner { caller_key: "other\u{1f}ann", tenant: "other", ..ANN },
        ] {
            assert_eq!(store.results().get("one", other).await.unwrap(), None, "{other:?}");
        }
        assert_eq!(store.results().get("three", ANN).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_caller_lists_its_own_of_all_sessions_the_latest_first() {
        let store = test_store().await;
        keep(&store, "a", ANN, &text("a")).await;
        age_results(&store, Duration::from_secs(60)).await;
        keep(&store, "b", ResultOwner { session: "s", ..ANN }, &object("b")).await;
        keep(&store, "c", BOB, &text("c")).await;
        let whose = (ANN.tenant, ANN.caller_key);
        let listed = store.results().of_caller(whose, None, 10).await.unwrap();
        let shown = |one: &ListedResult| (one.handle.clone(), one.tool.clone(), one.in_session, one.bytes);
        let expected = [("b".to_owned(), "read".to_owned(), true, 10), ("a".to_owned(), "read".to_owned(), false, 10)];
        assert_eq!(listed.iter().map(shown).collect::<Vec<_>>(), expected);
        assert_eq!(listed[0].expires.duration_since(listed[0].created).as_secs(), 3_600);
        let first = store.results().of_caller(whose, None, 1).await.unwrap();
        assert_eq!(first, listed[..1]);
        let rest =
            store.results().of_caller(whose, Some((first[0].created, first[0].handle.as_str())), 10).await.unwrap();
        assert_eq!(rest, listed[1..]);
        assert_eq!(store.results().of_caller(("other", ANN.caller_key), None, 10).await.unwrap(), []);
        age_results(&store, HOUR).await;
        assert_eq!(store.results().of_caller(whose, None, 10).await.unwrap(), [], "they have expired");
    }

    #[tokio::test]
    async fn the_caller_with_the_most_loses_the_oldest_and_its_object() {
        let store = test_store().await;
        for (handle, content) in [("a1", object("a1")), ("a2", text("a2"))] {
            assert_eq!(keep(&store, handle, ANN, &content).await, []);
            age_results(&store, Duration::from_secs(1)).await;
        }
        assert_eq!(keep(&store, "b1", BOB, &text("b1")).await, []);
        let removed = keep(&store, "b2", BOB, &text("b2")).await;
        assert_eq!(removed, [BlobKey::of(["results", "a1"])], "ann had more");
        assert_eq!(store.results().get("a1", ANN).await.unwrap(), None);
        for (handle, owner) in [("a2", ANN), ("b1", BOB), ("b2", BOB)] {
            assert!(store.results().get(handle, owner).await.unwrap().is_some(), "{handle}");
        }
        let elsewhere = ResultOwner { tenant: "other", caller_key: "other\u{1f}ann", ..ANN };
        assert_eq!(keep(&store, "c1", elsewhere, &text("c1")).await, [], "another tenant has its own share");
    }

    /// Other work of the store waits for it.
    #[tokio::test]
    async fn thousands_of_small_results_are_removed_for_a_large_one_in_time() {
        let store = test_store().await;
        let sql = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 20000)
             INSERT INTO results (handle, tenant, caller_key, session, content_type, bytes, sealed, created, expires)
             SELECT 'old' || CAST(n AS TEXT), $1, $2, '', 'text/plain', 10, 'x', n, 4102444800000000 FROM numbers";
        bound!(sqlx::query(sql), ANN.tenant, ANN.caller_key).execute(&store.pool).await.unwrap();
        let (content, lifetime) = (object("new"), HOUR);
        let new = NewResult {
            handle: "new",
            owner: BOB,
            tool: "large",
            content_type: "text/plain",
            bytes: 199_995,
            content: &content,
            lifetime,
        };
        assert_eq!(store.results().keep(new, 200_000).await.unwrap(), []);
        assert_eq!(store.results().get("old20000", ANN).await.unwrap(), None);
        assert!(store.results().get("new", BOB).await.unwrap().is_some());
        let new = NewResult { handle: "newer", owner: ANN, bytes: 20, ..new };
        assert_eq!(store.results().keep(new, 200_000).await.unwrap(), [BlobKey::of(["results", "new"])]);
    }

    #[tokio::test]
    async fn what_has_expired_is_not_found_and_is_removed_with_its_object() {
        let store = test_store().await;
        keep(&store, "old", ANN, &object("old")).await;
        assert!(store.results().has_object(&BlobKey::of(["results", "old"])).await.unwrap());
        assert!(!store.results().has_object(&BlobKey::of(["results", "other"])).await.unwrap());
        age_results(&store, HOUR).await;
        keep(&store, "new", ANN, &text("new")).await;
        assert_eq!(store.results().get("old", ANN).await.unwrap(), None);
        assert_eq!(store.results().forget_expired().await.unwrap(), [BlobKey::of(["results", "old"])]);
        assert_eq!(store.results().forget_expired().await.unwrap(), []);
        assert!(store.results().get("new", ANN).await.unwrap().is_some());
    }
}
