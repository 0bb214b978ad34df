//! The ledger of the amounts that replicas lease of the budgets of a day. The rules are in
//! [`sekisho_core::lease::budget`].

use std::collections::HashMap;
use std::sync::Arc;

use jiff::civil::Date;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::usage::amounts;
use super::{AtStore, DailyScope, MAX_ROWS, Store, StoreError, parameters_of_rows, retried, stays_prepared};
use sekisho_core::amount::Amount;
use sekisho_core::lease::budget::{AccountLimit, LeaseAnswer, LeaseRequest, StoredLease, decide};

/// A replica's request for one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedLease {
    pub day: Date,
    pub scope: DailyScope,
    /// The caller's key, or the tenant.
    pub key: Arc<str>,
    pub limit: AccountLimit,
    pub request: LeaseRequest,
}

/// The answer to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountLease {
    pub lease: LeaseAnswer,
    /// The spending of all replicas, with settled calls only.
    pub spent: Amount,
}

/// The day, scope and key of an account, as they are stored.
type AccountRow = (String, String, String);

/// Day, scope, key, replica, sequence, releases, cost and tokens.
type LeaseRow = (String, String, String, String, i64, i64, String, i64);

impl AskedLease {
    fn account(&self) -> (Date, DailyScope, &str) {
        (self.day, self.scope, &self.key)
    }

    fn row(&self) -> AccountRow {
        (self.day.to_string(), self.scope.as_str().to_owned(), (*self.key).to_owned())
    }
}

/// The amounts that replicas lease of the budgets of a day: the table `budget_leases`. It locks the rows of
/// `daily_usage`, and counts releases in `replicas`.
#[derive(Debug, Clone)]
pub struct BudgetLeaseStore(pub(super) Store);

impl BudgetLeaseStore {
    /// Decides about the requests of a replica, all or none, and answers in the same order. The requests are in the
    /// order in which all replicas lock the rows.
    /// Errors: [`StoreError`]; the requests may still be decided when no answer arrives.
    pub async fn exchange(&self, replica: &str, requests: &[AskedLease]) -> Result<Vec<AccountLease>, StoreError> {
        retried(|| self.try_exchange(replica, requests)).await
    }

    /// The amount that each replica leases on a day, all accounts together.
    pub async fn leased_on(&self, day: Date) -> Result<HashMap<String, Amount>, StoreError> {
        let rows: Vec<(String, String, i64)> =
            sqlx::query_as("SELECT replica, cost_usd, tokens FROM budget_leases WHERE day = $1")
                .bind(day.to_string())
                .fetch_all(&self.0.pool)
                .await
                .at(&self.0)?;
        let mut leased: HashMap<String, Amount> = HashMap::new();
        for (replica, cost_usd, tokens) in rows {
            let of_replica = leased.entry(replica).or_default();
            *of_replica = of_replica.plus(self.amount(&cost_usd, tokens)?);
        }
        Ok(leased)
    }

    /// Removes the leases of all days before `day`.
    pub async fn forget_before(&self, day: Date) -> Result<(), StoreError> {
        let removed = sqlx::query("DELETE FROM budget_leases WHERE day < $1");
        let removed = removed.bind(day.to_string()).execute(&self.0.pool).await;
        removed.map(drop).at(&self.0)
    }

    async fn try_exchange(&self, replica: &str, requests: &[AskedLease]) -> Result<Vec<AccountLease>, StoreError> {
        let mut transaction = self.0.begin().await?;
        let mut answers = Vec::with_capacity(requests.len());
        for requests in requests.chunks(MAX_ROWS) {
            answers.extend(self.exchange_within(&mut transaction, replica, requests).await?);
        }
        transaction.commit().await.at(&self.0)?;
        Ok(answers)
    }

    async fn exchange_within(
        &self,
        connection: &mut AnyConnection,
        replica: &str,
        requests: &[AskedLease],
    ) -> Result<Vec<AccountLease>, StoreError> {
        let accounts: Vec<_> = requests.iter().map(AskedLease::account).collect();
        let spent = self.0.usage().lock(connection, &accounts).await?;
        let leases = self.leases_of(connection, replica, &accounts).await?;
        let (mut answers, mut decided) = (Vec::with_capacity(requests.len()), Vec::new());
        for (asked, spent) in requests.iter().zip(spent) {
            let (own, others) = leases.get(&asked.row()).copied().unwrap_or_default();
            let answer = decide(asked.limit, (spent, others), own, &asked.request);
            // Without: one of a replica that is older than its last one, and nobody waits for the answer.
            answers.push(AccountLease { lease: answer.map_or_else(LeaseAnswer::default, |(_, lease)| lease), spent });
            decided.extend(answer.map(|(stored, _)| (asked, stored)));
        }
        self.write(connection, replica, &decided).await?;
        Ok(answers)
    }

    /// The lease of a replica, and the sum of all others' leases, of accounts that have any.
    async fn leases_of(
        &self,
        connection: &mut AnyConnection,
        replica: &str,
        accounts: &[(Date, DailyScope, &str)],
    ) -> Result<HashMap<AccountRow, (StoredLease, Amount)>, StoreError> {
        let sql = format!(
            "SELECT day, scope, scope_key, replica, sequence, releases, cost_usd, tokens FROM budget_leases
             WHERE (day, scope, scope_key) IN (VALUES {})",
            parameters_of_rows(accounts.len(), "", 3)
        );
        let mut statement = sqlx::query_as(AssertSqlSafe(sql)).persistent(stays_prepared(accounts.len()));
        for (day, scope, key) in accounts {
            statement = statement.bind(day.to_string()).bind(scope.as_str()).bind(*key);
        }
        let rows: Vec<LeaseRow> = statement.fetch_all(&mut *connection).await.at(&self.0)?;
        let mut leases: HashMap<AccountRow, (StoredLease, Amount)> = HashMap::new();
        for (day, scope, key, of, sequence, releases, cost_usd, tokens) in rows {
            let amount = self.amount(&cost_usd, tokens)?;
            let (own, others) = leases.entry((day, scope, key)).or_default();
            match of == replica {
                true => *own = StoredLease { sequence, releases, amount },
                false => *others = others.plus(amount),
            }
        }
        Ok(leases)
    }

    async fn write(
        &self,
        connection: &mut AnyConnection,
        replica: &str,
        decided: &[(&AskedLease, StoredLease)],
    ) -> Result<(), StoreError> {
        if decided.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "INSERT INTO budget_leases (day, scope, scope_key, replica, sequence, releases, cost_usd, tokens) VALUES {}
             ON CONFLICT (day, scope, scope_key, replica) DO UPDATE SET sequence = excluded.sequence,
             releases = excluded.releases, cost_usd = excluded.cost_usd, tokens = excluded.tokens",
            parameters_of_rows(decided.len(), "", 8)
        );
        let mut statement = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(decided.len()));
        for (asked, stored) in decided {
            let (day, scope, key) = asked.row();
            statement = statement
                .bind(day)
                .bind(scope)
                .bind(key)
                .bind(replica)
                .bind(stored.sequence)
                .bind(stored.releases)
                .bind(stored.amount.cost_usd.to_string())
                .bind(i64::try_from(stored.amount.tokens).unwrap_or(i64::MAX));
        }
        statement.execute(&mut *connection).await.map(drop).at(&self.0)
    }

    pub(super) fn amount(&self, cost_usd: &str, tokens: i64) -> Result<Amount, StoreError> {
        let (cost_usd, tokens) = amounts(&self.0, cost_usd, tokens)?;
        Ok(Amount { cost_usd, tokens })
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::DailyUsage;
    use crate::test_support::test_store;

    const MONDAY: Date = date(2126, 3, 4);

    fn tokens(tokens: u64) -> Amount {
        Amount { tokens, ..Amount::ZERO }
    }

    /// Asks for tokens of a limit of 1 000.
    fn asked(sequence: i64, kept: u64, needed: u64) -> AskedLease {
        let limit = AccountLimit { tokens: Some(1_000), cost_usd: None };
        let request =
            LeaseRequest { sequence, releases: 0, kept: tokens(kept), wanted: tokens(needed), needed: tokens(needed) };
        AskedLease { day: MONDAY, scope: DailyScope::Caller, key: "acme\u{1f}ann".into(), limit, request }
    }

    async fn granted(store: &Store, replica: &str, asked: AskedLease) -> (u64, u64) {
        let answer = store.budget_leases().exchange(replica, &[asked]).await.unwrap()[0];
        (answer.lease.granted.tokens, answer.lease.left.tokens)
    }

    #[tokio::test]
    async fn what_is_spent_and_what_others_lease_is_not_leased_again() {
        let store = test_store().await;
        let cost_usd = rust_decimal::Decimal::ONE;
        let spent =
            DailyUsage { day: MONDAY, scope: DailyScope::Caller, key: "acme\u{1f}ann".into(), cost_usd, tokens: 100 };
        store.usage().add(std::slice::from_ref(&spent)).await.unwrap();
        assert_eq!(granted(&store, "a", asked(1, 0, 500)).await, (500, 900));
        assert_eq!(granted(&store, "b", asked(1, 0, 500)).await, (400, 400));
        assert_eq!(granted(&store, "c", asked(1, 0, 1)).await, (0, 0));
        assert_eq!(granted(&store, "a", asked(1, 0, 1)).await, (0, 0), "an older request");
        let leased = store.budget_leases().leased_on(MONDAY).await.unwrap();
        assert_eq!((leased["a"].tokens, leased["b"].tokens), (500, 400));
        assert_eq!(granted(&store, "a", asked(2, 200, 0)).await, (0, 300), "given back");
        assert_eq!(granted(&store, "c", asked(2, 0, 300)).await, (300, 300));
        store.budget_leases().forget_before(date(2126, 3, 5)).await.unwrap();
        assert!(store.budget_leases().leased_on(MONDAY).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn replicas_that_ask_at_once_lease_no_more_than_there_is() {
        let store = test_store().await;
        let asking = (0..30).map(|n| {
            let store = store.clone();
            tokio::spawn(async move { granted(&store, &format!("replica {n}"), asked(1, 0, 70)).await.0 })
        });
        let granted: u64 = futures_util::future::join_all(asking).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(granted, 1_000);
    }
}
