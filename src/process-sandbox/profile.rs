//! A program, and all that it gets.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Goes to the helper process over a descriptor, never in arguments or the environment: both can be read by others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// An absolute path.
    pub program: PathBuf,
    pub args: Vec<String>,
    /// All variables of the program.
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    pub home: Home,
    /// Those that were installed for the program, or that it installs.
    pub packages: Option<Packages>,
    pub folders: Vec<Folder>,
    /// Hidden where a folder contains them: the state directory.
    pub private: Vec<PathBuf>,
    pub network: Network,
    /// The gateway answers for the connections of the program. Otherwise a program that may have a network has the machine's.
    pub supervised: bool,
    /// The gateway hears of the files that the program uses, where it answers for its connections.
    pub observed: bool,
    pub limits: Limits,
    /// Why namespaces are left out: an attempt with them failed.
    pub without_namespaces: Option<String>,
}

impl Profile {
    /// The same without namespaces: paths are the machine's, so that the home is the kept folder, or the folder for temporary
    /// files.
    #[must_use]
    pub fn in_namespaces_of_machine(mut self, reason: String) -> Self {
        let home = self.home.kept.clone().unwrap_or_else(|| "/tmp".into());
        for (_, value) in
            self.env.iter_mut().filter(|(name, value)| name == "HOME" && self.home.path == Path::new(value))
        {
            *value = home.display().to_string();
        }
        if self.cwd == self.home.path {
            self.cwd.clone_from(&home);
        }
        self.home.path = home;
        if let Some(packages) = self.packages.take() {
            self.packages = Some(self.with_packages_at_own_path(packages));
        }
        self.without_namespaces = Some(reason);
        self
    }
}

impl Profile {
    fn with_packages_at_own_path(&mut self, packages: Packages) -> Packages {
        let moved = |path: &Path| path.strip_prefix(&packages.path).ok().map(|rest| packages.kept.join(rest));
        for path in [&mut self.program, &mut self.cwd] {
            if let Some(moved) = moved(path) {
                *path = moved;
            }
        }
        let (from, to) = (packages.path.to_string_lossy(), packages.kept.to_string_lossy());
        for (_, value) in &mut self.env {
            *value = value.replace(&*from, &to);
        }
        Packages { path: packages.kept.clone(), ..packages }
    }
}

/// The folder of the packages that a program is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packages {
    /// Its path as the program sees it.
    pub path: PathBuf,
    /// The folder of the machine.
    pub kept: PathBuf,
    /// While they are installed.
    pub write: bool,
}

/// The home of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// Its path as the program sees it.
    pub path: PathBuf,
    /// The folder that is kept for it. Without one, it is in memory and ends with the program.
    pub kept: Option<PathBuf>,
}

/// A folder or file of the machine that the program sees at its own path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Folder {
    pub path: PathBuf,
    /// The path without links that it had when it was granted: nothing else is mounted.
    pub real: PathBuf,
    pub write: bool,
}

impl Folder {
    /// As the path is now.
    #[must_use]
    pub fn new(path: PathBuf, write: bool) -> Self {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        Self { path, real, write }
    }
}

/// Addresses that a program may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Its own loopback.
    None,
    /// Public addresses.
    #[default]
    Public,
    /// These hosts.
    Hosts(Vec<String>),
}

/// Maximum use of resources.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes and threads.
    pub processes: u64,
    /// Open descriptors of one process.
    pub open_files: u64,
    /// Size of one file.
    pub file_bytes: u64,
    /// Writable private memory of one process.
    pub memory_bytes: u64,
    /// Size of `/tmp`, and of a home in memory.
    pub temporary_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            processes: 2_048,
            open_files: 8_192,
            file_bytes: 16 << 30,
            // Node and Java reserve much more address space than they use: RLIMIT_AS would end them.
            memory_bytes: 8 << 30,
            temporary_bytes: 1 << 30,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A program without arguments and variables, with nothing but a home.
    pub(crate) fn of_program(program: &str) -> Profile {
        Profile {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: "/home/a".into(),
            home: Home { path: "/home/a".into(), kept: Some("/kept".into()) },
            packages: None,
            folders: Vec::new(),
            private: Vec::new(),
            network: Network::None,
            supervised: true,
            observed: false,
            limits: Limits::default(),
            without_namespaces: None,
        }
    }
}
