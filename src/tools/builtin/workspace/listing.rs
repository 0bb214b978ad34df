//! Lists a workspace.

use std::io;
use std::path::Path;

use cap_std::fs::Metadata;
use jiff::Timestamp;
use serde::Serialize;

use super::folder::{Workspace, explained};
use super::path::{RESERVED_PREFIX, WorkspacePath};
use sekisho_core::error::CallError;

/// Most entries visited: other programs than the file tools may have filled a folder.
const MAX_VISITED: usize = 20_000;

/// One file or folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in super::super) struct Entry {
    /// From the workspace's top, with `/` between names.
    pub(in super::super) path: String,
    pub(in super::super) kind: Kind,
    /// Bytes; 0 for anything but a file.
    pub(in super::super) size: u64,
    /// RFC 3339, in UTC, to the second.
    pub(in super::super) modified: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Kind {
    File,
    Folder,
    /// A link or a special file: listed, but never opened.
    Other,
}

impl Workspace {
    /// The first `at_most` entries in the order of their paths, and whether there are more.
    /// Errors: `tool_error` when `path` is not a folder.
    pub(in super::super) fn list(
        &self,
        path: Option<&WorkspacePath>,
        recursive: bool,
        at_most: usize,
    ) -> Result<(Vec<Entry>, bool), CallError> {
        let Some(path) = path else {
            let nothing_yet = self.root().is_err();
            return if nothing_yet { Ok((Vec::new(), false)) } else { self.sorted(&[], recursive, at_most) }
                .map_err(CallError::internal);
        };
        self.sorted(path.names(), recursive, at_most).map_err(|error| explained(path, error))
    }

    /// Paths and contents of all regular files, in the order of their paths.
    /// Errors: `tool_error` when they are more than the workspace's quota, as when another program has filled the
    /// folder.
    pub(in super::super) fn read_all(&self) -> Result<Vec<(String, Vec<u8>)>, CallError> {
        let (entries, more) = self.list(None, true, MAX_VISITED)?;
        let files: Vec<_> = entries.into_iter().filter(|entry| entry.kind == Kind::File).collect();
        if more || files.iter().map(|file| file.size).sum::<u64>() > self.limits().quota_bytes {
            return Err(CallError::tool(
                "the session's workspace is larger than its quota; delete files, or use another session",
            ));
        }
        let mut found = Vec::new();
        for file in files {
            // Names that the file tools do not accept were made by another program.
            let Ok(path) = WorkspacePath::parse(&file.path) else { continue };
            found.push((file.path, self.read(&path, 0, u64::MAX)?.bytes));
        }
        Ok(found)
    }

    fn sorted(&self, names: &[String], recursive: bool, at_most: usize) -> io::Result<(Vec<Entry>, bool)> {
        let mut entries = Vec::new();
        let complete = self.walk(names, recursive, |entry| {
            if !entry.path.starts_with(RESERVED_PREFIX) {
                entries.push(entry);
            }
            Ok(entries.len() <= MAX_VISITED)
        })?;
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let truncated = !complete || entries.len() > at_most;
        entries.truncate(at_most);
        Ok((entries, truncated))
    }

    /// Calls `visit` with every entry below a folder until it returns false. Returns false when it was stopped.
    pub(super) fn walk(
        &self,
        names: &[String],
        recursive: bool,
        mut visit: impl FnMut(Entry) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let mut folders = vec![names.to_vec()];
        while let Some(names) = folders.pop() {
            let (folder, missing) = self.descend(&names)?;
            if !missing.is_empty() {
                return Err(io::ErrorKind::NotFound.into());
            }
            for entry in folder.entries()? {
                let entry = entry?;
                let name = entry.file_name();
                let Ok(metadata) = folder.symlink_metadata(Path::new(&name)) else {
                    continue; // Deleted meanwhile.
                };
                let mut path = names.clone();
                path.push(name.to_string_lossy().into_owned());
                if !visit(described(path.join("/"), &metadata))? {
                    return Ok(false);
                }
                if recursive && metadata.is_dir() && name.to_str().is_some() {
                    folders.push(path);
                }
            }
        }
        Ok(true)
    }
}

fn described(path: String, metadata: &Metadata) -> Entry {
    let (kind, size) = if metadata.is_file() {
        (Kind::File, metadata.len())
    } else if metadata.is_dir() {
        (Kind::Folder, 0)
    } else {
        (Kind::Other, 0)
    };
    let modified = metadata.modified().ok().and_then(|time| Timestamp::try_from(time.into_std()).ok());
    let modified = modified.unwrap_or(Timestamp::UNIX_EPOCH).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Entry { path, kind, size, modified }
}
