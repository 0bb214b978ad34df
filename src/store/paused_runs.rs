//! Runs that wait until their clients have run their own tools.

use sqlx::AssertSqlSafe;

use super::text::storable;
use super::{AtStore, Store, StoreError, retried, stays_prepared};
use sekisho_core::database_clock::DatabaseTime;

/// Calls that one statement looks for; engines bound the parameters of a statement.
const MAX_CALLS: usize = 500;

/// The work of a run until it waited, for any caller that knows the id of the first call of its client.
#[derive(Debug, Clone, Copy)]
pub struct PausedRun<'a> {
    pub caller_key: &'a str,
    pub call: &'a str,
    /// JSON.
    pub run: &'a str,
    pub expires: DatabaseTime,
}

/// Runs that wait for the tools of their clients: the table `paused_runs`.
#[derive(Debug, Clone)]
pub struct PausedRunStore(pub(super) Store);

impl PausedRunStore {
    /// Keeps a run, and deletes expired runs, and the oldest runs of its caller beyond so many bytes.
    /// Errors: [`StoreError`]; nothing is changed then.
    pub async fn keep(&self, run: PausedRun<'_>, now: DatabaseTime, max_bytes: usize) -> Result<(), StoreError> {
        retried(|| self.try_keep(run, now, max_bytes)).await
    }

    async fn try_keep(&self, run: PausedRun<'_>, now: DatabaseTime, max_bytes: usize) -> Result<(), StoreError> {
        let size = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        let mut transaction = self.0.begin().await?;
        sqlx::query("DELETE FROM paused_runs WHERE expires <= $1")
            .bind(now.as_microsecond())
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        let text = storable(run.run);
        let sql = "INSERT INTO paused_runs (caller_key, call, run, bytes, expires) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (caller_key, call) DO UPDATE SET run = excluded.run, bytes = excluded.bytes, expires = excluded.expires";
        bound!(sqlx::query(sql), run.caller_key, run.call, text, size(run.run.len()), run.expires.as_microsecond())
            .execute(&mut *transaction)
            .await
            .at(&self.0)?;
        sqlx::query(
            "DELETE FROM paused_runs WHERE caller_key = $1 AND call IN
             (SELECT call FROM (SELECT call, SUM(bytes) OVER (ORDER BY expires DESC, call) AS newest
                                FROM paused_runs WHERE caller_key = $1) AS sums WHERE newest > $2)",
        )
        .bind(run.caller_key)
        .bind(size(max_bytes))
        .execute(&mut *transaction)
        .await
        .at(&self.0)?;
        transaction.commit().await.at(&self.0)
    }

    /// The caller's runs that wait for these calls and have not expired: call and run each, in any order.
    pub async fn waiting_for(
        &self,
        caller_key: &str,
        calls: &[&str],
        now: DatabaseTime,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let mut found = Vec::new();
        for calls in calls.chunks(MAX_CALLS) {
            let places: Vec<_> = (3..calls.len() + 3).map(|number| format!("${number}")).collect();
            let sql = format!(
                "SELECT call, run FROM paused_runs WHERE caller_key = $1 AND expires > $2 AND call IN ({})",
                places.join(", ")
            );
            let query = sqlx::query_as(AssertSqlSafe(sql))
                .persistent(stays_prepared(calls.len()))
                .bind(caller_key)
                .bind(now.as_microsecond());
            let query = calls.iter().fold(query, |query, call| query.bind(*call));
            let rows: Vec<(String, String)> = query.fetch_all(&self.0.pool).await.at(&self.0)?;
            found.extend(rows);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::test_support::test_store;

    #[tokio::test]
    async fn a_run_is_found_by_its_caller_and_call_until_it_expires() {
        let store = test_store().await;
        let at = |second| DatabaseTime::from(Timestamp::from_second(second).unwrap());
        let run = |caller_key, call, expires| PausedRun { caller_key, call, run: "{}", expires: at(expires) };
        for run in [run("ann", "a", 100), run("ann", "b", 200), run("bob", "a", 300)] {
            store.paused_runs().keep(run, at(1), 1_000).await.unwrap();
        }
        let find = async |caller_key, calls: &[&str], second| {
            let found = store.paused_runs().waiting_for(caller_key, calls, at(second)).await.unwrap();
            let mut calls: Vec<_> = found.into_iter().map(|(call, _)| call).collect();
            calls.sort();
            calls
        };
        let many: Vec<_> = (0..MAX_CALLS).map(|_| "x").chain(["b", "a"]).collect();
        assert_eq!(find("ann", &many, 99).await, ["a", "b"]);
        assert_eq!(find("ann", &["a", "b"], 100).await, ["b"]);
        assert_eq!((find("eve", &["a"], 1).await.len(), find("ann", &[], 1).await.len()), (0, 0));
        store.paused_runs().keep(run("ann", "c", 900), at(250), 1_000).await.unwrap();
        assert_eq!(find("ann", &["a", "b", "c"], 1).await, ["c"], "expired ones are deleted");
        assert_eq!(find("bob", &["a"], 1).await, ["a"]);
    }

    #[tokio::test]
    async fn the_oldest_runs_of_a_caller_go_beyond_its_bytes() {
        let store = test_store().await;
        let at = |second| DatabaseTime::from(Timestamp::from_second(second).unwrap());
        let text = "x".repeat(40);
        for (caller_key, call, expires) in [("bob", "a", 10), ("ann", "a", 11), ("ann", "b", 12), ("ann", "c", 13)] {
            let run = PausedRun { caller_key, call, run: &text, expires: at(expires) };
            store.paused_runs().keep(run, at(1), 100).await.unwrap();
        }
        let found = async |caller_key| {
            store.paused_runs().waiting_for(caller_key, &["a", "b", "c"], at(1)).await.unwrap().len()
        };
        assert_eq!((found("ann").await, found("bob").await), (2, 1));
        assert!(store.paused_runs().waiting_for("ann", &["a"], at(1)).await.unwrap().is_empty());
    }
}
