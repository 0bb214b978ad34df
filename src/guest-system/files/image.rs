//! The image of a tree: the part that the tree does not share. It is restored over the same shared part, in this
//! process or another.
//!
//! The contents of files follow the tree in pieces. A content that several nodes have is there once. The contents of
//! the operator's data files are not there: they are found by their paths.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::sparse::{CHUNK_BYTES, Sparse};
use super::{Files, FrozenFiles, Kind, MAX_OFFSET, Node, NodeId, Quota, ROOT};
use sekisho_guest_protocol::{DamagedImageError, Pieces};

/// More nodes than a tree ever has.
const MAX_NODE_ID: u64 = 1 << 48;

/// Paths and contents of the operator's data files.
pub type DataFiles = [(String, Bytes)];

/// A tree without contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesImage {
    nodes: Vec<NodeImage>,
    next: u64,
    max_bytes: u64,
    max_nodes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct NodeImage {
    id: NodeId,
    kind: KindImage,
    read_only: bool,
    handles: u32,
    named: bool,
    is_counted: bool,
    is_known: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum KindImage {
    Folder {
        parent: NodeId,
        entries: Vec<(String, NodeId)>,
    },
    /// Placed by the host; the content follows.
    Fixed {
        length: u64,
    },
    /// The content of this node, which is before it.
    SameAs(NodeId),
    /// The content of the data file with this path.
    DataFile(String),
    /// The chunks follow.
    Written {
        length: u64,
    },
}

/// A tree that waits for its contents.
#[derive(Debug)]
pub struct RestoringFiles {
    files: Files,
    /// Contents that are not complete, and their lengths.
    fixed: BTreeMap<NodeId, (Vec<u8>, u64)>,
    same: Vec<(NodeId, NodeId)>,
}

/// Where placed contents are in memory, and the first node of the tree that has each.
struct Placed<'a> {
    first: HashMap<(usize, usize), NodeId>,
    data_files: HashMap<(usize, usize), &'a str>,
}

impl Files {
    /// The tree without the part that it shares.
    pub(crate) fn image(&self, data_files: &DataFiles) -> FilesImage {
        let placed = Placed::of(self, data_files);
        let nodes = self.nodes.iter().map(|(id, node)| NodeImage {
            id: *id,
            kind: placed.kind_of(*id, &node.kind),
            read_only: node.read_only,
            handles: node.handles,
            named: node.named,
            is_counted: node.is_counted,
            is_known: node.is_known,
        });
        let Quota { bytes: max_bytes, nodes: max_nodes } = self.quota;
        FilesImage { nodes: nodes.collect(), next: self.next, max_bytes, max_nodes }
    }

    /// Adds the contents from this node and offset on, until there is enough. Returns where the rest begins.
    pub fn read_contents(
        &self,
        data_files: &DataFiles,
        (node, offset): (u64, u64),
        pieces: &mut Pieces,
        is_enough: impl Fn(&Pieces) -> bool,
    ) -> Option<(u64, u64)> {
        let placed = Placed::of(self, data_files);
        for (id, found) in self.nodes.range(NodeId(node)..) {
            let from = if id.0 == node { offset } else { 0 };
            let mut read = |at: u64, chunk: &[u8]| {
                pieces.push(id.0, at, chunk);
                is_enough(pieces).then_some((id.0, at + chunk.len() as u64))
            };
            let rest = match &found.kind {
                Kind::Folder { .. } => None,
                Kind::Fixed(content) if !placed.is_first(*id, content) => None,
                Kind::Fixed(content) => {
                    let content = usize::try_from(from).ok().and_then(|from| content.get(from..)).unwrap_or_default();
                    let mut chunks = (from..).step_by(CHUNK_BYTES).zip(content.chunks(CHUNK_BYTES));
                    chunks.find_map(|(at, chunk)| read(at, chunk))
                }
                Kind::Written(content) => content
                    .chunks_from(from / CHUNK_BYTES as u64)
                    .find_map(|(number, chunk)| read(number * CHUNK_BYTES as u64, chunk)),
            };
            if rest.is_some() {
                return rest;
            }
        }
        None
    }
}

impl FrozenFiles {
    /// A tree as the image has it, over this shared part.
    /// Errors: the image does not belong to it, or names a data file that is not there.
    pub fn restore(&self, image: FilesImage, data_files: &DataFiles) -> Result<RestoringFiles, DamagedImageError> {
        if !(self.next..MAX_NODE_ID).contains(&image.next) {
            return Err(DamagedImageError("it is of another interpreter"));
        }
        let mut restoring = RestoringFiles {
            files: Files {
                shared: Arc::clone(&self.nodes),
                nodes: BTreeMap::new(),
                next: image.next,
                quota: Quota { bytes: image.max_bytes, nodes: image.max_nodes },
                used_bytes: 0,
                used_nodes: 0,
            },
            fixed: BTreeMap::new(),
            same: Vec::new(),
        };
        for node in image.nodes {
            let is_own = node.id == ROOT || (node.id.0 >= self.next && node.id.0 < image.next);
            if !is_own {
                return Err(DamagedImageError("a file has the id of another"));
            }
            restoring.add(node, data_files)?;
        }
        let nodes = &restoring.files.nodes;
        let has_root = nodes.get(&ROOT).is_some_and(|root| matches!(root.kind, Kind::Folder { .. }));
        if !has_root || has_cycle(nodes) || has_misplaced_folder(nodes) {
            return Err(DamagedImageError("its folders are no tree"));
        }
        Ok(restoring)
    }
}

impl RestoringFiles {
    fn add(&mut self, image: NodeImage, data_files: &DataFiles) -> Result<(), DamagedImageError> {
        let NodeImage { id, kind, read_only, handles, named, is_counted, is_known } = image;
        let kind = match kind {
            KindImage::Folder { parent, entries } => {
                let entries = entries.into_iter().map(|(name, id)| (name.into(), id)).collect();
                Kind::Folder { parent, entries }
            }
            KindImage::Fixed { length } => {
                self.fixed.insert(id, (Vec::new(), length));
                Kind::Fixed(Bytes::new())
            }
            KindImage::SameAs(first) => {
                self.same.push((id, first));
                Kind::Fixed(Bytes::new())
            }
            KindImage::DataFile(path) => {
                let found = data_files.iter().find(|(name, _)| *name == path);
                Kind::Fixed(found.ok_or(DamagedImageError("a data file of the operator is gone"))?.1.clone())
            }
            KindImage::Written { length } if length > MAX_OFFSET => {
                return Err(DamagedImageError("a file is too long"));
            }
            KindImage::Written { length } => Kind::Written(Sparse::of_length(length)),
        };
        self.files.nodes.insert(id, Node { kind, read_only, handles, named, is_counted, is_known });
        self.files.used_nodes = self.files.used_nodes.saturating_add(u32::from(is_counted));
        Ok(())
    }

    /// Adds pieces of contents.
    /// Errors: one of them has no place.
    pub(crate) fn add_contents(&mut self, pieces: &Pieces) -> Result<(), DamagedImageError> {
        for piece in pieces.iter() {
            let (node, offset, bytes) = piece?;
            self.add_content(NodeId(node), offset, bytes)?;
        }
        Ok(())
    }

    fn add_content(&mut self, id: NodeId, offset: u64, bytes: &[u8]) -> Result<(), DamagedImageError> {
        const NO_PLACE: DamagedImageError = DamagedImageError("a piece of a file has no place");
        if let Some((content, length)) = self.fixed.get_mut(&id) {
            let end = (content.len() as u64).saturating_add(bytes.len() as u64);
            if offset != content.len() as u64 || end > *length {
                return Err(NO_PLACE);
            }
            content.extend_from_slice(bytes);
            return Ok(());
        }
        let Some(Node { kind: Kind::Written(content), .. }) = self.files.nodes.get_mut(&id) else {
            return Err(NO_PLACE);
        };
        let chunk: [u8; CHUNK_BYTES] = bytes.try_into().map_err(|_| NO_PLACE)?;
        if !offset.is_multiple_of(CHUNK_BYTES as u64) || offset >= content.length {
            return Err(NO_PLACE);
        }
        content.put_chunk(offset / CHUNK_BYTES as u64, chunk);
        Ok(())
    }

    /// The tree, once it has all contents.
    /// Errors: one is missing.
    pub(crate) fn finish(self) -> Result<Files, DamagedImageError> {
        let Self { mut files, fixed, same } = self;
        for (id, (content, length)) in fixed {
            if content.len() as u64 != length {
                return Err(DamagedImageError("a file is incomplete"));
            }
            set_content(&mut files, id, content.into());
        }
        for (id, first) in same {
            let content = match files.nodes.get(&first).map(|node| &node.kind) {
                Some(Kind::Fixed(content)) => content.clone(),
                _ => return Err(DamagedImageError("a file has the content of one that is missing")),
            };
            set_content(&mut files, id, content);
        }
        let written = files.nodes.values().map(|node| match &node.kind {
            Kind::Written(content) => content.stored_bytes(),
            Kind::Folder { .. } | Kind::Fixed(_) => 0,
        });
        files.used_bytes = written.sum();
        Ok(files)
    }
}

impl<'a> Placed<'a> {
    fn of(files: &Files, data_files: &'a DataFiles) -> Self {
        let mut first = HashMap::new();
        for (id, node) in &files.nodes {
            // Where an empty one is says nothing.
            if let Kind::Fixed(content) = &node.kind
                && !content.is_empty()
            {
                first.entry(address(content)).or_insert(*id);
            }
        }
        let data_files = data_files.iter().filter(|(_, content)| !content.is_empty());
        Self { first, data_files: data_files.map(|(path, content)| (address(content), path.as_str())).collect() }
    }

    /// Whether the pieces of this content belong to this node.
    fn is_first(&self, id: NodeId, content: &Bytes) -> bool {
        let at = address(content);
        !self.data_files.contains_key(&at) && self.first.get(&at) == Some(&id)
    }

    fn kind_of(&self, id: NodeId, kind: &Kind) -> KindImage {
        match kind {
            Kind::Folder { parent, entries } => {
                let entries = entries.iter().map(|(name, id)| (name.to_string(), *id)).collect();
                KindImage::Folder { parent: *parent, entries }
            }
            Kind::Written(content) => KindImage::Written { length: content.length },
            Kind::Fixed(content) => {
                let at = address(content);
                match (self.data_files.get(&at), self.first.get(&at)) {
                    (Some(path), _) => KindImage::DataFile((*path).to_owned()),
                    (None, Some(first)) if *first != id => KindImage::SameAs(*first),
                    (None, _) => KindImage::Fixed { length: content.len() as u64 },
                }
            }
        }
    }
}

fn address(content: &Bytes) -> (usize, usize) {
    (content.as_ptr().addr(), content.len())
}

fn set_content(files: &mut Files, id: NodeId, content: Bytes) {
    if let Some(node) = files.nodes.get_mut(&id) {
        node.kind = Kind::Fixed(content);
    }
}

/// Whether some folder is in another one than it says: whoever went down could come back to where he was.
fn has_misplaced_folder(nodes: &BTreeMap<NodeId, Node>) -> bool {
    let is_elsewhere = |folder: NodeId, entry: NodeId| match nodes.get(&entry).map(|node| &node.kind) {
        Some(Kind::Folder { parent, .. }) => entry == ROOT || *parent != folder,
        _ => false,
    };
    nodes.iter().any(|(id, node)| match &node.kind {
        Kind::Folder { entries, .. } => entries.values().any(|entry| is_elsewhere(*id, *entry)),
        Kind::Fixed(_) | Kind::Written(_) => false,
    })
}

/// Whether some folder is within itself: whoever went up from it would never arrive.
fn has_cycle(nodes: &BTreeMap<NodeId, Node>) -> bool {
    let mut known = HashSet::from([ROOT]);
    for id in nodes.keys() {
        let (mut at, mut path) = (*id, HashSet::new());
        while !known.contains(&at) {
            if !path.insert(at) {
                return true;
            }
            match nodes.get(&at).map(|node| &node.kind) {
                Some(Kind::Folder { parent, .. }) => at = *parent,
                _ => break,
            }
        }
        known.extend(path);
    }
    false
}

#[cfg(test)]
mod tests;
