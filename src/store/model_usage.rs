//! What models used for each caller on each day, by agent, provider and model.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::civil::Date;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::rule_usage::{additions, cost_of, units_of};
use super::{AtStore, MAX_ROWS, Store, StoreError, parameters_of_rows, stays_prepared};
use sekisho_core::call::{ModelTurns, UsedModel};

/// Turns of one model for one caller on one day (UTC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DailyModelUsage {
    pub day: Date,
    pub caller_key: Arc<str>,
    pub model: UsedModel,
    pub used: ModelTurns,
}

/// In the order of the columns.
type Row = (String, String, String, String, String, i64, i64, i64, i64, i64, i64, i64);

const COLUMNS: &str =
    "day, caller_key, agent, provider, model, turns, prompt_tokens, cached_tokens, cache_write_tokens,
    completion_tokens, reasoning_tokens, cost";

/// The columns that are added up.
const COUNTED: [&str; 7] =
    ["turns", "prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens", "cost"];

/// What models used: the table `model_usage`. [`ChargeStore`](super::ChargeStore) adds to it.
#[derive(Debug, Clone)]
pub struct ModelUsageStore(pub(super) Store);

impl ModelUsageStore {
    /// All usage of these days, both included, in the order of the days, callers, agents, providers and models.
    pub async fn between(&self, first: Date, last: Date) -> Result<Vec<DailyModelUsage>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM model_usage WHERE day >= $1 AND day <= $2
             ORDER BY day, caller_key, agent, provider, model"
        );
        let rows: Vec<Row> = bound!(sqlx::query_as(AssertSqlSafe(sql)), first.to_string(), last.to_string())
            .fetch_all(&self.0.pool)
            .await
            .at(&self.0)?;
        rows.into_iter().map(|row| self.usage(row)).collect()
    }

    /// Removes the days before this one.
    pub async fn forget_before(&self, day: Date) -> Result<(), StoreError> {
        let removed = sqlx::query("DELETE FROM model_usage WHERE day < $1").bind(day.to_string()).execute(&self.0.pool);
        removed.await.map(drop).at(&self.0)
    }

    /// Adds to the stored usage. The last statements of a transaction, since they lock rows that others change too.
    pub(super) async fn add_within(
        &self,
        connection: &mut AnyConnection,
        usage: &[DailyModelUsage],
    ) -> Result<(), StoreError> {
        let sums = sums_of(usage);
        for rows in sums.chunks(MAX_ROWS) {
            let sql = format!(
                "INSERT INTO model_usage AS u ({COLUMNS}) VALUES {}
                 ON CONFLICT (day, caller_key, agent, provider, model) DO UPDATE SET {}",
                parameters_of_rows(rows.len(), "", 12),
                additions(&COUNTED)
            );
            let mut statement = sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(rows.len()));
            for DailyModelUsage { day, caller_key, model, used } in rows {
                let UsedModel { agent, provider, model } = model;
                statement = statement.bind(day.to_string()).bind(&**caller_key);
                statement = statement.bind(&**agent).bind(&**provider).bind(&**model);
                for count in counts(used) {
                    statement = statement.bind(i64::try_from(count).unwrap_or(i64::MAX));
                }
                statement = statement.bind(units_of(used.cost_usd));
            }
            statement.execute(&mut *connection).await.at(&self.0)?;
        }
        Ok(())
    }

    fn usage(&self, row: Row) -> Result<DailyModelUsage, StoreError> {
        let (day, caller_key, agent, provider, model, turns, prompt, cached, written, completion, reasoning, cost) =
            row;
        let count =
            |count: i64| u64::try_from(count).map_err(|_| self.0.damaged(format!("a count of a model is {count}")));
        Ok(DailyModelUsage {
            day: day.parse().map_err(|_| self.0.damaged(format!("no day: {day:?}")))?,
            caller_key: caller_key.into(),
            model: UsedModel { agent: agent.into(), provider: provider.into(), model: model.into() },
            used: ModelTurns {
                turns: count(turns)?,
                prompt_tokens: count(prompt)?,
                cached_tokens: count(cached)?,
                cache_write_tokens: count(written)?,
                completion_tokens: count(completion)?,
                reasoning_tokens: count(reasoning)?,
                cost_usd: cost_of(cost),
            },
        })
    }
}

/// In the order of the columns.
fn counts(used: &ModelTurns) -> [u64; 6] {
    [
        used.turns,
        used.prompt_tokens,
        used.cached_tokens,
        used.cache_write_tokens,
        used.completion_tokens,
        used.reasoning_tokens,
    ]
}

/// The sums by day, caller and model, in the order in which every transaction locks the rows.
fn sums_of(usage: &[DailyModelUsage]) -> Vec<DailyModelUsage> {
    let mut sums = BTreeMap::<_, ModelTurns>::new();
    for DailyModelUsage { day, caller_key, model, used } in usage {
        let sum = sums.entry((*day, Arc::clone(caller_key), model.clone())).or_default();
        *sum = sum.plus(*used);
    }
    let row = |((day, caller_key, model), used)| DailyModelUsage { day, caller_key, model, used };
    sums.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::StoredCharge;
    use crate::test_support::test_store;

    fn usage(day: Date, agent: &str, cost: &str, tokens: u64) -> DailyModelUsage {
        let used = ModelTurns {
            turns: 1,
            prompt_tokens: 10 * tokens,
            cached_tokens: 4 * tokens,
            cache_write_tokens: 3 * tokens,
            completion_tokens: 2 * tokens,
            reasoning_tokens: tokens,
            cost_usd: cost.parse().unwrap(),
        };
        let model = UsedModel { agent: agent.into(), provider: "anthropic".into(), model: "claude".into() };
        DailyModelUsage { day, caller_key: "acme\u{1f}ann".into(), model, used }
    }

    fn charge(id: &str, models: Vec<DailyModelUsage>) -> StoredCharge {
        StoredCharge { id: id.into(), is_reserved: false, usage: Vec::new(), models }
    }

    #[tokio::test]
    async fn turns_add_up_exactly_by_day_caller_and_model_and_each_charge_counts_once() {
        let store = test_store().await;
        let (monday, tuesday) = (date(2026, 3, 2), date(2026, 3, 3));
        let first = charge("a", vec![usage(monday, "main", "0.1000001", 1), usage(monday, "main", "0.2", 2)]);
        let second = charge("b", vec![usage(tuesday, "main", "0.000000000001", 1), usage(monday, "child", "1", 1)]);
        store.charges().add(&[first.clone(), second], &[]).await.unwrap();
        // As where the answer of the commit was lost.
        store.charges().add(&[first], &[]).await.unwrap();
        let mut sum = usage(monday, "main", "0.3000001", 3);
        sum.used.turns = 2;
        let found = store.model_usage().between(monday, tuesday).await.unwrap();
        assert_eq!(found, [usage(monday, "child", "1", 1), sum, usage(tuesday, "main", "0.000000000001", 1),]);
        store.model_usage().forget_before(tuesday).await.unwrap();
        assert_eq!(store.model_usage().between(monday, tuesday).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_sum_ends_at_the_largest_number() {
        let (store, monday) = (test_store().await, date(2026, 3, 2));
        // A provider may report any number of tokens.
        let used = ModelTurns { prompt_tokens: u64::MAX, ..ModelTurns::default() };
        for (id, cost) in [("a", "9223372"), ("b", "9223372")] {
            let cost_usd = cost.parse().unwrap();
            let much = DailyModelUsage { used: ModelTurns { cost_usd, ..used }, ..usage(monday, "main", "0", 1) };
            store.charges().add(&[charge(id, vec![much])], &[]).await.unwrap();
        }
        let found = store.model_usage().between(monday, monday).await.unwrap();
        let [found] = &found[..] else { panic!("{found:?}") };
        assert_eq!((found.used.prompt_tokens, units_of(found.used.cost_usd)), (i64::MAX.unsigned_abs(), i64::MAX));
    }

    #[tokio::test]
    async fn an_impossible_value_is_reported_as_damage() {
        let (store, monday) = (test_store().await, date(2026, 3, 2));
        store.charges().add(&[charge("a", vec![usage(monday, "main", "1", 1)])], &[]).await.unwrap();
        sqlx::raw_sql("UPDATE model_usage SET turns = -1").execute(&store.pool).await.unwrap();
        let error = store.model_usage().between(monday, monday).await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    }
}
