//! Rate limits that are counted over all replicas: one statement takes the due calls of several buckets. It decides as
//! [`sekisho_core::lease::rate::take`], by the database's clock.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::{AtStore, Store, StoreError, retried, stays_prepared};
use sekisho_core::lease::rate::{refill_nanos, wait};

/// Calls that are asked of one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedCalls {
    pub bucket: String,
    pub per_minute: NonZeroU32,
    /// Negative: given back.
    pub wanted: i64,
}

/// Calls that were taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenCalls {
    pub taken: i64,
    /// Until the bucket has a call.
    pub wait: Duration,
    /// Until it is full.
    pub until_full: Duration,
}

/// Rate limits over all replicas: the table `rate_buckets`.
#[derive(Debug, Clone)]
pub struct RateBucketStore(pub(super) Store);

impl RateBucketStore {
    /// Takes the available calls of each bucket, and answers in the same order. Each bucket is named once, and they are
    /// sorted: all replicas lock the rows in one order.
    /// Errors: [`StoreError`]; the calls may still be taken when no answer arrives.
    pub async fn take(&self, asked: &[AskedCalls]) -> Result<Vec<TakenCalls>, StoreError> {
        let sql = self.take_statement(asked.len());
        let rows = retried(|| self.try_take(&sql, asked)).await?;
        let by_bucket: HashMap<_, _> =
            rows.into_iter().map(|(bucket, taken, at, now)| (bucket, (taken, at, now))).collect();
        let taken = asked.iter().map(|asked| {
            let (taken, full_at, now) = by_bucket.get(&asked.bucket).copied().unwrap_or_default();
            let until_full = Duration::from_nanos(u64::try_from(full_at.saturating_sub(now)).unwrap_or(0));
            TakenCalls { taken, wait: wait(full_at, now, asked.per_minute), until_full }
        });
        Ok(taken.collect())
    }

    /// Removes the buckets that are full.
    pub async fn forget_full(&self) -> Result<(), StoreError> {
        let now = self.0.engine.now_expression();
        let removed = sqlx::query(AssertSqlSafe(format!("DELETE FROM rate_buckets WHERE full_at <= {now} * 1000")));
        removed.execute(&self.0.pool).await.map(drop).at(&self.0)
    }

    async fn try_take(&self, sql: &str, asked: &[AskedCalls]) -> Result<Vec<(String, i64, i64, i64)>, StoreError> {
        let mut statement = sqlx::query_as(AssertSqlSafe(sql.to_owned())).persistent(stays_prepared(asked.len()));
        for AskedCalls { bucket, per_minute, wanted } in asked {
            let refill = i64::try_from(refill_nanos(*per_minute)).unwrap_or(i64::MAX);
            let capacity = refill.saturating_mul(per_minute.get().into());
            statement = statement.bind(bucket).bind(refill).bind(capacity).bind((*wanted).min(per_minute.get().into()));
        }
        statement.fetch_all(&self.0.pool).await.at(&self.0)
    }

    /// The parameters of each bucket are its name, refill, capacity, and the calls that are wanted.
    fn take_statement(&self, buckets: usize) -> String {
        let now = format!("({} * 1000)", self.0.engine.now_expression());
        let rows = (0..buckets).map(|row| {
            let [bucket, refill, capacity, wanted] = [1, 2, 3, 4].map(|column| 4 * row + column);
            format!(
                "(${bucket}, CAST(${refill} AS BIGINT), CAST(${capacity} AS BIGINT),
                 {now} + CAST(${wanted} AS BIGINT) * CAST(${refill} AS BIGINT), CAST(${wanted} AS BIGINT))"
            )
        });
        let rows: Vec<_> = rows.collect();
        // Until it is full, at the rate that the bucket had. If the rate is another one, the used calls stay used, at
        // most all.
        let owed = format!("(CASE WHEN b.full_at > {now} THEN b.full_at - {now} ELSE 0 END)");
        let used = format!("(({owed} + b.refill - 1) / b.refill)");
        let owed = format!(
            "(CASE WHEN b.refill = excluded.refill THEN {owed}
              WHEN {used} >= excluded.capacity / excluded.refill THEN excluded.capacity ELSE {used} * excluded.refill END)"
        );
        let available = format!(
            "(CASE WHEN {owed} < excluded.capacity THEN (excluded.capacity - {owed}) / excluded.refill ELSE 0 END)"
        );
        let taken = format!("(CASE WHEN excluded.taken < {available} THEN excluded.taken ELSE {available} END)");
        format!(
            "INSERT INTO rate_buckets AS b (bucket, refill, capacity, full_at, taken) VALUES {}
             ON CONFLICT (bucket) DO UPDATE SET taken = {taken}, full_at = {now} + {owed} + {taken} * excluded.refill,
             refill = excluded.refill, capacity = excluded.capacity
             RETURNING bucket, taken, full_at, {now}",
            rows.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::test_support::test_store;
    use sekisho_core::lease::rate::take;

    fn asked(bucket: &str, per_minute: u32, wanted: i64) -> AskedCalls {
        AskedCalls { bucket: bucket.to_owned(), per_minute: NonZeroU32::new(per_minute).unwrap(), wanted }
    }

    async fn taken(store: &Store, asked: &[AskedCalls]) -> Vec<i64> {
        store.rate_buckets().take(asked).await.unwrap().into_iter().map(|taken| taken.taken).collect()
    }

    #[tokio::test]
    async fn a_bucket_is_full_at_first_and_gives_what_it_has() {
        let store = test_store().await;
        assert_eq!(taken(&store, &[asked("a", 5, 3), asked("b", 7, 100)]).await, [3, 7]);
        assert_eq!(taken(&store, &[asked("a", 5, 3), asked("b", 7, 1)]).await, [2, 0]);
        let empty = store.rate_buckets().take(&[asked("b", 7, 1)]).await.unwrap()[0];
        assert!(empty.wait > Duration::from_secs(7) && empty.wait <= Duration::from_secs(9), "{empty:?}");
        assert!(empty.until_full > Duration::from_secs(58), "{empty:?}");
        assert_eq!(taken(&store, &[asked("b", 7, -2)]).await, [-2]);
        assert_eq!(taken(&store, &[asked("b", 7, 5)]).await, [2]);
        store.rate_buckets().forget_full().await.unwrap();
        assert_eq!(taken(&store, &[asked("b", 7, 1)]).await, [0], "it is not full");
    }

    #[tokio::test]
    async fn calls_used_stay_used_at_another_rate() {
        let store = test_store().await;
        for (before, after, expected) in [(10, 15, 7), (15, 10, 2), (60, 4, 0)] {
            let bucket = format!("{before} {after}");
            assert_eq!(taken(&store, &[asked(&bucket, before, 8)]).await, [8]);
            assert_eq!(taken(&store, &[asked(&bucket, after, 100)]).await, [expected], "{bucket}");
        }
    }

    /// Each statement against the rule, with the moments that the database used.
    #[tokio::test]
    async fn the_statement_decides_as_the_rule_says() {
        let (store, mut random) = (test_store().await, StdRng::seed_from_u64(1));
        for per_minute in [1, 7, 60, 1_200, 30_000, u32::MAX] {
            let rate = NonZeroU32::new(per_minute).unwrap();
            let bucket = per_minute.to_string();
            let mut full_at = 0;
            for _ in 0..40 {
                let most = i64::from(per_minute);
                let wanted = random.random_range(-most.min(5)..=most);
                let sql = store.rate_buckets().take_statement(1);
                let rows = store.rate_buckets().try_take(&sql, &[asked(&bucket, per_minute, wanted)]).await.unwrap();
                let (_, taken, now_full_at, now) = rows[0];
                let (expected, expected_full_at) = take(full_at, now, rate, wanted);
                assert_eq!((taken, now_full_at), (expected, expected_full_at), "{per_minute}: {wanted} at {now}");
                full_at = now_full_at;
            }
        }
    }

    #[tokio::test]
    async fn replicas_that_ask_at_once_take_no_more_than_there_is() {
        let store = test_store().await;
        let asking = (0..30).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { taken(&store, &[asked("a", 60, 3), asked("b", 60, 1)]).await })
        });
        let taken: Vec<_> = futures_util::future::join_all(asking).await.into_iter().map(Result::unwrap).collect();
        let of = |at: usize| taken.iter().map(|taken| taken[at]).sum::<i64>();
        assert!((60..=62).contains(&of(0)) && of(1) == 30, "{taken:?}");
    }
}
