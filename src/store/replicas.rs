//! The gateways that share the database as replicas, and the rule by which one of them is lost. Their moments go by the
//! database's clock.

use std::net::SocketAddr;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::{AtStore, Engine, Store, StoreError};

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
    /// Registers a replica, or records that it is still there. Half of `lost_after` without a heartbeat is a gap: another
    /// replica, whose last heartbeat was up to one interval earlier, is then not lost yet.
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
            .bind(micros(lost_after / 2))
            .fetch_one(&self.0.pool)
            .await
            .at(&self.0)?;
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
        let rows: Vec<Row> =
            sqlx::query_as(AssertSqlSafe(sql)).bind(micros(lost_after)).fetch_all(&self.0.pool).await.at(&self.0)?;
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

    /// Whether a replica is lost, so that `taker` may take its work.
    pub async fn is_lost(&self, id: &str, taker: &str, lost_after: Duration) -> Result<bool, StoreError> {
        let lost = self.0.engine.is_lost("$1", ("$2", "$3"));
        let sql = format!("SELECT CASE WHEN {lost} THEN CAST(1 AS BIGINT) ELSE CAST(0 AS BIGINT) END");
        let found = sqlx::query_scalar(AssertSqlSafe(sql)).bind(id).bind(taker).bind(micros(lost_after));
        found.fetch_one(&self.0.pool).await.map(|found: i64| found > 0).at(&self.0)
    }

    /// Where a live replica takes requests of others; `None` if it is lost, has left or takes none.
    pub async fn address_of(&self, id: &str, lost_after: Duration) -> Result<Option<SocketAddr>, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT address FROM replicas WHERE id = $1 AND heartbeat > {now} - $2");
        let found = bound!(sqlx::query_scalar(AssertSqlSafe(sql)), id, micros(lost_after)).fetch_optional(&self.0.pool);
        let found: Option<Option<String>> = found.await.at(&self.0)?;
        Ok(found.and_then(|address| parsed(&address)))
    }

    /// Removes a replica that stops.
    /// Errors: [`StoreError`]; it counts as lost in time then.
    pub async fn remove(&self, id: &str) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM replicas WHERE id = $1").bind(id).execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// Removes the replicas that are lost to `taker` and had no heartbeat for so much longer.
    pub async fn forget_lost_for(
        &self,
        duration: Duration,
        taker: &str,
        lost_after: Duration,
    ) -> Result<(), StoreError> {
        let (now, lost) = (self.0.engine.now_expression(), self.0.engine.is_lost("replicas.id", ("$2", "$3")));
        let sql = format!("DELETE FROM replicas WHERE heartbeat <= {now} - $1 AND {lost}");
        let removed = sqlx::query(AssertSqlSafe(sql)).bind(micros(duration)).bind(taker).bind(micros(lost_after));
        removed.execute(&self.0.pool).await.map(drop).at(&self.0)
    }
}

impl Engine {
    /// The condition that a replica is lost, so that `taker` may take its work. Each statement that takes work has it. The
    /// arguments are expressions: two ids, and microseconds.
    ///
    /// A replica without a row has left. After the database was away the heartbeats of all replicas are old, and the first one
    /// that is back would find the others lost. So a taker that is a replica finds others lost only while its own heartbeats
    /// have had no gap for as long as it takes to be lost: a live replica has had several by then. A process that is no
    /// replica has no heartbeats, and goes by the others' heartbeats.
    pub(super) fn is_lost(self, replica: &str, (taker, lost_after): (&str, &str)) -> String {
        let recently = format!("{} - CAST({lost_after} AS BIGINT)", self.now_expression());
        format!(
            "(NOT EXISTS (SELECT 1 FROM replicas AS found WHERE found.id = {replica} AND (found.heartbeat > {recently}
                  OR EXISTS (SELECT 1 FROM replicas AS taker WHERE taker.id = {taker}
                             AND (taker.heartbeat <= {recently} OR taker.live_since > {recently})))))"
        )
    }

    /// The condition that the lease of the row `w` of `work` was not renewed for as long as it takes to be lost, or that its replica has
    /// left: one that was without the database may take a thing before its next heartbeat, and counts as lost until then.
    pub(super) fn is_unrenewed(self, lease: &str, lost_after: &str) -> String {
        format!(
            "(w.held_until <= {} + {lease} - {lost_after} OR NOT EXISTS (SELECT 1 FROM replicas AS r WHERE r.id = w.replica))",
            self.now_expression()
        )
    }
}

fn parsed(address: &Option<String>) -> Option<SocketAddr> {
    address.as_deref()?.parse().ok()
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
