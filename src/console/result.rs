//! One stored result, of which each page is a call of `read_result`, as `GET /results/{handle}` makes it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::frame::{self, Head, Section};
use super::results::{self, path_of};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, error_page, format, headers, list, try_it};
use sekisho_api::reply::status as status_of;
use sekisho_core::error::{CallError, ErrorCode};

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    session_id: String,
    query: String,
    grep: String,
    /// Elements or lines before this page.
    offset: u64,
}

/// The reply to the call.
#[derive(Debug, Deserialize)]
struct Reply {
    success: bool,
    error: Option<String>,
    output: Value,
}

/// The output of the call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    content_type: String,
    value: Value,
    items: Option<Vec<Value>>,
    text: Option<String>,
    total: Option<u64>,
    next_offset: Option<u64>,
}

/// `GET /console/results/{handle}`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path(handle): Path<String>,
    Address(wanted): Address<Wanted>,
) -> Response {
    match read(&console, &visit, &handle, &wanted).await {
        Ok(part) => visit.answer(Ok(show(&visit, &handle, &wanted, Ok(&part)))),
        Err(error) if concerns_the_form(&error) => {
            let page = show(&visit, &handle, &wanted, Err(&error));
            (status_of(error.code()), [(CONTENT_TYPE, headers::HTML)], page.into_string()).into_response()
        }
        Err(error) => error_page::of_visit(&visit, &error),
    }
}

async fn read(console: &Console, visit: &Visit, handle: &str, wanted: &Wanted) -> Result<Part, CallError> {
    visit.require(Act::SeeResults)?;
    let path = wanted.with_fields(&format!("/results/{}", encoded(handle)), wanted.offset);
    let Reply { success, error, output } = visit.fetch(console, &path).await?;
    match success {
        true => serde_json::from_value(output).map_err(CallError::internal),
        false => Err(CallError::tool(error.unwrap_or_default())),
    }
}

/// Whether another session, query or pattern may help: a result of a session is found only in that session.
fn concerns_the_form(error: &CallError) -> bool {
    matches!(
        error.code(),
        ErrorCode::UnknownResult | ErrorCode::InvalidArguments | ErrorCode::InvalidRequest | ErrorCode::ToolError
    )
}

impl Wanted {
    /// The path with the same fields, at another place in the result.
    fn with_fields(&self, path: &str, offset: u64) -> String {
        let offset = if offset == 0 { String::new() } else { offset.to_string() };
        let fields = [
            ("session_id", self.session_id.trim()),
            ("query", self.query.trim()),
            ("grep", &*self.grep),
            ("offset", &*offset),
        ];
        with_query(path, fields)
    }
}

impl Part {
    /// Its elements or lines.
    fn count(&self) -> u64 {
        let lines = || self.text.as_deref().unwrap_or_default().lines().count();
        self.items.as_ref().map_or_else(lines, Vec::len) as u64
    }
}

fn show(visit: &Visit, handle: &str, wanted: &Wanted, read: Result<&Part, &CallError>) -> Markup {
    let texts = visit.texts();
    let title = texts.with("result-title", [("handle", format::text(handle).into_owned().into())]);
    let head = Head { state: read.ok().map(|part| state(&texts, wanted, part)), ..Head::new(&title) };
    let path = path_of(handle);
    frame::page(
        visit,
        Some(Section::Results),
        &head,
        &html! {
            (filters(&texts, &path, wanted))
            @match read {
                Err(error) => { div.notice.bad role="alert" {
                    p { (format::text(error.message())) }
                    @for detail in error.details() { p { code { (format::text(&detail.path)) } " " (format::text(&detail.message)) } }
                } },
                Ok(part) => {
                    (content(&texts, part))
                    (paging(&texts, &path, wanted, part.next_offset))
                },
            }
            p { a href=(results::PATH) { "← " (texts.get("nav-results")) } }
        },
    )
}

/// The links to the first page and to the next one.
fn paging(texts: &Texts, path: &str, wanted: &Wanted, next: Option<u64>) -> Markup {
    html! {
        @if wanted.offset > 0 || next.is_some() {
            nav.paging aria-label=(texts.get("paging-label")) {
                @if wanted.offset > 0 { a href=(wanted.with_fields(path, 0)) { "← " (texts.get("result-start")) } }
                @if let Some(next) = next {
                    a rel="next" href=(wanted.with_fields(path, next)) { (texts.get("paging-next")) " →" }
                }
            }
        }
    }
}

/// The type of the result, and which of its elements or lines the page shows.
fn state(texts: &Texts, wanted: &Wanted, part: &Part) -> Markup {
    html! {
        code { (format::text(&part.content_type)) }
        @if let Some(total) = part.total {
            " · "
            @match part.count() {
                0 => (texts.get("result-nothing")),
                count => (texts.with("result-place", [
                    ("from", format::count(wanted.offset.saturating_add(1)).into()),
                    ("to", format::count(wanted.offset.saturating_add(count)).into()),
                    ("total", format::count(total).into()),
                ])),
            }
        }
    }
}

fn filters(texts: &Texts, path: &str, wanted: &Wanted) -> Markup {
    let field = |name: &str, label: &str, value: &str| list::filter_field(texts, name, label, value, "text");
    html! {
        form.filters method="get" action=(path) role="search" {
            (field("session_id", "result-session", &wanted.session_id))
            (field("query", "result-query", &wanted.query))
            (field("grep", "result-grep", &wanted.grep))
            button { (texts.get("filter-apply")) }
        }
        p.help { (texts.get("result-help")) }
    }
}

/// Elements in a line each, or lines, all of them: further ones are on the next page. A value that is no list has one
/// page.
fn content(texts: &Texts, part: &Part) -> Markup {
    let text = match (&part.items, &part.text) {
        (Some(items), _) => items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        (None, Some(text)) => text.clone(),
        (None, None) => return try_it::shown(texts, "reply-json", &try_it::pretty(&part.value), true),
    };
    html! { @if !text.is_empty() { pre tabindex="0" { code { (format::text(&text)) } } } }
}
