//! `python_executor`: untrusted Python in a fresh interpreter, without network or host files.
//!
//! This file has the tool's arguments and results; [`RunPython`] executes it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::read_arguments;
use crate::config::SandboxConfig;
use crate::core::call::{Arguments, ToolOutput};
use crate::core::error::{CallError, Detail, ErrorCode};
use crate::sandbox::RunPython;
use crate::sandbox::protocol::{Captured, End, GuestFile, Job, JobLimits, Outcome};
use crate::tool::Metadata;
use crate::tool::{Attempt, Execution, Executor, ToolDefinition};

const MAX_CODE_BYTES: usize = 1 << 20;
const MAX_STDIN_BYTES: usize = 1 << 20;
const MAX_INPUT_FILES: usize = 64;
const MAX_PATH_CHARACTERS: usize = 200;

/// Most files and folders of one run, and most open at once.
const MAX_FILES: u32 = 8_192;
const MAX_OPEN_FILES: u32 = 64;

/// A generator is seeded with 32 bytes; this is enough for keys and samples without draining the host.
const MAX_RANDOM_BYTES: u64 = 16 << 20;

/// Of one run, including the harness's own.
const MAX_HOST_CALLS: u32 = 1_000;

/// The sandbox has its own fair queue between callers, so calls wait there and not before it.
const MAX_CONCURRENT: u32 = 1_000;

/// `run` executes a job: the sandbox or, in tests, a fake; `profiles` are its interpreter's.
pub(super) fn definition(config: &SandboxConfig, profiles: &[&str], run: Arc<dyn RunPython>) -> ToolDefinition {
    ToolDefinition {
        metadata: Metadata {
            name: "python_executor".into(),
            description: if profiles.len() > 1 { DESCRIPTION } else { DESCRIPTION_OF_PLAIN }.into(),
            category: "code".into(),
            rate_limit: 60, // E49
            timeout_seconds: config.timeout_seconds,
            memory_limit_mb: config.memory_limit_mb,
            // Base64 of the files and pictures, and the texts around them.
            max_output_bytes: 2 * (config.max_file_bytes as usize + 2 * config.max_result_bytes as usize),
            max_concurrent: Some(MAX_CONCURRENT),
            ..Metadata::default()
        },
        parameters: parameters(config, profiles).into(),
        output_schema: Some(output_schema()),
        executor: Arc::new(PythonExecutor { config: config.clone(), run }),
    }
}

const DESCRIPTION: &str = "Runs Python 3 with numpy, pandas, scipy, matplotlib and more, in a fresh interpreter without \
                           network. Nothing is kept between calls. The value of the last expression comes back as \
                           `result`, open matplotlib figures as `images`, and files written under /output as `files`. \
                           Files sent along stand under /input.";

/// For a custom interpreter, whose packages are unknown.
const DESCRIPTION_OF_PLAIN: &str = "Runs Python 3 in a fresh interpreter without network. Nothing is kept between calls. \
                                    The value of the last expression comes back as `result`, and files written under \
                                    /output as `files`. Files sent along stand under /input.";

fn parameters(config: &SandboxConfig, profiles: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": {
            "code": {"type": "string", "maxLength": MAX_CODE_BYTES, "description": "A complete program."},
            "stdin": {"type": "string", "maxLength": MAX_STDIN_BYTES, "description": "The program's stdin."},
            "files": {
                "type": "array",
                "maxItems": MAX_INPUT_FILES,
                "description": "Mounted under /input, read-only.",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": {
                            "type": "string", "minLength": 1, "maxLength": MAX_PATH_CHARACTERS,
                            "description": "Below /input, such as \"data/table.csv\"."
                        },
                        "text": {"type": "string"},
                        "content_base64": {"type": "string", "description": "For files that are not text."}
                    },
                    "required": ["path"],
                    "oneOf": [{"required": ["text"]}, {"required": ["content_base64"]}],
                    "additionalProperties": false
                }
            },
            "profile": {
                "type": "string",
                "enum": profiles,
                "description": "What is imported already: of base, data and plot, data has numpy and pandas, plot \
                                matplotlib too. Chosen by the code's imports when left out; every profile can import \
                                everything."
            },
            "timeout_seconds": {
                "type": "number", "exclusiveMinimum": 0, "maximum": config.timeout_seconds,
                "description": "Stop the run after this long."
            }
        },
        "required": ["code"],
        "additionalProperties": false
    })
}

fn output_schema() -> Value {
    let stream = json!({"type": "string", "description": "Its beginning; metadata has its whole length."});
    json!({
        "type": "object",
        "properties": {
            "result": {"description": "The last expression; an object with `$type` where JSON has no such type."},
            "stdout": stream,
            "stderr": stream,
            "exit_code": {"type": ["integer", "null"], "description": "Null when the run was stopped."},
            "files": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"path": {"type": "string"}, "content_base64": {"type": "string"}},
                    "required": ["path", "content_base64"]
                }
            },
            "images": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"media_type": {"const": "image/png"}, "content_base64": {"type": "string"}},
                    "required": ["media_type", "content_base64"]
                }
            },
            "usage": {
                "type": "object",
                "properties": {
                    "wall_ms": {"type": "number"}, "cpu_ms": {"type": "number"},
                    "peak_memory_bytes": {"type": "integer"}, "output_bytes": {"type": "integer"}
                },
                "required": ["wall_ms", "cpu_ms", "peak_memory_bytes", "output_bytes"]
            }
        },
        "required": ["result", "stdout", "stderr", "exit_code", "files", "images", "usage"]
    })
}

struct PythonExecutor {
    config: SandboxConfig,
    run: Arc<dyn RunPython>,
}

impl Executor for PythonExecutor {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let job = self.job(&attempt, &read_arguments(arguments)?)?;
            let Attempt { call, deadline, .. } = attempt;
            let outcome = self.run.run(call.on_behalf(), job, deadline).await?;
            answer(&outcome)
        })
    }

    fn marks_sent(&self) -> bool {
        true
    }

    fn sandboxed(&self) -> bool {
        true
    }
}

#[derive(Debug, Deserialize)]
struct Request<'a> {
    code: &'a str,
    #[serde(default)]
    stdin: &'a str,
    #[serde(default)]
    files: Vec<InputFile<'a>>,
    profile: Option<&'a str>,
    timeout_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct InputFile<'a> {
    path: &'a str,
    text: Option<&'a str>,
    content_base64: Option<&'a str>,
}

impl PythonExecutor {
    fn job(&self, attempt: &Attempt<'_>, request: &Request<'_>) -> Result<Job, CallError> {
        let left = attempt.deadline.remaining();
        let requested = request.timeout_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let files = request.files.iter().enumerate().map(|(index, file)| file.read(index));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        self.check_places(&files)?;
        Ok(Job {
            id: 0,
            profile: request.profile.unwrap_or_default().to_owned(),
            code: request.code.to_owned(),
            stdin: request.stdin.into(),
            files,
            limits: JobLimits {
                wall_time: requested.map_or(left, |requested| requested.min(left)),
                memory_bytes: attempt.memory_limit_bytes as u64,
                stream_bytes: u64::from(self.config.max_stream_bytes),
                result_bytes: u64::from(self.config.max_result_bytes),
                file_bytes: u64::from(self.config.max_file_bytes),
                max_files: MAX_FILES,
                max_open_files: MAX_OPEN_FILES,
                random_bytes: MAX_RANDOM_BYTES,
                host_calls: MAX_HOST_CALLS,
            },
        })
    }

    /// Refuses a file at the path of another or of its folder; the operator's files take precedence.
    fn check_places(&self, files: &[GuestFile]) -> Result<(), CallError> {
        let data_files = self.config.data_files.iter().filter_map(|path| path.file_name()?.to_str());
        let mut taken: Vec<&str> = data_files.collect();
        let is_inside = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
        for (index, file) in files.iter().enumerate() {
            let path = file.path.as_str();
            if taken.iter().any(|other| path == *other || is_inside(path, other) || is_inside(other, path)) {
                return Err(wrong(
                    index,
                    "path",
                    "uniqueItems",
                    "is the path of another file or of its folder; rename one of them",
                ));
            }
            taken.push(path);
        }
        Ok(())
    }
}

fn wrong(index: usize, field: &str, rule: &str, message: &str) -> CallError {
    let path = format!("/files/{index}/{field}");
    let error = CallError::new(ErrorCode::InvalidArguments, format!("`{path}`: {message}"));
    error.with_detail(Detail { path, rule: rule.into(), message: message.into() })
}

impl InputFile<'_> {
    fn read(&self, index: usize) -> Result<GuestFile, CallError> {
        let plain = |part: &str| !part.is_empty() && part != "." && part != ".." && !part.contains('\0');
        if !self.path.split('/').all(plain) {
            return Err(wrong(index, "path", "path", "is not a path below /input; write it like data/table.csv"));
        }
        let content = match (self.text, self.content_base64) {
            (Some(text), None) => text.as_bytes().to_vec(),
            (None, Some(encoded)) => {
                let decoded = BASE64.decode(encoded);
                decoded.map_err(|_| wrong(index, "content_base64", "base64", "is not base64 (RFC 4648)"))?
            }
            _ => return Err(wrong(index, "text", "oneOf", "give either `text` or `content_base64`")),
        };
        Ok(GuestFile { path: self.path.to_owned(), content })
    }
}

/// Success, or the error that ended the run, with its output until then.
fn answer(outcome: &Outcome) -> Result<ToolOutput, CallError> {
    let exit_code = match &outcome.end {
        End::Exited { code } => Some(*code),
        End::Exception { .. } => Some(1),
        _ => None,
    };
    let metadata = metadata(outcome);
    let value = output(outcome, exit_code, &metadata)?;
    match failure(outcome) {
        None => Ok(ToolOutput { value, metadata, ..ToolOutput::default() }),
        Some(error) => Err(error.with_output(value)),
    }
}

fn failure(outcome: &Outcome) -> Option<CallError> {
    let used = outcome.usage.wall_time.as_secs_f64();
    Some(match &outcome.end {
        End::Exited { .. } => return None,
        End::Exception { kind, message, traceback, line, column } => {
            exception(kind, message, traceback, *line, *column)
        }
        End::Timeout => CallError::new(
            ErrorCode::SandboxTimeout,
            format!("the program was stopped after {used:.1} s; do less in one call, or ask for more time"),
        ),
        End::Memory => CallError::new(
            ErrorCode::SandboxMemory,
            format!(
                "the program exceeded its memory limit after using {} MiB; process less data at once",
                outcome.usage.peak_memory_bytes >> 20
            ),
        ),
        End::Output(limit) => {
            CallError::new(ErrorCode::SandboxOutput, format!("the program was stopped at a limit: {limit}"))
        }
        End::Trap(reason) => CallError::new(
            ErrorCode::SandboxTrap,
            "the interpreter crashed, by too deep recursion or an error in an extension module",
        )
        .caused_by(reason),
        End::Cancelled => CallError::internal("a run that was waited for was cancelled"),
    })
}

fn exception(kind: &str, message: &str, traceback: &str, line: Option<u32>, column: Option<u32>) -> CallError {
    let text = if traceback.is_empty() { format!("{kind}: {message}") } else { traceback.trim_end().to_owned() };
    let error = CallError::tool(text);
    let Some(line) = line else { return error };
    let place = column.map_or_else(|| format!("line {line}"), |column| format!("line {line}, column {column}"));
    error.with_detail(Detail { path: "/code".into(), rule: kind.to_owned(), message: format!("{place}: {message}") })
}

fn output(outcome: &Outcome, exit_code: Option<i32>, metadata: &Map<String, Value>) -> Result<Value, CallError> {
    let result = match outcome.result.as_deref().map(serde_json::from_str::<Value>) {
        None => Value::Null,
        Some(Ok(result)) => result,
        Some(Err(error)) => {
            return Err(CallError::new(ErrorCode::SandboxTrap, "the program tampered with the channel for its result")
                .caused_by(error));
        }
    };
    let files =
        outcome.files.iter().map(|file| json!({"path": file.path, "content_base64": BASE64.encode(&file.content)}));
    let images =
        outcome.images.iter().map(|png| json!({"media_type": "image/png", "content_base64": BASE64.encode(png)}));
    Ok(json!({
        "result": result,
        "stdout": text_of(&outcome.stdout),
        "stderr": text_of(&outcome.stderr),
        "exit_code": exit_code,
        "files": files.collect::<Vec<_>>(),
        "images": images.collect::<Vec<_>>(),
        "usage": metadata,
    }))
}

/// The run's resource usage, measured by the host.
fn metadata(outcome: &Outcome) -> Map<String, Value> {
    let milliseconds = |time: Duration| Value::from(time.as_micros() as f64 / 1_000.0);
    [
        ("wall_ms", milliseconds(outcome.usage.wall_time)),
        ("cpu_ms", milliseconds(outcome.usage.cpu_time)),
        ("peak_memory_bytes", outcome.usage.peak_memory_bytes.into()),
        ("output_bytes", outcome.stdout.total.saturating_add(outcome.stderr.total).into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into_iter()
    .collect()
}

/// Appends a note when the stream was truncated.
fn text_of(stream: &Captured) -> String {
    let mut text = String::from_utf8_lossy(&stream.bytes).into_owned();
    let kept = stream.bytes.len() as u64;
    if stream.total > kept {
        text.push_str(&format!("\n… ({kept} of {} bytes)", stream.total));
    }
    text
}

#[cfg(test)]
mod tests;
