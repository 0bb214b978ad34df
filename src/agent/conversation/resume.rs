//! Calls of an earlier run that were sent and have no answer: repeated where that does no harm, or where a person says so;
//! of the others the model learns that they may have happened.

use std::sync::Arc;

use super::context::Context;
use super::history::{MAY_HAVE_HAPPENED, OpenCall};
use super::journal::{Journaled, message_of};
use super::live::UnknownCall;
use super::run_event::RunEvent;
use super::{ConversationRuns, Decision, OnUnknown, add};
use crate::agent::Toolbox;
use crate::agent::message::ToolMessage;
use crate::agent::toolbox::ToolboxCall;
use crate::core::error::CallError;
use crate::infra::store::{Store, ToolExecution};

/// The answers that the journal has, and a sentence for each other call.
///
/// # Errors
/// `internal`: the store cannot be used.
pub(super) async fn known_answers(store: &Store, open: &[OpenCall]) -> Result<Vec<ToolMessage>, CallError> {
    let mut answers = Vec::new();
    for call in open {
        let known = execution(store, call).await?.and_then(|found| Some(message_of(&found, found.output.as_ref()?)));
        answers.push(known.unwrap_or_else(|| may_have_happened(call)));
    }
    Ok(answers)
}

impl ConversationRuns {
    /// Answers the calls that the run before left open.
    pub(super) async fn answer_open_calls(&self, context: &mut Context) -> Result<(), CallError> {
        for open in std::mem::take(&mut context.open) {
            let answer = match execution(self.store(), &open).await? {
                Some(ToolExecution { output: None, .. }) if self.is_to_repeat(context, &open).await => {
                    repeat(self.store(), context, &open).await?
                }
                Some(found) => found.output.as_ref().map(|outcome| message_of(&found, outcome)),
                None => None,
            };
            context.answers.push(answer.unwrap_or_else(|| may_have_happened(&open)));
        }
        Ok(())
    }

    async fn is_to_repeat(&self, context: &Context, open: &OpenCall) -> bool {
        let request = &context.request;
        let (tool, admitted) = (&open.call.tool, request.profile.tools.admits(&open.call.tool));
        if !admitted || open.call.read_arguments().is_err() || context.live.stop.is_cancelled() {
            return false;
        }
        // Of a sub-agent, or of a tool that is gone, nothing could be sent again.
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
    let executions = store.tool_executions(&open.run).await.map_err(CallError::from)?;
    Ok(executions.into_iter().find(|execution| execution.tool_use_id == open.call.id))
}

fn may_have_happened(open: &OpenCall) -> ToolMessage {
    ToolMessage {
        call_id: open.call.id.clone(),
        tool: open.call.tool.clone(),
        text: MAY_HAVE_HAPPENED.to_owned(),
        images: Vec::new(),
        is_error: true,
    }
}
