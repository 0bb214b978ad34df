//! The guest's file system: folders and files in memory, with quotas. No path leads to a file of the host; the only
//! shared data is the interpreter's library, mapped once and never written.
//!
//! There are no links of any kind, so a path cannot be redirected, and `..` cannot leave the root.

mod image;
mod session;
mod sparse;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::image::{DataFiles, FilesImage, RestoringFiles};

#[cfg(test)]
use self::sparse::CHUNK_BYTES;
use self::sparse::Sparse;

/// The WASI error number for each is chosen where the calls are implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("there is no such file or folder")]
    Missing,
    #[error("a part of the path is not a folder")]
    NotAFolder,
    #[error("it is a folder")]
    IsAFolder,
    #[error("it exists already")]
    Exists,
    #[error("the folder is not empty")]
    NotEmpty,
    #[error("it is read-only")]
    ReadOnly,
    #[error("the quota on bytes or on files is used up")]
    NoSpace,
    #[error("the file would be larger than the maximum size")]
    TooLarge,
    #[error("the path, or a name in it, is too long")]
    NameTooLong,
    #[error("the path is empty, contains a NUL or leads out of the file system")]
    BadPath,
    #[error("a name has a control character or a backslash, or begins like a drive of Windows")]
    BadName,
    #[error("a folder cannot be moved into itself")]
    IntoItself,
}

/// The quota of all writable files together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes stored, in whole chunks; holes are free.
    pub bytes: u64,
    /// Files and folders.
    pub nodes: u32,
}

/// Identifies one file or folder of a file system; never reused for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(u64);

/// The root, `/`.
pub const ROOT: NodeId = NodeId(0);

/// POSIX limits (`NAME_MAX`, `PATH_MAX`).
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 4096;
/// Largest offset of a file, like the host's 64-bit file offsets.
const MAX_OFFSET: u64 = i64::MAX as u64;
/// A tree of files and folders.
#[derive(Debug)]
pub struct Files {
    /// The read-only part that several trees share.
    shared: Arc<BTreeMap<NodeId, Node>>,
    nodes: BTreeMap<NodeId, Node>,
    next: u64,
    quota: Quota,
    used_bytes: u64,
    used_nodes: u32,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    read_only: bool,
    /// Open handles; a node without a name is kept while at least one is open.
    handles: u32,
    named: bool,
    /// Whether it counts in the quota: files that the host has placed do not.
    is_counted: bool,
    /// Whether the caller has its content: the host has placed it, or has returned it, and the guest has not changed it since.
    is_known: bool,
}

#[derive(Debug)]
enum Kind {
    Folder {
        parent: NodeId,
        entries: BTreeMap<Arc<str>, NodeId>,
    },
    /// Bytes owned elsewhere: the library's mapping, or the files of the call. Copied when the guest writes to it.
    Fixed(Bytes),
    Written(Sparse),
}

/// The attributes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub id: NodeId,
    pub is_folder: bool,
    pub read_only: bool,
    /// A file that the host has placed or returned, and that the guest has not changed since.
    pub is_known: bool,
    /// Bytes; 0 for a folder.
    pub length: u64,
}

/// A frozen tree: others start from it without copying it.
#[derive(Debug, Clone)]
pub struct FrozenFiles {
    nodes: Arc<BTreeMap<NodeId, Node>>,
    next: u64,
}

impl Node {
    /// A node of the host.
    fn placed(kind: Kind, read_only: bool) -> Self {
        Self { kind, read_only, handles: 0, named: true, is_counted: false, is_known: true }
    }
}

impl FrozenFiles {
    /// A tree that starts with this content. Only the host can add to its root.
    pub fn thaw(&self, quota: Quota) -> Files {
        let mut files = Files { shared: Arc::clone(&self.nodes), next: self.next, ..Files::new(quota) };
        if let (Some(Node { kind: Kind::Folder { entries, .. }, .. }), Ok(own)) =
            (self.nodes.get(&ROOT), files.entries_mut(ROOT))
        {
            own.clone_from(entries);
        }
        files
    }
}

impl NodeId {
    /// The inode number that the guest sees.
    pub fn inode(self) -> u64 {
        self.0.saturating_add(1)
    }
}

impl Files {
    /// An empty root, read-only to the guest: only the host adds to it.
    pub fn new(quota: Quota) -> Self {
        let root = Node::placed(folder(ROOT), true);
        let nodes = BTreeMap::from([(ROOT, root)]);
        Self { shared: Arc::default(), nodes, next: 1, quota, used_bytes: 0, used_nodes: 0 }
    }

    /// Makes the current content the shared part of other trees.
    pub fn freeze(self) -> FrozenFiles {
        FrozenFiles { nodes: Arc::new(self.nodes), next: self.next }
    }

    /// Creates a folder at the path, with its parents. For the host: free of quota.
    /// Errors: when the path is invalid or leads through a file.
    pub fn place_folder(&mut self, path: &str, read_only: bool) -> Result<NodeId, FileError> {
        let mut at = ROOT;
        for name in names(path)? {
            at = match self.child(at, name) {
                Ok(found) => found,
                Err(FileError::Missing) => self.attach(at, name, folder(at), true)?,
                Err(error) => return Err(error),
            };
        }
        self.folder(at)?;
        self.node_mut(at)?.read_only = read_only;
        Ok(at)
    }

    /// Creates a file at the path, with its parent folders. For the host: free of quota. A file that is not read-only is
    /// copied when the guest writes to it.
    /// Errors: when the path is invalid, leads through a file, or exists already.
    pub fn place_file(&mut self, path: &str, content: Bytes, read_only: bool) -> Result<NodeId, FileError> {
        let (above, name) = match path.trim_end_matches('/').rsplit_once('/') {
            Some((above, name)) => (above, name),
            None => ("", path),
        };
        if matches!(name, "" | "." | "..") {
            return Err(FileError::BadPath);
        }
        let mut at = ROOT;
        for part in names(above)? {
            at = match self.child(at, part) {
                Ok(found) => found,
                Err(FileError::Missing) => self.attach(at, part, folder(at), read_only)?,
                Err(error) => return Err(error),
            };
        }
        self.attach(at, name, Kind::Fixed(content), read_only)
    }

    /// The node at a path, relative to a folder. `.` and `..` are resolved; `..` stops at the root.
    /// Errors: [`FileError::Missing`], [`FileError::NotAFolder`] or an invalid path.
    pub fn find(&self, from: NodeId, path: &str) -> Result<NodeId, FileError> {
        if path.is_empty() {
            return Err(FileError::Missing);
        }
        let found = names(path)?.try_fold(from, |at, name| self.child(at, name))?;
        if path.ends_with('/') {
            self.folder(found)?;
        }
        Ok(found)
    }

    /// The entries of a folder, sorted by name.
    /// Errors: when it is not a folder.
    pub fn list(&self, id: NodeId) -> Result<impl Iterator<Item = (&str, Status)>, FileError> {
        let entries = self.folder(id)?;
        Ok(entries.iter().filter_map(|(name, id)| Some((&**name, self.status(*id).ok()?))))
    }

    /// Errors: when the node no longer exists.
    pub fn status(&self, id: NodeId) -> Result<Status, FileError> {
        let node = self.node(id)?;
        let (is_folder, length) = match &node.kind {
            Kind::Folder { .. } => (true, 0),
            Kind::Fixed(bytes) => (false, bytes.len() as u64),
            Kind::Written(bytes) => (false, bytes.length),
        };
        Ok(Status { id, is_folder, read_only: node.read_only, is_known: node.is_known && !is_folder, length })
    }

    /// Copies bytes from an offset into the buffer; returns their number.
    /// Errors: when it is a folder.
    pub fn read(&self, id: NodeId, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        match &self.node(id)?.kind {
            Kind::Folder { .. } => Err(FileError::IsAFolder),
            Kind::Fixed(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
                Ok(copy(buffer, rest))
            }
            Kind::Written(bytes) => Ok(bytes.read(offset, buffer)),
        }
    }

    /// Writes as much as the quota allows; returns that number of bytes.
    /// Errors: when nothing could be written: a folder, read-only, no space, past the largest offset.
    pub fn write(&mut self, id: NodeId, offset: u64, data: &[u8]) -> Result<usize, FileError> {
        self.copy_placed(id, u64::MAX)?;
        let room = self.quota.bytes.saturating_sub(self.used_bytes);
        let file = self.written_mut(id)?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= MAX_OFFSET);
        let Some(_) = end else { return Err(FileError::TooLarge) };
        let before = file.stored_bytes();
        let written = file.write(offset, data, room);
        let taken = file.stored_bytes() - before;
        self.used_bytes += taken;
        if written == 0 && !data.is_empty() { Err(FileError::NoSpace) } else { Ok(written) }
    }

    /// Truncates a file, or extends it by a hole.
    /// Errors: when it is a folder, read-only, or longer than the maximum size.
    pub fn resize(&mut self, id: NodeId, length: u64) -> Result<(), FileError> {
        if length > MAX_OFFSET {
            return Err(FileError::TooLarge);
        }
        self.copy_placed(id, length)?;
        let file = self.written_mut(id)?;
        let before = file.stored_bytes();
        file.resize(length);
        let freed = before - file.stored_bytes();
        self.used_bytes = self.used_bytes.saturating_sub(freed);
        Ok(())
    }

    /// Makes a file that the host has placed one of the guest's own, with at most its first `length` bytes.
    fn copy_placed(&mut self, id: NodeId, length: u64) -> Result<(), FileError> {
        let Kind::Fixed(placed) = &self.node(id)?.kind else { return Ok(()) };
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(placed.len());
        let content = placed.slice(..length);
        self.check_writable(id)?;
        let mut copy = Sparse::default();
        let room = self.quota.bytes.saturating_sub(self.used_bytes);
        if copy.write(0, &content, room) < length {
            return Err(FileError::NoSpace);
        }
        self.used_bytes += copy.stored_bytes();
        self.node_mut(id)?.kind = Kind::Written(copy);
        Ok(())
    }

    /// Records that a handle was opened on the node.
    /// Errors: when the node no longer exists.
    pub fn opened(&mut self, id: NodeId) -> Result<(), FileError> {
        match self.nodes.get_mut(&id) {
            Some(node) => node.handles = node.handles.saturating_add(1),
            // Never freed, so handles are not counted.
            None => drop(self.node(id)?),
        }
        Ok(())
    }

    /// Records that a handle was closed; frees a node without name and handles.
    pub fn closed(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.handles = node.handles.saturating_sub(1);
            self.free_unused(id);
        }
    }

    /// Bytes that written files use now, in whole chunks.
    #[cfg(test)]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }
}

/// Copies as much as both have; returns that number of bytes.
pub(crate) fn copy(to: &mut [u8], from: &[u8]) -> usize {
    let count = to.len().min(from.len());
    if let (Some(to), Some(from)) = (to.get_mut(..count), from.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}

fn folder(parent: NodeId) -> Kind {
    Kind::Folder { parent, entries: BTreeMap::new() }
}

/// The components of a path, without empty ones.
fn names(path: &str) -> Result<impl Iterator<Item = &str>, FileError> {
    if path.contains('\0') {
        return Err(FileError::BadPath);
    }
    if path.len() > MAX_PATH_BYTES || path.split('/').any(|name| name.len() > MAX_NAME_BYTES) {
        return Err(FileError::NameTooLong);
    }
    Ok(path.split('/').filter(|name| !name.is_empty()))
}

/// Refuses names that mean something else, or leave their folder, on the machine of a client that saves the file.
fn check_name(name: &str) -> Result<(), FileError> {
    let is_drive = matches!(name.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic());
    if is_drive || name.chars().any(|c| c.is_control() || c == '\\') { Err(FileError::BadName) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
