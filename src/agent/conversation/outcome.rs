//! The outcome of a run, gathered from the loop's events, and the conversation's events for them.

use std::collections::HashSet;

use rust_decimal::prelude::ToPrimitive;
use serde_json::{Map, json};

use super::live::{LiveRun, StopCause};
use super::request::RunReply;
use super::run_event::{EventUsage, RunEvent, general};
use crate::message::ToolMessage;
use crate::usage::AgentUsage;
use crate::{Event, FinishReason, Message, PausedCall, RunError, RunUsage};
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
    /// The ids of calls that have a `tool_use` event.
    announced: HashSet<String>,
}

impl Outcome {
    /// A run that the loop refused to begin.
    pub(super) fn refused(error: CallError) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    /// Adds an event of the loop. `show` gets the conversation's events for it (C16); none for those of the run's end.
    pub(super) fn record(&mut self, event: Event, mut show: impl FnMut(RunEvent)) {
        let is_error = matches!(event, Event::ToolError { .. });
        match event {
            Event::Content { text } => {
                self.text.push_str(&text);
                show(RunEvent::TextDelta { text, parent_tool_use_id: None });
            }
            Event::Thinking { text } => show(RunEvent::Thinking { thinking: text }),
            Event::ToolInput { id, tool_name, arguments } => {
                // Text before a call is not the answer.
                self.text.clear();
                self.announced.insert(id.clone());
                show(RunEvent::ToolUse { tool_use_id: id, tool_name, tool_input: arguments });
            }
            Event::ToolResult { id, tool_name, result: content }
            | Event::ToolError { id, tool_name, error: content } => {
                // A call whose arguments the loop refused was not announced.
                if self.announced.insert(id.clone()) {
                    show(RunEvent::ToolUse { tool_use_id: id.clone(), tool_name, tool_input: Map::new() });
                }
                show(RunEvent::ToolResult { tool_use_id: id, content, is_error });
            }
            // After a part that failed, the plan goes on.
            Event::Retry { message } | Event::PartFailed(RunError { message, .. }) => show(RunEvent::Retry { message }),
            Event::Approval(paused) => {
                self.approvals.push(paused.clone());
                show(paused.into());
            }
            Event::Compacted { results, messages, tokens_before, tokens_after } => {
                let earlier_session_id = None;
                show(RunEvent::Compacted { results, messages, tokens_before, tokens_after, earlier_session_id });
            }
            Event::Plan { plan_id, steps, success_criteria } => {
                let plan = json!({"plan_id": plan_id, "steps": steps, "success_criteria": success_criteria});
                show(RunEvent::PlanChanged { plan });
            }
            Event::SubAgentBegin { tool_use_id, subagent_type, model } => {
                show(RunEvent::SubagentBegin { tool_use_id, subagent_type, model });
            }
            Event::SubAgentText { tool_use_id, text } => {
                show(RunEvent::TextDelta { text, parent_tool_use_id: Some(tool_use_id) });
            }
            Event::SubAgentEnd { tool_use_id, success, usage, .. } => {
                show(RunEvent::SubagentEnd { tool_use_id, is_error: !success, usage: EventUsage::from(&usage) });
            }
            Event::Error(error) => self.error = Some(general(&error)),
            Event::Status { status, message } => self.limit = Some((status, message)),
            Event::Finished { reason, messages } => (self.reason, self.messages) = (Some(reason), messages),
            Event::Usage(used) => self.used = used,
            Event::Resumed { answer } => self.answers.push(answer),
            Event::ClientToolCall { .. } | Event::Step { .. } | Event::Evaluation { .. } | Event::Node { .. } => {}
        }
    }

    /// Takes the tokens and costs of the whole run over, and returns a row for each agent and model. `model`: the provider and
    /// the id of the profile's.
    pub(super) fn count(&mut self, usage: Vec<AgentUsage>, agent: &str, model: (&str, &str)) -> Vec<ModelUsageRow> {
        if usage.is_empty() {
            // The run did not begin.
            let (agent, provider, model) = (agent.to_owned(), model.0.to_owned(), model.1.to_owned());
            return vec![ModelUsageRow { agent, provider, model, used: self.used.clone() }];
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
    let row = |AgentUsage { agent, provider, model, used }| ModelUsageRow {
        agent: agent.to_string(),
        provider: provider.to_string(),
        model: model.to_string(),
        used,
    };
    usage.into_iter().map(row).collect()
}

impl RunReply {
    /// The last event but one.
    pub(super) fn event(&self) -> RunEvent {
        let Self { result, is_error, errors, usage, total_cost_usd, num_turns, duration_ms, session_id, .. } =
            self.clone();
        RunEvent::Result { result, is_error, errors, usage, total_cost_usd, num_turns, duration_ms, session_id }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_loops_events_become_those_of_the_document() {
        let mut outcome = Outcome::default();
        let mut of = |event: Event| {
            let mut shown = Vec::new();
            outcome.record(event, |event| shown.push(serde_json::to_value(event).unwrap()));
            shown
        };
        assert_eq!(of(Event::Content { text: "a".into() }), [json!({"type": "text_delta", "text": "a"})]);
        assert_eq!(of(Event::Thinking { text: "a".into() }), [json!({"type": "thinking", "thinking": "a"})]);
        let (id, tool_name) = ("1".to_owned(), "add".to_owned());
        let use_of = |id: &str| json!({"type": "tool_use", "tool_use_id": id, "tool_name": "add", "tool_input": {}});
        let input = Event::ToolInput { id: id.clone(), tool_name: tool_name.clone(), arguments: Map::new() };
        assert_eq!(of(input), [use_of("1")]);
        let result = Event::ToolResult { id, tool_name: tool_name.clone(), result: "3".into() };
        assert_eq!(of(result), [json!({"type": "tool_result", "tool_use_id": "1", "content": "3", "is_error": false})]);
        let refused = Event::ToolError { id: "2".into(), tool_name, error: "no JSON".into() };
        let failed = json!({"type": "tool_result", "tool_use_id": "2", "content": "no JSON", "is_error": true});
        assert_eq!(of(refused), [use_of("2"), failed]);
        let begin = Event::SubAgentBegin { tool_use_id: "1".into(), subagent_type: "reader".into(), model: "m".into() };
        let begun = json!({"type": "subagent_begin", "tool_use_id": "1", "subagent_type": "reader", "model": "m"});
        assert_eq!(of(begin), [begun]);
        let end = Event::SubAgentEnd {
            tool_use_id: "1".into(),
            subagent_type: "reader".into(),
            model: "m".into(),
            success: true,
            usage: RunUsage::default(),
        };
        let usage = json!({"input_tokens": 0, "output_tokens": 0, "tool_calls": 0});
        let ended = json!({"type": "subagent_end", "tool_use_id": "1", "is_error": false, "usage": usage});
        assert_eq!(of(end), [ended]);
        assert_eq!(of(Event::Usage(RunUsage::default())), [] as [Value; 0]);
        let paused = PausedCall {
            id: "p".into(),
            call_id: "1".into(),
            tool: "add".into(),
            arguments: "{}".into(),
            expires_at: "later".into(),
            url: "https://gateway.test/p".into(),
        };
        let approval = json!({"type": "approval", "call_id": "1", "tool_name": "add", "tool_input": "{}",
            "reason": "a person must approve the call at https://gateway.test/p",
            "approval": {"id": "p", "expires_at": "later", "url": "https://gateway.test/p"}});
        assert_eq!(of(Event::Approval(paused)), [approval]);
    }

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
            outcome.record(Event::Finished { reason: FinishReason::Aborted, messages: Vec::new() }, drop);
            let (status, error) = outcome.status(&run);
            let error = error.unwrap();
            assert_eq!((status, &*error.code, &*error.message), (expected.0, expected.1, cause.message()));
        }
    }

    #[test]
    fn a_run_that_pauses_has_not_failed() {
        let mut outcome = Outcome::default();
        outcome.record(Event::Status { status: "approval_required".into(), message: "it is paused".into() }, drop);
        outcome.record(Event::Finished { reason: FinishReason::ApprovalRequired, messages: Vec::new() }, drop);
        let (status, error) = outcome.status(&LiveRun::for_tests());
        let error = error.unwrap();
        assert_eq!((status, &*error.code, &*error.message), (RunStatus::Paused, "approval_required", "it is paused"));
    }
}
