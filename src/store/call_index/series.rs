//! What sums are kept of: the series that a call counts for, and the periods of their rows.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use super::sums::CallSums;
use super::{NewIndexedCall, micros_of, server_of, storable};
use sekisho_core::call::Stage;
use sekisho_core::caller::Caller;
use sekisho_core::record::{CallSummary, Status};

/// Between an owner and a tool. Neither has this control character (record separator).
const SEPARATOR: char = '\u{1e}';

const MICROS: i64 = 1_000_000;
const DAY: i64 = 86_400;

/// Series and minutes that wait to be written: beyond them they are written at once.
const MAX_WAITING: usize = 16_384;

/// The subject of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Subject {
    /// All calls of a tenant, or of all tenants.
    All,
    Tool,
    /// A server or collection.
    Server,
    /// The id of a caller.
    Caller,
    /// A managed key.
    Key,
    /// The calls that a caller owns, by the caller's key.
    Owner,
    /// A tool as an owner calls it: see [`use_of`].
    Use,
}

/// A series of sums.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Series {
    pub subject: Subject,
    /// `None`: all tenants.
    pub tenant: Option<String>,
    /// Empty for [`Subject::All`].
    pub value: String,
}

/// How much time a row covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Period {
    Minute,
    Hour,
    Day,
}

/// The last minutes, hours or days, in equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// As in addresses.
    pub name: &'static str,
    pub(super) period: Period,
    /// Seconds of a part.
    pub width: i64,
    pub parts: i64,
}

/// The place of a row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) series: Series,
    pub(super) period: Period,
    /// Microseconds since 1970.
    pub(super) time: i64,
}

/// Sums that are not written yet, by series and minute.
#[derive(Debug, Default)]
pub(super) struct WaitingSums(HashMap<(Series, i64), CallSums>);

impl Subject {
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Period {
    pub(super) const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    pub(super) fn seconds(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
        }
    }

    /// For how many seconds its rows are kept: a little longer than the ranges that read them; days as long as other usage.
    pub(super) fn kept(self) -> i64 {
        match self {
            Self::Minute => 7 * 3_600,
            Self::Hour => 8 * DAY,
            Self::Day => 90 * DAY,
        }
    }

    /// The first moment of its rows.
    pub(super) fn oldest(self, now: Timestamp) -> i64 {
        now.as_microsecond().saturating_sub(self.kept() * MICROS)
    }

    /// Where the period of a moment begins.
    pub(super) fn start(self, time: i64) -> i64 {
        let micros = self.seconds() * MICROS;
        time.div_euclid(micros) * micros
    }
}

impl TimeRange {
    /// The last hour by the minute.
    pub const MINUTES: Self = Self { name: "1h", period: Period::Minute, width: 60, parts: 60 };

    /// The last five minutes, for the present traffic.
    pub const LATEST: Self = Self { name: "5m", period: Period::Minute, width: 60, parts: 5 };

    pub const ALL: [Self; 6] = [
        Self { name: "15m", period: Period::Minute, width: 60, parts: 15 },
        Self { name: "1h", period: Period::Minute, width: 120, parts: 30 },
        Self { name: "6h", period: Period::Minute, width: 900, parts: 24 },
        Self { name: "24h", period: Period::Hour, width: 3_600, parts: 24 },
        Self { name: "7d", period: Period::Hour, width: 6 * 3_600, parts: 28 },
        Self { name: "30d", period: Period::Day, width: DAY, parts: 30 },
    ];

    /// Whether it can be compared with the day before: the rows of its parts are kept for longer than a day, and it has several parts of a
    /// day.
    pub fn has_day_before(self) -> bool {
        self.period == Period::Hour
    }

    /// Microseconds of a part.
    pub(super) fn part(self) -> i64 {
        self.width * MICROS
    }

    /// Where the first part begins; the last one has the present moment.
    pub(super) fn first(self, now: Timestamp) -> i64 {
        let last = now.as_microsecond().div_euclid(self.part()) * self.part();
        last - (self.parts - 1) * self.part()
    }
}

/// The value of [`Subject::Use`].
pub fn use_of(owner: &str, tool: &str) -> String {
    format!("{owner}{SEPARATOR}{tool}")
}

/// The owner and the tool of a value of [`Subject::Use`].
pub(super) fn parts_of_use(value: &str) -> (&str, &str) {
    value.split_once(SEPARATOR).unwrap_or((value, ""))
}

impl WaitingSums {
    pub(super) fn add(&mut self, row: &NewIndexedCall) {
        let minute = Period::Minute.start(micros_of(row.call.time));
        for series in series_of(&row.call) {
            self.0.entry((series, minute)).or_default().add(&row.call, row.calls);
        }
    }

    pub(super) fn are_many(&self) -> bool {
        self.0.len() >= MAX_WAITING
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The rows to which they are added, in the order in which every transaction locks them.
    pub(super) fn rows(&self, now: Timestamp) -> BTreeMap<Place, CallSums> {
        let mut rows = BTreeMap::<_, CallSums>::new();
        for ((series, minute), sums) in &self.0 {
            for period in Period::ALL {
                if *minute >= period.oldest(now) {
                    let place = Place { series: series.clone(), period, time: period.start(*minute) };
                    rows.entry(place).or_default().add_all(sums);
                }
            }
        }
        rows
    }
}

/// The series that a call counts for.
fn series_of(call: &CallSummary) -> Vec<Series> {
    let of = |subject, value: &str| Series { subject, tenant: Some(storable(&call.tenant)), value: storable(value) };
    let all = |subject, value: &str| Series { subject, tenant: None, value: storable(value) };
    let own = owner_of(call);
    let mut series = vec![of(Subject::All, ""), all(Subject::All, ""), of(Subject::Caller, &call.caller)];
    series.push(of(Subject::Owner, &own));
    series.extend(call.key.as_deref().map(|key| of(Subject::Key, key)));
    if has_tool(call) {
        series.extend([of(Subject::Tool, &call.tool), all(Subject::Tool, &call.tool)]);
        series.push(of(Subject::Use, &use_of(&own, &call.tool)));
        if let Some(server) = server_of(&call.tool) {
            series.extend([of(Subject::Server, server), all(Subject::Server, server)]);
        }
    }
    series
}

/// Whether its caller has the tool: any other name is a text of the caller, or one that it must not learn of. A line of the trail has
/// no stages that were passed.
fn has_tool(call: &CallSummary) -> bool {
    call.stages.len() > 1 || call.status == Status::Success || call.stage.is_some_and(|stage| stage != Stage::Find)
}

/// The key of the caller who owns the call; a line of the trail has only the caller.
fn owner_of(call: &CallSummary) -> Box<str> {
    match &*call.owner.caller {
        "" => Box::from(&*Caller::new(&call.caller, &call.tenant, Vec::new()).key),
        owner => owner.into(),
    }
}
