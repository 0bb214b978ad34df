//! The output of a run as a client of a model's API sees it: the parts of one answer, growing. Calls that the gateway
//! makes are not part of it; a text after one is a part of its own. `/api/chat` reads the changes too.

use std::mem::{discriminant, take};

use serde_json::{Map, Value};

use sekisho_agent::message::ToolMessage;
use sekisho_agent::{Event, FinishReason, Message, PausedCall, RunUsage};
use sekisho_core::error::CallError;

/// The answer so far.
#[derive(Debug)]
pub(crate) struct Output {
    pub parts: Vec<OutputPart>,
    /// Whether the last part may grow.
    is_open: bool,
    text: String,
    /// Whether the gateway made calls since the last text.
    is_next_turn: bool,
    pub finish: FinishReason,
    pub usage: RunUsage,
    pub failure: Option<CallError>,
    /// Calls for which the run is paused.
    pub approvals: Vec<PausedCall>,
    /// Answers to calls for which the run before paused.
    pub answers: Vec<ToolMessage>,
    /// The messages that the run added to the conversation.
    pub added: Vec<Message>,
    /// The changes of the current event.
    changes: Vec<OutputChange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputPart {
    Thinking(String),
    Text(String),
    /// A call of a tool that the client runs itself; `arguments` is JSON as the model wrote it.
    Call {
        id: String,
        name: String,
        arguments: String,
    },
}

impl OutputPart {
    /// Estimated memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Thinking(text) | Self::Text(text) => text.len(),
            Self::Call { id, name, arguments } => id.len() + name.len() + arguments.len(),
        }
    }
}

/// A change of the answer, or a step of the run behind it. The index is the part's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OutputChange {
    /// A part, still without text or arguments.
    Began(usize, OutputPart),
    Grew(usize, DeltaKind, String),
    /// The whole part.
    Ended(usize, OutputPart),
    /// The line breaks between the texts of two turns, for clients that join all texts. They are in no part.
    Separated(&'static str),
    /// The gateway makes a call.
    Called {
        id: String,
        arguments: Map<String, Value>,
    },
    /// A call of the gateway has an answer. Without [`Called`](Self::Called) before it, its arguments were refused.
    Answered {
        id: String,
        tool: String,
        success: bool,
        text: String,
    },
    /// The run failed, for this reason.
    Failed(String),
}

/// The kind of the text by which a part grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeltaKind {
    Thinking,
    Text,
    /// Text of the gateway: a [`notice`].
    Notice,
    /// All arguments of a call.
    Arguments,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            parts: Vec::new(),
            is_open: false,
            text: String::new(),
            is_next_turn: false,
            finish: FinishReason::Stop,
            usage: RunUsage::default(),
            failure: None,
            approvals: Vec::new(),
            answers: Vec::new(),
            added: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// The output of a run that has ended.
    /// Errors: the run's own error, with the text before it as its output.
    pub(crate) fn whole(events: impl IntoIterator<Item = Event>) -> Result<Self, CallError> {
        let mut output = Self::new();
        for event in events {
            output.add(event);
        }
        let text = output.text();
        output.or_failure(&text)
    }

    /// Errors: the run's own error, with `text` as its output.
    pub(crate) fn or_failure(mut self, text: &str) -> Result<Self, CallError> {
        match self.failure.take() {
            None => Ok(self),
            Some(error) if text.is_empty() => Err(error),
            Some(error) => Err(error.with_output(text.into())),
        }
    }

    /// Adds an event, and returns its changes in order.
    pub(crate) fn add(&mut self, event: Event) -> Vec<OutputChange> {
        let success = matches!(event, Event::ToolResult { .. });
        match event {
            Event::Content { text } | Event::Thinking { text } if text.is_empty() => {}
            Event::Content { text } => self.grow(OutputPart::Text(String::new()), DeltaKind::Text, text),
            Event::Thinking { text } => self.grow(OutputPart::Thinking(String::new()), DeltaKind::Thinking, text),
            Event::Status { message, .. } => {
                self.grow(OutputPart::Text(String::new()), DeltaKind::Notice, notice(&message));
            }
            Event::ClientToolCall { id, tool_name: name, arguments } => {
                self.grow(OutputPart::Call { id, name, arguments: String::new() }, DeltaKind::Arguments, arguments);
                self.close();
            }
            Event::ToolInput { id, arguments, .. } => {
                self.is_next_turn = true;
                self.step(OutputChange::Called { id, arguments });
            }
            Event::ToolResult { id, tool_name: tool, result: text }
            | Event::ToolError { id, tool_name: tool, error: text } => {
                self.is_next_turn = true;
                self.step(OutputChange::Answered { id, tool, success, text });
            }
            Event::Error(error) => {
                self.step(OutputChange::Failed(error.message.clone()));
                self.failure = Some(error.into());
            }
            Event::Approval(call) => {
                self.close();
                self.approvals.push(call);
            }
            Event::Resumed { answer } => self.answers.push(answer),
            Event::Finished { reason, messages } => {
                self.close();
                (self.finish, self.added) = (reason, messages);
                // A run that ended otherwise does not go on with them.
                self.approvals.retain(|_| reason.is_pause());
            }
            Event::Usage(usage) => self.usage = usage,
            // No part of an answer: a part that may grow still may.
            Event::Compacted { .. }
            | Event::Retry { .. }
            | Event::SubAgentBegin { .. }
            | Event::SubAgentText { .. }
            | Event::SubAgentEnd { .. }
            | Event::PartFailed(_)
            | Event::Plan { .. }
            | Event::Step { .. }
            | Event::Evaluation { .. }
            | Event::Node { .. } => {}
        }
        take(&mut self.changes)
    }

    /// All texts, joined by blank lines between turns.
    pub(crate) fn text(&self) -> String {
        self.text.clone()
    }

    /// Adds to the part that may still grow if it is of the kind of `part`, and to `part` otherwise.
    fn grow(&mut self, part: OutputPart, kind: DeltaKind, text: String) {
        let is_same_kind = |last: &OutputPart| discriminant(last) == discriminant(&part);
        if matches!(part, OutputPart::Text(_)) {
            if take(&mut self.is_next_turn) {
                let separator = separator(&self.text, &text);
                self.text.push_str(separator);
                self.step(OutputChange::Separated(separator));
            }
            self.text.push_str(&text);
        }
        if !self.is_open || !self.parts.last().is_some_and(is_same_kind) {
            self.step(OutputChange::Began(self.parts.len(), part.clone()));
            self.parts.push(part);
            self.is_open = true;
        }
        if let Some(OutputPart::Thinking(whole) | OutputPart::Text(whole) | OutputPart::Call { arguments: whole, .. }) =
            self.parts.last_mut()
        {
            whole.push_str(&text);
        }
        self.changes.push(OutputChange::Grew(self.parts.len() - 1, kind, text));
    }

    /// Adds a change after the end of the part that may still grow.
    fn step(&mut self, change: OutputChange) {
        self.close();
        self.changes.push(change);
    }

    /// Ends the part that may still grow.
    fn close(&mut self) {
        if take(&mut self.is_open)
            && let Some(part) = self.parts.last()
        {
            self.changes.push(OutputChange::Ended(self.parts.len() - 1, part.clone()));
        }
    }
}

/// The line breaks that are missing for a blank line between the texts of two turns; none before the first text.
pub(crate) fn separator(before: &str, text: &str) -> &'static str {
    let is_break = |character: &char| *character == '\n';
    let there = before.chars().rev().take_while(is_break).count() + text.chars().take_while(is_break).count();
    if before.is_empty() { "" } else { "\n\n".get(there..).unwrap_or_default() }
}

/// A message that is not the model's, separated from the text before it.
pub(crate) fn notice(message: &str) -> String {
    format!("\n\n[{message}]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sekisho_agent::RunError;
    use sekisho_agent::models::ModelError;
    use sekisho_core::error::ErrorCode;

    fn content(text: &str) -> Event {
        Event::Content { text: text.into() }
    }

    fn gateway_call() -> Event {
        Event::ToolResult { id: "1".into(), tool_name: "add".into(), result: "3".into() }
    }

    #[test]
    fn parts_begin_grow_and_end_in_order() {
        let mut output = Output::new();
        let finished = Event::Finished { reason: FinishReason::ToolCalls, messages: Vec::new() };
        let call = Event::ClientToolCall { id: "c".into(), tool_name: "click".into(), arguments: "{}".into() };
        let thought = Event::Thinking { text: "Hm.".into() };
        let events = [thought, content("Let "), content("me see."), gateway_call(), content("Now:"), call, finished];
        let changes: Vec<_> = events.into_iter().flat_map(|event| output.add(event)).collect();
        let text = |text: &str| OutputPart::Text(text.to_owned());
        let grew = |index: usize, text: &str| OutputChange::Grew(index, DeltaKind::Text, text.to_owned());
        let thinking = |text: &str| OutputPart::Thinking(text.to_owned());
        let call = |arguments: &str| OutputPart::Call {
            id: "c".into(),
            name: "click".into(),
            arguments: arguments.to_owned(),
        };
        let expected = [
            OutputChange::Began(0, thinking("")),
            OutputChange::Grew(0, DeltaKind::Thinking, "Hm.".into()),
            OutputChange::Ended(0, thinking("Hm.")),
            OutputChange::Began(1, text("")),
            grew(1, "Let "),
            grew(1, "me see."),
            OutputChange::Ended(1, text("Let me see.")),
            OutputChange::Answered { id: "1".into(), tool: "add".into(), success: true, text: "3".into() },
            OutputChange::Separated("\n\n"),
            OutputChange::Began(2, text("")),
            grew(2, "Now:"),
            OutputChange::Ended(2, text("Now:")),
            OutputChange::Began(3, call("")),
            OutputChange::Grew(3, DeltaKind::Arguments, "{}".into()),
            OutputChange::Ended(3, call("{}")),
        ];
        assert_eq!(changes, expected);
        assert_eq!((output.text().as_str(), output.parts.len()), ("Let me see.\n\nNow:", 4));
        assert_eq!(output.finish, FinishReason::ToolCalls);
    }

    #[test]
    fn a_blank_line_is_between_the_texts_of_two_turns() {
        let thought = || Event::Thinking { text: "Hm.".into() };
        let limit = || Event::Status { status: "max_turns".into(), message: "50 turns".into() };
        for (events, expected) in [
            (vec![content("Let me see."), gateway_call(), content("It "), content("is.")], "Let me see.\n\nIt is."),
            (vec![content("Let me see."), gateway_call(), thought(), content("It is.")], "Let me see.\n\nIt is."),
            (vec![content("Let me see.\n"), gateway_call(), content("It is.")], "Let me see.\n\nIt is."),
            (vec![content("Let me see.\n"), gateway_call(), content("\n\nIt is.")], "Let me see.\n\n\nIt is."),
            (vec![content("Let me see."), gateway_call(), limit()], "Let me see.\n\n[50 turns]"),
            // In one turn, thoughts may be between pieces of a text.
            (vec![content("It "), thought(), content("is.")], "It is."),
            (vec![gateway_call(), gateway_call(), content("It is.")], "It is."),
        ] {
            let mut output = Output::new();
            let changes = events.into_iter().flat_map(|event| output.add(event));
            let sent = changes.filter_map(|change| match change {
                OutputChange::Grew(_, DeltaKind::Text | DeltaKind::Notice, text) => Some(text),
                OutputChange::Separated(separator) => Some(separator.to_owned()),
                _ => None,
            });
            let sent: String = sent.collect();
            assert_eq!((sent.as_str(), output.text().as_str()), (expected, expected));
        }
    }

    #[test]
    fn a_failed_run_is_an_error_with_the_text_before_it() {
        let failed = || Event::Error(RunError::from(&ModelError::Timeout));
        let error = Output::whole([content("It is"), failed()]).unwrap_err();
        assert_eq!((error.code(), error.output()), (ErrorCode::Timeout, Some(&"It is".into())));
        assert_eq!(Output::whole([failed()]).unwrap_err().output(), None);
        let limit = Event::Status { status: "max_turns".into(), message: "50 turns".into() };
        assert_eq!(Output::whole([content("It is"), limit]).unwrap().text(), "It is\n\n[50 turns]");
    }
}
