//! The outcome of a call goes into the values of its session, by which later calls are judged.

use std::sync::Arc;

use super::Pipeline;
use super::receipt::{Answer, Reply};
use crate::flow::Ended;
use crate::tool::{JudgedCall, Tool};
use sekisho_core::call::{CallContext, RESULT_TOOL, Stage};
use sekisho_core::error::CallError;
use sekisho_core::guard_finding::is_labelled;

impl Pipeline {
    /// Adds a result, or the text of a call that failed once it was sent. A stored result has the labels of the tool that made it.
    /// `is_labelled`: a guard has found something in it, so that it is text of strangers.
    pub(super) fn add_to_session(
        &self,
        call: &CallContext,
        tool: &Tool,
        judged: Option<&JudgedCall>,
        (outcome, is_labelled): (Result<&Answer, &CallError>, bool),
    ) {
        match outcome {
            Ok(answer) => {
                let made_by = self.maker_of(tool, answer);
                let ended = Ended::Answered { value: tool.value_of(&answer.output), text: &answer.text };
                let made_by = made_by.as_deref().unwrap_or(tool);
                self.flow.ended(call, tool, (made_by, is_labelled), judged, ended);
            }
            Err(error) if matches!(error.stage(), Some(Stage::Execute | Stage::Accept)) => {
                let ended = Ended::Failed { message: error.message(), output: error.output() };
                self.flow.ended(call, tool, (tool, is_labelled), judged, ended);
            }
            // Other refusals have no text from outside.
            Err(_) => {}
        }
    }

    /// Adds the reply of the same call before, which may have been of another session.
    pub(super) fn add_replayed(&self, call: &CallContext, reply: &Reply) {
        if let Ok(tool) = self.registry.find_for(call) {
            let is_labelled = is_labelled(&reply.receipt.guards);
            self.add_to_session(call, &tool, None, (reply.outcome.as_ref(), is_labelled));
        }
    }

    fn maker_of(&self, tool: &Tool, answer: &Answer) -> Option<Arc<Tool>> {
        let name = answer.metadata.get(RESULT_TOOL).filter(|_| tool.metadata.reads_results())?;
        self.registry.snapshot().get(name.as_str()?).cloned()
    }
}
