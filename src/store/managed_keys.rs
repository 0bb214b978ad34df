//! The keys that administrators manage, without their tokens.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::any::AnyRow;
use sqlx::query::Query;
use sqlx::{Any, AssertSqlSafe, Database, Row};

use super::replicas::micros;
use super::{AtStore, MAX_ROWS, Store, StoreError, parameters_of_rows, retried, stays_prepared};
use sekisho_config::Secret;
use sekisho_core::database_clock::DatabaseTime;

/// Maximum keys that count, of all tenants together: each gateway has all of them in memory.
pub const MAX_KEYS: i64 = 10_000;

/// The counter of `shared_versions` that grows with each change of a key.
const VERSION: &str = "managed_keys";

/// A key that is about to be stored.
#[derive(Debug, Clone)]
pub struct NewManagedKey {
    pub id: String,
    pub tenant: String,
    pub person: String,
    pub description: String,
    pub roles: Vec<String>,
    /// `None`: all tools.
    pub tools: Option<Vec<String>>,
    /// The digest of its token, in hex.
    pub sha256: Secret,
    pub created_by: String,
    /// The persons who have had a token of it, or of a key by which it is made.
    pub creators: Vec<String>,
    pub expires: Option<Timestamp>,
}

/// A key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    pub id: String,
    pub tenant: String,
    pub person: String,
    pub description: String,
    pub roles: Vec<String>,
    pub tools: Option<Vec<String>>,
    pub sha256: Secret,
    /// The digest of the token before the last rotation, and until when that token is accepted.
    pub previous: Option<(Secret, Timestamp)>,
    pub created: Timestamp,
    pub created_by: String,
    /// The persons who have had a token of it, or of a key by which it was made.
    pub creators: Vec<String>,
    pub expires: Option<Timestamp>,
    pub revoked: Option<Timestamp>,
    pub last_used: Option<Timestamp>,
}

impl StoredKey {
    /// Whether it was revoked or has expired.
    pub fn has_ended(&self, now: DatabaseTime) -> bool {
        self.revoked.is_some() || self.expires.is_some_and(|expires| expires <= *now)
    }
}

const COLUMNS: &str = "id, tenant, person, description, roles, tools, sha256, previous_sha256, previous_until, created, \
                       created_by, creators, expires, revoked, last_used";

/// The keys that administrators manage: the table `managed_keys`, whose version is in `shared_versions`.
#[derive(Debug, Clone)]
pub struct KeyStore(pub(super) Store);

impl KeyStore {
    /// A number that grows with each change of a key, by any process. Uses are no changes.
    pub async fn version(&self) -> Result<i64, StoreError> {
        let version = sqlx::query_scalar("SELECT version FROM shared_versions WHERE subject = $1").bind(VERSION);
        let version: Option<i64> = version.fetch_optional(&self.0.pool).await.at(&self.0)?;
        Ok(version.unwrap_or(0))
    }

    /// All keys, in no order.
    pub async fn all(&self) -> Result<Vec<StoredKey>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM managed_keys");
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.0.pool).await.at(&self.0)?;
        rows.iter().map(|row| self.key_of(row)).collect()
    }

    /// At most so many keys whose ids come after `after`, in the order of their ids; with a tenant, only keys of that
    /// tenant.
    pub async fn after(&self, after: &str, tenant: Option<&str>, max: usize) -> Result<Vec<StoredKey>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM managed_keys WHERE id > $1 AND ($2 = '' OR tenant = $2) ORDER BY id LIMIT $3"
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(after)
            .bind(tenant.unwrap_or_default())
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.iter().map(|row| self.key_of(row)).collect()
    }

    pub async fn get(&self, id: &str) -> Result<Option<StoredKey>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM managed_keys WHERE id = $1");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(id).fetch_optional(&self.0.pool).await.at(&self.0)?;
        row.map(|row| self.key_of(&row)).transpose()
    }

    /// Adds a key; `None` if there are [`MAX_KEYS`].
    /// Errors: [`StoreError`]; nothing is added then.
    pub async fn add(&self, key: &NewManagedKey) -> Result<Option<StoredKey>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "INSERT INTO managed_keys (id, tenant, person, description, roles, tools, sha256, created, created_by, creators,
                 expires)
             SELECT $1, $2, $3, $4, $5, $6, $7, {now}, $8, $9, CAST($10 AS BIGINT)
             WHERE (SELECT COUNT(*) FROM managed_keys) < {MAX_KEYS}
             RETURNING {COLUMNS}"
        );
        let added = sqlx::query(AssertSqlSafe(sql))
            .bind(&key.id)
            .bind(&key.tenant)
            .bind(&key.person)
            .bind(&key.description)
            .bind(json(&key.roles))
            .bind(key.tools.as_ref().map(|tools| json(tools)))
            .bind(key.sha256.expose())
            .bind(&key.created_by)
            .bind(json(&key.creators))
            .bind(key.expires.map(Timestamp::as_microsecond));
        self.change(added).await
    }

    /// Gives a key, as it was read, another token and other creators. The token before is accepted for `overlap` more, by the
    /// database's clock. `None` if there is no such key, or it was rotated or revoked since.
    pub async fn rotate(
        &self,
        read: &StoredKey,
        sha256: &Secret,
        creators: &[String],
        overlap: Duration,
    ) -> Result<Option<StoredKey>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "UPDATE managed_keys SET previous_sha256 = sha256, previous_until = {now} + $3, sha256 = $2, creators = $4
             WHERE id = $1 AND revoked IS NULL AND sha256 = $5 RETURNING {COLUMNS}"
        );
        let rotated = sqlx::query(AssertSqlSafe(sql))
            .bind(&read.id)
            .bind(sha256.expose())
            .bind(micros(overlap))
            .bind(json(creators))
            .bind(read.sha256.expose());
        self.change(rotated).await
    }

    /// Revokes a key, unless it was revoked before. `None` if there is no such key.
    /// Errors: [`StoreError`]; it may have been revoked.
    pub async fn revoke(&self, id: &str) -> Result<Option<StoredKey>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql =
            format!("UPDATE managed_keys SET revoked = COALESCE(revoked, {now}) WHERE id = $1 RETURNING {COLUMNS}");
        self.change(sqlx::query(AssertSqlSafe(sql)).bind(id)).await
    }

    /// Records when keys were used last.
    /// Errors: [`StoreError`]. The uses recorded until then stay recorded.
    pub async fn record_uses(&self, uses: &[(String, DatabaseTime)]) -> Result<(), StoreError> {
        for uses in uses.chunks(MAX_ROWS) {
            retried(|| self.try_record_uses(uses)).await?;
        }
        Ok(())
    }

    /// Removes the keys that expired or were revoked that long ago.
    pub async fn forget_ended_for(&self, duration: Duration) -> Result<(), StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("DELETE FROM managed_keys WHERE expires <= {now} - $1 OR revoked <= {now} - $1");
        sqlx::query(AssertSqlSafe(sql)).bind(micros(duration)).execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    async fn try_record_uses(&self, uses: &[(String, DatabaseTime)]) -> Result<(), StoreError> {
        // Both engines name the columns of VALUES so.
        let sql = format!(
            "UPDATE managed_keys SET last_used = used.column2 FROM (VALUES {}) AS used
             WHERE managed_keys.id = used.column1 AND (last_used IS NULL OR last_used < used.column2)",
            parameters_of_rows(uses.len(), "", 2)
        );
        let mut statement = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(uses.len()));
        for (id, used) in uses {
            statement = statement.bind(id).bind(used.as_microsecond());
        }
        statement.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// Runs a statement that changes one key, and lets other replicas know.
    async fn change(
        &self,
        statement: Query<'_, Any, <Any as Database>::Arguments>,
    ) -> Result<Option<StoredKey>, StoreError> {
        // A key that was revoked is not accepted again after a crash of the machine.
        let mut transaction = self.0.durable.begin_with(self.0.engine.begin_statement()).await.at(&self.0)?;
        let changed = statement.fetch_optional(&mut *transaction).await.at(&self.0)?;
        self.0.count_change(&mut transaction, VERSION).await?;
        transaction.commit().await.at(&self.0)?;
        changed.map(|row| self.key_of(&row)).transpose()
    }

    /// A row with the columns [`COLUMNS`].
    fn key_of(&self, row: &AnyRow) -> Result<StoredKey, StoreError> {
        let text = |column: &str| row.try_get::<String, _>(column).at(&self.0);
        let option = |column: &str| row.try_get::<Option<String>, _>(column).at(&self.0);
        let moment = |column: &str| {
            let moment = row.try_get::<Option<i64>, _>(column).at(&self.0)?;
            moment.map(|moment| Ok::<_, StoreError>(*self.0.moment(moment)?)).transpose()
        };
        let (id, created_by) = (text("id")?, text("created_by")?);
        let list = |text: &str| {
            serde_json::from_str(text).map_err(|error| self.0.damaged(format!("a list of the key {id} is {error}")))
        };
        let creators = option("creators")?.as_deref().map(list).transpose()?;
        Ok(StoredKey {
            roles: list(&text("roles")?)?,
            tools: option("tools")?.as_deref().map(list).transpose()?,
            previous: option("previous_sha256")?.map(Secret::new).zip(moment("previous_until")?),
            created: *self.0.moment(row.try_get("created").at(&self.0)?)?,
            creators: creators.unwrap_or_else(|| creators_of_older(&created_by)),
            created_by,
            expires: moment("expires")?,
            revoked: moment("revoked")?,
            last_used: moment("last_used")?,
            id,
            tenant: text("tenant")?,
            person: text("person")?,
            description: text("description")?,
            sha256: Secret::new(text("sha256")?),
        })
    }
}

/// The creators of a key that an older program stored. The user `local` of the Unix socket is no other person than the
/// key's.
fn creators_of_older(created_by: &str) -> Vec<String> {
    let id = created_by.split_once('/').map_or(created_by, |(_tenant, id)| id);
    Some(id).filter(|_| created_by != "default/local").map(str::to_owned).into_iter().collect()
}

fn json(texts: &[String]) -> String {
    serde_json::Value::from(texts).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn key(id: &str, tenant: &str) -> NewManagedKey {
        NewManagedKey {
            id: id.into(),
            tenant: tenant.into(),
            person: "ann".into(),
            description: "nightly report".into(),
            roles: vec!["operator".into()],
            tools: Some(vec!["crm__*".into()]),
            sha256: Secret::new("first"),
            created_by: "default/admin".into(),
            creators: vec!["admin".into()],
            expires: None,
        }
    }

    #[tokio::test]
    async fn a_change_of_a_key_waits_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
        let added = store.keys().add(&key("a", "acme")).await.unwrap().unwrap();
        store.durable.close().await;
        assert!(store.keys().add(&key("b", "acme")).await.is_err());
        assert!(store.keys().rotate(&added, &Secret::new("second"), &[], HOUR).await.is_err());
        assert!(store.keys().revoke("a").await.is_err());
        assert_eq!(store.keys().get("a").await.unwrap(), Some(added), "it is written there alone");
    }

    #[tokio::test]
    async fn keys_are_added_listed_by_tenant_rotated_and_revoked_each_with_a_version() {
        let store = test_store().await;
        assert_eq!(store.keys().version().await.unwrap(), 0);
        let expires = Timestamp::now() + HOUR;
        let added = store.keys().add(&NewManagedKey { expires: Some(expires), ..key("a", "acme") }).await;
        let added = added.unwrap().unwrap();
        assert_eq!((&*added.tenant, &*added.roles, added.last_used), ("acme", &["operator".to_owned()][..], None));
        assert_eq!(added.expires.map(Timestamp::as_microsecond), Some(expires.as_microsecond()));
        assert_eq!(added.tools.as_deref(), Some(&["crm__*".to_owned()][..]));
        assert_eq!(added.creators, ["admin"]);
        let all_tools = NewManagedKey { tools: None, ..key("b", "globex") };
        assert_eq!(store.keys().add(&all_tools).await.unwrap().unwrap().tools, None);
        assert!(store.keys().add(&key("a", "acme")).await.is_err(), "an id is used once");
        let ids = |keys: Vec<StoredKey>| keys.into_iter().map(|key| key.id).collect::<Vec<_>>();
        assert_eq!(ids(store.keys().after("", None, 1).await.unwrap()), ["a"]);
        assert_eq!(ids(store.keys().after("a", None, 10).await.unwrap()), ["b"]);
        assert_eq!(ids(store.keys().after("", Some("globex"), 10).await.unwrap()), ["b"]);

        let both = ["admin".to_owned(), "eve".to_owned()];
        let rotated = store.keys().rotate(&added, &Secret::new("second"), &both, HOUR).await.unwrap().unwrap();
        assert_eq!(rotated.creators, both);
        let late = store.keys().rotate(&added, &Secret::new("other"), &[], HOUR).await.unwrap();
        assert_eq!(late, None, "another request has rotated it");
        assert_eq!(rotated.sha256.expose(), "second");
        let (before, until) = rotated.previous.clone().unwrap();
        assert_eq!(before.expose(), "first");
        assert!(until > rotated.created && until <= rotated.created + HOUR + HOUR, "{until}");
        let revoked = store.keys().revoke("a").await.unwrap().unwrap();
        assert!(revoked.revoked.is_some());
        assert_eq!(store.keys().revoke("a").await.unwrap().unwrap().revoked, revoked.revoked);
        assert_eq!(store.keys().rotate(&rotated, &Secret::new("third"), &both, HOUR).await.unwrap(), None);
        assert_eq!(store.keys().revoke("c").await.unwrap(), None);
        assert!(store.keys().version().await.unwrap() >= 4);
        assert_eq!(store.keys().get("a").await.unwrap().unwrap().sha256.expose(), "second");
    }

    /// Programs of the version before write no creators.
    #[tokio::test]
    async fn the_creator_of_an_older_key_is_who_created_it() {
        let store = test_store().await;
        for (by, expected) in
            [("acme/mallory", &["mallory"][..]), ("default/local", &[]), ("acme/a/b", &["a/b"]), ("odd", &["odd"])]
        {
            store.keys().add(&NewManagedKey { created_by: by.into(), ..key(by, "acme") }).await.unwrap();
            let older = sqlx::query("UPDATE managed_keys SET creators = NULL WHERE id = $1").bind(by);
            older.execute(&store.pool).await.unwrap();
            assert_eq!(store.keys().get(by).await.unwrap().unwrap().creators, expected, "{by}");
        }
    }

    #[tokio::test]
    async fn uses_are_recorded_without_a_version_and_never_go_back() {
        let store = test_store().await;
        for id in ["a", "b"] {
            store.keys().add(&key(id, "acme")).await.unwrap();
        }
        let version = store.keys().version().await.unwrap();
        let moment = |second| DatabaseTime::from(Timestamp::from_second(second).unwrap());
        store.keys().record_uses(&[("a".into(), moment(20)), ("b".into(), moment(30))]).await.unwrap();
        store.keys().record_uses(&[("a".into(), moment(10)), ("gone".into(), moment(10))]).await.unwrap();
        let used = store.keys().after("", None, 10).await.unwrap().into_iter().map(|key| key.last_used);
        assert_eq!(used.collect::<Vec<_>>(), [Some(*moment(20)), Some(*moment(30))]);
        assert_eq!(store.keys().version().await.unwrap(), version);
    }

    #[tokio::test]
    async fn keys_that_ended_long_ago_are_removed() {
        let store = test_store().await;
        let expired = NewManagedKey { expires: Some(Timestamp::now() - HOUR - HOUR), ..key("expired", "acme") };
        store.keys().add(&expired).await.unwrap();
        for id in ["active", "revoked"] {
            store.keys().add(&key(id, "acme")).await.unwrap();
        }
        store.keys().revoke("revoked").await.unwrap();
        store.keys().forget_ended_for(HOUR).await.unwrap();
        let kept = store.keys().after("", None, 10).await.unwrap().into_iter().map(|key| key.id);
        assert_eq!(kept.collect::<Vec<_>>(), ["active", "revoked"]);
    }
}
