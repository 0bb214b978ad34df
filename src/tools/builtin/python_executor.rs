//! `python_executor`: untrusted Python in a fresh interpreter, without network or host files.
//!
//! This file has the tool's arguments and results; [`RunPython`] executes it.

mod outcome;
mod session;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

use self::outcome::answer;
use super::read_arguments;
use super::workspace::{Reach, Workspace, Workspaces};
use sekisho_calls::tool::Metadata;
use sekisho_calls::tool::{Attempt, Execution, Executor, ToolDefinition};
use sekisho_config::SandboxConfig;
use sekisho_core::call::Arguments;
use sekisho_core::error::{CallError, Detail, ErrorCode};
use sekisho_core::session::Session;
use sekisho_guest_protocol::{GuestFile, Job};
use sekisho_sandbox::limits;
use sekisho_sandbox::{CallSession, PYTHON, RunPython};

const MAX_CODE_BYTES: usize = 1 << 20;
const MAX_STDIN_BYTES: usize = 1 << 20;
const MAX_INPUT_FILES: usize = 64;
const MAX_PATH_CHARACTERS: usize = 200;

/// The sandbox has its own fair queue between callers, so calls wait there and not before it.
const MAX_CONCURRENT: u32 = 1_000;

/// `run` executes a job: the sandbox or, in tests, a fake; `profiles` are its interpreter's. Runs see the files of their
/// session's workspace.
pub(super) fn definition(
    config: &SandboxConfig,
    profiles: &[&str],
    run: Arc<dyn RunPython>,
    workspaces: &Workspaces,
) -> ToolDefinition {
    let has_sessions = run.has_sessions();
    let mut parameters = parameters(config, profiles);
    if has_sessions {
        parameters["properties"]["session"] = session::parameter();
        parameters["properties"]["checkpoint"] = session::checkpoint_parameter();
    }
    ToolDefinition {
        metadata: Metadata {
            name: PYTHON.into(),
            description: description(config, profiles, has_sessions),
            category: "code".into(),
            rate_limit: 60, // E49
            timeout_seconds: config.max_seconds(),
            memory_limit_mb: config.memory_limit_mb,
            // Base64 of the files and pictures, and the texts around them.
            max_output_bytes: 2
                * (config.max_file_bytes as usize
                    + config.max_image_bytes as usize
                    + 2 * config.max_result_bytes as usize),
            session_aware: true,
            max_concurrent: Some(MAX_CONCURRENT),
            ..Metadata::default()
        },
        parameters: parameters.into(),
        output_schema: Some(output_schema()),
        executor: Arc::new(PythonExecutor { config: config.clone(), run, workspaces: workspaces.clone() }),
    }
}

const DESCRIPTION: &str = "Runs Python 3 with numpy, pandas, scipy, matplotlib and more, in a fresh interpreter without \
                           network; nothing can be installed. Nothing is kept between calls. The value of the last \
                           expression comes back as `result`, open matplotlib figures as `images`, and files written to \
                           the working directory, /output, as `files`. Files sent along, and those of the session's \
                           workspace, are in the working directory by their names, and under /input.";

/// What programs of the bundled interpreter can do besides.
const DESCRIPTION_OF_CODE_MODE: &str = " `from host import tools` calls the other tools: tools.NAME(argument=value) returns \
                                        the result, tools.search(\"task\") finds tools, help(tools.NAME) explains \
                                        one, and tools.gather(tools.a(x=1), tools.b(y=2)) runs calls in parallel. \
                                        tools.result(\"…\") opens a large result by its result_handle, with pandas \
                                        imported a table as a DataFrame.";

/// For a custom interpreter, whose packages are unknown.
const DESCRIPTION_OF_PLAIN: &str = "Runs Python 3 in a fresh interpreter without network. Nothing is kept between calls. \
                                    The value of the last expression comes back as `result`, and files written to the \
                                    working directory, /output, as `files`. Files sent along, and those of the \
                                    session's workspace, are in the working directory by their names, and under /input.";

fn description(config: &SandboxConfig, profiles: &[&str], has_sessions: bool) -> String {
    let (main, code_mode) = match (profiles.len() > 1, config.code_mode.enabled) {
        (true, true) => (DESCRIPTION, DESCRIPTION_OF_CODE_MODE),
        (true, false) => (DESCRIPTION, ""),
        (false, _) => (DESCRIPTION_OF_PLAIN, ""),
    };
    [main, code_mode, if has_sessions { session::DESCRIPTION } else { "" }].concat()
}

fn parameters(config: &SandboxConfig, profiles: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": {
            "code": {"type": "string", "maxLength": MAX_CODE_BYTES, "description": "A complete program."},
            "stdin": {"type": "string", "maxLength": MAX_STDIN_BYTES, "description": "The program's stdin."},
            "files": {
                "type": "array",
                "maxItems": MAX_INPUT_FILES,
                "description": "Placed in the working directory, and under /input.",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": {
                            "type": "string", "minLength": 1, "maxLength": MAX_PATH_CHARACTERS,
                            "description": "Such as \"data/table.csv\"."
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
                "description": "What is imported already: of base, data, plot and science, data has numpy and \
                                pandas, plot matplotlib too, science scipy, sklearn, statsmodels and sympy too. Chosen by the code's imports when left out; every profile can import \
                                everything."
            },
            "timeout_seconds": {
                "type": "number", "exclusiveMinimum": 0, "maximum": config.max_seconds(),
                "description": "Stop the run after this long."
            },
            "mode": {
                "type": "string", "enum": ["run", "propose"],
                "description": "With \"propose\", calls that change something are made together at the end, once a person has approved \
                                the list of them: run (each at once) when left out."
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
            "session": session::output_schema(),
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
    workspaces: Workspaces,
}

impl Executor for PythonExecutor {
    fn execute<'a>(&'a self, attempt: Attempt<'a>, arguments: &'a Arguments) -> Execution<'a> {
        Box::pin(async move {
            let request: Request<'_> = read_arguments(arguments)?;
            let mut job = self.job(&attempt, &request)?;
            self.add_workspace(&attempt, &mut job.files).await?;
            let Attempt { call, deadline, max_output_bytes, .. } = attempt;
            let outcome = match request.session()? {
                Some(session) => self.run.run_in_session(call, session, job, deadline).await?,
                None => self.run.run(call, arguments, job, deadline).await?,
            };
            answer(&outcome, call.progress.interpreter.get().as_ref(), &self.config, max_output_bytes)
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
    session: Option<&'a str>,
    checkpoint: Option<Checkpoint>,
    timeout_seconds: Option<f64>,
    #[serde(default)]
    mode: Mode,
}

/// How the calls of the program are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// Each at once.
    #[default]
    Run,
    /// Those that change something at its end, once a person has approved all of them.
    Propose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Checkpoint {
    EveryCall,
}

#[derive(Debug, Deserialize)]
struct InputFile<'a> {
    path: &'a str,
    text: Option<&'a str>,
    content_base64: Option<&'a str>,
}

impl<'a> Request<'a> {
    fn session(&self) -> Result<Option<CallSession<'a>>, CallError> {
        let every_call = self.checkpoint.is_some();
        if every_call && self.session.is_none() {
            let message = "`checkpoint` is for calls in a session: name one in `session`, or leave it out";
            return Err(CallError::new(ErrorCode::InvalidArguments, message));
        }
        if self.mode == Mode::Propose && self.session.is_some() {
            let message = "`mode`: a program in a session cannot propose its effects, since it is not run again: leave `session` out";
            return Err(CallError::new(ErrorCode::InvalidArguments, message));
        }
        Ok(self.session.map(|name| CallSession { name, every_call }))
    }
}

impl PythonExecutor {
    fn job(&self, attempt: &Attempt<'_>, request: &Request<'_>) -> Result<Job, CallError> {
        let left = attempt.deadline.remaining();
        let requested = request.timeout_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let time = requested.map_or(left, |requested| requested.min(left));
        let files = request.files.iter().enumerate().map(|(index, file)| file.read(index));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        self.check_places(&files)?;
        Ok(Job {
            id: 0,
            profile: request.profile.unwrap_or_default().to_owned(),
            code: request.code.to_owned(),
            module: None,
            packages: Arc::default(),
            stdin: request.stdin.into(),
            files,
            limits: limits::job_limits(&self.config, attempt.memory_limit_bytes as u64, time),
            session: None,
            past: None,
            proposes: request.mode == Mode::Propose,
            reads_to_end: false,
            image: None,
        })
    }

    /// Refuses a file at the path of another or of its folder; the operator's files take precedence.
    fn check_places(&self, files: &[GuestFile]) -> Result<(), CallError> {
        let mut taken = self.paths_of_data_files();
        for (index, file) in files.iter().enumerate() {
            if taken.iter().any(|other| conflict(&file.path, other)) {
                return Err(wrong(
                    index,
                    "path",
                    "uniqueItems",
                    "is the path of another file or of its folder; rename one of them",
                ));
            }
            taken.push(&file.path);
        }
        Ok(())
    }

    fn paths_of_data_files(&self) -> Vec<&str> {
        self.config.data_files.iter().filter_map(|path| path.file_name()?.to_str()).collect()
    }

    /// The files of the session's workspace, except those at the place of a file of the call or of the operator.
    async fn add_workspace(&self, attempt: &Attempt<'_>, files: &mut Vec<GuestFile>) -> Result<(), CallError> {
        let Some(session) = attempt.call.origin.session.as_deref() else { return Ok(()) };
        let name = Session::workspace_name(session);
        let found = self.workspaces.work(name, Reach::Read, Workspace::read_all).await?;
        let taken = self.paths_of_data_files();
        for (path, content) in found {
            let is_taken = taken.iter().any(|other| conflict(&path, other));
            if !is_taken && !files.iter().any(|other| conflict(&path, &other.path)) {
                files.push(GuestFile { path, content });
            }
        }
        Ok(())
    }
}

/// Whether two paths are one, or one is in the folder that the other names as a file.
fn conflict(one: &str, other: &str) -> bool {
    let is_inside = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    one == other || is_inside(one, other) || is_inside(other, one)
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
            return Err(wrong(
                index,
                "path",
                "path",
                "is not a relative path without `..`; write it like data/table.csv",
            ));
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

#[cfg(test)]
mod tests;
