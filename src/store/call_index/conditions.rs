//! Which calls are wanted: as conditions of a statement, and as values that a chunk must have.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use rust_decimal::Decimal;
use sqlx::any::AnyRow;
use sqlx::query::QueryAs;
use sqlx::{Any, AssertSqlSafe, FromRow};

use super::super::replicas::micros;
use super::super::rule_usage::units_of;
use super::chunks::{Range, Wanted};
use super::{IndexedCall, micros_of, storable};
use sekisho_core::record::CallSummary;

/// The calls that fit each criterion that is set.
#[derive(Debug, Clone, Default)]
pub struct IndexFilter {
    pub tenant: Option<String>,
    /// The key of the caller who owns them.
    pub owner: Option<String>,
    pub caller: Option<String>,
    /// A name, or the beginning of names with `*` at its end.
    pub tool: Option<String>,
    /// A server or collection.
    pub server: Option<String>,
    pub key: Option<String>,
    pub session: Option<String>,
    pub status: Option<String>,
    /// An error code, such as `denied`.
    pub code: Option<String>,
    pub stage: Option<String>,
    pub via: Option<String>,
    pub upstream: Option<String>,
    pub http_status: Option<u16>,
    pub dry_run: Option<bool>,
    pub call_id: Option<String>,
    pub request_id: Option<String>,
    /// The run of an agent or program that made them.
    pub run: Option<String>,
    /// SHA-256 of the program that made them.
    pub program: Option<String>,
    /// The approval by which they were made, or that they need.
    pub approval: Option<String>,
    /// The ids of the calls in an agent's run; any where there are none.
    pub agent_calls: Vec<String>,
    /// The ids of the calls whose tools made them; any where there are none.
    pub parents: Vec<String>,
    pub min_duration: Option<Duration>,
    pub min_cost: Option<Decimal>,
    /// The first moment.
    pub since: Option<Timestamp>,
    /// The moment after the last one.
    pub until: Option<Timestamp>,
    /// One of their ids, or a part of a message.
    pub text: Option<String>,
}

/// The order of calls: the largest value first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum CallOrder {
    /// The latest call first.
    #[default]
    Time,
    Duration,
    Cost,
}

/// The place of a call in an order. All its characters stand for themselves in an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallCursor {
    /// In the order's unit.
    pub(super) value: i64,
    pub(super) call_id: String,
}

/// How the text of a filter is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextAs {
    Id,
    Message,
}

/// A value of a statement.
#[derive(Debug, Clone)]
enum Value {
    Text(String),
    Number(i64),
}

/// The conditions of a statement, with their values.
#[derive(Debug)]
pub(super) struct Conditions {
    values: Vec<Value>,
    all: Vec<String>,
    /// Of each of these, a wanted call has one.
    pub(super) wanted: Vec<Vec<Wanted>>,
    /// The first time, and the time after the last one.
    pub(super) times: (i64, i64),
    /// Whether they name calls by ids, which few chunks seem to have.
    pub(super) has_ids: bool,
}

impl CallOrder {
    pub(super) fn column(self) -> &'static str {
        self.into()
    }

    /// The place of a call.
    pub fn place(self, call: &CallSummary) -> CallCursor {
        let value = match self {
            Self::Time => micros_of(call.time),
            Self::Duration => super::duration_of(call),
            Self::Cost => units_of(call.cost_usd),
        };
        CallCursor { value, call_id: call.id.to_string() }
    }
}

impl fmt::Display for CallCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.value, self.call_id)
    }
}

impl FromStr for CallCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (value, call_id) = text.split_once('-').ok_or(())?;
        Ok(Self { value: value.parse().map_err(|_| ())?, call_id: call_id.to_owned() })
    }
}

impl Conditions {
    pub(super) fn new(filter: &IndexFilter, text_as: TextAs) -> Self {
        let moment = |moment: Option<Timestamp>, open: i64| moment.map_or(open, Timestamp::as_microsecond);
        let times = (moment(filter.since, i64::MIN), moment(filter.until, i64::MAX));
        let has_ids = filter.call_id.is_some()
            || filter.request_id.is_some()
            || filter.run.is_some()
            || filter.program.is_some()
            || filter.approval.is_some()
            || !filter.agent_calls.is_empty()
            || !filter.parents.is_empty()
            || (filter.text.is_some() && text_as == TextAs::Id);
        let mut conditions =
            Self { values: Vec::new(), all: vec!["1 = 1".to_owned()], wanted: Vec::new(), times, has_ids };
        let (server, beginning) = filter.server_and_beginning();
        for (column, value) in filter.equal().chain(server.map(|server| ("server", server))) {
            conditions.one_of(&[column], &[value]);
        }
        conditions.one_of(&["agent_call"], &filter.agent_calls);
        conditions.one_of(&["parent"], &filter.parents);
        match (&filter.text, text_as) {
            (Some(id), TextAs::Id) => {
                let columns =
                    ["call_id", "request_id", "session", "agent_call", "parent", "run", "program", "approval"];
                conditions.one_of(&columns, &[id]);
            }
            (Some(text), TextAs::Message) => conditions.message_has(text),
            (None, _) => {}
        }
        conditions.add_others(filter, beginning);
        conditions
    }

    /// One of the columns has one of the values, if there are any.
    fn one_of(&mut self, columns: &[&str], values: &[impl AsRef<str>]) {
        if values.is_empty() {
            return;
        }
        let parameters: Vec<_> = values.iter().map(|value| self.text(value.as_ref())).collect();
        let list = parameters.join(", ");
        let conditions: Vec<_> = columns.iter().map(|column| format!("{column} IN ({list})")).collect();
        self.all.push(format!("({})", conditions.join(" OR ")));
        let pairs = columns.iter().flat_map(|column| values.iter().map(move |value| (column, value)));
        self.wanted.push(pairs.map(|(column, value)| Wanted::new(column, &storable(value.as_ref()))).collect());
    }

    fn add_others(&mut self, filter: &IndexFilter, beginning: Option<&str>) {
        if let Some(beginning) = beginning {
            let (length, beginning) = (beginning.chars().count(), self.text(beginning));
            self.all.push(format!("SUBSTR(tool, 1, {length}) = {beginning}"));
        }
        if let Some(status) = filter.http_status {
            self.wanted.push(vec![Wanted::new("http_status", &status.to_string())]);
        }
        let numbers = [
            ("http_status =", filter.http_status.map(i64::from)),
            ("dry_run =", filter.dry_run.map(i64::from)),
            ("duration >=", filter.min_duration.map(micros)),
            ("cost >=", filter.min_cost.map(units_of)),
        ];
        for (comparison, number) in numbers {
            if let Some(number) = number {
                let number = self.number(number);
                self.all.push(format!("{comparison} {number}"));
            }
        }
    }

    /// A part of a message, or of a tool's name, in letters of any case.
    fn message_has(&mut self, text: &str) {
        let escaped = text.to_lowercase().replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        let part = self.text(&format!("%{escaped}%"));
        self.all.push(format!("(LOWER(message) LIKE {part} ESCAPE '\\' OR LOWER(tool) LIKE {part} ESCAPE '\\')"));
    }

    /// Only calls after this one, in their order.
    pub(super) fn after(&mut self, order: CallOrder, cursor: &CallCursor) {
        if order == CallOrder::Time {
            self.times.1 = self.times.1.min(cursor.value.saturating_add(1));
        }
        let (value, id) = (self.number(cursor.value), self.text(&cursor.call_id));
        self.all.push(format!("({}, call_id) < ({value}, {id})", order.column()));
    }

    /// The conditions on the failures `w` of a statement: successes are counted beside them.
    pub(super) fn of_failures(&mut self, filter: &IndexFilter) -> String {
        let mut conditions = String::new();
        for (column, value) in [("status", &filter.status), ("code", &filter.code), ("stage", &filter.stage)] {
            if let Some(value) = value {
                conditions += &format!(" AND w.{column} = {}", self.text(value));
            }
        }
        if let Some(status) = filter.http_status {
            conditions += &format!(" AND w.http_status = {}", self.number(status.into()));
        }
        conditions
    }

    /// All of them, for these times.
    pub(super) fn within(&self, ranges: &[Range]) -> String {
        let times = ranges.iter().map(|Range { first, last }| format!("time BETWEEN {first} AND {last}"));
        format!("({}) AND {}", times.collect::<Vec<_>>().join(" OR "), self.all.join(" AND "))
    }

    fn text(&mut self, text: &str) -> String {
        self.parameter(Value::Text(storable(text)))
    }

    fn number(&mut self, number: i64) -> String {
        self.parameter(Value::Number(number))
    }

    fn parameter(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    /// The statement with the values.
    pub(super) fn query<T: for<'r> FromRow<'r, AnyRow>>(
        &self,
        sql: String,
    ) -> QueryAs<'static, Any, T, sqlx::any::AnyArguments> {
        let mut statement = sqlx::query_as(AssertSqlSafe(sql)).persistent(false);
        for value in &self.values {
            statement = match value {
                Value::Text(text) => statement.bind(text.clone()),
                Value::Number(number) => statement.bind(*number),
            };
        }
        statement
    }
}

impl IndexFilter {
    /// Columns and the values that they must have.
    fn equal(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let tool = self.tool.as_ref().filter(|tool| !tool.ends_with('*'));
        let columns = [
            ("tenant", self.tenant.as_ref()),
            ("owner", self.owner.as_ref()),
            ("caller", self.caller.as_ref()),
            ("tool", tool),
            ("server", self.server.as_ref()),
            ("key_id", self.key.as_ref()),
            ("session", self.session.as_ref()),
            ("status", self.status.as_ref()),
            ("code", self.code.as_ref()),
            ("stage", self.stage.as_ref()),
            ("via", self.via.as_ref()),
            ("upstream", self.upstream.as_ref()),
            ("call_id", self.call_id.as_ref()),
            ("request_id", self.request_id.as_ref()),
            ("run", self.run.as_ref()),
            ("program", self.program.as_ref()),
            ("approval", self.approval.as_ref()),
        ];
        columns.into_iter().filter_map(|(column, value)| Some((column, &**value?)))
    }

    /// Of the beginning of names: the server that has all of them, if it names one, and the beginning.
    fn server_and_beginning(&self) -> (Option<&str>, Option<&str>) {
        let beginning = self.tool.as_deref().and_then(|tool| tool.strip_suffix('*'));
        (beginning.and_then(super::server_of), beginning)
    }
}

impl IndexedCall {
    /// The place of the call in an order.
    pub fn place(&self, order: CallOrder) -> CallCursor {
        order.place(&self.call)
    }
}
