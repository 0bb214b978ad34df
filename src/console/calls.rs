//! The calls of the index: list with filters, counts and files, live tail, and one call with its path.

pub(super) mod compare;
pub(super) mod content;
pub(super) mod history;
mod one;
mod order;
mod why;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use futures_util::Stream;
use maud::{Markup, html};
use serde::Deserialize;

pub(super) use self::one::one;
use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format};
use super::frame::{self, Head, Section};
use super::list::{self, Table};
use super::text::Texts;
use super::visit::{Address, Visit, Watcher};
use super::{Console, format};
use sekisho_api::column::Column;
use sekisho_api::event_stream::{COMMENT as KEEP_ALIVE_COMMENT, NamedEvent, respond_named};
use sekisho_api::{CallBody, CallFile, CallQuery, call_file};
use sekisho_core::call::CallId;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_core::record::{CallSummary, Status};
use sekisho_gateway::Reach;
use sekisho_store::{CallCursor, CallOrder, Facet, FoundCalls, IndexFilter, IndexedCall};

const PATH: &str = "/console/calls";

/// Calls of a page.
const PAGE: usize = 50;

/// Interval at which the live tail looks for new calls.
const TAIL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum calls in one event of the live tail; where there are more, the newest are sent.
const MAX_IN_EVENT: usize = 50;

/// Times that a link chooses, backwards from now.
pub(super) const TIMES: [&str; 5] = ["15m", "1h", "24h", "7d", "30d"];

/// The fields of the address.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    #[serde(flatten)]
    query: CallQuery,
    /// The call before the page; for the live tail the newest call that the page has.
    after: String,
    format: Format,
}

/// The content of the page.
struct Shown {
    found: FoundCalls,
    facets: Vec<Facet>,
}

/// `GET /console/calls`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    // All calls that fit the filters, not only the page's.
    let file = match wanted.format {
        Format::Html => None,
        Format::Csv => Some(CallFile::Csv),
        Format::Json => Some(CallFile::Json),
    };
    let Some(file) = file else {
        let shown = find(&console, &visit, &wanted).await;
        return visit.answer(shown.map(|shown| list(&console, &visit, &wanted, &shown)));
    };
    let asked = visit.require(Act::SeeCalls).and_then(|()| Ok((wanted.query.filter()?, wanted.query.order()?)));
    let sent = match asked {
        Ok((filter, order)) => {
            call_file(Arc::clone(&console.gateway), Arc::clone(&visit.caller), filter, order, file).await
        }
        Err(error) => Err(error),
    };
    sent.unwrap_or_else(|error| visit.answer(Err(error)))
}

async fn find(console: &Console, visit: &Visit, wanted: &Wanted) -> Result<Shown, CallError> {
    visit.require(Act::SeeCalls)?;
    let (filter, order, history) = (wanted.query.filter()?, wanted.query.order()?, console.gateway.history());
    // An address with another place begins with the first calls.
    let after: Option<CallCursor> = wanted.after.parse().ok();
    let found = history.calls(&visit.caller, filter.clone(), order, after.as_ref(), PAGE).await?;
    Ok(Shown { found, facets: history.facets(&visit.caller, filter).await? })
}

/// `GET /console/calls/live`: new calls as they end, as lines of the table.
pub(super) async fn live(
    State(console): State<Arc<Console>>,
    Watcher(visit): Watcher,
    Address(wanted): Address<Wanted>,
) -> Response {
    match visit.require(Act::SeeCalls).and_then(|()| wanted.query.filter()) {
        Ok(filter) => respond_named(tail(console, visit, filter, wanted.after.parse().ok()), KEEP_ALIVE_COMMENT),
        Err(error) => visit.answer(Err(error)),
    }
}

/// The address of a call's page.
pub(super) fn path_of(id: CallId) -> String {
    page_of(&id.to_string())
}

pub(super) fn page_of(id: &str) -> String {
    format!("{PATH}/{id}")
}

/// A table of calls, newest first.
pub(super) fn table<'a>(texts: &Texts, calls: impl Iterator<Item = CallBody<'a>>) -> Markup {
    table_in(texts).table(&calls.collect::<Vec<_>>())
}

fn table_in(texts: &Texts) -> Table<'_, CallBody<'_>> {
    Table { link: Some(link), cell, ..Table::new(texts, "nav-calls", ("calls-none", "GET /admin/calls")) }
}

fn link(call: &CallBody<'_>) -> String {
    page_of(&call.call_id)
}

fn cell(texts: &Texts, call: &CallBody<'_>, column: &Column) -> Option<Markup> {
    let CallBody { status, code, dry_run, caller, tenant, calls, .. } = call;
    match column.name {
        "status" => Some(html! {
            (status_tag(texts, status.as_str(), code.map(ErrorCode::as_str), *dry_run))
            @if *calls > 1 { " " span.tag { "× " (format::count(*calls)) } }
        }),
        "caller" => Some(caller_of(caller, tenant)),
        _ => None,
    }
}

fn caller_of(caller: &str, tenant: &str) -> Markup {
    html! { (format::name(caller)) " " span.quiet { (format::text(tenant)) } }
}

impl Wanted {
    fn address(&self, path: &str, after: &str) -> String {
        with_query(path, self.query.fields().into_iter().chain([("after", after)]))
    }

    /// The address of the page with another value of a field.
    fn with(&self, name: &str, value: &str) -> String {
        let mut fields: Vec<(&str, &str)> = self.query.fields();
        fields.retain(|(other, _)| *other != name);
        fields.push((name, value));
        with_query(PATH, fields)
    }

    fn value(&self, name: &str) -> &str {
        self.query.fields().into_iter().find(|(other, _)| *other == name).map_or("", |(_, value)| value)
    }
}

fn list(console: &Console, visit: &Visit, wanted: &Wanted, shown: &Shown) -> Markup {
    let (texts, found) = (visit.texts(), &shown.found);
    let reach = match console.gateway.configuration().reach(&visit.caller) {
        Reach::Own => "calls-own",
        Reach::Tenant => "calls-tenant",
        Reach::AllTenants => "calls-all",
    };
    let (count, refused) = counts(&shown.facets);
    let counted = texts.with("calls-state", [("count", count.into()), ("refused", refused.into())]);
    let title = texts.get("nav-calls");
    let state = html! { (counted) " " (texts.with(reach, [("tenant", visit.caller.tenant.to_string().into())])) };
    let action = visit.may(Act::SearchHistory).then(|| {
        html! {
            a.button href="/console/failures?since=24h" { (texts.get("failures-title")) } " "
            a.button href="/console/events" { (texts.get("events-title")) } " "
            a.button href="/console/calls/history" { (texts.get("history-title")) }
        }
    });
    let head = Head { state: Some(state), action, ..Head::new(&title) };
    let newest = found.calls.first().map(|call| call.place(CallOrder::Time).to_string()).unwrap_or_default();
    let is_latest = wanted.after.is_empty() && matches!(wanted.query.order(), Ok(CallOrder::Time));
    frame::page(
        visit,
        Some(Section::Calls),
        &head,
        &html! {
            (filters(&texts, wanted))
            (times(&texts, wanted))
            (facets(&texts, wanted, &shown.facets))
            @if is_latest {
                live-calls src=(wanted.address("/console/calls/live", &newest)) data-new=(texts.get("live-new"))
                    data-live=(texts.get("live-live")) data-lost=(texts.get("live-lost")) {}
            }
            @if found.calls.is_empty() {
                div.empty {
                    p { (texts.get("calls-none")) }
                    p { a href="/console/tools" { (texts.get("calls-try")) } }
                }
                template #call-table { (table(&texts, std::iter::empty())) }
            } @else {
                (order::sorted(&texts, wanted, found))
                (export::links(&texts, &wanted.address(PATH, "")))
            }
            @if let Some(next) = &found.next {
                (list::older(&texts, &wanted.address(PATH, &next.to_string())))
            } @else { p.quiet.small { (texts.get("calls-index")) } }
        },
    )
}

/// All calls of the counts, and those that were refused.
fn counts(facets: &[Facet]) -> (u64, u64) {
    let by_status = facets.iter().find(|facet| facet.name == "status").map(|facet| facet.values.as_slice());
    let by_status = by_status.unwrap_or_default();
    let refused =
        by_status.iter().find(|(status, _)| status == Status::Refused.as_str()).map_or(0, |(_, calls)| *calls);
    (by_status.iter().map(|(_, calls)| calls).sum(), refused)
}

/// Links that choose the last minutes, hours or days.
fn times(texts: &Texts, wanted: &Wanted) -> Markup {
    let chosen = wanted.value("since");
    html! {
        nav.small aria-label=(texts.get("calls-times")) {
            @for time in TIMES {
                a href=(wanted.with("since", time)) aria-current=[(chosen == time).then_some("true")] { (time) } " · "
            }
            a href=(wanted.with("since", "")) aria-current=[chosen.is_empty().then_some("true")] { (texts.get("filter-any")) }
        }
    }
}

/// The most frequent values of the calls: each leads to its calls.
fn facets(texts: &Texts, wanted: &Wanted, facets: &[Facet]) -> Markup {
    let title = |name: &str| match name {
        "status" => "call-outcome",
        "code" => "call-code",
        "stage" => "call-stage",
        "tool" => "tool-name",
        "server" => "call-server",
        "caller" => "call-caller",
        _ => "call-tenant",
    };
    html! {
        details {
            summary { (texts.get("calls-facets")) }
            dl.facts {
                @for Facet { name, values } in facets.iter().filter(|facet| !facet.values.is_empty()) {
                    div {
                        dt { (texts.get(title(name))) }
                        dd {
                            @for (value, calls) in values {
                                a href=(wanted.with(name, value)) { (format::text(value)) } " " span.quiet { (format::count(*calls)) } " "
                            }
                        }
                    }
                }
            }
        }
    }
}

/// How it ended, in a word with a sign.
pub(super) fn outcome(texts: &Texts, call: &CallSummary) -> Markup {
    status_tag(texts, call.status.as_str(), call.code.map(ErrorCode::as_str), call.dry_run)
}

/// The same of a call whose status and code are texts.
fn status_tag(texts: &Texts, status: &str, code: Option<&str>, dry_run: bool) -> Markup {
    let (class, sign, id) = match Status::ALL.iter().copied().find(|known| known.as_str() == status) {
        Some(Status::Success) => ("tag good", "✓", "status-success"),
        Some(Status::Error) | None => ("tag bad", "✕", "status-error"),
        Some(Status::Refused) => ("tag warn", "⊘", "status-refused"),
        Some(Status::Cancelled) => ("tag", "–", "status-cancelled"),
    };
    html! {
        span class=(class) { (sign) " " (texts.get(id)) }
        @if let Some(code) = code { " " code.quiet { (format::text(code)) } }
        @if dry_run { " " span.tag { (texts.get("call-dry-run")) } }
    }
}

/// The field by which calls are chosen by how they ended.
fn status_options(texts: &Texts, chosen: &str) -> Markup {
    html! {
        div.field {
            label for="status" { (texts.get("call-outcome")) }
            select #status name="status" {
                option value="" { (texts.get("filter-any")) }
                @for status in Status::ALL.iter().copied() {
                    option value=(status.as_str()) selected[chosen == status.as_str()] {
                        (texts.get(match status {
                            Status::Success => "status-success",
                            Status::Error => "status-error",
                            Status::Refused => "status-refused",
                            Status::Cancelled => "status-cancelled",
                        }))
                    }
                }
            }
        }
    }
}

fn filters(texts: &Texts, wanted: &Wanted) -> Markup {
    let field = |name: &str, label: &str| list::filter_field(texts, name, label, wanted.value(name), "text");
    let further = [
        ("tenant", "call-tenant"),
        ("key", "call-key"),
        ("session", "call-session"),
        ("run", "call-run"),
        ("program", "call-program"),
        ("approval", "call-approval"),
        ("stage", "call-stage"),
        ("via", "call-via"),
        ("upstream", "call-upstream"),
        ("http_status", "call-http-status"),
        ("min_seconds", "calls-min-seconds"),
        ("min_cost", "calls-min-cost"),
    ];
    let is_open = further.iter().any(|(name, _)| !wanted.value(name).is_empty());
    html! {
        form method="get" action=(PATH) role="search" {
            div.filters {
                (field("q", "calls-text"))
                (field("tool", "tool-name"))
                (field("server", "call-server"))
                (field("caller", "call-caller"))
                (status_options(texts, wanted.value("status")))
                (field("code", "call-code"))
                (field("since", "history-since"))
                (field("until", "history-until"))
                @if !wanted.value("sort").is_empty() { input type="hidden" name="sort" value=(wanted.value("sort")); }
                button { (texts.get("filter-apply")) }
            }
            details open[is_open] {
                summary { (texts.get("calls-further")) }
                div.filters { @for (name, label) in further { (field(name, label)) } }
            }
        }
    }
}

/// New calls, until the session or the gateway ends.
fn tail(
    console: Arc<Console>,
    visit: Visit,
    filter: IndexFilter,
    after: Option<CallCursor>,
) -> impl Stream<Item = NamedEvent> + Send + 'static {
    async_stream::stream! {
        let draining = console.gateway.draining().clone();
        // A page without calls gets the first ones.
        let (mut newest, mut seen) = (after, None);
        let mut tick = tokio::time::interval(TAIL_INTERVAL);
        while draining.run_until_cancelled(tick.tick()).await.is_some() && visit.is_still_open(&console) {
            let ended = console.gateway.pipeline.settlement.records.ended();
            if seen == Some(ended) {
                continue;
            }
            let history = console.gateway.history();
            // Tried again a second later.
            let Ok(found) = history.latest_calls(&visit.caller, filter.clone(), MAX_IN_EVENT).await else { continue };
            seen = Some(ended);
            let lines = new_lines(&visit, &found, newest.as_ref());
            newest = found.first().map(|call| call.place(CallOrder::Time)).or(newest);
            if !lines.is_empty() {
                yield NamedEvent::new("calls", &lines);
            }
        }
    }
}

fn new_lines(visit: &Visit, found: &[IndexedCall], newest: Option<&CallCursor>) -> Vec<String> {
    let is_new = |call: &&IndexedCall| newest.is_none_or(|newest| call.place(CallOrder::Time) > *newest);
    let new: Vec<_> = found.iter().take_while(is_new).map(CallBody::of_indexed).collect();
    table_in(&visit.texts()).rows(&new)
}
