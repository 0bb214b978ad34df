//! The outcome of a run, gathered from the loop's events.

use rust_decimal::prelude::ToPrimitive;

use super::live::{LiveRun, StopCause};
use super::request::RunReply;
use super::run_event::{EventUsage, RunEvent, general};
use crate::message::ToolMessage;
use crate::usage::AgentUsage;
use crate::{Event, FinishReason, Message, PausedCall, RunUsage};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_store::{ConversationRun, ModelUsageRow, RunStatus, StoredError};

/// The status event of the loop for a run that took too long.
const OUT_OF_TIME: &str = "max_run_seconds";

#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The text since the last tool call.
    pub(super) text: String,
    /// The messages that the loop added to the conversation.
    pub(super) messages: Vec<Message>,
    /// Answers of calls for which the run before paused.
    pub(super) answers: Vec<ToolMessage>,
    /// Calls for which this one pauses.
    approvals: Vec<PausedCall>,
    pub(super) used: RunUsage,
    reason: Option<FinishReason>,
    /// The limit that ended the run, and a sentence about it.
    limit: Option<(String, String)>,
    pub(super) error: Option<CallError>,
}

impl Outcome {
    /// A run that the loop refused to begin.
    pub(super) fn refused(error: CallError) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    pub(super) fn record(&mut self, event: Event) {
        match event {
            Event::Content { text } => self.text.push_str(&text),
            // Text before a call is not the answer.
            Event::ToolInput { .. } => self.text.clear(),
            Event::Error(error) => self.error = Some(general(&error)),
            Event::Status { status, message } => self.limit = Some((status, message)),
            Event::Finished { reason, messages } => (self.reason, self.messages) = (Some(reason), messages),
            Event::Usage(used) => self.used = used,
            Event::Approval(paused) => self.approvals.push(paused),
            Event::Resumed { answer } => self.answers.push(answer),
            Event::Thinking { .. }
            | Event::ToolResult { .. }
            | Event::ToolError { .. }
            | Event::SubAgentBegin { .. }
            | Event::SubAgentText { .. }
            | Event::SubAgentEnd { .. }
            | Event::ClientToolCall { .. }
            | Event::Compacted { .. }
            | Event::Retry { .. }
            | Event::PartFailed(_)
            | Event::Plan { .. }
            | Event::Step { .. }
            | Event::Evaluation { .. }
            | Event::Node { .. } => {}
        }
    }

    /// Takes the tokens and costs of the whole run over, and returns a row for each agent and model.
    pub(super) fn count(&mut self, usage: Vec<AgentUsage>, agent: &str, model: &str) -> Vec<ModelUsageRow> {
        if usage.is_empty() {
            // The run did not begin.
            return vec![ModelUsageRow { agent: agent.to_owned(), model: model.to_owned(), used: self.used.clone() }];
        }
        let mut total = RunUsage::default();
        usage.iter().for_each(|row| total.add(&row.used));
        let RunUsage { turns, tool_calls, duration_ms, .. } = self.used;
        self.used = RunUsage { turns, tool_calls, duration_ms, ..total };
        rows_of(usage)
    }

    /// How the run ended, and why, if not with an answer.
    pub(super) fn status(&self, run: &LiveRun) -> (RunStatus, Option<StoredError>) {
        let error =
            |code: &str, message: &str| Some(StoredError { code: code.to_owned(), message: message.to_owned() });
        if let Some(failure) = &self.error {
            return (RunStatus::Failed, error(failure.code().as_str(), failure.message()));
        }
        match (self.reason, &self.limit) {
            (Some(FinishReason::Stop | FinishReason::Length), _) => (RunStatus::Succeeded, None),
            (Some(FinishReason::ApprovalRequired), pause) => {
                let message = pause.as_ref().map_or("", |(_, message)| message);
                (RunStatus::Paused, error(ErrorCode::ApprovalRequired.as_str(), message))
            }
            (Some(FinishReason::Limit), Some((status, message))) if status == OUT_OF_TIME => {
                (RunStatus::TimedOut, error(ErrorCode::Timeout.as_str(), message))
            }
            (Some(FinishReason::Limit), Some((status, message))) => (RunStatus::Failed, error(status, message)),
            (Some(FinishReason::Refusal), _) => {
                (RunStatus::Failed, error("refusal", "the model's provider withheld the answer"))
            }
            (Some(FinishReason::Aborted) | None, _) if run.cause() == StopCause::TimeOut => {
                (RunStatus::TimedOut, error(ErrorCode::Timeout.as_str(), run.cause().message()))
            }
            (Some(FinishReason::Aborted) | None, _) => {
                (RunStatus::Cancelled, error(ErrorCode::Cancelled.as_str(), run.cause().message()))
            }
            (Some(FinishReason::ToolCalls | FinishReason::Error | FinishReason::Limit), _) => {
                (RunStatus::Failed, error(ErrorCode::Internal.as_str(), "the run failed"))
            }
        }
    }

    pub(super) fn reply(self, run: &ConversationRun, title: Option<String>) -> RunReply {
        let (used, is_paused) = (&self.used, run.status == RunStatus::Paused);
        RunReply {
            run_id: run.id.clone(),
            conversation_id: run.conversation.clone(),
            status: run.status.as_str().to_owned(),
            title,
            result: self.text,
            is_error: !is_paused && run.status != RunStatus::Succeeded,
            errors: run.error.iter().filter(|_| !is_paused).map(|error| error.message.clone()).collect(),
            approvals: if is_paused { self.approvals } else { Vec::new() },
            usage: EventUsage::from(used),
            total_cost_usd: used.cost_usd.to_f64().unwrap_or_default(),
            num_turns: used.turns,
            duration_ms: used.duration_ms,
            session_id: run.session_id.clone(),
        }
    }
}

/// A row for each agent and model, in an order that stays.
pub(super) fn rows_of(usage: Vec<AgentUsage>) -> Vec<ModelUsageRow> {
    let row =
        |AgentUsage { agent, model, used }| ModelUsageRow { agent: agent.to_string(), model: model.to_string(), used };
    usage.into_iter().map(row).collect()
}

impl RunReply {
    /// The last event but one.
    pub(super) fn event(&self) -> RunEvent {
        let reply = self.clone();
        RunEvent::Result {
            result: reply.result,
            is_error: reply.is_error,
            errors: reply.errors,
            usage: reply.usage,
            total_cost_usd: reply.total_cost_usd,
            num_turns: reply.num_turns,
            duration_ms: reply.duration_ms,
            session_id: reply.session_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_stopped_says_why() {
        for (cause, expected) in [
            (StopCause::TimeOut, (RunStatus::TimedOut, "timeout")),
            (StopCause::Request, (RunStatus::Cancelled, "cancelled")),
            (StopCause::LockLost, (RunStatus::Cancelled, "cancelled")),
        ] {
            let run = LiveRun::for_tests();
            run.stop(cause);
            let mut outcome = Outcome::default();
            outcome.record(Event::Finished { reason: FinishReason::Aborted, messages: Vec::new() });
            let (status, error) = outcome.status(&run);
            let error = error.unwrap();
            assert_eq!((status, &*error.code, &*error.message), (expected.0, expected.1, cause.message()));
        }
    }

    #[test]
    fn a_run_that_pauses_has_not_failed() {
        let mut outcome = Outcome::default();
        outcome.record(Event::Status { status: "approval_required".into(), message: "it is paused".into() });
        outcome.record(Event::Finished { reason: FinishReason::ApprovalRequired, messages: Vec::new() });
        let (status, error) = outcome.status(&LiveRun::for_tests());
        let error = error.unwrap();
        assert_eq!((status, &*error.code, &*error.message), (RunStatus::Paused, "approval_required", "it is paused"));
    }
}
