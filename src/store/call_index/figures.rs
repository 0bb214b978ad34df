//! Figures: what calls came to in the parts of a time, and in all of it by tool; and what each caller used of each tool on each day.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::super::retried;
use super::series::{Period, Place, Series, Subject, TimeRange, parts_of_use, use_of};
use super::sums::CallSums;
use super::{CallIndexStore, IndexWriter, ROWS, StoreError, parameters_of_rows, stays_prepared, storable};

/// Microseconds in which a tool is seen to fail: five minutes.
const LATEST: i64 = 300_000_000;

/// The sums of a series over a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    pub range: TimeRange,
    /// Where each part of the range begins, and its sums; the oldest first.
    pub parts: Vec<(Timestamp, CallSums)>,
    /// The sums of the same parts a day before, where they are compared.
    pub before: Option<Vec<CallSums>>,
}

/// The calls of a tool by one caller on one day (UTC).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolUse {
    pub day: Date,
    /// The key of the caller.
    pub owner: String,
    pub tool: String,
    pub sums: CallSums,
}

/// The place of a [`ToolUse`] in its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UseCursor {
    time: i64,
    value: String,
}

impl Figures {
    /// The whole time.
    pub fn total(&self) -> CallSums {
        self.parts.iter().fold(CallSums::default(), |mut total, (_, sums)| {
            total.add_all(sums);
            total
        })
    }

    /// Where a part ends that begins there.
    pub fn end_of(&self, start: Timestamp) -> Timestamp {
        moment(start.as_microsecond().saturating_add(self.range.part()))
    }
}

impl ToolUse {
    /// Its place in the list.
    pub fn place(&self) -> UseCursor {
        let midnight = self.day.to_zoned(TimeZone::UTC).map(|midnight| midnight.timestamp()).unwrap_or_default();
        UseCursor { time: midnight.as_microsecond(), value: use_of(&self.owner, &self.tool) }
    }
}

impl fmt::Display for UseCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.time, hex::encode(&self.value))
    }
}

impl FromStr for UseCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (time, value) = text.split_once('-').ok_or(())?;
        let value = String::from_utf8(hex::decode(value).map_err(|_| ())?).map_err(|_| ())?;
        Ok(Self { time: time.parse().map_err(|_| ())?, value })
    }
}

impl CallIndexStore {
    /// Writes the sums of calls that were added.
    /// Errors: [`StoreError`]: none were written, and they wait on.
    pub async fn write_sums(&self, writer: &mut IndexWriter) -> Result<(), StoreError> {
        let rows: Vec<_> = writer.sums.rows(*self.0.now()).into_iter().collect();
        if !rows.is_empty() {
            retried(|| self.add_sums(&rows)).await?;
        }
        writer.sums.clear();
        Ok(())
    }

    async fn add_sums(&self, rows: &[(Place, CallSums)]) -> Result<(), StoreError> {
        let failed = |error| self.0.failed(error);
        let mut transaction = self.0.pool.begin_with(self.0.engine.begin_statement()).await.map_err(failed)?;
        for rows in rows.chunks(ROWS) {
            let stored = self.lock(&mut transaction, rows).await?;
            self.write(&mut transaction, rows, &stored).await?;
        }
        transaction.commit().await.map_err(failed)
    }

    /// The rows as stored, which stay locked until the end of the transaction: no other process may write between our read and our
    /// write.
    async fn lock(
        &self,
        connection: &mut AnyConnection,
        rows: &[(Place, CallSums)],
    ) -> Result<HashMap<Key, CallSums>, StoreError> {
        let sql = format!(
            "INSERT INTO call_sums (sums, kind, tenant, value, period, time) VALUES {}
             ON CONFLICT (kind, tenant, value, period, time) DO UPDATE SET sums = call_sums.sums
             RETURNING kind, tenant, value, period, time, sums",
            parameters_of_rows(rows.len(), "'{}', ", 5)
        );
        let mut statement =
            sqlx::query_as(AssertSqlSafe(sql)).persistent(stays_prepared(rows.len()) || rows.len() == ROWS);
        for (place, _) in rows {
            let (kind, tenant, value, period, time) = key_of(place);
            statement = statement.bind(kind).bind(tenant).bind(value).bind(period).bind(time);
        }
        let stored: Vec<(String, String, String, i64, i64, String)> =
            statement.fetch_all(connection).await.map_err(|error| self.0.failed(error))?;
        let stored = stored
            .into_iter()
            .map(|(kind, tenant, value, period, time, sums)| ((kind, tenant, value, period, time), read(&sums)));
        Ok(stored.collect())
    }

    async fn write(
        &self,
        connection: &mut AnyConnection,
        rows: &[(Place, CallSums)],
        stored: &HashMap<Key, CallSums>,
    ) -> Result<(), StoreError> {
        let sql = format!(
            "INSERT INTO call_sums (kind, tenant, value, period, time, sums) VALUES {}
             ON CONFLICT (kind, tenant, value, period, time) DO UPDATE SET sums = excluded.sums",
            parameters_of_rows(rows.len(), "", 6)
        );
        let mut statement =
            sqlx::query(AssertSqlSafe(sql)).persistent(stays_prepared(rows.len()) || rows.len() == ROWS);
        for (place, more) in rows {
            let key = key_of(place);
            let mut sums = more.clone();
            stored.get(&key).into_iter().for_each(|stored| sums.add_all(stored));
            let (kind, tenant, value, period, time) = key;
            statement = statement.bind(kind).bind(tenant).bind(value).bind(period).bind(time);
            statement = statement.bind(serde_json::to_string(&sums).unwrap_or_default());
        }
        statement.execute(connection).await.map(drop).map_err(|error| self.0.failed(error))
    }

    /// The sums of a series in the parts of a time. A caller or key of no named tenant is summed over all of them.
    pub async fn figures(&self, series: &Series, range: TimeRange, now: Timestamp) -> Result<Figures, StoreError> {
        let first = range.first(now);
        let starts = (0..range.parts).map(|part| moment(first + part * range.part()));
        let mut parts: Vec<_> = starts.map(|start| (start, CallSums::default())).collect();
        let condition = if has_row_of_all(series) { " AND tenant = $5" } else { "" };
        let sql = format!(
            "SELECT time, sums FROM call_sums WHERE period = $1 AND time >= $2 AND kind = $3 AND value = $4{condition}"
        );
        let mut statement = sqlx::query_as(AssertSqlSafe(sql))
            .bind(range.period.seconds())
            .bind(first)
            .bind(series.subject.as_str())
            .bind(storable(&series.value));
        if has_row_of_all(series) {
            statement = statement.bind(tenant_of(series));
        }
        let rows: Vec<(i64, String)> = statement.fetch_all(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        for (time, sums) in rows {
            let part = usize::try_from((time - first).div_euclid(range.part())).unwrap_or(usize::MAX);
            // A clock of another replica may be ahead.
            if let Some((_, sum)) = parts.get_mut(part) {
                sum.add_all(&read(&sums));
            }
        }
        Ok(Figures { range, parts, before: None })
    }

    /// What each tool came to: of a tenant or of all, or as an owner called it. Ranges of days have whole days (UTC).
    pub async fn sums_of_tools(
        &self,
        tenant: Option<&str>,
        owner: Option<&str>,
        range: TimeRange,
        now: Timestamp,
    ) -> Result<BTreeMap<String, CallSums>, StoreError> {
        // Few rows of days instead of many of hours.
        let period = if range.width * range.parts > Period::Day.seconds() { Period::Day } else { range.period };
        let subject = if owner.is_some() { Subject::Use } else { Subject::Tool };
        let beginning = owner.map(|owner| use_of(&storable(owner), "")).unwrap_or_default();
        let sql = format!(
            "SELECT value, sums FROM call_sums
             WHERE period = $1 AND time >= $2 AND kind = $3 AND tenant = $4 AND SUBSTR(value, 1, {}) = $5",
            beginning.chars().count()
        );
        let rows: Vec<(String, String)> = sqlx::query_as(AssertSqlSafe(sql))
            .persistent(false)
            .bind(period.seconds())
            .bind(period.start(range.first(now)))
            .bind(subject.as_str())
            .bind(storable(tenant.unwrap_or_default()))
            .bind(beginning)
            .fetch_all(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        let mut tools = BTreeMap::<_, CallSums>::new();
        for (value, sums) in rows {
            let tool = if owner.is_some() { parts_of_use(&value).1.to_owned() } else { value };
            tools.entry(tool).or_default().add_all(&read(&sums));
        }
        Ok(tools)
    }

    /// What each caller came to, by tenant and id: of a tenant or of all.
    pub async fn sums_of_callers(
        &self,
        tenant: Option<&str>,
        range: TimeRange,
        now: Timestamp,
    ) -> Result<BTreeMap<(String, String), CallSums>, StoreError> {
        let wanted = if tenant.is_some() { " AND tenant = $4" } else { "" };
        let sql =
            format!("SELECT tenant, value, sums FROM call_sums WHERE period = $1 AND time >= $2 AND kind = $3{wanted}");
        let mut statement = sqlx::query_as(AssertSqlSafe(sql))
            .bind(range.period.seconds())
            .bind(range.first(now))
            .bind(Subject::Caller.as_str());
        if let Some(tenant) = tenant {
            statement = statement.bind(storable(tenant));
        }
        let rows: Vec<(String, String, String)> =
            statement.fetch_all(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        let mut callers = BTreeMap::<_, CallSums>::new();
        for (tenant, id, sums) in rows {
            callers.entry((tenant, id)).or_default().add_all(&read(&sums));
        }
        Ok(callers)
    }

    /// The tools whose upstream fails, of a tenant or of all: in the latest five minutes of the last hour in which a call reached it, no
    /// more calls succeeded than failed by its fault.
    /// Errors: [`StoreError`].
    pub async fn failing_tools(&self, tenant: Option<&str>, now: Timestamp) -> Result<BTreeSet<String>, StoreError> {
        let sql = "SELECT value, time, sums FROM call_sums
                   WHERE period = $1 AND time >= $2 AND kind = $3 AND tenant = $4 ORDER BY time";
        let rows: Vec<(String, i64, String)> = sqlx::query_as(sql)
            .bind(Period::Minute.seconds())
            .bind(TimeRange::MINUTES.first(now))
            .bind(Subject::Tool.as_str())
            .bind(storable(tenant.unwrap_or_default()))
            .fetch_all(&self.0.pool)
            .await
            .map_err(|error| self.0.failed(error))?;
        // By tool: the last part with such a call, and its sums.
        let mut latest = HashMap::<_, (i64, CallSums)>::new();
        for (tool, time, sums) in rows {
            let (sums, part) = (read(&sums), time.div_euclid(LATEST));
            if sums.upstream_fails().is_none() {
                continue;
            }
            let (last, sum) = latest.entry(tool).or_default();
            if *last != part {
                (*last, *sum) = (part, CallSums::default());
            }
            sum.add_all(&sums);
        }
        let failing = latest.into_iter().filter(|(_, (_, sums))| sums.upstream_fails().unwrap_or_default());
        Ok(failing.map(|(tool, _)| tool).collect())
    }

    /// At most `limit` uses after a place, the latest day first: since a moment, of a tenant or of all, of an owner or of all.
    pub async fn tool_uses(
        &self,
        since: Timestamp,
        (tenant, owner): (Option<&str>, Option<&str>),
        after: Option<&UseCursor>,
        limit: usize,
    ) -> Result<Vec<ToolUse>, StoreError> {
        let (time, value) = after.map_or((i64::MAX, ""), |after| (after.time, &*after.value));
        let beginning = owner.map(|owner| use_of(&storable(owner), "")).unwrap_or_default();
        let wanted = if tenant.is_some() { " AND tenant = $6" } else { "" };
        let sql = format!(
            "SELECT time, value, sums FROM call_sums
             WHERE period = $1 AND time >= $2 AND kind = 'use' AND time <= $3 AND (time < $3 OR value > $4)
                 AND SUBSTR(value, 1, {}) = $5{wanted}
             ORDER BY time DESC, value LIMIT {limit}",
            beginning.chars().count()
        );
        let mut statement = sqlx::query_as(AssertSqlSafe(sql))
            .persistent(false)
            .bind(Period::Day.seconds())
            .bind(since.as_microsecond())
            .bind(time)
            .bind(storable(value))
            .bind(beginning);
        if let Some(tenant) = tenant {
            statement = statement.bind(storable(tenant));
        }
        let rows: Vec<(i64, String, String)> =
            statement.fetch_all(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        let uses = rows.into_iter().map(|(time, value, sums)| {
            let (owner, tool) = parts_of_use(&value);
            let day = moment(time).to_zoned(TimeZone::UTC).date();
            ToolUse { day, owner: owner.to_owned(), tool: tool.to_owned(), sums: read(&sums) }
        });
        Ok(uses.collect())
    }
}

/// Sums that cannot be read are as none: they are a view of the calls, and further calls count.
fn read(text: &str) -> CallSums {
    serde_json::from_str(text).unwrap_or_else(|problem| {
        tracing::warn!(%problem, "sums of calls cannot be read and are left out");
        CallSums::default()
    })
}

/// As stored: kind, tenant, value, period, time.
type Key = (String, String, String, i64, i64);

fn key_of(place: &Place) -> Key {
    let Place { series, period, time } = place;
    (series.subject.as_str().to_owned(), tenant_of(series), series.value.clone(), period.seconds(), *time)
}

/// Empty for all tenants.
fn tenant_of(series: &Series) -> String {
    storable(series.tenant.as_deref().unwrap_or_default())
}

/// Whether one tenant is named, or all tenants have rows together.
fn has_row_of_all(series: &Series) -> bool {
    series.tenant.is_some() || matches!(series.subject, Subject::All | Subject::Tool | Subject::Server)
}

fn moment(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or_default()
}
