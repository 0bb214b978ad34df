//! The guest's file system: folders and files in memory, with quotas. No path in here leads to a file of
//! the host; the one thing shared with it is the interpreter's library, mapped once and never written.
//!
//! There are no links of any kind, so a path is what it says, and `..` cannot be led astray.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

/// What WASI answers for each is decided where its calls are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
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
    #[error("the file would be larger than a file can be")]
    TooLarge,
    #[error("the path, or a name in it, is too long")]
    NameTooLong,
    #[error("the path is empty, holds a NUL or leads out of the file system")]
    BadPath,
    #[error("a folder cannot be moved into itself")]
    IntoItself,
}

/// What all writable files together may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes stored, by whole chunks; holes are free.
    pub bytes: u64,
    /// Files and folders.
    pub nodes: u32,
}

/// Names one file or folder for as long as the file system lives; never used again for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u64);

/// The root, `/`.
pub const ROOT: NodeId = NodeId(0);

/// As POSIX has it (`NAME_MAX`, `PATH_MAX`).
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 4096;
/// Largest offset of a file, as with the host's own 64-bit file offsets.
const MAX_OFFSET: u64 = i64::MAX as u64;
/// A file is kept as chunks of this size, so that one byte at 1 TiB costs one chunk.
const CHUNK_BYTES: usize = 4096;

/// A tree of files and folders.
#[derive(Debug)]
pub struct Files {
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
    /// Handles open on it; a node without a name lives as long as one is open.
    handles: u32,
    named: bool,
}

#[derive(Debug)]
enum Kind {
    Folder {
        parent: NodeId,
        entries: BTreeMap<Arc<str>, NodeId>,
    },
    /// Bytes owned by somebody else: the library's mapping, or what the call brought.
    Fixed(Bytes),
    Sparse {
        length: u64,
        chunks: BTreeMap<u64, Box<[u8; CHUNK_BYTES]>>,
    },
}

/// What can be asked about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    pub id: NodeId,
    pub is_folder: bool,
    pub read_only: bool,
    /// Bytes; 0 for a folder.
    pub length: u64,
}

impl NodeId {
    /// The inode number that the guest sees.
    pub fn inode(self) -> u64 {
        self.0.saturating_add(1)
    }
}

impl Files {
    /// An empty root, read-only to the guest: what stands in it is put there by the host.
    pub fn new(quota: Quota) -> Self {
        let root = Node { kind: folder(ROOT), read_only: true, handles: 0, named: true };
        Self { nodes: BTreeMap::from([(ROOT, root)]), next: 1, quota, used_bytes: 0, used_nodes: 0 }
    }

    /// Puts a folder where the path says, with those above it. For the host: free of quota.
    ///
    /// # Errors
    /// When the path is bad or leads through a file.
    pub fn place_folder(&mut self, path: &str, read_only: bool) -> Result<NodeId, FileFault> {
        let mut at = ROOT;
        for name in names(path)? {
            at = match self.child(at, name) {
                Ok(found) => found,
                Err(FileFault::Missing) => self.attach(at, name, folder(at), true)?,
                Err(fault) => return Err(fault),
            };
        }
        self.folder(at)?;
        self.node_mut(at)?.read_only = read_only;
        Ok(at)
    }

    /// Puts a read-only file where the path says, with the folders above it. For the host: free of quota.
    ///
    /// # Errors
    /// When the path is bad, leads through a file, or names something that is there.
    pub fn place_file(&mut self, path: &str, content: Bytes) -> Result<NodeId, FileFault> {
        let (above, name) = match path.trim_end_matches('/').rsplit_once('/') {
            Some((above, name)) => (above, name),
            None => ("", path),
        };
        if matches!(name, "" | "." | "..") {
            return Err(FileFault::BadPath);
        }
        let mut at = ROOT;
        for part in names(above)? {
            at = match self.child(at, part) {
                Ok(found) => found,
                Err(FileFault::Missing) => self.attach(at, part, folder(at), true)?,
                Err(fault) => return Err(fault),
            };
        }
        self.attach(at, name, Kind::Fixed(content), true)
    }

    /// The node that a path names, counted from a folder. `.` and `..` are understood; `..` stops at the root.
    ///
    /// # Errors
    /// [`FileFault::Missing`], [`FileFault::NotAFolder`] or a bad path.
    pub fn find(&self, from: NodeId, path: &str) -> Result<NodeId, FileFault> {
        if path.is_empty() {
            return Err(FileFault::Missing);
        }
        let found = names(path)?.try_fold(from, |at, name| self.child(at, name))?;
        if path.ends_with('/') {
            self.folder(found)?;
        }
        Ok(found)
    }

    /// Makes an empty file.
    ///
    /// # Errors
    /// When it exists, its folder is missing or read-only, or the quota is used up.
    pub fn create_file(&mut self, from: NodeId, path: &str) -> Result<NodeId, FileFault> {
        if path.ends_with('/') {
            return Err(FileFault::IsAFolder);
        }
        let (at, name) = self.place(from, path)?;
        self.create(at, name, Kind::Sparse { length: 0, chunks: BTreeMap::new() })
    }

    /// Makes an empty folder.
    ///
    /// # Errors
    /// As [`Files::create_file`].
    pub fn create_folder(&mut self, from: NodeId, path: &str) -> Result<NodeId, FileFault> {
        let (at, name) = self.place(from, path)?;
        self.create(at, name, folder(at))
    }

    /// Takes a file's name away; its bytes go when its last handle is closed.
    ///
    /// # Errors
    /// When it is missing, a folder, or read-only.
    pub fn unlink(&mut self, from: NodeId, path: &str) -> Result<(), FileFault> {
        let (at, name) = self.place(from, path)?;
        let id = self.child(at, name)?;
        if path.ends_with('/') {
            return Err(if self.status(id)?.is_folder { FileFault::IsAFolder } else { FileFault::NotAFolder });
        }
        if self.status(id)?.is_folder {
            return Err(FileFault::IsAFolder);
        }
        self.detach(at, name, id)
    }

    /// Takes an empty folder away.
    ///
    /// # Errors
    /// When it is missing, not a folder, not empty, or read-only.
    pub fn remove_folder(&mut self, from: NodeId, path: &str) -> Result<(), FileFault> {
        let (at, name) = self.place(from, path)?;
        let id = self.child(at, name)?;
        if !self.folder(id)?.is_empty() {
            return Err(FileFault::NotEmpty);
        }
        self.detach(at, name, id)
    }

    /// Moves a file or folder; a file or an empty folder in its new place is replaced (POSIX `rename`).
    ///
    /// # Errors
    /// When either place is read-only, kinds differ, or a folder would come to stand inside itself.
    pub fn rename(&mut self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<(), FileFault> {
        let (old_folder, old_name) = self.place(from.0, from.1)?;
        let (new_folder, new_name) = self.place(to.0, to.1)?;
        let moved = self.child(old_folder, old_name)?;
        self.check_writable(old_folder)?;
        self.check_writable(new_folder)?;
        self.check_writable(moved)?;
        let moves_folder = self.status(moved)?.is_folder;
        if !moves_folder && (from.1.ends_with('/') || to.1.ends_with('/')) {
            return Err(FileFault::NotAFolder);
        }
        if moves_folder && self.is_within(new_folder, moved) {
            return Err(FileFault::IntoItself);
        }
        match self.child(new_folder, new_name) {
            Ok(replaced) if replaced == moved => return Ok(()),
            Ok(replaced) => {
                match (moves_folder, self.status(replaced)?.is_folder) {
                    (true, false) => return Err(FileFault::NotAFolder),
                    (false, true) => return Err(FileFault::IsAFolder),
                    (true, true) if !self.folder(replaced)?.is_empty() => return Err(FileFault::NotEmpty),
                    _ => {}
                }
                self.detach(new_folder, new_name, replaced)?;
            }
            Err(FileFault::Missing) => {}
            Err(fault) => return Err(fault),
        }
        self.entries_mut(old_folder)?.remove(old_name);
        self.entries_mut(new_folder)?.insert(new_name.into(), moved);
        if let Kind::Folder { parent, .. } = &mut self.node_mut(moved)?.kind {
            *parent = new_folder;
        }
        Ok(())
    }

    /// What a folder holds, in the order of names.
    ///
    /// # Errors
    /// When it is not a folder.
    pub fn list(&self, id: NodeId) -> Result<impl Iterator<Item = (&str, Status)>, FileFault> {
        let entries = self.folder(id)?;
        Ok(entries.iter().filter_map(|(name, id)| Some((&**name, self.status(*id).ok()?))))
    }

    /// # Errors
    /// When the node is gone.
    pub fn status(&self, id: NodeId) -> Result<Status, FileFault> {
        let node = self.node(id)?;
        let (is_folder, length) = match &node.kind {
            Kind::Folder { .. } => (true, 0),
            Kind::Fixed(bytes) => (false, bytes.len() as u64),
            Kind::Sparse { length, .. } => (false, *length),
        };
        Ok(Status { id, is_folder, read_only: node.read_only, length })
    }

    /// Copies bytes from an offset on into the buffer, and says how many there were.
    ///
    /// # Errors
    /// When it is a folder.
    pub fn read(&self, id: NodeId, offset: u64, buffer: &mut [u8]) -> Result<usize, FileFault> {
        match &self.node(id)?.kind {
            Kind::Folder { .. } => Err(FileFault::IsAFolder),
            Kind::Fixed(bytes) => {
                let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
                let count = rest.len().min(buffer.len());
                for (to, from) in buffer.iter_mut().zip(rest) {
                    *to = *from;
                }
                Ok(count)
            }
            Kind::Sparse { length, chunks } => Ok(read_sparse(*length, chunks, offset, buffer)),
        }
    }

    /// Writes as much as the quota has room for, and says how much that was.
    ///
    /// # Errors
    /// When nothing could be written: a folder, read-only, no space, past the largest offset.
    pub fn write(&mut self, id: NodeId, offset: u64, data: &[u8]) -> Result<usize, FileFault> {
        self.check_writable(id)?;
        let mut room = self.quota.bytes.saturating_sub(self.used_bytes) / CHUNK_BYTES as u64;
        let before = room;
        let Kind::Sparse { length, chunks } = &mut self.node_mut(id)?.kind else { return Err(FileFault::IsAFolder) };
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= MAX_OFFSET);
        let Some(_) = end else { return Err(FileFault::TooLarge) };
        let mut written = 0;
        while let Some(rest) = data.get(written..).filter(|rest| !rest.is_empty()) {
            let (number, within) = chunk_of(offset + written as u64);
            if !chunks.contains_key(&number) {
                if room == 0 {
                    break;
                }
                room -= 1;
            }
            let chunk = chunks.entry(number).or_insert_with(|| Box::new([0; CHUNK_BYTES]));
            let count = rest.len().min(CHUNK_BYTES - within);
            for (to, from) in chunk.iter_mut().skip(within).zip(rest) {
                *to = *from;
            }
            written += count;
        }
        *length = (*length).max(if written == 0 { 0 } else { offset + written as u64 });
        self.used_bytes += (before - room) * CHUNK_BYTES as u64;
        if written == 0 && !data.is_empty() { Err(FileFault::NoSpace) } else { Ok(written) }
    }

    /// Cuts a file, or lengthens it by a hole.
    ///
    /// # Errors
    /// When it is a folder, read-only, or longer than a file can be.
    pub fn resize(&mut self, id: NodeId, new_length: u64) -> Result<(), FileFault> {
        self.check_writable(id)?;
        if new_length > MAX_OFFSET {
            return Err(FileFault::TooLarge);
        }
        let Kind::Sparse { length, chunks } = &mut self.node_mut(id)?.kind else { return Err(FileFault::IsAFolder) };
        *length = new_length;
        let (number, within) = chunk_of(new_length);
        // What stood past the end must not come back when the file grows again.
        let mut freed = chunks.split_off(&number);
        if within > 0
            && let Some(mut kept) = freed.remove(&number)
        {
            kept.iter_mut().skip(within).for_each(|byte| *byte = 0);
            chunks.insert(number, kept);
        }
        self.used_bytes = self.used_bytes.saturating_sub((freed.len() * CHUNK_BYTES) as u64);
        Ok(())
    }

    /// Notes that a handle was opened on the node.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn opened(&mut self, id: NodeId) -> Result<(), FileFault> {
        let node = self.node_mut(id)?;
        node.handles = node.handles.saturating_add(1);
        Ok(())
    }

    /// Notes that a handle was closed; a node without name and handle is freed.
    pub fn closed(&mut self, id: NodeId) {
        if let Ok(node) = self.node_mut(id) {
            node.handles = node.handles.saturating_sub(1);
            self.free_unused(id);
        }
    }

    /// Bytes that written files take now, by whole chunks.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn create(&mut self, at: NodeId, name: &str, kind: Kind) -> Result<NodeId, FileFault> {
        match self.child(at, name) {
            Ok(_) => return Err(FileFault::Exists),
            Err(FileFault::Missing) => {}
            Err(fault) => return Err(fault),
        }
        self.check_writable(at)?;
        if self.used_nodes >= self.quota.nodes {
            return Err(FileFault::NoSpace);
        }
        let id = self.attach(at, name, kind, false)?;
        self.used_nodes += 1;
        Ok(id)
    }

    fn attach(&mut self, at: NodeId, name: &str, kind: Kind, read_only: bool) -> Result<NodeId, FileFault> {
        let id = NodeId(self.next);
        let entries = self.entries_mut(at)?;
        if entries.contains_key(name) {
            return Err(FileFault::Exists);
        }
        entries.insert(name.into(), id);
        self.next += 1;
        self.nodes.insert(id, Node { kind, read_only, handles: 0, named: true });
        Ok(id)
    }

    fn detach(&mut self, at: NodeId, name: &str, id: NodeId) -> Result<(), FileFault> {
        self.check_writable(at)?;
        self.check_writable(id)?;
        self.entries_mut(at)?.remove(name);
        self.node_mut(id)?.named = false;
        self.free_unused(id);
        Ok(())
    }

    fn free_unused(&mut self, id: NodeId) {
        if !self.nodes.get(&id).is_some_and(|node| !node.named && node.handles == 0) {
            return;
        }
        let Some(node) = self.nodes.remove(&id) else { return };
        self.used_nodes = self.used_nodes.saturating_sub(1);
        if let Kind::Sparse { chunks, .. } = node.kind {
            self.used_bytes = self.used_bytes.saturating_sub((chunks.len() * CHUNK_BYTES) as u64);
        }
    }

    /// The folder that a path's last name stands in, and that name.
    fn place<'p>(&self, from: NodeId, path: &'p str) -> Result<(NodeId, &'p str), FileFault> {
        let mut at = from;
        let mut names = names(path)?.peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                if name == "." || name == ".." {
                    return Err(FileFault::BadPath);
                }
                self.folder(at)?;
                return Ok((at, name));
            }
            at = self.child(at, name)?;
        }
        Err(FileFault::BadPath)
    }

    fn child(&self, at: NodeId, name: &str) -> Result<NodeId, FileFault> {
        let Kind::Folder { parent, entries } = &self.node(at)?.kind else { return Err(FileFault::NotAFolder) };
        match name {
            "." => Ok(at),
            ".." => Ok(*parent),
            _ => entries.get(name).copied().ok_or(FileFault::Missing),
        }
    }

    fn is_within(&self, mut at: NodeId, ancestor: NodeId) -> bool {
        loop {
            if at == ancestor {
                return true;
            }
            match self.child(at, "..") {
                Ok(parent) if parent != at => at = parent,
                _ => return false,
            }
        }
    }

    fn folder(&self, id: NodeId) -> Result<&BTreeMap<Arc<str>, NodeId>, FileFault> {
        match &self.node(id)?.kind {
            Kind::Folder { entries, .. } => Ok(entries),
            _ => Err(FileFault::NotAFolder),
        }
    }

    /// A folder without a name takes nothing in: it could never be reached again.
    fn entries_mut(&mut self, id: NodeId) -> Result<&mut BTreeMap<Arc<str>, NodeId>, FileFault> {
        match self.node_mut(id)? {
            Node { named: false, .. } => Err(FileFault::Missing),
            Node { kind: Kind::Folder { entries, .. }, .. } => Ok(entries),
            Node { .. } => Err(FileFault::NotAFolder),
        }
    }

    fn check_writable(&self, id: NodeId) -> Result<(), FileFault> {
        if self.node(id)?.read_only { Err(FileFault::ReadOnly) } else { Ok(()) }
    }

    fn node(&self, id: NodeId) -> Result<&Node, FileFault> {
        self.nodes.get(&id).ok_or(FileFault::Missing)
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, FileFault> {
        self.nodes.get_mut(&id).ok_or(FileFault::Missing)
    }
}

fn folder(parent: NodeId) -> Kind {
    Kind::Folder { parent, entries: BTreeMap::new() }
}

/// The names of a path, empty ones left out.
fn names(path: &str) -> Result<impl Iterator<Item = &str>, FileFault> {
    if path.contains('\0') {
        return Err(FileFault::BadPath);
    }
    if path.len() > MAX_PATH_BYTES || path.split('/').any(|name| name.len() > MAX_NAME_BYTES) {
        return Err(FileFault::NameTooLong);
    }
    Ok(path.split('/').filter(|name| !name.is_empty()))
}

#[expect(clippy::cast_possible_truncation, reason = "a rest of a division by 4096")]
fn chunk_of(offset: u64) -> (u64, usize) {
    (offset / CHUNK_BYTES as u64, (offset % CHUNK_BYTES as u64) as usize)
}

fn read_sparse(length: u64, chunks: &BTreeMap<u64, Box<[u8; CHUNK_BYTES]>>, offset: u64, buffer: &mut [u8]) -> usize {
    let left = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX);
    let count = left.min(buffer.len());
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..count).filter(|rest| !rest.is_empty()) {
        let (number, within) = chunk_of(offset + done as u64);
        let here = rest.len().min(CHUNK_BYTES - within);
        match chunks.get(&number) {
            Some(chunk) => rest.iter_mut().zip(chunk.iter().skip(within)).for_each(|(to, from)| *to = *from),
            None => rest.iter_mut().take(here).for_each(|byte| *byte = 0),
        }
        done += here;
    }
    count
}

#[cfg(test)]
mod tests;
