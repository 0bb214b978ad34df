//! The output of a run as a client of a model's API sees it: the parts of one answer, growing. Calls that the gateway
//! makes are not part of it; a text after one is a part of its own.

use sekisho_agent::message::ToolMessage;
use sekisho_agent::{Event, FinishReason, Message, PausedCall, RunUsage};
use sekisho_core::error::CallError;

/// The answer so far.
#[derive(Debug)]
pub(crate) struct Output {
    pub parts: Vec<OutputPart>,
    /// Whether the last part may grow.
    is_open: bool,
    pub finish: FinishReason,
    pub usage: RunUsage,
    pub failure: Option<CallError>,
    /// Calls for which the run is paused.
    pub approvals: Vec<PausedCall>,
    /// Answers to calls for which the run before paused.
    pub answers: Vec<ToolMessage>,
    /// What the run added to the conversation.
    pub added: Vec<Message>,
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

/// A step of the answer's growth. The index is that of the part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputChange {
    Began(usize),
    Grew(usize, String),
    Ended(usize),
}

impl Output {
    pub(crate) fn new() -> Self {
        Self {
            parts: Vec::new(),
            is_open: false,
            finish: FinishReason::Stop,
            usage: RunUsage::default(),
            failure: None,
            approvals: Vec::new(),
            answers: Vec::new(),
            added: Vec::new(),
        }
    }

    /// The output of a run that has ended.
    ///
    /// # Errors
    /// The run's own error, with the text before it as its output.
    pub(crate) fn whole(events: impl IntoIterator<Item = Event>) -> Result<Self, CallError> {
        let mut output = Self::new();
        for event in events {
            output.add(event);
        }
        let text = output.text();
        match output.failure.take() {
            None => Ok(output),
            Some(error) if text.is_empty() => Err(error),
            Some(error) => Err(error.with_output(text.into())),
        }
    }

    /// Adds what an event says, and returns what changed by it, in order.
    pub(crate) fn add(&mut self, event: Event) -> Vec<OutputChange> {
        match event {
            Event::Content { text } => self.grow(OutputPart::Text, text),
            Event::Thinking { text } => self.grow(OutputPart::Thinking, text),
            Event::Status { message, .. } => self.grow(OutputPart::Text, notice(&message)),
            Event::ClientToolCall { id, tool_name: name, arguments } => {
                let mut changes = self.close();
                let index = self.parts.len();
                self.parts.push(OutputPart::Call { id, name, arguments: arguments.clone() });
                changes.extend([
                    OutputChange::Began(index),
                    OutputChange::Grew(index, arguments),
                    OutputChange::Ended(index),
                ]);
                changes
            }
            Event::ToolInput { .. } | Event::ToolResult { .. } | Event::ToolError { .. } => self.close(),
            Event::Error(error) => {
                self.failure = Some(error.into());
                self.close()
            }
            Event::Approval(call) => {
                self.approvals.push(call);
                self.close()
            }
            Event::Resumed { answer } => {
                self.answers.push(answer);
                Vec::new()
            }
            Event::Finished { reason, messages } => {
                (self.finish, self.added) = (reason, messages);
                // A run that ended otherwise does not go on with them.
                self.approvals.retain(|_| reason.is_pause());
                self.close()
            }
            Event::Usage(usage) => {
                self.usage = usage;
                Vec::new()
            }
            Event::Compacted { .. }
            | Event::Retry { .. }
            | Event::SubAgentBegin { .. }
            | Event::SubAgentText { .. }
            | Event::SubAgentEnd { .. }
            | Event::PartFailed(_)
            | Event::Plan { .. }
            | Event::Step { .. }
            | Event::Evaluation { .. }
            | Event::Node { .. } => Vec::new(),
        }
    }

    /// All texts, joined.
    pub(crate) fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            OutputPart::Text(text) => Some(text.as_str()),
            OutputPart::Thinking(_) | OutputPart::Call { .. } => None,
        });
        texts.collect()
    }

    fn grow(&mut self, kind: fn(String) -> OutputPart, text: String) -> Vec<OutputChange> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let is_thinking = matches!(kind(String::new()), OutputPart::Thinking(_));
        let last = self.parts.last_mut().filter(|_| self.is_open);
        match last {
            Some(OutputPart::Thinking(whole)) if is_thinking => whole.push_str(&text),
            Some(OutputPart::Text(whole)) if !is_thinking => whole.push_str(&text),
            _ => {
                changes.extend(self.close());
                changes.push(OutputChange::Began(self.parts.len()));
                self.parts.push(kind(text.clone()));
                self.is_open = true;
            }
        }
        changes.push(OutputChange::Grew(self.parts.len() - 1, text));
        changes
    }

    /// Ends the part that may still grow.
    fn close(&mut self) -> Vec<OutputChange> {
        match std::mem::take(&mut self.is_open) {
            true => vec![OutputChange::Ended(self.parts.len() - 1)],
            false => Vec::new(),
        }
    }
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
        use OutputChange::{Began, Ended, Grew};
        let mut output = Output::new();
        let finished = Event::Finished { reason: FinishReason::ToolCalls, messages: Vec::new() };
        let call = Event::ClientToolCall { id: "c".into(), tool_name: "click".into(), arguments: "{}".into() };
        let thought = Event::Thinking { text: "Hm.".into() };
        let events = [thought, content("Let "), content("me see."), gateway_call(), content("Now:"), call, finished];
        let changes: Vec<_> = events.into_iter().flat_map(|event| output.add(event)).collect();
        let grew = |index: usize, text: &str| Grew(index, text.to_owned());
        let thought = [Began(0), grew(0, "Hm."), Ended(0)];
        let before_the_call = [Began(1), grew(1, "Let "), grew(1, "me see."), Ended(1)];
        let after_the_call = [Began(2), grew(2, "Now:"), Ended(2), Began(3), grew(3, "{}"), Ended(3)];
        assert_eq!(changes, [&thought[..], &before_the_call, &after_the_call].concat());
        assert_eq!((output.text().as_str(), output.parts.len()), ("Let me see.Now:", 4));
        assert_eq!(output.finish, FinishReason::ToolCalls);
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
