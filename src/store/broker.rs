//! The authorization server of `auth.broker`: the keys that sign its tokens, and its clients. Codes and sessions are in files of their
//! own. All moments go by the clock that the processes of the store share.

mod codes;
mod sessions;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use super::replicas::micros;
use super::{Store, StoreError, retried};
use sekisho_core::database_clock::DatabaseTime;

pub use self::codes::PresentedCode;
pub use self::sessions::{BrokerSession, NewBrokerSession};

/// Keys that are published. A further one is made where none opens.
const MAX_KEYS: i64 = 8;

/// Clients of all networks. The oldest that nobody signed in with go for a further one.
const MAX_CLIENTS: i64 = 10_000;

/// Clients that one network may register in an hour.
const MAX_CLIENTS_OF_SOURCE: i64 = 100;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How long a client is kept that nobody signs in with.
const UNUSED_TTL: Duration = Duration::from_secs(90 * 24 * 3_600);

/// A key that signs tokens.
#[derive(Debug, Clone)]
pub struct StoredBrokerKey {
    pub id: String,
    /// In Base64, as in a JSON Web Key.
    pub public_key: String,
    pub sealed: String,
}

/// The tables `broker_keys`, `broker_clients`, `broker_codes` and `broker_sessions`.
#[derive(Debug, Clone)]
pub struct BrokerStore(pub(super) Store);

impl BrokerStore {
    /// The time by the clock of the store.
    pub fn now(&self) -> DatabaseTime {
        self.0.now()
    }

    /// The keys, the newest first.
    pub async fn keys(&self) -> Result<Vec<StoredBrokerKey>, StoreError> {
        let sql = "SELECT id, public_key, sealed FROM broker_keys ORDER BY created DESC, id LIMIT $1";
        let rows = sqlx::query(sql).bind(MAX_KEYS).fetch_all(&self.0.pool).await;
        let rows = rows.map_err(|error| self.0.failed(error))?;
        rows.iter().map(|row| read_key(row).map_err(|error| self.0.failed(error))).collect()
    }

    /// Adds a key, in place of the oldest where there are many.
    pub async fn add_key(&self, key: &StoredBrokerKey) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let sql = format!(
            "INSERT INTO broker_keys (id, public_key, sealed, created) VALUES ($1, $2, $3, {})",
            self.0.engine.now_expression()
        );
        let added = sqlx::query(AssertSqlSafe(sql)).bind(&key.id).bind(&key.public_key).bind(&key.sealed);
        added.execute(&self.0.pool).await.map_err(failed)?;
        let sql = "DELETE FROM broker_keys
                   WHERE id NOT IN (SELECT id FROM broker_keys ORDER BY created DESC, id LIMIT $1)";
        sqlx::query(sql).bind(MAX_KEYS).execute(&self.0.pool).await.map(drop).map_err(failed)
    }

    /// A client, as its text was stored, and how long ago.
    pub async fn client(&self, id: &str) -> Result<Option<(String, Duration)>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT client, {now} - created AS age FROM broker_clients WHERE id = $1");
        let row = sqlx::query(AssertSqlSafe(sql)).bind(id).fetch_optional(&self.0.pool).await;
        let Some(row) = row.map_err(|error| self.0.failed(error))? else { return Ok(None) };
        let read = || Ok((row.try_get("client")?, row.try_get("age")?));
        let read: sqlx::Result<(String, i64)> = read();
        let (client, age) = read.map_err(|error| self.0.failed(error))?;
        Ok(Some((client, Duration::from_micros(u64::try_from(age).unwrap_or_default()))))
    }

    /// Stores a client, or another text of one. False: there are too many, of its network or in all.
    pub async fn put_client(&self, id: &str, client: &str, source: &str) -> Result<bool, StoreError> {
        retried(|| self.try_put_client(id, client, source)).await
    }

    async fn try_put_client(&self, id: &str, client: &str, source: &str) -> Result<bool, StoreError> {
        let failed = |error| self.0.failed(error);
        let now = self.0.engine.now_expression();
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        let ended =
            format!("DELETE FROM broker_clients WHERE (used IS NULL AND created <= {now} - $1) OR used <= {now} - $2");
        let ended = sqlx::query(AssertSqlSafe(ended)).bind(micros(DAY)).bind(micros(UNUSED_TTL));
        ended.execute(&mut *transaction).await.map_err(failed)?;
        // A document that was fetched again is no further client.
        let update = format!("UPDATE broker_clients SET client = $2, created = {now} WHERE id = $1");
        let update = sqlx::query(AssertSqlSafe(update)).bind(id).bind(client);
        if update.execute(&mut *transaction).await.map_err(failed)?.rows_affected() > 0 {
            transaction.commit().await.map_err(failed)?;
            return Ok(true);
        }
        let insert = format!(
            "INSERT INTO broker_clients (id, client, source, created) VALUES ($1, $2, $3, {now})
             ON CONFLICT (id) DO UPDATE SET client = excluded.client"
        );
        let insert = sqlx::query(AssertSqlSafe(insert)).bind(id).bind(client).bind(source);
        insert.execute(&mut *transaction).await.map_err(failed)?;
        let recent = format!("SELECT COUNT(*) FROM broker_clients WHERE source = $1 AND created > {now} - $2");
        let recent = sqlx::query_scalar(AssertSqlSafe(recent)).bind(source).bind(micros(HOUR));
        let recent: i64 = recent.fetch_one(&mut *transaction).await.map_err(failed)?;
        let all = sqlx::query_scalar("SELECT COUNT(*) FROM broker_clients");
        let all: i64 = all.fetch_one(&mut *transaction).await.map_err(failed)?;
        let mut excess = all - MAX_CLIENTS;
        if excess > 0 {
            let sql = "DELETE FROM broker_clients WHERE id IN
                       (SELECT id FROM broker_clients WHERE used IS NULL AND id <> $1 ORDER BY created, id LIMIT $2)";
            let gone = sqlx::query(sql).bind(id).bind(excess).execute(&mut *transaction).await.map_err(failed)?;
            excess -= i64::try_from(gone.rows_affected()).unwrap_or(i64::MAX);
        }
        if recent > MAX_CLIENTS_OF_SOURCE || excess > 0 {
            transaction.rollback().await.map_err(failed)?;
            return Ok(false);
        }
        transaction.commit().await.map_err(failed)?;
        Ok(true)
    }

    /// Writes that somebody signs in with a client now.
    pub async fn use_client(&self, id: &str) -> Result<(), StoreError> {
        let sql = format!("UPDATE broker_clients SET used = {} WHERE id = $1", self.0.engine.now_expression());
        let used = sqlx::query(AssertSqlSafe(sql)).bind(id).execute(&self.0.pool).await;
        used.map(drop).map_err(|error| self.0.failed(error))
    }
}

fn read_key(row: &AnyRow) -> sqlx::Result<StoredBrokerKey> {
    Ok(StoredBrokerKey {
        id: row.try_get("id")?,
        public_key: row.try_get("public_key")?,
        sealed: row.try_get("sealed")?,
    })
}
