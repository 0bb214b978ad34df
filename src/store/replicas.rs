//! The gateways that share the database as replicas. Their moments go by the database's clock.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::{Store, StoreError};

/// The report of a replica about itself with each heartbeat.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaIdentity<'a> {
    pub id: &'a str,
    pub host: &'a str,
    pub version: &'a str,
    /// Digest of the configuration.
    pub configuration: &'a str,
    /// Version of the policy set.
    pub policies: &'a str,
    /// The address at which it takes requests of others, if it does.
    pub address: Option<SocketAddr>,
    /// JSON: the names of the components that do not work.
    pub degraded: &'a str,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// By the database's clock.
    pub now: Timestamp,
    /// How often an administrator released its leases.
    pub releases: i64,
    /// All replicas that did not leave, this replica included.
    pub replicas: Vec<StoredReplica>,
}

/// A replica as it last said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredReplica {
    pub id: String,
    pub host: String,
    pub version: String,
    pub configuration: String,
    pub policies: String,
    pub address: Option<SocketAddr>,
    /// JSON.
    pub degraded: String,
    pub started: Timestamp,
    pub heartbeat: Timestamp,
    /// Whether its heartbeat is recent enough.
    pub is_live: bool,
}

/// In the order of the columns.
type Row = (String, String, String, String, String, Option<String>, String, i64, i64, i64);

/// The gateways that share the database: the table `replicas`.
#[derive(Debug, Clone)]
pub struct ReplicaStore(pub(super) Store);

impl ReplicaStore {
    /// Registers a replica, or records that it is still there.
    pub async fn beat(&self, replica: ReplicaIdentity<'_>, lost_after: Duration) -> Result<Heartbeat, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "INSERT INTO replicas
                 (id, host, version, configuration, policies, address, degraded, started, heartbeat, live_since)
             VALUES ($1, $2, $3, $4, $5, $6, $7, {now}, {now}, {now})
             ON CONFLICT (id) DO UPDATE SET live_since = CASE
                 WHEN replicas.heartbeat > {now} - CAST($8 AS BIGINT) THEN replicas.live_since ELSE {now} END,
             configuration = excluded.configuration, policies = excluded.policies, address = excluded.address,
             degraded = excluded.degraded, heartbeat = excluded.heartbeat RETURNING heartbeat, releases"
        );
        let (now, releases): (i64, i64) = sqlx::query_as(AssertSqlSafe(sql))
            .bind(replica.id)
            .bind(replica.host)
            .bind(replica.version)
            .bind(replica.configuration)
            .bind(replica.policies)
            .bind(replica.address.map(|address| address.to_string()))
            .bind(replica.degraded)
            .bind(micros(lost_after))
            .fetch_one(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(Heartbeat { now: *self.0.moment(now)?, releases, replicas: self.list(lost_after).await? })
    }

    /// All replicas that did not leave, the one started first at the beginning.
    pub async fn list(&self, lost_after: Duration) -> Result<Vec<StoredReplica>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!(
            "SELECT id, host, version, configuration, policies, address, degraded, started, heartbeat,
             CASE WHEN heartbeat > {now} - $1 THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END
             FROM replicas ORDER BY started, id"
        );
        let rows: Vec<Row> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(micros(lost_after))
            .fetch_all(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        let replicas = rows.into_iter().map(
            |(id, host, version, configuration, policies, address, degraded, started, heartbeat, is_live)| -> Result<_, StoreError> {
                let (started, heartbeat) = (*self.0.moment(started)?, *self.0.moment(heartbeat)?);
                let (address, is_live) = (parsed(&address), is_live == 1);
                Ok(StoredReplica {
                    id,
                    host,
                    version,
                    configuration,
                    policies,
                    address,
                    degraded,
                    started,
                    heartbeat,
                    is_live,
                })
            },
        );
        replicas.collect()
    }

    /// Whether a replica is there.
    pub async fn is_live(&self, id: &str, lost_after: Duration) -> Result<bool, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT COUNT(*) FROM replicas WHERE id = $1 AND heartbeat > {now} - $2");
        let found = sqlx::query_scalar(AssertSqlSafe(sql)).bind(id).bind(micros(lost_after)).fetch_one(&self.0.pool);
        found.await.map(|found: i64| found > 0).map_err(|error| self.0.failed(error))
    }

    /// Where a live replica takes requests of others; `None` if it is lost, has left or takes none.
    pub async fn address_of(&self, id: &str, lost_after: Duration) -> Result<Option<SocketAddr>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT address FROM replicas WHERE id = $1 AND heartbeat > {now} - $2");
        let found =
            sqlx::query_scalar(AssertSqlSafe(sql)).bind(id).bind(micros(lost_after)).fetch_optional(&self.0.pool);
        let found: Option<Option<String>> = found.await.map_err(|error| self.0.failed(error))?;
        Ok(found.and_then(|address| parsed(&address)))
    }

    /// Removes a replica that stops.
    ///
    /// # Errors
    /// [`StoreError`]; it counts as lost in time then.
    pub async fn remove(&self, id: &str) -> Result<(), StoreError> {
        let removed = sqlx::query("DELETE FROM replicas WHERE id = $1").bind(id).execute(&self.0.pool).await;
        removed.map(drop).map_err(|error| self.0.failed(error))
    }

    /// Removes the replicas that had no heartbeat for that long.
    pub async fn forget_lost_for(&self, duration: Duration) -> Result<(), StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("DELETE FROM replicas WHERE heartbeat <= {now} - $1");
        let removed = sqlx::query(AssertSqlSafe(sql)).bind(micros(duration)).execute(&self.0.pool).await;
        removed.map(drop).map_err(|error| self.0.failed(error))
    }
}

fn parsed(address: &Option<String>) -> Option<SocketAddr> {
    address.as_deref()?.parse().ok()
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;

    const LOST_AFTER: Duration = Duration::from_secs(12);

    fn replica<'a>(id: &'a str, configuration: &'a str) -> ReplicaIdentity<'a> {
        let degraded = "[\"mcp:x\"]";
        ReplicaIdentity { id, host: "host", version: "1", configuration, policies: "p", address: None, degraded }
    }

    #[tokio::test]
    async fn replicas_are_counted_while_their_heartbeat_is_recent() {
        let store = test_store().await;
        let first = store.replicas().beat(replica("a", "one"), LOST_AFTER).await.unwrap();
        assert_eq!(first.replicas.iter().map(|one| &*one.degraded).collect::<Vec<_>>(), ["[\"mcp:x\"]"]);
        assert!(first.now.duration_since(Timestamp::now()).abs() < jiff::SignedDuration::from_mins(5), "{first:?}");
        let second = store.replicas().beat(replica("b", "two"), LOST_AFTER).await.unwrap();
        assert_eq!(second.replicas.iter().map(|one| &*one.configuration).collect::<Vec<_>>(), ["one", "two"]);
        // A heartbeat changes the report, and not the start.
        store.replicas().beat(replica("a", "two"), LOST_AFTER).await.unwrap();
        let listed = store.replicas().list(LOST_AFTER).await.unwrap();
        assert_eq!(listed.iter().map(|one| (&*one.id, one.is_live)).collect::<Vec<_>>(), [("a", true), ("b", true)]);
        assert_eq!((&*listed[0].configuration, listed[0].started), ("two", first.now));
        assert!(listed[0].heartbeat >= second.now);
        assert!(listed.iter().all(|one| one.address.is_none()));
        let address = Some(SocketAddr::from(([10, 0, 0, 3], 8790)));
        let found =
            store.replicas().beat(ReplicaIdentity { address, ..replica("a", "two") }, LOST_AFTER).await.unwrap();
        assert_eq!(found.replicas[0].address, address);
        assert_eq!(store.replicas().address_of("a", LOST_AFTER).await.unwrap(), address);
        assert_eq!(store.replicas().address_of("b", LOST_AFTER).await.unwrap(), None);
        assert!(store.replicas().is_live("a", LOST_AFTER).await.unwrap());
        assert!(!store.replicas().is_live("c", LOST_AFTER).await.unwrap());
        sqlx::query("UPDATE replicas SET heartbeat = heartbeat - 13000000 WHERE id = 'a'")
            .execute(&store.pool)
            .await
            .unwrap();
        let third = store.replicas().beat(replica("b", "two"), LOST_AFTER).await.unwrap();
        assert_eq!(third.replicas.iter().map(|one| one.is_live).collect::<Vec<_>>(), [false, true]);
        assert!(!store.replicas().list(LOST_AFTER).await.unwrap()[0].is_live, "it is lost, and listed");
        assert!(!store.replicas().is_live("a", LOST_AFTER).await.unwrap());
        assert_eq!(store.replicas().address_of("a", LOST_AFTER).await.unwrap(), None);
        store.replicas().forget_lost_for(LOST_AFTER).await.unwrap();
        store.replicas().remove("b").await.unwrap();
        store.replicas().remove("b").await.unwrap();
        assert!(store.replicas().list(LOST_AFTER).await.unwrap().is_empty());
    }
}
