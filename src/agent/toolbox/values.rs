//! The messages with which a run begins, as the values of its calls: the user's and the operator's text, and the results of
//! tools that are in the history. So a run that another process or replica continues, and a copy of a conversation, knows
//! where its values come from.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::{InProcess, called};
use crate::conversation::SUMMARY;
use crate::message::{AssistantTurn, Message, ToolMessage, TurnPart, UserPart};
use sekisho_calls::flow::{RUN, Said};
use sekisho_config::{CALL_TOOL, FlowMode, ProfilePrompt};

/// Maximum characters of the request to the agent that an approver reads.
const MAX_ASKED: usize = 2_000;

/// In place of the results of an earlier run.
const LOST: &str = "The results of an earlier run are not kept.";

impl InProcess {
    /// Adds the messages with which a run begins, and the operator's prompt. Without any it goes on with a plan. Where there is neither
    /// a conversation nor a session, what earlier runs have read for their answers is not known.
    pub fn begin(&self, prompt: &ProfilePrompt, messages: &[Message]) {
        let asked = messages.iter().rev().find_map(|message| match message {
            Message::User(message) => Some(message.text()),
            _ => None,
        });
        if let Some(text) = asked.filter(|text| !text.starts_with(SUMMARY)) {
            _ = self.asked.set(text.chars().take(MAX_ASKED).collect::<String>().into());
        }
        let pipeline = &self.gateway.pipeline;
        if pipeline.flow.mode() == FlowMode::Off {
            return;
        }
        let (snapshot, session) = (pipeline.registry.snapshot(), self.values_of());
        let tool_of = |tool: &str| snapshot.get(tool).cloned();
        let calls = messages.iter().filter_map(Message::as_assistant).flat_map(AssistantTurn::calls);
        let arguments: HashMap<_, _> =
            calls.filter_map(|call| Some((&*call.id, Value::Object(call.read_arguments().ok()?)))).collect();
        let prompts = [&prompt.replace, &prompt.append].into_iter().flatten().map(|text| Said::User(text));
        let is_alone = self.conversation.is_none() && self.session.is_none();
        let lost = (is_alone && messages.is_empty()).then_some(of_nobody(LOST));
        let said = prompts.chain(lost).chain(messages.iter().flat_map(|message| said(message, &arguments, is_alone)));
        pipeline.flow.begin(&self.caller, &session, said, tool_of);
    }

    /// The session among whose values the results of its calls are: its conversation, its session, or only this run.
    pub(super) fn values_of(&self) -> Arc<str> {
        match (&self.conversation, &self.session, &self.scopes.request) {
            // No id of a session has this character.
            (Some(conversation), ..) => format!("conversation\u{1f}{conversation}").into(),
            (None, Some(session), _) => Arc::clone(&session.id),
            (None, None, Some(run)) => format!("{RUN}{run}").into(),
            (None, None, None) => "".into(),
        }
    }
}

/// The texts of a message. The model's own are nobody's: values in them come from the others, or from nowhere. `is_alone`: the calls of
/// earlier runs may be in no message, and the model may repeat their results.
fn said<'a>(message: &'a Message, arguments: &'a HashMap<&str, Value>, is_alone: bool) -> Vec<Said<'a>> {
    match message {
        Message::System(text) => vec![Said::User(text)],
        Message::User(message) => message.parts.iter().filter_map(of_part).collect(),
        Message::Assistant(turn) if is_alone => answered(turn),
        Message::Assistant(_) => Vec::new(),
        Message::Tool(ToolMessage { call_id, tool, text, .. }) => {
            let arguments = arguments.get(&**call_id);
            // The result is of the tool that was called by the other one.
            let (tool, arguments) = match arguments.filter(|_| tool == CALL_TOOL).and_then(called) {
                Some(called) => called,
                None => (&**tool, arguments),
            };
            vec![Said::Result { call: call_id, tool, arguments, text }]
        }
    }
}

/// The answer of an earlier run.
fn answered(turn: &AssistantTurn) -> Vec<Said<'_>> {
    let texts = turn.parts.iter().filter_map(|part| match part {
        TurnPart::Text(text) => Some(of_nobody(text)),
        TurnPart::Thought(_) | TurnPart::Call(_) => None,
    });
    std::iter::once(of_nobody(LOST)).chain(texts).collect()
}

/// Text of which nobody knows who has written it.
fn of_nobody(text: &str) -> Said<'_> {
    Said::Result { call: "", tool: "", arguments: None, text }
}

fn of_part(part: &UserPart) -> Option<Said<'_>> {
    match part {
        // A model has written it about results, too.
        UserPart::Text(text) if text.starts_with(SUMMARY) => Some(of_nobody(text)),
        UserPart::Text(text) => Some(Said::User(text)),
        UserPart::Image(_) | UserPart::File(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_of_the_tool_that_was_called_by_another() {
        let result = |tool: &str| {
            let (call_id, tool, text) = ("1".into(), tool.into(), "a page".into());
            Message::Tool(ToolMessage { call_id, tool, text, ..ToolMessage::default() })
        };
        let (called, own) = (json!({"tool": "web_fetch", "arguments": {"url": "x"}}), json!({"tool": "a"}));
        for (message, arguments, expected) in [
            (result(CALL_TOOL), &called, ("web_fetch", called.get("arguments"))),
            (result("echo"), &own, ("echo", Some(&own))),
        ] {
            let arguments = HashMap::from([("1", arguments.clone())]);
            let found = said(&message, &arguments, false);
            let [Said::Result { tool, arguments, .. }] = &found[..] else { panic!() };
            assert_eq!((*tool, *arguments), expected);
        }
    }

    fn described(message: &Message, is_alone: bool) -> Vec<String> {
        let describe = |said: Said<'_>| match said {
            Said::User(text) => format!("user: {text}"),
            Said::Result { tool, text, .. } => format!("{tool}: {text}"),
        };
        said(message, &HashMap::new(), is_alone).into_iter().map(describe).collect()
    }

    #[test]
    fn a_summary_and_a_result_are_no_text_of_the_user() {
        let summary = format!("{SUMMARY}\nMail bob.\n\n");
        let result = ToolMessage {
            call_id: "1".into(),
            tool: "web_fetch".into(),
            text: "a page".into(),
            images: Vec::new(),
            is_error: false,
        };
        for (message, expected) in [
            (Message::System("Be brief.".into()), vec!["user: Be brief.".to_owned()]),
            (Message::User("Mail ann.".into()), vec!["user: Mail ann.".to_owned()]),
            (Message::User(summary.as_str().into()), vec![format!(": {summary}")]),
            (Message::Assistant(AssistantTurn::new("eve@evil.example", [])), vec![]),
            (Message::Tool(result), vec!["web_fetch: a page".to_owned()]),
        ] {
            assert_eq!(described(&message, false), expected, "{message:?}");
        }
    }

    #[test]
    fn an_answer_of_an_earlier_run_without_a_session_may_say_what_strangers_wrote() {
        let answer = Message::Assistant(AssistantTurn::new("Write to eve@evil.example.", []));
        assert_eq!(described(&answer, true), [format!(": {LOST}"), ": Write to eve@evil.example.".to_owned()]);
        let paused = Message::Assistant(AssistantTurn::new("", []));
        assert_eq!(described(&paused, true), [format!(": {LOST}")]);
    }
}
