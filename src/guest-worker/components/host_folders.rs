//! The folders that a component reads: in memory, as they were when the worker started.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use sekisho_guest_protocol::{ComponentFolder, MAX_FOLDER_ENTRIES};
use sekisho_guest_system::files::{Files, FrozenFiles, NodeId, Quota};

/// All files of one component: every worker holds them in memory.
const MAX_BYTES: u64 = 64 << 20;

const NOTHING: Quota = Quota { bytes: 0, nodes: 0 };

/// The folders of one component.
pub(super) struct Folders {
    pub(super) files: Files,
    frozen: FrozenFiles,
    pub(super) contents: HashMap<NodeId, Bytes>,
    /// The contents of each folder. A component that lists one again and again holds no copy of it.
    pub(super) lists: HashMap<NodeId, Arc<[Listed]>>,
    /// Each with the path that the component sees.
    pub(super) roots: Vec<(Arc<str>, NodeId)>,
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) is_folder: bool,
}

sekisho_core::debug_fields!(Folders { roots });

impl Folders {
    /// Reads folders of the host.
    /// Errors: the file that cannot be read, and why.
    pub(super) fn read(folders: &[ComponentFolder]) -> Result<Self, String> {
        let mut reading = Reading {
            files: Files::new(NOTHING),
            contents: HashMap::new(),
            folders: Vec::new(),
            bytes_left: MAX_BYTES,
            entries_left: MAX_FOLDER_ENTRIES,
        };
        let mut roots = Vec::new();
        for ComponentFolder { guest_path, host_path } in folders {
            let root =
                reading.files.place_folder(guest_path, true).map_err(|error| format!("{guest_path}: {error}"))?;
            roots.push((Arc::from(guest_path.as_str()), root));
            reading.folders.push(root);
            reading.add(host_path, guest_path.trim_end_matches('/'))?;
        }
        let Reading { files, contents, folders, .. } = reading;
        let lists = folders.into_iter().map(|folder| (folder, list(&files, folder))).collect();
        let frozen = files.freeze();
        Ok(Self { files: frozen.thaw(NOTHING), frozen, contents, lists, roots })
    }

    /// The same for a command, which gets a file system of its own.
    pub(super) fn for_command(&self) -> (Files, Vec<(Arc<str>, NodeId)>) {
        (self.frozen.thaw(NOTHING), self.roots.clone())
    }
}

fn list(files: &Files, folder: NodeId) -> Arc<[Listed]> {
    let entries = files.list(folder).into_iter().flatten();
    entries.map(|(name, status)| Listed { name: name.to_owned(), is_folder: status.is_folder }).collect()
}

struct Reading {
    files: Files,
    contents: HashMap<NodeId, Bytes>,
    folders: Vec<NodeId>,
    bytes_left: u64,
    entries_left: usize,
}

impl Reading {
    fn add(&mut self, host: &Path, inside: &str) -> Result<(), String> {
        let shown = host.display().to_string();
        let unreadable = |error: std::io::Error| format!("{shown} cannot be read: {error}");
        for entry in fs::read_dir(host).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let kind = entry.file_type().map_err(unreadable)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                return Err(format!("{shown} has a name that is not UTF-8: {name:?}"));
            };
            let path = format!("{inside}/{name}");
            self.entries_left = self.entries_left.checked_sub(1).ok_or_else(|| too_much(&entry.path()))?;
            if kind.is_dir() {
                let folder = self.files.place_folder(&path, true).map_err(|error| format!("{path}: {error}"))?;
                self.folders.push(folder);
                self.add(&entry.path(), &path)?;
            } else if kind.is_file() {
                self.add_file(&entry.path(), &path)?;
            } else {
                return Err(format!("{}: links and devices are not read; put a file there", entry.path().display()));
            }
        }
        Ok(())
    }

    fn add_file(&mut self, host: &Path, path: &str) -> Result<(), String> {
        let mut content = Vec::new();
        fs::File::open(host)
            .and_then(|file| file.take(self.bytes_left + 1).read_to_end(&mut content))
            .map_err(|error| format!("{} cannot be read: {error}", host.display()))?;
        self.bytes_left = self.bytes_left.checked_sub(content.len() as u64).ok_or_else(|| too_much(host))?;
        let content = Bytes::from(content);
        let id = self.files.place_file(path, content.clone(), true).map_err(|error| format!("{path}: {error}"))?;
        self.contents.insert(id, content);
        Ok(())
    }
}

fn too_much(host: &Path) -> String {
    format!(
        "the folders of a component may have {} MiB and {MAX_FOLDER_ENTRIES} files and folders together; {} is too much",
        MAX_BYTES >> 20,
        host.display()
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn read(host: &Path) -> Result<Folders, String> {
        Folders::read(&[ComponentFolder { guest_path: "/data".to_owned(), host_path: host.to_owned() }])
    }

    #[test]
    fn files_and_folders_are_read_into_memory() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir(host.path().join("inner")).unwrap();
        fs::write(host.path().join("inner/a.txt"), "text").unwrap();
        let folders = read(host.path()).unwrap();
        fs::write(host.path().join("inner/a.txt"), "changed").unwrap();
        let (root, node) = (folders.roots[0].1, folders.files.find(folders.roots[0].1, "inner/a.txt").unwrap());
        assert_eq!((&*folders.roots[0].0, &folders.contents[&node]), ("/data", &Bytes::from("text")));
        let listed = |name: &str, is_folder| Listed { name: name.to_owned(), is_folder };
        let inner = folders.files.find(root, "inner").unwrap();
        assert_eq!(
            (&*folders.lists[&root], &*folders.lists[&inner]),
            (&[listed("inner", true)][..], &[listed("a.txt", false)][..])
        );
        let (mut files, roots) = folders.for_command();
        assert_eq!((roots[0].1, files.find(root, "inner/a.txt")), (root, Ok(node)));
        assert!(files.create_file(root, "new").is_err(), "nothing can be changed");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let host = tempfile::tempdir().unwrap();
        assert!(read(&PathBuf::from("/nowhere")).unwrap_err().contains("/nowhere cannot be read"));
        std::os::unix::fs::symlink("/etc/passwd", host.path().join("link")).unwrap();
        assert!(read(host.path()).unwrap_err().contains("links and devices are not read"));
        fs::remove_file(host.path().join("link")).unwrap();
        fs::File::create(host.path().join("large")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert!(read(host.path()).unwrap_err().contains("64 MiB"));
        fs::remove_file(host.path().join("large")).unwrap();
        (0..=MAX_FOLDER_ENTRIES).for_each(|number| fs::create_dir(host.path().join(number.to_string())).unwrap());
        assert!(read(host.path()).unwrap_err().contains("10000 files and folders"));
    }
}
