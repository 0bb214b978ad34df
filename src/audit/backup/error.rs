use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zip::result::ZipError;

use crate::AuditError;

/// Why there is no backup, or it was not restored.
#[derive(Debug, Error)]
pub enum BackupError {
    #[error("{} exists already; name another file", .0.display())]
    Exists(PathBuf),
    #[error(
        "{} exists already, and a backup is restored to a new state directory only; name one in SEKISHO_STATE_DIRECTORY, or \
         move this one away",
        .0.display()
    )]
    NotEmpty(PathBuf),
    #[error("{}: {source}; check the folder, its permissions and its free space", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} cannot be read: {source}; check the path and its permissions", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the audit trail cannot be copied: {0}")]
    Audit(#[from] AuditError),
    #[error("the backup cannot be written: {0}")]
    Archive(#[from] ZipError),
    #[error("the backup cannot be written: {0}")]
    Output(#[from] io::Error),
    #[error("{} is not a backup of sekisho, or it is damaged: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("{} was written by sekisho {version}, which is newer; restore it with that one", path.display())]
    Newer { path: PathBuf, version: String },
    #[error(
        "the backup's audit trail is named {found}, and that of the configuration {expected}; set `audit.file` to a path with that \
         name"
    )]
    OtherTrail { found: String, expected: String },
}

impl BackupError {
    /// An error of the file system with this file.
    pub(super) fn file(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path: path.clone(), source }
    }
}
