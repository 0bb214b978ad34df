//! The budgets of a day that lost replicas leased, and that an administrator gives back.

use std::sync::Arc;
use std::time::Duration;

use jiff::civil::Date;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::replicas::micros;
use super::usage::account_of;
use super::{AtStore, BudgetLeaseStore, DailyScope, StoreError, retried};
use sekisho_core::amount::Amount;

/// The released lease of one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleasedLease {
    pub day: Date,
    pub scope: DailyScope,
    /// The caller's key, or the tenant.
    pub key: Arc<str>,
    pub amount: Amount,
}

/// The outcome of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// In the order of the accounts; empty where nothing was leased.
    Done(Vec<ReleasedLease>),
    /// The last heartbeat was only so long ago.
    TooEarly(Duration),
    /// There is no such replica.
    Unknown,
}

impl BudgetLeaseStore {
    /// Gives back the leases of a replica, if its last heartbeat was at least `lost_for` ago. The replica, should it
    /// come back, learns of it with its next heartbeat, and its requests by its earlier leases are refused.
    pub async fn release(&self, replica: &str, lost_for: Duration) -> Result<Release, StoreError> {
        retried(|| self.try_release(replica, lost_for)).await
    }

    async fn try_release(&self, replica: &str, lost_for: Duration) -> Result<Release, StoreError> {
        let mut transaction = self.0.begin().await?;
        let now = self.0.engine.now_expression();
        // Also locks the row: a heartbeat comes before or after the release, and not in between.
        let sql = format!(
            "UPDATE replicas SET releases = releases + 1 WHERE id = $1 AND heartbeat <= {now} - $2 RETURNING releases"
        );
        let released = sqlx::query_scalar(AssertSqlSafe(sql)).bind(replica).bind(micros(lost_for));
        let Some(releases) = released.fetch_optional(&mut *transaction).await.at(&self.0)? else {
            transaction.rollback().await.at(&self.0)?;
            return self.why_not_released(replica).await;
        };
        let mut given_back = Vec::new();
        for (scope, day, key) in self.leased_accounts(&mut transaction, replica).await? {
            let amount = self.release_one(&mut transaction, (replica, releases), (day, scope, &key)).await?;
            if !amount.is_zero() {
                given_back.push(ReleasedLease { day, scope, key, amount });
            }
        }
        transaction.commit().await.at(&self.0)?;
        Ok(Release::Done(given_back))
    }

    async fn why_not_released(&self, replica: &str) -> Result<Release, StoreError> {
        let now = self.0.engine.now_expression();
        let sql = format!("SELECT {now} - heartbeat FROM replicas WHERE id = $1");
        let silent = sqlx::query_scalar(AssertSqlSafe(sql)).bind(replica).fetch_optional(&self.0.pool).await;
        let silent: Option<i64> = silent.at(&self.0)?;
        let of = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or_default());
        Ok(silent.map_or(Release::Unknown, |micros| Release::TooEarly(of(micros))))
    }

    /// The accounts of which a replica leases something, in the order in which every transaction locks their rows.
    async fn leased_accounts(
        &self,
        connection: &mut AnyConnection,
        replica: &str,
    ) -> Result<Vec<(DailyScope, Date, Arc<str>)>, StoreError> {
        let rows: Vec<(String, String, String)> =
            sqlx::query_as("SELECT scope, day, scope_key FROM budget_leases WHERE replica = $1")
                .bind(replica)
                .fetch_all(&mut *connection)
                .await
                .at(&self.0)?;
        let accounts = rows.into_iter().map(|(scope, day, key)| {
            let (scope, day) = account_of(&self.0, &scope, &day)?;
            Ok((scope, day, key.into()))
        });
        let mut accounts: Vec<_> = accounts.collect::<Result<_, StoreError>>()?;
        accounts.sort_unstable();
        Ok(accounts)
    }

    /// Sets the replica's lease of one account to zero, and returns the amount.
    async fn release_one(
        &self,
        connection: &mut AnyConnection,
        (replica, releases): (&str, i64),
        (day, scope, key): (Date, DailyScope, &str),
    ) -> Result<Amount, StoreError> {
        self.0.usage().lock(connection, &[(day, scope, key)]).await?;
        let (cost_usd, tokens): (String, i64) = sqlx::query_as(
            "SELECT cost_usd, tokens FROM budget_leases
             WHERE day = $1 AND scope = $2 AND scope_key = $3 AND replica = $4",
        )
        .bind(day.to_string())
        .bind(scope.as_str())
        .bind(key)
        .bind(replica)
        .fetch_one(&mut *connection)
        .await
        .at(&self.0)?;
        let sql = "UPDATE budget_leases SET cost_usd = '0', tokens = 0, releases = $5
             WHERE day = $1 AND scope = $2 AND scope_key = $3 AND replica = $4";
        bound!(sqlx::query(sql), day.to_string(), scope.as_str(), key, replica, releases)
            .execute(&mut *connection)
            .await
            .at(&self.0)?;
        self.amount(&cost_usd, tokens)
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::test_support::test_store;
    use crate::{AskedLease, ReplicaIdentity, Store};
    use sekisho_core::lease::budget::{AccountLimit, LeaseRequest};

    const MONDAY: Date = date(2126, 3, 4);
    const NO_TIME: Duration = Duration::ZERO;

    async fn beat(store: &Store, id: &str) -> i64 {
        let replica = ReplicaIdentity {
            id,
            host: "host",
            version: "1",
            configuration: "c",
            policies: "p",
            address: None,
            degraded: "[]",
        };
        store.replicas().beat(replica, NO_TIME).await.unwrap().releases
    }

    /// The granted part of a limit of 1 000 tokens, and how often the replica's leases were released.
    async fn lease(store: &Store, replica: &str, (sequence, releases): (i64, i64), kept: u64) -> (u64, i64) {
        let tokens = |tokens| Amount { tokens, ..Amount::ZERO };
        let limit = AccountLimit { tokens: Some(1_000), cost_usd: None };
        let request = LeaseRequest { sequence, releases, kept: tokens(kept), wanted: tokens(600), needed: tokens(600) };
        let asked = AskedLease { day: MONDAY, scope: DailyScope::Caller, key: "acme\u{1f}ann".into(), limit, request };
        let answer = store.budget_leases().exchange(replica, &[asked]).await.unwrap()[0].lease;
        (answer.granted.tokens, answer.releases)
    }

    async fn released(store: &Store, replica: &str) -> Vec<u64> {
        match store.budget_leases().release(replica, NO_TIME).await.unwrap() {
            Release::Done(given_back) => given_back.iter().map(|lease| lease.amount.tokens).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_a_lost_replica_leased_is_given_back_once() {
        let store = test_store().await;
        assert_eq!((beat(&store, "lost").await, beat(&store, "other").await), (0, 0));
        assert_eq!(lease(&store, "lost", (1, 0), 0).await, (600, 0));
        assert_eq!(lease(&store, "other", (1, 0), 0).await, (400, 0));
        assert_eq!(released(&store, "lost").await, [600]);
        assert_eq!(released(&store, "lost").await, Vec::<u64>::new());
        assert_eq!(lease(&store, "other", (2, 0), 400).await, (600, 0));
    }

    #[tokio::test]
    async fn a_replica_that_comes_back_has_nothing_of_what_was_released() {
        let store = test_store().await;
        beat(&store, "back").await;
        lease(&store, "back", (1, 0), 0).await;
        released(&store, "back").await;
        assert_eq!(lease(&store, "back", (2, 0), 600).await, (0, 1), "it does not know");
        assert_eq!(lease(&store, "other", (1, 0), 0).await, (600, 0));
        assert_eq!(beat(&store, "back").await, 1);
        assert_eq!(lease(&store, "back", (3, 1), 100).await, (300, 1), "it goes on with what is left");
    }

    #[tokio::test]
    async fn what_a_replica_leases_is_not_released_while_its_heartbeat_is_recent() {
        let store = test_store().await;
        beat(&store, "live").await;
        lease(&store, "live", (1, 0), 0).await;
        let minute = Duration::from_secs(60);
        let Release::TooEarly(silent) = store.budget_leases().release("live", minute).await.unwrap() else { panic!() };
        assert!(silent < minute, "{silent:?}");
        assert_eq!(store.budget_leases().release("nobody", NO_TIME).await.unwrap(), Release::Unknown);
        assert_eq!(
            (beat(&store, "live").await, store.budget_leases().leased_on(MONDAY).await.unwrap()["live"].tokens),
            (0, 600)
        );
    }
}
