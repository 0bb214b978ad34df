//! A run as steps in time: the turns of its model, and the calls of its tools, below which the calls of sub-agents are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::stored;
use crate::Message;
use crate::message::{AssistantTurn, RequestedCall, Thought};
use crate::plan::Used;
use sekisho_config::TASK;
use sekisho_core::error::CallError;
use sekisho_store::{ConversationRun, RunStatus, Store, ToolExecution, TurnMessage};

/// Maximum bytes of a text of a step: the messages of the conversation have the whole.
const MAX_TEXT: usize = 4_096;

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RunStep {
    /// 0: a turn of the run's model; 1: a call of that turn; more: a call of a sub-agent, below the call that started it.
    pub depth: usize,
    pub state: StepState,
    /// RFC 3339.
    pub begun_at: String,
    /// Null until it has ended.
    pub ended_at: Option<String>,
    pub work: StepWork,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RunStepState)]
pub enum StepState {
    Running,
    /// A person must approve it.
    Waits,
    Succeeded,
    Failed,
    /// It was sent, and no answer is known.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schema(as = RunStepWork)]
pub enum StepWork {
    Turn {
        /// From 1.
        number: usize,
        /// The beginning.
        text: String,
        /// The beginning of the thoughts that can be read.
        thinking: String,
        /// Whether there are thoughts that its provider does not show.
        hides_thinking: bool,
        /// Null where it is not known.
        usage: Option<Used>,
    },
    Call {
        /// As `agent_call_id` of its receipt.
        id: String,
        tool: String,
        /// The beginning, as the model wrote them.
        arguments: String,
        /// The id of the approval for which the run paused.
        approval: Option<String>,
    },
}

/// The steps of a run, in the order of their beginnings.
/// Errors: `overloaded`: the store is away; `internal`: it has messages of a newer program.
pub async fn steps(store: &Store, run: &ConversationRun) -> Result<Vec<RunStep>, CallError> {
    let journal = store.conversation_runs().turns_of(&run.id).await.map_err(CallError::from)?;
    let executions = store.conversation_runs().tool_executions(&run.id).await.map_err(CallError::from)?;
    // The messages are stored with the end of the run.
    let messages = match run.status {
        RunStatus::Running => journal.iter().map(|turn| turn.message.clone()).collect(),
        _ => store.conversation_logs().messages_of_run(&run.id).await.map_err(CallError::from)?,
    };
    let turns = Turns::read(&messages, &journal).map_err(CallError::internal)?;
    Ok(Timeline::new(run, &turns, &executions).steps())
}

/// The turns of a run as they are stored.
#[derive(Debug, Default)]
struct Turns {
    turns: Vec<(AssistantTurn, Option<Used>)>,
    /// The ids of calls whose answers are errors.
    failed: HashSet<String>,
}

impl Turns {
    fn read(messages: &[String], journal: &[TurnMessage]) -> Result<Self, String> {
        let mut of_journal = HashMap::new();
        for TurnMessage { message, .. } in journal {
            let turn = stored::read_turn(message)?;
            if let (Some(call), Some(used)) = (turn.calls().next(), stored::read_usage(message)) {
                of_journal.insert(call.id.clone(), used);
            }
        }
        let mut read = Self::default();
        for text in messages {
            match stored::read(text)? {
                Message::Assistant(turn) => {
                    // Of turns of an interrupted run only the journal has the usage.
                    let in_journal = || of_journal.get(&turn.calls().next()?.id).cloned();
                    let used = stored::read_usage(text).or_else(in_journal);
                    read.turns.push((turn, used));
                }
                Message::Tool(answer) if answer.is_error => {
                    read.failed.insert(answer.call_id);
                }
                Message::System(_) | Message::User(_) | Message::Tool(_) => {}
            }
        }
        Ok(read)
    }
}

/// The steps of a run as they are found.
struct Timeline<'a> {
    run: &'a ConversationRun,
    turns: &'a Turns,
    executions: &'a [ToolExecution],
    /// Of each execution, the one within which it was made.
    parents: Vec<Option<usize>>,
    /// The ids of the calls that the run's own model requested.
    own: HashSet<&'a str>,
    steps: Vec<RunStep>,
    /// When all steps so far had ended.
    at: Timestamp,
}

impl<'a> Timeline<'a> {
    fn new(run: &'a ConversationRun, turns: &'a Turns, executions: &'a [ToolExecution]) -> Self {
        let calls = turns.turns.iter().flat_map(|(turn, _)| turn.calls());
        let own: HashSet<_> = calls.map(|call| call.id.as_str()).collect();
        let parents = parents(executions, &own);
        Self { run, turns, executions, parents, own, steps: Vec::new(), at: *run.begun }
    }

    fn steps(mut self) -> Vec<RunStep> {
        let Turns { turns, .. } = self.turns;
        for (index, (turn, used)) in turns.iter().enumerate() {
            self.add_turn((index + 1, index + 1 == turns.len()), turn, used.as_ref());
        }
        // Of sub-agents whose own call is not known.
        for index in 0..self.executions.len() {
            if self.parents[index].is_none() && !self.own.contains(self.executions[index].tool_use_id.as_str()) {
                self.add_call(index, 1, None);
            }
        }
        let is_answered = self.executions.iter().all(|execution| execution.output.is_some());
        if self.run.status == RunStatus::Running && is_answered {
            let work = work_of_turn(turns.len() + 1, &AssistantTurn::default(), None);
            self.push((0, StepState::Running), (self.at, None), work);
        }
        self.steps
    }

    /// A turn begins when the calls of the one before have ended, or later, as long before its end as its model took.
    fn add_turn(&mut self, (number, is_last): (usize, bool), turn: &'a AssistantTurn, used: Option<&Used>) {
        let calls: Vec<_> = turn.calls().map(|call| (call, self.execution_of(call))).collect();
        let first = calls.iter().filter_map(|(_, index)| Some(*self.executions[(*index)?].begun)).min();
        let of_run = self.run.ended.filter(|_| is_last).map(|ended| *ended);
        let took = used.map(|used| SignedDuration::from_millis(i64::try_from(used.duration_ms).unwrap_or(i64::MAX)));
        let after = took.and_then(|took| self.at.checked_add(took).ok());
        let end = first.or(of_run).or(after).unwrap_or(self.at).max(self.at);
        let begun = took.and_then(|took| end.checked_sub(took).ok()).unwrap_or(self.at).max(self.at);
        self.push((0, StepState::Succeeded), (begun, Some(end)), work_of_turn(number, turn, used));
        self.at = end;
        for (call, index) in calls {
            match index {
                Some(index) => self.add_call(index, 1, call.approval.as_ref()),
                // The run itself has answered it, such as one whose arguments are no JSON.
                None => {
                    let failed = self.turns.failed.contains(&call.id);
                    let state = if failed { StepState::Failed } else { StepState::Unknown };
                    let work = work_of_call(&call.id, &call.tool, &call.arguments, call.approval.as_ref());
                    self.push((1, state), (end, Some(end)), work);
                }
            }
        }
    }

    fn execution_of(&self, call: &RequestedCall) -> Option<usize> {
        self.executions.iter().position(|execution| execution.tool_use_id == call.id)
    }

    /// A call, and below it the calls of the sub-agent that it started.
    fn add_call(&mut self, index: usize, depth: usize, approval: Option<&Arc<str>>) {
        let executions = self.executions;
        let execution = &executions[index];
        let state = match &execution.output {
            None if self.run.status == RunStatus::Running => StepState::Running,
            None => StepState::Unknown,
            Some(_) if execution.ended.is_none() => StepState::Waits,
            Some(outcome) if outcome.is_error => StepState::Failed,
            Some(_) => StepState::Succeeded,
        };
        let ended = execution.ended.map(|ended| *ended);
        let work = work_of_call(&execution.tool_use_id, &execution.tool_name, &execution.tool_input, approval);
        self.push((depth, state), (*execution.begun, ended), work);
        self.at = ended.map_or(self.at, |ended| ended.max(self.at));
        for below in 0..executions.len() {
            if self.parents[below] == Some(index) {
                self.add_call(below, depth + 1, None);
            }
        }
    }

    fn push(
        &mut self,
        (depth, state): (usize, StepState),
        (begun, ended): (Timestamp, Option<Timestamp>),
        work: StepWork,
    ) {
        let ended_at = ended.map(|ended| ended.to_string());
        self.steps.push(RunStep { depth, state, begun_at: begun.to_string(), ended_at, work });
    }
}

/// Of each call of a sub-agent, the call of `Task` within which it was made: the innermost one, and of parallel ones the one that
/// began last.
fn parents(executions: &[ToolExecution], own: &HashSet<&str>) -> Vec<Option<usize>> {
    let order = |execution: &ToolExecution| (execution.begun, execution.position);
    let parent = |call: &ToolExecution| {
        if own.contains(call.tool_use_id.as_str()) {
            return None;
        }
        let contains = |task: &ToolExecution| {
            task.tool_name == TASK && order(task) < order(call) && task.ended.is_none_or(|ended| ended >= call.begun)
        };
        let tasks = executions.iter().enumerate().filter(|&(_, task)| contains(task));
        tasks.max_by_key(|&(_, task)| order(task)).map(|(index, _)| index)
    };
    executions.iter().map(parent).collect()
}

fn work_of_turn(number: usize, turn: &AssistantTurn, usage: Option<&Used>) -> StepWork {
    let readable = |thought: &Thought| match thought {
        Thought::Signed { text, .. } | Thought::Unsigned { text, .. } => text.clone(),
        Thought::Redacted(_) | Thought::Details(_) => String::new(),
    };
    let thinking: String = turn.thoughts().map(readable).collect();
    let hides_thinking = thinking.trim().is_empty() && turn.thoughts().next().is_some();
    let (text, thinking) = (beginning(&turn.text()), beginning(&thinking));
    StepWork::Turn { number, text, thinking, hides_thinking, usage: usage.cloned() }
}

fn work_of_call(id: &str, tool: &str, arguments: &str, approval: Option<&Arc<str>>) -> StepWork {
    let approval = approval.map(ToString::to_string);
    StepWork::Call { id: id.to_owned(), tool: tool.to_owned(), arguments: beginning(arguments), approval }
}

fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT)].to_owned()
}

#[cfg(test)]
mod tests;
