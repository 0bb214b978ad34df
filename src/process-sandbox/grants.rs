//! Which files and folders a program gets: those that are configured, those that its entry names, and those that it is made of.

mod named;
mod programs;

use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::links;
use crate::profile::Folder;

/// Never granted: they are of the sandbox itself, or of the machine.
const SPECIAL: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// In every sandbox.
const SYSTEM: [&str; 9] = crate::helper::SYSTEM;

/// Read-only also where an entry names them.
const CONFIGURATION: [&str; 2] = ["/etc", "/boot"];

/// An entry of the configuration.
#[derive(Debug, Clone, Default)]
pub struct Request<'a> {
    /// A name, which is looked up in `path`, or a path.
    pub program: &'a str,
    pub args: Vec<&'a str>,
    /// The variables of the entry itself.
    pub env: Vec<(&'a str, &'a str)>,
    pub cwd: Option<&'a Path>,
    pub folders: Vec<Folder>,
    /// The `PATH` of the program.
    pub path: &'a str,
    /// The home of the gateway's user.
    pub home: Option<&'a Path>,
    /// Nothing in them is granted, nor what contains one of them.
    pub private: Vec<&'a Path>,
    /// Hidden in what contains them, and not granted themselves.
    pub hidden: Vec<&'a Path>,
    /// They say what programs may do. What contains one is read-only, unless the configuration has it writable.
    pub governing: Vec<&'a Path>,
}

/// Why something is granted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Configured,
    Argument,
    /// With the variable's name.
    Variable(String),
    WorkingFolder,
    /// It belongs to the program, or to a script that the entry names.
    Program,
    /// It belongs to programs in `PATH`.
    SearchPath,
    /// Programs that were downloaded before.
    Downloaded,
}

/// Something that a program gets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub path: PathBuf,
    /// Without links.
    pub real: PathBuf,
    pub write: bool,
    pub reason: Reason,
}

/// The grants of a program, and the refused ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// The program's own file. `None`: it was not found.
    pub program: Option<PathBuf>,
    pub granted: Vec<Grant>,
    /// With the reason.
    pub refused: Vec<(PathBuf, &'static str)>,
    /// Its arguments name files relative to this folder.
    pub cwd: Option<PathBuf>,
    /// Folders that the program may write, now or when it ran before, without links.
    written: Vec<PathBuf>,
}

const LEADS_OUT: &str = "a link leads there that the program may have made: name its target in `sandbox.folders`";

const GOVERNS: &str = "for writing: it has the gateway's configuration; to have it written, list it in `sandbox.folders` with `write: true`";

/// Folders in the home with downloaded programs, each in a folder of its own.
const DOWNLOADED: [&str; 4] = [BROWSERS, ".cache/puppeteer", ".local/share/uv/python", ".local/share/uv/tools"];

/// Has folders such as `chromium-1187`; others are profiles with cookies (`mcp-chrome-…`) and lists that Playwright writes.
const BROWSERS: &str = ".cache/ms-playwright";

impl Grants {
    /// Reads the file system; changes nothing.
    pub fn of(request: &Request<'_>) -> Self {
        let mut grants = Self { written: written(request), ..Self::default() };
        for folder in &request.folders {
            grants.try_add(request, &folder.path, folder.write, Reason::Configured);
        }
        if let Some(folder) = request.cwd {
            grants.cwd = Some(folder.to_owned());
            grants.try_add(request, folder, true, Reason::WorkingFolder);
        }
        named::add(&mut grants, request);
        programs::add(&mut grants, request);
        grants.add_downloaded(request);
        grants.granted.sort();
        grants
    }

    /// The folders for the profile.
    pub fn folders(&self) -> Vec<Folder> {
        let folder = |grant: &Grant| Folder { path: grant.path.clone(), real: grant.real.clone(), write: grant.write };
        self.granted.iter().map(folder).collect()
    }

    /// Adds what an operator named, or why it is refused.
    fn try_add(&mut self, request: &Request<'_>, path: &Path, write: bool, reason: Reason) {
        let Ok(metadata) = path.metadata() else {
            if reason == Reason::Configured {
                self.refused.push((path.to_owned(), "it does not exist"));
            }
            return;
        };
        let kind = metadata.file_type();
        // Examined once: a program that runs could change a link between two looks.
        let real = links::resolve_within(path, &self.written).unwrap_or_default();
        let refused = match () {
            () if !kind.is_file() && !kind.is_dir() => Some(match kind.is_socket() {
                true => "it is a Unix socket",
                false => "it is a device",
            }),
            () => refusal(request, path).or_else(|| refusal(request, real.as_ref()?)),
        };
        match (refused, real) {
            (Some(why), _) => self.refused.push((path.to_owned(), why)),
            (None, None) => self.refused.push((path.to_owned(), LEADS_OUT)),
            (None, Some(real)) => {
                let mut system = SYSTEM.iter().chain(&CONFIGURATION);
                let is_system = system.any(|system| path.starts_with(system) || real.starts_with(system));
                let governs = reason != Reason::Configured && contains_one(&real, &request.governing);
                if write && governs {
                    self.refused.push((path.to_owned(), GOVERNS));
                }
                self.insert(path, real, write && !is_system && !governs, reason);
            }
        }
    }

    /// Adds a folder of programs, read-only; nothing is said of those that do not exist or cannot be granted.
    fn add_program(&mut self, request: &Request<'_>, path: &Path, reason: Reason) {
        let is_granted = self.granted.iter().any(|grant| path.starts_with(&grant.path));
        let is_system = SYSTEM.iter().any(|system| path.starts_with(system));
        if is_granted || is_system || !path.exists() || refusal(request, path).is_some() {
            return;
        }
        if let Ok(Some(real)) = links::resolve_within(path, &self.written)
            && refusal(request, &real).is_none()
        {
            self.insert(path, real, false, reason);
        }
    }

    /// Not the folders themselves: installers write into them.
    fn add_downloaded(&mut self, request: &Request<'_>) {
        for folder in DOWNLOADED {
            let entries = request.home.and_then(|home| fs::read_dir(home.join(folder)).ok());
            for entry in entries.into_iter().flatten().filter_map(Result::ok) {
                let is_program = entry.file_name().to_str().is_some_and(|name| match folder {
                    BROWSERS => is_browser(name),
                    _ => !name.starts_with('.'),
                });
                if is_program {
                    self.add_program(request, &entry.path(), Reason::Downloaded);
                }
            }
        }
    }

    fn insert(&mut self, path: &Path, real: PathBuf, write: bool, reason: Reason) {
        match self.granted.iter_mut().find(|grant| grant.path == path) {
            // The configured grant says how it is used.
            Some(grant) if grant.reason == Reason::Configured => {}
            Some(grant) => grant.write |= write,
            None => self.granted.push(Grant { path: path.to_owned(), real, write, reason }),
        }
    }
}

/// Folders that the entry gives the program to write. Their content, a link for example, may be made by the program itself.
fn written(request: &Request<'_>) -> Vec<PathBuf> {
    let configured = request.folders.iter().filter(|folder| folder.write).map(|folder| folder.path.clone());
    let folders = configured.chain(request.cwd.map(Path::to_owned)).chain(named::written(request));
    let folders = folders.filter(|folder| folder.is_dir() && refusal(request, folder).is_none());
    folders.filter_map(|folder| folder.canonicalize().ok()).collect()
}

fn contains_one(folder: &Path, files: &[&Path]) -> bool {
    files.iter().any(|file| with_real(file).iter().any(|file| file.starts_with(folder)))
}

/// A path, and the same without links.
fn with_real(path: &Path) -> [PathBuf; 2] {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    [path.to_owned(), real]
}

/// A name with a version.
fn is_browser(name: &str) -> bool {
    let version = name.rsplit_once('-').map(|(_, version)| version.parse::<u32>());
    matches!(version, Some(Ok(_))) && !name.starts_with("mcp-")
}

/// Why a path cannot be granted: also where a link leads there.
fn refusal(request: &Request<'_>, path: &Path) -> Option<&'static str> {
    let real = path.canonicalize().ok()?;
    [path, &real].into_iter().find_map(|path| {
        let is_in = |folder: &Path| path.starts_with(folder);
        let contains = |folder: &Path| folder.starts_with(path);
        match () {
            () if path == Path::new("/") => Some("it is the root of all files"),
            () if path == Path::new("/etc") => Some("it has the keys of the machine: name a file or folder in it"),
            () if SPECIAL.iter().any(|special| is_in(Path::new(special))) => Some("it belongs to the machine"),
            () if request.private.iter().any(|one| with_real(one).iter().any(|one| is_in(one) || contains(one))) => {
                Some("it belongs to the gateway, or contains its files")
            }
            () if request.hidden.iter().any(|one| with_real(one).iter().any(|one| is_in(one))) => {
                Some("it is a file of the gateway")
            }
            () if request.home.is_some_and(|home| with_real(home).iter().any(|home| contains(home))) => {
                Some("it is the home of the gateway's user, or contains it")
            }
            () => None,
        }
    })
}

#[cfg(test)]
mod tests;

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("`sandbox.folders`"),
            Self::Argument => f.write_str("in `args`"),
            Self::Variable(name) => write!(f, "in `env`: {name}"),
            Self::WorkingFolder => f.write_str("`cwd`"),
            Self::Program => f.write_str("the program"),
            Self::SearchPath => f.write_str("programs in PATH"),
            Self::Downloaded => f.write_str("downloaded programs"),
        }
    }
}
