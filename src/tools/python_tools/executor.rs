//! A call of a function: a fresh interpreter goes on from where the file was executed, and executes the function.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::runner::FunctionRunner;
use sekisho_calls::tool::{Attempt, Execution, Executor};
use sekisho_core::call::{Arguments, ToolOutput};
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_guest_protocol::{End, FunctionCall, JobLimits, ModuleTask, Outcome};
use sekisho_sandbox::limits;

/// The part of a problem of an argument that the reply has: the function could make it up.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// Who may give a function more time.
const MORE_TIME: &str = ": `timeout_seconds` in its @tool(…), within `sandbox.timeout_seconds`";

/// Runs one function of a file.
#[derive(Debug)]
pub(super) struct FunctionExecutor {
    pub(super) runner: FunctionRunner,
    pub(super) code: Arc<str>,
    /// As tracebacks show it.
    pub(super) file: String,
    pub(super) function: String,
    /// JSON.
    pub(super) settings: Arc<str>,
    /// The same: the sources of the modules that it imports.
    pub(super) shared: Arc<str>,
    pub(super) needs: Vec<String>,
    pub(super) converts: bool,
}

/// The result of a run whose function came to an end.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Returned {
    Value(Value),
    /// An argument that its type does not admit, although the schema does: as a text that is no date.
    Invalid {
        path: String,
        message: String,
    },
}

impl Executor for FunctionExecutor {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let task = ModuleTask::Call(FunctionCall {
                file: self.file.clone(),
                function: self.function.clone(),
                arguments: serde_json::to_string(arguments).map_err(CallError::internal)?,
                settings: self.settings.to_string(),
                shared: self.shared.to_string(),
                needs: self.needs.clone(),
                converts: self.converts,
            });
            let job = self.runner.job(&self.code, task, self.limits(&attempt));
            let outcome = self.runner.run.run(attempt.call, arguments, job, attempt.deadline).await?;
            self.answer(&outcome)
        })
    }

    fn marks_sent(&self) -> bool {
        true
    }

    fn sandboxed(&self) -> bool {
        true
    }
}

impl FunctionExecutor {
    fn limits(&self, attempt: &Attempt<'_>) -> JobLimits {
        let memory = attempt.memory_limit_bytes as u64;
        let limits = limits::job_limits(&self.runner.config, memory, attempt.deadline.remaining());
        // A function that needs no tools has no journal, either.
        let tool_calls = if self.needs.is_empty() { 0 } else { limits.tool_calls };
        JobLimits { tool_calls, ..limits }
    }

    fn answer(&self, outcome: &Outcome) -> Result<ToolOutput, CallError> {
        let printed = printed(outcome);
        let error = match (&outcome.end, &outcome.result) {
            (End::Exited { code: 0 }, Some(result)) => match serde_json::from_str(result) {
                Ok(Returned::Value(value)) => {
                    let metadata = limits::usage_metadata(outcome).into_iter().chain(printed).collect();
                    return Ok(ToolOutput { value, metadata, ..ToolOutput::default() });
                }
                Ok(Returned::Invalid { path, message }) => return Err(invalid(shortened(path), shortened(message))),
                Err(error) => {
                    let message = "the function tampered with the channel for its result";
                    return Err(CallError::new(ErrorCode::SandboxTrap, message).caused_by(error));
                }
            },
            (End::Exited { code }, _) => {
                let function = &self.function;
                CallError::tool(format!("`{function}` ended the interpreter with exit({code}), and returned nothing"))
            }
            (End::Exception { kind, message, line, .. }, _) => self.raised(kind, message, *line),
            (end, _) => {
                let note = if matches!(end, End::Timeout) { MORE_TIME } else { "" };
                limits::stop_error(outcome, &self.runner.config, note).unwrap_or_else(|| CallError::internal("no end"))
            }
        };
        Err(if printed.is_empty() { error } else { error.with_output(printed.into()) })
    }

    fn raised(&self, kind: &str, message: &str, line: Option<u32>) -> CallError {
        let text = if message.is_empty() { kind.to_owned() } else { format!("{kind}: {message}") };
        let Some(line) = line else { return CallError::tool(text) };
        let (path, rule) = (format!("{}:{line}", self.file), kind.to_owned());
        let error = CallError::tool(format!("{text} ({}, line {line})", self.file));
        error.with_detail(Detail { path, rule, message: message.to_owned() })
    }
}

fn invalid(path: String, message: String) -> CallError {
    let error = CallError::new(ErrorCode::InvalidArguments, format!("`{path}`: {message}"));
    error.with_detail(Detail { path, rule: "type".to_owned(), message })
}

fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
    text
}

/// The output of the function, by stream.
fn printed(outcome: &Outcome) -> Map<String, Value> {
    let streams = [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)].into_iter();
    let printed = streams.filter(|(_, stream)| !stream.bytes.is_empty());
    printed.map(|(name, stream)| (name.to_owned(), limits::beginning(stream).into())).collect()
}
