//! One file of the folder: its contents.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::executor::{ComponentExecutor, ResultPlace};
use super::folder::{FileContent, Found};
use super::outgoing::HttpAccess;
use super::{ComponentReader, grants, source_of};
use sekisho_calls::tool::{Effects, Metadata, ToolDefinition, ToolName};
use sekisho_config::{ComponentGrantsConfig, Secret};
use sekisho_guest_protocol::{ComponentLoad, Export, FoundExport, ModuleKind};
use sekisho_sandbox::{ExaminedFile, FileToExamine, Unexamined};

/// Headers by host and name.
type Credentials = BTreeMap<String, BTreeMap<String, Secret>>;

/// The sandbox has its own fair queue between callers, so calls wait there and not before it.
const MAX_CONCURRENT: u32 = 1_000;

/// Begins a label for policies; a host that the component may send requests to follows.
const HTTP_LABEL: &str = "http:";

/// The part of a description that is kept: all who list tools get it.
const MAX_DESCRIPTION_BYTES: usize = 16 << 10;

/// The function of a command.
const RUN: &str = "run";

/// A file as it was read.
#[derive(Debug)]
pub(super) struct ComponentFile {
    /// The content that it was read from.
    content: FileContent,
    granted: ComponentGrantsConfig,
    credentials: Credentials,
    has_lock: bool,
    /// With the grants of its folders.
    id: Option<String>,
    pub(super) state: FileState,
}

#[derive(Debug)]
pub(super) enum FileState {
    Read {
        load: ComponentLoad,
        tools: Vec<ToolDefinition>,
        /// Name of the tool → why there is none.
        problems: Vec<(String, String)>,
    },
    /// It, or its grants, have to be changed.
    Broken(String),
    /// A worker cannot load it, with its grants. Not all reasons are seen from outside, so that each reading tries
    /// again.
    Unloadable(String),
    /// It is not compiled yet, or could not be read.
    Waiting(String),
}

/// The file beside a command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandDescription {
    description: String,
    parameters: Value,
    output: Option<Value>,
}

impl ComponentFile {
    /// The component that workers load.
    pub(super) fn load(&self) -> Option<ComponentLoad> {
        match &self.state {
            FileState::Read { load, tools, .. } if !tools.is_empty() => Some(load.clone()),
            _ => None,
        }
    }

    /// Whether both are the same file, and wait for the same, or cannot be loaded for the same reason.
    pub(super) fn waits_as(&self, other: &Self) -> bool {
        let states = (&self.state, &other.state);
        let is_same = match states {
            (FileState::Waiting(one), FileState::Waiting(other)) => one == other,
            (FileState::Unloadable(one), FileState::Unloadable(other)) => one == other,
            _ => false,
        };
        is_same && self.content == other.content
    }

    /// Why nothing of it is offered.
    pub(super) fn problem(&self) -> Option<&str> {
        match &self.state {
            FileState::Read { .. } => None,
            FileState::Broken(reason) | FileState::Unloadable(reason) | FileState::Waiting(reason) => Some(reason),
        }
    }

    pub(super) fn with_state(&self, state: FileState) -> Self {
        Self {
            content: self.content.clone(),
            granted: self.granted.clone(),
            credentials: self.credentials.clone(),
            has_lock: self.has_lock,
            id: self.id.clone(),
            state,
        }
    }

    /// Its tools, or all that is wrong with it.
    pub(super) fn verdict(&self) -> Result<String, String> {
        match &self.state {
            FileState::Read { tools, problems, .. } if problems.is_empty() => {
                let names: Vec<_> = tools.iter().map(|tool| tool.metadata.name.as_str()).collect();
                Ok(names.join(", "))
            }
            FileState::Read { problems, .. } => {
                Err(problems.iter().map(|(_, reason)| reason.as_str()).collect::<Vec<_>>().join("\n"))
            }
            FileState::Broken(reason) | FileState::Unloadable(reason) | FileState::Waiting(reason) => {
                Err(reason.clone())
            }
        }
    }
}

/// The id of the component that workers load, with the state of its folders. `None`: a file or a folder cannot be read.
pub(super) async fn id_of(content: &FileContent, granted: &ComponentGrantsConfig) -> Option<String> {
    let (sum, granted) = (content.as_ref().ok()?.sum.clone(), granted.clone());
    let id = tokio::task::spawn_blocking(move || Some(grants::id_of(&sum, &grants::for_worker(&granted).ok()?)));
    id.await.ok()?
}

/// A file that is to be read.
pub(super) struct Reading<'a> {
    pub(super) name: &'a str,
    /// The result of [`id_of`] before it is read: where a folder changes meanwhile, it is read once more.
    pub(super) id: Option<String>,
    pub(super) content: FileContent,
    pub(super) granted: ComponentGrantsConfig,
    pub(super) credentials: Credentials,
    pub(super) reader: &'a ComponentReader,
}

impl Reading<'_> {
    /// Whether the file was read from the same content as this one.
    pub(super) fn is_of(&self, file: &ComponentFile) -> bool {
        !matches!(file.state, FileState::Waiting(_) | FileState::Unloadable(_))
            && file.content == self.content
            && file.granted == self.granted
            && file.credentials == self.credentials
            && file.has_lock == self.reader.has_lock
            && file.id == self.id
    }

    pub(super) async fn file(self) -> ComponentFile {
        let state = self.read().await.unwrap_or_else(|unread| unread);
        ComponentFile {
            id: self.id,
            has_lock: self.reader.has_lock,
            content: self.content,
            granted: self.granted,
            credentials: self.credentials,
            state,
        }
    }

    /// Errors: the state of a file of which nothing can be offered.
    async fn read(&self) -> Result<FileState, FileState> {
        let found = self.content.as_ref().map_err(|problem| FileState::Broken(problem.clone()))?;
        if !self.reader.has_lock {
            return Err(self.broken(&format!(
                "it is not pinned: run `sekisho lock`, which pins its tools with sha256:{} in `tools.lock`",
                found.sum
            )));
        }
        let ExaminedFile { examined, compiled } = self.examined(found).await?;
        grants::check(self.name, &examined.imports, &self.granted).map_err(|problem| self.broken(&problem))?;
        let for_worker = grants::for_worker(&self.granted).map_err(|problem| self.broken(&problem))?;
        let http = HttpAccess::new(self.name, &self.reader.outbound, &self.granted, &self.credentials);
        let http = http.map_err(|problem| self.broken(&problem))?.map(Arc::new);
        // A folder was not there before, and is now: the next reading has an id.
        let id = self.id.clone().ok_or_else(|| FileState::Waiting(self.at("its folders have just changed")))?;
        let load = ComponentLoad { id, kind: examined.kind, compiled, grants: for_worker };
        let functions = match examined.kind {
            ModuleKind::Component => examined.functions,
            ModuleKind::Command => vec![self.command(found).map_err(|problem| self.broken(&problem))?],
        };
        let problems = examined
            .problems
            .into_iter()
            .map(|(export, problem)| (self.tool_name(&export), self.at(&format!("`{}`: {problem}", export.function))));
        let (mut problems, mut tools): (Vec<_>, BTreeMap<String, ToolDefinition>) =
            (problems.collect(), BTreeMap::new());
        for function in functions {
            let name = self.tool_name(&function.export);
            let defined = self.definition(&name, found, function, &load, http.as_ref());
            match (defined, tools.entry(name.clone())) {
                (Ok(tool), Entry::Vacant(entry)) => _ = entry.insert(tool),
                (Ok(_), Entry::Occupied(_)) => {
                    problems.push((name.clone(), self.at(&format!("two of its functions are {name}: rename one"))));
                }
                (Err(problem), _) => problems.push((name, self.at(&problem))),
            }
        }
        Ok(FileState::Read { load, tools: tools.into_values().collect(), problems })
    }

    async fn examined(&self, found: &Found) -> Result<ExaminedFile, FileState> {
        let (read, sum) = (found.clone(), found.sum.clone());
        let wasm = tokio::task::spawn_blocking(move || read.wasm()).await;
        let wasm = wasm.unwrap_or_else(|panic| Err(panic.to_string()));
        let wasm = wasm.map_err(|problem| FileState::Waiting(self.at(&problem)))?;
        let file = FileToExamine { sum, wasm, wit: found.wit.clone(), may_compile: self.reader.may_compile };
        self.reader.run.examine(file).await.map_err(|unexamined| match unexamined {
            Unexamined::Broken(problem) => self.broken(&problem),
            Unexamined::NotCompiled => FileState::Waiting(self.at("it is being compiled, which takes up to a minute")),
            Unexamined::Failed(problem) => FileState::Waiting(self.at(&format!("it is not read yet: {problem}"))),
        })
    }

    /// The one function of a command, from the file beside it.
    fn command(&self, found: &Found) -> Result<FoundExport, String> {
        let Some(text) = &found.json else {
            let example = json!({"description": "…", "parameters": {"type": "object", "properties": {}}, "output": {}});
            return Err(format!(
                "it is a command, and nothing says what it takes: write {}.json: {example}",
                self.name
            ));
        };
        let described: CommandDescription =
            serde_json::from_str(text).map_err(|error| format!("{}.json: {error}", self.name))?;
        Ok(FoundExport {
            export: Export { interface: None, function: RUN.to_owned() },
            description: described.description,
            parameters: described.parameters.to_string(),
            output: described.output.map(|schema| schema.to_string()),
        })
    }

    /// Errors: why it cannot be a tool here.
    fn definition(
        &self,
        name: &str,
        found: &Found,
        function: FoundExport,
        load: &ComponentLoad,
        http: Option<&Arc<HttpAccess>>,
    ) -> Result<ToolDefinition, String> {
        ToolName::parse(name).map_err(|problem| format!("{problem}: give the file a shorter name"))?;
        let schema = |text: &str| serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
        let parameters = schema(&function.parameters)?;
        let output_schema = function.output.as_deref().map(schema).transpose()?;
        let mut description = function.description;
        description.truncate(description.floor_char_boundary(MAX_DESCRIPTION_BYTES));
        let config = &self.reader.sandbox;
        // Without requests it reads only its arguments, and leaves only its result.
        let is_alone = http.is_none();
        let alone = Effects { read_only: true, destructive: Some(false), open_world: false };
        let metadata = Metadata {
            name: name.to_owned(),
            version: format!("1.0.0+{}", &found.sum[..16]),
            description,
            category: "component".into(),
            author: format!("{}.wasm", self.name),
            source: source_of(self.name),
            labels: self.granted.http.iter().map(|host| format!("{HTTP_LABEL}{}", host.to_lowercase())).collect(),
            memory_limit_mb: config.memory_limit_mb,
            idempotent: is_alone,
            effects: is_alone.then_some(alone),
            max_concurrent: Some(MAX_CONCURRENT),
            ..Metadata::default()
        };
        let executor = ComponentExecutor {
            run: Arc::clone(&self.reader.run),
            sandbox: config.clone(),
            component: load.id.clone(),
            export: function.export,
            sum: found.sum.clone(),
            identity: identity_of(&self.granted),
            http: http.cloned(),
            result: match load.kind {
                ModuleKind::Component => ResultPlace::Returned,
                ModuleKind::Command => ResultPlace::Printed,
            },
        };
        Ok(ToolDefinition { metadata, parameters: parameters.into(), output_schema, executor: Arc::new(executor) })
    }

    /// `FILE__FUNCTION`, or `FILE__INTERFACE__FUNCTION`, with `_` where WIT has `-`.
    fn tool_name(&self, export: &Export) -> String {
        let interface = export.interface.as_deref().map(|interface| {
            let name = interface.rsplit_once('/').map_or(interface, |(_, name)| name);
            name.split_once('@').map_or(name, |(name, _)| name)
        });
        let parts = [Some(self.name), interface, Some(export.function.as_str())];
        parts.into_iter().flatten().collect::<Vec<_>>().join("__").replace('-', "_")
    }

    fn broken(&self, problem: &str) -> FileState {
        FileState::Broken(self.at(problem))
    }

    fn at(&self, problem: &str) -> String {
        format!("{}.wasm: {problem}", self.name)
    }
}

/// The values that a component is given, and the hosts and folders that it may use: with others, its calls do something else.
fn identity_of(granted: &ComponentGrantsConfig) -> Option<String> {
    let ComponentGrantsConfig { env, config, folders, http, .. } = granted;
    let has_any = !(env.is_empty() && config.is_empty() && folders.is_empty() && http.is_empty());
    let folders: Vec<_> = folders.iter().map(|(at, folder)| (at, folder.display().to_string())).collect();
    has_any.then(|| json!([env, config, folders, http]).to_string())
}
