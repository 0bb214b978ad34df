//! MCP servers and OpenAPI collections: which of them work, since when, and why not.

pub(super) mod add;
mod connections;
pub(super) mod detail;
pub(super) mod lock;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;

use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::list::Page;
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, error_page, format};
use sekisho_gateway::{SourceState, SourceStatus};

const PATH: &str = "/console/servers";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    page: usize,
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
    let sources = console.gateway.sources().list(&visit.caller);
    match wanted.format {
        Format::Html => visit.answer(Ok(list(&visit, &wanted, &sources))),
        format => rows(&sources).respond(format),
    }
}

/// All sources, not only the page's.
fn rows(sources: &[SourceStatus]) -> Rows<'static, 9> {
    let row = |status: &SourceStatus| {
        [
            json!(status.name),
            json!(status.kind),
            json!(status.state),
            json!(status.since.and_then(|since| Timestamp::try_from(since).ok()).map(|since| since.to_string())),
            json!(status.reason),
            json!(status.address),
            json!(status.registered),
            json!(status.tools.len()),
            json!(status.quarantined.len()),
        ]
    };
    let columns = ["name", "kind", "state", "since", "reason", "address", "registered", "tools", "quarantined"];
    Rows { name: "servers", columns, rows: sources.iter().map(row).collect() }
}

fn list(visit: &Visit, wanted: &Wanted, sources: &[SourceStatus]) -> Markup {
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
    let shown = Page::of(sources, wanted.page);
    let address = |page: usize| with_query(PATH, [("page", &*page.to_string())]);
    frame::page(
        visit,
        Some(Section::Servers),
        &head,
        &html! {
            @if wanted.done == "removed" { p.notice role="status" { "✓ " (texts.get("server-removed")) } }
            @if sources.is_empty() {
                div.empty {
                    p { (texts.get("servers-none")) }
                    p { code { "sekisho mcp add NAME -- COMMAND" } }
                }
            } @else {
                (table(&texts, shown.entries))
                (shown.links(&texts, address))
                (export::links(&texts, &address(shown.at)))
            }
        },
    )
}

fn table(texts: &Texts, sources: &[SourceStatus]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-servers")) {
            table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("server-name")) }
                    th scope="col" { (texts.get("server-kind")) }
                    th scope="col" { (texts.get("tool-state")) }
                    th scope="col" { (texts.get("server-since")) }
                    th.number scope="col" { (texts.get("nav-tools")) }
                    th scope="col" { (texts.get("server-reason")) }
                } }
                tbody { @for status in sources { tr {
                    th scope="row" { a href=(path_of(status)) { (format::name(&status.name)) } }
                    td { (texts.get(kind(status))) }
                    td { (state(texts, status)) }
                    td data-label=(texts.get("server-since")) { (since(texts, status)) }
                    td.number data-label=(texts.get("nav-tools")) { (format::count(status.tools.len() as u64)) }
                    td.text {
                        @if let Some(reason) = &status.reason { (format::text(reason)) " " }
                        @if !status.quarantined.is_empty() {
                            span.tag.warn { "⊘ " (texts.with("server-quarantined", [("n", status.quarantined.len().into())])) }
                        }
                    }
                } } }
            }
        }
    }
}

/// Its state in a word with a sign.
fn state(texts: &Texts, status: &SourceStatus) -> Markup {
    let (class, sign, id) = match status.state {
        SourceState::Works if status.reason.is_some() => ("tag warn", "▲", "server-degraded"),
        SourceState::Works => ("tag good", "✓", "server-works"),
        SourceState::Connecting => ("tag", "…", "server-connecting"),
        SourceState::NeedsSignIn => ("tag warn", "▲", "server-needs-sign-in"),
        SourceState::Down => ("tag bad", "✕", "server-down"),
        SourceState::Disabled => ("tag", "–", "server-disabled"),
    };
    html! { span class=(class) { (sign) " " (texts.get(id)) } }
}

fn since(texts: &Texts, status: &SourceStatus) -> Markup {
    match status.since {
        Some(since) => format::time(texts, since),
        None => html! { "–" },
    }
}

fn kind(status: &SourceStatus) -> &'static str {
    match status.kind {
        sekisho_gateway::SourceKind::Mcp => "server-mcp",
        sekisho_gateway::SourceKind::Openapi => "server-openapi",
    }
}

fn needs_attention(status: &SourceStatus) -> bool {
    matches!(status.state, SourceState::Down | SourceState::NeedsSignIn) || !status.quarantined.is_empty()
}

/// The address of its page.
fn path_of(status: &SourceStatus) -> String {
    format!("{PATH}/{}", own_path(status))
}

/// The part of an address that names a source.
fn own_path(status: &SourceStatus) -> String {
    format!("{}/{}", status.kind.as_str(), utf8_percent_encode(&status.name, NON_ALPHANUMERIC))
}
