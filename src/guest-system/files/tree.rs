//! Changes to the tree: names are added, removed and moved.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{FileError, Files, Kind, Node, NodeId, Sparse, check_name, folder, names};

impl Files {
    /// Creates an empty file.
    /// Errors: when it exists, its folder is missing or read-only, or the quota is used up.
    pub fn create_file(&mut self, from: NodeId, path: &str) -> Result<NodeId, FileError> {
        if path.ends_with('/') {
            return Err(FileError::IsAFolder);
        }
        let (at, name) = self.place(from, path)?;
        self.create(at, name, Kind::Written(Sparse::default()))
    }

    /// Creates an empty folder.
    /// Errors: as [`Files::create_file`].
    pub fn create_folder(&mut self, from: NodeId, path: &str) -> Result<NodeId, FileError> {
        let (at, name) = self.place(from, path)?;
        self.create(at, name, folder(at))
    }

    /// Removes a file's name; its bytes are freed when its last handle is closed.
    /// Errors: when it is missing, a folder, or read-only.
    pub fn unlink(&mut self, from: NodeId, path: &str) -> Result<(), FileError> {
        let (at, name) = self.place(from, path)?;
        let id = self.child(at, name)?;
        if path.ends_with('/') {
            return Err(if self.status(id)?.is_folder { FileError::IsAFolder } else { FileError::NotAFolder });
        }
        if self.status(id)?.is_folder {
            return Err(FileError::IsAFolder);
        }
        self.detach(at, name, id)
    }

    /// Removes an empty folder.
    /// Errors: when it is missing, not a folder, not empty, or read-only.
    pub fn remove_folder(&mut self, from: NodeId, path: &str) -> Result<(), FileError> {
        let (at, name) = self.place(from, path)?;
        let id = self.child(at, name)?;
        if !self.folder(id)?.is_empty() {
            return Err(FileError::NotEmpty);
        }
        self.detach(at, name, id)
    }

    /// Moves a file or folder; an existing file or empty folder at the target is replaced (POSIX `rename`).
    /// Errors: when either place is read-only, the kinds differ, or a folder would be moved into itself.
    pub fn rename(&mut self, from: (NodeId, &str), to: (NodeId, &str)) -> Result<(), FileError> {
        let (old_folder, old_name) = self.place(from.0, from.1)?;
        let (new_folder, new_name) = self.place(to.0, to.1)?;
        let moved = self.child(old_folder, old_name)?;
        self.check_writable(old_folder)?;
        self.check_writable(new_folder)?;
        self.check_writable(moved)?;
        // Before anything is changed: a removed folder accepts no entries.
        self.entries_mut(new_folder)?;
        check_name(new_name)?;
        let moves_folder = self.status(moved)?.is_folder;
        if !moves_folder && (from.1.ends_with('/') || to.1.ends_with('/')) {
            return Err(FileError::NotAFolder);
        }
        if moves_folder && self.is_within(new_folder, moved) {
            return Err(FileError::IntoItself);
        }
        match self.child(new_folder, new_name) {
            Ok(replaced) if replaced == moved => return Ok(()),
            Ok(replaced) => {
                match (moves_folder, self.status(replaced)?.is_folder) {
                    (true, false) => return Err(FileError::NotAFolder),
                    (false, true) => return Err(FileError::IsAFolder),
                    (true, true) if !self.folder(replaced)?.is_empty() => return Err(FileError::NotEmpty),
                    _ => {}
                }
                self.detach(new_folder, new_name, replaced)?;
            }
            Err(FileError::Missing) => {}
            Err(error) => return Err(error),
        }
        self.entries_mut(old_folder)?.remove(old_name);
        self.entries_mut(new_folder)?.insert(new_name.into(), moved);
        if let Kind::Folder { parent, .. } = &mut self.node_mut(moved)?.kind {
            *parent = new_folder;
        }
        Ok(())
    }

    pub(super) fn create(&mut self, at: NodeId, name: &str, kind: Kind) -> Result<NodeId, FileError> {
        match self.child(at, name) {
            Ok(_) => return Err(FileError::Exists),
            Err(FileError::Missing) => {}
            Err(error) => return Err(error),
        }
        self.check_writable(at)?;
        check_name(name)?;
        if self.used_nodes >= self.quota.nodes {
            return Err(FileError::NoSpace);
        }
        let id = self.attach(at, name, kind, false)?;
        let node = self.node_mut(id)?;
        (node.is_counted, node.is_known) = (true, false);
        self.used_nodes += 1;
        Ok(id)
    }

    pub(super) fn attach(&mut self, at: NodeId, name: &str, kind: Kind, read_only: bool) -> Result<NodeId, FileError> {
        let id = NodeId(self.next);
        let entries = self.entries_mut(at)?;
        if entries.contains_key(name) {
            return Err(FileError::Exists);
        }
        entries.insert(name.into(), id);
        self.next += 1;
        self.nodes.insert(id, Node::placed(kind, read_only));
        Ok(id)
    }

    pub(super) fn detach(&mut self, at: NodeId, name: &str, id: NodeId) -> Result<(), FileError> {
        self.check_writable(at)?;
        self.check_writable(id)?;
        self.entries_mut(at)?.remove(name);
        self.node_mut(id)?.named = false;
        self.free_unused(id);
        Ok(())
    }

    pub(super) fn free_unused(&mut self, id: NodeId) {
        if !self.nodes.get(&id).is_some_and(|node| !node.named && node.handles == 0) {
            return;
        }
        let Some(node) = self.nodes.remove(&id) else { return };
        self.used_nodes = self.used_nodes.saturating_sub(u32::from(node.is_counted));
        if let Kind::Written(bytes) = node.kind {
            self.used_bytes = self.used_bytes.saturating_sub(bytes.stored_bytes());
        }
    }

    /// The parent folder of a path's last name, and that name.
    pub(super) fn place<'p>(&self, from: NodeId, path: &'p str) -> Result<(NodeId, &'p str), FileError> {
        let mut at = from;
        let mut names = names(path)?.peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                if name == "." || name == ".." {
                    return Err(FileError::BadPath);
                }
                self.folder(at)?;
                return Ok((at, name));
            }
            at = self.child(at, name)?;
        }
        Err(FileError::BadPath)
    }

    pub(super) fn child(&self, at: NodeId, name: &str) -> Result<NodeId, FileError> {
        let Kind::Folder { parent, entries } = &self.node(at)?.kind else { return Err(FileError::NotAFolder) };
        match name {
            "." => Ok(at),
            ".." => Ok(*parent),
            _ => entries.get(name).copied().ok_or(FileError::Missing),
        }
    }

    pub(super) fn is_within(&self, mut at: NodeId, ancestor: NodeId) -> bool {
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

    pub(super) fn folder(&self, id: NodeId) -> Result<&BTreeMap<Arc<str>, NodeId>, FileError> {
        match &self.node(id)?.kind {
            Kind::Folder { entries, .. } => Ok(entries),
            _ => Err(FileError::NotAFolder),
        }
    }

    /// A removed folder accepts no entries: they could never be reached.
    pub(super) fn entries_mut(&mut self, id: NodeId) -> Result<&mut BTreeMap<Arc<str>, NodeId>, FileError> {
        match self.node_mut(id)? {
            Node { named: false, .. } => Err(FileError::Missing),
            Node { kind: Kind::Folder { entries, .. }, .. } => Ok(entries),
            Node { .. } => Err(FileError::NotAFolder),
        }
    }

    pub(super) fn check_writable(&self, id: NodeId) -> Result<(), FileError> {
        if self.node(id)?.read_only { Err(FileError::ReadOnly) } else { Ok(()) }
    }

    pub(super) fn node(&self, id: NodeId) -> Result<&Node, FileError> {
        self.nodes.get(&id).or_else(|| self.shared.get(&id)).ok_or(FileError::Missing)
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> Result<&mut Node, FileError> {
        match self.nodes.get_mut(&id) {
            Some(node) => Ok(node),
            None if self.shared.contains_key(&id) => Err(FileError::ReadOnly),
            None => Err(FileError::Missing),
        }
    }

    /// The bytes of a file that can be written.
    pub(super) fn written_mut(&mut self, id: NodeId) -> Result<&mut Sparse, FileError> {
        self.check_writable(id)?;
        let node = self.node_mut(id)?;
        node.is_known = false;
        match &mut node.kind {
            Kind::Written(bytes) => Ok(bytes),
            Kind::Folder { .. } => Err(FileError::IsAFolder),
            Kind::Fixed(_) => Err(FileError::ReadOnly),
        }
    }
}
