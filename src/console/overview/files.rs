//! The tables of the overview as files.

use std::time::Duration;

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::export::{self, Format, Rows};
use sekisho_api::ReplicaBody;
use sekisho_core::record::Status;
use sekisho_observe::figures::{LastHour, Outcomes, Times, Totals};

/// A table of the overview.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Table {
    #[default]
    Minutes,
    Tools,
    Codes,
    Replicas,
}

/// The table as a file: of the last hour, or of these replicas.
pub(super) fn respond(hour: &LastHour, replicas: &[ReplicaBody], table: Table, format: Format) -> Response {
    match table {
        Table::Minutes => minutes(hour).respond(format),
        Table::Tools => tools(hour).respond(format),
        Table::Codes => codes(hour).respond(format),
        Table::Replicas => export::listed(replicas, format),
    }
}

/// The last minute first.
fn minutes(hour: &LastHour) -> Rows<'static, 7> {
    let row = |(ago, minute): (usize, &Totals)| {
        let [success, error, refused, cancelled] = counts(minute.outcomes);
        let p95 = seconds(minute.times.quantile(0.95));
        [json!(ago), success, error, refused, cancelled, p95, json!(minute.cost_usd)]
    };
    let columns = ["minutes_ago", "success", "error", "refused", "cancelled", "p95_seconds", "cost_usd"];
    Rows { name: "minutes", columns, rows: hour.minutes.iter().rev().enumerate().map(row).collect() }
}

fn tools(hour: &LastHour) -> Rows<'static, 8> {
    let rows = hour.tools.iter().map(|(tool, totals)| {
        let [success, error, refused, cancelled] = counts(totals.outcomes);
        let [p50, p95, p99] = quantiles(&totals.times);
        [json!(tool), success, error, refused, cancelled, p50, p95, p99]
    });
    let columns = ["tool", "success", "error", "refused", "cancelled", "p50_seconds", "p95_seconds", "p99_seconds"];
    Rows { name: "tools-of-the-last-hour", columns, rows: rows.collect() }
}

fn codes(hour: &LastHour) -> Rows<'static, 2> {
    let codes = hour.totals().codes().into_iter();
    let rows = codes.map(|(code, calls)| [json!(code.as_str()), json!(calls)]).collect();
    Rows { name: "refusals", columns: ["code", "calls"], rows }
}

fn counts(outcomes: Outcomes) -> [Value; 4] {
    [Status::Success, Status::Error, Status::Refused, Status::Cancelled].map(|status| json!(outcomes.of(status)))
}

fn quantiles(times: &Times) -> [Value; 3] {
    [0.5, 0.95, 0.99].map(|share| seconds(times.quantile(share)))
}

/// `null` without a call.
fn seconds(time: Option<Duration>) -> Value {
    json!(time.map(|time| time.as_secs_f64()))
}
