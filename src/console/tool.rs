//! One tool: its kind, its arguments, its limits, its problems, and the form that tries it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::acts::Act;
use super::calls;
use super::figures::{self, Ranged};
use super::frame::{self, Head, Section};
use super::text::Texts;
use super::try_it::{self, Attempt};
use super::visit::{Address, Visit};
use super::{Console, connect, format, python_tools, schema_table, snippets, tools};
use sekisho_api::CallBody;
use sekisho_calls::policy::CallerTools;
use sekisho_calls::tool::{PYTHON_SOURCE, Tool};
use sekisho_core::breaker_state::BreakerState;
use sekisho_core::call::Arguments;
use sekisho_core::error::CallError;
use sekisho_gateway::FiguresOf;
use sekisho_store::IndexFilter;

/// Calls that the page of a tool shows.
const LAST_CALLS: usize = 8;

/// The field of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    /// The id of a call whose arguments fill the form in.
    call: String,
}

/// `GET /console/tools/{name}`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path(name): Path<String>,
    Address(ranged): Address<Ranged>,
    Address(wanted): Address<Wanted>,
) -> Response {
    let page = match find(&console, &visit, &name) {
        Ok(tool) => shown_again(&console, &visit, &tool, &wanted.call, &ranged).await,
        Err(error) => Err(error),
    };
    visit.answer(page)
}

/// The page, with the arguments of a call in its form.
async fn shown_again(
    console: &Console,
    visit: &Visit,
    tool: &Tool,
    call: &str,
    ranged: &Ranged,
) -> Result<Markup, CallError> {
    if call.is_empty() {
        return show(console, visit, tool, &Attempt::default(), ranged).await;
    }
    visit.require(Act::TryTool)?;
    let attempt = match calls::content::open(console, visit, call).await?.content.arguments.value() {
        Some(Value::Object(arguments)) => Attempt::filled_in(tool, arguments),
        _ => Attempt::default(),
    };
    show(console, visit, tool, &attempt, ranged).await
}

/// The tool, if the caller may see it.
/// Errors: `denied`, `unknown_tool`, `tool_changed`.
pub(super) fn find(console: &Console, visit: &Visit, name: &str) -> Result<Arc<Tool>, CallError> {
    visit.require(Act::SeeTools)?;
    console.gateway.pipeline.registry.find(name, &visit.caller)
}

/// The page, with the last attempt.
/// Errors: the index of calls cannot be read.
pub(super) async fn show(
    console: &Console,
    visit: &Visit,
    tool: &Tool,
    attempt: &Attempt,
    ranged: &Ranged,
) -> Result<Markup, CallError> {
    let (of, page) = (FiguresOf::Tool(tool.name().to_owned()), tools::path_of(tool.name()));
    let figures = figures::section(console, visit, &of, &page, ranged).await?;
    let last = match visit.may(Act::SeeCalls) {
        true => last_calls(console, visit, tool.name()).await?,
        false => html! {},
    };
    Ok(draw(console, visit, tool, attempt, &html! { (figures) (last) }))
}

/// `calls`: the part about its calls.
fn draw(console: &Console, visit: &Visit, tool: &Tool, attempt: &Attempt, calls: &Markup) -> Markup {
    let texts = visit.texts();
    let caller_tools = console.gateway.pipeline.tools_for(&visit.caller);
    let head = Head { state: Some(state(&texts, console, tool, &caller_tools)), ..Head::new(tool.name()) };
    let file = tool.metadata.source.strip_prefix(PYTHON_SOURCE).filter(|_| visit.may(Act::SeeSources));
    let needs_key = connect::needs_key(&console.gateway.configuration().current());
    let none = Arguments::new();
    let arguments = attempt.arguments.as_ref().unwrap_or(&none);
    frame::page(
        visit,
        Some(Section::Tools),
        &head,
        &html! {
            p.description { (format::text(&tool.metadata.description)) }
            p { (tools::tags(&texts, &tool.metadata)) }
            @if let Some(file) = file { p { a href=(python_tools::path_of(file)) { (texts.get("python-tools-source")) } } }
            @if !tool.flags.is_empty() { (flags(&texts, tool)) }
            div.columns {
                div {
                    section {
                        h2 #schema { (texts.get("schema-title")) }
                        (schema_table::table(&texts, tool.input.document()))
                    }
                    @if let Some(output) = &tool.output {
                        details { summary { (texts.get("tool-output")) } (schema_table::table(&texts, output.document())) }
                    }
                    section aria-labelledby="limits" { h2 #limits { (texts.get("tool-limits")) } (limits(&texts, console, tool, &visit.caller.tenant)) }
                }
                section.try aria-labelledby="try" {
                    h2 #try { (texts.get("try-title")) }
                    (try_it::section(visit, tool, attempt))
                    h3 { (texts.get("snippets-title")) }
                    (snippets::show(&texts, &visit.guest.request.server_url, needs_key, tool.name(), arguments))
                }
            }
            (calls)
        },
    )
}

/// One sentence: whether the caller may use it now.
fn state(texts: &Texts, console: &Console, tool: &Tool, tools: &CallerTools) -> Markup {
    let refusal = tools.find(tool.name()).err().map(|error| error.message().to_owned());
    let degraded = console.gateway.mcp_servers().degraded(&tool.metadata.source);
    html! {
        code { (format::text(&tool.metadata.source)) } " · " (format::text(&tool.metadata.category)) " · " (format::text(&tool.metadata.version)) " · "
        @match (&refusal, &degraded) {
            (Some(refusal), _) => { span.warn-text { "⊘ " (format::text(refusal)) } },
            (None, Some(reason)) => { span.warn-text { "▲ " (format::text(reason)) } },
            (None, None) => { span.good-text { "✓ " (texts.get("tool-usable")) } },
        }
    }
}

fn flags(texts: &Texts, tool: &Tool) -> Markup {
    html! {
        div.notice.warn {
            p { (texts.get("tool-flags")) }
            ul { @for flag in &tool.flags { li { code { (format::text(&flag.path)) } " " (format::text(&flag.message)) } } }
        }
    }
}

fn limits(texts: &Texts, console: &Console, tool: &Tool, tenant: &str) -> Markup {
    let metadata = &tool.metadata;
    let circuit = tool.upstream().map(|upstream| {
        let state = console.gateway.pipeline.breakers.state(&upstream, tenant);
        (upstream.name, state)
    });
    let rows = [
        ("limit-rate", texts.with("limit-per-minute", [("n", metadata.rate_limit.into())]).into_owned()),
        ("limit-timeout", format::duration(Duration::from_secs(metadata.timeout_seconds.into()))),
        ("limit-memory", format!("{} MiB", metadata.memory_limit_mb)),
        ("limit-output", format!("{} B", format::count(tool.max_output_bytes() as u64))),
        ("limit-text", format::count(metadata.max_text_tokens)),
        ("limit-price", format::money(metadata.cost_per_use)),
        ("limit-lock", texts.get(lock_state(console, tool)).into_owned()),
        ("limit-roles", if metadata.roles.is_empty() { "–".to_owned() } else { metadata.roles.join(", ") }),
    ];
    html! {
        dl.facts {
            @for (name, value) in rows { div { dt { (texts.get(name)) } dd { (value) } } }
            @if let Some((upstream, state)) = circuit {
                div { dt { (texts.get("limit-circuit")) } dd {
                    code { (format::text(&upstream)) } " "
                    span class=(if state == BreakerState::Closed { "good-text" } else { "bad-text" }) { (state.as_str()) }
                } }
            }
        }
    }
}

/// The id of the text that says whether it was approved. A tool that differs from its approved form is not offered.
fn lock_state(console: &Console, tool: &Tool) -> &'static str {
    match console.gateway.tool_offer().is_pinned(tool.name()) {
        Some(true) => "lock-state-pinned",
        Some(false) => "lock-state-unpinned",
        None => "lock-state-none",
    }
}

async fn last_calls(console: &Console, visit: &Visit, tool: &str) -> Result<Markup, CallError> {
    let filter = IndexFilter { tool: Some(tool.to_owned()), ..IndexFilter::default() };
    let found = console.gateway.history().latest_calls(&visit.caller, filter, LAST_CALLS).await?;
    let texts = visit.texts();
    Ok(html! {
        section aria-labelledby="last" {
            h2 #last { (texts.get("tool-last-calls")) }
            @if found.is_empty() { p.quiet { (texts.get("calls-none-of-tool")) } }
            @else { (calls::table(&texts, found.iter().map(CallBody::of_indexed))) }
        }
    })
}
