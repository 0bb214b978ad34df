//! A stored run as a case.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::case::{Answer, Case, Expectation, ExpectedCall};
use crate::Message;
use crate::message::{AssistantTurn, RequestedCall};
use crate::toolbox::{ToolDescription, called, shortlist};
use sekisho_config::CALL_TOOL;

/// Tools of a case at most: those that the conversation called, and those that fit its messages best.
const MAX_TOOLS: usize = 32;

/// A stored message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedMessage {
    pub run: String,
    /// Of a run that did not end with an answer.
    pub incomplete: bool,
    pub message: Message,
}

/// A run of a conversation as a case, with the script that plays its model's turns. `tools`: those that its agent can be offered.
/// Errors: the run is no question with an answer.
pub fn save(run: &str, mut messages: Vec<SavedMessage>, tools: Vec<ToolDescription>) -> Result<Value, String> {
    let last = messages.iter().rposition(|message| message.run == run).ok_or("the run has no messages")?;
    messages.truncate(last + 1);
    messages.retain(|message| message.run == run || !message.incomplete);
    for saved in &mut messages {
        if let Message::Assistant(turn) = &mut saved.message {
            turn.calls_mut().for_each(name_the_tool);
        }
    }
    let first = messages.iter().position(|message| message.run == run).unwrap_or_default();
    let whole: Vec<Message> = messages.into_iter().map(|saved| saved.message).collect();
    let (history, own) = whole.split_at(first);
    let [Message::User(input), rest @ ..] = own else {
        return Err("it goes on after a pause; save the run that begins with the message of the user".to_owned());
    };
    if !matches!(rest.last(), Some(Message::Assistant(turn)) if turn.calls().next().is_none()) {
        return Err("it did not end with an answer; save a run that did".to_owned());
    }
    let calls: Vec<&RequestedCall> = turns(rest).flat_map(AssistantTurn::calls).collect();
    let case = Case {
        input: input.text(),
        history: history.to_vec(),
        tools: shortlist(tools, MAX_TOOLS, &whole),
        answers: answers(&calls, rest),
        expect: Expectation {
            calls: Some(calls.iter().map(|call| expected(call)).collect()),
            ..Expectation::default()
        },
    };
    Ok(json!({"turns": turns(&whole).map(script).collect::<Vec<_>>(), "case": case}))
}

fn turns(messages: &[Message]) -> impl Iterator<Item = &AssistantTurn> {
    messages.iter().filter_map(Message::as_assistant)
}

/// A case offers each of its tools, so that none is called through another.
fn name_the_tool(call: &mut RequestedCall) {
    if call.tool != CALL_TOOL {
        return;
    }
    let arguments = call.parsed_arguments();
    if let Some((tool, arguments)) = called(&arguments) {
        let (tool, arguments) = (tool.to_owned(), arguments.map_or_else(|| "{}".to_owned(), Value::to_string));
        (call.tool, call.arguments) = (tool, arguments);
    }
}

fn expected(call: &RequestedCall) -> ExpectedCall {
    ExpectedCall { tool: call.tool.clone(), arguments: call.read_arguments().ok() }
}

fn answers(calls: &[&RequestedCall], messages: &[Message]) -> Vec<Answer> {
    let by_id: HashMap<_, _> = calls.iter().map(|call| (call.id.as_str(), *call)).collect();
    let answer = |message: &Message| {
        let Message::Tool(result) = message else { return None };
        let ExpectedCall { tool, arguments } = expected(by_id.get(result.call_id.as_str())?);
        Some(Answer { tool, arguments, text: result.text.clone(), is_error: result.is_error })
    };
    messages.iter().filter_map(answer).collect()
}

/// A turn as a script has it.
fn script(turn: &AssistantTurn) -> Value {
    let call = |call: &RequestedCall| json!({"id": call.id, "tool": call.tool, "arguments": call.arguments});
    let (text, calls) = (turn.text(), turn.calls().map(call).collect::<Vec<_>>());
    let mut script = json!({});
    if !text.is_empty() {
        script["text"] = json!([text]);
    }
    if !calls.is_empty() {
        script["calls"] = calls.into();
    }
    script
}
