//! A call of a component's function, or of a command.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::outgoing::{HttpAccess, MAX_REQUESTS};
use sekisho_calls::tool::{Attempt, Execution, Executor};
use sekisho_config::SandboxConfig;
use sekisho_core::call::{Arguments, ToolOutput};
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_core::json;
use sekisho_guest_protocol::{Captured, ComponentCall, End, Export, JobLimits, Outcome};
use sekisho_sandbox::limits;
use sekisho_sandbox::{ComponentHttp, RunComponents};

/// The part of the message with the error of a function, or with the standard error of a command that has failed.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// Where the result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultPlace {
    Returned,
    /// On standard output.
    Printed,
}

/// Runs one function.
pub(super) struct ComponentExecutor {
    pub(super) run: Arc<dyn RunComponents>,
    pub(super) sandbox: SandboxConfig,
    /// The id under which workers have it.
    pub(super) component: String,
    pub(super) export: Export,
    /// SHA-256 of the file.
    pub(super) sum: String,
    /// The values that it is given, and what else it may use.
    pub(super) identity: Option<String>,
    pub(super) http: Option<Arc<HttpAccess>>,
    pub(super) result: ResultPlace,
}

sekisho_core::debug_fields!(ComponentExecutor { export });

/// The value that a function has returned.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Returned {
    Value(Value),
    /// The `err` of a `result`.
    Error(Value),
    /// An argument that its type does not admit, although the schema does.
    Invalid {
        path: String,
        message: String,
    },
}

impl Executor for ComponentExecutor {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let call = ComponentCall {
                id: 0,
                component: self.component.clone(),
                export: self.export.clone(),
                arguments: serde_json::to_string(arguments).map_err(CallError::internal)?,
                limits: self.limits(&attempt),
            };
            let http = self.http.as_ref().map(|access| access.for_call(attempt.call, attempt.deadline));
            let http = http.as_ref().map(|requests| requests as &dyn ComponentHttp);
            let outcome = self.run.call(attempt.call, call, http, attempt.deadline).await?;
            self.answer(&outcome)
        })
    }

    fn marks_sent(&self) -> bool {
        true
    }

    /// A lock approves a content.
    fn reaches(&self) -> Option<String> {
        Some(format!("sha256:{}", self.sum))
    }

    fn identity(&self) -> Option<String> {
        self.identity.clone()
    }

    fn sandboxed(&self) -> bool {
        true
    }
}

impl ComponentExecutor {
    fn limits(&self, attempt: &Attempt<'_>) -> JobLimits {
        let memory = attempt.memory_limit_bytes as u64;
        let limits = limits::job_limits(&self.sandbox, memory, attempt.deadline.remaining());
        // The number of requests.
        let tool_calls = if self.http.is_some() { MAX_REQUESTS } else { 0 };
        JobLimits { tool_calls, ..limits }
    }

    fn answer(&self, outcome: &Outcome) -> Result<ToolOutput, CallError> {
        let answered = match self.result {
            ResultPlace::Returned => self.returned(outcome),
            ResultPlace::Printed => self.printed(outcome),
        };
        let mut printed = printed_of(outcome, self.result);
        match answered {
            Ok(value) => {
                let metadata = limits::usage_metadata(outcome).into_iter().chain(printed).collect();
                Ok(ToolOutput { value, metadata, ..ToolOutput::default() })
            }
            Err(error) if printed.is_empty() => Err(error),
            Err(error) => {
                printed.extend(error.output().map(|output| ("error".to_owned(), output.clone())));
                Err(error.with_output(printed.into()))
            }
        }
    }

    fn returned(&self, outcome: &Outcome) -> Result<Value, CallError> {
        match (&outcome.end, &outcome.result) {
            (End::Exited { code: 0 }, Some(result)) => match serde_json::from_str(result) {
                Ok(Returned::Value(value)) => Ok(value),
                Ok(Returned::Error(error)) => Err(failed(error)),
                Ok(Returned::Invalid { path, message }) => {
                    let error = CallError::new(ErrorCode::InvalidArguments, format!("`{path}`: {message}"));
                    Err(error.with_detail(Detail { path, rule: "type".to_owned(), message }))
                }
                Err(error) => Err(CallError::internal(error)),
            },
            (End::Exited { code }, _) => {
                let function = &self.export.function;
                Err(CallError::tool(format!(
                    "`{function}` ended the component with exit({code}), and returned nothing"
                )))
            }
            _ => Err(self.stopped(outcome)),
        }
    }

    fn printed(&self, outcome: &Outcome) -> Result<Value, CallError> {
        let Captured { bytes, total } = &outcome.stdout;
        match &outcome.end {
            End::Exited { code: 0 } if *total > bytes.len() as u64 => {
                let most = bytes.len();
                let message = format!("the command printed {total} bytes, and its result may have {most}; print less");
                Err(CallError::new(ErrorCode::SandboxOutput, message))
            }
            End::Exited { code: 0 } => json::parse(bytes)
                .map_err(|error| CallError::tool(format!("the command printed no JSON to standard output: {error}"))),
            End::Exited { code } => {
                let kept = &outcome.stderr.bytes[..outcome.stderr.bytes.len().min(MAX_MESSAGE_BYTES)];
                let text = String::from_utf8_lossy(kept);
                Err(CallError::tool(format!("the command failed with exit({code}): {}", text.trim())))
            }
            _ => Err(self.stopped(outcome)),
        }
    }

    fn stopped(&self, outcome: &Outcome) -> CallError {
        if let End::Trap(reason) = &outcome.end {
            return CallError::new(ErrorCode::SandboxTrap, format!("the component crashed: {reason}"));
        }
        limits::stop_error(outcome, &self.sandbox, "").unwrap_or_else(|| CallError::internal("no end"))
    }
}

/// A text is the message; anything else, and a long text, is in the reply, and the beginning of its JSON is the message.
fn failed(error: Value) -> CallError {
    match error {
        Value::String(message) if message.len() <= MAX_MESSAGE_BYTES => CallError::tool(message),
        Value::Null => CallError::tool("the function has failed, and says no more"),
        error => {
            let mut message = error.to_string();
            if message.len() > MAX_MESSAGE_BYTES {
                message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
                message.push('…');
            }
            CallError::tool(message).with_output(error)
        }
    }
}

/// The output, by stream, without the result.
fn printed_of(outcome: &Outcome, result: ResultPlace) -> Map<String, Value> {
    let stdout = Some(&outcome.stdout).filter(|_| result == ResultPlace::Returned);
    let streams = [("stdout", stdout), ("stderr", Some(&outcome.stderr))];
    let printed = streams.into_iter().filter_map(|(name, stream)| Some((name, stream?)));
    let printed = printed.filter(|(_, stream)| !stream.bytes.is_empty());
    printed.map(|(name, stream)| (name.to_owned(), limits::beginning(stream).into())).collect()
}
