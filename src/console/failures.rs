//! Failures and refusals by tool, server, caller, tenant or upstream: how many, since when, and the first call of each.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::Console;
use super::acts::Act;
use super::address::with_query;
use super::calls;
use super::export::{self, Format};
use super::format;
use super::frame::{self, Head, Section};
use super::list::{self, Table};
use super::text::Texts;
use super::visit::{Address, Visit};
use sekisho_api::column::{Column, Listed};
use sekisho_api::{CallQuery, FailureBody, FailureList};
use sekisho_core::error::CallError;
use sekisho_store::FailuresBy;

const PATH: &str = "/console/failures";

/// The fields of the address.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    #[serde(flatten)]
    query: CallQuery,
    by: String,
    format: Format,
}

/// The address of the failures of a server's tools.
pub(super) fn path_of_source(name: &str) -> String {
    with_query(PATH, [("by", FailuresBy::Tool.as_str()), ("server", name)])
}

/// The address of the failures of a tool, by caller.
pub(super) fn path_of_tool(name: &str) -> String {
    with_query(PATH, [("by", FailuresBy::Caller.as_str()), ("tool", name)])
}

/// `GET /console/failures`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let found = find(&console, &visit, &wanted).await;
    list::respond(&visit, wanted.format, found, |found| &found.items, |found| show(&visit, &wanted, found))
}

async fn find(console: &Console, visit: &Visit, wanted: &Wanted) -> Result<FailureList, CallError> {
    visit.require(Act::SeeCalls)?;
    visit.fetch(console, &wanted.address(FailureBody::ROUTE, "by", &wanted.by)).await
}

impl Wanted {
    /// The address with another value of a field.
    fn address(&self, path: &str, name: &str, value: &str) -> String {
        let mut fields: Vec<(&str, &str)> = self.query.fields();
        fields.push(("by", &self.by));
        fields.retain(|(other, _)| *other != name);
        fields.push((name, value));
        with_query(path, fields)
    }
}

fn show(visit: &Visit, wanted: &Wanted, found: &FailureList) -> Markup {
    let texts = visit.texts();
    let title = texts.get("failures-title");
    let head = Head {
        state: Some(html! { (texts.with("failures-state", [("count", found.items.len().into())])) }),
        action: Some(html! { a.button href="/console/calls" { (texts.get("history-recent")) } }),
        ..Head::new(&title)
    };
    let table =
        Table { link: Some(link), cell, ..Table::new(&texts, "failures-title", ("failures-none", FailureBody::ROUTE)) };
    frame::page(
        visit,
        Some(Section::Calls),
        &head,
        &html! {
            (choices(&texts, wanted))
            (filters(&texts, wanted))
            (table.show(&found.items))
            @if !found.items.is_empty() { (export::links(&texts, &wanted.address(PATH, "by", &wanted.by))) }
            @if let Some(since) = &found.searched_since { p.quiet.small { (texts.get("failures-searched")) " " (format::moment(&texts, since)) } }
        },
    )
}

/// Links that choose the field and the time.
fn choices(texts: &Texts, wanted: &Wanted) -> Markup {
    let fields = [
        (FailuresBy::Tool, "tool-name"),
        (FailuresBy::Server, "call-server"),
        (FailuresBy::Caller, "call-caller"),
        (FailuresBy::Tenant, "call-tenant"),
        (FailuresBy::Upstream, "call-upstream"),
    ];
    let by: FailuresBy = wanted.by.parse().unwrap_or_default();
    let since = wanted.query.since.as_deref().unwrap_or_default();
    html! {
        nav.small aria-label=(texts.get("failures-by")) {
            @for (field, title) in fields {
                @if field != FailuresBy::Tool { " · " }
                a href=(wanted.address(PATH, "by", field.as_str())) aria-current=[(field == by).then_some("true")] { (texts.get(title)) }
            }
        }
        nav.small aria-label=(texts.get("calls-times")) {
            @for time in calls::TIMES {
                a href=(wanted.address(PATH, "since", time)) aria-current=[(since == time).then_some("true")] { (time) } " · "
            }
            a href=(wanted.address(PATH, "since", "")) aria-current=[since.is_empty().then_some("true")] { (texts.get("filter-any")) }
        }
    }
}

fn filters(texts: &Texts, wanted: &Wanted) -> Markup {
    let query = &wanted.query;
    let field = |name: &str, label: &str, value: &Option<String>| {
        list::filter_field(texts, name, label, value.as_deref().unwrap_or_default(), "text")
    };
    html! {
        form.filters method="get" action=(PATH) role="search" {
            input type="hidden" name="by" value=(wanted.by);
            (field("tool", "tool-name", &query.tool))
            (field("server", "call-server", &query.server))
            (field("caller", "call-caller", &query.caller))
            (field("tenant", "call-tenant", &query.tenant))
            (field("code", "call-code", &query.code))
            (field("since", "history-since", &query.since))
            (field("until", "history-until", &query.until))
            button { (texts.get("filter-apply")) }
        }
    }
}

/// The calls of a group.
fn link(group: &FailureBody) -> String {
    let fields = [(&*group.by, &*group.value), ("code", group.code.as_deref().unwrap_or_default())];
    with_query("/console/calls", fields)
}

fn cell(texts: &Texts, group: &FailureBody, column: &Column) -> Option<Markup> {
    match column.name {
        "since" => Some(html! {
            (format::moment(texts, &group.since))
            @if group.is_constant { " " span.tag.bad { "✕ " (texts.get("failure-constant")) } }
        }),
        "first_call_id" => {
            // The end of an id differs most; the whole one is on hover.
            let id = &group.first_call_id;
            Some(html! { a href=(calls::page_of(id)) title=(id) { (format::name(id.get(24..).unwrap_or(id))) } })
        }
        _ => None,
    }
}
