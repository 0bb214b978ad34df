//! Workspaces: one folder of files for each session of each caller.
//!
//! A folder's name is a hash over tenant, caller and session, so that a guessed session id opens nothing.
//! Inside, every step of a path is opened without following links and from a folder handle
//! (capability-based: `..` and absolute paths have no meaning), and only regular files are opened.

mod file_tool;
mod folder;
mod folder_entries;
mod listing;
mod path;
mod shared;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt, DirEntry, Metadata};
use parking_lot::Mutex;
use uuid::Uuid;

pub(super) use self::file_tool::{FileRequest, FileTool, Reach};
pub(super) use self::folder::{Content, Part, Workspace};
pub(super) use self::listing::Kind;
pub(super) use self::path::WorkspacePath;

use self::folder_entries::FolderEntries;
use self::shared::Shared;
use sekisho_config::WorkspaceConfig;
use sekisho_core::error::CallError;
use sekisho_outbound::blobs::Blobs;
use sekisho_store::Store;

/// All workspaces. One for the whole process (clones share it): it has the count of each one's contents.
#[derive(Debug, Clone)]
pub struct Workspaces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Without those that replicas share.
    directory: PathBuf,
    limits: WorkspaceConfig,
    /// The count of each one's contents, which calls hold while they work in it. It is locked while it is written to.
    in_use: FolderEntries<Mutex<Option<Usage>>>,
    /// If replicas share them: the folders are copies then.
    shared: OnceLock<Arc<Shared>>,
}

/// The contents of a workspace in numbers; `None` until counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    /// Files and folders.
    entries: u64,
}

impl Workspaces {
    /// `directory` is created when the first file is written.
    pub fn new(directory: PathBuf, limits: &WorkspaceConfig) -> Self {
        let (limits, in_use) = (limits.clone(), FolderEntries::new());
        Self(Arc::new(Inner { directory, limits, in_use, shared: OnceLock::new() }))
    }

    /// Shares them with other replicas from now on, as the replica with this id.
    pub fn share(&self, replica: &Arc<str>, store: &Store, blobs: &Blobs) {
        self.0.shared.get_or_init(|| Arc::new(Shared::new(Arc::clone(replica), store.clone(), blobs.clone())));
    }

    /// A file without a name on the disk of the workspaces. It is gone when it is closed, also after a crash.
    pub async fn unnamed_file(&self) -> io::Result<File> {
        let inner = Arc::clone(&self.0);
        let create = move || {
            make_folder(&inner.directory())?;
            tempfile::tempfile_in(inner.directory())
        };
        in_background(create).await?
    }

    /// Deletes a workspace with everything in it; a missing one is deleted already.
    /// Errors: `InvalidInput` for an invalid name, and errors of the file system.
    pub async fn remove(&self, name: &str) -> io::Result<()> {
        match self.0.shared.get() {
            Some(shared) => shared.remove(&self.0, name).await,
            None => self.0.remove_folder(name).await,
        }
    }

    /// Deletes the workspace of a session that is idle here, unless a call works in it or `is_used`, which must not
    /// take long: nobody begins to work in a workspace while it is asked. A workspace that replicas share is deleted
    /// when it is idle at all of them ([`remove_older_than`](Self::remove_older_than)); its copy here goes.
    /// Errors: as [`remove`](Self::remove).
    pub async fn remove_idle(&self, name: &str, is_used: impl FnOnce() -> bool + Send + 'static) -> io::Result<()> {
        if let Some(shared) = self.0.shared.get() {
            return shared.forget(&self.0, name).await;
        }
        let (inner, name) = (Arc::clone(&self.0), name.to_owned());
        in_background(move || inner.remove_unless(&name, |_| Ok(is_used())).map(drop)).await?
    }

    /// Deletes the workspaces in which no call works, and to which nobody has written for `age`, except for `kept`:
    /// workspaces of sessions of earlier processes, and of conversations that are no more. Returns how many.
    /// Errors: the folder of all workspaces cannot be read. A single workspace that cannot be deleted is logged, and
    /// stays.
    pub async fn remove_older_than(&self, age: Duration, kept: HashSet<String>) -> io::Result<usize> {
        if let Some(shared) = self.0.shared.get() {
            shared.remove_idle(age, &kept).await.map_err(io::Error::other)?;
        }
        let inner = Arc::clone(&self.0);
        in_background(move || inner.remove_older_than(age, &kept)).await?
    }

    /// Removes objects of no workspace from the shared storage.
    /// Errors: `overloaded` when store or storage do not answer.
    pub async fn remove_orphans(&self) -> Result<(), CallError> {
        match self.0.shared.get() {
            Some(shared) => shared.remove_orphans().await,
            None => Ok(()),
        }
    }

    /// Writes files into the workspace of that name, within its limits; files of the same paths are replaced.
    /// Errors: a path that is not allowed, a limit of the workspace, and errors of the file system. Files written until
    /// then stay.
    pub async fn write_files(&self, name: &str, files: Vec<(String, String)>) -> Result<(), CallError> {
        let write = move |workspace: &Workspace| {
            for (path, content) in &files {
                workspace.write(&WorkspacePath::parse(path)?, Content::Bytes(content.as_bytes()), false)?;
            }
            Ok(())
        };
        self.work(name, Reach::Write, write).await
    }

    /// The paths of the files in the workspace of that name, sorted, at most so many; none if it does not exist.
    /// Errors of the file system.
    pub async fn files(&self, name: &str, max: usize) -> Result<Vec<String>, CallError> {
        self.work(name, Reach::Read, move |workspace| {
            let (entries, _truncated) = workspace.list(None, true, max)?;
            let files = entries.into_iter().filter(|entry| entry.kind == Kind::File);
            Ok(files.map(|entry| entry.path).collect())
        })
        .await
    }

    /// Runs `job` in the workspace of that name, on a blocking thread.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        name: &str,
        reach: Reach,
        job: impl FnOnce(&Workspace) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        match self.0.shared.get() {
            Some(shared) => shared.work(&self.0, name, reach, job).await,
            None => self.0.work(name, reach, job).await,
        }
    }
}

impl Inner {
    /// Runs `job` in the folder of that name, on a blocking thread.
    async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        reach: Reach,
        job: impl FnOnce(&Workspace) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let (inner, name) = (Arc::clone(self), name.to_owned());
        let work = move || {
            let workspace = inner.open(&name, reach).map_err(CallError::internal)?;
            let done = job(&workspace);
            let is_missing = workspace.is_missing();
            drop(workspace);
            if is_missing {
                // Nothing is to be known of a folder that was only looked for.
                inner.in_use.remove_unheld(&name);
            }
            done
        };
        in_background(work).await.map_err(CallError::internal)?
    }

    async fn remove_folder(self: &Arc<Self>, name: &str) -> io::Result<()> {
        let (inner, name) = (Arc::clone(self), name.to_owned());
        in_background(move || inner.remove(&name)).await?
    }

    fn open(&self, name: &str, reach: Reach) -> io::Result<Workspace> {
        check_name(name)?;
        let usage = self.in_use.entry(name)?;
        let root = match (self.base().and_then(|base| base.open_dir_nofollow(name)), reach) {
            (Ok(root), _) => Some(root),
            (Err(error), Reach::Read) if error.kind() == io::ErrorKind::NotFound => None,
            (Err(error), Reach::Write) if error.kind() == io::ErrorKind::NotFound => Some(self.make(name)?),
            (Err(error), _) => return Err(error),
        };
        Ok(Workspace::new(root, self.limits.clone(), usage))
    }

    /// Copies of shared workspaces have a folder of their own: they are removed when they are no copies any more.
    fn directory(&self) -> Cow<'_, Path> {
        match self.shared.get() {
            Some(_) => self.directory.join("shared").into(),
            None => (&self.directory).into(),
        }
    }

    fn base(&self) -> io::Result<Dir> {
        Dir::open_ambient_dir(self.directory(), ambient_authority())
    }

    fn make(&self, name: &str) -> io::Result<Dir> {
        make_folder(&self.directory())?;
        let base = self.base()?;
        match base.create_dir_with(name, DirBuilder::new().mode(PRIVATE)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        base.open_dir_nofollow(name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        let usage = self.in_use.entry(name)?;
        let removed = {
            let mut usage = usage.lock();
            *usage = None;
            self.base().and_then(|base| base.remove_dir_all(name))
        };
        drop(usage);
        self.in_use.remove_unheld(name);
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn remove_older_than(&self, age: Duration, kept: &HashSet<String>) -> io::Result<usize> {
        let base = match self.base() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            other => other?,
        };
        let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut removed = 0;
        for entry in base.entries()? {
            match entry.and_then(|entry| self.remove_if_old(&base, &entry, before, kept)) {
                Ok(is_removed) => removed += usize::from(is_removed),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(%error, "cannot delete an old workspace"),
            }
        }
        Ok(removed)
    }

    /// Removes a folder if nobody has written to it since `before` and no call works in it; returns whether it did.
    fn remove_if_old(
        &self,
        base: &Dir,
        entry: &DirEntry,
        before: SystemTime,
        kept: &HashSet<String>,
    ) -> io::Result<bool> {
        let (name, metadata) = (entry.file_name(), entry.metadata()?);
        let Some(name) = name.to_str().filter(|_| metadata.is_dir()) else { return Ok(false) };
        if name.starts_with(REMOVED) {
            // The process ended while it was deleted.
            return base.remove_dir_all(name).map(|()| false);
        }
        // Every write changes the folder itself, so its modification time is the time of the last write.
        let is_fresh = |metadata: Metadata| Ok::<_, io::Error>(metadata.modified()?.into_std() > before);
        if check_name(name).is_err() || kept.contains(name) || is_fresh(metadata)? {
            return Ok(false);
        }
        match self.shared.get() {
            Some(shared) => shared.remove_copy(self, name),
            // Somebody may have written to it meanwhile.
            None => self.remove_unless(name, |base| is_fresh(base.symlink_metadata(name)?)),
        }
    }

    /// Removes a folder unless a call works in it or `is_used`; returns whether it did. It first gets another name, so that a call
    /// that begins meanwhile gets a folder of its own, and not one that is being deleted.
    fn remove_unless(&self, name: &str, is_used: impl FnOnce(&Dir) -> io::Result<bool>) -> io::Result<bool> {
        check_name(name)?;
        let base = match self.base() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        let removed = format!("{REMOVED}{}", Uuid::new_v4());
        let rename = || {
            if is_used(&base)? {
                return Ok(false);
            }
            match base.rename(name, &base, &removed) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                other => other.map(|()| true),
            }
        };
        if !self.in_use.remove_if(name, rename)? {
            return Ok(false);
        }
        base.remove_dir_all(&removed).map(|()| true)
    }
}

/// How the name of a folder begins that is being deleted.
const REMOVED: &str = "removed-";

/// Only for the service's own user.
const PRIVATE: u32 = 0o700;

/// Creates the folder of all workspaces, closed to others. An existing folder keeps its mode.
fn make_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(PRIVATE).create(path)
}

/// A workspace's name is a SHA-256 in lower-case hex, as [`Session::workspace_name`] gives it.
///
/// [`Session::workspace_name`]: sekisho_core::session::Session::workspace_name
fn check_name(name: &str) -> io::Result<()> {
    if name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "a workspace's name is 64 hexadecimal digits"))
}

async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}

#[cfg(test)]
pub(super) mod tests;
