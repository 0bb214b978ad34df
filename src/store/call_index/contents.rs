//! The sealed arguments and results of calls: kept for so many days, and no more than so many bytes of them.

use std::sync::Arc;

use jiff::Timestamp;

use super::{CallIndexStore, StoreError, micros_of};
use crate::text::storable;
use sekisho_core::record::CallSummary;

/// The content of a call, for the store.
#[derive(Debug)]
pub struct NewCallContent {
    pub call: Arc<CallSummary>,
    pub sealed: String,
}

impl CallIndexStore {
    /// Adds contents, each once, all or nothing.
    pub async fn add_contents(&self, contents: &[NewCallContent]) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        for NewCallContent { call, sealed } in contents {
            let sql = "INSERT INTO call_contents (time, call_id, tenant, bytes, content) VALUES ($1, $2, $3, $4, $5)
                       ON CONFLICT (time, call_id) DO NOTHING";
            sqlx::query(sql)
                .bind(micros_of(call.time))
                .bind(call.id.to_string())
                .bind(storable(&call.tenant))
                .bind(i64::try_from(sealed.len()).unwrap_or(i64::MAX))
                .bind(sealed.as_str())
                .execute(&mut *transaction)
                .await
                .map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// Whether the content of a call is kept.
    pub async fn has_content(&self, call: &CallSummary) -> Result<bool, StoreError> {
        let bytes: Option<(i64,)> = sqlx::query_as("SELECT bytes FROM call_contents WHERE time = $1 AND call_id = $2")
            .bind(micros_of(call.time))
            .bind(call.id.to_string())
            .fetch_optional(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        Ok(bytes.is_some())
    }

    /// The sealed content of a call.
    pub async fn content_of(&self, call: &CallSummary) -> Result<Option<String>, StoreError> {
        let content: Option<(String,)> =
            sqlx::query_as("SELECT content FROM call_contents WHERE time = $1 AND call_id = $2")
                .bind(micros_of(call.time))
                .bind(call.id.to_string())
                .fetch_optional(&self.0.pool)
                .await
                .map_err(|error| self.0.failed(error))?;
        Ok(content.map(|(content,)| content))
    }

    /// Removes contents from before a moment, and the oldest above so many bytes. Returns the number of removed ones.
    pub async fn retain_contents(&self, since: Timestamp, max_bytes: u64) -> Result<u64, StoreError> {
        let sql = "SELECT time FROM (
                       SELECT time, SUM(bytes) OVER (ORDER BY time DESC) AS together FROM call_contents
                   ) AS sums WHERE together > $1 ORDER BY time DESC LIMIT 1";
        let last: Option<(i64,)> = sqlx::query_as(sql)
            .bind(i64::try_from(max_bytes).unwrap_or(i64::MAX))
            .fetch_optional(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        let first = last.map_or(i64::MIN, |(last,)| last.saturating_add(1)).max(since.as_microsecond());
        self.remove_in_parts("call_contents", first).await
    }
}
