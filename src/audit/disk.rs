//! The files of the trail that is written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::chain::Chain;
use super::error::AuditError;
use super::segments::{folder, head_path, lock_path, next_path};

/// The operations that the writer needs of the files.
pub(super) trait Disk: Send + 'static {
    /// The path of the segment that is written.
    fn path(&self) -> &Path;
    /// The state of that path.
    fn found(&self) -> io::Result<Found>;
    /// Appends `text`.
    fn append(&mut self, text: &[u8]) -> io::Result<()>;
    /// Returns once the written text is on the disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Truncates the file to the first `bytes`.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
    /// Replaces the head as a whole.
    fn write_head(&mut self, head: &Chain) -> io::Result<()>;
    /// Continues in a new file that begins with `text`. The file at the path gets the name `keep_as`. After an error
    /// nothing has changed.
    fn start_file(&mut self, text: &[u8], keep_as: &Path) -> io::Result<()>;
}

/// The state of the path of the trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The file that is written, with this length.
    Own { bytes: u64 },
    /// Nothing.
    Nothing,
    /// Another file, of this length.
    Other { bytes: u64 },
}

impl Found {
    /// The length of the file.
    pub(super) fn bytes(self) -> Option<u64> {
        match self {
            Self::Own { bytes } | Self::Other { bytes } => Some(bytes),
            Self::Nothing => None,
        }
    }
}

/// A trail on a real disk, locked for as long as it is open.
#[derive(Debug)]
pub(super) struct TrailFile {
    path: PathBuf,
    file: File,
    _lock: File,
}

impl TrailFile {
    /// Locks the trail, and opens its file; creates missing files.
    pub(super) fn open(path: PathBuf) -> Result<Self, AuditError> {
        fs::create_dir_all(folder(&path)).map_err(AuditError::unusable(&path))?;
        let locked = lock_path(&path);
        let lock = private().create(true).truncate(false).write(true).open(&locked);
        let lock = lock.map_err(AuditError::unusable(&locked))?;
        acquire(&lock, &path)?;
        let file = private().create(true).read(true).append(true).open(&path).map_err(AuditError::unusable(&path))?;
        // Versions without segments lock this file.
        acquire(&file, &path)?;
        Ok(Self { path, file, _lock: lock })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Disk for TrailFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn found(&self) -> io::Result<Found> {
        let there = match fs::metadata(&self.path) {
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
            there => there?,
        };
        let own = self.file.metadata()?;
        let is_own = (there.dev(), there.ino()) == (own.dev(), own.ino());
        let bytes = there.len();
        Ok(if is_own { Found::Own { bytes } } else { Found::Other { bytes } })
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        self.file.write_all(text)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn write_head(&mut self, head: &Chain) -> io::Result<()> {
        replace(&head_path(&self.path), &serde_json::to_vec(head)?)
    }

    fn start_file(&mut self, text: &[u8], keep_as: &Path) -> io::Result<()> {
        let next = next_path(&self.path);
        let file = create_next(&next, text)?;
        let keep = self.found()?.bytes().is_some_and(|bytes| bytes > 0);
        if keep {
            // A rename would replace it.
            if keep_as.try_exists()? {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists", keep_as.display())));
            }
            fs::rename(&self.path, keep_as)?;
        }
        if let Err(problem) = fs::rename(&next, &self.path) {
            if keep {
                fs::rename(keep_as, &self.path)?;
            }
            return Err(problem);
        }
        self.file = file;
        if let Err(problem) = sync_folder(&self.path) {
            tracing::warn!(%problem, "the name of a new segment of the audit trail may be lost if the power fails");
        }
        Ok(())
    }
}

/// Replaces a file as a whole. It is synced before it is renamed: after a power loss there is the old one or the new one.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let mut file = private().create(true).write(true).truncate(true).open(&unfinished)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(&unfinished, path)
}

/// Makes the files' names durable across a power loss.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

/// A file with this text, on the disk. Replaces a file that a crash may have left.
fn create_next(path: &Path, text: &[u8]) -> io::Result<File> {
    if let Err(problem) = fs::remove_file(path)
        && problem.kind() != io::ErrorKind::NotFound
    {
        return Err(problem);
    }
    let mut file = private().create_new(true).read(true).append(true).open(path)?;
    file.write_all(text)?;
    file.sync_data()?;
    // For versions without segments; nobody else has the file.
    let _locked = file.try_lock();
    Ok(file)
}

fn acquire(lock: &File, path: &Path) -> Result<(), AuditError> {
    lock.try_lock().map_err(|error| match error {
        fs::TryLockError::WouldBlock => AuditError::InUse { path: path.to_owned() },
        fs::TryLockError::Error(problem) => AuditError::unusable(path)(problem),
    })
}

/// Readable and writable by the owner only.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}
