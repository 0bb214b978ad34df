//! The caller's sessions of interpreters: list.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::export::Format;
use super::frame::{self, Head, Section};
use super::list::{self, Table};
use super::sorting::{Sorting, sort};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, format};
use sekisho_api::column::Column;
use sekisho_sandbox::{SessionInfo, SessionPlace};

pub(super) const PATH: &str = "/console/sessions";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    pub page: usize,
    /// The column by which they are sorted.
    pub sort: String,
    pub format: Format,
}

/// `GET /console/sessions`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let mut sessions = list::fetch_all::<SessionInfo>(&console, &visit, Act::SeeSessions, &[]).await;
    if let Ok(sessions) = &mut sessions {
        sort(sessions, &wanted.sort);
    }
    list::respond(&visit, wanted.format, sessions, |sessions| sessions, |sessions| show(&visit, &wanted, sessions))
}

/// The address of a session's page.
pub(super) fn path_of(session: &str) -> String {
    format!("{PATH}/{}", encoded(session))
}

fn show(visit: &Visit, wanted: &Wanted, sessions: &[SessionInfo]) -> Markup {
    let texts = visit.texts();
    let used = sessions.iter().filter(|session| session.is_used).count();
    let title = texts.get("nav-sessions");
    let state = texts.with("sessions-state", [("count", sessions.len().into()), ("used", used.into())]);
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    let address = |page: usize| with_query(PATH, [("page", &*page.to_string()), ("sort", &wanted.sort)]);
    let sorted = |sort: &str| with_query(PATH, [("sort", sort)]);
    let table = Table {
        sorting: Some(Sorting { chosen: &wanted.sort, is_open: |_| true, address: &sorted }),
        fill: Some(("calls-try", "/console/tools?q=python")),
        link: Some(|found: &SessionInfo| path_of(&found.session)),
        cell,
        ..Table::new(&texts, "nav-sessions", ("sessions-none", "sekisho sessions"))
    };
    let shown = table.show_part(sessions, wanted.page, address, PATH);
    frame::page(visit, Some(Section::Sessions), &head, &shown)
}

fn cell(texts: &Texts, found: &SessionInfo, column: &Column) -> Option<Markup> {
    match column.name {
        "session" => Some(html! { (format::name(&found.session)) @if let Some(tag) = tag(texts, found) { " " (tag) } }),
        "ends_in_seconds" => Some(end(texts, found)),
        _ => None,
    }
}

/// The tag of a session that a call uses now, or the place of a session that is not in memory here.
pub(super) fn tag(texts: &Texts, found: &SessionInfo) -> Option<Markup> {
    Some(match found.place {
        SessionPlace::Memory if found.is_used => html! { span.tag.info { (texts.get("session-used")) } },
        SessionPlace::Memory => return None,
        SessionPlace::Stored => html! { span.tag { (texts.get("session-stored")) } },
        SessionPlace::Elsewhere => html! { span.tag { (texts.get("session-elsewhere")) } },
    })
}

/// When the session ends if no call uses it.
pub(super) fn end(texts: &Texts, found: &SessionInfo) -> Markup {
    let now = SystemTime::now();
    format::time(texts, now.checked_add(Duration::from_secs(found.ends_in_seconds)).unwrap_or(now))
}
