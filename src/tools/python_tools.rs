//! Tools that are Python functions: the public ones with annotations in the files of a folder.
//!
//! A file is read in the sandbox: it is parsed there, and then executed once to see that it can be. This process reads
//! only its text ([`read`]). Each call goes on from there in a fresh interpreter ([`executor`]), or executes the file
//! again where the sandbox has kept no image of it.

mod executor;
mod folder;
mod read;
mod runner;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, Value};
use tokio::task::JoinError;

pub use self::runner::FunctionRunner;

use self::folder::{Content, FileText, KnownTexts, Texts};
use self::read::{FileState, PythonFile};
use self::shared::SharedModules;
use sekisho_calls::tool::{PYTHON_SOURCE, Source, SourceTools, Unavailable};
use sekisho_config::PythonToolsConfig;
use sekisho_interpreters::packages::{KnownSizes, Packages};

/// One state of the folder.
#[derive(Debug, Clone, Default)]
pub struct PythonTools {
    /// By name, without `.py`.
    files: BTreeMap<String, Arc<PythonFile>>,
    /// Why the folder cannot be read.
    problem: Option<String>,
    /// The modules that the files can import besides packages.
    shared: SharedModules,
    /// The packages that the files can import besides the interpreter's.
    packages: Packages,
}

/// The contents of the folder.
#[derive(Debug)]
pub struct FolderContent {
    /// The texts of its files and its modules, or why it cannot be read.
    texts: Result<Content, String>,
    packages: Packages,
    /// For the next look at the folder.
    known: KnownTexts,
    /// The same.
    sizes: KnownSizes,
}

/// In `/readyz`: the folder.
const COMPONENT: &str = "python_tools";
/// The same: packages that files cannot import.
const PACKAGES: &str = "python_packages";

/// The same: modules that files cannot import.
const SHARED: &str = "python_shared";

/// Files that are read at the same time. Runs of callers take turns with them.
const MAX_AT_ONCE: usize = 4;

impl PythonTools {
    /// Reads the folder of the configuration, and in the sandbox the files in it that differ from `before`.
    pub async fn read(config: &PythonToolsConfig, runner: &FunctionRunner, before: &Self) -> Self {
        let Some(FolderContent { texts, packages, .. }) = FolderContent::of(config).await else {
            return Self::default();
        };
        let (found, shared): (Texts, _) = match texts {
            Ok(found) => found,
            Err(problem) => return Self { problem: Some(problem), packages, ..Self::default() },
        };
        runner.run.use_packages(&packages).await;
        let runner = &runner.with_packages(&packages);
        let (mut files, mut reading) = (BTreeMap::new(), FuturesUnordered::new());
        for (name, text) in found {
            let settings = config.settings.get(&name).cloned().unwrap_or_default();
            reading.push(before.read_file(name, text, settings, &shared, runner));
            if reading.len() >= MAX_AT_ONCE
                && let Some((name, file)) = reading.next().await
            {
                files.insert(name, file);
            }
        }
        while let Some((name, file)) = reading.next().await {
            files.insert(name, file);
        }
        drop(reading);
        Self { files, problem: None, shared, packages }
    }

    /// A file as it is now, which is not read again where it is as it was.
    async fn read_file(
        &self,
        name: String,
        text: FileText,
        settings: Map<String, Value>,
        shared: &SharedModules,
        runner: &FunctionRunner,
    ) -> (String, Arc<PythonFile>) {
        let is_current = |file: &&Arc<PythonFile>| {
            self.shared.sum() == shared.sum() && file.is_current(&text, &settings, &runner.packages)
        };
        let file = match self.files.get(&name).filter(is_current) {
            Some(file) => Arc::clone(file),
            None => Arc::new(PythonFile::read(&name, text, settings, shared, runner).await),
        };
        (name, file)
    }

    /// Whether there are files that the sandbox could not read, and may read later.
    pub fn is_waiting(&self) -> bool {
        self.files.values().any(|file| matches!(file.state, FileState::Waiting(_)))
    }

    /// Whether it was read of this content.
    pub fn is_of(&self, content: &FolderContent) -> bool {
        let has = |(name, text): (&String, &FileText)| self.files.get(name).is_some_and(|file| file.has_text(text));
        let has_texts = match &content.texts {
            Err(problem) => self.problem.as_ref() == Some(problem),
            Ok((found, shared)) => {
                let is_same = self.problem.is_none() && self.shared == *shared && self.files.len() == found.len();
                is_same && found.iter().all(has)
            }
        };
        has_texts && self.packages == content.packages
    }

    /// Whether it is the same as `before`: nothing is to be offered anew.
    pub fn is_as(&self, before: &Self) -> bool {
        let is_same =
            |file: &Arc<PythonFile>, other: &Arc<PythonFile>| Arc::ptr_eq(file, other) || file.waits_as(other);
        let mut files = self.files.iter().zip(&before.files);
        self.problem == before.problem
            && self.shared == before.shared
            && self.packages == before.packages
            && self.files.len() == before.files.len()
            && files.all(|((name, file), (other_name, other))| name == other_name && is_same(file, other))
    }

    /// The parts that do not work as a whole, by their names in `/readyz`: the folder, packages, and files of which
    /// nothing is offered.
    pub fn problems(&self) -> BTreeMap<String, String> {
        let of_folder = self.problem.iter().map(|problem| (COMPONENT.to_owned(), problem.clone()));
        let of_packages = self.packages_problem().map(|problem| (PACKAGES.to_owned(), problem));
        let of_shared = self.shared_problem().map(|problem| (SHARED.to_owned(), problem));
        let of_files = self.files.iter().filter_map(|(name, file)| Some((source_of(name), file.problem()?.to_owned())));
        of_folder.chain(of_packages).chain(of_shared).chain(of_files).collect()
    }

    fn shared_problem(&self) -> Option<String> {
        let problems = self.shared.problems();
        (!problems.is_empty()).then(|| problems.join("\n"))
    }

    fn packages_problem(&self) -> Option<String> {
        let problems = self.packages.problems();
        (!problems.is_empty()).then(|| problems.join("\n"))
    }

    /// For `sekisho check`: the packages, and each file with its tools, or with all that is wrong with it.
    pub fn verdicts(&self) -> impl Iterator<Item = (String, Result<String, String>)> {
        let of_folder = self.problem.iter().map(|problem| (COMPONENT.to_owned(), Err(problem.clone())));
        let names = self.packages.names();
        let found = (!names.is_empty()).then(|| Ok(names.join(", ")));
        let of_packages = self.packages_problem().map(Err).or(found);
        let of_packages = of_packages.map(|verdict| (PACKAGES.to_owned(), verdict));
        let of_shared = self.shared_problem().map(|problem| (SHARED.to_owned(), Err(problem)));
        let of_files = self.files.iter().map(|(name, file)| (source_of(name), file.verdict()));
        of_folder.chain(of_packages).chain(of_shared).chain(of_files)
    }

    /// Whether it is the name in `/readyz` of a file that is there.
    pub fn has_file(&self, component: &str) -> bool {
        component.strip_prefix(PYTHON_SOURCE).is_some_and(|name| self.files.contains_key(name))
    }

    /// The problems of the folder, of packages, or of shared modules.
    pub fn folder_problems(&self) -> Vec<String> {
        self.problem.iter().chain(self.packages.problems()).chain(self.shared.problems()).cloned().collect()
    }

    /// The packages with which the files were read.
    pub fn used_packages(&self) -> &Packages {
        &self.packages
    }

    /// Names and versions of the packages that the files can import besides the interpreter's.
    pub fn packages(&self) -> &[String] {
        self.packages.names()
    }

    /// The text of a file, which is absent where it cannot be read; `None` where there is no such file.
    pub fn text_of(&self, file: &str) -> Option<Option<&str>> {
        self.files.get(file).map(|file| file.text())
    }

    /// All that is wrong with a file.
    pub fn problems_of(&self, file: &str) -> Vec<String> {
        self.files.get(file).map(|file| file.problems()).unwrap_or_default()
    }

    /// The names of the files, without `.py`.
    pub fn files(&self) -> impl Iterator<Item = &String> {
        self.files.keys()
    }

    /// As tools name their source.
    pub fn sources(&self) -> impl Iterator<Item = String> {
        self.files.keys().map(|name| source_of(name))
    }
}

impl FolderContent {
    /// The content of the folder as it is now; `None` where the configuration has none.
    pub async fn of(config: &PythonToolsConfig) -> Option<Self> {
        Self::after(None, config).await
    }

    /// The same. Files that are as they were `before` are not read again.
    pub async fn after(before: Option<&Self>, config: &PythonToolsConfig) -> Option<Self> {
        let directory = config.directory.clone()?;
        let (mut known, mut sizes) =
            before.map(|before| (before.known.clone(), before.sizes.clone())).unwrap_or_default();
        let read = move || {
            let texts = folder::read(&directory, &mut known, SystemTime::now());
            let packages = Packages::find(&directory, &mut sizes);
            Self { texts, packages, known, sizes }
        };
        let failed = |panic: JoinError| {
            let (texts, packages) = (Err(panic.to_string()), Packages::default());
            Self { texts, packages, known: KnownTexts::new(), sizes: KnownSizes::new() }
        };
        Some(tokio::task::spawn_blocking(read).await.unwrap_or_else(failed))
    }
}

impl PartialEq for FolderContent {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts && self.packages == other.packages
    }
}

impl Source for PythonTools {
    fn name(&self) -> &str {
        "python"
    }

    fn tools(&self) -> SourceTools {
        let mut offer = SourceTools::default();
        for (name, file) in &self.files {
            let source = source_of(name);
            match &file.state {
                FileState::Read { tools, problems } => {
                    offer.tools.extend(tools.iter().cloned());
                    let missing = problems.iter().map(|(tool, reason)| Unavailable::new(&source, tool, reason));
                    offer.unavailable.extend(missing);
                }
                FileState::Broken(reason) | FileState::Waiting(reason) => {
                    offer.unavailable.push(Unavailable::new(&source, format!("{name}__*"), reason));
                }
            }
        }
        offer
    }
}

/// As its tools name a file, which is named without `.py`.
pub fn source_of(file: &str) -> String {
    format!("{PYTHON_SOURCE}{file}")
}
