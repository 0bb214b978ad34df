//! The caller's stored results: list.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::acts::Act;
use super::address::with_query;
use super::conversations::encoded;
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, error_page, format, list};
use sekisho_core::error::CallError;

pub(super) const PATH: &str = "/console/results";

/// What the address says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    after: String,
    format: Format,
}

/// A result, as its route gives it.
#[derive(Debug, Deserialize)]
struct StoredResult {
    handle: String,
    tool: String,
    content_type: String,
    bytes: u64,
    in_session: bool,
    created_at: String,
    expires_at: String,
}

#[derive(Debug, Deserialize)]
struct ResultList {
    items: Vec<StoredResult>,
    next: Option<String>,
}

/// `GET /console/results`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    match fetch(&console, &visit, &wanted).await {
        Ok(found) if wanted.format == Format::Html => visit.answer(Ok(show(&visit, &wanted, &found))),
        Ok(found) => rows(&found.items).respond(wanted.format),
        Err(error) => error_page::of_visit(&visit, &error),
    }
}

/// The address of a result's page.
pub(super) fn path_of(handle: &str) -> String {
    format!("{PATH}/{}", encoded(handle))
}

async fn fetch(console: &Console, visit: &Visit, wanted: &Wanted) -> Result<ResultList, CallError> {
    visit.require(Act::SeeResults)?;
    let path = with_query("/results", [("limit", &*list::PAGE.to_string()), ("after", &*wanted.after)]);
    visit.fetch(console, &path).await
}

fn rows(results: &[StoredResult]) -> Rows<'static, 7> {
    let row = |result: &StoredResult| {
        let StoredResult { handle, tool, content_type, bytes, in_session, created_at, expires_at } = result;
        [
            json!(handle),
            json!(tool),
            json!(content_type),
            json!(bytes),
            json!(in_session),
            json!(created_at),
            json!(expires_at),
        ]
    };
    let columns = ["handle", "tool", "content_type", "bytes", "in_session", "created_at", "expires_at"];
    Rows { name: "results", columns, rows: results.iter().map(row).collect() }
}

fn show(visit: &Visit, wanted: &Wanted, found: &ResultList) -> Markup {
    let texts = visit.texts();
    let title = texts.get("nav-results");
    let head = Head { state: Some(html! { (texts.get("results-state")) }), ..Head::new(&title) };
    let address = |after: &str| with_query(PATH, [("after", after)]);
    frame::page(
        visit,
        Some(Section::Results),
        &head,
        &html! {
            @if found.items.is_empty() {
                div.empty { p { (texts.get("results-none")) } p { code { "sekisho results" } } }
            } @else {
                (table(&texts, &found.items))
                (export::links(&texts, &address(&wanted.after)))
            }
            @if let Some(next) = &found.next {
                (list::older(&texts, &address(next)))
            }
        },
    )
}

fn table(texts: &Texts, results: &[StoredResult]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-results")) {
            table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("result-handle")) }
                    th scope="col" { (texts.get("tool-name")) }
                    th.number scope="col" { (texts.get("result-bytes")) }
                    th scope="col" { (texts.get("column-created")) }
                    th scope="col" { (texts.get("approval-expires")) }
                } }
                tbody { @for result in results {
                    tr {
                        th scope="row" {
                            a href=(path_of(&result.handle)) { (format::name(&result.handle)) }
                            @if result.in_session { " " span.tag { (texts.get("result-in-session")) } }
                        }
                        td { (format::name(&result.tool)) }
                        td.number data-label=(texts.get("result-bytes")) { (format::count(result.bytes)) }
                        td data-label=(texts.get("column-created")) { (format::moment(texts, &result.created_at)) }
                        td data-label=(texts.get("approval-expires")) { (format::moment(texts, &result.expires_at)) }
                    }
                } }
            }
        }
    }
}
