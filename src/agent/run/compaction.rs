//! A conversation in a shorter form, for a model that cannot read all of it. The run itself keeps the whole conversation.
//!
//! First old results of tools become one line each, oldest first; if that is not enough, the older part becomes a
//! summary. System prompts, the goal (the user's first message), the user's last message and the last turns with their
//! calls and results stay as they are, but for thoughts that a provider takes back only after the same messages.

use crate::context::{self, CHARACTERS_OF_A_TOKEN};
use crate::message::{AssistantTurn, Message, ToolMessage, UserMessage, UserPart};
use crate::prompts::beginning;

/// The last turns, which stay as they are.
const RECENT_TURNS: usize = 2;

/// A shorter result stays: a line in its place would save little.
const MIN_RESULT_BYTES: usize = 400;

/// Characters of each message in the text to summarize: at most, and at least.
const MAX_OF_A_MESSAGE: usize = 4_000;
const MIN_OF_A_MESSAGE: usize = 200;

/// The parts of the conversation that the model gets in a shorter form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Compaction {
    /// Results before this message are one line each.
    lines_before: usize,
    summary: Option<Summary>,
    /// Messages before this one are without thoughts that are bound to the longer form.
    unbound_before: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Summary {
    text: String,
    /// The message that it ends before.
    before: usize,
}

/// The messages that stay as they are, by index.
#[derive(Debug, Clone, Copy)]
struct Frame {
    goal: usize,
    /// The user's last message: the goal, if it is the only one.
    question: usize,
}

impl Compaction {
    /// The conversation as the model gets it. `given`: the number of messages that the run began with.
    pub(super) fn view(&self, conversation: &[Message], given: usize) -> Vec<Message> {
        let frame = Frame::of(conversation, given);
        let mut view = Vec::with_capacity(conversation.len());
        for (index, message) in conversation.iter().enumerate() {
            if self.is_summarized(index, message, frame) {
                continue;
            }
            let mut shown = match message {
                Message::Tool(result) if index < self.lines_before => Message::Tool(as_line(result)),
                other => other.clone(),
            };
            if index < self.unbound_before {
                shown.forget_bound_thoughts();
            }
            view.push(shown);
            if let (Some(summary), Some(frame)) = (&self.summary, frame)
                && index == frame.goal
            {
                place(summary, frame, &mut view);
            }
        }
        view
    }

    /// Turns as many old results into lines as save `excess` tokens, oldest first. Their number.
    pub(super) fn shorten_results(&mut self, conversation: &[Message], given: usize, excess: u64) -> usize {
        let frame = Frame::of(conversation, given);
        let (mut shortened, mut saved) = (0, 0);
        let recent = recent_turns(conversation, RECENT_TURNS);
        while self.lines_before < recent && saved < excess.saturating_mul(CHARACTERS_OF_A_TOKEN) {
            let index = self.lines_before;
            self.lines_before += 1;
            if let Message::Tool(result) = &conversation[index]
                && !self.is_summarized(index, &conversation[index], frame)
            {
                let line = Message::Tool(as_line(result));
                let less = context::weight(&conversation[index]).saturating_sub(context::weight(&line));
                shortened += usize::from(less > 0);
                saved += less;
            }
        }
        shortened
    }

    /// The messages that a summary is to replace beside those that it replaces already, up to the last turns; `None` if
    /// there are none.
    pub(super) fn next_to_summarize(&self, conversation: &[Message], given: usize) -> Option<SummaryTask> {
        let frame = Frame::of(conversation, given)?;
        let recent = recent_turns(conversation, RECENT_TURNS);
        let before = if frame.question < recent || frame.question == frame.goal {
            recent
        } else {
            // The rest begins with a message of the user: roles alternate.
            let is_users = |index: &usize| matches!(conversation[*index], Message::User(_));
            let earlier = (frame.goal + 1..=recent.min(frame.question)).rev().find(is_users);
            earlier.or_else(|| (recent..frame.question).find(is_users)).unwrap_or(frame.question)
        };
        let since = self.summary.as_ref().map_or(0, |summary| summary.before);
        let is_replaced = |index: &usize| {
            *index != frame.goal && *index != frame.question && !matches!(conversation[*index], Message::System(_))
        };
        let messages: Vec<_> = (since..before).filter(is_replaced).collect();
        let old = self.summary.as_ref().map(|summary| summary.text.clone());
        (!messages.is_empty()).then_some(SummaryTask { messages, before, old })
    }

    /// Replaces the messages of a task, and the earlier summary. Without a text, a note takes their place.
    pub(super) fn summarize(&mut self, task: &SummaryTask, text: Option<String>) {
        let count = task.messages.len();
        let note = || match &task.old {
            Some(old) => format!("{old}\n\n({count} further messages were left out.)"),
            None => format!("({count} messages were left out.)"),
        };
        let text = text.unwrap_or_else(note);
        self.summary = Some(Summary { text, before: task.before });
    }

    /// The messages so far have a shorter form from now on: a provider refuses their thoughts that are bound to the longer one.
    pub(super) fn unbind_thoughts(&mut self, conversation: &[Message]) {
        self.unbound_before = conversation.len();
    }

    fn is_summarized(&self, index: usize, message: &Message, frame: Option<Frame>) -> bool {
        let (Some(summary), Some(Frame { goal, question })) = (&self.summary, frame) else { return false };
        index < summary.before && index != goal && index != question && !matches!(message, Message::System(_))
    }
}

/// The messages that a summary is to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SummaryTask {
    /// By index.
    pub(super) messages: Vec<usize>,
    before: usize,
    /// The summary of the messages before.
    pub(super) old: Option<String>,
}

impl SummaryTask {
    /// The messages as text, the latest as far as they fit.
    pub(super) fn transcript(&self, conversation: &[Message], max_characters: usize) -> String {
        let messages: Vec<_> = self.messages.iter().map(|index| &conversation[*index]).collect();
        transcript(&messages, max_characters)
    }
}

/// Messages as text, the latest as far as they fit.
pub(crate) fn transcript(messages: &[&Message], max_characters: usize) -> String {
    let each = (max_characters / messages.len().max(1)).clamp(MIN_OF_A_MESSAGE, MAX_OF_A_MESSAGE);
    let count = (max_characters / each).max(1);
    let latest = &messages[messages.len().saturating_sub(count)..];
    let texts: Vec<_> = latest.iter().map(|message| as_text(message, each)).collect();
    texts.join("\n\n")
}

impl Frame {
    /// `None` if the user said nothing.
    fn of(conversation: &[Message], given: usize) -> Option<Self> {
        let is_users = |message: &Message| matches!(message, Message::User(_));
        let goal = conversation.iter().position(is_users)?;
        // Later ones are the run's own.
        let question = conversation.iter().take(given).rposition(is_users).unwrap_or(goal);
        Some(Self { goal, question })
    }
}

/// The index of the first of the last turns; the end if there is none.
fn recent_turns(conversation: &[Message], count: usize) -> usize {
    let turns = conversation.iter().enumerate().rev().filter(|(_, message)| matches!(message, Message::Assistant(_)));
    turns.take(count).last().map_or(conversation.len(), |(index, _)| index)
}

/// Puts the summary behind the goal, which is the last message of the view. The roles of user and assistant alternate.
fn place(summary: &Summary, frame: Frame, view: &mut Vec<Message>) {
    let text = format!("[Summary of the earlier conversation]\n{}", summary.text);
    match view.last_mut() {
        Some(Message::User(UserMessage { parts })) if frame.goal == frame.question => {
            parts.push(UserPart::Text(format!("\n\n{text}").into()));
        }
        _ => view.push(Message::Assistant(AssistantTurn::new(text, []))),
    }
}

fn as_line(result: &ToolMessage) -> ToolMessage {
    let (bytes, images) = (result.text.len(), result.images.len());
    if bytes < MIN_RESULT_BYTES && images == 0 {
        return result.clone();
    }
    let images = if images == 0 { "" } else { " and the images" };
    let text = format!(
        "[left out: {bytes} bytes{images} of the result of `{}`, call {}; call the tool again if you need it]",
        result.tool, result.call_id
    );
    ToolMessage { text, images: Vec::new(), ..result.clone() }
}

fn as_text(message: &Message, max: usize) -> String {
    match message {
        Message::System(text) => beginning(text, max).to_owned(),
        Message::User(message) => format!("User: {}", beginning(&message.text(), max)),
        Message::Assistant(turn) => {
            let text = Some(turn.text()).filter(|text| !text.is_empty());
            let text = text.map(|text| format!("Assistant: {}", beginning(&text, max)));
            let calls =
                turn.calls().map(|call| format!("Call of `{}`: {}", call.tool, beginning(&call.arguments, max)));
            text.into_iter().chain(calls).collect::<Vec<_>>().join("\n")
        }
        Message::Tool(result) => format!("Result of `{}`: {}", result.tool, beginning(&result.text, max)),
    }
}

#[cfg(test)]
mod tests;
