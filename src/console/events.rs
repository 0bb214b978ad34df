//! The events of the index: sign-ins, registrations, approvals, changes of keys, reloads; the latest first.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::Console;
use super::acts::Act;
use super::address::with_query;
use super::export::Format;
use super::frame::{self, Head, Section};
use super::list::{self, Table};
use super::text::Texts;
use super::visit::{Address, Visit};
use sekisho_api::EventBody;
use sekisho_api::column::Listed;
use sekisho_api::list::Page;

const PATH: &str = "/console/events";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    event: String,
    caller: String,
    since: String,
    until: String,
    /// `next` of the page before.
    after: String,
    format: Format,
}

/// `GET /console/events`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let found = list::fetch(&console, &visit, Act::SearchHistory, &wanted.fields(&wanted.after)).await;
    list::respond(&visit, wanted.format, found, |found| &found.items, |found| show(&visit, &wanted, found))
}

impl Wanted {
    fn fields<'a>(&'a self, after: &'a str) -> [(&'static str, &'a str); 5] {
        [
            ("event", &*self.event),
            ("caller", &*self.caller),
            ("since", &*self.since),
            ("until", &*self.until),
            ("after", after),
        ]
    }
}

fn show(visit: &Visit, wanted: &Wanted, found: &Page<EventBody>) -> Markup {
    let texts = visit.texts();
    let title = texts.get("events-title");
    let head = Head {
        state: Some(html! { (texts.get("events-state")) }),
        action: Some(html! { a.button href="/console/calls" { (texts.get("history-recent")) } }),
        ..Head::new(&title)
    };
    let table = Table::new(&texts, "events-title", ("events-none", EventBody::ROUTE));
    frame::page(
        visit,
        Some(Section::Calls),
        &head,
        &html! {
            (filters(&texts, wanted))
            (table.show_page(found, &wanted.after, |after| with_query(PATH, wanted.fields(after)), list::older))
        },
    )
}

fn filters(texts: &Texts, wanted: &Wanted) -> Markup {
    let field = |name: &str, label: &str, value: &str| list::filter_field(texts, name, label, value, "text");
    html! {
        form.filters method="get" action=(PATH) role="search" {
            (field("event", "event-kind", &wanted.event))
            (field("caller", "call-caller", &wanted.caller))
            (field("since", "history-since", &wanted.since))
            (field("until", "history-until", &wanted.until))
            button { (texts.get("filter-apply")) }
        }
    }
}
