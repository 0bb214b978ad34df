//! The refusals and their reasons, the broken parts and the slow ones: of the last minutes, hours or days, as far as the caller may
//! see them.

mod files;
mod live;
mod parts;
mod replicas;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use self::files::Table;
use self::parts::Parts;
use super::acts::Act;
use super::address::with_query;
use super::export::Format;
use super::figures::Ranged;
use super::frame::{self, Head, Section};
use super::visit::{Address, Visit};
use super::{Console, error_page};
use sekisho_api::ReplicaBody;
use sekisho_gateway::Overview;

pub(super) use self::live::{Followed, LiveOverviews, follow, live};
pub(super) use self::parts::degraded_parts;

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    #[serde(flatten)]
    ranged: Ranged,
    /// Which table is wanted as a file.
    table: Table,
    format: Format,
}

/// The time of the figures, without another choice.
const RANGE: &str = "1h";

/// `GET /console`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    if let Err(error) = visit.require(Act::SeeOverview) {
        return error_page::of_visit(&visit, &error);
    }
    let overview = match console.gateway.status().overview(&visit.caller, wanted.ranged.or(RANGE)).await {
        Ok(overview) => overview,
        Err(error) => return error_page::of_visit(&visit, &error),
    };
    // Only administrators of all tenants see replicas, and a gateway that is no replica has none.
    let replicas = console.gateway.cluster().list(&visit.caller).await.ok();
    let replicas =
        replicas.map(|(own, replicas)| (own, replicas.into_iter().map(ReplicaBody::from).collect::<Vec<_>>()));
    match wanted.format {
        Format::Html => {
            let replicas = replicas.map(|(own, replicas)| replicas::section(&visit.texts(), own, &replicas));
            let is_new = console.gateway.sources().list(&visit.caller).await.is_empty();
            visit.answer(Ok(show(&visit, &overview, replicas.as_ref(), is_new)))
        }
        format => {
            let replicas = replicas.map(|(_, replicas)| replicas).unwrap_or_default();
            files::respond(&overview, &replicas, wanted.table, format)
        }
    }
}

/// `is_new`: there is no server yet.
fn show(visit: &Visit, overview: &Overview, replicas: Option<&Markup>, is_new: bool) -> Markup {
    let texts = visit.texts();
    let parts = Parts::of(&texts, overview, visit.may(Act::SeeServers));
    let title = texts.get("nav-overview");
    let head = Head { state: Some(html! { span #state { (parts.state) } }), ..Head::new(&title) };
    let section = |id: &str, heading: &str, part: &Markup| {
        html! {
            section aria-labelledby={ (id) "-title" } {
                h2 #{ (id) "-title" } { (texts.get(heading)) }
                div #(id) { (part) }
            }
        }
    };
    frame::page(
        visit,
        Some(Section::Overview),
        &head,
        &html! {
            @if is_new { (first_steps(visit)) }
            live-parts src=(with_query("/console/live", [("range", overview.figures.range.name)])) data-live=(texts.get("live-live")) data-lost=(texts.get("live-lost")) {}
            div #figures { (parts.figures) }
            div #charts { (parts.charts) }
            div.columns {
                (section("refusals", "overview-refusals", &parts.refusals))
                (section("attention", "overview-degraded", &parts.attention))
                (section("slowest", "overview-slowest", &parts.slowest))
                (section("most-refused", "overview-most-refused", &parts.most_refused))
                (section("budgets", "overview-budgets", &parts.budgets))
                (section("load", "overview-load", &parts.load))
            }
            @if let Some(replicas) = replicas { (section("replicas", "overview-replicas", replicas)) }
        },
    )
}

/// The way to a governed tool, where there is no server yet.
fn first_steps(visit: &Visit) -> Markup {
    let texts = visit.texts();
    let steps = [
        ("first-add", "servers-add", "/console/servers/add", visit.may(Act::ChangeServers)),
        ("first-try", "calls-try", "/console/tools", true),
        ("first-connect", "nav-connect", "/console/connect", true),
    ];
    html! {
        section aria-labelledby="first-title" {
            h2 #first-title { (texts.get("first-title")) }
            ol.first-steps { @for (text, button, address, may_open) in steps { li {
                p { (texts.get(text)) }
                @if may_open { a.button href=(address) { (texts.get(button)) } }
                @else { p.quiet { (texts.get("first-sign-in")) " " code { "sekisho console" } } }
            } } }
        }
    }
}
