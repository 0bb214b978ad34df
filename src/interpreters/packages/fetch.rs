//! Fetches the wheels that are not on this machine yet, compares them with their pins, and unpacks them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::requirements::{LOCK, Listed, Pin, Requirement, lock_text, name_in, normalized};
use super::size::{KnownSizes, Room};
use super::unused::{DOWNLOAD, remove_unused};
use super::wheel::Wheel;
use super::wheels_folder;
use crate::prepare::{PrepareError, unpack_wheel};
use sekisho_core::owner_only_files;

/// The end of pip's output contains the reason.
const REASON_LINES: usize = 3;

/// Where wheels come from.
#[derive(Debug)]
pub enum WheelSource {
    /// Downloaded by pip; the command that starts Python, such as `python3`.
    Pip(Vec<OsString>),
    /// Downloaded before, into this folder.
    Folder(PathBuf),
}

/// The pinned packages.
#[derive(Debug, PartialEq, Eq)]
pub struct LockedPackages {
    /// Names and versions.
    pub packages: Vec<String>,
    /// Their further requirements, where no line names them.
    pub needs: Vec<String>,
}

/// Why packages cannot be pinned, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("{0}")]
    List(String),
    #[error("{0} has no requirements.txt with packages: write their names there, one a line")]
    NothingListed(PathBuf),
    #[error("there is no cache folder: set HOME, or XDG_CACHE_HOME, to an absolute path")]
    NoCacheFolder,
    #[error(
        "`{command}` cannot be started ({reason}): install Python with pip, or download the wheels elsewhere and pass their folder with --wheels"
    )]
    NoPip { command: String, reason: io::Error },
    #[error(
        "requirements.txt:{line}: pip found no wheel of pure Python for `{wanted}`: {reason}\nA package with native code cannot run in the sandbox: leave it out, the interpreter may have it itself"
    )]
    NotFound { line: usize, wanted: String, reason: String },
    #[error("requirements.txt:{line}: {reason}")]
    Unusable { line: usize, reason: String },
    #[error(
        "requirements.txt:{line}: {file} has the SHA-256 sum {actual}, and requirements.lock pins {pinned}. It was not used; get the wheel from another source, or remove its line from requirements.lock to accept the new one"
    )]
    Changed { line: usize, file: String, actual: String, pinned: String },
    #[error("requirements.txt:{line}: {file} cannot be unpacked: {reason}")]
    Unpack {
        line: usize,
        file: String,
        #[source]
        reason: Box<PrepareError>,
    },
    #[error(
        "there is no space left for {0}: its disk is full, or a quota is used up. Free some there (a package takes up to 160 MiB while it is unpacked) and run `sekisho tools lock` again"
    )]
    DiskFull(PathBuf),
    #[error("cannot {doing} {path}: {source}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Pins the wheels of `requirements.txt` in `requirements.lock`, and unpacks the wheels that are missing on this
/// machine. A requirement that was pinned keeps its wheel until its line changes. Then it removes wheels that nobody
/// used for weeks. `python` is the interpreter's version; `report` gets the progress. Blocks while it fetches, and
/// while another process does.
/// Errors: [`PackageError`]; `requirements.lock` is as it was.
pub fn lock_packages(
    tools: &Path,
    python: &str,
    source: &WheelSource,
    report: &dyn Fn(&str),
) -> Result<LockedPackages, PackageError> {
    let wheels = wheels_folder().ok_or(PackageError::NoCacheFolder)?;
    Fetching { wheels: &wheels, python, source, report }.lock(tools)
}

/// How wheels are fetched.
pub(super) struct Fetching<'a> {
    pub(super) wheels: &'a Path,
    pub(super) python: &'a str,
    pub(super) source: &'a WheelSource,
    pub(super) report: &'a dyn Fn(&str),
}

impl Fetching<'_> {
    pub(super) fn lock(&self, tools: &Path) -> Result<LockedPackages, PackageError> {
        owner_only_files::make_folder(self.wheels).map_err(doing("make the folder", self.wheels))?;
        // The lists are read after that: whoever held the lock may have written one of them.
        let _one_at_a_time = self.one_at_a_time()?;
        let listed = Listed::read(tools).map_err(PackageError::List)?;
        if listed.requirements.is_empty() {
            return Err(PackageError::NothingListed(tools.to_owned()));
        }
        let pins = self.pins(&listed)?;
        if pins != listed.pins {
            write_lock(&tools.join(LOCK), &lock_text(&pins))?;
        }
        let removed = remove_unused(self.wheels, &pins);
        if removed > 0 {
            (self.report)(&format!("unpacked wheels that nobody used for weeks were removed: {removed}"));
        }
        let packages = pins.iter().map(|pin| format!("{} {}", pin.name, pin.version)).collect();
        Ok(LockedPackages { packages, needs: self.needs(&pins) })
    }

    /// Held until it is dropped.
    fn one_at_a_time(&self) -> Result<File, PackageError> {
        let path = self.wheels.join("lock");
        let waits = || (self.report)("another process fetches packages: waiting for it");
        owner_only_files::lock(&path, waits).map_err(doing("lock", &path))
    }

    /// The pin of each requirement, whose wheel is unpacked then.
    fn pins(&self, listed: &Listed) -> Result<Vec<Pin>, PackageError> {
        let (mut pins, mut sizes) = (Vec::new(), KnownSizes::new());
        let mut room = Room::new(&mut sizes);
        for requirement in &listed.requirements {
            let pinned = listed.pin_of(requirement);
            let here = pinned.filter(|pin| owner_only_files::check_folder(&self.wheels.join(&pin.sha256)).is_ok());
            let pin = match here {
                Some(pin) => pin.clone(),
                None => self.fetch(requirement, pinned)?,
            };
            let unusable = |reason| PackageError::Unusable { line: requirement.line, reason };
            room.take(&pin, &self.wheels.join(&pin.sha256)).map_err(unusable)?;
            pins.push(pin);
        }
        Ok(pins)
    }

    fn fetch(&self, requirement: &Requirement, pinned: Option<&Pin>) -> Result<Pin, PackageError> {
        let Requirement { line, name, text } = requirement;
        let exact = |pin: &Pin| format!("{}=={}", pin.name, pin.version);
        let wanted = pinned.map_or_else(|| text.clone(), exact);
        (self.report)(&format!("fetching {wanted}"));
        let download = tempfile::Builder::new().prefix(DOWNLOAD).tempdir_in(self.wheels);
        let download = download.map_err(doing("make a folder in", self.wheels))?;
        let unusable = |reason| PackageError::Unusable { line: *line, reason };
        let path = match self.source {
            WheelSource::Pip(python) => self.download(python, *line, &wanted, download.path())?,
            WheelSource::Folder(folder) => wheel_in(folder, name, &wanted).map_err(unusable)?,
        };
        let wheel = Wheel::read(&path).map_err(unusable)?;
        if wheel.name != *name {
            return Err(unusable(format!("{} is the package {}, and not {name}", wheel.path.display(), wheel.name)));
        }
        let file = wheel.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(pin) = pinned.filter(|pin| pin.sha256 != wheel.sha256) {
            let (actual, pinned) = (wheel.sha256, pin.sha256.clone());
            return Err(PackageError::Changed { line: *line, file, actual, pinned });
        }
        let target = self.wheels.join(&wheel.sha256);
        if owner_only_files::check_folder(&target).is_err() {
            let unpacked = unpack_wheel(&wheel.path, &wheel.content, &target);
            unpacked.map_err(|reason| not_unpacked(self.wheels, *line, file, reason))?;
        }
        Ok(Pin { name: wheel.name, version: wheel.version, sha256: wheel.sha256, requirement: text.clone() })
    }

    /// One wheel that runs everywhere, without its requirements: only named packages are used.
    fn download(&self, python: &[OsString], line: usize, wanted: &str, folder: &Path) -> Result<PathBuf, PackageError> {
        let (program, leading) =
            python.split_first().map_or((OsString::from("python3"), &[][..]), |(first, rest)| (first.clone(), rest));
        let output = Command::new(wherever_it_starts(&program))
            .args(leading)
            // Python imports from the folder that it starts in: this one has no `pip.py`.
            .current_dir(folder)
            .args(["-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet", "--no-deps"])
            // A source package would run its own set-up code.
            .args(["--only-binary", ":all:", "--implementation", "py", "--abi", "none", "--platform", "any"])
            .args(["--python-version", self.python, "--dest"])
            .arg(folder)
            .arg(wanted)
            .stdin(Stdio::null())
            .output()
            .map_err(|reason| PackageError::NoPip { command: program.to_string_lossy().into_owned(), reason })?;
        let reported = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = reported.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let reason = lines.get(lines.len().saturating_sub(REASON_LINES)..).unwrap_or_default().join("; ");
        let reason = if reason.is_empty() { output.status.to_string() } else { reason };
        let found = if output.status.success() { wheels_of(folder)? } else { Vec::new() };
        found.into_iter().next().ok_or_else(|| PackageError::NotFound { line, wanted: wanted.to_owned(), reason })
    }

    /// The requirements of the packages, without their extras, as far as they are not pinned too.
    fn needs(&self, pins: &[Pin]) -> Vec<String> {
        let mut needs = Vec::new();
        for pin in pins {
            let of_pin = needs_of(&self.wheels.join(&pin.sha256));
            let missing = of_pin.into_iter().filter(|(name, _)| !pins.iter().any(|pin| pin.name == *name));
            needs.extend(missing.map(|(_, needed)| {
                format!("{} needs `{needed}`: name it in requirements.txt too, unless the interpreter has it", pin.name)
            }));
        }
        needs
    }
}

/// A path as it is from any folder; a name is searched for in `PATH`.
fn wherever_it_starts(program: &OsStr) -> PathBuf {
    let path = Path::new(program);
    let is_name = !program.as_encoded_bytes().contains(&b'/');
    if is_name { path.to_owned() } else { std::path::absolute(path).unwrap_or_else(|_| path.to_owned()) }
}

/// The wheel of an exact version: only pip compares versions.
fn wheel_in(folder: &Path, name: &str, wanted: &str) -> Result<PathBuf, String> {
    let shown = folder.display();
    let version = wanted.split_once("==").map(|(_, version)| version.trim_start_matches('='));
    let Some(version) = version.filter(|version| !version.contains([',', '*'])) else {
        return Err(format!(
            "without pip, versions are not compared: write `{name}==VERSION` for the wheel in {shown}"
        ));
    };
    let wheels = wheels_of(folder).map_err(|error| error.to_string())?;
    let mut named = wheels.into_iter().filter(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let mut parts = file.split('-');
        parts.next().is_some_and(|part| normalized(part) == name) && parts.next() == Some(version)
    });
    named.next().ok_or_else(|| format!("there is no wheel of {name} {version} in {shown}: download it there"))
}

fn wheels_of(folder: &Path) -> Result<Vec<PathBuf>, PackageError> {
    let entries = fs::read_dir(folder).map_err(doing("read", folder))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut wheels: Vec<_> = paths.filter(|path| path.extension().is_some_and(|kind| kind == "whl")).collect();
    wheels.sort();
    Ok(wheels)
}

/// Name and text of each `Requires-Dist` of an unpacked wheel that does not depend on an extra.
fn needs_of(unpacked: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(unpacked).into_iter().flatten().flatten().map(|entry| entry.path());
    let described = entries.filter(|path| path.extension().is_some_and(|kind| kind == "dist-info"));
    // A wheel without a description needs nothing that is known.
    let texts: Vec<_> = described.filter_map(|folder| fs::read_to_string(folder.join("METADATA")).ok()).collect();
    let headers = texts.iter().flat_map(|text| text.lines().take_while(|line| !line.is_empty()));
    let needs = headers.filter_map(|line| line.strip_prefix("Requires-Dist:")).map(str::trim);
    let unconditional =
        needs.filter(|needed| !needed.split_once(';').is_some_and(|(_, marker)| marker.contains("extra")));
    unconditional.map(|needed| (normalized(name_in(needed)), needed.to_owned())).collect()
}

/// Readers see either the old file or the new one.
fn write_lock(path: &Path, text: &str) -> Result<(), PackageError> {
    let unfinished = path.with_extension("lock.new");
    fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, path)).map_err(doing("write", path))
}

/// Why a wheel is not unpacked in the folder of wheels.
pub(super) fn not_unpacked(wheels: &Path, line: usize, file: String, reason: PrepareError) -> PackageError {
    match reason {
        // Its own message is about interpreters.
        PrepareError::DiskFull { .. } => PackageError::DiskFull(wheels.to_owned()),
        reason => PackageError::Unpack { line, file, reason: reason.into() },
    }
}

/// Adds the path to an I/O error.
pub(super) fn doing(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PackageError {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => PackageError::DiskFull(path.to_owned()),
        _ => PackageError::Io { doing, path: path.to_owned(), source },
    }
}
