//! The list of tools: search, filters and page are in the address.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::acts::Act;
use super::address::with_query;
use super::export::{self, Format, Rows};
use super::frame::{self, Head, Section};
use super::list::Page;
use super::text::Texts;
use super::visit::{Address, Visit};
use super::{Console, error_page, format};
use sekisho_calls::policy::CallerTools;
use sekisho_calls::registry::Snapshot;
use sekisho_calls::registry::lock::Quarantined;
use sekisho_calls::tool::{ListedTokens, Metadata, Tool};

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    q: String,
    source: String,
    category: String,
    /// `dangerous` or `safe`.
    danger: String,
    page: usize,
    format: Format,
}

/// A line of the list.
struct Line<'a> {
    metadata: &'a Metadata,
    is_usable: bool,
    /// The requirements that the caller does not meet, or why it is quarantined.
    problem: Option<String>,
    flagged: bool,
}

/// `GET /console/tools`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Address(wanted): Address<Wanted>,
) -> Response {
    if let Err(error) = visit.require(Act::SeeTools) {
        return error_page::of_visit(&visit, &error);
    }
    let snapshot = console.gateway.pipeline.registry.snapshot();
    let tools = console.gateway.pipeline.policy.tools_for(&snapshot, &visit.caller);
    let all = lines(&snapshot, &tools, &visit);
    let found = wanted.choose(&snapshot, &all);
    match wanted.format {
        Format::Html => {
            let tokens = tokens_text(&console, &visit, &tools).await;
            visit.answer(Ok(list(&visit, &wanted, &all, &found, &tokens)))
        }
        format => rows(&found).respond(format),
    }
}

/// The address of a tool's page.
pub(super) fn path_of(tool: &str) -> String {
    format!("/console/tools/{}", utf8_percent_encode(tool, NON_ALPHANUMERIC))
}

/// The address of the list with the tools of one source.
pub(super) fn path_of_source(source: &str) -> String {
    with_query("/console/tools", [("source", source)])
}

/// The properties of a tool, in words with colours.
pub(super) fn tags(texts: &Texts, metadata: &Metadata) -> Markup {
    html! {
        @if metadata.dangerous { span.tag.bad { "▲ " (texts.get("tool-dangerous")) } " " }
        @if metadata.sandboxed { span.tag { (texts.get("tool-sandboxed")) } " " }
        @if metadata.idempotent { span.tag { (texts.get("tool-idempotent")) } " " }
    }
}

/// All tools that fit the filters, not only the page's.
fn rows(found: &[&Line<'_>]) -> Rows<'static, 7> {
    let row = |line: &&Line<'_>| {
        let metadata = line.metadata;
        [
            json!(metadata.name),
            json!(metadata.description),
            json!(metadata.source),
            json!(metadata.category),
            json!(metadata.dangerous),
            json!(line.is_usable),
            json!(line.problem),
        ]
    };
    let columns = ["name", "description", "source", "category", "dangerous", "usable", "problem"];
    Rows { name: "tools", columns, rows: found.iter().map(row).collect() }
}

/// The tokens of a list of all usable tools for a model, and those that `server.mcp.tools: auto` saves.
async fn tokens_text(console: &Console, visit: &Visit, tools: &CallerTools) -> String {
    let tools = tools.clone();
    // Describing thousands of tools takes a while.
    let measured = spawn_blocking(move || tools.usable().map(|tool| tool.listed_tokens()).sum::<ListedTokens>()).await;
    let tokens = measured.unwrap_or_default();
    let auto = tokens.of_auto(console.gateway.configuration().current().server.mcp.max_listed_tokens);
    let saved = tokens.whole - auto;
    let text = visit
        .texts()
        .with("tools-tokens", [("whole", tokens.whole.into()), ("auto", auto.into()), ("saved", saved.into())]);
    text.into_owned()
}

fn list(visit: &Visit, wanted: &Wanted, all: &[Line<'_>], found: &[&Line<'_>], tokens: &str) -> Markup {
    let texts = visit.texts();
    let sources = values(all, |metadata| &metadata.source);
    let categories = values(all, |metadata| &metadata.category);
    let usable = all.iter().filter(|line| line.is_usable).count();
    let shown = Page::of(found, wanted.page);
    let state = texts.with("tools-state", [("count", all.len().into()), ("usable", usable.into())]);
    let title = texts.get("nav-tools");
    let head = Head { state: Some(html! { (state) }), ..Head::new(&title) };
    frame::page(
        visit,
        Some(Section::Tools),
        &head,
        &html! {
            p.quiet { (tokens) }
            (filters(&texts, wanted, &sources, &categories))
            div #found {
                p.quiet role="status" { (texts.with("tools-count", [("count", found.len().into())])) }
                @if found.is_empty() {
                    div.empty { p { (texts.get("tools-none")) } p { a href="/console/tools" { (texts.get("tools-all")) } } }
                } @else {
                    (table(&texts, shown.entries))
                    (shown.links(&texts, |page| wanted.address(page)))
                    (export::links(&texts, &wanted.address(shown.at)))
                }
            }
        },
    )
}

fn lines<'a>(snapshot: &'a Snapshot, tools: &'a CallerTools, visit: &Visit) -> Vec<Line<'a>> {
    let offered = tools.visible().map(|(tool, access)| {
        let missing = tools.missing(tool, access);
        let problem = missing.first().map(|missing| missing.message.clone());
        Line { metadata: &tool.metadata, is_usable: missing.is_empty(), problem, flagged: !tool.flags.is_empty() }
    });
    let held = snapshot.quarantined().filter(|tool| !tool.is_hidden_from(&visit.caller)).map(of_quarantined);
    let mut lines: Vec<_> = offered.chain(held).collect();
    lines.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    lines
}

fn of_quarantined(tool: &Quarantined) -> Line<'_> {
    let problem = Some(tool.violation.to_string());
    Line { metadata: &tool.metadata, is_usable: false, problem, flagged: !tool.flags.is_empty() }
}

fn values<'a>(lines: &[Line<'a>], of: impl Fn(&'a Metadata) -> &'a String) -> BTreeSet<&'a str> {
    lines.iter().map(|line| of(line.metadata).as_str()).collect()
}

impl Wanted {
    /// In the order of their names, or with a query the best first.
    fn choose<'a>(&self, snapshot: &Snapshot, lines: &'a [Line<'a>]) -> Vec<&'a Line<'a>> {
        let fits = |line: &&Line<'_>| {
            let metadata = line.metadata;
            (self.source.is_empty() || metadata.source == self.source)
                && (self.category.is_empty() || metadata.category == self.category)
                && match self.danger.as_str() {
                    "dangerous" => metadata.dangerous,
                    "safe" => !metadata.dangerous,
                    _ => true,
                }
        };
        let query = self.q.trim();
        if query.is_empty() {
            return lines.iter().filter(fits).collect();
        }
        let by_name = |name: &str| lines.binary_search_by(|line| line.metadata.name.as_str().cmp(name)).ok();
        let ranked = snapshot.search(query, snapshot.tools().len()).into_iter();
        let mut found: Vec<_> = ranked.filter_map(|(tool, _)| by_name(Tool::name(tool))).collect();
        // A part of a name is no word of the index.
        let lower = query.to_lowercase();
        let parts = lines.iter().enumerate().filter(|(_, line)| line.metadata.name.to_lowercase().contains(&lower));
        for (at, _) in parts {
            if !found.contains(&at) {
                found.push(at);
            }
        }
        found.into_iter().map(|at| &lines[at]).filter(fits).collect()
    }

    /// The address of another page of the same list.
    fn address(&self, page: usize) -> String {
        let page = page.to_string();
        let (source, category) = (&*self.source, &*self.category);
        let fields =
            [("q", &*self.q), ("source", source), ("category", category), ("danger", &self.danger), ("page", &page)];
        with_query("/console/tools", fields)
    }
}

fn filters(texts: &Texts, wanted: &Wanted, sources: &BTreeSet<&str>, categories: &BTreeSet<&str>) -> Markup {
    let choice = |name: &str, label: &str, values: &BTreeSet<&str>, chosen: &str| {
        html! {
            div.field {
                label for=(name) { (texts.get(label)) }
                select #(name) name=(name) {
                    option value="" { (texts.get("filter-any")) }
                    @for value in values { option value=(value) selected[*value == chosen] { (format::text(value)) } }
                }
            }
        }
    };
    html! {
        form.filters method="get" action="/console/tools" role="search" data-follows {
            div.field.wide {
                label for="q" { (texts.get("filter-search")) }
                input #q type="search" name="q" value=(wanted.q) autocomplete="off" spellcheck="false" data-search;
            }
            (choice("source", "tool-source", sources, &wanted.source))
            (choice("category", "tool-category", categories, &wanted.category))
            div.field {
                label for="danger" { (texts.get("filter-danger")) }
                select #danger name="danger" {
                    option value="" { (texts.get("filter-any")) }
                    option value="dangerous" selected[wanted.danger == "dangerous"] { (texts.get("tool-dangerous")) }
                    option value="safe" selected[wanted.danger == "safe"] { (texts.get("tool-safe")) }
                }
            }
            button { (texts.get("filter-apply")) }
        }
    }
}

fn table(texts: &Texts, lines: &[&Line<'_>]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts.get("nav-tools")) {
            table.list.cards {
                thead { tr {
                    th scope="col" { (texts.get("tool-name")) }
                    th scope="col" { (texts.get("tool-description")) }
                    th scope="col" { (texts.get("tool-source")) }
                    th scope="col" { (texts.get("tool-state")) }
                } }
                tbody {
                    @for line in lines {
                        tr {
                            th scope="row" { a href=(path_of(&line.metadata.name)) { (format::name(&line.metadata.name)) } }
                            td.text { (format::first_line(&line.metadata.description)) }
                            td { code.quiet { (format::text(&line.metadata.source)) } }
                            td {
                                (tags(texts, line.metadata))
                                @if line.flagged { span.tag.warn { "⚑ " (texts.get("tool-flagged")) } " " }
                                @if let Some(problem) = &line.problem { span.tag.warn title=(format::text(problem)) { "⊘ " (texts.get("tool-not-usable")) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
