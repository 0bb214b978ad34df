//! The calls that ended last: list with filters, live tail, and one call with its path.

pub(super) mod history;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use futures_util::Stream;
use maud::{Markup, html};
use serde::Deserialize;

use super::acts::Act;
use super::address::with_query;
use super::call_path::CallPath;
use super::call_tree::CallTree;
use super::export::{self, Format};
use super::frame::{self, Head, Section};
use super::list::{self, Table};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, format, tools};
use sekisho_api::CallBody;
use sekisho_api::column::Column;
use sekisho_api::event_stream::{COMMENT as KEEP_ALIVE_COMMENT, NamedEvent, respond_named};
use sekisho_core::call::CallId;
use sekisho_core::error::ErrorCode;
use sekisho_core::record::{CallSummary, Status};
use sekisho_gateway::{CallFilter, Reach};

/// Calls of a page.
const PAGE: usize = 50;

/// Interval at which the live tail looks for new calls.
const TAIL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum calls in one event of the live tail; where there are more, the newest are sent.
const MAX_IN_EVENT: usize = 50;

/// The fields of the address.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    tool: String,
    caller: String,
    status: String,
    code: String,
    before: Option<u64>,
    /// For the live tail: the newest call that the page has.
    after: Option<u64>,
    format: Format,
}

/// `GET /console/calls`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    match visit.require(Act::SeeCalls) {
        // All calls that fit the filters, not only the page's.
        Ok(()) if wanted.format != Format::Html => {
            let found = console.gateway.history().recent_calls(&visit.caller, &wanted.filter());
            export::listed(&bodies(found.iter().map(|call| &**call)), wanted.format)
        }
        allowed => visit.answer(allowed.map(|()| list(&console, &visit, &wanted))),
    }
}

/// `GET /console/calls/{id}`.
pub(super) async fn one(State(console): State<Arc<Console>>, visit: Visit, Path(id): Path<String>) -> Response {
    let recent = visit.require(Act::SeeCalls).and_then(|()| console.gateway.history().recent_call(&visit.caller, &id));
    let page = match recent {
        Err(error) if error.code() == ErrorCode::NotFound && visit.may(Act::SearchHistory) => {
            console.gateway.history().past_call(&visit.caller, &id).await.map(|call| history::one(&visit, &call))
        }
        recent => recent.map(|call| show(&console, &visit, &call)),
    };
    visit.answer(page)
}

/// `GET /console/calls/live`: new calls as they end, as lines of the table.
pub(super) async fn live(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    if let Err(error) = visit.require(Act::SeeCalls) {
        return visit.answer(Err(error));
    }
    respond_named(tail(console, visit, wanted), KEEP_ALIVE_COMMENT)
}

/// The address of a call's page.
pub(super) fn path_of(id: CallId) -> String {
    page_of(&id.to_string())
}

fn page_of(id: &str) -> String {
    format!("/console/calls/{id}")
}

/// A table of calls, newest first.
pub(super) fn table<'a>(texts: &Texts, calls: impl Iterator<Item = &'a CallSummary>) -> Markup {
    table_in(texts).table(&bodies(calls))
}

fn bodies<'a>(calls: impl Iterator<Item = &'a CallSummary>) -> Vec<CallBody<'a>> {
    calls.map(CallBody::of).collect()
}

fn table_in(texts: &Texts) -> Table<'_, CallBody<'_>> {
    Table { link: Some(link), cell, ..Table::new(texts, "nav-calls", ("calls-none", "GET /admin/calls")) }
}

fn link(call: &CallBody<'_>) -> String {
    page_of(&call.call_id)
}

fn cell(texts: &Texts, call: &CallBody<'_>, column: &Column) -> Option<Markup> {
    let CallBody { status, code, dry_run, caller, tenant, .. } = call;
    match column.name {
        "status" => Some(status_tag(texts, status.as_str(), code.map(ErrorCode::as_str), *dry_run)),
        "caller" => Some(caller_of(caller, tenant)),
        _ => None,
    }
}

fn caller_of(caller: &str, tenant: &str) -> Markup {
    html! { (format::name(caller)) " " span.quiet { (format::text(tenant)) } }
}

impl Wanted {
    fn filter(&self) -> CallFilter {
        let set = |text: &String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        CallFilter {
            tool: set(&self.tool),
            caller: set(&self.caller),
            status: set(&self.status),
            code: set(&self.code),
            agent_call: None,
            before: self.before,
            after: self.after,
        }
    }

    fn address(&self, path: &str, position: Option<(&str, u64)>) -> String {
        let (name, number) = position.map(|(name, number)| (name, number.to_string())).unwrap_or_default();
        let filters =
            [("tool", &*self.tool), ("caller", &*self.caller), ("status", &*self.status), ("code", &*self.code)];
        with_query(path, filters.into_iter().chain([(name, &*number)]))
    }
}

fn list(console: &Console, visit: &Visit, wanted: &Wanted) -> Markup {
    let texts = visit.texts();
    let newest = console.gateway.pipeline.settlement.recent.last_sequence();
    let found = console.gateway.history().recent_calls(&visit.caller, &wanted.filter());
    let shown = &found[..found.len().min(PAGE)];
    let next = shown.last().filter(|_| found.len() > PAGE).map(|last| last.sequence);
    let refused = found.iter().filter(|call| call.status == Status::Refused).count();
    let reach = match console.gateway.configuration().reach(&visit.caller) {
        Reach::Own => "calls-own",
        Reach::Tenant => "calls-tenant",
        Reach::AllTenants => "calls-all",
    };
    let counts = [("count", found.len().into()), ("refused", refused.into())];
    let title = texts.get("nav-calls");
    let state = html! { (texts.with("calls-state", counts)) " " (texts.with(reach, [("tenant", visit.caller.tenant.to_string().into())])) };
    let action = visit.may(Act::SearchHistory).then(|| {
        html! { a.button href="/console/calls/history" { (texts.get("history-title")) } }
    });
    let head = Head { state: Some(state), action, ..Head::new(&title) };
    frame::page(
        visit,
        Some(Section::Calls),
        &head,
        &html! {
            (filters(&texts, wanted))
            @if wanted.before.is_none() {
                live-calls src=(wanted.address("/console/calls/live", Some(("after", newest)))) data-new=(texts.get("live-new"))
                    data-live=(texts.get("live-live")) data-lost=(texts.get("live-lost")) {}
            }
            @if found.is_empty() {
                div.empty {
                    p { (texts.get("calls-none")) }
                    p { a href="/console/tools" { (texts.get("calls-try")) } }
                }
                template #call-table { (table(&texts, std::iter::empty())) }
            } @else {
                (table(&texts, shown.iter().map(|call| &**call)))
                (export::links(&texts, &wanted.address("/console/calls", None)))
            }
            @if let Some(next) = next {
                (list::older(&texts, &wanted.address("/console/calls", Some(("before", next)))))
            } @else { p.quiet.small { (texts.get("calls-memory")) } }
        },
    )
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
    let field = |name: &str, label: &str, value: &str| list::filter_field(texts, name, label, value, "text");
    html! {
        form.filters method="get" action="/console/calls" role="search" {
            (field("tool", "tool-name", &wanted.tool))
            (field("caller", "call-caller", &wanted.caller))
            (status_options(texts, &wanted.status))
            (field("code", "call-code", &wanted.code))
            button { (texts.get("filter-apply")) }
        }
    }
}

fn show(console: &Console, visit: &Visit, call: &CallSummary) -> Markup {
    let texts = visit.texts();
    let title = texts.with("call-title", [("tool", call.tool.to_string().into())]);
    let state = html! { (outcome(&texts, call)) " · " (format::time(&texts, call.time)) " · " (format::duration(call.duration)) };
    let head = Head { state: Some(state), ..Head::new(&title) };
    let facts = [
        ("call-caller", call.caller.to_string()),
        ("call-tenant", call.tenant.to_string()),
        ("call-via", call.via.as_str().to_owned()),
        ("call-depth", call.depth.to_string()),
        ("call-cost", format::money(call.cost_usd)),
        ("call-tokens", format::count(call.tokens)),
        ("call-request", if call.request_id.is_empty() { "–" } else { &call.request_id }.to_owned()),
        ("call-id", call.id.to_string()),
    ];
    frame::page(
        visit,
        Some(Section::Calls),
        &head,
        &html! {
            (CallPath::of_recent(call).draw(&texts))
            dl.facts {
                @for (name, value) in facts { div { dt { (texts.get(name)) } dd { code { (format::text(&value)) } } } }
                @if let Some(parent) = call.parent {
                    div { dt { (texts.get("call-parent")) } dd { a href=(path_of(parent)) { code { (parent) } } } }
                }
            }
            (CallTree::of(console, visit).draw(&texts, call.id, call.nested))
            p.quiet { (texts.get("call-no-arguments")) }
            p {
                a href={ (tools::path_of(&call.tool)) } { (texts.get("call-tool")) } " · "
                a href=(with_query("/console/calls", [("tool", &*call.tool)])) {
                    (texts.get("call-same-tool"))
                }
            }
        },
    )
}

fn new_lines(visit: &Visit, found: &[Arc<CallSummary>]) -> Vec<String> {
    let newest = found.iter().take(MAX_IN_EVENT).map(|call| &**call);
    table_in(&visit.texts()).rows(&bodies(newest))
}

/// New calls, until the session or the gateway ends.
fn tail(console: Arc<Console>, visit: Visit, wanted: Wanted) -> impl Stream<Item = NamedEvent> + Send + 'static {
    async_stream::stream! {
        let recent = || &console.gateway.pipeline.settlement.recent;
        let (mut wanted, draining) = (Wanted { before: None, ..wanted }, console.gateway.draining().clone());
        let mut newest = wanted.after.unwrap_or_else(|| recent().last_sequence());
        let mut tick = tokio::time::interval(TAIL_INTERVAL);
        while draining.run_until_cancelled(tick.tick()).await.is_some() && visit.is_still_open(&console) {
            let last = recent().last_sequence();
            if last == newest {
                continue;
            }
            wanted.after = Some(newest);
            newest = last;
            let found = console.gateway.history().recent_calls(&visit.caller, &wanted.filter());
            let lines = new_lines(&visit, &found);
            if !lines.is_empty() {
                yield NamedEvent::new("calls", &lines);
            }
        }
    }
}
