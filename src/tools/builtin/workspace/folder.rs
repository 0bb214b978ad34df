//! Reading and writing in one workspace.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use cap_fs_ext::{DirExt, FollowSymlinks, MetadataExt, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::fs::{Dir, DirBuilder, DirBuilderExt, File, OpenOptions, OpenOptionsExt};
use parking_lot::Mutex;
use uuid::Uuid;

use super::path::{RESERVED_PREFIX, WorkspacePath};
use super::{PRIVATE, Usage};
use sekisho_config::WorkspaceConfig;
use sekisho_core::call::Upload;
use sekisho_core::error::CallError;

/// An open workspace.
#[derive(Debug)]
pub(in super::super) struct Workspace {
    /// `None` until the first write.
    root: Option<Dir>,
    limits: WorkspaceConfig,
    usage: Arc<Mutex<Option<Usage>>>,
}

/// A part of a file.
#[derive(Debug)]
pub(in super::super) struct Part {
    pub(in super::super) bytes: Vec<u8>,
    /// The size of the whole file.
    pub(in super::super) size: u64,
}

/// The content that is written to a file.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Content<'a> {
    Bytes(&'a [u8]),
    /// All of this file.
    Upload(&'a Upload),
}

/// A write that was checked against every limit.
struct Plan {
    /// The folder that exists and the names of those to be made in it.
    folder: Dir,
    missing: Vec<String>,
    /// The existing bytes that stay.
    kept: Vec<u8>,
    size: u64,
    after: Usage,
}

impl Content<'_> {
    pub(in super::super) fn size(self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Upload(upload) => upload.bytes,
        }
    }
}

impl Workspace {
    pub(super) fn new(root: Option<Dir>, limits: WorkspaceConfig, usage: Arc<Mutex<Option<Usage>>>) -> Self {
        Self { root, limits, usage }
    }

    /// Whether there is no folder of it.
    pub(super) fn is_missing(&self) -> bool {
        self.root.is_none()
    }

    /// At most `at_most` bytes of a file, from the byte `from` on.
    /// Errors: `tool_error` when there is no such file, or it is not a regular file.
    pub(in super::super) fn read(&self, path: &WorkspacePath, from: u64, at_most: u64) -> Result<Part, CallError> {
        let explain = |error| explained(path, error);
        let (folder, missing) = self.descend(path.folders()).map_err(explain)?;
        if !missing.is_empty() {
            return Err(explain(io::ErrorKind::NotFound.into()));
        }
        let (mut file, size) = open_regular(&folder, path.name()).map_err(explain)?;
        if size > self.limits.max_file_bytes {
            return Err(self.too_large(path, size));
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(from.min(size))).map_err(explain)?;
        file.take(at_most).read_to_end(&mut bytes).map_err(explain)?;
        Ok(Part { bytes, size })
    }

    /// Writes `content` to a file, at its end when `append` is set, and creates missing folders. The write is
    /// atomic for readers. Returns the size of the file.
    /// Errors: `tool_error` when a limit would be exceeded or the path is not a regular file; nothing is changed then.
    pub(in super::super) fn write(
        &self,
        path: &WorkspacePath,
        content: Content<'_>,
        append: bool,
    ) -> Result<u64, CallError> {
        let mut usage = self.usage.lock();
        let before = match usage.take() {
            Some(known) => known,
            None => self.count().map_err(CallError::internal)?,
        };
        let plan = match self.plan(path, content.size(), append, before) {
            Ok(plan) => plan,
            Err(refusal) => {
                *usage = Some(before);
                return Err(refusal);
            }
        };
        // Unset until the write has succeeded: after a failure the next write counts again.
        let (size, after) = (plan.size, plan.after);
        self.carry_out(plan, path.name(), content).map_err(|error| explained(path, error))?;
        *usage = Some(after);
        Ok(size)
    }

    pub(super) fn limits(&self) -> &WorkspaceConfig {
        &self.limits
    }

    pub(super) fn root(&self) -> io::Result<&Dir> {
        self.root.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens folder after folder without following links. Ends at the first that does not exist and returns the remaining names.
    pub(super) fn descend<'p>(&self, names: &'p [String]) -> io::Result<(Dir, &'p [String])> {
        let mut folder = self.root()?.try_clone()?;
        for (at, name) in names.iter().enumerate() {
            folder = match folder.open_dir_nofollow(name) {
                Ok(inner) => inner,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok((folder, names.get(at..).unwrap_or_default()));
                }
                Err(_) if folder.symlink_metadata(name).is_ok_and(|metadata| metadata.is_symlink()) => {
                    return Err(not_regular());
                }
                Err(error) => return Err(error),
            };
        }
        Ok((folder, &[]))
    }

    fn plan(&self, path: &WorkspacePath, added: u64, append: bool, before: Usage) -> Result<Plan, CallError> {
        let explain = |error| explained(path, error);
        let (folder, missing) = self.descend(path.folders()).map_err(explain)?;
        let existing = if missing.is_empty() { regular(&folder, path.name()).map_err(explain)? } else { None };
        let old_size = existing.unwrap_or_default();
        let mut size = added;
        let mut kept = Vec::new();
        if append && existing.is_some() {
            let (file, _) = open_regular(&folder, path.name()).map_err(explain)?;
            file.take(self.limits.max_file_bytes + 1).read_to_end(&mut kept).map_err(explain)?;
            size += kept.len() as u64;
        }
        if size > self.limits.max_file_bytes {
            return Err(self.too_large(path, size));
        }
        let new_entries = missing.len() as u64 + u64::from(existing.is_none());
        let after =
            Usage { bytes: before.bytes.saturating_sub(old_size) + size, entries: before.entries + new_entries };
        self.check_quota(before, after)?;
        Ok(Plan { folder, missing: missing.to_vec(), kept, size, after })
    }

    fn check_quota(&self, before: Usage, after: Usage) -> Result<(), CallError> {
        let (bytes, entries) = (self.limits.quota_bytes, self.limits.max_files);
        // A write that makes it smaller is always allowed, also after the limits were lowered.
        if after.bytes > bytes && after.bytes > before.bytes {
            return Err(CallError::tool(format!(
                "the workspace would hold {} bytes, {bytes} are allowed; overwrite files you no longer need",
                after.bytes
            )));
        }
        if after.entries > entries && after.entries > before.entries {
            return Err(CallError::tool(format!(
                "the workspace would hold {} files and folders, {entries} are allowed; write to existing files",
                after.entries
            )));
        }
        Ok(())
    }

    fn carry_out(&self, plan: Plan, name: &str, content: Content<'_>) -> io::Result<()> {
        let root = self.root()?;
        let mut folder = plan.folder;
        for missing in &plan.missing {
            folder.create_dir_with(missing, DirBuilder::new().mode(PRIVATE))?;
            folder = folder.open_dir_nofollow(missing)?;
        }
        let temporary = format!("{RESERVED_PREFIX}{}", Uuid::new_v4().simple());
        let placed =
            write_new(root, &temporary, &plan.kept, content).and_then(|()| root.rename(&temporary, &folder, name));
        if placed.is_err() {
            // The first error is reported; a file that cannot be removed now is removed by the next count.
            let _ = root.remove_file(&temporary);
        }
        placed
    }

    /// Counts the files, and removes temporary files of interrupted writes.
    fn count(&self) -> io::Result<Usage> {
        let root = self.root()?;
        let mut usage = Usage::default();
        self.walk(&[], true, |entry| {
            if entry.path.starts_with(RESERVED_PREFIX) {
                root.remove_file(&entry.path)?;
            } else {
                usage.entries += 1;
                usage.bytes += entry.size;
            }
            Ok(true)
        })?;
        Ok(usage)
    }

    fn too_large(&self, path: &WorkspacePath, size: u64) -> CallError {
        let limit = self.limits.max_file_bytes;
        CallError::tool(format!("{path} has or would have {size} bytes, {limit} are allowed in one file"))
    }
}

/// Its size; `None` when it does not exist.
fn regular(folder: &Dir, name: &str) -> io::Result<Option<u64>> {
    let metadata = match folder.symlink_metadata(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // A file with two hard links may have the other one outside.
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(not_regular());
    }
    Ok(Some(metadata.len()))
}

fn open_regular(folder: &Dir, name: &str) -> io::Result<(File, u64)> {
    regular(folder, name)?.ok_or(io::ErrorKind::NotFound)?;
    // If it was replaced meanwhile: do not follow a link and do not wait for a pipe.
    let options = OpenOptions::new().read(true).follow(FollowSymlinks::No).nonblock(true).to_owned();
    let file = folder.open_with(name, &options)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        return Err(not_regular());
    }
    Ok((file, metadata.len()))
}

/// The mode of files: only their user reads and writes them.
const PRIVATE_FILE: u32 = 0o600;

fn write_new(folder: &Dir, name: &str, kept: &[u8], content: Content<'_>) -> io::Result<()> {
    let options = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).to_owned();
    let mut file = folder.open_with(name, &options)?.into_std();
    file.write_all(kept)?;
    match content {
        Content::Bytes(bytes) => file.write_all(bytes)?,
        Content::Upload(upload) => {
            let mut from = &upload.file;
            from.rewind()?;
            // Between files the kernel copies.
            io::copy(&mut from, &mut file)?;
        }
    }
    file.sync_data()
}

/// Marks the refusal of a link, a pipe, a device or a file with several names.
#[derive(Debug, thiserror::Error)]
#[error("not a regular file")]
struct NotRegular;

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, NotRegular)
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<NotRegular>())
}

/// An error that a model can act on, or `internal`.
pub(super) fn explained(path: &WorkspacePath, error: io::Error) -> CallError {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound => CallError::tool(format!("{path} does not exist in the workspace; list files with file_list")),
        Kind::IsADirectory => CallError::tool(format!("{path} is a folder, not a file")),
        Kind::NotADirectory => CallError::tool(format!("a part of {path} is a file, not a folder")),
        Kind::InvalidInput if is_refusal(&error) => CallError::tool(format!(
            "{path} is a link or a special file, or a folder on its path is; only regular files can be opened"
        )),
        Kind::StorageFull | Kind::QuotaExceeded => {
            CallError::tool("the server's disk is full; nothing was written; inform an operator").caused_by(error)
        }
        _ => CallError::internal(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cap_std::ambient_authority;

    #[test]
    fn a_write_that_fails_half_way_leaves_nothing_behind() {
        let directory = tempfile::TempDir::new().unwrap();
        let root = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
        let workspace = Workspace::new(Some(root), WorkspaceConfig::default(), Arc::default());
        let path = WorkspacePath::parse("a").unwrap();
        let plan = workspace.plan(&path, 3, false, Usage::default()).unwrap();
        // A folder replaces it between the check and the write.
        std::fs::create_dir(directory.path().join("a")).unwrap();
        workspace.carry_out(plan, "a", Content::Bytes(b"new")).unwrap_err();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "the folder alone");
    }

    #[test]
    fn a_full_disk_is_reported_and_other_errors_are_internal() {
        let path = WorkspacePath::parse("a").unwrap();
        assert!(explained(&path, io::ErrorKind::StorageFull.into()).message().contains("disk is full"));
        let broken = explained(&path, io::Error::from_raw_os_error(5));
        assert_eq!(broken.code(), sekisho_core::error::ErrorCode::Internal);
        assert!(broken.cause().is_some());
    }
}
