//! Calls that a person must approve: the run pauses for them, and a later run makes them where this one stopped.

use std::sync::Arc;

use super::Progress;
use crate::event::{Event, PausedCall};
use crate::message::{Message, RequestedCall};
use crate::run::{CheckedCall, Ending, MadeCall};
use crate::toolbox::{OnApproval, ToolAnswer};
use sekisho_config::AgentProfile;
use sekisho_core::error::NeededApproval;

/// The model reads this where the user has sent a message before anybody decided.
const NOT_DECIDED: &str = "The call waits for a person to approve it, and was not made. The user has said something since: make \
                           the call again if it is still needed.";

/// The last turn of the conversation, while calls for which its run paused are made.
#[derive(Debug)]
pub(super) struct PausedTurn {
    /// The place of the next answer: after those that the turn has.
    next: usize,
    /// Whether the user has said something since.
    is_followed: bool,
}

impl Progress {
    /// The calls for which the run before paused: the next answers are theirs.
    pub(in crate::run) fn resume(&mut self) -> Vec<CheckedCall> {
        let last = self.conversation.iter().rposition(|message| matches!(message, Message::Assistant(_)));
        let Some(turn) = last.and_then(|last| self.conversation[last].as_assistant()) else { return Vec::new() };
        let next = last.map_or(0, |last| last + 1);
        let answers = self.conversation[next..].iter().map_while(|message| match message {
            Message::Tool(answer) => Some(answer.call_id.as_str()),
            Message::System(_) | Message::User(_) | Message::Assistant(_) => None,
        });
        let answered: Vec<_> = answers.collect();
        let open = turn.paused_calls().filter(|call| !answered.contains(&call.id.as_str()));
        let calls: Vec<_> = open.cloned().map(CheckedCall::resumed).collect();
        if calls.is_empty() {
            return calls;
        }
        let next = next + answered.len();
        self.resuming = Some(PausedTurn { next, is_followed: next < self.conversation.len() });
        self.is_resumed = true;
        calls
    }

    /// Keeps the answer of a call, unless the run pauses for it.
    pub(in crate::run) fn answered(&mut self, made: MadeCall, profile: &AgentProfile) -> Vec<Event> {
        let MadeCall { call, answer, pause } = made;
        let is_followed = self.resuming.as_ref().map(|turn| turn.is_followed);
        let answer = match (pause, is_followed) {
            (Some(needed), None) => return vec![self.pause_turn(&call, needed)],
            (Some(needed), Some(false)) => return vec![self.pause(&call, needed)],
            (Some(_), Some(true)) => ToolAnswer { text: NOT_DECIDED.to_owned(), error_info: None, ..answer },
            (None, _) => answer,
        };
        let event = self.record(&call, answer, profile);
        [event].into_iter().chain(self.place_answer()).collect()
    }

    /// Errors: the run ends here: an approver must decide, or a limit is reached.
    pub(in crate::run) fn end_resumed(&mut self) -> Result<(), Ending> {
        self.resuming = None;
        match self.watch.verdict() {
            Some(ending) => Err(ending),
            None => self.end_paused(),
        }
    }

    /// Errors: the run pauses.
    pub(super) fn end_paused(&self) -> Result<(), Ending> {
        if self.paused.is_empty() {
            return Ok(());
        }
        let calls: Vec<_> = self.paused.iter().map(|call| format!("`{}` at {}", call.tool, call.url)).collect();
        let message = format!("The run is paused until a person decides about the call of {}.", calls.join(", "));
        Err(Ending::Approval { message })
    }

    /// Also marks the call in the current turn.
    fn pause_turn(&mut self, call: &RequestedCall, needed: NeededApproval) -> Event {
        for paused in self.turn.calls_mut().filter(|other| other.id == call.id) {
            paused.approval = Some(Arc::clone(&needed.id));
        }
        self.pause(call, needed)
    }

    fn pause(&mut self, call: &RequestedCall, needed: NeededApproval) -> Event {
        let paused = PausedCall::new(call, needed);
        self.paused.push(paused.clone());
        Event::Approval(paused)
    }

    /// An answer of the turn of an earlier run goes to that turn, before the messages since then.
    fn place_answer(&mut self) -> Option<Event> {
        let resuming = self.resuming.as_mut()?;
        let answer = self.answers.pop()?;
        self.conversation.insert(resuming.next, Message::Tool(answer.clone()));
        resuming.next += 1;
        self.given += 1;
        Some(Event::Resumed { answer })
    }
}

impl CheckedCall {
    fn resumed(call: RequestedCall) -> Self {
        let on_approval = call.approval.clone().map(OnApproval::Resume).unwrap_or_default();
        Self::new(call, None, on_approval)
    }
}
