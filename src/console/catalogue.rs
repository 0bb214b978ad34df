//! The catalogue: sources that callers get on request. Everybody asks; administrators see the profiles of sources, and decide.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::json;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::frame::{self, Head, Section};
use super::list::{self, ListAddress, Table};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, error_page, format, redirect};
use sekisho_api::column::Listed;
use sekisho_api::list::Page;
use sekisho_api::{CatalogueSourceBody, SourceProfileBody, SourceRequestBody};
use sekisho_core::error::{CallError, ErrorCode};

pub(super) const PATH: &str = "/console/catalogue";

/// The sources, and for administrators the requests.
struct Found {
    sources: Page<CatalogueSourceBody>,
    requests: Option<Page<SourceRequestBody>>,
}

/// `GET /console/catalogue`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(ListAddress { after, format }): Address<ListAddress>,
) -> Response {
    let found = fetch(&console, &visit, &after).await;
    list::respond(&visit, format, found, |found| &found.sources.items, |found| show(&visit, &after, found))
}

/// `POST /console/catalogue`: asks for a source, or decides about a request, as the button's value says.
pub(super) async fn act(State(console): State<Arc<Console>>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::AskForSources).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let decided = |id: &str| format!("/admin/source-requests/{}", encoded(id));
    let (route, body) = match form.field("act") {
        "ask" => (format!("/me/sources/{}", encoded(form.field("source"))), json!({"reason": form.field("reason")})),
        "approve" => (decided(form.field("id")), json!({"decision": "approve", "for": form.field("for")})),
        decision @ ("refuse" | "withdraw") => (decided(form.field("id")), json!({"decision": decision})),
        _ => {
            let message = "the form says nothing to do; open the page again";
            return error_page::of_visit(&form.visit, &CallError::new(ErrorCode::InvalidRequest, message));
        }
    };
    match form.visit.change(&console, Method::POST, &route, Some(&body)).await {
        Ok(_) => redirect(PATH),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// `GET /console/catalogue/{source}`: its profile.
pub(super) async fn profile(State(console): State<Arc<Console>>, visit: Visit, Path(source): Path<String>) -> Response {
    let route = format!("/admin/sources/{}", encoded(&source));
    let found = match visit.require(Act::AskForSources) {
        Ok(()) => visit.fetch::<SourceProfileBody>(&console, &route).await,
        Err(error) => Err(error),
    };
    visit.answer(found.map(|profile| show_profile(&visit, &profile)))
}

async fn fetch(console: &Console, visit: &Visit, after: &str) -> Result<Found, CallError> {
    let sources = list::fetch(console, visit, Act::AskForSources, &[("limit", "500")]).await?;
    let requests = match visit.caller.require_administrator() {
        Ok(()) => Some(visit.fetch(console, &with_query(SourceRequestBody::ROUTE, [("after", after)])).await?),
        Err(_) => None,
    };
    Ok(Found { sources, requests })
}

fn show(visit: &Visit, after: &str, Found { sources, requests }: &Found) -> Markup {
    let (texts, token) = (visit.texts(), visit.form_token());
    let title = texts.get("nav-catalogue");
    let head = Head { state: Some(html! { (texts.get("catalogue-lead")) }), ..Head::new(&title) };
    let ask = |source: &CatalogueSourceBody| {
        html! { @if let Some(token) = &token { (ask_form(&texts, token, source)) } }
    };
    let decide = |request: &SourceRequestBody| {
        html! { @if let Some(token) = &token { (decide_form(&texts, token, request)) } }
    };
    let offered = Table {
        action: Some(("catalogue-ask", &ask)),
        ..Table::new(&texts, "nav-catalogue", ("catalogue-none", "catalogue.sources"))
    };
    let asked = Table {
        help: Some("catalogue-help"),
        link: Some(|request: &SourceRequestBody| format!("{PATH}/{}", encoded(&request.source))),
        action: Some(("catalogue-decide", &decide)),
        ..Table::new(&texts, "catalogue-requests", ("catalogue-no-requests", "sekisho catalogue ask"))
    };
    let address = |after: &str| with_query(PATH, [("after", after)]);
    frame::page(
        visit,
        Some(Section::Catalogue),
        &head,
        &html! {
            section { (offered.show(&sources.items)) }
            @if let Some(requests) = requests {
                section {
                    h2 { (texts.get("catalogue-requests")) }
                    (asked.show_page(requests, after, address, list::older))
                }
            }
        },
    )
}

/// For a source that is off, and for which no request waits.
fn ask_form(texts: &Texts, token: &str, source: &CatalogueSourceBody) -> Markup {
    html! {
        @if source.state != "on" && source.state != "asked" {
            form method="post" action=(PATH) {
                input type="hidden" name=(TOKEN_FIELD) value=(token);
                input type="hidden" name="source" value=(source.source);
                input name="reason" maxlength="1000" aria-label=(texts.get("catalogue-reason"))
                    placeholder=(texts.get("catalogue-reason"));
                " "
                button.main.small name="act" value="ask" { (texts.get("catalogue-ask")) }
            }
        }
    }
}

fn decide_form(texts: &Texts, token: &str, request: &SourceRequestBody) -> Markup {
    html! {
        form method="post" action=(PATH) {
            input type="hidden" name=(TOKEN_FIELD) value=(token);
            input type="hidden" name="id" value=(request.id);
            @match request.state.as_str() {
                "asked" => {
                    select name="for" aria-label=(texts.get("catalogue-audience")) {
                        option value="user" { (texts.get("catalogue-user")) }
                        @if request.key.is_some() { option value="key" { (texts.get("catalogue-key")) } }
                        option value="tenant" { (texts.get("call-tenant")) }
                    }
                    " "
                    button.main.small name="act" value="approve" { (texts.get("catalogue-approve")) }
                    " "
                    button.small name="act" value="refuse" { (texts.get("catalogue-refuse")) }
                }
                "approved" => { button.danger.small name="act" value="withdraw" { (texts.get("catalogue-withdraw")) } }
                _ => {}
            }
        }
    }
}

fn show_profile(visit: &Visit, profile: &SourceProfileBody) -> Markup {
    let texts = visit.texts();
    let head = Head { state: Some(html! { (format::text(&profile.text)) }), ..Head::new(&profile.source) };
    let tools = Table::new(&texts, "nav-tools", ("catalogue-no-tools", "sekisho catalogue show"));
    frame::page(
        visit,
        Some(Section::Catalogue),
        &head,
        &html! {
            p { a href=(PATH) { "← " (texts.get("nav-catalogue")) } }
            @if !profile.address.is_empty() { p { code { (format::text(&profile.address)) } } }
            @if let Some(sandbox) = &profile.sandbox {
                section { h2 { (texts.get("catalogue-sandbox")) } pre { (format::text(sandbox)) } }
            }
            section {
                h2 { (texts.get("nav-tools")) }
                @match &profile.problem {
                    Some(problem) => { p { (texts.get("catalogue-unknown")) " " (format::text(problem)) } }
                    None => { (tools.show(&profile.tools)) }
                }
            }
        },
    )
}
