//! The digest of a folder with all that is in it.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

/// Maximum of files, folders and links in a tree.
const MAX_ENTRIES: usize = 500_000;

/// Maximum bytes of all files.
const MAX_BYTES: u64 = 16 << 30;

/// Maximum folders in folders.
pub(super) const MAX_DEPTH: usize = 64;

/// Maximum bytes of all paths and targets of links, which are in memory: 500 000 files of packages have 60 MiB, and could have two gibibytes.
const MAX_PATH_BYTES: usize = 256 << 20;

/// Threads that read files.
const THREADS: usize = 4;

/// Permissions that are part of a digest: those to execute, and those that give a program the rights of its owner. The others depend on
/// the user's umask.
const PERMISSIONS: u32 = 0o6111;

/// Why a tree has no digest.
#[derive(Debug, Error)]
pub enum TreeError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} is neither a file, nor a folder, nor a link", .0.display())]
    Special(PathBuf),
    #[error(
        "it has more than {MAX_ENTRIES} files, {} GiB, {MAX_DEPTH} folders in each other, or {} MiB of paths",
        MAX_BYTES >> 30, MAX_PATH_BYTES >> 20
    )]
    TooLarge,
}

/// An entry of a tree, and what its digest is made of beside its path.
struct Entry {
    path: PathBuf,
    kind: Kind,
    permissions: u32,
    /// Changed by every write of the file or of its attributes.
    stamp: [i64; 6],
}

enum Kind {
    Folder,
    File,
    Link(PathBuf),
}

/// A tree as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) digest: String,
    stamp: [u8; 32],
}

/// Reads a folder. Files are not read again where the folder's entries have the times, sizes and numbers that they had `before`.
/// Errors: as [`digest_of`].
pub(super) fn read(folder: &Path, before: Option<&Tree>) -> Result<Tree, TreeError> {
    let entries = entries_of(folder)?;
    let stamp = stamp_of(&entries);
    if let Some(before) = before.filter(|before| before.stamp == stamp) {
        return Ok(before.clone());
    }
    Ok(Tree { digest: digest_of_entries(folder, &entries)?, stamp })
}

/// The digest of a folder: `sha256:…` over the sorted paths, with the permissions to execute, the contents of files and the targets of links.
/// Errors: when something in the folder cannot be read, or it is too large.
pub(super) fn digest_of(folder: &Path) -> Result<String, TreeError> {
    digest_of_entries(folder, &entries_of(folder)?)
}

/// Sorted by their paths.
fn entries_of(folder: &Path) -> Result<Vec<Entry>, TreeError> {
    let mut entries = Walk::default().entries_of(folder)?;
    entries.sort_by(|one, other| one.path.as_os_str().as_bytes().cmp(other.path.as_os_str().as_bytes()));
    Ok(entries)
}

fn stamp_of(entries: &[Entry]) -> [u8; 32] {
    let mut whole = Sha256::new();
    for entry in entries {
        let path = entry.path.as_os_str().as_bytes();
        whole.update(path.len().to_ne_bytes());
        whole.update(path);
        entry.stamp.iter().for_each(|part| whole.update(part.to_ne_bytes()));
    }
    whole.finalize().into()
}

fn digest_of_entries(folder: &Path, entries: &[Entry]) -> Result<String, TreeError> {
    let part = entries.len().div_ceil(THREADS).max(1);
    let lines = std::thread::scope(|scope| {
        let parts: Vec<_> = entries.chunks(part).map(|part| scope.spawn(|| lines_of(folder, part))).collect();
        let read = parts.into_iter().map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        read.collect::<Result<Vec<_>, _>>()
    })?;
    let mut whole = Sha256::new();
    lines.iter().for_each(|lines| whole.update(lines));
    Ok(format!("sha256:{}", hex::encode(whole.finalize())))
}

#[derive(Default)]
struct Walk {
    entries: Vec<Entry>,
    bytes: u64,
    path_bytes: usize,
}

impl Walk {
    fn entries_of(mut self, folder: &Path) -> Result<Vec<Entry>, TreeError> {
        let mut left = vec![(folder.to_owned(), 0)];
        while let Some((path, depth)) = left.pop() {
            let unreadable = |error| TreeError::Unreadable { path: path.clone(), error };
            for entry in fs::read_dir(&path).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                let path = entry.path();
                let metadata = entry.metadata().map_err(|error| TreeError::Unreadable { path: path.clone(), error })?;
                if metadata.is_dir() {
                    left.push((path.clone(), depth + 1));
                }
                self.path_bytes += path.as_os_str().len();
                self.add(folder, path, &metadata)?;
                let is_large = self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES;
                if is_large || self.path_bytes > MAX_PATH_BYTES || depth >= MAX_DEPTH {
                    return Err(TreeError::TooLarge);
                }
            }
        }
        Ok(self.entries)
    }

    fn add(&mut self, folder: &Path, path: PathBuf, metadata: &Metadata) -> Result<(), TreeError> {
        let kind = match () {
            () if metadata.is_dir() => Kind::Folder,
            () if metadata.is_file() => Kind::File,
            () if metadata.is_symlink() => match fs::read_link(&path) {
                Ok(target) => {
                    self.path_bytes += target.as_os_str().len();
                    Kind::Link(target)
                }
                Err(error) => return Err(TreeError::Unreadable { path, error }),
            },
            () => return Err(TreeError::Special(path)),
        };
        if matches!(kind, Kind::File) {
            self.bytes = self.bytes.saturating_add(metadata.len());
        }
        // A link has permissions that mean nothing.
        let permissions = if metadata.is_symlink() { 0 } else { metadata.permissions().mode() & PERMISSIONS };
        let stamp = [
            metadata.ino().cast_signed(),
            metadata.size().cast_signed(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ];
        let path = path.strip_prefix(folder).map(Path::to_owned).unwrap_or(path);
        self.entries.push(Entry { path, kind, permissions, stamp });
        Ok(())
    }
}

/// One record for each entry. The lengths of its parts are in it, so that no two trees have the same records.
fn lines_of(folder: &Path, entries: &[Entry]) -> Result<Vec<u8>, TreeError> {
    let mut lines = Vec::new();
    for Entry { path, kind, permissions, .. } in entries {
        let (kind, content) = match kind {
            Kind::Folder => ("folder", Vec::new()),
            Kind::Link(target) => ("link", target.as_os_str().as_bytes().to_vec()),
            Kind::File => {
                let path = folder.join(path);
                let digest = digest_of_file(&path).map_err(|error| TreeError::Unreadable { path, error })?;
                ("file", digest.to_vec())
            }
        };
        let path = path.as_os_str().as_bytes();
        lines.extend_from_slice(format!("{kind} {permissions:o} {} {}\n", path.len(), content.len()).as_bytes());
        lines.extend_from_slice(path);
        lines.extend_from_slice(&content);
    }
    Ok(lines)
}

fn digest_of_file(path: &Path) -> io::Result<[u8; 32]> {
    let mut file = File::open(path)?;
    let (mut digest, mut part) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        let length = file.read(&mut part)?;
        let Some(read) = part.get(..length).filter(|read| !read.is_empty()) else {
            return Ok(digest.finalize().into());
        };
        digest.update(read);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("a")).unwrap();
        for name in ["a/b", "a/c", "d"] {
            fs::write(path(name), name).unwrap();
        }
        symlink("a/b", path("link")).unwrap();
        folder
    }

    #[test]
    fn equal_trees_have_equal_digests_wherever_they_are() {
        let (one, other) = (tree(), tree());
        fs::set_permissions(other.path().join("d"), PermissionsExt::from_mode(0o600)).unwrap();
        let digest = digest_of(one.path()).unwrap();
        assert_eq!(digest, digest_of(other.path()).unwrap());
        assert_eq!(digest.len(), "sha256:".len() + 64);
    }

    #[test]
    fn every_change_is_another_digest() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 9] = [
            ("content", |folder| fs::write(folder.join("d"), "D").unwrap()),
            ("name", |folder| fs::rename(folder.join("d"), folder.join("e")).unwrap()),
            ("new file", |folder| fs::write(folder.join("a/new"), "").unwrap()),
            ("new folder", |folder| fs::create_dir(folder.join("new")).unwrap()),
            ("removed", |folder| fs::remove_file(folder.join("a/c")).unwrap()),
            ("moved", |folder| fs::rename(folder.join("a/c"), folder.join("c")).unwrap()),
            ("executable", |folder| fs::set_permissions(folder.join("d"), PermissionsExt::from_mode(0o755)).unwrap()),
            ("target", |folder| {
                fs::remove_file(folder.join("link")).unwrap();
                symlink("a/c", folder.join("link")).unwrap();
            }),
            ("file for link", |folder| {
                fs::remove_file(folder.join("link")).unwrap();
                fs::write(folder.join("link"), "a/b").unwrap();
            }),
        ];
        let mut digests = vec![digest_of(tree().path()).unwrap()];
        for (name, change) in changes {
            let tree = tree();
            change(tree.path());
            let digest = digest_of(tree.path()).unwrap();
            assert!(!digests.contains(&digest), "{name}");
            digests.push(digest);
        }
    }

    #[test]
    fn a_tree_that_was_read_is_read_again_where_something_changed() {
        let tree = tree();
        let before = read(tree.path(), None).unwrap();
        let known = Tree { digest: "known".to_owned(), ..before };
        assert_eq!(read(tree.path(), Some(&known)).unwrap().digest, "known");
        let file = tree.path().join("d");
        let modified = fs::metadata(&file).unwrap().modified().unwrap();
        fs::write(&file, "D").unwrap();
        // Not the time of the last change of its attributes, which no program sets.
        File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
        let after = read(tree.path(), Some(&known)).unwrap();
        assert_ne!(after.digest, "known");
        assert_eq!(after.digest, digest_of(tree.path()).unwrap());
    }

    #[test]
    fn what_cannot_be_read_has_no_digest() {
        let tree = tree();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            tree.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(matches!(digest_of(tree.path()), Err(TreeError::Special(path)) if path.ends_with("pipe")));
        fs::remove_file(tree.path().join("pipe")).unwrap();
        fs::create_dir_all(tree.path().join("n/".repeat(MAX_DEPTH + 2))).unwrap();
        assert!(matches!(digest_of(tree.path()), Err(TreeError::TooLarge)));
        assert!(matches!(digest_of(&tree.path().join("none")), Err(TreeError::Unreadable { .. })));
    }
}
