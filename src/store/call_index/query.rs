//! Pages of calls, and how many calls have which values.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::chunks::{Range, Ranges};
use super::conditions::{CallCursor, CallOrder, Conditions, IndexFilter, TextAs};
use super::failures::moment;
use super::{CallIndexStore, StoreError, micros_of};
use sekisho_core::record::CallSummary;

/// Chunks that one page looks at, and of which one statement orders or counts calls. The next page goes on with further ones.
const MAX_CHUNKS: usize = 12;

/// The same for a search by ids: of ten million calls, forty chunks seem to have an id that none has.
const MAX_CHUNKS_OF_IDS: usize = 128;

/// The most frequent values of a facet.
const VALUES: usize = 12;

/// The columns whose values are counted.
const FACETS: [&str; 7] = ["status", "code", "stage", "tool", "server", "caller", "tenant"];

/// A call as stored: the calls that are one entry, its record, its value in the order, its id.
type Row = (i64, String, i64, String);

/// A call of the index.
#[derive(Debug, Clone)]
pub struct IndexedCall {
    pub call: Arc<CallSummary>,
    /// Calls that were refused alike and are one entry.
    pub calls: u64,
}

/// Calls in their order.
#[derive(Debug, Default)]
pub struct FoundCalls {
    pub calls: Vec<IndexedCall>,
    /// Where to go on, if there may be more.
    pub next: Option<CallCursor>,
}

/// The most frequent values of a field, among the latest chunks that may have wanted calls: of some fifty thousand calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facet {
    pub name: &'static str,
    /// With the numbers of calls, the most frequent first.
    pub values: Vec<(String, u64)>,
}

impl CallIndexStore {
    /// At most `limit` calls after a place. In the order of time, a page may have fewer and go on. The other orders are of the latest
    /// chunks, as for [`facets`](Self::facets).
    pub async fn calls(
        &self,
        filter: &IndexFilter,
        order: CallOrder,
        after: Option<&CallCursor>,
        limit: usize,
    ) -> Result<FoundCalls, StoreError> {
        if filter.text.is_some() {
            let found = self.page(filter, TextAs::Id, order, after, limit).await?;
            if !found.calls.is_empty() {
                return Ok(found);
            }
        }
        self.page(filter, TextAs::Message, order, after, limit).await
    }

    async fn page(
        &self,
        filter: &IndexFilter,
        text_as: TextAs,
        order: CallOrder,
        after: Option<&CallCursor>,
        limit: usize,
    ) -> Result<FoundCalls, StoreError> {
        let mut conditions = Conditions::new(filter, text_as);
        if let Some(after) = after {
            conditions.after(order, after);
        }
        match order {
            CallOrder::Time => self.latest(&conditions, limit).await,
            CallOrder::Duration | CallOrder::Cost => self.largest(&conditions, order, limit).await,
        }
    }

    /// Chunk after chunk, as each is later than the next.
    async fn latest(&self, conditions: &Conditions, limit: usize) -> Result<FoundCalls, StoreError> {
        let mut ranges = self.ranges(conditions);
        let (mut found, mut looked_at) = (Vec::new(), 0);
        let maximum = if conditions.has_ids { MAX_CHUNKS_OF_IDS } else { MAX_CHUNKS };
        while found.len() <= limit
            && let Some(range) = ranges.next().await?
        {
            if looked_at == maximum {
                let next = CallCursor { value: range.last.saturating_add(1), call_id: String::new() };
                return Ok(FoundCalls { calls: read_all(found), next: Some(next) });
            }
            looked_at += 1;
            found.extend(self.rows(conditions, &[range], CallOrder::Time, limit + 1 - found.len()).await?);
        }
        Ok(FoundCalls::of(found, limit))
    }

    async fn largest(&self, conditions: &Conditions, order: CallOrder, limit: usize) -> Result<FoundCalls, StoreError> {
        let (ranges, _) = self.latest_of(conditions).await?;
        if ranges.is_empty() {
            return Ok(FoundCalls::default());
        }
        Ok(FoundCalls::of(self.rows(conditions, &ranges, order, limit + 1).await?, limit))
    }

    async fn rows(
        &self,
        conditions: &Conditions,
        ranges: &[Range],
        order: CallOrder,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let (wanted, column) = (conditions.within(ranges), order.column());
        let sql = format!(
            "SELECT calls, record, {column}, call_id FROM indexed_calls WHERE {wanted}
             ORDER BY {column} DESC, call_id DESC LIMIT {limit}"
        );
        conditions.query(sql).fetch_all(&self.0.pool).await.map_err(|error| self.0.failed(error))
    }

    fn ranges<'a>(&'a self, conditions: &'a Conditions) -> Ranges<'a> {
        let (since, until) = conditions.times;
        Ranges::new(self, &conditions.wanted, since, until)
    }

    /// The latest times that may have wanted calls, and where they begin, if there are earlier ones.
    pub(super) async fn latest_of(
        &self,
        conditions: &Conditions,
    ) -> Result<(Vec<Range>, Option<Timestamp>), StoreError> {
        let (mut ranges, mut latest) = (self.ranges(conditions), Vec::new());
        while let Some(range) = ranges.next().await? {
            if latest.len() == MAX_CHUNKS {
                let earliest = latest.last().map(|range: &Range| moment(range.first));
                return Ok((latest, earliest));
            }
            latest.push(range);
        }
        Ok((latest, None))
    }

    /// The wanted calls by the second (since 1970) in which they ended.
    pub async fn calls_by_second(&self, filter: &IndexFilter) -> Result<BTreeMap<i64, u64>, StoreError> {
        let conditions = Conditions::new(filter, TextAs::Message);
        let (first, until) = conditions.times;
        let sql = format!(
            "SELECT time / 1000000, CAST(SUM(calls) AS BIGINT) FROM indexed_calls WHERE {} GROUP BY time / 1000000",
            conditions.within(&[Range { first, last: until.saturating_sub(1) }])
        );
        let rows: Vec<(i64, i64)> =
            conditions.query(sql).fetch_all(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        Ok(rows.into_iter().map(|(second, calls)| (second, calls.try_into().unwrap_or(0))).collect())
    }

    /// Why a call failed, sealed.
    pub async fn words_of(&self, call: &CallSummary) -> Result<Option<String>, StoreError> {
        let words: Option<(Option<String>,)> =
            sqlx::query_as("SELECT words FROM indexed_calls WHERE time = $1 AND call_id = $2")
                .bind(micros_of(call.time))
                .bind(call.id.to_string())
                .fetch_optional(&self.0.pool)
                .await
                .map_err(|error| self.0.failed(error))?;
        Ok(words.and_then(|(words,)| words))
    }

    /// The most frequent values of the wanted calls, field by field.
    pub async fn facets(&self, filter: &IndexFilter) -> Result<Vec<Facet>, StoreError> {
        if filter.text.is_some() {
            let by_id = self.count(filter, TextAs::Id).await?;
            if by_id.iter().any(|facet| !facet.values.is_empty()) {
                return Ok(by_id);
            }
        }
        self.count(filter, TextAs::Message).await
    }

    async fn count(&self, filter: &IndexFilter, text_as: TextAs) -> Result<Vec<Facet>, StoreError> {
        let conditions = Conditions::new(filter, text_as);
        let (ranges, _) = self.latest_of(&conditions).await?;
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let counts = FACETS.map(|name| {
            format!(
                "SELECT '{name}' AS facet, {name} AS value, CAST(SUM(calls) AS BIGINT) AS calls FROM wanted
                 WHERE {name} IS NOT NULL GROUP BY {name}"
            )
        });
        let sql = format!(
            "WITH wanted AS MATERIALIZED (SELECT calls, {} FROM indexed_calls WHERE {}) {}",
            FACETS.join(", "),
            conditions.within(&ranges),
            counts.join(" UNION ALL ")
        );
        let rows: Vec<(String, String, i64)> =
            conditions.query(sql).fetch_all(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        let mut counted: BTreeMap<String, Vec<(String, u64)>> = BTreeMap::new();
        for (name, value, calls) in rows {
            counted.entry(name).or_default().push((value, calls.try_into().unwrap_or(0)));
        }
        let facets = FACETS.map(|name| {
            let mut values = counted.remove(name).unwrap_or_default();
            values.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
            values.truncate(VALUES);
            Facet { name, values }
        });
        Ok(facets.into())
    }
}

impl FoundCalls {
    /// The first `limit` of rows of which more were read if there are more.
    fn of(mut rows: Vec<Row>, limit: usize) -> Self {
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().filter(|_| has_more);
        let next = last.map(|(_, _, value, call_id)| CallCursor { value: *value, call_id: call_id.clone() });
        Self { calls: read_all(rows), next }
    }
}

fn read_all(rows: Vec<Row>) -> Vec<IndexedCall> {
    rows.into_iter().filter_map(read).collect()
}

/// A record that a newer program wrote, with a name that this one does not know, is left out.
fn read((calls, record, ..): Row) -> Option<IndexedCall> {
    match serde_json::from_str::<CallSummary>(&record) {
        Ok(call) => Some(IndexedCall { call: Arc::new(call), calls: calls.try_into().unwrap_or(1) }),
        Err(problem) => {
            tracing::warn!(%problem, "a call of the index cannot be read and is left out");
            None
        }
    }
}
