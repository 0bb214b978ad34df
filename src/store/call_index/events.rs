//! Events of the index.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use sqlx::AssertSqlSafe;

use super::{CallCursor, CallIndexStore, ROWS, StoreError, micros_of, parameters_of_rows, storable};
use sekisho_core::record::EventRecord;

const COLUMNS: &str =
    "time, event_id, event, success, tenant, caller, key_id, subject, detail, client, request_id, count";

type Row = (
    i64,
    String,
    String,
    i64,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    i64,
);

/// The events that fit each criterion that is set.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub tenant: Option<String>,
    pub caller: Option<String>,
    /// A kind, such as `key_created`.
    pub event: Option<String>,
    /// The first moment.
    pub since: Option<Timestamp>,
    /// The moment after the last one.
    pub until: Option<Timestamp>,
}

impl CallIndexStore {
    /// Adds events, each once.
    /// Errors: [`StoreError`]. Of several, some may have been added.
    pub async fn add_events(&self, events: &[EventRecord]) -> Result<(), StoreError> {
        for events in events.chunks(ROWS) {
            let rows = parameters_of_rows(events.len(), "", COLUMNS.split(',').count());
            let sql =
                format!("INSERT INTO indexed_events ({COLUMNS}) VALUES {rows} ON CONFLICT (time, event_id) DO NOTHING");
            let mut statement = sqlx::query(AssertSqlSafe(sql)).persistent(false);
            for event in events {
                statement = statement
                    .bind(micros_of(event.time))
                    .bind(id_of(event))
                    .bind(&*event.event)
                    .bind(i64::from(event.success));
                let texts = [&event.tenant, &event.caller, &event.key, &event.subject, &event.detail];
                for text in texts.into_iter().chain([&event.client, &event.request_id]) {
                    statement = statement.bind(text.as_deref().map(storable));
                }
                statement = statement.bind(i64::try_from(event.count).unwrap_or(i64::MAX));
            }
            statement.execute(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        }
        Ok(())
    }

    /// At most `limit` events after a place, the latest first, and where to go on.
    pub async fn events(
        &self,
        filter: &EventFilter,
        after: Option<&CallCursor>,
        limit: usize,
    ) -> Result<(Vec<EventRecord>, Option<CallCursor>), StoreError> {
        let moment = |moment: Option<Timestamp>, open: i64| moment.map_or(open, Timestamp::as_microsecond);
        let (time, id) = after.map_or((i64::MAX, ""), |after| (after.value, &*after.call_id));
        let equal = [("tenant", &filter.tenant), ("caller", &filter.caller), ("event", &filter.event)];
        let equal: Vec<_> =
            equal.into_iter().filter_map(|(column, value)| Some((column, storable(value.as_deref()?)))).collect();
        let wanted: String =
            equal.iter().zip(5..).map(|((column, _), parameter)| format!(" AND {column} = ${parameter}")).collect();
        let sql = format!(
            "SELECT {COLUMNS} FROM indexed_events
             WHERE time >= $1 AND time < $2 AND (time, event_id) < ($3, $4){wanted}
             ORDER BY time DESC, event_id DESC LIMIT {}",
            limit + 1
        );
        let mut statement = sqlx::query_as(AssertSqlSafe(sql))
            .bind(moment(filter.since, i64::MIN))
            .bind(moment(filter.until, i64::MAX))
            .bind(time)
            .bind(storable(id));
        for (_, value) in equal {
            statement = statement.bind(value);
        }
        let rows: Vec<Row> = statement.fetch_all(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        let has_more = rows.len() > limit;
        let last = rows.get(limit.saturating_sub(1)).filter(|_| has_more);
        let next = last.map(|(value, id, ..)| CallCursor { value: *value, call_id: id.clone() });
        Ok((rows.into_iter().take(limit).map(event).collect(), next))
    }
}

fn event(row: Row) -> EventRecord {
    let (time, _, event, success, tenant, caller, key, subject, detail, client, request_id, count) = row;
    let time = SystemTime::UNIX_EPOCH + Duration::from_micros(time.try_into().unwrap_or(0));
    let count = count.try_into().unwrap_or(1);
    EventRecord { time, event, success: success != 0, tenant, caller, key, subject, detail, client, request_id, count }
}

/// The same from the trail's line.
fn id_of(event: &EventRecord) -> String {
    let EventRecord { tenant, caller, key, subject, detail, client, request_id, .. } = event;
    let mut digest = Sha256::new_with_prefix(&event.event);
    for text in [tenant, caller, key, subject, detail, client, request_id] {
        digest.update([0_u8]);
        digest.update(text.as_deref().unwrap_or_default());
    }
    hex::encode(&digest.finalize()[..16])
}
