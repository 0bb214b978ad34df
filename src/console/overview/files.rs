//! The tables of the overview as files.

use std::time::Duration;

use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::export::{self, Format, Rows};
use sekisho_api::ReplicaBody;
use sekisho_core::record::Status;
use sekisho_gateway::Overview;
use sekisho_store::Times;

/// A table of the overview.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Table {
    #[default]
    Tools,
    Codes,
    Replicas,
}

/// The table as a file: of the overview, or of these replicas.
pub(super) fn respond(overview: &Overview, replicas: &[ReplicaBody], table: Table, format: Format) -> Response {
    match table {
        Table::Tools => tools(overview).respond(format),
        Table::Codes => codes(overview).respond(format),
        Table::Replicas => export::listed(replicas, format),
    }
}

fn tools(overview: &Overview) -> Rows<'static, 8> {
    let rows = overview.tools.iter().map(|(tool, sums)| {
        let [success, error, refused, cancelled] =
            [Status::Success, Status::Error, Status::Refused, Status::Cancelled].map(|status| json!(sums.of(status)));
        let [p50, p95, p99] = quantiles(&sums.times);
        [json!(tool), success, error, refused, cancelled, p50, p95, p99]
    });
    let columns = ["tool", "success", "error", "refused", "cancelled", "p50_seconds", "p95_seconds", "p99_seconds"];
    Rows { name: "tools-with-calls", columns, rows: rows.collect() }
}

fn codes(overview: &Overview) -> Rows<'static, 2> {
    let codes = overview.figures.total().codes();
    let rows = codes.into_iter().map(|(code, calls)| [json!(code.as_str()), json!(calls)]).collect();
    Rows { name: "refusals", columns: ["code", "calls"], rows }
}

fn quantiles(times: &Times) -> [Value; 3] {
    [0.5, 0.95, 0.99].map(|share| seconds(times.quantile(share)))
}

/// `null` without a call.
fn seconds(time: Option<Duration>) -> Value {
    json!(time.map(|time| time.as_secs_f64()))
}
