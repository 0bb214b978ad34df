//! One session of an interpreter: the definitions of its programs, and its end.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};

use super::acts::Act;
use super::address::{encoded, with_query};
use super::frame::{self, Head, Section};
use super::interpreter_sessions::{self, Wanted, path_of};
use super::list::{self, Table};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, error_page, format, redirect};
use sekisho_sandbox::{SessionDetails, SessionInfo, SessionPlace, Variable};

/// `GET /console/sessions/{name}`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path(name): Path<String>,
    Address(wanted): Address<Wanted>,
) -> Response {
    let details = match visit.require(Act::SeeSessions) {
        Ok(()) => visit.fetch::<SessionDetails>(&console, &route_of(&name)).await,
        Err(error) => Err(error),
    };
    list::respond(
        &visit,
        wanted.format,
        details,
        |details| details.variables.as_deref().unwrap_or_default(),
        |details| show(&visit, &wanted, details),
    )
}

/// `POST /console/sessions/{name}`: ends it.
pub(super) async fn end(State(console): State<Arc<Console>>, Path(name): Path<String>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::EndSessions).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let ended = match form.require_confirmation(&name) {
        Ok(()) => form.visit.change(&console, Method::DELETE, &route_of(&name), None).await,
        Err(error) => Err(error),
    };
    match ended {
        Ok(_) => redirect(interpreter_sessions::PATH),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

fn route_of(name: &str) -> String {
    format!("/sessions/{}", encoded(name))
}

fn show(visit: &Visit, wanted: &Wanted, details: &SessionDetails) -> Markup {
    let (texts, session) = (visit.texts(), &details.session);
    let title = texts.with("session-title", [("name", format::text(&session.session).into_owned().into())]);
    let head = Head { state: interpreter_sessions::tag(&texts, session), ..Head::new(&title) };
    let token = visit.form_token().filter(|_| visit.may(Act::EndSessions));
    frame::page(
        visit,
        Some(Section::Sessions),
        &head,
        &html! {
            (facts(&texts, session))
            section aria-labelledby="variables" {
                h2 #variables { (texts.get("session-variables")) }
                @match &details.variables {
                    None if session.place == SessionPlace::Memory => { p.quiet { (texts.get("session-busy")) } },
                    None => { p.quiet { (texts.get("session-away")) } },
                    Some(found) => { (variables(&texts, &session.session, found, wanted.page)) },
                }
                @if details.truncated { p.quiet.small { (texts.get("session-truncated")) } }
            }
            @if let Some(token) = &token { (end_form(&texts, token, &session.session)) }
            p { a href=(interpreter_sessions::PATH) { "← " (texts.get("nav-sessions")) } }
        },
    )
}

fn facts(texts: &Texts, session: &SessionInfo) -> Markup {
    let given = [
        ("session-generation", format::count(session.generation)),
        ("session-calls", format::count(session.calls)),
        ("session-memory", format!("{} KiB", format::count(session.memory_bytes >> 10))),
    ];
    let moments = [("column-created", &session.created_at), ("session-last-used", &session.last_used_at)];
    html! {
        dl.facts {
            @for (name, value) in given { div { dt { (texts.get(name)) } dd { (value) } } }
            @for (name, at) in moments { div { dt { (texts.get(name)) } dd { (format::moment(texts, at)) } } }
            div { dt { (texts.get("session-ends")) } dd { (interpreter_sessions::end(texts, session)) } }
        }
    }
}

fn variables(texts: &Texts, session: &str, found: &[Variable], page: usize) -> Markup {
    let table = Table {
        help: Some("session-sizes"),
        ..Table::new(texts, "session-variables", ("session-has-none", "sekisho call python_executor"))
    };
    let path = path_of(session);
    table.show_part(found, page, |page| with_query(&path, [("page", &*page.to_string())]), &path)
}

fn end_form(texts: &Texts, token: &str, session: &str) -> Markup {
    html! {
        details.manage {
            summary { (texts.get("session-end")) }
            p { (texts.get("session-end-help")) }
            form.inline method="post" action=(path_of(session)) {
                input type="hidden" name=(TOKEN_FIELD) value=(token);
                div.field {
                    label for="confirmed" { (texts.get("session-end-confirm")) }
                    input #confirmed name="confirmed" required autocomplete="off" spellcheck="false";
                }
                button.danger { (texts.get("session-end")) }
            }
        }
    }
}
