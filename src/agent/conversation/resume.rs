//! Calls of an earlier run that have no answer. Calls for which it paused are made, once that is decided. Calls that
//! were sent are repeated where that does no harm, or where a person says so; about the others the model learns that
//! they may have happened.

use std::sync::Arc;

use super::context::Context;
use super::history::{MAY_HAVE_HAPPENED, NOT_MADE, OpenCall};
use super::journal::{Journaled, message_of};
use super::live::UnknownCall;
use super::run_event::RunEvent;
use super::{ConversationRuns, Decision, OnUnknown, RunRequest, add};
use crate::Toolbox;
use crate::message::ToolMessage;
use crate::toolbox::ToolboxCall;
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::{Store, ToolExecution, ToolOutcome};

/// The answers that the journal has, and a sentence for each other call. If the user has not said anything since
/// (`is_followed`), calls for which their run paused stay open: the next run makes them.
/// Errors: `internal`: the store cannot be used.
pub(super) async fn known_answers(
    store: &Store,
    open: &[OpenCall],
    is_followed: bool,
) -> Result<Vec<ToolMessage>, CallError> {
    let mut answers = Vec::new();
    for call in open {
        let found = execution(store, call).await?;
        if is_followed || !is_paused(call, found.as_ref()) {
            answers.push(known_answer(call, found.as_ref()));
        }
    }
    Ok(answers)
}

/// Ends in the journal the calls for which a run paused, and which were answered without being made.
/// Errors: `internal`: the store cannot be used.
pub(super) async fn end_calls_not_made(
    store: &Store,
    paused: &[OpenCall],
    answers: &[ToolMessage],
) -> Result<(), CallError> {
    for open in paused {
        let Some(answer) = answers.iter().find(|answer| answer.call_id == open.call.id) else { continue };
        if !is_paused(open, execution(store, open).await?.as_ref()) {
            continue;
        }
        let text = answer.text.strip_prefix("Error: ").unwrap_or(&answer.text).to_owned();
        let outcome = ToolOutcome { text, images: None, is_error: true };
        let ended = store
            .conversation_runs()
            .end_tool_execution((&open.run, &open.call.id), &outcome, &[], Some(store.now()))
            .await;
        ended.map_err(CallError::from)?;
    }
    Ok(())
}

impl ConversationRuns {
    /// Whether a run goes on with calls of the run before, where the user says nothing.
    /// Errors: `invalid_request`: there are none; `approval_required`: nobody has decided about them.
    pub(super) async fn check_resumes(&self, request: &RunRequest, open: &[OpenCall]) -> Result<(), CallError> {
        if request.user_input.is_some() || request.goes_on.is_some() {
            return Ok(());
        }
        let (approvals, mut needed) = (&self.gateway().pipeline.approvals, None);
        let paused = open.iter().filter_map(|open| open.call.approval.as_ref());
        // A plan begins with a goal, and not with calls.
        for approval in paused.filter(|_| request.profile.planner.is_none()) {
            match approvals.undecided(approval).await {
                Ok(Some(undecided)) => needed = Some(undecided),
                // The call itself finds out the decision.
                Ok(None) | Err(_) => return Ok(()),
            }
        }
        let Some(needed) = needed else {
            let message =
                "no call of the conversation waits for an approver; send `user_input`, which describes the task";
            return Err(CallError::new(ErrorCode::InvalidRequest, message));
        };
        let message = format!(
            "the run is paused until a person decides at {}: send the request again then, or `user_input` to go on without the \
             call",
            needed.url
        );
        Err(CallError::new(ErrorCode::ApprovalRequired, message).needing(needed))
    }

    /// Errors: `invalid_request`: the run is to go on where another one ended, after which a later request has gone on.
    pub(super) async fn check_goes_on(&self, request: &RunRequest) -> Result<(), CallError> {
        let Some(before) = &request.goes_on else { return Ok(()) };
        let last = self.store().conversation_runs().of_conversation(&request.conversation.id, None, 1).await;
        if last.map_err(CallError::from)?.first().is_some_and(|last| *last.id == **before) {
            return Ok(());
        }
        let message = "a later request of the conversation has gone on where the process of the run ended";
        Err(CallError::new(ErrorCode::InvalidRequest, message))
    }

    /// Answers the calls that the run before left open, but for the calls for which it paused, unless this one is a
    /// plan.
    pub(super) async fn answer_open_calls(&self, context: &mut Context) -> Result<(), CallError> {
        for open in std::mem::take(&mut context.open) {
            let found = execution(self.store(), &open).await?;
            if is_paused(&open, found.as_ref()) {
                context.paused.push(open.clone());
                // A plan begins with a goal, and not with calls: they are answered, and end in the journal with the run.
                if context.request.profile.planner.is_none() {
                    context.journal.resume(&open);
                    continue;
                }
            }
            let repeated = match &found {
                Some(ToolExecution { output: None, .. }) if self.is_to_repeat(context, &open).await => {
                    repeat(self.store(), context, &open).await?
                }
                _ => None,
            };
            context.answers.push(repeated.unwrap_or_else(|| known_answer(&open, found.as_ref())));
        }
        Ok(())
    }

    async fn is_to_repeat(&self, context: &Context, open: &OpenCall) -> bool {
        let request = &context.request;
        let (tool, admitted) = (&open.call.tool, request.profile.tools.admits(&open.call.tool));
        if !admitted || open.call.read_arguments().is_err() || context.live.stop.is_cancelled() {
            return false;
        }
        // Calls of a sub-agent, or of a tool that is gone, cannot be sent again.
        let Ok(found) = self.gateway().pipeline.registry.find(tool, &request.caller) else { return false };
        if !request.tenant.has_source(&found.metadata.source) {
            return false;
        }
        if found.metadata.idempotent {
            return true;
        }
        if request.on_unknown == OnUnknown::Tell {
            return false;
        }
        let about = UnknownCall {
            call_id: open.call.id.clone(),
            tool_name: tool.clone(),
            tool_input: open.call.arguments.clone(),
            reason: "the call was sent, and no answer arrived before the run was interrupted: it may have happened"
                .into(),
        };
        add(&context.log, &about.clone().into());
        context.live.ask(about).await == Some(Decision::Repeat)
    }
}

/// Sends a call again, journaled as the call that it was; `None` if the run is stopped before its answer.
async fn repeat(store: &Store, context: &Context, open: &OpenCall) -> Result<Option<ToolMessage>, CallError> {
    let Ok(arguments) = open.call.read_arguments() else { return Ok(None) };
    let (id, tool) = (open.call.id.clone(), open.call.tool.clone());
    let announcement =
        RunEvent::ToolUse { tool_use_id: id.clone(), tool_name: tool.clone(), tool_input: arguments.clone() };
    add(&context.log, &announcement);
    let journal = context.journal.of_earlier_run(&open.run);
    let toolbox = Journaled { toolbox: Arc::clone(&context.toolbox), journal: Arc::clone(&journal) };
    let call = toolbox.call(ToolboxCall::new(id, tool, arguments));
    let answered = context.live.stop.run_until_cancelled(call).await;
    journal.settle().await;
    let found = execution(store, open).await?;
    let answer = found.and_then(|found| Some(message_of(&found, found.output.as_ref()?)));
    if let Some(message) = &answer {
        add(
            &context.log,
            &RunEvent::ToolResult {
                tool_use_id: message.call_id.clone(),
                content: message.text.clone(),
                is_error: answered.is_some_and(|answer| !answer.success),
            },
        );
    }
    Ok(answer)
}

async fn execution(store: &Store, open: &OpenCall) -> Result<Option<ToolExecution>, CallError> {
    let executions = store.conversation_runs().tool_executions(&open.run).await.map_err(CallError::from)?;
    Ok(executions.into_iter().find(|execution| execution.tool_use_id == open.call.id))
}

/// Whether a call is to be made that ended since a person must approve it.
fn is_paused(open: &OpenCall, found: Option<&ToolExecution>) -> bool {
    open.call.approval.is_some() && found.is_some_and(|found| found.output.is_some() && found.ended.is_none())
}

/// The answer in the journal, or a sentence.
fn known_answer(open: &OpenCall, found: Option<&ToolExecution>) -> ToolMessage {
    // Without a row it is a call of the conversation that this one was forked from.
    let was_not_made = open.call.approval.is_some() && found.is_none();
    if was_not_made || is_paused(open, found) {
        return unanswered(open, NOT_MADE);
    }
    let answer = found.and_then(|found| Some(message_of(found, found.output.as_ref()?)));
    answer.unwrap_or_else(|| unanswered(open, MAY_HAVE_HAPPENED))
}

/// A sentence in place of an answer.
fn unanswered(open: &OpenCall, text: &str) -> ToolMessage {
    ToolMessage {
        call_id: open.call.id.clone(),
        tool: open.call.tool.clone(),
        text: text.to_owned(),
        images: Vec::new(),
        is_error: true,
    }
}
