//! Files that only our user can access, in folders that only our user can access, and replaced atomically. Files that
//! are read may also belong to root, and be readable by others: an image may contain them for any user.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Bytes read at once while hashing.
const CHUNK_BYTES: usize = 64 << 10;

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Permission to write of the group and of all others.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("{0} does not exist")]
    Missing(PathBuf),
    #[error("{0} can be changed by other users: it must belong to this user or root, and nobody else may write to it")]
    NotOurs(PathBuf),
    #[error("{0} differs from what was written there")]
    Changed(PathBuf),
    #[error("{0} cannot be read: {1}")]
    Unreadable(PathBuf, #[source] io::Error),
}

/// Creates the folder if it is missing, closed to others.
/// Errors: when it cannot be created, or when other users can write to the existing one.
pub fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)?;
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() && is_trusted(&found) {
        return Ok(());
    }
    let message = format!(
        "{} must be a folder of this user or root that nobody else can write to: run chmod 700 on it, or remove it",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Opens without following a link, and checks the opened file rather than its name, which may change.
/// Errors: the reason why the file counts as missing.
pub fn open(path: &Path) -> Result<File, Unusable> {
    let opened = OpenOptions::new().read(true).custom_flags(no_follow()).open(path);
    let file = opened.map_err(|error| match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::NOENT) => Unusable::Missing(path.to_owned()),
        Some(rustix::io::Errno::LOOP) => Unusable::NotOurs(path.to_owned()),
        _ => Unusable::Unreadable(path.to_owned(), error),
    })?;
    let found = file.metadata().map_err(|error| Unusable::Unreadable(path.to_owned(), error))?;
    if found.is_file() && is_trusted(&found) { Ok(file) } else { Err(Unusable::NotOurs(path.to_owned())) }
}

/// Whether the path is a folder that only our user, or root, can change.
/// Errors: the reason why it counts as missing.
pub fn check_folder(path: &Path) -> Result<(), Unusable> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() && is_trusted(&found) => Ok(()),
        Ok(_) => Err(Unusable::NotOurs(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unusable::Missing(path.to_owned())),
        Err(error) => Err(Unusable::Unreadable(path.to_owned(), error)),
    }
}

/// Compares a file with its SHA-256 sum.
/// Errors: the reason why the file counts as missing.
pub fn verify(path: &Path, sum: &str) -> Result<(), Unusable> {
    let actual = sum_of(open(path)?).map_err(|error| Unusable::Unreadable(path.to_owned(), error))?;
    if actual == sum { Ok(()) } else { Err(Unusable::Changed(path.to_owned())) }
}

/// Creates or replaces a file once `fill` has written all of it. Readers see either the old file or the new one; an
/// interruption leaves no file under its name.
/// Errors of `fill`, and errors of writing, as on a full disk. No part of the file remains.
pub fn write<E: From<io::Error>>(path: &Path, fill: impl FnOnce(&mut File) -> Result<(), E>) -> Result<(), E> {
    let unfinished = path.with_added_extension(format!("{}.new", std::process::id()));
    let written = write_new(&unfinished, fill).and_then(|()| Ok(fs::rename(&unfinished, path)?));
    if written.is_err() {
        // There is no further remedy if this fails too.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// An existing file is never opened: it may belong to another process.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// A lock that one process has at a time, until it drops the file; the kernel releases it when the process exits. `waits` is
/// called where another one has it.
/// Errors of opening and locking the file. A missing file is created.
pub fn lock(path: &Path, waits: impl FnOnce()) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            waits();
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(file)
}

fn write_new<E: From<io::Error>>(path: &Path, fill: impl FnOnce(&mut File) -> Result<(), E>) -> Result<(), E> {
    // Left by an earlier process with this id that was killed.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut file = create(path)?;
    fill(&mut file)?;
    Ok(file.sync_all()?)
}

fn no_follow() -> i32 {
    // A pipe at the path must not block us either.
    (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed()
}

/// Whether nobody but our user and root can have put it there: an image may have it prepared by root, for any user.
fn is_trusted(found: &fs::Metadata) -> bool {
    let owner = found.uid();
    (owner == rustix::process::geteuid().as_raw() || owner == 0) && found.mode() & WRITABLE_BY_OTHERS == 0
}

/// The SHA-256 sum of the reader's content, in lower-case hexadecimal.
pub fn sum_of(mut content: impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match content.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => hasher.update(chunk.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hex::encode(hasher.finalize()))
}
