//! The destinations that calls have reached, each by a hash. All moments go by the clock that the processes of the store
//! share.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::replicas::micros;
use super::{AtStore, MAX_ROWS, Store, StoreError, retried, stays_prepared};

/// Maximum destinations of a tenant; the sweep removes those that were used the longest ago.
pub const MAX_DESTINATIONS_OF_TENANT: i64 = 100_000;

/// A destination that a call reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowDestination {
    pub tenant: String,
    /// Empty: known for all callers of the tenant.
    pub caller_key: String,
    /// Empty: known for all tools.
    pub tool: String,
    /// Empty, as the hash, for a call of the tool itself.
    pub member: String,
    pub hash: String,
}

impl FlowDestination {
    /// Its name within its tenant, without the destination itself.
    pub fn key(&self) -> String {
        format!("{} {} {}", self.caller_key, self.tool, self.hash)
    }
}

/// A destination as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFlowDestination {
    pub destination: FlowDestination,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub expires: Timestamp,
}

/// Tenant, caller, tool, member, hash, and the three moments.
type Row = (String, String, String, String, String, i64, i64, i64);

/// As [`FlowDestination::key`].
const KEY: &str = "(caller_key || ' ' || tool || ' ' || hash)";

/// Known destinations: the table `flow_destinations`.
#[derive(Debug, Clone)]
pub struct FlowDestinationStore(pub(super) Store);

impl FlowDestinationStore {
    /// Adds destinations, each at most once, or lets them be known for longer.
    /// Errors: [`StoreError`]. Of several hundred, some may have been added.
    pub async fn learn(&self, destinations: &[FlowDestination], lifetime: Duration) -> Result<(), StoreError> {
        for destinations in destinations.chunks(MAX_ROWS) {
            retried(|| self.try_learn(destinations, lifetime)).await?;
        }
        Ok(())
    }

    async fn try_learn(&self, destinations: &[FlowDestination], lifetime: Duration) -> Result<(), StoreError> {
        let (now, lifetime) = (self.0.engine.now_expression(), micros(lifetime));
        let row = |row: usize| {
            let first = row * 5;
            let [tenant, caller, tool, member, hash] = [1, 2, 3, 4, 5].map(|column| format!("${}", first + column));
            format!("({tenant}, {caller}, {tool}, {member}, {hash}, {now}, {now}, {now} + {lifetime})")
        };
        let rows = (0..destinations.len()).map(row).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "INSERT INTO flow_destinations (tenant, caller_key, tool, member, hash, first_seen, last_seen, expires)
             VALUES {rows}
             ON CONFLICT (tenant, caller_key, tool, hash)
             DO UPDATE SET last_seen = excluded.last_seen, expires = excluded.expires"
        );
        let mut statement = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(destinations.len()));
        for FlowDestination { tenant, caller_key, tool, member, hash } in destinations {
            statement = statement.bind(tenant).bind(caller_key).bind(tool).bind(member).bind(hash);
        }
        statement.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    /// The hashes among `hashes` that are known for one of two tools; an empty one stands for the tool itself. At most
    /// some hundred.
    pub async fn known(
        &self,
        (tenant, caller_key): (&str, &str),
        tools: [&str; 2],
        hashes: &[&str],
    ) -> Result<Vec<String>, StoreError> {
        let parameters = (5..5 + hashes.len()).map(|parameter| format!("${parameter}")).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "SELECT hash FROM flow_destinations
             WHERE tenant = $1 AND caller_key = $2 AND tool IN ($3, $4) AND hash IN ({parameters}) AND expires > {}",
            self.0.engine.now_expression()
        );
        let mut statement = sqlx::query_as(AssertSqlSafe(sql)).persistent(stays_prepared(hashes.len()));
        statement = statement.bind(tenant).bind(caller_key).bind(tools[0]).bind(tools[1]);
        for hash in hashes {
            statement = statement.bind(*hash);
        }
        let known: Vec<(String,)> = statement.fetch_all(&self.0.pool).await.at(&self.0)?;
        Ok(known.into_iter().map(|(hash,)| hash).collect())
    }

    /// The destinations of a tenant, those that were used last first. `after`: when the last one of the page before was
    /// used, and its key.
    pub async fn of_tenant(
        &self,
        tenant: &str,
        after: Option<(Timestamp, &str)>,
        max: usize,
    ) -> Result<Vec<StoredFlowDestination>, StoreError> {
        let (last_seen, key) = after.map_or((i64::MAX, ""), |(moment, key)| (moment.as_microsecond(), key));
        let sql = format!(
            "SELECT tenant, caller_key, tool, member, hash, first_seen, last_seen, expires FROM flow_destinations
             WHERE tenant = $1 AND expires > {now} AND (last_seen < $2 OR (last_seen = $2 AND {KEY} > $3))
             ORDER BY last_seen DESC, {KEY} LIMIT $4",
            now = self.0.engine.now_expression()
        );
        let rows: Vec<Row> =
            bound!(sqlx::query_as(AssertSqlSafe(sql)), tenant, last_seen, key, i64::try_from(max).unwrap_or(i64::MAX))
                .fetch_all(&self.0.pool)
                .await
                .at(&self.0)?;
        rows.into_iter().map(|row| self.stored(row)).collect()
    }

    fn stored(&self, row: Row) -> Result<StoredFlowDestination, StoreError> {
        let (tenant, caller_key, tool, member, hash, first_seen, last_seen, expires) = row;
        let destination = FlowDestination { tenant, caller_key, tool, member, hash };
        let (first_seen, last_seen) = (*self.0.moment(first_seen)?, *self.0.moment(last_seen)?);
        Ok(StoredFlowDestination { destination, first_seen, last_seen, expires: *self.0.moment(expires)? })
    }

    /// Removes a destination; whether it was there.
    pub async fn forget(&self, destination: &FlowDestination) -> Result<bool, StoreError> {
        let sql = "DELETE FROM flow_destinations WHERE tenant = $1 AND caller_key = $2 AND tool = $3 AND hash = $4";
        let removed = sqlx::query(sql)
            .bind(&destination.tenant)
            .bind(&destination.caller_key)
            .bind(&destination.tool)
            .bind(&destination.hash)
            .execute(&self.0.durable)
            .await;
        removed.map(|removed| removed.rows_affected() > 0).at(&self.0)
    }

    /// Removes destinations that are known no longer, and those above the maximum of a tenant.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        self.sweep_to(MAX_DESTINATIONS_OF_TENANT).await
    }

    async fn sweep_to(&self, max_of_tenant: i64) -> Result<(), StoreError> {
        let sql = format!("DELETE FROM flow_destinations WHERE expires <= {}", self.0.engine.now_expression());
        sqlx::query(AssertSqlSafe(sql)).execute(&self.0.pool).await.at(&self.0)?;
        let over = "SELECT tenant FROM flow_destinations GROUP BY tenant HAVING COUNT(*) > $1";
        let over: Vec<String> =
            sqlx::query_scalar(over).bind(max_of_tenant).fetch_all(&self.0.pool).await.at(&self.0)?;
        for tenant in over {
            let oldest = "DELETE FROM flow_destinations WHERE tenant = $1 AND last_seen <= (
                SELECT last_seen FROM flow_destinations WHERE tenant = $1 ORDER BY last_seen DESC LIMIT 1 OFFSET $2)";
            sqlx::query(oldest).bind(tenant).bind(max_of_tenant).execute(&self.0.pool).await.at(&self.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_store;

    const DAY: Duration = Duration::from_secs(86_400);

    fn destination(tenant: &str, caller_key: &str, hash: &str) -> FlowDestination {
        FlowDestination {
            tenant: tenant.to_owned(),
            caller_key: caller_key.to_owned(),
            tool: "send".to_owned(),
            member: "/to".to_owned(),
            hash: hash.to_owned(),
        }
    }

    async fn hashes(store: &Store, tenant: &str) -> Vec<String> {
        let found = store.flow_destinations().of_tenant(tenant, None, 10).await.unwrap();
        found.into_iter().map(|stored| stored.destination.hash).collect()
    }

    #[tokio::test]
    async fn a_destination_is_known_to_its_tenant_or_caller_and_for_its_tool() {
        let store = test_store().await;
        let known = store.flow_destinations();
        let rows = [destination("acme", "", "a"), destination("acme", "ann", "b")];
        known.learn(&rows, DAY).await.unwrap();
        known.learn(&rows, DAY).await.unwrap();
        for (owner, tool, expected) in [
            (("acme", ""), "send", vec!["a"]),
            (("acme", "ann"), "send", vec!["b"]),
            (("acme", "bob"), "send", vec![]),
            (("globex", ""), "send", vec![]),
            (("acme", ""), "pay", vec![]),
        ] {
            assert_eq!(known.known(owner, [tool, ""], &["a", "b", ""]).await.unwrap(), expected, "{owner:?} {tool}");
        }
        assert_eq!(hashes(&store, "acme").await.len(), 2, "each is there once");
        assert!(known.forget(&rows[0]).await.unwrap());
        assert!(!known.forget(&rows[0]).await.unwrap());
        assert_eq!(hashes(&store, "acme").await, ["b"]);
    }

    #[tokio::test]
    async fn pages_go_through_the_destinations_of_a_tenant_without_loss() {
        let store = test_store().await;
        let known = store.flow_destinations();
        let rows = ["a", "b", "c", "d"].map(|hash| destination("acme", "", hash));
        known.learn(&rows, DAY).await.unwrap();
        store.change_rows("UPDATE flow_destinations SET last_seen = CASE hash WHEN 'd' THEN 6 ELSE 5 END").await;
        let (mut read, mut after) = (Vec::new(), None::<StoredFlowDestination>);
        loop {
            let key = after.as_ref().map(|last| (last.last_seen, last.destination.key()));
            let place = key.as_ref().map(|(moment, key)| (*moment, key.as_str()));
            let page = known.of_tenant("acme", place, 1).await.unwrap();
            let Some(last) = page.into_iter().next() else { break };
            read.push(last.destination.hash.clone());
            after = Some(last);
        }
        assert_eq!(read, ["d", "a", "b", "c"]);
    }

    #[tokio::test]
    async fn destinations_that_are_over_and_those_above_the_maximum_are_removed() {
        let store = test_store().await;
        let known = store.flow_destinations();
        known.learn(&[destination("acme", "", "over")], Duration::ZERO).await.unwrap();
        assert!(known.known(("acme", ""), ["send", ""], &["over"]).await.unwrap().is_empty());
        for hash in ["a", "b", "c"] {
            known.learn(&[destination("acme", "", hash)], DAY).await.unwrap();
        }
        store.change_rows("UPDATE flow_destinations SET last_seen = last_seen - 2000000 WHERE hash = 'b'").await;
        store.change_rows("UPDATE flow_destinations SET last_seen = last_seen - 1000000 WHERE hash = 'c'").await;
        known.learn(&[destination("globex", "", "d")], DAY).await.unwrap();
        known.sweep_to(2).await.unwrap();
        assert_eq!(hashes(&store, "acme").await, ["a", "c"]);
        assert_eq!(hashes(&store, "globex").await, ["d"]);
    }
}
