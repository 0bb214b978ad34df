//! What calls came to over time, as charts with a table: of all calls, of a tenant, tool, server, caller or key.

mod charts;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use self::charts::{OUTCOMES, QUANTILES};
pub(super) use self::charts::{Place, in_money};
use super::acts::Act;
use super::address::with_query;
use super::export::{Format, Rows};
use super::frame::{self, Head, Section};
use super::visit::{Address, Visit};
use super::{Console, format};
use sekisho_core::error::CallError;
use sekisho_gateway::FiguresOf;
use sekisho_store::{CallSums, Figures, TimeRange};

/// The page of the charts of anything.
const PATH: &str = "/console/figures";

/// The value of `before` with which charts are beside the day before.
const BEFORE: &str = "day";

/// A field of addresses.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct Ranged {
    range: String,
}

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    tenant: String,
    tool: String,
    server: String,
    caller: String,
    key: String,
    range: String,
    /// `day`: beside the day before.
    before: String,
    format: Format,
}

impl Ranged {
    /// The wanted time; without one, or with an unknown one, the time of this name.
    pub(super) fn or(&self, name: &str) -> TimeRange {
        let named = |name: &str| TimeRange::ALL.into_iter().find(|range| range.name == name);
        named(&self.range).or_else(|| named(name)).unwrap_or(TimeRange::ALL[0])
    }
}

impl Wanted {
    fn of(&self) -> FiguresOf {
        let tenant = Some(self.tenant.clone()).filter(|tenant| !tenant.is_empty());
        match self {
            Self { tool, .. } if !tool.is_empty() => FiguresOf::Tool(tool.clone()),
            Self { server, .. } if !server.is_empty() => FiguresOf::Server(server.clone()),
            Self { caller, .. } if !caller.is_empty() => FiguresOf::Caller { tenant, id: caller.clone() },
            Self { key, .. } if !key.is_empty() => FiguresOf::Key(key.clone()),
            _ => FiguresOf::All { tenant },
        }
    }
}

/// The address of the page of charts.
pub(super) fn path_of(of: &FiguresOf) -> String {
    with_query(PATH, of.fields())
}

/// `GET /console/figures`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let (of, range) = (wanted.of(), Ranged { range: wanted.range.clone() }.or("24h"));
    let history = console.gateway.history();
    let found = match visit.require(Act::SeeCalls) {
        Ok(()) if wanted.before == BEFORE => history.figures_and_before(&visit.caller, &of, range).await,
        Ok(()) => history.figures(&visit.caller, &of, range).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(figures) if wanted.format != Format::Html => rows(&figures).respond(wanted.format),
        found => visit.answer(found.map(|figures| show(&visit, &of, &figures))),
    }
}

fn show(visit: &Visit, of: &FiguresOf, figures: &Figures) -> Markup {
    let texts = visit.texts();
    let fields = of.fields();
    let names: Vec<_> = fields.iter().filter(|(_, value)| !value.is_empty()).collect();
    let state = html! { @for (at, (name, value)) in names.iter().enumerate() {
        @if at > 0 { " · " } (name) " " code { (format::text(value)) }
    } };
    let title = texts.get("figures-title");
    let head = Head { state: Some(state), ..Head::new(&title) };
    let place = Place { texts: &texts, page: &path_of(of), of };
    let body = html! {
        (place.charts(figures))
        p { a href=(with_query("/console/calls", fields)) { (texts.get("nav-calls")) " →" } }
    };
    frame::page(visit, Some(Section::Calls), &head, &body)
}

/// The charts as a part of the page `page`; nothing for visitors who may not see calls.
/// Errors: the index of calls cannot be read.
pub(super) async fn section(
    console: &Console,
    visit: &Visit,
    of: &FiguresOf,
    page: &str,
    ranged: &Ranged,
) -> Result<Markup, CallError> {
    if !visit.may(Act::SeeCalls) {
        return Ok(html! {});
    }
    let figures = console.gateway.history().figures(&visit.caller, of, ranged.or("24h")).await?;
    let texts = visit.texts();
    Ok(html! {
        section aria-labelledby="figures" {
            h2 #figures { (texts.get("figures-title")) }
            (Place { texts: &texts, page, of }.charts(&figures))
        }
    })
}

/// All parts as a file, the oldest first.
fn rows(figures: &Figures) -> Rows<'static, 11> {
    let row = |(start, sums): &(Timestamp, CallSums)| {
        let [success, error, refused, cancelled] = OUTCOMES.map(|(_, _, status)| json!(sums.of(status)));
        let [p50, p95, p99] =
            QUANTILES.map(|(_, share)| json!(sums.times.quantile(share).map(|took| took.as_secs_f64())));
        let (cost, end) = (json!(sums.cost_usd.normalize()), json!(figures.end_of(*start).to_string()));
        [json!(start.to_string()), end, success, error, refused, cancelled, p50, p95, p99, cost, json!(sums.tokens)]
    };
    let columns = [
        "from",
        "until",
        "success",
        "error",
        "refused",
        "cancelled",
        "p50_seconds",
        "p95_seconds",
        "p99_seconds",
        "cost_usd",
        "tokens",
    ];
    Rows { name: "figures", columns, rows: figures.parts.iter().map(row).collect() }
}
