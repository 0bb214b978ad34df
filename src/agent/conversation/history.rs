//! The beginning of a run: the messages of the session, and the treatment of calls whose answers are not known.

use std::collections::HashSet;
use std::sync::Arc;

use super::journal::message_of;
use super::stored;
use crate::Message;
use crate::message::{AssistantTurn, RequestedCall, ToolMessage, UserMessage, UserPart};
use crate::session_prefix;
use sekisho_store::{ToolExecution, TurnMessage};

/// The model reads this in place of an answer that is not known.
pub const MAY_HAVE_HAPPENED: &str = "Error: the call was sent, and no answer arrived before the run was interrupted: \
     it may have happened. Find out before you repeat it.";

/// The model reads this in place of the answer of a call for which its run paused, and which cannot be made any more.
pub(super) const NOT_MADE: &str =
    "Error: a person had to approve the call, and it was not made. Make it again if it is still needed.";

/// Begins a summary of earlier messages, in the first message of the user.
pub(crate) const SUMMARY: &str = "[Summary of the earlier conversation]";

/// The messages of a session.
#[derive(Debug, Default, PartialEq)]
pub(super) struct History {
    pub(super) messages: Vec<Message>,
    /// The news that the model got with each of them.
    news: Vec<Option<Arc<str>>>,
    /// The calls of the last turn that have no answer.
    pub(super) open: Vec<OpenCall>,
}

/// The messages for the model.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ModelInput {
    /// As the user and the model wrote them.
    pub(super) messages: Vec<Message>,
    /// News, each with its message and its place among the parts of that.
    news: Vec<(usize, usize, Arc<str>)>,
}

impl ModelInput {
    /// Two messages of the user in a row become one.
    fn add(&mut self, mut message: Message, news: Option<Arc<str>>) {
        if let Message::User(next) = &mut message
            && let Some(Message::User(before)) = self.messages.last_mut()
        {
            // Within a text: providers refuse one that is blank.
            if let Some(UserPart::Text(first)) = next.parts.first_mut() {
                *first = format!("\n\n{first}").into();
            }
            before.parts.append(&mut next.parts);
        } else {
            self.messages.push(message);
        }
        if let (Some(news), Some(Message::User(last))) = (news, self.messages.last()) {
            self.news.push((self.messages.len() - 1, last.parts.len(), news));
        }
    }

    /// With the news, as the model got them.
    pub(super) fn with_news(mut self) -> Vec<Message> {
        for (message, place, text) in self.news.into_iter().rev() {
            if let Some(Message::User(user)) = self.messages.get_mut(message) {
                user.parts.insert(place, session_prefix::as_part(&text));
            }
        }
        self.messages
    }
}

/// A call that was sent and has no answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenCall {
    /// The run that sent it.
    pub(super) run: String,
    pub(super) call: RequestedCall,
}

impl History {
    /// The messages, each with its run.
    pub(super) fn of(said: Vec<(String, Message)>) -> Self {
        let news = vec![None; said.len()];
        Self::with_news_of(said, news)
    }

    /// As [`of`](Self::of), with the news of each message.
    pub(super) fn with_news_of(said: Vec<(String, Message)>, news: Vec<Option<Arc<str>>>) -> Self {
        let last_turn = said.iter().rev().find(|(_, message)| matches!(message, Message::Assistant(_)));
        let last_turn = last_turn.map(|(run, _)| run.clone()).unwrap_or_default();
        let messages = said.into_iter().map(|(_, message)| message).collect();
        let mut history = Self { news, messages, open: Vec::new() };
        history.find_open_calls(&last_turn);
        history
    }

    /// Puts the summary of the earlier messages first.
    pub(super) fn after(mut self, summary: &str) -> Self {
        let text = format!("{SUMMARY}\n{summary}");
        match self.messages.first_mut() {
            Some(Message::User(first)) => first.parts.insert(0, UserPart::Text(format!("{text}\n\n").into())),
            _ => {
                self.messages.insert(0, Message::User(text.as_str().into()));
                self.news.insert(0, None);
            }
        }
        self
    }

    /// Whether the last message is one of the model, without calls.
    pub(super) fn ends_with_text(&self) -> bool {
        self.open.is_empty() && matches!(self.messages.last(), Some(Message::Assistant(_)))
    }

    /// Providers refuse a call without a result: only the calls of the last turn can still get one.
    fn find_open_calls(&mut self, run: &str) {
        let mut start = 0;
        while start < self.messages.len() {
            let answers: Vec<_> = self.messages[start + 1..].iter().map_while(as_tool).collect();
            let next = start + 1 + answers.len();
            let answered: HashSet<String> = answers.into_iter().map(|answer| answer.call_id.clone()).collect();
            let is_last = next >= self.messages.len();
            if let Some(Message::Assistant(turn)) = self.messages.get_mut(start) {
                if is_last {
                    let open = turn.calls().filter(|call| !answered.contains(&call.id)).cloned();
                    self.open = open.map(|call| OpenCall { run: run.to_owned(), call }).collect();
                } else {
                    turn.retain_calls(|call| answered.contains(&call.id));
                }
            }
            start = next;
        }
        let is_left = |message: &Message| !matches!(message, Message::Assistant(turn) if turn.parts.is_empty());
        let said = std::mem::take(&mut self.messages).into_iter().zip(std::mem::take(&mut self.news));
        (self.messages, self.news) = said.filter(|(message, _)| is_left(message)).unzip();
    }

    /// The messages for the model, which end with the user's current message, if there is one. Templates of some models
    /// refuse two messages of the user in a row.
    pub(super) fn with(self, answers: Vec<ToolMessage>, input: Option<UserMessage>) -> ModelInput {
        let mut whole = ModelInput::default();
        self.messages.into_iter().zip(self.news).for_each(|(message, news)| whole.add(message, news));
        let later = answers.into_iter().map(Message::Tool).chain(input.map(Message::User));
        later.for_each(|message| whole.add(message, None));
        whole
    }
}

/// The messages of a run that did not end with an answer: those that the loop reports, and further ones that the
/// journal has.
/// Errors: a journaled turn that this program cannot read.
pub(super) fn of_unfinished_run(
    mut reported: Vec<Message>,
    turns: &[TurnMessage],
    executions: &[ToolExecution],
) -> Result<Vec<Message>, String> {
    let answered: HashSet<String> = reported.iter().filter_map(as_tool).map(|answer| answer.call_id.clone()).collect();
    for TurnMessage { turn, message } in turns {
        let mut whole = stored::read_turn(message)?;
        // Calls of sub-agents are journaled in the turn that started them.
        let is_of_turn = |id: &str| whole.calls().any(|call| call.id == id);
        let begun = executions.iter().filter(|execution| execution.turn == *turn && is_of_turn(&execution.tool_use_id));
        let begun: Vec<_> = begun.collect();
        if begun.iter().all(|execution| answered.contains(&execution.tool_use_id)) {
            continue;
        }
        let others = take_turn(&mut reported, &whole);
        let is_known = |id: &str| begun.iter().any(|execution| execution.tool_use_id == id);
        let of_others = |id: &str| others.iter().filter_map(as_tool).any(|answer| answer.call_id == id);
        whole.retain_calls(|call| is_known(&call.id) || of_others(&call.id));
        let from_journal = begun.iter().filter(|execution| !of_others(&execution.tool_use_id));
        let from_journal = from_journal.filter_map(|execution| Some(message_of(execution, execution.output.as_ref()?)));
        let from_journal: Vec<_> = from_journal.map(Message::Tool).collect();
        reported.push(Message::Assistant(whole));
        reported.extend(others);
        reported.extend(from_journal);
    }
    Ok(reported)
}

/// Removes the loop's copy of its last turn, if it is this one, and returns the answers of its calls.
fn take_turn(reported: &mut Vec<Message>, whole: &AssistantTurn) -> Vec<Message> {
    let last = reported.iter().rposition(|message| matches!(message, Message::Assistant(_)));
    let is_this = |turn: &AssistantTurn| {
        let mut calls = turn.calls().peekable();
        let is_part = calls.peek().is_some() && calls.all(|call| whole.calls().any(|known| known.id == call.id));
        is_part || turn.calls().next().is_none() && turn.text() == whole.text()
    };
    match last {
        Some(index) if reported[index].as_assistant().is_some_and(is_this) => reported.split_off(index).split_off(1),
        _ => Vec::new(),
    }
}

fn as_tool(message: &Message) -> Option<&ToolMessage> {
    match message {
        Message::Tool(answer) => Some(answer),
        Message::System(_) | Message::User(_) | Message::Assistant(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use sekisho_core::database_clock::DatabaseTime;
    use sekisho_store::ToolOutcome;

    fn call(id: &str) -> RequestedCall {
        RequestedCall::new(id.into(), "add".into(), "{}".into())
    }

    fn turn(text: &str, ids: &[&str]) -> Message {
        Message::Assistant(AssistantTurn::new(text, ids.iter().map(|id| call(id))))
    }

    fn answer(id: &str) -> Message {
        Message::Tool(ToolMessage {
            call_id: id.into(),
            tool: "add".into(),
            text: "3".into(),
            ..ToolMessage::default()
        })
    }

    fn user(text: &str) -> Message {
        Message::User(text.into())
    }

    fn history(messages: &[Message]) -> History {
        History::of(messages.iter().map(|message| ("r".to_owned(), message.clone())).collect())
    }

    #[test]
    fn only_the_calls_of_the_last_turn_are_open() {
        let said = [user("a"), turn("so", &["1", "2"]), answer("1"), user("b"), turn("", &["3", "4"]), answer("3")];
        let found = history(&said);
        let open: Vec<_> = found.open.iter().map(|open| (&*open.run, &*open.call.id)).collect();
        assert_eq!(open, [("r", "4")]);
        assert_eq!(found.messages[1], turn("so", &["1"]), "an earlier one is forgotten");
        assert_eq!(found.messages[4], turn("", &["3", "4"]));
        let closed = found.with(vec![as_tool(&answer("4")).unwrap().clone()], Some("c".into())).with_news();
        assert_eq!(closed[5..], [answer("3"), answer("4"), user("c")]);
    }

    #[test]
    fn answers_that_a_later_run_stored_close_the_calls() {
        let found = history(&[user("a"), turn("", &["1", "2"]), answer("1"), answer("2"), user("b"), turn("yes", &[])]);
        assert_eq!((found.open.len(), found.messages.len()), (0, 6));
        let lost = history(&[user("a"), turn("", &["1"]), user("b")]);
        assert_eq!(lost.messages, [user("a"), user("b")], "a turn of which nothing is left");
    }

    #[test]
    fn messages_of_the_user_in_a_row_become_one() {
        let messages = history(&[user("a"), user("b")]).with(Vec::new(), Some("c".into())).with_news();
        let [Message::User(only)] = &messages[..] else { panic!("{messages:?}") };
        assert_eq!(only.text(), "a\n\nb\n\nc");
    }

    /// The model of a later run gets each message as the model of its own run got it.
    #[test]
    fn news_stay_at_the_end_of_their_messages() {
        let said = [user("a"), user("b"), turn("so", &[]), user("c")];
        let said = said.into_iter().map(|message| ("r".to_owned(), message)).collect();
        let news = vec![Some("1".into()), Some("2".into()), None, None];
        let input = History::with_news_of(said, news).with(Vec::new(), Some("d".into()));
        let Message::User(plain) = &input.messages[0] else { panic!("{input:?}") };
        assert_eq!(plain.text(), "a\n\nb", "the user did not write the news");
        let texts: Vec<_> = input.with_news().iter().filter_map(text_of).collect();
        assert_eq!(texts, ["a\n\n1\n\nb\n\n2", "c\n\nd"]);
    }

    fn text_of(message: &Message) -> Option<String> {
        match message {
            Message::User(message) => Some(message.text()),
            Message::System(_) | Message::Assistant(_) | Message::Tool(_) => None,
        }
    }

    fn execution(id: &str, turn: i64, output: Option<&str>) -> ToolExecution {
        let output = output.map(|text| ToolOutcome { text: text.into(), images: None, is_error: false });
        let (begun, position) = (DatabaseTime::from(Timestamp::UNIX_EPOCH), 0);
        let (tool_name, tool_input) = ("add".into(), "{}".into());
        ToolExecution { tool_use_id: id.into(), position, turn, tool_name, tool_input, output, begun, ended: None }
    }

    fn journaled(number: i64, message: &Message) -> TurnMessage {
        TurnMessage { turn: number, message: stored::write(message) }
    }

    #[test]
    fn what_the_journal_knows_completes_an_unfinished_run() {
        let first = journaled(1, &turn("one", &["1"]));
        let second = journaled(2, &turn("two", &["2", "3", "4"]));
        // The last one is a call of a sub-agent.
        let executions = [
            execution("1", 1, Some("3")),
            execution("2", 2, Some("3")),
            execution("3", 2, None),
            execution("of another", 2, Some("3")),
        ];
        let expected = [turn("one", &["1"]), answer("1"), turn("two", &["2", "3"]), answer("2")];
        let turns = [first, second];
        for reported in [
            // A killed process reports nothing.
            vec![],
            // The loop keeps the calls that it has answers of.
            vec![turn("one", &["1"]), answer("1"), turn("two", &["2"]), answer("2")],
            // It was stopped before it had any of the turn.
            vec![turn("one", &["1"]), answer("1"), turn("two", &[])],
            vec![turn("one", &["1"]), answer("1")],
        ] {
            assert_eq!(of_unfinished_run(reported.clone(), &turns, &executions).unwrap(), expected, "{reported:?}");
        }
    }

    #[test]
    fn a_run_without_open_calls_stays_as_the_loop_reports_it() {
        let turns = [journaled(1, &turn("one", &["1"]))];
        let reported = vec![turn("one", &["1"]), answer("1"), turn("part of", &[])];
        let kept = of_unfinished_run(reported.clone(), &turns, &[execution("1", 1, Some("3"))]).unwrap();
        assert_eq!(kept, reported);
    }
}
