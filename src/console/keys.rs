//! Managed keys: list, and a new one, whose token is shown once.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::response::Response;
use jiff::SignedDuration;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::acts::Act;
use super::address::{encoded, with_query};
use super::frame::{self, Head, Section};
use super::list::{ListAddress, Table};
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, format, key, list};
use sekisho_api::KeyBody;
use sekisho_api::column::Column;
use sekisho_api::list::Page;
use sekisho_core::database_clock::DatabaseTime;
use sekisho_core::error::{CallError, ErrorCode};

pub(super) const PATH: &str = "/console/keys";

/// Maximum days until a new key expires: ten years.
const MAX_DAYS: u32 = 3_660;

/// A field of the form for a new key.
struct Field {
    name: &'static str,
    label: &'static str,
    help: Option<&'static str>,
}

const FIELDS: [Field; 6] = [
    Field { name: "person", label: "approval-person", help: Some("key-person-help") },
    Field { name: "description", label: "tool-description", help: None },
    Field { name: "roles", label: "explain-roles", help: Some("explain-roles-help") },
    Field { name: "tools", label: "nav-tools", help: Some("key-tools-help") },
    Field { name: "tenant", label: "call-tenant", help: Some("key-tenant-help") },
    Field { name: "expires_in_days", label: "key-days", help: Some("key-days-help") },
];

/// `GET /console/keys`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(ListAddress { after, format }): Address<ListAddress>,
) -> Response {
    let found = fetch(&console, &visit, &after).await;
    list::respond(&visit, format, found, |found| &found.items, |found| show(&visit, &after, found, None))
}

/// `POST /console/keys`: creates one. Its page shows its token, once.
pub(super) async fn create(State(console): State<Arc<Console>>, request: Request) -> Response {
    let form = match Submitted::read(&console, request, Act::ManageKeys).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let created = match new_key(&form, console.gateway.store().now()) {
        Ok(body) => form.visit.change(&console, Method::POST, "/admin/keys", Some(&body)).await,
        Err(error) => Err(error),
    };
    let error = match created.and_then(key::with_token) {
        Ok(created) => return key::shown_once(&console, &form, created),
        Err(error) => error,
    };
    let found = fetch(&console, &form.visit, "").await;
    form.visit.answer(found.map(|found| show(&form.visit, "", &found, Some((&form, &error)))))
}

/// The address of a key's page.
pub(super) fn path_of(id: &str) -> String {
    format!("{PATH}/{}", encoded(id))
}

/// Whether it is accepted, in a word with a sign.
pub(super) fn status(texts: &Texts, key: &KeyBody) -> Markup {
    let (class, sign, text) = match key.status.as_str() {
        "active" => ("tag good", "✓", "status-active"),
        "expired" => ("tag", "–", "key-expired"),
        _ => ("tag bad", "✕", "key-revoked"),
    };
    html! { span class=(class) { (sign) " " (texts.get(text)) } }
}

async fn fetch(console: &Console, visit: &Visit, after: &str) -> Result<Page<KeyBody>, CallError> {
    list::fetch(console, visit, Act::ManageKeys, &[("after", after)]).await
}

/// The body for the route: fields that are empty have their defaults.
fn new_key(form: &Submitted, now: DatabaseTime) -> Result<Value, CallError> {
    let entries = |name: &str| {
        let entries = form.field(name).split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(str::to_owned).collect::<Vec<_>>()
    };
    let expires = match form.text("expires_in_days").map(str::parse::<u32>) {
        None => None,
        Some(Ok(days @ 1..=MAX_DAYS)) => Some(now.later(SignedDuration::from_hours(24 * i64::from(days)))),
        Some(_) => {
            let message = format!("a key expires in 1 to {MAX_DAYS} days: write a number, or nothing for never");
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        }
    };
    Ok(json!({
        "person": form.text("person"),
        "description": form.field("description"),
        "roles": entries("roles"),
        "tenant": form.text("tenant"),
        "tools": form.text("tools").map(|_| entries("tools")),
        "expires_at": expires.map(|expires| expires.to_string()),
    }))
}

/// The list, with the form for a new key and why the last one was refused.
fn show(visit: &Visit, after: &str, found: &Page<KeyBody>, refused: Option<(&Submitted, &CallError)>) -> Markup {
    let texts = visit.texts();
    let title = texts.get("nav-keys");
    let head = Head { state: Some(html! { (texts.get("keys-state")) }), ..Head::new(&title) };
    let table = Table {
        link: Some(|key: &KeyBody| path_of(&key.id)),
        cell,
        ..Table::new(&texts, "nav-keys", ("keys-none", "sekisho keys create"))
    };
    let address = |after: &str| with_query(PATH, [("after", after)]);
    frame::page(
        visit,
        Some(Section::Keys),
        &head,
        &html! {
            (table.show_page(found, after, address, list::next))
            @if let Some(token) = visit.form_token() { (new_form(&texts, &token, refused)) }
        },
    )
}

fn cell(texts: &Texts, key: &KeyBody, column: &Column) -> Option<Markup> {
    match column.name {
        "person" => Some(html! { (format::name(&key.person)) " " span.quiet { (format::text(&key.tenant)) } }),
        "status" => Some(status(texts, key)),
        _ => None,
    }
}

fn new_form(texts: &Texts, token: &str, refused: Option<(&Submitted, &CallError)>) -> Markup {
    html! {
        details.panel open[refused.is_some()] {
            summary { (texts.get("keys-add")) }
            form.stack method="post" action=(PATH) {
                input type="hidden" name=(TOKEN_FIELD) value=(token);
                @if let Some((_, error)) = refused {
                    div.notice.bad #problems tabindex="-1" role="alert" { p { (format::text(error.message())) } }
                }
                div.pair { @for Field { name, label, help } in &FIELDS {
                    div.field {
                        label for=(name) { (texts.get(label)) }
                        input #(name) name=(name) value=(refused.map_or("", |(form, _)| form.field(name))) maxlength="1000"
                            autocomplete="off" spellcheck="false" aria-describedby=[help.map(|_| format!("{name}-help"))];
                        @if let Some(help) = help { p.help #{ (name) "-help" } { (texts.get(help)) } }
                    }
                } }
                p.help { (texts.get("keys-limit")) }
                div.buttons { button.main { (texts.get("form-add")) } }
            }
        }
    }
}
