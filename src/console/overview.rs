//! What is refused and why, what is broken, what is slow: of the last hour, as far as the caller may see it.

mod live;
mod parts;

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use self::parts::Parts;
use super::Console;
use super::acts::Act;
use super::frame::{self, Head, Section};
use super::visit::Visit;

pub(super) use self::live::{LiveOverviews, live};

/// `GET /console`.
pub(super) async fn page(State(console): State<Arc<Console>>, visit: Visit) -> Response {
    visit.answer(visit.require(Act::SeeOverview).map(|()| show(&console, &visit)))
}

fn show(console: &Console, visit: &Visit) -> Markup {
    let texts = visit.texts();
    let overview = console.gateway.overview(&visit.caller, SystemTime::now());
    let parts = Parts::of(&texts, &overview, visit.may(Act::SeeServers));
    let title = texts.get("nav-overview");
    let head = Head { state: Some(html! { span #state { (parts.state) } }), ..Head::new(&title) };
    let section = |id: &str, heading: &str, part: &Markup| {
        html! {
            section aria-labelledby={ (id) "-title" } { h2 #{ (id) "-title" } { (texts.get(heading)) } div #(id) { (part) } }
        }
    };
    frame::page(
        visit,
        Some(Section::Overview),
        &head,
        &html! {
            live-parts src="/console/live" data-live=(texts.get("live-live")) data-lost=(texts.get("live-lost")) {}
            div #figures { (parts.figures) }
            div #minutes { (parts.minutes) }
            div.columns {
                (section("refusals", "overview-refusals", &parts.refusals))
                (section("attention", "overview-degraded", &parts.attention))
                (section("slowest", "overview-slowest", &parts.slowest))
                (section("most-refused", "overview-most-refused", &parts.most_refused))
                (section("budgets", "overview-budgets", &parts.budgets))
                (section("load", "overview-load", &parts.load))
            }
        },
    )
}
