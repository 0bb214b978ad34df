//! One call of `Task`: its request, and its result.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::event::{Event, RunUsage};
use crate::toolbox::{ToolAnswer, ToolDescription};
use crate::usage::UsageByAgent;
use sekisho_config::SubAgentType;
use sekisho_config::TASK;
use sekisho_core::call::Arguments;
use sekisho_core::error::{CallError, ErrorCode};

/// The arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    /// For people who follow the run.
    #[serde(rename = "description")]
    _description: String,
    pub(super) prompt: String,
    pub(super) subagent_type: String,
    pub(super) model: Option<String>,
}

impl Task {
    pub(super) fn read(arguments: Arguments) -> Result<Self, CallError> {
        serde_json::from_value(Value::Object(arguments)).map_err(|problem| {
            let message = format!("the arguments of `{TASK}` are invalid: {problem}; correct them");
            CallError::new(ErrorCode::InvalidArguments, message)
        })
    }

    pub(super) fn unknown_type(&self, types: &BTreeMap<String, SubAgentType>) -> CallError {
        let shown: String = self.subagent_type.chars().take(100).collect();
        let message = format!("there is no sub-agent type {shown:?}; use one of the others");
        CallError::new(ErrorCode::InvalidArguments, message).with_alternatives(types.keys().cloned().collect())
    }
}

/// `Task` for a model, which selects a type by the descriptions.
pub(super) fn description(types: &BTreeMap<String, SubAgentType>, models: &[String]) -> ToolDescription {
    let mut text =
        "Starts a sub-agent with a context of its own for a task, and returns its final answer. It knows only \
                    what `prompt` says. Calls in one turn run in parallel. Types:"
            .to_owned();
    for (name, kind) in types {
        text.push_str(&format!("\n- {name}: {}", kind.description));
    }
    let parameters = Arc::new(json!({
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "The task in three to five words."},
            "prompt": {"type": "string", "description": "The task, with everything that the sub-agent must know, and what to answer."},
            "subagent_type": {"type": "string", "enum": types.keys().collect::<Vec<_>>()},
            "model": {"type": "string", "enum": models, "description": "Another model than the usual one; best left out."},
        },
        "required": ["description", "prompt", "subagent_type"],
        "additionalProperties": false,
    }));
    ToolDescription { name: TASK.to_owned(), description: text, parameters, is_deferred: false }
}

/// The answer to a call that started nothing.
pub(super) fn refused(error: &CallError) -> ToolAnswer {
    let mut text = error.message().to_owned();
    if !error.alternatives().is_empty() {
        text.push_str(&format!(" ({})", error.alternatives().join(", ")));
    }
    ToolAnswer { success: false, text, error_info: None, images: Vec::new() }
}

/// A sub-agent that runs. When it is dropped, its end is reported.
pub(super) struct Started {
    tool_use_id: String,
    agent: Arc<str>,
    model: String,
    /// Its own usage, and the usage of its sub-agents.
    pub(super) usage: UsageByAgent,
    pub(super) success: bool,
    events: UnboundedSender<Event>,
    begun: Instant,
}

impl Started {
    /// Reports the beginning.
    pub(super) fn new(
        tool_use_id: String,
        agent: Arc<str>,
        model: &str,
        of_run: &UsageByAgent,
        events: UnboundedSender<Event>,
    ) -> Self {
        let begin = Event::SubAgentBegin {
            tool_use_id: tool_use_id.clone(),
            subagent_type: agent.to_string(),
            model: model.to_owned(),
        };
        // Fails only where nobody reads the run's events any more.
        let _run_has_ended = events.send(begin);
        Self {
            tool_use_id,
            agent,
            model: model.to_owned(),
            usage: of_run.of_sub_agent(),
            success: false,
            events,
            begun: Instant::now(),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let duration_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let end = Event::SubAgentEnd {
            tool_use_id: std::mem::take(&mut self.tool_use_id),
            subagent_type: self.agent.to_string(),
            model: std::mem::take(&mut self.model),
            success: self.success,
            usage: RunUsage { duration_ms, ..self.usage.total() },
        };
        let _run_has_ended = self.events.send(end);
    }
}

/// The answer of a sub-agent: the text after its last tool call.
#[derive(Debug, Default)]
pub(super) struct Answer {
    text: String,
    /// Why it could not finish.
    problem: Option<String>,
}

impl Answer {
    pub(super) fn record(&mut self, event: Event) {
        match event {
            Event::Content { text } => self.text.push_str(&text),
            // Text before a call is not part of the answer.
            Event::ToolInput { .. } => self.text.clear(),
            Event::Error(error) => self.problem = Some(error.message),
            Event::Status { status, message } if status != "without_tools" => self.problem = Some(message),
            _ => {}
        }
    }

    pub(super) fn into_tool_answer(self) -> ToolAnswer {
        let text = match &self.problem {
            None => self.text,
            Some(problem) if self.text.is_empty() => format!("the sub-agent did not finish: {problem}"),
            Some(problem) => format!("the sub-agent did not finish: {problem}\nIts answer so far:\n{}", self.text),
        };
        ToolAnswer { success: self.problem.is_none(), text, error_info: None, images: Vec::new() }
    }
}
