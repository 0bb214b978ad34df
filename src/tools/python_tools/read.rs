//! One file of tools: the functions that the sandbox finds in it.

use std::sync::Arc;

use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::executor::FunctionExecutor;
use super::folder::FileText;
use super::runner::FunctionRunner;
use super::shared::SharedModules;
use super::source_of;
use sekisho_calls::tool::{Effects, Metadata, ToolDefinition, ToolName};
use sekisho_core::error::{CallError, ErrorCode};
use sekisho_guest_protocol::{End, ModuleTask, Outcome, Tried};
use sekisho_sandbox::limits;

/// A file as it was read.
#[derive(Debug)]
pub(super) struct PythonFile {
    text: FileText,
    settings: Map<String, Value>,
    /// Identifies the packages that it could import.
    packages: Arc<str>,
    pub(super) state: FileState,
}

#[derive(Debug)]
pub(super) enum FileState {
    Read {
        tools: Vec<ToolDefinition>,
        /// Name of the tool → why there is none.
        problems: Vec<(String, String)>,
    },
    /// It has to be changed.
    Broken(String),
    /// The sandbox could not read it, and may later.
    Waiting(String),
}

/// Maximum characters of one problem in a message: a part of it is the file's own text.
const MAX_PROBLEM: usize = 1_000;

/// Problems of functions in the message of their file's problem.
const MAX_EXPLANATIONS: usize = 3;

/// The sandbox has its own fair queue between callers, so calls wait there and not before it.
const MAX_CONCURRENT: u32 = 1_000;

/// The result of the interpreter's reading of a file.
#[derive(Debug, Deserialize)]
struct Found {
    tools: Vec<FoundFunction>,
    problems: Vec<FoundProblem>,
    /// The paths of the modules that it imports, and that these import.
    #[serde(default)]
    shared: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct FoundFunction {
    function: String,
    /// The name of the tool, without the name of the file.
    name: String,
    line: u32,
    description: String,
    parameters: Value,
    output: Option<Value>,
    converts: bool,
    cost_usd: Option<String>,
    rate_limit: Option<u32>,
    timeout_seconds: Option<u32>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    dangerous: bool,
    #[serde(default)]
    needs: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct FoundProblem {
    /// The function that it is about; none: the file as a whole.
    function: Option<String>,
    line: u32,
    message: String,
}

impl PythonFile {
    pub(super) async fn read(
        name: &str,
        text: FileText,
        settings: Map<String, Value>,
        shared: &SharedModules,
        runner: &FunctionRunner,
    ) -> Self {
        let state = match &text {
            Err(problem) => FileState::Broken(problem.clone()),
            Ok(code) => {
                let json: Arc<str> = Value::from(settings.clone()).to_string().into();
                Reading { name, file: format!("{name}.py"), code, settings: &json, shared, runner }.state().await
            }
        };
        Self { text, settings, packages: Arc::clone(&runner.packages), state }
    }

    /// Whether it was read, and it and its packages are as they were.
    pub(super) fn is_current(&self, text: &FileText, settings: &Map<String, Value>, packages: &str) -> bool {
        let is_same = self.has_text(text) && self.settings == *settings && *self.packages == *packages;
        is_same && !matches!(self.state, FileState::Waiting(_))
    }

    pub(super) fn has_text(&self, text: &FileText) -> bool {
        self.text == *text
    }

    /// Whether both are the same file, and wait for the same.
    pub(super) fn waits_as(&self, other: &Self) -> bool {
        let states = (&self.state, &other.state);
        let wait = matches!(states, (FileState::Waiting(one), FileState::Waiting(two)) if one == two);
        wait && self.has_text(&other.text)
    }

    /// Why nothing of it is offered.
    pub(super) fn problem(&self) -> Option<&str> {
        match &self.state {
            FileState::Read { .. } => None,
            FileState::Broken(reason) | FileState::Waiting(reason) => Some(reason),
        }
    }

    /// As it was read; `None` where it cannot be.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref().ok()
    }

    /// All that is wrong with it.
    pub(super) fn problems(&self) -> Vec<String> {
        match &self.state {
            FileState::Read { problems, .. } => problems.iter().map(|(_, reason)| reason.clone()).collect(),
            FileState::Broken(reason) | FileState::Waiting(reason) => vec![reason.clone()],
        }
    }

    /// Its tools, or all that is wrong with it.
    pub(super) fn verdict(&self) -> Result<String, String> {
        match &self.state {
            FileState::Read { tools, problems } if problems.is_empty() => {
                let names: Vec<_> = tools.iter().map(|tool| tool.metadata.name.as_str()).collect();
                Ok(names.join(", "))
            }
            _ => Err(self.problems().join("\n")),
        }
    }
}

/// Approvals are for a version of a tool: with other code, settings, packages or modules it is another one.
fn version_of(code: &str, settings: &str, packages: &str, shared: &str) -> String {
    let parts = [code, settings, packages, shared].into_iter().map(Sha256::digest);
    let digest = parts.fold(Sha256::new(), Digest::chain_update).finalize();
    format!("1.0.0+{}", hex::encode(&digest[..8]))
}

/// On one line, and without characters that move a terminal's cursor.
fn printable(problem: &str) -> String {
    problem.chars().take(MAX_PROBLEM).map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// A problem of its functions may be the reason why a file fails when it is executed.
fn explained(failed: FileState, problems: &[(String, String)]) -> FileState {
    match failed {
        FileState::Broken(reason) => {
            let found = problems.iter().take(MAX_EXPLANATIONS).map(|(_, problem)| problem.as_str());
            FileState::Broken(found.chain([reason.as_str()]).collect::<Vec<_>>().join("; "))
        }
        other => other,
    }
}

/// A file that is being read.
struct Reading<'a> {
    name: &'a str,
    /// As tracebacks show it.
    file: String,
    code: &'a Arc<str>,
    /// JSON.
    settings: &'a Arc<str>,
    shared: &'a SharedModules,
    runner: &'a FunctionRunner,
}

impl Reading<'_> {
    async fn state(&self) -> FileState {
        self.read().await.unwrap_or_else(|unread| unread)
    }

    /// Errors: the state of a file of which nothing can be offered.
    async fn read(&self) -> Result<FileState, FileState> {
        let Found { tools, problems, shared } = self.found().await?;
        let shared: Arc<str> = self.shared.json(&shared).into();
        let of_functions = problems.into_iter().filter_map(|problem| {
            let reason = self.at(Some(problem.line), &problem.message);
            Some((self.tool_name(&problem.function?), reason))
        });
        let mut problems: Vec<_> = of_functions.collect();
        let functions = tools.iter().map(|tool| tool.function.clone()).collect();
        let missing = self.executed(functions, &shared).await.map_err(|failed| explained(failed, &problems))?;
        let mut definitions = Vec::new();
        for tool in tools {
            let (name, line) = (self.tool_name(&tool.name), tool.line);
            let defined = match missing.contains(&tool.function) {
                true => Err(format!(
                    "`{}` is no function any more when the file has been executed: give it a name of its own",
                    tool.function
                )),
                false => self.definition(name.clone(), tool, &shared),
            };
            match defined {
                Ok(definition) => definitions.push(definition),
                Err(problem) => problems.push((name, self.at(Some(line), &problem))),
            }
        }
        Ok(FileState::Read { tools: definitions, problems })
    }

    /// The functions that are found in it without executing it.
    async fn found(&self) -> Result<Found, FileState> {
        let outcome = self.examined(ModuleTask::Read { file: self.file.clone(), shared: self.shared.all() }).await?;
        let found = match (&outcome.end, &outcome.result) {
            (End::Exited { code: 0 }, Some(found)) => serde_json::from_str(found).map_err(|error| error.to_string()),
            (End::Exception { kind, message, .. }, _) => Err(format!("{kind}: {message}")),
            (End::Output(_), _) => {
                Err("its descriptions and schemas are too long together: write several files".into())
            }
            _ => Err(self.stopped(&outcome)),
        };
        let found: Found = found.map_err(|problem| self.broken(None, &format!("it cannot be read: {problem}")))?;
        let of_file = found.problems.iter().find(|problem| problem.function.is_none());
        match of_file.map(|problem| self.broken(Some(problem.line), &problem.message)) {
            Some(broken) => Err(broken),
            None => Ok(found),
        }
    }

    /// Executes it. The names of those functions that are none afterwards.
    async fn executed(&self, functions: Vec<String>, shared: &str) -> Result<Vec<String>, FileState> {
        let (settings, shared) = (self.settings.to_string(), shared.to_owned());
        let outcome = self.examined(ModuleTask::Try { file: self.file.clone(), functions, settings, shared }).await?;
        let (line, problem) = match (&outcome.end, &outcome.result) {
            (End::Exited { code: 0 }, Some(tried)) => {
                let tried = serde_json::from_str(tried).map(|Tried { missing, .. }| missing);
                return tried.map_err(|error| self.broken(None, &format!("it cannot be executed: {error}")));
            }
            (End::Exited { code }, _) => {
                (None, format!("it ends the interpreter with exit({code}) when it is executed: leave that out"))
            }
            (End::Exception { kind, message, line, .. }, _) => (*line, format!("{kind}: {message}")),
            (End::Timeout, _) => {
                let limit = self.runner.max_execution().as_secs();
                (None, format!("it takes longer than {limit} s to be executed: do less outside of functions"))
            }
            _ => (None, format!("it cannot be executed: {}", self.stopped(&outcome))),
        };
        Err(self.broken(line, &problem))
    }

    async fn examined(&self, task: ModuleTask) -> Result<Outcome, FileState> {
        self.runner.examine(self.code, task).await.map_err(|error| match error.code() {
            // The file itself may be the reason.
            ErrorCode::SandboxTrap | ErrorCode::SandboxMemory => self.broken(None, error.message()),
            _ => FileState::Waiting(format!("{} is not read yet: {}", self.file, printable(error.message()))),
        })
    }

    fn stopped(&self, outcome: &Outcome) -> String {
        let error = limits::stop_error(outcome, &self.runner.config, "");
        error.as_ref().map_or("its result is missing", CallError::message).to_owned()
    }

    /// Errors: why it cannot be a tool here.
    fn definition(&self, name: String, tool: FoundFunction, shared: &Arc<str>) -> Result<ToolDefinition, String> {
        let config = &self.runner.config;
        ToolName::parse(&name).map_err(|problem| format!("{problem}: write @tool(name=\"…\") with another one"))?;
        if !tool.needs.is_empty() && !config.code_mode.enabled {
            return Err(format!("`{}` needs other tools, and `sandbox.code_mode.enabled` is false", tool.function));
        }
        let cost = tool.cost_usd.as_deref().map(str::parse::<Decimal>).transpose();
        let cost = cost.map_err(|error| format!("`cost_usd`: {error}"))?;
        let defaults = Metadata::default();
        // Without other tools it reads only its arguments, and leaves only its result.
        let is_alone = tool.needs.is_empty();
        let alone = Effects { read_only: true, destructive: Some(false), open_world: false };
        let metadata = Metadata {
            name,
            version: version_of(self.code, self.settings, &self.runner.packages, shared),
            description: tool.description,
            category: "python".into(),
            author: self.file.clone(),
            source: source_of(self.name),
            labels: tool.labels,
            timeout_seconds: tool.timeout_seconds.unwrap_or(defaults.timeout_seconds),
            memory_limit_mb: config.memory_limit_mb,
            rate_limit: tool.rate_limit.unwrap_or(defaults.rate_limit),
            cost_per_use: cost.unwrap_or(defaults.cost_per_use),
            dangerous: tool.dangerous,
            idempotent: is_alone,
            effects: is_alone.then_some(alone),
            max_concurrent: Some(MAX_CONCURRENT),
            ..defaults
        };
        let executor = FunctionExecutor {
            runner: self.runner.clone(),
            code: Arc::clone(self.code),
            file: self.file.clone(),
            function: tool.function,
            settings: Arc::clone(self.settings),
            shared: Arc::clone(shared),
            needs: tool.needs,
            converts: tool.converts,
        };
        let (parameters, output_schema) = (tool.parameters.into(), tool.output);
        Ok(ToolDefinition { metadata, parameters, output_schema, executor: Arc::new(executor) })
    }

    fn tool_name(&self, name: &str) -> String {
        format!("{}__{name}", self.name)
    }

    fn broken(&self, line: Option<u32>, problem: &str) -> FileState {
        FileState::Broken(self.at(line, problem))
    }

    fn at(&self, line: Option<u32>, problem: &str) -> String {
        let problem = printable(problem);
        match line {
            Some(line) => format!("{}:{line}: {problem}", self.file),
            None => format!("{}: {problem}", self.file),
        }
    }
}
