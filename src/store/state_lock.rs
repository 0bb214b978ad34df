//! The lock of a state directory: one process at a time writes there.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// In the state directory. It is never removed: a process that waits for the lock has this very file open.
const FILE: &str = "gateway.lock";

/// Held while a process uses the directory. The kernel releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

/// Why there is no lock.
#[derive(Debug, Error)]
pub enum StateLockError {
    #[error(
        "another process uses the state directory {}; use that gateway with --server, stop it, or name another folder \
         in SEKISHO_STATE_DIRECTORY",
        .0.display()
    )]
    Held(PathBuf),
    #[error(
        "the state directory {} cannot be used: {source}; make it a folder that this user can write to, or name another \
         one in SEKISHO_STATE_DIRECTORY",
        path.display()
    )]
    Unusable { path: PathBuf, source: io::Error },
}

impl StateLock {
    /// Takes the lock if nobody has it. A missing directory is created, accessible only to this user: it contains
    /// callers' files and the audit trail.
    pub fn acquire(state_directory: &Path) -> Result<Self, StateLockError> {
        let unusable = |source| StateLockError::Unusable { path: state_directory.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(state_directory).map_err(unusable)?;
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true).mode(0o600);
        let file = options.open(state_directory.join(FILE)).map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StateLockError::Held(state_directory.to_owned())),
            Err(TryLockError::Error(error)) => Err(unusable(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_lock_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let held = StateLock::acquire(directory.path()).unwrap();
        let refused = StateLock::acquire(directory.path()).unwrap_err();
        assert!(matches!(&refused, StateLockError::Held(path) if path == directory.path()), "{refused}");
        drop(held);
        StateLock::acquire(directory.path()).unwrap();
        StateLock::acquire(&directory.path().join("new/folder")).unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let refused = StateLock::acquire(&file).unwrap_err().to_string();
        assert!(refused.contains("file cannot be used") && refused.contains("SEKISHO_STATE_DIRECTORY"), "{refused}");
    }
}
