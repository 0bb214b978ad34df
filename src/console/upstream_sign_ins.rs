//! Sign-ins of callers to upstreams that are called as their callers: list, begin and revoke.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};

use super::acts::Act;
use super::address::{encoded, with_query};
use super::frame::{self, Head, Section};
use super::list::{self, ListAddress, Table};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, error_page, format, redirect, upstream_sign_in};
use sekisho_api::column::{Column, Listed};
use sekisho_api::{SignInBody, SignInList};
use sekisho_core::error::{CallError, ErrorCode};

pub(super) const PATH: &str = "/console/sign-ins";

/// `GET /console/sign-ins`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(ListAddress { after, format }): Address<ListAddress>,
) -> Response {
    let found = fetch(&console, &visit, &after).await;
    list::respond(&visit, format, found, |found| &found.page.items, |found| show(&visit, &after, found))
}

/// `POST /console/sign-ins`: begins or revokes one, as the button's value says.
pub(super) async fn act(State(console): State<Arc<Console>>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::ManageSignIns).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    match change(&console, &form).await {
        Ok(path) => redirect(&path),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

async fn fetch(console: &Console, visit: &Visit, after: &str) -> Result<SignInList, CallError> {
    visit.require(Act::ManageSignIns)?;
    visit.fetch(console, &with_query(SignInBody::ROUTE, [("after", after)])).await
}

/// Where the browser goes on: to the page of a sign-in that is begun, where its session proves that it is the caller's.
async fn change(console: &Console, form: &Submitted) -> Result<String, CallError> {
    let route = format!("/sign-ins/{}", encoded(form.field("source")));
    match form.field("act") {
        "begin" => {
            let needed = form.visit.change(console, Method::POST, &route, None).await?;
            let id = needed["url"].as_str().and_then(|url| url.rsplit('/').next());
            Ok(upstream_sign_in::path_of(id.unwrap_or_default()))
        }
        "revoke" => {
            let route = with_query(&route, ["caller", "tenant"].map(|name| (name, form.field(name))));
            form.visit.change(console, Method::DELETE, &route, None).await?;
            Ok(PATH.to_owned())
        }
        _ => {
            let message = "the form says nothing to do; open the page again";
            Err(CallError::new(ErrorCode::InvalidRequest, message))
        }
    }
}

fn show(visit: &Visit, after: &str, SignInList { page, available, .. }: &SignInList) -> Markup {
    let (texts, token) = (visit.texts(), visit.form_token());
    let title = texts.get("nav-sign-ins");
    let state = texts.with("sign-ins-state", [("available", available.len().into())]);
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    let revoke = |sign_in: &SignInBody| {
        html! { @if let Some(token) = &token { (revoke_form(&texts, token, sign_in)) } }
    };
    let table = Table {
        help: Some("sign-ins-revoke-help"),
        cell,
        action: Some(("key-revoke", &revoke)),
        ..Table::new(&texts, "sign-ins-done", ("sign-ins-none", "sekisho sign-ins"))
    };
    let address = |after: &str| with_query(PATH, [("after", after)]);
    frame::page(
        visit,
        Some(Section::SignIns),
        &head,
        &html! {
            @if !available.is_empty() {
                section {
                    h2 { (texts.get("sign-ins-available")) }
                    (available_table(&texts, token.as_deref(), available))
                }
            }
            section {
                h2 { (texts.get("sign-ins-done")) }
                (table.show_page(page, after, address, list::older))
            }
        },
    )
}

fn cell(_texts: &Texts, sign_in: &SignInBody, column: &Column) -> Option<Markup> {
    let SignInBody { caller, tenant, scopes, .. } = sign_in;
    match column.name {
        "caller" => Some(html! { (format::name(caller)) " " span.quiet { (format::text(tenant)) } }),
        "scopes" => Some(html! { (format::text(&scopes.join(" "))) }),
        _ => None,
    }
}

fn available_table(texts: &Texts, token: Option<&str>, available: &[String]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("sign-ins-available")) {
            table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("sign-ins-source")) }
                    th scope="col" { (texts.get("server-sign-in")) }
                } }
                tbody { @for source in available {
                    tr {
                        th scope="row" { (format::name(source)) }
                        td { @if let Some(token) = token {
                            form method="post" action=(PATH) {
                                input type="hidden" name=(TOKEN_FIELD) value=(token);
                                input type="hidden" name="source" value=(source);
                                button.main.small name="act" value="begin" { (texts.get("server-sign-in")) }
                            }
                        } }
                    }
                } }
            }
        }
    }
}

fn revoke_form(texts: &Texts, token: &str, sign_in: &SignInBody) -> Markup {
    html! {
        form method="post" action=(PATH) {
            input type="hidden" name=(TOKEN_FIELD) value=(token);
            input type="hidden" name="source" value=(sign_in.source);
            input type="hidden" name="caller" value=(sign_in.caller);
            input type="hidden" name="tenant" value=(sign_in.tenant);
            button.danger.small name="act" value="revoke" { (texts.get("key-revoke")) }
        }
    }
}
