//! Tools that are WebAssembly components, or commands of WASI preview 1, in a folder.
//!
//! A file is examined in a process of its own, which compiles it once for each content ([`mod@file`]); calls run in
//! workers of the sandbox ([`executor`]). The configuration grants the resources that a component may use beside its
//! arguments ([`grants`]). With a lock, its tools are offered as they were approved; without one they are not offered
//! at all.

mod executor;
mod file;
mod folder;
mod grants;
mod outgoing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use self::file::{ComponentFile, FileState, Reading};
use self::folder::FileContent;
use sekisho_calls::tool::{COMPONENT_SOURCE, Source, SourceTools, Unavailable};
use sekisho_config::{ComponentsConfig, SandboxConfig};
use sekisho_guest_protocol::ComponentLoad;
use sekisho_outbound::Outbound;
use sekisho_sandbox::RunComponents;

/// One state of the folder.
#[derive(Debug, Clone, Default)]
pub struct Components {
    /// By name, without `.wasm`.
    files: BTreeMap<String, Arc<ComponentFile>>,
    /// Why the folder cannot be read.
    problem: Option<String>,
}

/// How files are read, and the needs of their calls. Cheap to clone.
#[derive(Clone)]
pub struct ComponentReader {
    sandbox: SandboxConfig,
    run: Arc<dyn RunComponents>,
    outbound: Outbound,
    /// Whether a lock has the approvals.
    has_lock: bool,
    /// Whether files that are not compiled are compiled now.
    may_compile: bool,
}

/// In `/readyz`: the folder.
const COMPONENT: &str = "components";

/// Files that are read at the same time: compiling uses all cores.
const MAX_AT_ONCE: usize = 2;

sekisho_core::debug_fields!(ComponentReader { has_lock });

impl ComponentReader {
    /// Reads the compiled files, and compiles the rest if `may_compile`, which takes up to a minute for each file.
    pub fn new(
        sandbox: &SandboxConfig,
        run: Arc<dyn RunComponents>,
        outbound: &Outbound,
        has_lock: bool,
        may_compile: bool,
    ) -> Self {
        Self { sandbox: sandbox.clone(), run, outbound: outbound.clone(), has_lock, may_compile }
    }
}

impl Components {
    /// Reads the folder of the configuration, and the files in it that differ from `before`.
    pub async fn read(config: &ComponentsConfig, reader: &ComponentReader, before: &Self) -> Self {
        let Some(directory) = config.directory.clone() else { return Self::default() };
        let found = match tokio::task::spawn_blocking(move || folder::read(&directory)).await {
            Ok(Ok(found)) => found,
            Ok(Err(problem)) => return Self { problem: Some(problem), ..Self::default() },
            Err(panic) => return Self { problem: Some(panic.to_string()), ..Self::default() },
        };
        let (mut files, mut reading) = (BTreeMap::new(), FuturesUnordered::new());
        for (name, content) in found {
            reading.push(before.read_file(name, content, config, reader));
            if reading.len() >= MAX_AT_ONCE
                && let Some((name, file)) = reading.next().await
            {
                files.insert(name, file);
            }
        }
        while let Some((name, file)) = reading.next().await {
            files.insert(name, file);
        }
        before.leave_out_unloadable(&mut files, reader).await;
        Self { files, problem: None }
    }

    /// Has a worker load the files that are new: a file that it cannot load, with its grants, is not offered.
    async fn leave_out_unloadable(&self, files: &mut BTreeMap<String, Arc<ComponentFile>>, reader: &ComponentReader) {
        let is_known = |(name, file): &(&String, &Arc<ComponentFile>)| {
            self.files.get(*name).is_some_and(|known| Arc::ptr_eq(known, file))
        };
        let new: Vec<_> = files.iter().filter(|file| !is_known(file)).filter_map(|(_, file)| file.load()).collect();
        if new.is_empty() {
            return;
        }
        let unloadable = reader.run.unloadable(new).await;
        for (name, file) in files.iter_mut() {
            let Some(load) = file.load().filter(|_| !is_known(&(name, &*file))) else { continue };
            let state = match unloadable.as_ref().map(|unloadable| unloadable.get(&load.id)) {
                Ok(None) => continue,
                Ok(Some(reason)) => FileState::Unloadable(format!("{name}.wasm: it cannot be loaded: {reason}")),
                Err(problem) => FileState::Waiting(format!("{name}.wasm: it could not be loaded yet: {problem}")),
            };
            *file = Arc::new(file.with_state(state));
        }
    }

    /// A file as it is now. It is not read again where the file and its grants are as they were.
    async fn read_file(
        &self,
        name: String,
        content: FileContent,
        config: &ComponentsConfig,
        reader: &ComponentReader,
    ) -> (String, Arc<ComponentFile>) {
        let granted = config.grants.get(&name).cloned().unwrap_or_default();
        let credentials = config.credentials.get(&name).cloned().unwrap_or_default();
        let id = file::id_of(&content, &granted).await;
        let read = Reading { name: &name, id, content, granted, credentials, reader };
        let known = self.files.get(&name).filter(|file| read.is_of(file));
        let file = match known {
            Some(file) => Arc::clone(file),
            None => Arc::new(read.file().await),
        };
        (name, file)
    }

    /// The components that workers load for its tools.
    pub fn loads(&self) -> Vec<ComponentLoad> {
        self.files.values().filter_map(|file| file.load()).collect()
    }

    /// Whether it is the same as `before`: nothing is to be offered anew.
    pub fn is_as(&self, before: &Self) -> bool {
        let is_same =
            |file: &Arc<ComponentFile>, other: &Arc<ComponentFile>| Arc::ptr_eq(file, other) || file.waits_as(other);
        let mut files = self.files.iter().zip(&before.files);
        self.problem == before.problem
            && self.files.len() == before.files.len()
            && files.all(|((name, file), (other_name, other))| name == other_name && is_same(file, other))
    }

    /// Whether there are files that could not be read, and may be read later.
    pub fn is_waiting(&self) -> bool {
        self.files.values().any(|file| matches!(file.state, FileState::Waiting(_)))
    }

    /// The parts that do not work as a whole, by their names in `/readyz`: the folder, and files of which nothing is
    /// offered.
    pub fn problems(&self) -> BTreeMap<String, String> {
        let of_folder = self.problem.iter().map(|problem| (COMPONENT.to_owned(), problem.clone()));
        let of_files = self.files.iter().filter_map(|(name, file)| Some((source_of(name), file.problem()?.to_owned())));
        of_folder.chain(of_files).collect()
    }

    /// For `sekisho check`: each file with its tools, or with all that is wrong with it.
    pub fn verdicts(&self) -> impl Iterator<Item = (String, Result<String, String>)> {
        let of_folder = self.problem.iter().map(|problem| (COMPONENT.to_owned(), Err(problem.clone())));
        of_folder.chain(self.files.iter().map(|(name, file)| (source_of(name), file.verdict())))
    }

    /// Whether it is the name in `/readyz` of a file that is there.
    pub fn has_file(&self, component: &str) -> bool {
        component.strip_prefix(COMPONENT_SOURCE).is_some_and(|name| self.files.contains_key(name))
    }

    /// The names of the files, without `.wasm`.
    pub fn files(&self) -> impl Iterator<Item = &String> {
        self.files.keys()
    }

    /// As tools name their source.
    pub fn sources(&self) -> impl Iterator<Item = String> {
        self.files.keys().map(|name| source_of(name))
    }
}

impl Source for Components {
    fn name(&self) -> &str {
        "component"
    }

    fn tools(&self) -> SourceTools {
        let mut offer = SourceTools::default();
        for (name, file) in &self.files {
            let source = source_of(name);
            match &file.state {
                FileState::Read { tools, problems, .. } => {
                    offer.tools.extend(tools.iter().cloned());
                    let missing = problems.iter().map(|(tool, reason)| Unavailable::new(&source, tool, reason));
                    offer.unavailable.extend(missing);
                }
                FileState::Broken(reason) | FileState::Unloadable(reason) | FileState::Waiting(reason) => {
                    offer.unavailable.push(Unavailable::new(&source, format!("{name}__*"), reason));
                }
            }
        }
        offer
    }
}

fn source_of(file: &str) -> String {
    format!("{COMPONENT_SOURCE}{file}")
}
