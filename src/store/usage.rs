//! The spending of callers and tenants on each day.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::civil::Date;
use rust_decimal::Decimal;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::{AtStore, MAX_ROWS, Store, StoreError, parameters_of_rows, stays_prepared};
use sekisho_core::amount::Amount;

/// The scopes of daily usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum DailyScope {
    Caller,
    Tenant,
}

sekisho_core::as_str!(DailyScope);

/// Money and tokens of one caller or tenant on one day (UTC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DailyUsage {
    pub day: Date,
    pub scope: DailyScope,
    /// The caller's key, or the tenant.
    pub key: Arc<str>,
    pub cost_usd: Decimal,
    pub tokens: u64,
}

/// The spending of callers and tenants: the table `daily_usage`.
#[derive(Debug, Clone)]
pub struct UsageStore(pub(super) Store);

impl UsageStore {
    /// All usage of one day.
    pub async fn of_day(&self, day: Date) -> Result<Vec<DailyUsage>, StoreError> {
        self.between(day, day).await
    }

    /// All usage of these days, both included, the latest first.
    pub async fn between(&self, first: Date, last: Date) -> Result<Vec<DailyUsage>, StoreError> {
        let sql = "SELECT day, scope, scope_key, cost_usd, tokens FROM daily_usage WHERE day >= $1 AND day <= $2 \
             ORDER BY day DESC, scope, scope_key";
        let rows: Vec<(String, String, String, String, i64)> =
            bound!(sqlx::query_as(sql), first.to_string(), last.to_string())
                .fetch_all(&self.0.pool)
                .await
                .at(&self.0)?;
        rows.into_iter()
            .map(|(day, scope, key, cost_usd, tokens)| {
                let (scope, day) = account_of(&self.0, &scope, &day)?;
                let (cost_usd, tokens) = amounts(&self.0, &cost_usd, tokens)?;
                Ok(DailyUsage { day, scope, key: key.into(), cost_usd, tokens })
            })
            .collect()
    }

    /// Removes the usage of all days before `day`.
    pub async fn forget_before(&self, day: Date) -> Result<(), StoreError> {
        sqlx::query("DELETE FROM daily_usage WHERE day < $1")
            .bind(day.to_string())
            .execute(&self.0.pool)
            .await
            .at(&self.0)?;
        Ok(())
    }

    /// Adds to the stored usage of accounts, each at most once, and returns the new totals in the same order. The last
    /// statements of a transaction, since they lock rows that others change too.
    pub(super) async fn add_within(
        &self,
        connection: &mut AnyConnection,
        additions: &[DailyUsage],
    ) -> Result<Vec<DailyUsage>, StoreError> {
        let mut totals = Vec::with_capacity(additions.len());
        for additions in additions.chunks(MAX_ROWS) {
            let accounts: Vec<_> = additions.iter().map(|added| (added.day, added.scope, &*added.key)).collect();
            let spent = self.lock(connection, &accounts).await?;
            let sums = additions.iter().zip(spent).map(|(added, spent)| DailyUsage {
                cost_usd: added.cost_usd.saturating_add(spent.cost_usd),
                tokens: added.tokens.saturating_add(spent.tokens),
                ..added.clone()
            });
            let sums: Vec<_> = sums.collect();
            self.write(connection, &sums).await?;
            totals.extend(sums);
        }
        Ok(totals)
    }

    /// The spending of accounts, each named once, in the same order. Their rows stay locked until the end of the
    /// transaction.
    pub(super) async fn lock(
        &self,
        connection: &mut AnyConnection,
        accounts: &[(Date, DailyScope, &str)],
    ) -> Result<Vec<Amount>, StoreError> {
        // Changes nothing of a row that is there, and locks it: no other process may write between our read and our write.
        let sql = format!(
            "INSERT INTO daily_usage (cost_usd, tokens, day, scope, scope_key) VALUES {}
             ON CONFLICT (day, scope, scope_key) DO UPDATE SET tokens = daily_usage.tokens
             RETURNING day, scope, scope_key, cost_usd, tokens",
            parameters_of_rows(accounts.len(), "'0', 0, ", 3)
        );
        let mut statement = sqlx::query_as(AssertSqlSafe(sql)).persistent(stays_prepared(accounts.len()));
        for (day, scope, key) in accounts {
            statement = statement.bind(day.to_string()).bind(scope.as_str()).bind(*key);
        }
        let rows: Vec<(String, String, String, String, i64)> =
            statement.fetch_all(&mut *connection).await.at(&self.0)?;
        let mut spent = HashMap::with_capacity(rows.len());
        for (day, scope, key, cost_usd, tokens) in rows {
            let (cost_usd, tokens) = amounts(&self.0, &cost_usd, tokens)?;
            spent.insert((day, scope, key), Amount { cost_usd, tokens });
        }
        let in_order = accounts.iter().map(|(day, scope, key)| {
            let row = (day.to_string(), scope.as_str().to_owned(), (*key).to_owned());
            spent.remove(&row).ok_or_else(|| self.0.damaged(format!("no usage of {row:?}")))
        });
        in_order.collect()
    }

    async fn write(&self, connection: &mut AnyConnection, totals: &[DailyUsage]) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO daily_usage (day, scope, scope_key, cost_usd, tokens) VALUES {}
             ON CONFLICT (day, scope, scope_key) DO UPDATE SET cost_usd = excluded.cost_usd, tokens = excluded.tokens",
            parameters_of_rows(totals.len(), "", 5)
        );
        let mut statement = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(totals.len()));
        for total in totals {
            statement = statement
                .bind(total.day.to_string())
                .bind(total.scope.as_str())
                .bind(&*total.key)
                .bind(total.cost_usd.to_string())
                .bind(i64::try_from(total.tokens).unwrap_or(i64::MAX));
        }
        statement.execute(&mut *connection).await.map(drop).at(&self.0)
    }
}

pub(super) fn account_of(store: &Store, scope: &str, day: &str) -> Result<(DailyScope, Date), StoreError> {
    let of_day = day.parse().map_err(|_| store.damaged(format!("no day: {day:?}")))?;
    let of_scope = scope.parse().map_err(|_| store.damaged(format!("unknown scope {scope:?}")))?;
    Ok((of_scope, of_day))
}

pub(super) fn amounts(store: &Store, cost_usd: &str, tokens: i64) -> Result<(Decimal, u64), StoreError> {
    let cost = Decimal::from_str_exact(cost_usd)
        .map_err(|problem| store.damaged(format!("a cost is {cost_usd:?}: {problem}")))?;
    let tokens = u64::try_from(tokens).map_err(|_| store.damaged(format!("a count of tokens is {tokens}")))?;
    Ok((cost, tokens))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::test_support::{fill_the_disk, free_disk, test_store};

    fn usage(day: Date, key: &str, cost_cents: i64, tokens: u64) -> DailyUsage {
        DailyUsage { day, scope: DailyScope::Caller, key: key.into(), cost_usd: Decimal::new(cost_cents, 2), tokens }
    }

    #[tokio::test]
    async fn usage_adds_up_exactly_by_day_and_scope() {
        let store = test_store().await;
        let (monday, tuesday) = (date(2026, 3, 2), date(2026, 3, 3));
        store.usage().add(&[usage(monday, "acme\u{1f}ann", 10, 1)]).await.unwrap();
        let totals = store
            .usage()
            .add(&[usage(monday, "acme\u{1f}ann", 20, 2), usage(tuesday, "acme\u{1f}ann", 5, 5)])
            .await
            .unwrap();
        assert_eq!(totals, [usage(monday, "acme\u{1f}ann", 30, 3), usage(tuesday, "acme\u{1f}ann", 5, 5)]);
        assert_eq!(store.usage().of_day(monday).await.unwrap(), totals[..1]);
        let tenant = DailyUsage { scope: DailyScope::Tenant, ..usage(monday, "acme\u{1f}ann", 1, 1) };
        store.usage().add(std::slice::from_ref(&tenant)).await.unwrap();
        assert_eq!(store.usage().of_day(monday).await.unwrap().len(), 2);
    }

    #[tokio::test]
    async fn processes_that_write_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sekisho.db");
        let day = date(2026, 3, 2);
        let (one, other) = (Store::open_file(&path).await.unwrap(), Store::open_file(&path).await.unwrap());
        let additions = (0..40).map(|n| {
            let store = if n % 2 == 0 { one.clone() } else { other.clone() };
            tokio::spawn(async move { store.usage().add(&[usage(day, "ann", 1, 1)]).await })
        });
        for added in futures_util::future::join_all(additions).await {
            added.unwrap().unwrap();
        }
        assert_eq!(one.usage().of_day(day).await.unwrap(), [usage(day, "ann", 40, 40)]);
    }

    #[tokio::test]
    async fn old_days_are_forgotten() {
        let store = test_store().await;
        let (old, recent) = (date(2025, 12, 31), date(2026, 1, 1));
        store.usage().add(&[usage(old, "ann", 1, 1), usage(recent, "ann", 1, 1)]).await.unwrap();
        store.usage().forget_before(recent).await.unwrap();
        assert!(store.usage().of_day(old).await.unwrap().is_empty());
        assert_eq!(store.usage().of_day(recent).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_full_disk_adds_nothing_and_is_called_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_file(&folder.path().join("sekisho.db")).await.unwrap();
        let day = date(2026, 3, 2);
        let many: Vec<_> = (0..500).map(|n| usage(day, &format!("caller {n}"), 1, 1)).collect();
        for _ in 0..5 {
            // Each time, since a new connection takes the place of one whose transaction failed.
            fill_the_disk(&store).await;
            let error = store.usage().add(&many).await.unwrap_err();
            assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
            assert!(store.usage().of_day(day).await.unwrap().is_empty());
        }
        free_disk(&store).await;
        store.usage().add(&many).await.unwrap();
        assert_eq!(store.usage().of_day(day).await.unwrap().len(), 500);
    }

    #[tokio::test]
    async fn an_impossible_value_is_reported_as_damage() {
        let cases = [
            ("UPDATE daily_usage SET cost_usd = 'much'"),
            ("UPDATE daily_usage SET tokens = -1"),
            ("UPDATE daily_usage SET scope = 'me'"),
        ];
        for change in cases {
            let store = test_store().await;
            let day = date(2026, 3, 2);
            store.usage().add(&[usage(day, "ann", 1, 1)]).await.unwrap();
            sqlx::raw_sql(change).execute(&store.pool).await.unwrap();
            let error = store.usage().of_day(day).await.unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{change}: {error:?}");
        }
    }
}
