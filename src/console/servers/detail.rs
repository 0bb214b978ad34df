//! One server or collection: its state, its tools, the results of a document's operations, and the actions on it.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::{PATH, connections, kind, own_path, path_of, state};
use crate::acts::Act;
use crate::export::{self, Format, Rows};
use crate::figures::{self, Ranged};
use crate::frame::{self, Head, Section};
use crate::submitted::Submitted;
use crate::text::Texts;
use crate::visit::{Address, TOKEN_FIELD, Visit};
use crate::{Console, error_page, format, owner, redirect, tools};
use sekisho_api::{begin_sign_in, record_change};
use sekisho_audit::EventKind;
use sekisho_core::administration::{Administrator, AdministratorProof};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{FiguresOf, SourceKind, SourceState, SourceStatus};
use sekisho_openapi::read::report::{Note, Report};

/// Maximum lines of each list.
const MAX_LINES: usize = 200;

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    /// The last action.
    done: String,
    #[serde(flatten)]
    ranged: Ranged,
    format: Format,
}

/// `GET /console/servers/{kind}/{name}`.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path((kind, name)): Path<(String, String)>,
    Address(done): Address<Done>,
) -> Response {
    let found = match visit.require(Act::SeeServers) {
        Ok(()) => find(&console, &visit, &kind, &name).await,
        Err(error) => Err(error),
    };
    match (found, done.format) {
        (Ok(SourceStatus { name, collection: Some(collection), .. }), format) if format != Format::Html => {
            rows(&name, &collection.report).respond(format)
        }
        (Ok(status), _) => {
            let (of, page) = (FiguresOf::Server(status.name.clone()), path_of(status.kind, &status.name));
            let figures = figures::section(&console, &visit, &of, &page, &done.ranged).await;
            visit.answer(figures.map(|figures| show(&visit, &status, &done, None, &figures)))
        }
        (Err(error), _) => visit.answer(Err(error)),
    }
}

/// The result of each operation of a document.
fn rows<'a>(name: &'a str, report: &Report) -> Rows<'a, 4> {
    let works =
        report.works.iter().map(|works| [json!(works.operation), json!("works"), json!(works.tool), json!(null)]);
    let notes = |outcome: &'static str, notes: &[Note]| {
        let row = |note: &Note| [json!(note.operation), json!(outcome), json!(null), json!(note.reason)];
        notes.iter().map(row).collect::<Vec<_>>()
    };
    let noted = [
        notes("lost", &report.lost),
        notes("approximated", &report.approximated),
        notes("needs_credentials", &report.needs_credentials),
    ];
    let rows = works.chain(noted.into_iter().flatten()).collect();
    Rows { name, columns: ["operation", "outcome", "tool", "reason"], rows }
}

/// `POST /console/servers/{kind}/{name}`: reconnects or removes it, or starts a sign-in.
pub(crate) async fn act(
    State(console): State<Arc<Console>>,
    Path((kind, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let submitted = match Submitted::read(&console, request, Act::ChangeServers).await {
        Ok(submitted) => submitted,
        Err(response) => return response,
    };
    match apply(&console, &submitted, &kind, &name).await {
        Ok(response) => response,
        Err(error) => error_page::of_visit(&submitted.visit, &error),
    }
}

async fn apply(console: &Console, submitted: &Submitted, kind: &str, name: &str) -> Result<Response, CallError> {
    // A visitor who is no administrator learns nothing of existing servers.
    submitted.administrator()?;
    let (visit, gateway) = (&submitted.visit, &console.gateway);
    let status = find(console, visit, kind, name).await?;
    let by = Administrator::for_owner(&visit.caller, &status.owner)?;
    match submitted.field("act") {
        "reconnect" => {
            let (service, kind, name) = (Arc::clone(gateway), status.kind, status.name.clone());
            let change = async move { Ok(service.sources().reconnect(&by, kind, &name)) };
            let event = submitted.event(EventKind::ServerReconnected, &status.source());
            record_change(gateway, event, change).await?;
            Ok(redirect(&format!("{}?done=reconnect", path_of(status.kind, &status.name))))
        }
        "sign_in" => {
            let start = begin_sign_in(&by, gateway, &status.name, &submitted.parts)?;
            let event = submitted.event(EventKind::SignInStarted, &status.name);
            let started = record_change(gateway, event, start).await?;
            let address = started.authorization_url.as_str();
            Ok(visit.answer(Ok(show(visit, &status, &Done::default(), Some(address), &html! {}))))
        }
        "remove" => {
            submitted.require_confirmation(&status.name)?;
            let route = format!("/admin/servers/{}", own_path(status.kind, &status.name));
            visit.change(console, Method::DELETE, &route, None).await?;
            Ok(redirect(&format!("{PATH}?done=removed")))
        }
        _ => Err(CallError::new(ErrorCode::InvalidRequest, "the form names no act; open the page again")),
    }
}

async fn find(console: &Console, visit: &Visit, kind: &str, name: &str) -> Result<SourceStatus, CallError> {
    let known = SourceKind::ALL.iter().copied().find(|known| known.as_str() == kind);
    let unknown = || CallError::new(ErrorCode::NotFound, "a server is of the kind `mcp` or `openapi`");
    console.gateway.sources().find(&visit.caller, known.ok_or_else(unknown)?, name).await
}

/// `figures`: of the calls of its tools.
fn show(visit: &Visit, status: &SourceStatus, done: &Done, sign_in: Option<&str>, figures: &Markup) -> Markup {
    let texts = visit.texts();
    let sentence = html! { (state(&texts, status.state, status.reason.is_some())) " · " (texts.get(kind(status.kind))) @if let Some(since) = status.since { " · " (format::time(&texts, since)) } };
    let head = Head { state: Some(sentence), action: actions(visit, status), ..Head::new(&status.name) };
    frame::page(
        visit,
        Some(Section::Servers),
        &head,
        &html! {
            @if done.done == "reconnect" { p.notice role="status" { "✓ " (texts.get("server-reconnecting")) } }
            // Only an address of the web: no other one of a server's becomes a link.
            @if let Some(address) = sign_in.filter(|address| address.starts_with("https://") || address.starts_with("http://")) {
                p.notice role="status" {
                    (texts.get("server-continue")) " " a href=(address) rel="noreferrer" { (texts.get("server-open-sign-in")) }
                }
            }
            @if let Some(reason) = &status.reason { p.notice.warn { "▲ " (format::text(reason)) } }
            dl.facts {
                div { dt { (texts.get("server-address")) } dd { @if status.address.is_empty() { "–" } @else { code { (format::text(&status.address)) } } } }
                div { dt { (texts.get("server-defined")) } dd {
                    (texts.get(if status.registered { "server-registered" } else { "server-configured" })) " "
                    (owner(&texts, status.owner.tenant()))
                } }
                @if !status.layers.is_empty() { div { dt { (texts.get("server-layers")) } dd { (status.layers.join(", ")) } } }
            }
            (figures)
            @if let Some(collection) = &status.collection {
                (fidelity(&texts, &collection.report))
                (export::links(&texts, &path_of(status.kind, &status.name)))
            }
            (connections::section(&texts, &status.connections))
            (names(&texts, "server-failing", &status.failing, Some(&crate::failures::path_of_source(&status.name))))
            (names(&texts, "server-waiting", &status.quarantined, None))
            (names(&texts, "nav-tools", &status.tools, Some(&tools::path_of_source(&status.source()))))
            (removal(visit, status))
        },
    )
}

fn actions(visit: &Visit, status: &SourceStatus) -> Option<Markup> {
    let token = visit.form_token().filter(|_| may_change(visit, status))?;
    let texts = visit.texts();
    let button = |act: &str, id: &str, is_main: bool| {
        html! {
            form method="post" action=(path_of(status.kind, &status.name)) {
                input type="hidden" name=(TOKEN_FIELD) value=(token);
                button.main[is_main] name="act" value=(act) { (texts.get(id)) }
            }
        }
    };
    Some(html! {
        @if status.state == SourceState::NeedsSignIn { (button("sign_in", "server-sign-in", false)) }
        (button("reconnect", "server-reconnect", true))
    })
}

fn may_change(visit: &Visit, status: &SourceStatus) -> bool {
    visit.may(Act::ChangeServers) && Administrator::for_owner(&visit.caller, &status.owner).is_ok()
}

/// The form that removes a source registered over HTTP; for a source of the configuration, why there is none.
fn removal(visit: &Visit, status: &SourceStatus) -> Markup {
    let texts = visit.texts();
    let Some(token) = visit.form_token().filter(|_| may_change(visit, status)) else { return html! {} };
    if !status.registered {
        return html! { p.quiet.small { (texts.get("server-remove-configured")) } };
    }
    html! {
        details.manage {
            summary { (texts.get("server-remove")) }
            p { (texts.with("server-remove-help", [("n", status.tools.len().into())])) }
            form.inline method="post" action=(path_of(status.kind, &status.name)) {
                input type="hidden" name=(TOKEN_FIELD) value=(token);
                div.field {
                    label for="confirmed" { (texts.get("resource-remove-confirm")) }
                    input #confirmed name="confirmed" required autocomplete="off" spellcheck="false";
                }
                button.danger name="act" value="remove" { (texts.get("resource-remove")) }
            }
        }
    }
}

/// The result of each operation of a document.
pub(super) fn fidelity(texts: &Texts, report: &Report) -> Markup {
    let notes = |id: &str, notes: &[Note]| {
        html! {
            @if !notes.is_empty() {
                details {
                    summary { (texts.get(id)) " (" (format::count(notes.len() as u64)) ")" }
                    ul.plain.notes { @for note in notes.iter().take(MAX_LINES) {
                        li { code { (format::text(&note.operation)) } ": " (format::text(&note.reason)) }
                    } }
                    (more(texts, notes.len()))
                }
            }
        }
    };
    html! {
        section aria-labelledby="fidelity" {
            h2 #fidelity { (texts.get("fidelity-title")) }
            dl.facts {
                div { dt { (texts.get("fidelity-operations")) } dd { (format::count(report.operations as u64)) } }
                div { dt { (texts.get("nav-tools")) } dd { (format::count(report.tools as u64)) } }
                div { dt { (texts.get("fidelity-works")) } dd { (format::count(report.works.len() as u64)) } }
            }
            (notes("fidelity-lost", &report.lost))
            (notes("fidelity-approximated", &report.approximated))
            (notes("fidelity-credentials", &report.needs_credentials))
        }
    }
}

/// Names of tools; with an address of them all, they lead to their pages.
fn names(texts: &Texts, title: &str, names: &[String], all: Option<&str>) -> Markup {
    let count = html! { (texts.get(title)) " (" (format::count(names.len() as u64)) ")" };
    html! {
        @if !names.is_empty() {
            section {
                h2 { @if let Some(all) = all { a href=(all) { (count) } } @else { (count) } }
                ul.plain.names { @for name in names.iter().take(MAX_LINES) {
                    li { @if all.is_some() { a href=(tools::path_of(name)) { (format::name(name)) } } @else { (format::name(name)) } }
                } }
                @match all {
                    Some(all) if names.len() > MAX_LINES => p { a href=(all) { (texts.get("tools-all")) " →" } },
                    _ => (more(texts, names.len())),
                }
            }
        }
    }
}

fn more(texts: &Texts, count: usize) -> Markup {
    let left = count.saturating_sub(MAX_LINES);
    html! { @if left > 0 { p.quiet { (texts.with("list-more", [("n", left.into())])) } } }
}
