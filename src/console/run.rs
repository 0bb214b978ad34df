//! One run of a conversation: its sums, and its steps in time.

pub(super) mod compare;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;

use super::acts::Act;
use super::address::{encoded, with_query};
use super::chat::{Receipts, pretty};
use super::conversation::outcome;
use super::frame::{self, Head, Section};
use super::text::Texts;
use super::timeline::{self, Axis, Row};
use super::visit::{Address, Visit};
use super::{Console, approvals, calls, conversations, format};
use sekisho_agent::conversation::timeline::{RunStep, StepState, StepWork};
use sekisho_agent::plan::Used;
use sekisho_agent_api::{RunBody, TimelineBody};
use sekisho_core::error::CallError;
use sekisho_store::IndexFilter;

/// Steps of a page.
const PAGE: usize = 100;

/// Maximum calls whose cost is summed.
const MAX_SUMMED: usize = 1_000;

/// The fields of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    /// The number of steps before the page.
    after: usize,
}

/// The data of the page.
struct Shown {
    found: TimelineBody,
    receipts: Receipts,
    /// The cost of the run's tools; `None` where the index does not have all its calls.
    tools_cost: Option<Decimal>,
}

/// The usage of all agents and models together.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    prompt: u64,
    answer: u64,
    cached: u64,
    cost: Decimal,
}

/// `GET /console/runs/{id}`.
pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path(id): Path<String>,
    Address(wanted): Address<Wanted>,
) -> Response {
    let page = read(&console, &visit, &id, wanted.after).await.map(|shown| show(&visit, wanted.after, &shown));
    visit.answer(page)
}

pub(super) fn path_of(id: &str) -> String {
    format!("/console/runs/{}", encoded(id))
}

/// The steps of a run after as many others.
/// Errors: `denied`, and the errors of the route.
async fn fetch(
    console: &Console,
    visit: &Visit,
    id: &str,
    (limit, after): (usize, usize),
) -> Result<TimelineBody, CallError> {
    visit.require(Act::SeeConversations)?;
    let (limit, after) = (limit.to_string(), after.to_string());
    let route = format!("/api/runs/{}/timeline", encoded(id));
    visit.fetch(console, &with_query(&route, [("limit", &*limit), ("after", &*after)])).await
}

async fn read(console: &Console, visit: &Visit, id: &str, after: usize) -> Result<Shown, CallError> {
    let found = fetch(console, visit, id, (PAGE, after)).await?;
    let ids = found.page.items.iter().filter_map(|step| match &step.work {
        StepWork::Call { id, .. } => Some(id.clone()),
        StepWork::Turn { .. } => None,
    });
    let history = console.gateway.history();
    let receipts = history.calls_of_agent(&visit.caller, ids.collect()).await?;
    let filter = IndexFilter { run: Some(found.run.id.clone()), ..IndexFilter::default() };
    let calls = history.latest_calls(&visit.caller, filter, MAX_SUMMED).await?;
    let is_whole = !calls.is_empty() && calls.len() < MAX_SUMMED;
    let tools_cost = is_whole.then(|| calls.iter().map(|found| found.call.cost_usd).sum());
    Ok(Shown { found, receipts, tools_cost })
}

fn show(visit: &Visit, after: usize, shown: &Shown) -> Markup {
    let (texts, Shown { found, receipts, .. }) = (visit.texts(), shown);
    let run = &found.run;
    let title = texts.with("run-title", [("number", run.number.into())]);
    let state = html! {
        (status(&texts, run)) " " code { (format::text(&run.agent)) } " · " (format::moment(&texts, &run.created_at)) " · "
        a href=(conversations::path_of(&run.conversation_id)) { (texts.get("search-conversation")) }
    };
    let rows: Vec<_> =
        found.page.items.iter().enumerate().filter_map(|(at, step)| row(&texts, receipts, step, after + at)).collect();
    frame::page(
        visit,
        Some(Section::Conversations),
        &Head { state: Some(state), ..Head::new(&title) },
        &html! {
            @if run.status == "running" {
                live-page src={ (path_of(&run.id)) "/events" } data-live=(texts.get("live-live")) data-lost=(texts.get("live-lost")) {}
            }
            div #live {
                @if !run.user_input.is_empty() { blockquote.prose { (format::first_line(&run.user_input)) } }
                (sums(&texts, shown))
                (models(&texts, run))
                section aria-labelledby="steps" {
                    h2 #steps { (texts.get("timeline-title")) }
                    @if let Some(axis) = axis(found) { (timeline::show(&texts, "timeline-title", axis, &rows)) }
                    (paging(&texts, &path_of(&run.id), after, found))
                }
            }
            form.filters method="get" action={ (path_of(&run.id)) "/compare" } {
                div.field.wide {
                    label for="with" { (texts.get("run-compare-with")) }
                    input #with type="text" name="with" required autocomplete="off" spellcheck="false";
                }
                button { (texts.get("call-compare")) }
            }
        },
    )
}

fn status(texts: &Texts, run: &RunBody) -> Markup {
    outcome(texts, &run.status, run.error.as_ref().map(|error| (&*error.code, &*error.message)))
}

/// From the beginning of the run to its end, or to now; `None` where its beginning is not readable.
fn axis(found: &TimelineBody) -> Option<Axis> {
    let moment = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
    let until = moment(&found.until).or_else(|| moment(&found.run.ended_at)).unwrap_or_else(Timestamp::now);
    Some(Axis { from: found.run.created_at.parse().ok()?, until })
}

/// The rows of the usage, each an agent with one model.
fn usage_of(run: &RunBody) -> &[Value] {
    run.usage.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

impl Sums {
    fn of(run: &RunBody) -> Self {
        let mut sums = Self::default();
        for row in usage_of(run) {
            let count = |name: &str| row[name].as_u64().unwrap_or_default();
            sums.prompt += count("input_tokens");
            sums.answer += count("output_tokens");
            sums.cached += count("cached_tokens");
            sums.cost += cost_of(row);
        }
        sums
    }
}

fn cost_of(row: &Value) -> Decimal {
    row["cost_usd"].as_str().and_then(|cost| cost.parse().ok()).unwrap_or_default()
}

fn sums(texts: &Texts, shown: &Shown) -> Markup {
    let found = &shown.found;
    let Sums { prompt, answer, cached, cost } = Sums::of(&found.run);
    let took = axis(found).map(|axis| timeline::span(axis.from, axis.until)).unwrap_or_default();
    let mut facts = vec![
        ("call-duration", took),
        ("plan-turns", format::count(found.turns as u64)),
        ("plan-calls", format::count(found.calls as u64)),
        ("costs-input", format::count(prompt)),
        ("costs-cached", format::count(cached)),
        ("costs-output", format::count(answer)),
        ("run-models-cost", format::money(cost)),
    ];
    facts.extend(shown.tools_cost.map(|cost| ("run-tools-cost", format::money(cost))));
    html! { dl.facts { @for (name, value) in facts { div { dt { (texts.get(name)) } dd { (value) } } } } }
}

/// The usage of each agent, where sub-agents or several models have a part in it.
fn models(texts: &Texts, run: &RunBody) -> Markup {
    let rows = usage_of(run);
    let count = |row: &Value, name: &str| format::count(row[name].as_u64().unwrap_or_default());
    let columns = [("num_turns", "plan-turns"), ("input_tokens", "costs-input"), ("output_tokens", "costs-output")];
    html! {
        @if rows.len() > 1 {
            div.scroll tabindex="0" role="group" aria-label=(texts.get("run-models")) {
                table.list.cards {
                    thead { tr {
                        th scope="col" { (texts.get("agent-name")) }
                        th scope="col" { (texts.get("costs-model")) }
                        @for (_, title) in columns { th.number scope="col" { (texts.get(title)) } }
                        th.number scope="col" { (texts.get("call-cost")) }
                    } }
                    tbody { @for row in rows { tr {
                        th scope="row" { (format::name(row["agent"].as_str().unwrap_or_default())) }
                        td { (format::name(row["model"].as_str().unwrap_or_default())) }
                        @for (name, title) in columns { td.number data-label=(texts.get(title)) { (count(row, name)) } }
                        td.number data-label=(texts.get("call-cost")) { (format::money(cost_of(row))) }
                    } } }
                }
            }
        }
    }
}

/// The step of this number, from 0; `None` where its beginning is not readable.
fn row(texts: &Texts, receipts: &Receipts, step: &RunStep, number: usize) -> Option<Row> {
    let (class, sign, state) = match step.state {
        StepState::Running => ("warn", "…", "run-running"),
        StepState::Waits => ("warn", "◷", "plan-waiting"),
        StepState::Succeeded => ("good", "✓", "status-success"),
        StepState::Failed => ("bad", "✕", "status-error"),
        StepState::Unknown => ("warn", "?", "run-unknown"),
    };
    let sign = html! { span title=(texts.get(state)) { (sign) span.unseen { " " (texts.get(state)) } } " " };
    let (class, name, usage, cost) = match &step.work {
        StepWork::Turn { number, text, thinking, hides_thinking, usage } => {
            let class = if step.state == StepState::Running { class } else { "turn" };
            let name = turn(texts, *number, (text, thinking, *hides_thinking));
            (class, name, usage.as_ref(), usage.as_ref().map(|usage| usage.cost_usd))
        }
        StepWork::Call { id, tool, arguments, approval } => {
            let receipt = receipts.get(id);
            let link = receipt.map(|receipt| calls::path_of(receipt.id));
            let name = call(texts, (tool, link.as_deref()), arguments, approval.as_deref());
            (class, name, None, receipt.map(|receipt| receipt.cost_usd))
        }
    };
    Some(Row {
        id: Some(format!("s{number}")),
        depth: step.depth,
        class,
        name: html! { (sign) (name) },
        begun: step.begun_at.parse().ok()?,
        ended: step.ended_at.as_deref().and_then(|ended| ended.parse().ok()),
        tokens: usage.map(|Used { prompt_tokens, completion_tokens, .. }| (*prompt_tokens, *completion_tokens)),
        cost,
    })
}

fn turn(texts: &Texts, number: usize, (text, thinking, hides_thinking): (&str, &str, bool)) -> Markup {
    html! {
        (texts.with("run-turn", [("number", number.into())]))
        @if !text.is_empty() {
            @let (first, whole) = (format::first_line(text), format::text(text));
            @if *first == *whole { p.prose { (whole) } }
            @else { details { summary { (first) } div.prose { (whole) } } }
        }
        @if !thinking.trim().is_empty() {
            details.thought { summary { (texts.get("chat-thought")) } div.prose.quiet { (format::text(thinking)) } }
        }
        @if hides_thinking { p.quiet.small { (texts.get("run-thinking-hidden")) } }
    }
}

fn call(texts: &Texts, (tool, link): (&str, Option<&str>), arguments: &str, approval: Option<&str>) -> Markup {
    html! {
        @match link { Some(link) => a href=(link) { (format::name(tool)) }, None => (format::name(tool)) }
        @if let Some(approval) = approval { " " a.small href=(approvals::path_of(approval)) { (texts.get("chat-approval")) } }
        @if !matches!(arguments, "" | "{}") {
            details { summary { (texts.get("call-arguments")) } pre tabindex="0" { code { (pretty(arguments)) } } }
        }
    }
}

/// The links to the steps before and after the page.
fn paging(texts: &Texts, path: &str, after: usize, found: &TimelineBody) -> Markup {
    let address = |after: usize| format!("{path}?after={after}#steps");
    html! {
        @if after > 0 || found.page.next.is_some() {
            nav.paging aria-label=(texts.get("paging-label")) {
                @if after > 0 { a rel="prev" href=(address(after.saturating_sub(PAGE))) { "← " (texts.get("paging-back")) } }
                @if found.page.next.is_some() { a rel="next" href=(address(after.saturating_add(PAGE))) { (texts.get("paging-next")) " →" } }
            }
        }
    }
}

#[cfg(test)]
mod tests;
