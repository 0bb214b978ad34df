//! The caller's stored results: list.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::acts::Act;
use super::address::{encoded, with_query};
use super::frame::{self, Head, Section};
use super::list::{ListAddress, Table};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, format, list};
use sekisho_api::ResultBody;
use sekisho_api::column::Column;
use sekisho_api::list::Page;

pub(super) const PATH: &str = "/console/results";

/// `GET /console/results`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(ListAddress { after, format }): Address<ListAddress>,
) -> Response {
    let found = list::fetch(&console, &visit, Act::SeeResults, &[("after", &*after)]).await;
    list::respond(&visit, format, found, |found| &found.items, |found| show(&visit, &after, found))
}

/// The address of a result's page.
pub(super) fn path_of(handle: &str) -> String {
    format!("{PATH}/{}", encoded(handle))
}

fn show(visit: &Visit, after: &str, found: &Page<ResultBody>) -> Markup {
    let texts = visit.texts();
    let title = texts.get("nav-results");
    let head = Head { state: Some(html! { (texts.get("results-state")) }), ..Head::new(&title) };
    let table = Table {
        link: Some(|result: &ResultBody| path_of(&result.handle)),
        cell,
        ..Table::new(&texts, "nav-results", ("results-none", "sekisho results"))
    };
    let address = |after: &str| with_query(PATH, [("after", after)]);
    frame::page(visit, Some(Section::Results), &head, &table.show_page(found, after, address, list::older))
}

/// A handle, with whether its call was of a session.
fn cell(texts: &Texts, result: &ResultBody, column: &Column) -> Option<Markup> {
    let is_tagged = column.name == "handle" && result.in_session;
    is_tagged.then(|| html! { (format::name(&result.handle)) " " span.tag { (texts.get("result-in-session")) } })
}
