//! The texts that models are given for the parts of a plan.

use super::state::{PlanState, Step, StepRun, StepStatus};
use super::vectors;
use super::work::Work;
use crate::prompts::beginning;

/// Maximum characters of a call's answer in a text.
const MAX_ANSWER: usize = 4_000;

/// Maximum characters of an earlier result that a step or the answer gets.
const MAX_RESULT: usize = 6_000;

/// The planner's input: the earlier messages, the goal, and the part of the memory that fits.
pub(super) async fn planner_input(work: &Work, state: &PlanState) -> String {
    let (tokens, query) = (state.planner.memory_tokens, format!("{} {}", state.goal(), instructions(state.current())));
    let older: Vec<_> = state.memory.older(tokens).iter().map(|entry| &*entry.text).collect();
    let closest = vectors::closest(work, &older, &query).await;
    let memory = state.memory.brief(tokens, &query, &closest);
    let memory = if memory.is_empty() { memory } else { format!("\n\nWhat happened so far:\n{memory}") };
    format!("{}Goal:\n{}{memory}\n", state.context, state.goal())
}

/// The step that did not succeed, and why the plan must change (A27).
pub(super) fn failure(state: &PlanState) -> String {
    let observation = beginning(&state.last_observation, MAX_RESULT);
    format!(
        "\nThe last step:\n{}\n\nWhat it gave:\n{observation}\n\nWhy the plan must change:\n{}\n",
        instructions(state.current()),
        state.replan_reason
    )
}

/// The input of an agent that carries out a step.
pub(super) fn step_input(state: &PlanState) -> String {
    let completed = state.done.iter().chain(&state.plan).filter(|step| step.status == StepStatus::Completed);
    let earlier = results(completed);
    let earlier = if earlier.is_empty() { earlier } else { format!("\n\nResults of earlier steps:\n{earlier}") };
    let mut steps = String::new();
    for step in state.current() {
        steps.push_str(&format!("{}\nExpected: {}\n", step.instruction, step.expected));
    }
    let again = match (state.run.begun, state.attempts) {
        (true, _) => interrupted(&state.run),
        (false, 2..) => {
            let observation = beginning(&state.last_observation, MAX_RESULT);
            format!("\n\nThe last attempt at this step did not succeed:\n{observation}\nTry another way.")
        }
        _ => String::new(),
    };
    format!("The goal of the whole plan:\n{}{earlier}\n\nStep:\n{steps}{again}", state.goal())
}

/// The calls of an interrupted run: answered calls are not to be repeated, calls without an answer may have happened.
fn interrupted(run: &StepRun) -> String {
    let mut text = "\n\nThis step was begun before and was interrupted. Do not repeat calls that were answered. Calls \
                    without an answer may have happened: check that before you make them again.\n"
        .to_owned();
    for call in &run.calls {
        let answer = match &call.answer {
            Some(answer) => beginning(answer, MAX_ANSWER),
            None => "(no answer: it may have happened)",
        };
        text.push_str(&format!("- {} {}: {answer}\n", call.tool, call.arguments));
    }
    text
}

/// The instructions of steps, one a line.
pub(super) fn instructions(steps: &[Step]) -> String {
    steps.iter().map(|step| step.instruction.as_str()).collect::<Vec<_>>().join("\n")
}

/// The results of the steps that were run.
pub(super) fn results<'a>(steps: impl Iterator<Item = &'a Step>) -> String {
    let run = steps.filter(|step| matches!(step.status, StepStatus::Completed | StepStatus::Failed));
    run.map(|step| {
        let status = if step.status == StepStatus::Completed { "" } else { " (failed)" };
        format!("- {}{status}: {}\n", step.instruction, beginning(&step.result, MAX_RESULT))
    })
    .collect()
}
