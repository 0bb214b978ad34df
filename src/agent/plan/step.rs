//! The nodes at which the agent runs a step with its tools, and makes an observation of the result.

use futures_util::StreamExt;
use serde_json::{Map, Value};

use super::inputs::step_input;
use super::interrupted::MAY_HAVE_HAPPENED;
use super::nodes::{MAX_ANSWER, WITHOUT_TOOLS};
use super::observation;
use super::state::{CallMade, Node, PlanState, StepRun, StepStatus, is_hopeless};
use super::work::Work;
use crate::{Event, FinishReason, PartOfPlan, RunError};
use sekisho_core::failpoint;

/// The agent runs the step with its tools. A run that another process began gets the list of its calls so far, and
/// sends none of them again.
pub(super) async fn executor_run_mcp(work: &Work, state: &mut PlanState) -> Result<(), RunError> {
    let input = step_input(state);
    state.run = StepRun::after(std::mem::take(&mut state.run));
    work.keep(state).await?;
    let part = PartOfPlan::Attempt(state.total_attempts);
    let toolbox = work.step_toolbox(state.total_attempts, &state.run.calls);
    let begun = work.begin_with(toolbox, work.step_profile(state), input, part, None).await;
    let mut hopeless = None;
    match begun {
        Ok(mut events) => {
            while let Some(event) = events.next().await {
                match event {
                    // The usage of the run follows.
                    Event::Error(error) if is_hopeless(&error) => hopeless = Some(error),
                    event => record(work, state, event).await?,
                }
            }
        }
        Err(error) => state.run.failure = Some(error.message().to_owned()),
    }
    if let Some(error) = hopeless {
        return Err(error);
    }
    state.run.ended = true;
    state.node = Node::ExecutorProcessResult;
    Ok(())
}

/// Keeps an event of a step's run, and tells it. Answered calls are in the store before anything follows from them.
async fn record(work: &Work, state: &mut PlanState, event: Event) -> Result<(), RunError> {
    match event {
        Event::Content { text } => {
            state.run.text.push_str(&text);
            // The answer of the plan is its content.
            work.send(Event::Thinking { text }).await;
        }
        Event::ToolInput { ref id, ref tool_name, ref arguments } => {
            begin_call(work, state, (id, tool_name), arguments).await?;
            work.send(event).await;
        }
        Event::ToolResult { ref id, ref tool_name, result: ref answer }
        | Event::ToolError { ref id, ref tool_name, error: ref answer } => {
            let failed = matches!(event, Event::ToolError { .. });
            end_call(work, state, (id, tool_name), answer, failed).await?;
            work.send(event).await;
        }
        Event::Error(error) => {
            state.run.failure = Some(error.message.clone());
            // The plan goes on (A71).
            work.send(Event::PartFailed(error)).await;
        }
        Event::Status { status, message } if status == WITHOUT_TOOLS => {
            work.send(Event::Status { status, message }).await;
        }
        Event::Status { message, .. } => state.run.failure = Some(message),
        Event::Finished { reason, .. } if reason != FinishReason::Stop && state.run.failure.is_none() => {
            state.run.failure = Some(format!("the run ended without an answer: {}", reason.as_str()));
        }
        Event::Usage(used) => state.count(&used),
        Event::Thinking { .. } | Event::Retry { .. } => work.send(event).await,
        _ => {}
    }
    Ok(())
}

/// Keeps a call that is about to be sent.
async fn begin_call(
    work: &Work,
    state: &mut PlanState,
    (id, tool): (&str, &str),
    arguments: &Map<String, Value>,
) -> Result<(), RunError> {
    state.run.text.clear();
    let key = Some(work.key_of(state.total_attempts, id));
    let arguments = Value::Object(arguments.clone()).to_string();
    state.current_mut().iter_mut().for_each(|step| step.calls.begin(id, tool));
    let (id, tool) = (id.to_owned(), tool.to_owned());
    state.begin_call(CallMade { id, key, tool, arguments, answer: None, failed: false, earlier: false });
    failpoint::reach("plan.call.intent");
    work.keep(state).await?;
    failpoint::reach("plan.call.begun");
    Ok(())
}

/// Keeps the answer of a call.
async fn end_call(
    work: &Work,
    state: &mut PlanState,
    (id, tool): (&str, &str),
    answer: &str,
    failed: bool,
) -> Result<(), RunError> {
    match state.run.calls.iter_mut().find(|call| call.id == id) {
        Some(call) => (call.answer, call.failed) = (Some(answer.to_owned()), failed),
        // The loop refused its arguments, and it was not sent.
        None => {
            let (id, tool, answer) = (id.to_owned(), tool.to_owned(), Some(answer.to_owned()));
            let arguments = String::new();
            state.begin_call(CallMade { id, key: None, tool, arguments, answer, failed, earlier: false });
        }
    }
    // A call that may have happened has not failed.
    if answer != MAY_HAVE_HAPPENED {
        state.current_mut().iter_mut().for_each(|step| step.calls.end(id, failed));
    }
    failpoint::reach("plan.call.answered");
    work.keep(state).await?;
    failpoint::reach("plan.call.recorded");
    Ok(())
}

/// Makes the observation of the step's run.
pub(super) async fn executor_process_result(work: &Work, state: &mut PlanState) -> Result<(), RunError> {
    let status = if state.run.failure.is_some() { StepStatus::Failed } else { StepStatus::Completed };
    let answer = observation::step_answer(state);
    state.last_observation = observation::observation(work, state, &answer).await;
    for step in state.current_mut() {
        step.status = status;
        answer.clone_into(&mut step.result);
    }
    for call in &mut state.run.calls {
        if let Some(answer) = &mut call.answer {
            answer.truncate(answer.floor_char_boundary(MAX_ANSWER));
        }
    }
    state.node = Node::MemoryUpdate;
    Ok(())
}
