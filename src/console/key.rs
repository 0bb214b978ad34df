//! One managed key: its rights, another token for it, and its end.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::acts::Act;
use super::address::encoded;
use super::figures::{self, Ranged};
use super::frame::{self, Head, Section};
use super::keys::{self, path_of};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, error_page, format, redirect, snippets};
use sekisho_api::{KeyBody, KeyWithToken};
use sekisho_config::Secret;
use sekisho_core::error::CallError;
use sekisho_gateway::FiguresOf;

/// `GET /console/keys/{id}`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path(id): Path<String>,
    Address(ranged): Address<Ranged>,
) -> Response {
    visit.answer(found(&console, &visit, &id, &ranged).await)
}

async fn found(console: &Console, visit: &Visit, id: &str, ranged: &Ranged) -> Result<Markup, CallError> {
    visit.require(Act::ManageKeys)?;
    let key = visit.fetch::<KeyBody>(console, &route_of(id)).await?;
    let of = FiguresOf::Key(key.id.clone());
    let figures = figures::section(console, visit, &of, &path_of(&key.id), ranged).await?;
    let token = visit.guest.secret.as_ref().and_then(|session| console.new_tokens.take(session, id));
    Ok(show(visit, &key, token.as_ref().map(Secret::expose), &figures))
}

/// `POST /console/keys/{id}`: rotates or revokes it, as the button's value says.
pub(super) async fn act(State(console): State<Arc<Console>>, Path(id): Path<String>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::ManageKeys).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    match change(&console, &form, &id).await {
        Ok(Some(rotated)) => shown_once(&console, &form, rotated),
        Ok(None) => redirect(&path_of(&id)),
        Err(error) => error_page::of_visit(&form.visit, &error),
    }
}

/// To the page of the key, which shows the token once.
pub(super) fn shown_once(console: &Console, form: &Submitted, made: KeyWithToken) -> Response {
    let page = path_of(&made.key.id);
    if let Some(session) = &form.visit.guest.secret {
        console.new_tokens.keep(session, &made.key.id, made.token);
    }
    redirect(&page)
}

/// The answer of a route that made a token.
/// Errors: `internal`: another form.
pub(super) fn with_token(answer: Value) -> Result<KeyWithToken, CallError> {
    serde_json::from_value(answer).map_err(CallError::internal)
}

async fn change(console: &Console, form: &Submitted, id: &str) -> Result<Option<KeyWithToken>, CallError> {
    match form.field("act") {
        "rotate" => {
            let seconds = form.text("overlap_seconds").map(str::parse::<u64>).transpose();
            let seconds = seconds
                .map_err(|_| CallError::invalid("the time is a number of seconds; go back and write it there"))?;
            let (route, body) = (format!("{}/rotate", route_of(id)), json!({"overlap_seconds": seconds}));
            let rotated = form.visit.change(console, Method::POST, &route, Some(&body)).await?;
            with_token(rotated).map(Some)
        }
        "revoke" => {
            form.require_confirmation(id)?;
            form.visit.change(console, Method::DELETE, &route_of(id), None).await?;
            Ok(None)
        }
        _ => Err(CallError::invalid("the form says nothing to do; open the page again")),
    }
}

fn route_of(id: &str) -> String {
    format!("/admin/keys/{}", encoded(id))
}

/// The key; after it was created or rotated with its token. `figures`: of its calls.
fn show(visit: &Visit, key: &KeyBody, token: Option<&str>, figures: &Markup) -> Markup {
    let texts = visit.texts();
    let title = texts.with("key-title", [("id", format::text(&key.id).into_owned().into())]);
    let description = format::text(&key.description);
    let state = html! { (keys::status(&texts, key)) @if !description.is_empty() { " · " (description) } };
    let head = Head { state: Some(state), ..Head::new(&title) };
    let form_token = visit.form_token().filter(|_| key.status == "active");
    frame::page(
        visit,
        Some(Section::Keys),
        &head,
        &html! {
            @if let Some(token) = token {
                div.notice.good role="status" { p { "✓ " (texts.get("key-token")) } (snippets::text(&texts, token)) }
            }
            (facts(&texts, key))
            (figures)
            @if let Some(form_token) = &form_token { (forms(&texts, form_token, key)) }
            p { a href=(keys::PATH) { "← " (texts.get("nav-keys")) } }
        },
    )
}

fn facts(texts: &Texts, key: &KeyBody) -> Markup {
    let all_tools = texts.get("limits-all-tools").into_owned();
    let none = || texts.get("setting-none").into_owned();
    let roles = if key.roles.is_empty() { none() } else { key.roles.join(", ") };
    let given = [
        ("approval-person", key.person.clone()),
        ("call-tenant", key.tenant.clone()),
        ("explain-roles", roles),
        ("nav-tools", key.tools.as_ref().map_or(all_tools, |tools| tools.join(", "))),
        ("key-created-by", key.created_by.clone()),
    ];
    let moments = [
        ("column-created", Some(&key.created_at)),
        ("approval-expires", key.expires_at.as_ref()),
        ("key-last-used", key.last_used_at.as_ref()),
        ("key-previous", key.previous_token_until.as_ref()),
        ("key-revoked", key.revoked_at.as_ref()),
    ];
    html! {
        dl.facts {
            @for (name, value) in given { div { dt { (texts.get(name)) } dd { code { (format::text(&value)) } } } }
            @for (name, at) in moments {
                @if let Some(at) = at { div { dt { (texts.get(name)) } dd { (format::moment(texts, at)) } } }
            }
        }
    }
}

fn forms(texts: &Texts, form_token: &str, key: &KeyBody) -> Markup {
    let path = path_of(&key.id);
    html! {
        section.panel aria-labelledby="rotate" {
            h2 #rotate { (texts.get("key-rotate")) }
            form.inline method="post" action=(path) {
                input type="hidden" name=(TOKEN_FIELD) value=(form_token);
                div.field {
                    label for="overlap_seconds" { (texts.get("key-overlap")) }
                    input #overlap_seconds name="overlap_seconds" type="number" min="0" max="2592000" value="3600";
                }
                button name="act" value="rotate" { (texts.get("key-rotate")) }
            }
        }
        details.manage {
            summary { (texts.get("key-revoke")) }
            p { (texts.get("key-revoke-help")) }
            form.inline method="post" action=(path) {
                input type="hidden" name=(TOKEN_FIELD) value=(form_token);
                div.field {
                    label for="confirmed" { (texts.get("key-revoke-confirm")) }
                    input #confirmed name="confirmed" required autocomplete="off" spellcheck="false";
                }
                button.danger name="act" value="revoke" { (texts.get("key-revoke")) }
            }
        }
    }
}
