//! Files of a session: the work of the host between two calls.

use std::collections::HashSet;

use bytes::Bytes;

use super::{FileError, Files, Kind, NodeId, ROOT};

/// The size of a file or a folder besides its content: its node, and its name in its folder.
pub(super) const NODE_BYTES: u64 = 512;

impl Files {
    /// Places a file as [`Files::place_file`] does, in place of one at its path. Descriptors of the earlier one still
    /// have that.
    /// Errors: when a folder is there, or the path leads through a file.
    pub fn replace_file(&mut self, path: &str, content: Bytes, read_only: bool) -> Result<NodeId, FileError> {
        match self.find(ROOT, path) {
            Ok(id) if self.status(id)?.is_folder => return Err(FileError::IsAFolder),
            Ok(id) => {
                let (folder, name) = self.place(ROOT, path)?;
                self.entries_mut(folder)?.remove(name);
                self.node_mut(id)?.named = false;
                self.free_unused(id);
            }
            Err(FileError::Missing) => {}
            Err(error) => return Err(error),
        }
        self.place_file(path, content, read_only)
    }

    /// Whether the host has placed this content at the path, and it is still there.
    pub fn has(&self, path: &str, content: &[u8]) -> bool {
        let found = self.find(ROOT, path).and_then(|id| self.node(id));
        matches!(found.map(|node| &node.kind), Ok(Kind::Fixed(bytes)) if bytes == content)
    }

    /// Marks the files below a folder as known to the caller, until they change.
    pub fn mark_known(&mut self, folder: NodeId) {
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            let ids: Vec<_> =
                self.folder(folder).map(|entries| entries.values().copied().collect()).unwrap_or_default();
            for id in ids {
                match self.nodes.get_mut(&id) {
                    Some(node) if matches!(node.kind, Kind::Folder { .. }) => folders.push(id),
                    Some(node) => node.is_known = true,
                    None => {}
                }
            }
        }
    }

    /// The bytes of only this tree: without the contents that trees share, and without the `shared` contents. A content
    /// that is there twice counts once. Files and folders count too: each call can send some that no quota counts.
    pub fn held_bytes<'a>(&self, shared: impl IntoIterator<Item = &'a Bytes>) -> u64 {
        let mut counted: HashSet<_> = shared.into_iter().map(|content| content.as_ptr().addr()).collect();
        let of_node = |kind: &Kind| match kind {
            Kind::Folder { .. } => 0,
            Kind::Fixed(content) if counted.insert(content.as_ptr().addr()) => content.len() as u64,
            Kind::Fixed(_) => 0,
            Kind::Written(content) => content.stored_bytes(),
        };
        let contents: u64 = self.nodes.values().map(|node| &node.kind).map(of_node).sum();
        contents.saturating_add(NODE_BYTES.saturating_mul(self.nodes.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CHUNK_BYTES, Quota};
    use super::*;

    fn files() -> Files {
        let mut files = Files::new(Quota { bytes: 1 << 20, nodes: 3 });
        files.place_folder("/output", false).unwrap();
        files
    }

    fn content(files: &Files, path: &str) -> Vec<u8> {
        let mut content = vec![0; 64];
        let length = files.read(files.find(ROOT, path).unwrap(), 0, &mut content).unwrap();
        content.truncate(length);
        content
    }

    #[test]
    fn a_file_that_is_sent_again_replaces_the_one_at_its_path() {
        let mut files = files();
        files.place_file("/input/data/a", Bytes::from_static(b"one"), true).unwrap();
        assert!(files.has("/input/data/a", b"one") && !files.has("/input/data/a", b"two"));
        files.replace_file("/input/data/a", Bytes::from_static(b"two"), true).unwrap();
        assert_eq!(content(&files, "input/data/a"), b"two");
        let written = files.create_file(ROOT, "output/a").unwrap();
        files.write(written, 0, b"own").unwrap();
        files.replace_file("/output/a", Bytes::from_static(b"sent"), false).unwrap();
        assert_eq!((content(&files, "output/a"), files.used_bytes()), (b"sent".to_vec(), 0));
        assert_eq!(files.replace_file("/input/data", Bytes::new(), true), Err(FileError::IsAFolder));
        assert_eq!(files.replace_file("/output/a/b", Bytes::new(), false), Err(FileError::NotAFolder));
    }

    #[test]
    fn however_often_files_are_replaced_the_guest_has_its_quota_and_no_more() {
        let mut files = files();
        for number in 0..9_u8 {
            files.replace_file("/output/sent", Bytes::from(vec![number]), false).unwrap();
            files.unlink(ROOT, "output/sent").unwrap();
        }
        for name in ["output/1", "output/2", "output/3"] {
            files.create_file(ROOT, name).unwrap();
        }
        assert_eq!(files.create_file(ROOT, "output/4"), Err(FileError::NoSpace));
    }

    #[test]
    fn what_was_returned_is_known_until_it_changes() {
        let mut files = files();
        files.create_folder(ROOT, "output/folder").unwrap();
        let ids = ["output/a", "output/folder/b"].map(|path| files.create_file(ROOT, path).unwrap());
        let known = |files: &Files| ids.map(|id| files.status(id).unwrap().is_known);
        assert_eq!(known(&files), [false, false]);
        files.mark_known(files.find(ROOT, "output").unwrap());
        assert_eq!(known(&files), [true, true]);
        files.write(ids[1], 0, b"more").unwrap();
        assert_eq!(known(&files), [true, false]);
    }

    #[test]
    fn contents_that_are_shared_or_there_twice_count_once_or_not() {
        let mut files = files();
        let (of_operator, sent) = (Bytes::from(vec![1; 500]), Bytes::from(vec![2; 300]));
        for (name, content) in [("rates", &of_operator), ("sent", &sent)] {
            files.place_file(&format!("/input/{name}"), content.clone(), true).unwrap();
            files.place_file(&format!("/output/{name}"), content.clone(), false).unwrap();
        }
        let id = files.create_file(ROOT, "output/own").unwrap();
        files.write(id, 0, b"x").unwrap();
        let held = files.held_bytes([&of_operator]);
        // With the root, two folders and five files.
        assert_eq!(held, 300 + CHUNK_BYTES as u64 + 8 * NODE_BYTES);
        files.place_file("/input/empty", Bytes::new(), true).unwrap();
        assert_eq!(files.held_bytes([&of_operator]), held + NODE_BYTES, "also without content");
    }
}
