//! Each setting in force with its source, and a check of a changed configuration before it is taken over.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::list::Page;
use super::submitted::Submitted;
use super::text::Texts;
use super::visit::{Address, TOKEN_FIELD, Visit};
use super::{Console, changes, error_page, format};
use sekisho_config::{Opening, Setting, SettingSource};
use sekisho_gateway::ConfigurationCheck;

const PATH: &str = "/console/configuration";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    q: String,
    source: String,
    page: usize,
    format: Format,
}

/// `GET /console/configuration`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let settings =
        visit.require(Act::SeeConfiguration).and_then(|()| console.gateway.configuration().settings(&visit.caller));
    match settings {
        Ok(all) if wanted.format != Format::Html => rows(&wanted.choose(&all)).respond(wanted.format),
        settings => visit.answer(settings.map(|all| show(&console, &visit, &wanted, &all, None))),
    }
}

/// All settings that fit the filters. A secret has no value.
fn rows(settings: &[&Setting]) -> Rows<'static, 6> {
    let row = |setting: &&Setting| {
        let Setting { key, value, is_secret, source, variable, line } = setting;
        let value = value.as_ref().filter(|_| !is_secret);
        [json!(key), json!(value), json!(is_secret), json!(source), json!(variable), json!(line)]
    };
    let columns = ["key", "value", "secret", "source", "variable", "line"];
    Rows { name: "configuration", columns, rows: settings.iter().map(row).collect() }
}

/// `POST /console/configuration`: checks a text; changes nothing.
pub(super) async fn check(State(console): State<Arc<Console>>, request: Request) -> Response {
    let submitted = match Submitted::read(&console, request, Act::SeeConfiguration).await {
        Ok(submitted) => submitted,
        Err(response) => return response,
    };
    let (visit, text) = (&submitted.visit, submitted.field("text"));
    let sent = Some(text.to_owned()).filter(|text| !text.is_empty());
    let checked = match submitted.shared_administrator() {
        Ok(_) => console.gateway.configuration_notes().check(&visit.caller, sent).await,
        Err(error) => Err(error),
    };
    let checked = checked.and_then(|check| Ok((check, console.gateway.configuration().settings(&visit.caller)?)));
    match checked {
        Ok((check, all)) => visit.answer(Ok(show(&console, visit, &Wanted::default(), &all, Some((text, &check))))),
        Err(error) => error_page::of_visit(visit, &error),
    }
}

/// `checked`: the text that was checked, and the result of the check.
fn show(
    console: &Console,
    visit: &Visit,
    wanted: &Wanted,
    all: &[Setting],
    checked: Option<(&str, &ConfigurationCheck)>,
) -> Markup {
    let texts = visit.texts();
    let set = all.iter().filter(|setting| setting.source != SettingSource::Default).count();
    let found = wanted.choose(all);
    let shown = Page::of(&found, wanted.page);
    let title = texts.get("nav-configuration");
    let waiting = console.gateway.configuration().waiting_openings();
    let file = console.gateway.configuration().file().map(|file| file.display().to_string());
    let head = Head {
        state: Some(html! {
            (texts.with("configuration-state", [("count", all.len().into()), ("set", set.into())])) " "
            @if let Some(file) = file { code { (format::text(&file)) } }
        }),
        ..Head::new(&title)
    };
    frame::page(
        visit,
        Some(Section::Configuration),
        &head,
        &html! {
            @if !waiting.is_empty() {
                div.notice.warn #waiting role="status" {
                    p { "▲ " (texts.get("configuration-waiting")) }
                    (openings(&texts, &waiting))
                }
            }
            p { a href=(changes::PATH) { (texts.get("nav-changes")) " →" } }
            section aria-labelledby="check" {
                h2 #check { (texts.get("configuration-check")) }
                @if let Some((_, check)) = checked { (result(&texts, check)) }
                (form(visit, checked.map_or("", |(text, _)| text)))
            }
            section {
                h2 { (texts.get("configuration-settings")) }
                (filters(&texts, wanted))
                div #found {
                    @if found.is_empty() { div.empty { p { (texts.get("configuration-none")) } } }
                    @else {
                        (table(&texts, shown.entries))
                        (shown.links(&texts, |page| wanted.address(page)))
                        (export::links(&texts, &wanted.address(shown.at)))
                    }
                }
            }
        },
    )
}

impl Wanted {
    fn choose<'a>(&self, all: &'a [Setting]) -> Vec<&'a Setting> {
        all.iter().filter(|setting| self.admits(setting)).collect()
    }

    fn address(&self, page: usize) -> String {
        with_query(PATH, [("q", &*self.q), ("source", &*self.source), ("page", &*page.to_string())])
    }

    fn admits(&self, setting: &Setting) -> bool {
        let query = self.q.trim().to_lowercase();
        (query.is_empty() || setting.key.to_lowercase().contains(&query))
            && (self.source.is_empty() || setting.source.as_str() == self.source)
    }
}

fn form(visit: &Visit, text: &str) -> Markup {
    let texts = visit.texts();
    html! {
        form.stack method="post" action=(PATH) {
            input type="hidden" name=(TOKEN_FIELD) value=(visit.form_token().unwrap_or_default());
            div.field {
                label for="text" { (texts.get("configuration-text")) span.kind { "YAML" } }
                textarea #text name="text" rows="8" spellcheck="false" aria-describedby="text-help" { "\n" (text) }
                p.help #text-help { (texts.get("configuration-help")) }
            }
            div.buttons { button.main { (texts.get("configuration-run-check")) } }
        }
    }
}

fn result(texts: &Texts, check: &ConfigurationCheck) -> Markup {
    html! {
        @if check.problems.is_empty() {
            div.notice role="status" { p { "✓ " (texts.with("configuration-valid", [("count", check.changes.len().into())])) } }
        } @else { (problems(texts, check)) }
        @if !check.opens.is_empty() {
            div.notice.warn {
                p { "▲ " (texts.get("configuration-opens")) }
                (openings(texts, &check.opens))
            }
        }
        (notes(texts, check))
        @if !check.changes.is_empty() { (compared(texts, &check.changes)) }
    }
}

/// Why the settings would not be taken over.
pub(super) fn problems(texts: &Texts, check: &ConfigurationCheck) -> Markup {
    html! {
        div.notice.bad #problems tabindex="-1" role="alert" {
            p { "✕ " (texts.get("configuration-invalid")) }
            @for problem in &check.problems { pre tabindex="0" { code { (format::text(problem)) } } }
        }
    }
}

/// The settings that need a restart, and what else there is to know.
pub(super) fn notes(texts: &Texts, check: &ConfigurationCheck) -> Markup {
    html! {
        @for topic in &check.restart_required {
            p.notice.warn { "▲ " code { (topic) } " " (texts.get("configuration-restart")) }
        }
        @for (setting, note) in &check.notes { p.notice.warn { "▲ " code { (format::text(setting)) } ": " (format::text(note)) } }
    }
}

/// The settings that would change.
pub(super) fn compared(texts: &Texts, changes: &[(Option<Setting>, Option<Setting>)]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("configuration-changes")) {
            table.compare {
                (heads(texts))
                tbody { @for (before, after) in changes {
                    tr {
                        th scope="row" { @if let Some(setting) = before.as_ref().or(after.as_ref()) { code { (format::text(&setting.key)) } } }
                        td.before { (value(texts, before.as_ref())) }
                        td.after { (value(texts, after.as_ref())) }
                    }
                } }
            }
        }
    }
}

fn heads(texts: &Texts) -> Markup {
    html! {
        thead { tr {
            th scope="col" { (texts.get("configuration-key")) }
            th scope="col" { (texts.get("configuration-before")) }
            th scope="col" { (texts.get("configuration-after")) }
        } }
    }
}

pub(super) fn openings(texts: &Texts, opens: &[Opening]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("configuration-opening")) {
            table.compare {
                (heads(texts))
                tbody { @for Opening { setting, before, after } in opens {
                    tr {
                        th scope="row" { code { (format::text(setting)) } }
                        td.before { code { (format::text(before)) } }
                        td.after { code { (format::text(after)) } }
                    }
                } }
            }
        }
    }
}

fn filters(texts: &Texts, wanted: &Wanted) -> Markup {
    html! {
        form.filters method="get" action=(PATH) role="search" data-follows {
            div.field.wide {
                label for="q" { (texts.get("filter-search")) }
                input #q type="search" name="q" value=(wanted.q) autocomplete="off" spellcheck="false" data-search;
            }
            div.field {
                label for="source" { (texts.get("tool-source")) }
                select #source name="source" {
                    option value="" { (texts.get("filter-any")) }
                    @for source in [SettingSource::Default, SettingSource::File, SettingSource::Environment, SettingSource::Change] {
                        option value=(source.as_str()) selected[wanted.source == source.as_str()] { (texts.get(name(source))) }
                    }
                }
            }
            button { (texts.get("filter-apply")) }
        }
    }
}

fn table(texts: &Texts, settings: &[&Setting]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("configuration-settings")) {
            table.settings.cards {
                thead { tr {
                    th scope="col" { (texts.get("configuration-key")) }
                    th scope="col" { (texts.get("configuration-value")) }
                    th scope="col" { (texts.get("tool-source")) }
                } }
                tbody { @for setting in settings { tr {
                    th scope="row" { code { (format::text(&setting.key)) } }
                    td { (value(texts, Some(setting))) }
                    td { (source(texts, setting)) }
                } } }
            }
        }
    }
}

fn value(texts: &Texts, setting: Option<&Setting>) -> Markup {
    html! {
        @match setting {
            None => { "–" },
            Some(Setting { is_secret: true, source, .. }) if *source != SettingSource::Default => {
                span.quiet { "••• " (texts.get("configuration-secret")) }
            },
            Some(Setting { value: Some(value), .. }) => { code { (format::text(value)) } },
            Some(_) => { span.quiet { "–" } },
        }
    }
}

fn source(texts: &Texts, setting: &Setting) -> Markup {
    html! {
        @if setting.source == SettingSource::Default { span.quiet { (texts.get("source-default")) } }
        @else { span.tag { (texts.get(name(setting.source))) } }
        @if let Some(variable) = &setting.variable { " " code { (variable) } }
        @if let Some(line) = setting.line { " " span.quiet { (texts.with("configuration-line", [("n", line.into())])) } }
    }
}

fn name(source: SettingSource) -> &'static str {
    match source {
        SettingSource::Default => "source-default",
        SettingSource::File => "source-file",
        SettingSource::Environment => "source-environment",
        SettingSource::Change => "source-change",
    }
}
