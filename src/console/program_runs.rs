//! The caller's runs of programs that have not ended: list, and one with the form that settles a call of unknown outcome.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::acts::Act;
use super::address::{encoded, with_query};
use super::call_tree::CallTree;
use super::frame::{self, Head, Section};
use super::list::{ListAddress, Table};
use super::submitted::Submitted;
use super::text::Texts;
use super::timeline::Row;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, error_page, format, list, redirect, timeline};
use sekisho_api::list::Page;
use sekisho_api::{ProgramRunBody, UnsettledRunBody};
use sekisho_calls::journals::UnknownCall;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::{IndexFilter, IndexedCall};

const PATH: &str = "/console/program-runs";

/// Maximum executions of a run whose calls are shown: the latest.
const MAX_ATTEMPTS: usize = 10;

/// The outcomes, as the route names them, with the ids of their texts.
const OUTCOMES: [(&str, &str); 3] =
    [("made", "program-run-made"), ("not_made", "program-run-not-made"), ("unknown", "program-run-unknown")];

/// `GET /console/program-runs`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(ListAddress { after, format }): Address<ListAddress>,
) -> Response {
    let found = list::fetch(&console, &visit, Act::SeeRuns, &[("after", &*after)]).await;
    list::respond(&visit, format, found, |found| &found.items, |found| show(&visit, &after, found))
}

/// `GET /console/program-runs/{id}`.
pub(super) async fn one(State(console): State<Arc<Console>>, visit: Visit, Path(id): Path<String>) -> Response {
    let page = read(&console, &visit, &id).await;
    visit.answer(page)
}

async fn read(console: &Console, visit: &Visit, id: &str) -> Result<Markup, CallError> {
    visit.require(Act::SeeRuns)?;
    let run: UnsettledRunBody = visit.fetch(console, &route_of(id)).await?;
    let filter = IndexFilter { run: Some(run.id.clone()), ..IndexFilter::default() };
    let attempts = console.gateway.history().latest_calls(&visit.caller, filter, MAX_ATTEMPTS).await?;
    let mut rows = Vec::new();
    for IndexedCall { call, .. } in &attempts {
        let tree = CallTree::of(console, visit, call.id, call.nested).await?;
        rows.extend(tree.rows(&visit.texts(), call));
    }
    Ok(show_one(visit, &run, rows))
}

/// `POST /console/program-runs/{id}`: settles a call.
pub(super) async fn settle(State(console): State<Arc<Console>>, Path(id): Path<String>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::SettleRuns).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let settled = match settlement(&form) {
        Ok(body) => form.visit.change(&console, Method::POST, &format!("{}/settle", route_of(&id)), Some(&body)).await,
        Err(error) => Err(error),
    };
    match settled {
        Ok(_) => redirect(&path_of(&id)),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// The body for the route.
fn settlement(form: &Submitted) -> Result<Value, CallError> {
    let invalid = |message: String| CallError::new(ErrorCode::InvalidRequest, message);
    let call = form.field("call").parse::<u32>().map_err(|_| invalid("`call` is the number of a call".to_owned()))?;
    let answer = match form.text("answer") {
        Some(text) => sekisho_core::json::parse(text.as_bytes())
            .map_err(|error| invalid(format!("the result of a tool is JSON: {error}; put a text in quotes")))?,
        None => Value::Null,
    };
    Ok(json!({"call": call, "outcome": form.field("outcome"), "answer": answer}))
}

fn path_of(id: &str) -> String {
    format!("{PATH}/{}", encoded(id))
}

fn route_of(id: &str) -> String {
    format!("/runs/{}", encoded(id))
}

fn show(visit: &Visit, after: &str, found: &Page<ProgramRunBody>) -> Markup {
    let texts = visit.texts();
    let title = texts.get("nav-program-runs");
    let head = Head { state: Some(html! { (texts.get("program-runs-state")) }), ..Head::new(&title) };
    let table = Table {
        link: Some(|run: &ProgramRunBody| path_of(&run.id)),
        ..Table::new(&texts, "nav-program-runs", ("program-runs-none", "sekisho runs"))
    };
    let address = |after: &str| with_query(PATH, [("after", after)]);
    frame::page(visit, Some(Section::ProgramRuns), &head, &table.show_page(found, after, address, list::older))
}

fn show_one(visit: &Visit, run: &UnsettledRunBody, rows: Vec<Row>) -> Markup {
    let texts = visit.texts();
    let title = texts.with("program-run-title", [("id", format::text(&run.id).into_owned().into())]);
    let token = visit.form_token().filter(|_| visit.may(Act::SettleRuns));
    let body = html! {
        @if run.unknown_calls.is_empty() {
            p { (texts.get("program-run-settled")) " " code { "sekisho runs resume " (format::name(&run.id)) } }
        } @else {
            p { (texts.get("program-run-help")) }
        }
        @for call in &run.unknown_calls { (unknown_call(&texts, token.as_deref(), &run.id, call)) }
        (timeline::section(&texts, rows))
        p { a href=(PATH) { "← " (texts.get("nav-program-runs")) } }
    };
    frame::page(visit, Some(Section::ProgramRuns), &Head::new(&title), &body)
}

fn unknown_call(texts: &Texts, token: Option<&str>, run: &str, call: &UnknownCall) -> Markup {
    let UnknownCall { number, tool, arguments_sha256 } = call;
    let (heading, outcome, answer) =
        (format!("call-{number}"), format!("outcome-{number}"), format!("answer-{number}"));
    html! {
        section aria-labelledby=(heading) {
            h2 id=(heading) { (texts.with("program-run-call", [("number", format::count(u64::from(*number)).into())])) " " (format::name(tool)) }
            p.quiet.small { (texts.get("program-run-arguments")) " " code { (arguments_sha256) } }
            @if let Some(token) = token {
                form method="post" action=(path_of(run)) {
                    input type="hidden" name=(TOKEN_FIELD) value=(token);
                    input type="hidden" name="call" value=(number);
                    div.field {
                        label for=(outcome) { (texts.get("program-run-outcome")) }
                        select id=(outcome) name="outcome" {
                            @for (value, text) in OUTCOMES { option value=(value) { (texts.get(text)) } }
                        }
                    }
                    div.field {
                        label for=(answer) { (texts.get("program-run-answer")) }
                        textarea id=(answer) name="answer" rows="3" spellcheck="false" {}
                    }
                    button { (texts.get("program-run-settle")) }
                }
            }
        }
    }
}
