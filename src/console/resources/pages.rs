//! The pages of models, skills and tenants.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::{Attempt, Kind, Resource, Wanted, skills};
use crate::address::encoded;
use crate::export::{self, Rows};
use crate::frame::{self, Head};
use crate::text::Texts;
use crate::visit::{TOKEN_FIELD, Visit};
use crate::{format, list, owner, schema_form};
use sekisho_api::list::Page;
use sekisho_core::administration::{Administrator, AdministratorProof};

/// Bytes of a text that stays in one line of the list.
const MAX_IN_CELL: usize = 40;

/// The rows of the list, for a file.
pub(super) fn rows(kind: Kind, found: &Page<Resource>) -> Rows<'static, 5> {
    let [(one, _), (other, _)] = kind.words().columns;
    let row = |resource: &Resource| {
        let value = |name: &str| match resource.value.get(name) {
            // The texts of files are on the page of each skill.
            Some(Value::Object(members)) => json!(members.keys().collect::<Vec<_>>()),
            value => json!(value),
        };
        [json!(resource.name), json!(resource.configured), value("status"), value(one), value(other)]
    };
    Rows {
        name: kind.word(),
        columns: ["name", "configured", "status", one, other],
        rows: found.items.iter().map(row).collect(),
    }
}

/// The list, and the form for a further one.
pub(super) fn show_list(
    visit: &Visit,
    kind: Kind,
    found: &Page<Resource>,
    wanted: &Wanted,
    attempt: &Attempt,
) -> Markup {
    let (words, texts) = (kind.words(), visit.texts());
    let title = texts.get(words.title);
    let head = Head { state: Some(html! { (texts.get(words.state)) }), ..Head::new(&title) };
    let address = match wanted.after.as_str() {
        "" => kind.path(),
        after => format!("{}?after={}", kind.path(), encoded(after)),
    };
    frame::page(
        visit,
        Some(kind.section()),
        &head,
        &html! {
            @if found.items.is_empty() { div.empty { p { (texts.get(words.none)) } p { code { "sekisho " (kind.word()) " add NAME" } } } }
            @else { (table(&texts, kind, &found.items)) (export::links(&texts, &address)) }
            @if let Some(next) = &found.next {
                (list::next(&texts, &format!("{}?after={}", kind.path(), encoded(next))))
            }
            @if let (Some(token), true) = (visit.form_token(), visit.may(kind.change())) {
                details.panel open[attempt.error.is_some() || !attempt.problems.is_empty() || !attempt.filled.is_empty()] {
                    summary { (texts.get(words.add)) }
                    form.stack method="post" action=(kind.path()) enctype="multipart/form-data" {
                        input type="hidden" name=(TOKEN_FIELD) value=(token);
                        (first_button("save"))
                        (failure(attempt))
                        div.field {
                            label for="name" { (texts.get("schema-name")) }
                            input #name name="name" required maxlength="64" value=(attempt.name) autocomplete="off" spellcheck="false";
                        }
                        (schema_form::draw(&texts, kind.schema(), &attempt.filled, &attempt.problems))
                        div.buttons { button.main name="act" value="save" { (texts.get("form-add")) } }
                    }
                }
            }
        },
    )
}

fn table(texts: &Texts, kind: Kind, items: &[Resource]) -> Markup {
    let words = kind.words();
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get(words.title)) {
            table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("schema-name")) }
                    @for (_, text) in words.columns { th scope="col" { (texts.get(text)) } }
                    @if words.has_status { th scope="col" { (texts.get("tool-state")) } }
                    th scope="col" { (texts.get("resource-defined")) }
                } }
                tbody { @for item in items {
                    tr {
                        th scope="row" { a href=(kind.path_of(&item.name)) { (format::name(&item.name)) } }
                        @for (column, text) in words.columns { (cell(texts, &texts.get(text), item.value.get(column))) }
                        @if words.has_status { td { (status(texts, item)) } }
                        td { (origin(texts, item)) }
                    }
                } }
            }
        }
    }
}

/// A setting in the list: the beginning of a text, the number of files.
fn cell(texts: &Texts, label: &str, value: Option<&Value>) -> Markup {
    match value {
        Some(Value::String(text)) if text.len() > MAX_IN_CELL => html! { td.text { (format::first_line(text)) } },
        Some(Value::Object(members)) => html! { td data-label=(label) { (format::count(members.len() as u64)) } },
        value => html! { td data-label=(label) { (setting(texts, value)) } },
    }
}

/// One resource, and the form that changes it. `figures`: of its calls.
pub(super) fn show_one(visit: &Visit, kind: Kind, resource: &Resource, attempt: &Attempt, figures: &Markup) -> Markup {
    let texts = visit.texts();
    let state = html! { @if kind.words().has_status { (status(&texts, resource)) " · " } (texts.get("resource-defined")) " " (origin(&texts, resource))
    @if kind != Kind::Tenants { " · " (owner(&texts, resource.tenant.as_deref())) } };
    let head = Head { state: Some(state), ..Head::new(&resource.name) };
    let is_administrator = Administrator::for_owner(&visit.caller, &resource.tenant.clone().into()).is_ok();
    let may_change = visit.may(kind.change()) && !resource.configured && is_administrator;
    frame::page(
        visit,
        Some(kind.section()),
        &head,
        &html! {
            @if kind == Kind::Skills { (skills::content(&texts, resource, &resource.tenants)) } @else {
                dl.facts {
                    @for (name, value) in &resource.value { div { dt { code { (name) } } dd { (setting(&texts, Some(value))) } } }
                }
            }
            (figures)
            @if resource.configured { p.quiet { (texts.get("resource-configured-help")) } }
            @if let Some(token) = visit.form_token().filter(|_| may_change) {
                section.panel aria-labelledby="change" {
                    h2 #change { (texts.get("resource-change")) }
                    (change_form(&texts, kind, resource, attempt, &token))
                }
                details.manage {
                    summary { (texts.get("resource-remove")) }
                    form.inline method="post" action=(kind.path_of(&resource.name)) {
                        input type="hidden" name=(TOKEN_FIELD) value=(token);
                        div.field {
                            label for="confirmed" { (texts.get("resource-remove-confirm")) }
                            input #confirmed name="confirmed" required autocomplete="off" spellcheck="false";
                        }
                        button.danger name="act" value="remove" { (texts.get("resource-remove")) }
                    }
                }
            }
            p { a href=(kind.path()) { "← " (texts.get(kind.words().title)) } }
        },
    )
}

fn change_form(texts: &Texts, kind: Kind, resource: &Resource, attempt: &Attempt, token: &str) -> Markup {
    let is_first = attempt.filled.is_empty();
    let own = if is_first { schema_form::filled_with(kind.schema(), &resource.value) } else { Vec::new() };
    let filled = if is_first { &own } else { &attempt.filled };
    html! {
        form.stack method="post" action=(kind.path_of(&resource.name)) enctype="multipart/form-data" {
            input type="hidden" name=(TOKEN_FIELD) value=(token);
            (first_button("save"))
            (failure(attempt))
            (schema_form::draw(texts, kind.schema(), filled, &attempt.problems))
            div.buttons { button.main name="act" value="save" { (texts.get("form-save")) } }
        }
    }
}

/// The button of the Enter key, before the buttons of lists.
fn first_button(act: &str) -> Markup {
    html! { button.unseen name="act" value=(act) tabindex="-1" aria-hidden="true" {} }
}

fn failure(attempt: &Attempt) -> Markup {
    html! {
        @if let Some(error) = &attempt.error {
            div.notice.bad role="alert" tabindex="-1" {
                p { (format::text(error.message())) }
                @if !error.details().is_empty() { ul { @for detail in error.details() { li { (format::text(&detail.message)) } } } }
            }
        }
    }
}

/// A setting in words; a dash for one that is not set.
fn setting(texts: &Texts, value: Option<&Value>) -> Markup {
    match value {
        None | Some(Value::Null) => html! { span.quiet { (texts.get("setting-unset")) } },
        Some(Value::Array(values)) => html! { @for (at, value) in values.iter().enumerate() {
            @if at > 0 { ", " } code { (format::text(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))) }
        } @if values.is_empty() { (texts.get("setting-none")) } },
        Some(Value::String(text)) => html! { span.prose { (format::text(text)) } },
        Some(other) => html! { (other) },
    }
}

fn status(texts: &Texts, resource: &Resource) -> Markup {
    match resource.value.get("status").and_then(Value::as_str) {
        Some("inactive") => html! { span.tag.warn { "– " (texts.get("status-inactive")) } },
        _ => html! { span.tag.good { "✓ " (texts.get("status-active")) } },
    }
}

fn origin(texts: &Texts, resource: &Resource) -> Markup {
    let id = if resource.configured { "resource-of-configuration" } else { "resource-of-store" };
    html! { span.quiet { (texts.get(id)) } }
}
