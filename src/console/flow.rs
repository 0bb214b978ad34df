//! The calls in question because of where their values come from, since the start: with `policy.flow: observe` those that a person
//! would have been asked about.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::export::{self, Format};
use super::frame::{self, Head, Section};
use super::list::{Page, Table};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, error_page, format};
use sekisho_api::column::{Column, Listed};
use sekisho_api::{FlowQuestionBody, FlowReportBody};
use sekisho_config::FlowMode;
use sekisho_core::error::CallError;

const PATH: &str = "/console/flow";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    page: usize,
    format: Format,
}

/// `GET /console/flow`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    match fetch(&console, &visit).await {
        Ok(report) if wanted.format == Format::Html => visit.answer(Ok(show(&visit, wanted.page, &report))),
        Ok(report) => export::listed(&report.questions, wanted.format),
        Err(error) => error_page::of_visit(&visit, &error),
    }
}

async fn fetch(console: &Console, visit: &Visit) -> Result<FlowReportBody, CallError> {
    visit.require(Act::SeeFlow)?;
    visit.fetch(console, FlowQuestionBody::ROUTE).await
}

fn show(visit: &Visit, at: usize, report: &FlowReportBody) -> Markup {
    let texts = visit.texts();
    let title = texts.get("nav-flow");
    let counts = [("asked", report.asked.into()), ("calls", report.calls.into())];
    let state = match report.mode {
        FlowMode::Off => texts.get("flow-off"),
        FlowMode::Observe => texts.with("flow-observed", counts),
        FlowMode::Enforce => texts.with("flow-enforced", counts),
    };
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    let table =
        Table { help: Some("flow-help"), cell, ..Table::new(&texts, "nav-flow", ("flow-none", "sekisho flow report")) };
    let shown = Page::of(&report.questions, at);
    let address = |page: usize| with_query(PATH, [("page", &*page.to_string())]);
    frame::page(
        visit,
        Some(Section::Flow),
        &head,
        &html! {
            p.quiet { (texts.get("flow-since")) " " (format::moment(&texts, &report.since)) }
            (table.show(shown.entries))
            (shown.links(&texts, address))
            @if !report.questions.is_empty() { (export::links(&texts, &address(shown.at))) }
        },
    )
}

fn cell(texts: &Texts, question: &FlowQuestionBody, column: &Column) -> Option<Markup> {
    match column.name {
        "argument" if question.argument.is_empty() => Some(html! { (texts.get("flow-whole-call")) }),
        "from" if question.from.is_none() => Some(html! { "–" }),
        "last_call" => Some(html! {
            a href={ "/console/calls/" (encoded(&question.last_call)) } { code { (format::text(&question.last_call)) } }
        }),
        _ => None,
    }
}
