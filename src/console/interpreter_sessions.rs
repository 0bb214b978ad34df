//! The caller's sessions of interpreters: list.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::acts::Act;
use super::address::with_query;
use super::conversations::encoded;
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::list::Page;
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, error_page, format};
use sekisho_core::error::CallError;

pub(super) const PATH: &str = "/console/sessions";

/// What the address says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    pub page: usize,
    pub format: Format,
}

/// A session, as its route gives it.
#[derive(Debug, Deserialize)]
pub(super) struct InterpreterSession {
    pub session: String,
    pub generation: u64,
    pub is_used: bool,
    pub place: Place,
    pub calls: u64,
    pub memory_bytes: u64,
    pub began_at: String,
    pub last_used_at: String,
    pub ends_in_seconds: u64,
}

/// Where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Place {
    Memory,
    Stored,
    /// At another replica.
    Elsewhere,
}

#[derive(Debug, Deserialize)]
struct SessionList {
    sessions: Vec<InterpreterSession>,
}

/// `GET /console/sessions`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    match fetch(&console, &visit).await {
        Ok(sessions) if wanted.format == Format::Html => visit.answer(Ok(show(&visit, &wanted, &sessions))),
        Ok(sessions) => rows(&sessions).respond(wanted.format),
        Err(error) => error_page::of_visit(&visit, &error),
    }
}

/// The address of a session's page.
pub(super) fn path_of(session: &str) -> String {
    format!("{PATH}/{}", encoded(session))
}

async fn fetch(console: &Console, visit: &Visit) -> Result<Vec<InterpreterSession>, CallError> {
    visit.require(Act::SeeSessions)?;
    visit.fetch(console, "/sessions").await.map(|SessionList { sessions }| sessions)
}

fn rows(sessions: &[InterpreterSession]) -> Rows<'static, 9> {
    let row = |found: &InterpreterSession| {
        let InterpreterSession { session, generation, is_used, calls, memory_bytes, .. } = found;
        let InterpreterSession { began_at, last_used_at, ends_in_seconds, place, .. } = found;
        [
            json!(session),
            json!(generation),
            json!(is_used),
            json!(calls),
            json!(memory_bytes),
            json!(began_at),
            json!(last_used_at),
            json!(ends_in_seconds),
            json!(place),
        ]
    };
    let columns = [
        "session",
        "generation",
        "is_used",
        "calls",
        "memory_bytes",
        "began_at",
        "last_used_at",
        "ends_in_seconds",
        "place",
    ];
    Rows { name: "sessions", columns, rows: sessions.iter().map(row).collect() }
}

fn show(visit: &Visit, wanted: &Wanted, sessions: &[InterpreterSession]) -> Markup {
    let texts = visit.texts();
    let page = Page::of(sessions, wanted.page);
    let used = sessions.iter().filter(|session| session.is_used).count();
    let title = texts.get("nav-sessions");
    let state = texts.with("sessions-state", [("count", sessions.len().into()), ("used", used.into())]);
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    frame::page(
        visit,
        Some(Section::Sessions),
        &head,
        &html! {
            @if sessions.is_empty() {
                div.empty { p { (texts.get("sessions-none")) } p { code { "sekisho sessions" } } }
            } @else {
                (table(&texts, page.entries))
                (page.links(&texts, |page| with_query(PATH, [("page", &*page.to_string())])))
                (export::links(&texts, PATH))
            }
        },
    )
}

fn table(texts: &Texts, sessions: &[InterpreterSession]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-sessions")) {
            table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("result-session")) }
                    th.number scope="col" { (texts.get("session-calls")) }
                    th.number scope="col" { (texts.get("session-memory")) }
                    th scope="col" { (texts.get("session-last-used")) }
                    th scope="col" { (texts.get("session-ends")) }
                } }
                tbody { @for found in sessions {
                    tr {
                        th scope="row" {
                            a href=(path_of(&found.session)) { (format::name(&found.session)) }
                            @if let Some(tag) = found.tag(texts) { " " (tag) }
                        }
                        td.number data-label=(texts.get("session-calls")) { (format::count(found.calls)) }
                        td.number data-label=(texts.get("session-memory")) { (found.memory()) }
                        td data-label=(texts.get("session-last-used")) { (format::moment(texts, &found.last_used_at)) }
                        td data-label=(texts.get("session-ends")) { (found.end(texts)) }
                    }
                } }
            }
        }
    }
}

impl InterpreterSession {
    /// That a call has it now, or where it is if it is not in memory here.
    pub(super) fn tag(&self, texts: &Texts) -> Option<Markup> {
        Some(match self.place {
            Place::Memory if self.is_used => html! { span.tag.info { (texts.get("session-used")) } },
            Place::Memory => return None,
            Place::Stored => html! { span.tag { (texts.get("session-stored")) } },
            Place::Elsewhere => html! { span.tag { (texts.get("session-elsewhere")) } },
        })
    }

    pub(super) fn memory(&self) -> String {
        format!("{} KiB", format::count(self.memory_bytes >> 10))
    }

    /// When it ends if no call uses it.
    pub(super) fn end(&self, texts: &Texts) -> Markup {
        let now = SystemTime::now();
        format::time(texts, now.checked_add(Duration::from_secs(self.ends_in_seconds)).unwrap_or(now))
    }
}
