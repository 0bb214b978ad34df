use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::errno::Errno;
use crate::files::NodeId;

/// The object of a guest's descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Handle {
    Input,
    Output,
    Error,
    Folder {
        node: NodeId,
        /// The path that the guest sees, if it was open at the start.
        preopened: Option<Arc<str>>,
    },
    File(OpenFile),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenFile {
    pub(super) node: NodeId,
    pub(super) position: u64,
    pub(super) append: bool,
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl Handle {
    pub(super) fn node(&self) -> Option<NodeId> {
        match self {
            Self::Folder { node, .. } => Some(*node),
            Self::File(file) => Some(file.node),
            Self::Input | Self::Output | Self::Error => None,
        }
    }
}

/// The guest's descriptors: the lowest free number is used next, as POSIX requires. In images of sessions too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handles {
    slots: Vec<Option<Handle>>,
    most: usize,
}

impl Handles {
    /// The three streams, then the folders, and space for `most` more.
    pub(super) fn new(preopened: impl IntoIterator<Item = (Arc<str>, NodeId)>, most: u32) -> Self {
        let mut slots = vec![Some(Handle::Input), Some(Handle::Output), Some(Handle::Error)];
        let folders = preopened.into_iter().map(|(path, node)| Handle::Folder { node, preopened: Some(path) });
        slots.extend(folders.map(Some));
        let most = slots.len().saturating_add(most as usize);
        Self { slots, most }
    }

    pub(super) fn get(&self, descriptor: u32) -> Result<&Handle, Errno> {
        self.slots.get(descriptor as usize).and_then(Option::as_ref).ok_or(Errno::BadDescriptor)
    }

    pub(super) fn get_mut(&mut self, descriptor: u32) -> Result<&mut Handle, Errno> {
        self.slots.get_mut(descriptor as usize).and_then(Option::as_mut).ok_or(Errno::BadDescriptor)
    }

    /// An open file; fails for any other handle.
    pub(super) fn file(&mut self, descriptor: u32) -> Result<&mut OpenFile, Errno> {
        match self.get_mut(descriptor)? {
            Handle::File(file) => Ok(file),
            Handle::Folder { .. } => Err(Errno::IsFolder),
            Handle::Input | Handle::Output | Handle::Error => Err(Errno::NotSeekable),
        }
    }

    pub(super) fn folder(&self, descriptor: u32) -> Result<NodeId, Errno> {
        match self.get(descriptor)? {
            Handle::Folder { node, .. } => Ok(*node),
            _ => Err(Errno::NotFolder),
        }
    }

    pub(super) fn has_capacity(&self) -> bool {
        self.slots.len() < self.most || self.slots.iter().any(Option::is_none)
    }

    pub(super) fn insert(&mut self, handle: Handle) -> Result<u32, Errno> {
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free >= self.most {
            return Err(Errno::TooManyOpen);
        }
        match self.slots.get_mut(free) {
            Some(slot) => *slot = Some(handle),
            None => self.slots.push(Some(handle)),
        }
        u32::try_from(free).map_err(|_| Errno::TooManyOpen)
    }

    pub(super) fn remove(&mut self, descriptor: u32) -> Result<Handle, Errno> {
        self.slots.get_mut(descriptor as usize).and_then(Option::take).ok_or(Errno::BadDescriptor)
    }

    /// Replaces a handle by another and returns the old one. Both must exist.
    pub(super) fn renumber(&mut self, from: u32, to: u32) -> Result<Option<Handle>, Errno> {
        self.get(from)?;
        self.get(to)?;
        if from == to {
            return Ok(None);
        }
        let moved = self.remove(from)?;
        Ok(Some(std::mem::replace(self.get_mut(to)?, moved)))
    }
}
