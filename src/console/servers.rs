//! MCP servers and OpenAPI collections: which of them work, since when, and why not.

pub(super) mod add;
mod connections;
pub(super) mod detail;
pub(super) mod lock;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format};
use super::frame::{self, Head, Section};
use super::list::Table;
use super::sorting::{Sorting, sort};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, error_page, format};
use sekisho_api::ServerBody;
use sekisho_api::column::{Column, Form};
use sekisho_gateway::{SourceKind, SourceState};

const PATH: &str = "/console/servers";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    page: usize,
    /// The column by which they are sorted.
    sort: String,
    /// The last action.
    done: String,
    format: Format,
}

/// `GET /console/servers`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    if let Err(error) = visit.require(Act::SeeServers) {
        return error_page::of_visit(&visit, &error);
    }
    let sources = console.gateway.sources().list(&visit.caller).await;
    let mut sources: Vec<_> = sources.into_iter().map(ServerBody::from).collect();
    sort(&mut sources, &wanted.sort);
    match wanted.format {
        Format::Html => visit.answer(Ok(list(&visit, &wanted, &sources))),
        // All sources, not only the page's.
        format => export::listed(&sources, format),
    }
}

fn list(visit: &Visit, wanted: &Wanted, sources: &[ServerBody]) -> Markup {
    let texts = visit.texts();
    let down = sources.iter().filter(|status| needs_attention(status)).count();
    let title = texts.get("nav-servers");
    let state = texts.with("servers-state", [("count", sources.len().into()), ("down", down.into())]);
    let action = visit.may(Act::ChangeServers).then(|| {
        html! {
            @if visit.caller.administers_shared() {
                a.button href="/console/servers/lock" { (texts.get("servers-differences")) } " "
            }
            a.button.main href="/console/servers/add" { (texts.get("servers-add")) }
        }
    });
    let head = Head { state: Some(html! { (state) }), action, ..Head::new(&title) };
    let address = |page: usize| with_query(PATH, [("page", &*page.to_string()), ("sort", &wanted.sort)]);
    let sorted = |sort: &str| with_query(PATH, [("sort", sort)]);
    let sorting = Sorting { chosen: &wanted.sort, is_open: |column| column.form != Form::Line, address: &sorted };
    let fill = visit.may(Act::ChangeServers).then_some(("servers-add", "/console/servers/add"));
    let table = Table {
        sorting: Some(sorting),
        fill,
        link: Some(|server: &ServerBody| path_of(server.kind, &server.name)),
        cell,
        ..Table::new(&texts, "nav-servers", ("servers-none", "sekisho add SOURCE"))
    };
    frame::page(
        visit,
        Some(Section::Servers),
        &head,
        &html! {
            @if wanted.done == "removed" { p.notice role="status" { "✓ " (texts.get("server-removed")) } }
            (table.show_part(sources, wanted.page, address, &address(wanted.page.max(1))))
        },
    )
}

fn cell(texts: &Texts, server: &ServerBody, column: &Column) -> Option<Markup> {
    match column.name {
        "kind" => Some(html! { (texts.get(kind(server.kind))) }),
        "state" => Some(state(texts, server.state, server.reason.is_some())),
        "reason" => Some(html! {
            @if let Some(reason) = &server.reason { (format::text(reason)) " " }
            @if !server.quarantined.is_empty() {
                span.tag.warn { "⊘ " (texts.with("server-quarantined", [("n", server.quarantined.len().into())])) }
            }
        }),
        _ => None,
    }
}

/// A state in a word with a sign. `has_reason`: something is wrong.
pub(super) fn state(texts: &Texts, state: SourceState, has_reason: bool) -> Markup {
    let (class, sign, id) = match state {
        SourceState::Works if has_reason => ("tag warn", "▲", "server-degraded"),
        SourceState::Degraded => ("tag warn", "▲", "server-degraded"),
        SourceState::Works => ("tag good", "✓", "server-works"),
        SourceState::Connecting => ("tag", "…", "server-connecting"),
        SourceState::NeedsSignIn => ("tag warn", "▲", "server-needs-sign-in"),
        SourceState::Down => ("tag bad", "✕", "server-down"),
        SourceState::Disabled => ("tag", "–", "server-disabled"),
    };
    html! { span class=(class) { (sign) " " (texts.get(id)) } }
}

fn kind(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Mcp => "server-mcp",
        SourceKind::Openapi => "server-openapi",
    }
}

fn needs_attention(server: &ServerBody) -> bool {
    matches!(server.state, SourceState::Down | SourceState::Degraded | SourceState::NeedsSignIn)
        || !server.quarantined.is_empty()
}

/// The address of a source's page.
pub(super) fn path_of(kind: SourceKind, name: &str) -> String {
    format!("{PATH}/{}", own_path(kind, name))
}

/// The part of an address that names a source.
fn own_path(kind: SourceKind, name: &str) -> String {
    format!("{}/{}", kind.as_str(), utf8_percent_encode(name, NON_ALPHANUMERIC))
}
