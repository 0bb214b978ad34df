//! The spending on each day by the subjects of the rules of `limits.rules`.

use std::sync::Arc;

use jiff::civil::Date;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use sqlx::AssertSqlSafe;

use super::{AtStore, MAX_ROWS, Store, StoreError, parameters_of_rows, retried, stays_prepared};
use sekisho_core::amount::{Amount, PRICE_DECIMALS};

/// Money and tokens of one subject of a rule on one day (UTC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleUsage {
    pub day: Date,
    pub rule: Arc<str>,
    pub subject: Arc<str>,
    pub amount: Amount,
}

/// The spending by the subjects of rules: the table `rule_usage`.
#[derive(Debug, Clone)]
pub struct RuleUsageStore(pub(super) Store);

impl RuleUsageStore {
    /// All spending of one day.
    pub async fn of_day(&self, day: Date) -> Result<Vec<RuleUsage>, StoreError> {
        let rows: Vec<(String, String, i64, i64)> =
            sqlx::query_as("SELECT rule, subject, cost, tokens FROM rule_usage WHERE day = $1")
                .bind(day.to_string())
                .fetch_all(&self.0.pool)
                .await
                .at(&self.0)?;
        let usage = rows.into_iter().map(|(rule, subject, cost, tokens)| RuleUsage {
            day,
            rule: rule.into(),
            subject: subject.into(),
            amount: Amount { cost_usd: cost_of(cost), tokens: tokens.try_into().unwrap_or(0) },
        });
        Ok(usage.collect())
    }

    /// Adds to the spending.
    /// Errors: [`StoreError`]. Where there are several hundred, some may have been added; where a commit lost its
    /// answer, all of them.
    pub async fn add(&self, usage: &[RuleUsage]) -> Result<(), StoreError> {
        for usage in usage.chunks(MAX_ROWS) {
            retried(|| self.try_add(usage)).await?;
        }
        Ok(())
    }

    /// Removes the days before this one.
    pub async fn forget_before(&self, day: Date) -> Result<(), StoreError> {
        let removed = sqlx::query("DELETE FROM rule_usage WHERE day < $1").bind(day.to_string()).execute(&self.0.pool);
        removed.await.map(drop).at(&self.0)
    }

    async fn try_add(&self, usage: &[RuleUsage]) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO rule_usage AS u (day, rule, subject, cost, tokens) VALUES {}
             ON CONFLICT (day, rule, subject) DO UPDATE SET {}",
            parameters_of_rows(usage.len(), "", 5),
            additions(&["cost", "tokens"])
        );
        let mut statement = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(usage.len()));
        for RuleUsage { day, rule, subject, amount } in usage {
            statement = statement.bind(day.to_string()).bind(&**rule).bind(&**subject).bind(units_of(amount.cost_usd));
            statement = statement.bind(i64::try_from(amount.tokens).unwrap_or(i64::MAX));
        }
        statement.execute(&self.0.pool).await.map(drop).at(&self.0)
    }
}

/// The assignments that add new numbers, which are not negative, to the numbers in these columns of a table `u`, up to the largest
/// one. Beyond it PostgreSQL refuses the statement, and with it all charges of its transaction; SQLite makes a float of it, which
/// cannot be read.
pub(super) fn additions(columns: &[&str]) -> String {
    let most = i64::MAX;
    let addition = |column: &&str| {
        format!(
            "{column} = CASE WHEN u.{column} > {most} - excluded.{column} THEN {most}
             ELSE u.{column} + excluded.{column} END"
        )
    };
    columns.iter().map(addition).collect::<Vec<_>>().join(", ")
}

/// USD of units of the smallest price.
pub(super) fn cost_of(units: i64) -> Decimal {
    Decimal::from_i128_with_scale(units.into(), PRICE_DECIMALS).normalize()
}

/// In units of the smallest price.
pub(super) fn units_of(mut cost: Decimal) -> i64 {
    cost.rescale(PRICE_DECIMALS);
    cost.mantissa().to_i64().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::test_support::test_store;

    #[tokio::test]
    async fn usage_is_added_up_for_each_day_rule_and_subject() {
        let store = test_store().await;
        let (monday, tuesday) = (date(2026, 1, 5), date(2026, 1, 6));
        let usage = |day, rule: &str, subject: &str, cost: &str, tokens| RuleUsage {
            day,
            rule: rule.into(),
            subject: subject.into(),
            amount: Amount { cost_usd: cost.parse().unwrap(), tokens },
        };
        let first = [usage(monday, "a", "ann", "0.25", 7), usage(monday, "b", "ann", "0.000000000001", 0)];
        store.rule_usage().add(&first).await.unwrap();
        let more = [usage(monday, "a", "ann", "1.5", 3), usage(tuesday, "a", "ann", "2", 1)];
        store.rule_usage().add(&more).await.unwrap();
        store.rule_usage().add(&[]).await.unwrap();
        let mut found = store.rule_usage().of_day(monday).await.unwrap();
        found.sort_by(|one, other| one.rule.cmp(&other.rule));
        assert_eq!(found, [usage(monday, "a", "ann", "1.75", 10), usage(monday, "b", "ann", "0.000000000001", 0)]);
        store.rule_usage().add(&[usage(tuesday, "a", "ann", "0", u64::MAX)]).await.unwrap();
        let found = store.rule_usage().of_day(tuesday).await.unwrap();
        let tokens: Vec<_> = found.iter().map(|usage| usage.amount.tokens).collect();
        assert_eq!(tokens, [i64::MAX.unsigned_abs()], "a sum ends at the largest number");
        store.rule_usage().forget_before(tuesday).await.unwrap();
        assert!(store.rule_usage().of_day(monday).await.unwrap().is_empty());
        assert_eq!(store.rule_usage().of_day(tuesday).await.unwrap().len(), 1);
    }
}
