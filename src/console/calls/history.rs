//! Calls from the audit trail, the newest first. The page names the parts that the trail does not have.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::{caller_of, page_of, status_options, status_tag};
use crate::acts::Act;
use crate::address::with_query;
use crate::export::{self, Format};
use crate::frame::{self, Head, Section};
use crate::list::{self, Table};
use crate::text::Texts;
use crate::visit::{Address, Visit};
use crate::{Console, format, tools};
use sekisho_api::column::Column;
use sekisho_audit::{HistoryFilter, HistoryPage, PastCall};
use sekisho_core::error::{CallError, ErrorCode};

const PATH: &str = "/console/calls/history";

/// Calls of a page.
const PAGE: usize = 50;

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    tool: String,
    caller: String,
    status: String,
    code: String,
    since: String,
    until: String,
    before: Option<u64>,
    format: Format,
}

/// `GET /console/calls/history`.
pub async fn page(State(console): State<Arc<Console>>, visit: Visit, Address(wanted): Address<Wanted>) -> Response {
    let filter = visit.require(Act::SearchHistory).and_then(|()| wanted.filter());
    let found = match filter {
        Ok(filter) => console.gateway.history().search(&visit.caller, filter, PAGE).await,
        Err(error) => Err(error),
    };
    // A file has only the page's calls, too: the trail may have very many.
    list::respond(&visit, wanted.format, found, |page| &page.calls, |page| show(&visit, &wanted, page))
}

/// The page of one call that only the trail has.
pub(super) fn one(visit: &Visit, call: &PastCall) -> Markup {
    let texts = visit.texts();
    let title = texts.with("call-title", [("tool", call.tool.clone().into())]);
    let state = html! { (status_tag(&texts, &call.status, call.code.as_deref(), call.dry_run)) " · " (format::moment(&texts, &call.time)) };
    let head = Head { state: Some(state), ..Head::new(&title) };
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
    let mut facts = vec![
        ("call-caller", call.caller.clone()),
        ("call-tenant", call.tenant.clone()),
        ("call-stage", text(&call.stage)),
        ("call-duration", format::duration(std::time::Duration::from_micros(call.duration_us))),
        ("call-via", call.via.clone()),
        ("call-depth", call.depth.to_string()),
        ("call-attempts", call.attempts.to_string()),
        ("call-cost", format::money(call.cost_usd)),
        ("call-tokens", format::count(call.tokens)),
        ("call-policy", text(&call.policy_version)),
        ("call-request", text(&call.request_id)),
        ("call-trace", text(&call.trace_id)),
        ("call-id", call.call_id.clone()),
        ("call-line", call.seq.to_string()),
    ];
    facts.extend(call.calls.map(|calls| ("call-together", format::count(calls))));
    frame::page(
        visit,
        Some(Section::Calls),
        &head,
        &html! {
            p.notice role="note" { (texts.get("history-lacks")) }
            dl.facts {
                @for (name, value) in facts { div { dt { (texts.get(name)) } dd { code { (format::text(&value)) } } } }
            }
            p {
                a href={ (tools::path_of(&call.tool)) } { (texts.get("call-tool")) } " · "
                a href=(with_query(PATH, [("tool", &*call.tool)])) { (texts.get("call-same-tool")) }
            }
        },
    )
}

impl Wanted {
    fn filter(&self) -> Result<HistoryFilter, CallError> {
        let set = |text: &String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        Ok(HistoryFilter {
            tool: set(&self.tool),
            caller: set(&self.caller),
            status: set(&self.status),
            code: set(&self.code),
            since: moment(&self.since)?,
            until: moment(&self.until)?,
            before: self.before,
            ..HistoryFilter::default()
        })
    }

    fn address(&self, before: Option<u64>) -> String {
        let before = before.map(|before| before.to_string()).unwrap_or_default();
        let fields = [
            ("tool", &*self.tool),
            ("caller", &*self.caller),
            ("status", &*self.status),
            ("code", &*self.code),
            ("since", &*self.since),
            ("until", &*self.until),
            ("before", &before),
        ];
        with_query(PATH, fields)
    }
}

/// As a field for date and time writes it, in UTC; or RFC 3339.
fn moment(text: &str) -> Result<Option<Timestamp>, CallError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let read =
        text.parse::<Timestamp>().or_else(|_| format!("{text}Z").parse()).or_else(|_| format!("{text}:00Z").parse());
    read.map(Some).map_err(|_| {
        let message = format!("{text:?} is no time such as 2026-01-31T12:00");
        CallError::new(ErrorCode::InvalidRequest, message)
    })
}

fn show(visit: &Visit, wanted: &Wanted, page: &HistoryPage) -> Markup {
    let texts = visit.texts();
    let title = texts.get("history-title");
    let head = Head {
        state: Some(html! { (texts.get("history-state")) }),
        action: Some(html! { a.button href="/console/calls" { (texts.get("history-recent")) } }),
        ..Head::new(&title)
    };
    let table = Table {
        link: Some(|call: &PastCall| page_of(&call.call_id)),
        cell,
        ..Table::new(&texts, "history-title", ("history-none", "sekisho audit search"))
    };
    frame::page(
        visit,
        Some(Section::Calls),
        &head,
        &html! {
            (filters(&texts, wanted))
            (table.show(&page.calls))
            @if !page.calls.is_empty() { (export::links(&texts, &wanted.address(wanted.before))) }
            @if let Some(next) = page.next {
                nav.paging aria-label=(texts.get("paging-label")) {
                    @if page.calls.len() < PAGE && let Some(to) = &page.searched_to {
                        span { (texts.with("history-searched", [("time", to.clone().into())])) }
                    }
                    a rel="next" href=(wanted.address(Some(next))) { (texts.get("calls-older")) " →" }
                }
            } @else { p.quiet.small { (texts.get("history-end")) } }
        },
    )
}

fn cell(texts: &Texts, call: &PastCall, column: &Column) -> Option<Markup> {
    match column.name {
        "status" => Some(html! {
            (status_tag(texts, &call.status, call.code.as_deref(), call.dry_run))
            @if let Some(calls) = call.calls { " " span.tag { "× " (format::count(calls)) } }
        }),
        "caller" => Some(caller_of(&call.caller, &call.tenant)),
        _ => None,
    }
}

fn filters(texts: &Texts, wanted: &Wanted) -> Markup {
    let field = |name: &str, label: &str, value: &str, kind: &str| list::filter_field(texts, name, label, value, kind);
    html! {
        form.filters method="get" action=(PATH) role="search" {
            (field("tool", "tool-name", &wanted.tool, "text"))
            (field("caller", "call-caller", &wanted.caller, "text"))
            (status_options(texts, &wanted.status))
            (field("code", "call-code", &wanted.code, "text"))
            (field("since", "history-since", &wanted.since, "datetime-local"))
            (field("until", "history-until", &wanted.until, "datetime-local"))
            button { (texts.get("filter-apply")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_a_browser_writes_it() {
        for text in ["2026-01-31T12:00", "2026-01-31T12:00:00", "2026-01-31T12:00:00Z", "2026-01-31T21:00:00+09:00"] {
            assert_eq!(moment(text).unwrap().unwrap().to_string(), "2026-01-31T12:00:00Z", "{text}");
        }
        assert_eq!(moment(" ").unwrap(), None);
        assert!(moment("yesterday").is_err());
    }
}
