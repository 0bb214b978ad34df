//! The operator's own Python functions: the files, and one of them with its source, cases and last failures.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::export::Format;
use super::frame::{self, Head, Section};
use super::list::{self, Table};
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, calls, format, tools};
use sekisho_api::CallBody;
use sekisho_api::column::Column;
use sekisho_core::error::CallError;
use sekisho_gateway::{FunctionFile, FunctionFolder, FunctionSource};

pub(super) const PATH: &str = "/console/python-tools";

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    page: usize,
    format: Format,
}

/// `GET /console/python-tools`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    let found = visit.require(Act::SeeSources).and_then(|()| console.gateway.python_functions().files(&visit.caller));
    list::respond(&visit, wanted.format, found, |found| &found.files, |found| list(&visit, &wanted, found))
}

/// `GET /console/python-tools/{name}`.
pub(super) async fn one(State(console): State<Arc<Console>>, visit: Visit, Path(name): Path<String>) -> Response {
    let found = find(&console, &visit, &name).await;
    visit.answer(found.map(|found| show(&visit, &found)))
}

async fn find(console: &Console, visit: &Visit, name: &str) -> Result<FunctionSource, CallError> {
    visit.require(Act::SeeSources)?;
    console.gateway.python_functions().source(&visit.caller, name).await
}

/// The address of a file's page.
pub(super) fn path_of(file: &str) -> String {
    format!("{PATH}/{}", encoded(file))
}

fn list(visit: &Visit, wanted: &Wanted, found: &FunctionFolder) -> Markup {
    let texts = visit.texts();
    let broken = found.files.iter().filter(|file| !file.problems.is_empty()).count();
    let title = texts.get("nav-python-tools");
    let state = texts.with("python-tools-state", [("count", found.files.len().into()), ("broken", broken.into())]);
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    let table = Table {
        link: Some(|file: &FunctionFile| path_of(&file.name)),
        cell,
        ..Table::new(&texts, "nav-python-tools", ("python-tools-none", "sekisho tools new weather"))
    };
    let address = |page: usize| with_query(PATH, [("page", &*page.to_string())]);
    frame::page(
        visit,
        Some(Section::PythonTools),
        &head,
        &html! {
            (problems(&found.problems))
            (table.show_part(&found.files, wanted.page, address, PATH))
            @if !found.packages.is_empty() {
                dl.facts { div { dt { (texts.get("python-tools-packages")) } dd { (format::text(&found.packages.join(", "))) } } }
            }
        },
    )
}

fn cell(texts: &Texts, file: &FunctionFile, column: &Column) -> Option<Markup> {
    Some(match (column.name, file.problems.first()) {
        ("file", _) => html! { code { (format::text(&file.name)) ".py" } },
        ("tools", _) => links(&file.tools),
        (_, Some(problem)) => html! { span.bad-text { "▲ " (format::text(problem)) } },
        (_, None) => html! { span.good-text { "✓ " (texts.get("python-tools-fine")) } },
    })
}

fn show(visit: &Visit, found: &FunctionSource) -> Markup {
    let (texts, file) = (visit.texts(), &found.file);
    let title = format!("{}.py", format::text(&file.name));
    let head = Head { state: Some(links(&file.tools)), ..Head::new(&title) };
    frame::page(
        visit,
        Some(Section::PythonTools),
        &head,
        &html! {
            (problems(&file.problems))
            section aria-labelledby="failures" {
                h2 #failures { (texts.get("python-tools-failures")) }
                @if found.failures.is_empty() { p.quiet { (texts.get("python-tools-no-failures")) } }
                @else { (calls::table(&texts, found.failures.iter().map(|call| CallBody::of(call)))) }
            }
            section aria-labelledby="source" {
                h2 #source { (texts.get("python-tools-source")) }
                @match &found.text {
                    Some(text) => { pre tabindex="0" { code { (format::text(text)) } } },
                    None => { p.quiet { (texts.get("python-tools-unreadable")) } },
                }
            }
            section aria-labelledby="cases" {
                h2 #cases { (texts.get("python-tools-cases")) }
                (problems(found.cases_problem.as_slice()))
                @if found.cases.is_empty() { p.quiet { (texts.get("python-tools-no-cases")) } }
                @else { (cases(&texts, &found.cases)) }
                p.quiet { code { "sekisho tools test " (format::text(&file.name)) } }
            }
            p { a href=(PATH) { "← " (texts.get("nav-python-tools")) } }
        },
    )
}

fn cases(texts: &Texts, cases: &[Value]) -> Markup {
    let text = |value: &Value| match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    html! {
        div.scroll tabindex="0" role="group" aria-labelledby="cases" { table.list {
            thead { tr {
                th scope="col" { (texts.get("python-tools-case")) }
                th scope="col" { (texts.get("tool-name")) }
                th scope="col" { (texts.get("explain-arguments")) }
                th scope="col" { (texts.get("python-tools-expected")) }
            } }
            tbody { @for case in cases { tr {
                th.text scope="row" { (format::text(&text(&case["name"]))) }
                td { code { (format::text(&text(&case["tool"]))) } }
                td.text { code { (format::text(&text(&case["arguments"]))) } }
                td.text {
                    @match (case.get("error"), case.get("output")) {
                        (Some(error), _) => { span.tag.warn { (texts.get("python-tools-fails")) } " " (format::text(&text(error))) },
                        (None, Some(output)) => { code { (format::text(&output.to_string())) } },
                        (None, None) => { "–" },
                    }
                }
            } } }
        } }
    }
}

fn links(tools: &[String]) -> Markup {
    html! {
        @for (at, tool) in tools.iter().enumerate() {
            @if at > 0 { " " }
            a href=(tools::path_of(tool)) { code { (format::text(tool)) } }
        }
    }
}

fn problems(problems: &[String]) -> Markup {
    html! {
        @if !problems.is_empty() {
            div.notice.bad role="alert" { @for problem in problems { p { (format::text(problem)) } } }
        }
    }
}
