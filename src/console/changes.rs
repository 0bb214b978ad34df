//! Changes of the configuration: a list with the form that proposes one, and the page of each, with its effects and the button that
//! applies or undoes it.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::acts::Act;
use super::address::{encoded, with_query};
use super::configuration;
use super::frame::{self, Head, Section};
use super::list::{self, ListAddress, Table};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, error_page, format, redirect};
use sekisho_api::ConfigurationChangeBody;
use sekisho_api::column::{Column, Listed};
use sekisho_api::list::Page;
use sekisho_api::reply;
use sekisho_config::Opening;
use sekisho_core::administration::{AdministratorProof, SharedAdministrator};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_gateway::{ChangePreview, ChangeTrial};

pub(super) const PATH: &str = "/console/configuration/changes";

fn address_of(id: &str) -> String {
    format!("{PATH}/{}", encoded(id))
}

fn invalid(message: String) -> CallError {
    CallError::new(ErrorCode::InvalidRequest, message)
}

/// `GET /console/configuration/changes`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(ListAddress { after, format }): Address<ListAddress>,
) -> Response {
    let found = fetch(&console, &visit, &after).await;
    list::respond(&visit, format, found, |found| &found.items, |found| show(&visit, &after, found, None))
}

async fn fetch(console: &Console, visit: &Visit, after: &str) -> Result<Page<ConfigurationChangeBody>, CallError> {
    list::fetch(console, visit, Act::SeeConfiguration, &[("after", after)]).await
}

/// `POST /console/configuration/changes`: proposes a change. A refused one is in its form again.
pub(super) async fn propose(State(console): State<Arc<Console>>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::SeeConfiguration).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let proposed = match serde_json::from_str::<Value>(form.field("patch")) {
        Ok(patch) => {
            let body = json!({"patch": patch, "comment": form.field("comment")});
            form.visit.change(&console, Method::POST, ConfigurationChangeBody::ROUTE, Some(&body)).await
        }
        Err(problem) => Err(invalid(format!("the change is no JSON: {problem}"))),
    };
    let error = match proposed {
        Ok(proposed) => return redirect(&address_of(proposed["id"].as_str().unwrap_or_default())),
        Err(error) => error,
    };
    match fetch(&console, &form.visit, "").await {
        Ok(found) => {
            let page = show(&form.visit, "", &found, Some((&form, &error)));
            (reply::status(error.code()), form.visit.answer(Ok(page))).into_response()
        }
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// `GET /console/configuration/changes/{id}`.
pub(super) async fn one(State(console): State<Arc<Console>>, visit: Visit, Path(id): Path<String>) -> Response {
    let by = visit.require(Act::SeeConfiguration).and_then(|()| SharedAdministrator::of(&visit.caller));
    let found = match by {
        Ok(by) => console.gateway.configuration_change(by, &id).await,
        Err(error) => Err(error),
    };
    visit.answer(found.map(|preview| show_one(&visit, preview)))
}

/// `POST /console/configuration/changes/{id}`: applies or undoes it, as the button's value says.
pub(super) async fn act(State(console): State<Arc<Console>>, Path(id): Path<String>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::SeeConfiguration).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let act = if form.field("act") == "undo" { "undo" } else { "apply" };
    let route = format!("{}/{}/{act}", ConfigurationChangeBody::ROUTE, encoded(&id));
    let body = json!({"opens": form.all("opens").collect::<Vec<_>>()});
    match form.visit.change(&console, Method::POST, &route, Some(&body)).await {
        Ok(_) => redirect(&address_of(&id)),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// `refused`: the form of a change that was not taken, and why.
fn show(
    visit: &Visit,
    after: &str,
    found: &Page<ConfigurationChangeBody>,
    refused: Option<(&Submitted, &CallError)>,
) -> Markup {
    let texts = visit.texts();
    let title = texts.get("nav-changes");
    let head = Head { state: Some(html! { (texts.get("change-lead")) }), ..Head::new(&title) };
    let changes = Table {
        link: Some(|change: &ConfigurationChangeBody| address_of(&change.id)),
        cell,
        ..Table::new(&texts, "nav-changes", ("change-none", "POST /admin/changes"))
    };
    let address = |after: &str| with_query(PATH, [("after", after)]);
    frame::page(
        visit,
        Some(Section::Configuration),
        &head,
        &html! {
            p { a href="/console/configuration" { "← " (texts.get("nav-configuration")) } }
            section { (changes.show_page(found, after, address, list::older)) }
            @if let Some(token) = visit.form_token() { section { (propose_form(&texts, &token, refused)) } }
        },
    )
}

fn cell(texts: &Texts, change: &ConfigurationChangeBody, column: &Column) -> Option<Markup> {
    match column.name {
        "id" => Some(html! { code.name title=(change.id) { (change.id.chars().take(8).collect::<String>()) } }),
        "state" => Some(status(texts, &change.state)),
        _ => None,
    }
}

/// The state in a word with a sign.
fn status(texts: &Texts, state: &str) -> Markup {
    let (class, sign, text) = match state {
        "applied" => ("tag good", "✓", "change-applied"),
        "undone" => ("tag", "–", "change-undone"),
        _ => ("tag warn", "◷", "change-proposed"),
    };
    html! { span class=(class) { (sign) " " (texts.get(text)) } }
}

fn propose_form(texts: &Texts, token: &str, refused: Option<(&Submitted, &CallError)>) -> Markup {
    let field = |name: &str| refused.map_or("", |(form, _)| form.field(name));
    html! {
        h2 { (texts.get("change-propose")) }
        form.stack method="post" action=(PATH) {
            input type="hidden" name=(TOKEN_FIELD) value=(token);
            @if let Some((_, error)) = refused {
                div.notice.bad #problems tabindex="-1" role="alert" { p { (format::text(error.message())) } }
            }
            div.field {
                label for="patch" { (texts.get("change-patch")) span.kind { "JSON" } }
                textarea #patch name="patch" rows="6" spellcheck="false" required aria-describedby="patch-help"
                    placeholder="{\"limits\": {\"caller_rate_limit\": 30}}" { "\n" (field("patch")) }
                p.help #patch-help { (texts.get("change-help")) }
            }
            div.field {
                label for="comment" { (texts.get("change-comment")) }
                input #comment name="comment" value=(field("comment")) maxlength="1000";
            }
            div.buttons { button.main { (texts.get("change-propose")) } }
        }
    }
}

fn show_one(visit: &Visit, ChangePreview { change, effect }: ChangePreview) -> Markup {
    let texts = visit.texts();
    let change = ConfigurationChangeBody::from(change);
    let title = texts.get("change-id");
    let head = Head {
        state: Some(html! {
            (status(&texts, &change.state)) " " (format::text(&change.proposed_by)) " " (format::moment(&texts, &change.proposed_at))
            @if let Some(by) = &change.decided_by { " · " (format::text(by)) " " (format::moment(&texts, &change.changed_at)) }
        }),
        ..Head::new(&title)
    };
    let patch = serde_json::to_string_pretty(&change.patch).unwrap_or_default();
    frame::page(
        visit,
        Some(Section::Configuration),
        &head,
        &html! {
            p { a href=(PATH) { "← " (texts.get("nav-changes")) } }
            @if !change.comment.is_empty() { p { (format::text(&change.comment)) } }
            section { h2 { (texts.get("change-patch")) } pre tabindex="0" { code { (format::text(&patch)) } } }
            @if let Some((check, trial)) = &effect {
                section {
                    h2 { (texts.get(if change.state == "applied" { "change-undo" } else { "change-apply" })) }
                    @if !check.problems.is_empty() { (configuration::problems(&texts, check)) }
                    (configuration::notes(&texts, check))
                    (configuration::compared(&texts, &check.changes))
                    @if !check.opens.is_empty() {
                        div.notice.warn {
                            p { "▲ " (texts.get("change-opening")) }
                            (configuration::openings(&texts, &check.opens))
                        }
                    }
                    @if let Some(token) = visit.form_token() { (settle_form(&texts, &token, &change, &check.opens)) }
                }
                section { h2 { (texts.get("change-trial")) } (tried(&texts, trial)) }
            }
        },
    )
}

/// Each setting that is opened is confirmed with a box of its own.
fn settle_form(texts: &Texts, token: &str, change: &ConfigurationChangeBody, opens: &[Opening]) -> Markup {
    let act = if change.state == "applied" { "undo" } else { "apply" };
    html! {
        form.stack method="post" action=(address_of(&change.id)) {
            input type="hidden" name=(TOKEN_FIELD) value=(token);
            @for Opening { setting, .. } in opens {
                label { input type="checkbox" name="opens" value=(setting) required; " " (texts.get("change-opens")) " " code { (format::text(setting)) } }
            }
            div.buttons {
                button.main name="act" value=(act) {
                    (texts.get(if act == "undo" { "change-undo" } else { "change-apply" }))
                }
            }
        }
    }
}

fn tried(texts: &Texts, trial: &ChangeTrial) -> Markup {
    let calls = Table::new(texts, "change-trial", ("change-trial", "POST /admin/changes"));
    html! {
        p { (texts.with("change-tried", [("count", trial.calls.into())])) }
        @if trial.refused_calls > 0 {
            p { "▲ " (texts.with("change-refused", [("count", trial.refused_calls.into())])) }
            (calls.table(&trial.refused))
        }
        @if trial.found_calls > 0 {
            p { (texts.with("change-found", [("count", trial.found_calls.into())])) }
            (calls.table(&trial.found))
        }
        @if !trial.not_known.is_empty() {
            p.help {
                (texts.get("change-not-known"))
                @for (at, setting) in trial.not_known.iter().enumerate() {
                    (if at > 0 { ", " } else { " " }) code { (format::text(setting)) }
                }
            }
        }
    }
}
