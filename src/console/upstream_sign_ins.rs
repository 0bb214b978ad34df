//! Sign-ins of callers to upstreams that are called as their callers: list, begin and revoke.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::acts::Act;
use super::address::with_query;
use super::conversations::encoded;
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::list::Page;
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, error_page, format, redirect, upstream_sign_in};
use sekisho_core::error::{CallError, ErrorCode};

pub(super) const PATH: &str = "/console/sign-ins";

/// What the address says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    page: usize,
    format: Format,
}

/// A sign-in, as its route gives it.
#[derive(Debug, Deserialize)]
struct SignIn {
    source: String,
    caller: String,
    tenant: String,
    scopes: Vec<String>,
    signed_in_at: String,
    renewed_at: String,
}

#[derive(Debug, Deserialize)]
struct SignInList {
    sign_ins: Vec<SignIn>,
    /// What the visitor can sign in to and has not.
    available: Vec<String>,
}

/// `GET /console/sign-ins`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    match fetch(&console, &visit).await {
        Ok(found) if wanted.format == Format::Html => visit.answer(Ok(show(&visit, &wanted, &found))),
        Ok(found) => rows(&found.sign_ins).respond(wanted.format),
        Err(error) => error_page::of_visit(&visit, &error),
    }
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

async fn fetch(console: &Console, visit: &Visit) -> Result<SignInList, CallError> {
    visit.require(Act::ManageSignIns)?;
    visit.fetch(console, "/sign-ins").await
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

fn rows(sign_ins: &[SignIn]) -> Rows<'static, 6> {
    let row = |sign_in: &SignIn| {
        let SignIn { source, caller, tenant, scopes, signed_in_at, renewed_at } = sign_in;
        [json!(source), json!(caller), json!(tenant), json!(scopes), json!(signed_in_at), json!(renewed_at)]
    };
    let columns = ["source", "caller", "tenant", "scopes", "signed_in_at", "renewed_at"];
    Rows { name: "sign-ins", columns, rows: sign_ins.iter().map(row).collect() }
}

fn show(visit: &Visit, wanted: &Wanted, SignInList { sign_ins, available }: &SignInList) -> Markup {
    let (texts, token) = (visit.texts(), visit.form_token());
    let page = Page::of(sign_ins, wanted.page);
    let title = texts.get("nav-sign-ins");
    let state = texts.with("sign-ins-state", [("available", available.len().into())]);
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
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
                @if sign_ins.is_empty() {
                    div.empty { p { (texts.get("sign-ins-none")) } p { code { "sekisho sign-ins" } } }
                } @else {
                    (table(&texts, token.as_deref(), page.entries))
                    p.help { (texts.get("sign-ins-revoke-help")) }
                    (page.links(&texts, |page| with_query(PATH, [("page", &*page.to_string())])))
                    (export::links(&texts, PATH))
                }
            }
        },
    )
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

fn table(texts: &Texts, token: Option<&str>, sign_ins: &[SignIn]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("sign-ins-done")) {
            table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("sign-ins-source")) }
                    th scope="col" { (texts.get("call-caller")) }
                    th scope="col" { (texts.get("sign-ins-scopes")) }
                    th scope="col" { (texts.get("sign-ins-since")) }
                    th scope="col" { (texts.get("sign-ins-renewed")) }
                    th scope="col" { (texts.get("key-revoke")) }
                } }
                tbody { @for sign_in in sign_ins {
                    tr {
                        th scope="row" { (format::name(&sign_in.source)) }
                        td { (format::name(&sign_in.caller)) " " span.quiet { (format::text(&sign_in.tenant)) } }
                        td.text { (format::text(&sign_in.scopes.join(" "))) }
                        td data-label=(texts.get("sign-ins-since")) { (format::moment(texts, &sign_in.signed_in_at)) }
                        td data-label=(texts.get("sign-ins-renewed")) { (format::moment(texts, &sign_in.renewed_at)) }
                        td { @if let Some(token) = token { (revoke_form(texts, token, sign_in)) } }
                    }
                } }
            }
        }
    }
}

fn revoke_form(texts: &Texts, token: &str, sign_in: &SignIn) -> Markup {
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
