//! Failures and refusals by a field: how many, since when, and the first call of them; and who made the calls that a limit counts.

use jiff::Timestamp;
use rust_decimal::Decimal;

use super::conditions::{Conditions, IndexFilter, TextAs};
use super::{CallIndexStore, StoreError};
use crate::rule_usage::cost_of;

/// The most frequent groups of a list.
const MAX_GROUPS: usize = 200;

/// Callers and tools that are listed of the calls that a limit counts.
const MAX_USERS: usize = 500;

/// Units of the smallest price in a part of a sum: a sum of whole costs could be too large for the database.
const PART: i64 = 1_000_000;

/// The field by which failures are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FailuresBy {
    #[default]
    Tool,
    Server,
    Caller,
    Tenant,
    Upstream,
}

/// Calls that failed or were refused alike: with one value of the field, and one code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureGroup {
    pub value: String,
    pub code: Option<String>,
    pub failed: u64,
    /// All calls with this value.
    pub calls: u64,
    /// The first failure after the last success; where calls succeed since then, the first of all.
    pub since: Timestamp,
    pub first_call: String,
    pub last: Timestamp,
    pub last_call: String,
    pub last_success: Option<Timestamp>,
    /// No call with this value has succeeded since.
    pub is_constant: bool,
}

/// Groups, the largest first.
#[derive(Debug, Default)]
pub struct Failures {
    pub groups: Vec<FailureGroup>,
    /// Where the search ended, if there may be calls before it.
    pub searched_since: Option<Timestamp>,
}

/// The calls of a caller with a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedUse {
    pub tenant: String,
    pub caller: String,
    pub tool: String,
    pub calls: u64,
    pub cost_usd: Decimal,
}

/// Value, code, failures, calls; first and last time; first and last call; last success; first time and call after it.
type Row = (String, Option<String>, i64, i64, i64, i64, String, String, Option<i64>, Option<i64>, Option<String>);

impl FailuresBy {
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl CallIndexStore {
    /// The failures and refusals among the latest fifty thousand wanted calls or so, without dry runs.
    pub async fn failures(&self, filter: &IndexFilter, by: FailuresBy) -> Result<Failures, StoreError> {
        let all = IndexFilter { status: None, code: None, stage: None, http_status: None, ..filter.clone() };
        let mut conditions = Conditions::new(&all, TextAs::Message);
        let (ranges, searched_since) = self.latest_of(&conditions).await?;
        if ranges.is_empty() {
            return Ok(Failures::default());
        }
        let (field, wanted, of_failures) = (by.as_str(), conditions.within(&ranges), conditions.of_failures(filter));
        let sql = format!(
            "WITH wanted AS MATERIALIZED (
                 SELECT time, call_id, calls, status, code, stage, http_status, {field} AS value FROM indexed_calls
                 WHERE {wanted} AND dry_run = 0 AND {field} IS NOT NULL),
             totals AS (
                 SELECT value, SUM(calls) AS calls, MAX(CASE WHEN status = 'success' THEN time END) AS success
                 FROM wanted GROUP BY value)
             SELECT w.value, w.code, CAST(SUM(w.calls) AS BIGINT), CAST(t.calls AS BIGINT), MIN(w.time), MAX(w.time),
                 MIN(w.call_id), MAX(w.call_id), t.success,
                 MIN(CASE WHEN w.time > t.success THEN w.time END), MIN(CASE WHEN w.time > t.success THEN w.call_id END)
             FROM wanted w JOIN totals t ON t.value = w.value
             WHERE w.status IN ('error', 'refused'){of_failures}
             GROUP BY w.value, w.code, t.calls, t.success
             ORDER BY 3 DESC, 1, 2 LIMIT {MAX_GROUPS}"
        );
        let rows: Vec<Row> =
            conditions.query(sql).fetch_all(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        Ok(Failures { groups: rows.into_iter().map(FailureGroup::from).collect(), searched_since })
    }

    /// Who made the wanted calls that rate limits and budgets counted, with which tools, the most calls first.
    pub async fn counted_uses(&self, filter: &IndexFilter) -> Result<Vec<CountedUse>, StoreError> {
        let conditions = Conditions::new(filter, TextAs::Message);
        let (ranges, _) = self.latest_of(&conditions).await?;
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let wanted = conditions.within(&ranges);
        let sql = format!(
            "SELECT tenant, caller, tool, CAST(SUM(calls) AS BIGINT), CAST(SUM(cost / {PART}) AS BIGINT),
                 CAST(SUM(cost % {PART}) AS BIGINT)
             FROM indexed_calls WHERE {wanted} AND (stage IS NULL OR stage NOT IN ('find', 'limits'))
             GROUP BY tenant, caller, tool ORDER BY 4 DESC, 1, 2, 3 LIMIT {MAX_USERS}"
        );
        let rows: Vec<(String, String, String, i64, i64, i64)> =
            conditions.query(sql).fetch_all(&self.0.pool).await.map_err(|error| self.0.failed(error))?;
        let uses = rows.into_iter().map(|(tenant, caller, tool, calls, parts, rest)| CountedUse {
            tenant,
            caller,
            tool,
            calls: count(calls),
            cost_usd: cost_of(parts) * Decimal::from(PART) + cost_of(rest),
        });
        Ok(uses.collect())
    }
}

impl From<Row> for FailureGroup {
    fn from(row: Row) -> Self {
        let (value, code, failed, calls, first_time, last_time, first, last_call, success, streak, first_of_streak) =
            row;
        Self {
            value,
            code,
            failed: count(failed),
            calls: count(calls),
            since: moment(streak.unwrap_or(first_time)),
            first_call: first_of_streak.unwrap_or(first),
            last: moment(last_time),
            last_call,
            last_success: success.map(moment),
            is_constant: success.is_none() || streak.is_some(),
        }
    }
}

pub(super) fn moment(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or_default()
}

fn count(number: i64) -> u64 {
    number.try_into().unwrap_or(0)
}
