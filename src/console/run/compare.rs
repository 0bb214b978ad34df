//! Two runs side by side: their sums, their answers, and the first step in which they differ.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::{PAGE, Sums, axis, fetch, path_of, status};
use crate::frame::{self, Head, Section};
use crate::text::Texts;
use crate::visit::{Address, Visit};
use crate::{Console, format, timeline};
use sekisho_agent::conversation::timeline::{RunStep, StepWork};
use sekisho_agent_api::TimelineBody;
use sekisho_core::error::CallError;

/// Steps of each run that are compared.
const MAX_COMPARED: usize = 500;

/// The field of the address.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Compared {
    /// The id of the other run.
    with: String,
}

/// `GET /console/runs/{id}/compare`.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Path(id): Path<String>,
    Address(compared): Address<Compared>,
) -> Response {
    let page = fetch_both(&console, &visit, &id, compared.with.trim()).await.map(|runs| show(&visit, &runs));
    visit.answer(page)
}

async fn fetch_both(console: &Console, visit: &Visit, one: &str, other: &str) -> Result<[TimelineBody; 2], CallError> {
    let steps = (MAX_COMPARED, 0);
    Ok([fetch(console, visit, one, steps).await?, fetch(console, visit, other, steps).await?])
}

fn show(visit: &Visit, runs: &[TimelineBody; 2]) -> Markup {
    let texts = visit.texts();
    let title = texts.get("run-compare-title");
    let [one, other] = runs.each_ref().map(|run| &*run.page.items);
    let first = first_difference(one, other);
    let is_partial = runs.iter().any(|run| run.page.next.is_some());
    frame::page(
        visit,
        Some(Section::Conversations),
        &Head::new(&title),
        &html! {
            div.scroll tabindex="0" role="region" aria-label=(title) {
                table.compare {
                    thead { tr {
                        th scope="col" { (texts.get("call-compare-value")) }
                        @for run in runs { th scope="col" { (head(&texts, run)) } }
                    } }
                    tbody {
                        @for (name, [one, other]) in facts(&texts, runs) {
                            tr {
                                th scope="row" { (texts.get(name)) }
                                @let differ = one != other;
                                td.before[differ] { (one) }
                                td.after[differ] { (other) }
                            }
                        }
                        @if let Some(at) = first {
                            tr {
                                th scope="row" { (texts.with("run-first-difference", [("number", (at + 1).into())])) }
                                td.before { (step(&texts, &runs[0], at)) }
                                td.after { (step(&texts, &runs[1], at)) }
                            }
                        }
                    }
                }
            }
            @if first.is_none() { p { (texts.get("run-compare-equal")) } }
            @if is_partial { p.quiet { (texts.with("run-compare-partial", [("n", MAX_COMPARED.into())])) } }
        },
    )
}

fn head(texts: &Texts, found: &TimelineBody) -> Markup {
    let run = &found.run;
    html! {
        a href=(path_of(&run.id)) { (texts.with("run-title", [("number", run.number.into())])) } " "
        (status(texts, run)) " " code { (format::text(&run.agent)) } " " (format::moment(texts, &run.created_at))
    }
}

/// The ids of the names of the sums, with the values of both.
fn facts(texts: &Texts, runs: &[TimelineBody; 2]) -> Vec<(&'static str, [String; 2])> {
    let both = |value: &dyn Fn(&TimelineBody) -> String| runs.each_ref().map(value);
    vec![
        ("run-request", both(&|run| format::first_line(&run.run.user_input))),
        ("call-duration", both(&|run| axis(run).map(|axis| timeline::span(axis.from, axis.until)).unwrap_or_default())),
        ("plan-turns", both(&|run| format::count(run.turns as u64))),
        ("plan-calls", both(&|run| format::count(run.calls as u64))),
        ("costs-input", both(&|run| format::count(Sums::of(&run.run).prompt))),
        ("costs-output", both(&|run| format::count(Sums::of(&run.run).answer))),
        ("run-models-cost", both(&|run| format::money(Sums::of(&run.run).cost))),
        ("chat-answer", both(&|run| answer(texts, run))),
    ]
}

/// The text of the last turn.
fn answer(texts: &Texts, found: &TimelineBody) -> String {
    let text = found.page.items.iter().rev().find_map(|step| match &step.work {
        StepWork::Turn { text, .. } => Some(text),
        StepWork::Call { .. } => None,
    });
    let text = text.filter(|text| !text.is_empty()).map(|text| format::text(text).into_owned());
    text.unwrap_or_else(|| texts.get("overview-nothing").into_owned())
}

/// The first step that the runs do not share: turns by their text, calls by tool, arguments and state.
fn first_difference(one: &[RunStep], other: &[RunStep]) -> Option<usize> {
    let differs = |(one, other): (&RunStep, &RunStep)| match (&one.work, &other.work) {
        (StepWork::Turn { text, .. }, StepWork::Turn { text: of_other, .. }) => text != of_other,
        (
            StepWork::Call { tool, arguments, .. },
            StepWork::Call { tool: tool_of_other, arguments: arguments_of_other, .. },
        ) => (one.state, tool, arguments) != (other.state, tool_of_other, arguments_of_other),
        _ => true,
    };
    let shared = one.len().min(other.len());
    let found = one.iter().zip(other).position(differs);
    found.or_else(|| (one.len() != other.len()).then_some(shared))
}

/// The step of this number, which leads to its place in its run.
fn step(texts: &Texts, found: &TimelineBody, at: usize) -> Markup {
    let Some(step) = found.page.items.get(at) else { return html! { "–" } };
    let address = format!("{}?after={}#s{at}", path_of(&found.run.id), at / PAGE * PAGE);
    let (name, text) = match &step.work {
        StepWork::Turn { number, text, .. } => {
            (texts.with("run-turn", [("number", (*number).into())]).into_owned(), text)
        }
        StepWork::Call { tool, arguments, .. } => (format::text(tool).into_owned(), arguments),
    };
    html! { a href=(address) { (name) } " " code { (format::first_line(text)) } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_agent::conversation::timeline::StepState;

    fn step(state: StepState, work: StepWork) -> RunStep {
        let moment = "2026-01-01T00:00:00Z".to_owned();
        RunStep { depth: 0, state, begun_at: moment.clone(), ended_at: Some(moment), work }
    }

    fn turn(text: &str) -> RunStep {
        let (text, thinking) = (text.to_owned(), String::new());
        step(StepState::Succeeded, StepWork::Turn { number: 1, text, thinking, hides_thinking: false, usage: None })
    }

    fn call(id: &str, arguments: &str, state: StepState) -> RunStep {
        let (id, tool, arguments) = (id.to_owned(), "add".to_owned(), arguments.to_owned());
        step(state, StepWork::Call { id, tool, arguments, approval: None })
    }

    #[test]
    fn the_first_step_that_differs_is_found() {
        let good = |id, arguments| call(id, arguments, StepState::Succeeded);
        let base = || vec![turn("so"), good("1", "{}"), turn("done")];
        for (other, found) in [
            // Ids of calls are never the same.
            (vec![turn("so"), good("2", "{}"), turn("done")], None),
            (vec![turn("so"), good("1", "{\"a\":1}"), turn("done")], Some(1)),
            (vec![turn("so"), call("1", "{}", StepState::Failed), turn("done")], Some(1)),
            (vec![turn("so"), turn("done")], Some(1)),
            (vec![turn("so"), good("1", "{}"), turn("other")], Some(2)),
            (vec![turn("so"), good("1", "{}")], Some(2)),
            (vec![], Some(0)),
        ] {
            assert_eq!(first_difference(&base(), &other), found, "{other:?}");
        }
        assert_eq!(first_difference(&[], &[]), None);
    }
}
