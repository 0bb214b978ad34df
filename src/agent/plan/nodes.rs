//! The nodes of a plan, one function each (B18). Each reads and changes the state, and sets the node that follows.

use futures_util::StreamExt;

use super::branches::{self, Facts};
use super::inputs::{failure, instructions, planner_input, results};
use super::memory::EntryKind;
use super::model_answers::{Decision, EvaluationAnswer, PlanAnswer, ReplanAnswer};
use super::state::{Node, PlanState, PlanStatus, StepRun, StepStatus, Verdict, is_hopeless};
use super::step::{executor_process_result, executor_run_mcp};
use super::verdict;
use super::work::Work;
use crate::models::sampling::has_fixed_temperature;
use crate::prompts::beginning;
use crate::{Event, OutputFormat, PartOfPlan, RunError};
use sekisho_core::error::{CallError, ErrorCode};

/// The status of a run that goes on although the tools cannot be listed.
pub(super) const WITHOUT_TOOLS: &str = "without_tools";

/// Maximum characters of a call's answer in the state.
pub(super) const MAX_ANSWER: usize = 4_000;

/// Does the work of the state's node.
/// Errors: the plan cannot go on: a model failed, or wrote no plan.
pub(super) async fn visit(work: &Work, state: &mut PlanState) -> Result<(), RunError> {
    match state.node {
        Node::PlannerInit => planner_init(work, state).await,
        Node::ExecutorDispatch => executor_dispatch(work, state).await,
        Node::ExecutorRunMcp => executor_run_mcp(work, state).await,
        Node::ExecutorProcessResult => executor_process_result(work, state).await,
        Node::MemoryUpdate => {
            memory_update(state);
            Ok(())
        }
        Node::PlannerEvaluate => planner_evaluate(work, state).await,
        Node::PlannerReplanning => planner_replanning(work, state).await,
        Node::End => end(work, state).await,
    }
}

/// Makes the plan from the goal and the memory (B3); after a failure anew, with its reason (A27).
async fn planner_init(work: &Work, state: &mut PlanState) -> Result<(), RunError> {
    let max_steps = state.planner.max_steps();
    let mut input = planner_input(work, state).await;
    if state.need_replan {
        input.push_str(&failure(state));
    }
    state.planner_requests += 1;
    let part = PartOfPlan::Planner(state.planner_requests);
    let prompt = work.planner_prompt(work.prompts().planner(max_steps), state).await;
    let form = PlanAnswer::format(max_steps);
    let answer: PlanAnswer = read(&ask(work, state, part, prompt, input, form).await?)?;
    answer.success_criteria.clone_into(&mut state.success_criteria);
    state.plan_anew(answer.steps());
    adopt(work, state).await;
    Ok(())
}

/// Records the plan, tells it, and comes to its next step.
async fn adopt(work: &Work, state: &mut PlanState) {
    let lines: String = state.plan.iter().map(|step| format!("{}. {}\n", step.id, step.instruction)).collect();
    state.memory.add(EntryKind::Plan, &lines);
    let steps = state.plan.clone();
    let success_criteria = state.success_criteria.clone();
    work.send(Event::Plan { plan_id: work.id.clone(), steps, success_criteria }).await;
    state.node = Node::ExecutorDispatch;
}

/// Selects the next step, or as many as are run together (B10).
async fn executor_dispatch(work: &Work, state: &mut PlanState) -> Result<(), RunError> {
    let left = state.plan.len().saturating_sub(state.step_idx);
    if left == 0 {
        (state.node, state.outcome) = (Node::End, Some(PlanStatus::Finished));
        return Ok(());
    }
    if state.dispatched == 0 {
        state.dispatched = state.planner.steps_per_dispatch.min(left);
    }
    state.attempts += 1;
    state.total_attempts += 1;
    state.run = StepRun::default();
    for step in state.current_mut() {
        step.status = StepStatus::Executing;
    }
    tell_steps(work, state).await;
    state.node = Node::ExecutorRunMcp;
    Ok(())
}

/// Records action and observation.
fn memory_update(state: &mut PlanState) {
    let step = instructions(state.current());
    let (action, observation) = (action(state), state.last_observation.clone());
    state.memory.add(EntryKind::Action, &format!("{step}: {action}"));
    state.memory.add(EntryKind::Observation, &observation);
    state.node = Node::PlannerEvaluate;
}

/// The calls of the current step, or the step where it made none.
fn action(state: &PlanState) -> String {
    let calls: String = state.run.calls.iter().map(|call| format!("{} {}\n", call.tool, call.arguments)).collect();
    if calls.is_empty() { instructions(state.current()) } else { calls }
}

/// Whether the plan goes in circles: the same action gave the same observation three times, and no step has passed since the first
/// of them. The plan is changed for that, and the second time it is impossible (B16).
fn is_in_circles(state: &mut PlanState, passed: bool) -> bool {
    if passed {
        state.memory.progress_was_made();
        return false;
    }
    let (action, observation) = (action(state), state.last_observation.clone());
    if !state.memory.is_circle(&action, &observation) {
        return false;
    }
    state.impossible = state.memory.circles > 1;
    state.replan_reason = "The same action gave the same observation three times: the plan goes in circles.".into();
    state.memory.add(EntryKind::Thought, &state.replan_reason.clone());
    true
}

/// Evaluates the step by rules or by the model (A23–A25, B4), and takes the branch.
async fn planner_evaluate(work: &Work, state: &mut PlanState) -> Result<(), RunError> {
    let verdict = match verdict::by_rules(state) {
        Some(verdict) => verdict,
        None => evaluation(work, state).await?,
    };
    // A program of the version before has counted a circle in the node before.
    let in_circles = std::mem::take(&mut state.need_replan) | is_in_circles(state, verdict.passed);
    let used_up = !verdict.passed && state.attempts >= state.planner.max_attempts();
    let need_replan = verdict.need_replan || used_up || in_circles;
    let reason = if in_circles { state.replan_reason.clone() } else { verdict.reason.clone() };
    let status = if verdict.passed { StepStatus::Completed } else { StepStatus::Failed };
    for step in state.current_mut() {
        step.status = status;
    }
    tell_steps(work, state).await;
    let (passed, told) = (verdict.passed, beginning(&reason, MAX_ANSWER).to_owned());
    work.send(Event::Evaluation { passed, reason: told, need_replan }).await;
    let outcome = if passed { "passed" } else { "failed" };
    state.memory.add(EntryKind::Thought, &format!("step {}: {outcome}: {reason}", instructions(state.current())));
    let done = state.plan.iter().filter(|step| step.status == StepStatus::Completed).count();
    let progress = format!("{done} of {} steps completed, {} attempts", state.plan.len(), state.total_attempts);
    state.memory.add(EntryKind::Progress, &progress);
    let facts = Facts {
        passed,
        need_replan,
        attempts_used_up: state.total_attempts >= state.planner.max_total_attempts(),
        steps_left: state.steps_left(),
        goal_reached: verdict.goal_reached,
        impossible: verdict.impossible || state.impossible,
    };
    let chosen = branches::choose(&state.branches, facts);
    let reason = if facts.attempts_used_up && !facts.impossible {
        format!("The plan used up its {} attempts. The last one: {reason}", state.planner.max_total_attempts())
    } else {
        reason
    };
    branches::take(state, chosen, &reason);
    Ok(())
}

/// The model's evaluation. If it fails, the step has not passed, and the plan goes on (A71).
async fn evaluation(work: &Work, state: &mut PlanState) -> Result<Verdict, RunError> {
    state.evaluator_requests += 1;
    let part = PartOfPlan::Evaluator(state.evaluator_requests);
    let rest = state.plan.get(state.step_idx + state.dispatched.max(1)..).unwrap_or_default();
    let expected: String = state.current().iter().map(|step| format!("{}\n", step.expected)).collect();
    let input = format!(
        "Goal:\n{}\n\nSuccess criteria:\n{}\n\nStep:\n{}\n\nExpected:\n{expected}\nObservation:\n{}\n\nSteps after it:\n{}",
        state.goal(),
        state.success_criteria,
        instructions(state.current()),
        state.last_observation,
        instructions(rest),
    );
    let prompt = work.prompts().evaluator().to_owned();
    let answer = ask(work, state, part, prompt, input, EvaluationAnswer::format()).await;
    match answer.and_then(|answer| read::<EvaluationAnswer>(&answer)) {
        Ok(answer) => Ok(answer.into()),
        Err(error) if is_hopeless(&error) || work.is_stopped() => Err(error),
        Err(error) => {
            let reason = format!("the step could not be evaluated: {}", error.message);
            work.send(Event::PartFailed(error)).await;
            Ok(Verdict { passed: false, reason, need_replan: false, goal_reached: false, impossible: false })
        }
    }
}

/// Changes the plan: modifies the open steps, discards the failed step, or makes another plan (B5); or finds that
/// nothing helps (B6).
async fn planner_replanning(work: &Work, state: &mut PlanState) -> Result<(), RunError> {
    let max_steps = state.planner.max_steps();
    let lines: String =
        state.plan.iter().map(|step| format!("{}. [{:?}] {}\n", step.id, step.status, step.instruction)).collect();
    let input = format!("{}\nThe plan:\n{lines}{}", planner_input(work, state).await, failure(state));
    state.planner_requests += 1;
    let part = PartOfPlan::Planner(state.planner_requests);
    let prompt = work.planner_prompt(work.prompts().replanner(max_steps), state).await;
    let form = ReplanAnswer::format(max_steps);
    let mut answer: ReplanAnswer = read(&ask(work, state, part, prompt, input, form).await?)?;
    state.memory.add(EntryKind::Thought, &format!("{:?} the plan: {}", answer.decision, answer.reason));
    if let Some(criteria) = answer.success_criteria.take() {
        state.success_criteria = criteria;
    }
    let steps = answer.take_steps();
    if steps.is_empty() && matches!(answer.decision, Decision::New | Decision::Modify) {
        let message = "the planner changed the plan to one without steps";
        return Err(RunError::from(&CallError::new(ErrorCode::InvalidOutput, message)));
    }
    match answer.decision {
        Decision::Impossible => {
            state.reason = answer.reason;
            (state.node, state.outcome) = (Node::End, Some(PlanStatus::Impossible));
            return Ok(());
        }
        Decision::New => state.plan_anew(steps),
        Decision::Modify => {
            keep_completed(state);
            state.change_open_steps(steps);
        }
        Decision::Discard => {
            let discarded = state.dispatched.max(1).min(state.plan.len().saturating_sub(state.step_idx));
            let rest = state.plan.split_off(state.step_idx + discarded);
            keep_completed(state);
            state.change_open_steps(rest.into_iter().map(|step| (step.instruction, step.expected)).collect());
        }
    }
    adopt(work, state).await;
    Ok(())
}

/// Steps of the current dispatch that have passed are not open.
fn keep_completed(state: &mut PlanState) {
    let completed = state.current().iter().take_while(|step| step.status == StepStatus::Completed).count();
    state.step_idx += completed;
}

/// Writes the final answer from the results.
async fn end(work: &Work, state: &mut PlanState) -> Result<(), RunError> {
    let outcome = match state.outcome {
        Some(PlanStatus::Impossible) => format!("The goal was not reached: {}", state.reason),
        _ => "The goal was reached.".to_owned(),
    };
    let results = results(state.done.iter().chain(&state.plan));
    let input = format!(
        "{}Goal:\n{}\n\nSuccess criteria:\n{}\n\n{outcome}\n\nResults:\n{results}",
        state.context,
        state.goal(),
        state.success_criteria
    );
    state.answer.clear();
    let profile = work.own_profile(work.prompts().plan_answer().to_owned());
    let mut events = work
        .begin(profile, input, PartOfPlan::Answer, Some(work.options.clone()))
        .await
        .map_err(|error| RunError::from(&error))?;
    let mut failure = None;
    while let Some(event) = events.next().await {
        match event {
            Event::Content { text } => {
                state.answer.push_str(&text);
                work.send(Event::Content { text }).await;
            }
            Event::Usage(used) => state.used.add(&used),
            Event::Error(error) => failure = Some(error),
            Event::Status { status, message } if status != WITHOUT_TOOLS => {
                failure = Some(RunError::from(&CallError::new(ErrorCode::UpstreamError, message)));
            }
            Event::Thinking { .. } => work.send(event).await,
            _ => {}
        }
    }
    failure.map_or(Ok(()), Err)
}

/// One request of the planner or the evaluator: its answer in the given form, for which the loop asks twice.
async fn ask(
    work: &Work,
    state: &mut PlanState,
    part: PartOfPlan,
    prompt: String,
    input: String,
    format: Result<OutputFormat, CallError>,
) -> Result<String, RunError> {
    let profile = work.own_profile(prompt);
    let options = crate::ModelOptions {
        output: Some(format.map_err(|error| RunError::from(&error))?),
        ..crate::ModelOptions::default()
    };
    let takes_temperature = !has_fixed_temperature(&profile, &options);
    let temperature = state.planner.temperature.filter(|_| takes_temperature);
    let mut events = work
        .begin(profile, input, part, Some(crate::ModelOptions { temperature, ..options }))
        .await
        .map_err(|error| RunError::from(&error))?;
    let (mut text, mut failure) = (String::new(), None);
    while let Some(event) = events.next().await {
        match event {
            Event::Content { text: more } => text.push_str(&more),
            Event::Usage(used) => state.used.add(&used),
            Event::Error(error) => failure = Some(error),
            Event::Status { status, message } if status != WITHOUT_TOOLS => {
                failure = Some(RunError::from(&CallError::new(ErrorCode::UpstreamError, message)));
            }
            Event::Thinking { .. } => work.send(event).await,
            _ => {}
        }
    }
    failure.map_or(Ok(text), Err)
}

fn read<T: serde::de::DeserializeOwned>(answer: &str) -> Result<T, RunError> {
    serde_json::from_str(answer).map_err(|problem| {
        // An answer that the token limit cut is not checked by the loop.
        RunError::from(&CallError::new(ErrorCode::InvalidOutput, format!("the model's JSON cannot be read: {problem}")))
    })
}

async fn tell_steps(work: &Work, state: &PlanState) {
    for step in state.current() {
        work.send(Event::Step { step: step.clone(), attempt: state.attempts }).await;
    }
}
