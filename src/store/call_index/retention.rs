//! The index keeps entries of so many days, and no more than so many bytes.

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::series::Period;
use super::{CallIndexStore, IndexWriter, StoreError};

/// Entries that one statement removes: it holds up writers for some ten milliseconds.
const REMOVED_AT_ONCE: usize = 2_000;

/// Maximum events: beyond it the oldest go.
const MAX_EVENTS: i64 = 500_000;

/// Maximum rows of sums of each period: beyond it the oldest go.
const MAX_SUMS: i64 = 1_000_000;

/// Calls whose records are measured.
const MEASURED: usize = 1_000;

/// Bytes of a row beside its record, with its place in the key and its part of a chunk: measured on SQLite.
const BYTES_OF_ROW: f64 = 500.0;

impl CallIndexStore {
    /// Removes entries from before a moment, and the oldest calls above so many bytes. Returns the number of removed calls.
    /// Errors: [`StoreError`]; some may be removed.
    pub async fn retain(&self, since: Timestamp, max_bytes: u64) -> Result<u64, StoreError> {
        let since = since.as_microsecond();
        let first = self.first_of_latest("indexed_events", MAX_EVENTS).await?.max(since);
        self.remove_before("DELETE FROM indexed_events WHERE time < $1", first).await?;
        let calls = self.calls_within(max_bytes).await?;
        let since = self.first_of_latest("indexed_calls", calls).await?.max(since);
        self.note_removal(since).await?;
        self.remove_before("DELETE FROM indexed_chunks WHERE last_time < $1", since).await?;
        self.remove_in_parts("indexed_calls", since).await
    }

    /// Removes the entries of a table from before a moment, not all of them at once. Returns their number.
    pub(super) async fn remove_in_parts(&self, table: &str, since: i64) -> Result<u64, StoreError> {
        let failed = |error| self.0.failed(error);
        let mut removed = 0;
        loop {
            let sql =
                format!("SELECT time FROM {table} WHERE time < $1 ORDER BY time LIMIT 1 OFFSET {REMOVED_AT_ONCE}");
            let next: Option<(i64,)> =
                sqlx::query_as(AssertSqlSafe(sql)).bind(since).fetch_optional(&self.0.pool).await.map_err(failed)?;
            let last = next.map_or(since.saturating_sub(1), |(time,)| time);
            let sql = format!("DELETE FROM {table} WHERE time <= $1");
            let part = sqlx::query(AssertSqlSafe(sql)).bind(last).execute(&self.0.pool).await.map_err(failed)?;
            removed += part.rows_affected();
            if next.is_none() {
                return Ok(removed);
            }
        }
    }

    /// Removes sums that no figure reads any more.
    /// Errors: [`StoreError`]; some may be removed.
    pub async fn retain_sums(&self, now: Timestamp) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        for period in Period::ALL {
            let beyond: Option<(i64,)> =
                sqlx::query_as("SELECT time FROM call_sums WHERE period = $1 ORDER BY time DESC LIMIT 1 OFFSET $2")
                    .bind(period.seconds())
                    .bind(MAX_SUMS)
                    .fetch_optional(&self.0.pool)
                    .await
                    .map_err(failed)?;
            let first = beyond.map_or(i64::MIN, |(time,)| time.saturating_add(1)).max(period.oldest(now));
            let removed = sqlx::query("DELETE FROM call_sums WHERE period = $1 AND time < $2");
            removed.bind(period.seconds()).bind(first).execute(&self.0.pool).await.map_err(failed)?;
        }
        Ok(())
    }

    /// A writer of calls that the index may have removed: sums have these calls already.
    pub async fn writer_of_old_calls(&self) -> Result<IndexWriter, StoreError> {
        let removed: Option<(i64,)> = sqlx::query_as(
            "SELECT time FROM call_sums WHERE kind = 'removed' AND tenant = '' AND period = 0 ORDER BY time DESC LIMIT 1",
        )
        .fetch_optional(&self.0.pool)
        .await
        .map_err(|error| self.0.failed(error))?;
        Ok(IndexWriter { removed: removed.map_or(0, |(time,)| time), ..IndexWriter::default() })
    }

    /// Notes which calls leave, before they do: a row of no period.
    async fn note_removal(&self, since: i64) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let last: Option<(i64,)> =
            sqlx::query_as("SELECT time FROM indexed_calls WHERE time < $1 ORDER BY time DESC LIMIT 1")
                .bind(since)
                .fetch_optional(&self.0.pool)
                .await
                .map_err(failed)?;
        let Some((last,)) = last else { return Ok(()) };
        let noted = sqlx::query(
            "INSERT INTO call_sums (kind, tenant, value, period, time, sums) VALUES ('removed', '', '', 0, $1, '{}')
             ON CONFLICT (kind, tenant, value, period, time) DO NOTHING",
        );
        noted.bind(last).execute(&self.0.pool).await.map_err(failed)?;
        self.remove_before("DELETE FROM call_sums WHERE period = 0 AND time < $1", last).await.map(drop)
    }

    async fn remove_before(&self, statement: &'static str, moment: i64) -> Result<u64, StoreError> {
        let removed = sqlx::query(statement).bind(moment).execute(&self.0.pool).await;
        removed.map(|removed| removed.rows_affected()).map_err(|error| self.0.failed(error))
    }

    /// The number of calls that have so many bytes.
    async fn calls_within(&self, max_bytes: u64) -> Result<i64, StoreError> {
        let sql = format!(
            "SELECT CAST(COALESCE(AVG(LENGTH(record)), 0) AS DOUBLE PRECISION)
             FROM (SELECT record FROM indexed_calls ORDER BY time DESC LIMIT {MEASURED}) AS latest"
        );
        let failed = |error| self.0.failed(error);
        let record: f64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.0.pool).await.map_err(failed)?;
        #[expect(clippy::cast_possible_truncation, reason = "an estimate")]
        Ok((max_bytes as f64 / (record + BYTES_OF_ROW)) as i64)
    }

    /// The first time of the latest `rows` entries; the smallest number where there are no more.
    async fn first_of_latest(&self, table: &str, rows: i64) -> Result<i64, StoreError> {
        let sql = format!("SELECT time FROM {table} ORDER BY time DESC LIMIT 1 OFFSET {rows}");
        let before: Option<(i64,)> = sqlx::query_as(AssertSqlSafe(sql))
            .fetch_optional(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(before.map_or(i64::MIN, |(time,)| time.saturating_add(1)))
    }
}
