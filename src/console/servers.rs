//! MCP servers and OpenAPI collections: which of them work, since when, and why not.

pub(super) mod add;
pub(super) mod detail;
pub(super) mod lock;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::acts::Act;
use super::frame::{self, Head, Section};
use super::text::Texts;
use super::visit::Visit;
use super::{Console, format};
use crate::core::error::CallError;
use crate::gateway::{SourceState, SourceStatus};

const PATH: &str = "/console/servers";

/// `GET /console/servers`.
pub(super) async fn page(State(console): State<Arc<Console>>, visit: Visit) -> Response {
    visit.answer(list(&console, &visit))
}

fn list(console: &Console, visit: &Visit) -> Result<Markup, CallError> {
    visit.require(Act::SeeServers)?;
    let texts = visit.texts();
    let sources = console.gateway.sources(&visit.caller);
    let down = sources.iter().filter(|status| needs_attention(status)).count();
    let title = texts.get("nav-servers");
    let state = texts.with("servers-state", [("count", sources.len().into()), ("down", down.into())]);
    let action = visit.may(Act::ChangeServers).then(|| {
        html! {
            a.button href="/console/servers/lock" { (texts.get("servers-differences")) } " "
            a.button.main href="/console/servers/add" { (texts.get("servers-add")) }
        }
    });
    let head = Head { state: Some(html! { (state) }), action, ..Head::new(&title) };
    Ok(frame::page(
        visit,
        Some(Section::Servers),
        &head,
        &html! {
            @if sources.is_empty() {
                div.empty {
                    p { (texts.get("servers-none")) }
                    p { code { "sekisho mcp add NAME -- COMMAND" } }
                }
            } @else { (table(&texts, &sources)) }
        },
    ))
}

fn table(texts: &Texts, sources: &[SourceStatus]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-servers")) {
            table.list {
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
                    td { (since(texts, status)) }
                    td.number { (format::count(status.tools.len() as u64)) }
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
        crate::gateway::SourceKind::Mcp => "server-mcp",
        crate::gateway::SourceKind::Openapi => "server-openapi",
    }
}

fn needs_attention(status: &SourceStatus) -> bool {
    matches!(status.state, SourceState::Down | SourceState::NeedsSignIn) || !status.quarantined.is_empty()
}

/// The address of its page.
fn path_of(status: &SourceStatus) -> String {
    format!("{PATH}/{}/{}", status.kind.as_str(), utf8_percent_encode(&status.name, NON_ALPHANUMERIC))
}
