//! Detects changes of the configuration or policies on disk.
//!
//! It compares contents once a second instead of using kernel notifications: this also detects editors that rename,
//! and mounted config maps, which replace a symbolic link.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum depth of folders; bounds a link to a parent folder.
const MAX_DEPTH: usize = 8;

type Fingerprint = [u8; 32];

/// Watches files and whole folders.
#[derive(Debug)]
pub struct Watcher {
    paths: Vec<PathBuf>,
    /// The contents last reported, or those at the start.
    known: Fingerprint,
    /// The contents at the last check.
    seen: Fingerprint,
}

impl Watcher {
    /// Records the current contents of `paths`. A path may be missing, appear and disappear.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let now = fingerprint(&paths);
        Self { paths, known: now, seen: now }
    }

    /// Returns once the contents differ from those last reported and have been stable for one interval, so that a
    /// partially written file is not reported. Cancel safe.
    pub async fn changed(&mut self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let paths = self.paths.clone();
            let Ok(now) = tokio::task::spawn_blocking(move || fingerprint(&paths)).await else { continue };
            let settled = now == self.seen;
            self.seen = now;
            if settled && now != self.known {
                self.known = now;
                return;
            }
        }
    }
}

fn fingerprint(paths: &[PathBuf]) -> Fingerprint {
    let mut hasher = Sha256::new();
    for path in paths {
        add(&mut hasher, path, MAX_DEPTH);
    }
    hasher.finalize().into()
}

/// Name, kind and content of a file, or of everything in a folder. An unreadable file counts by its error.
fn add(hasher: &mut Sha256, path: &Path, depth: usize) {
    add_part(hasher, path.as_os_str().as_encoded_bytes());
    match entries(path) {
        Ok(children) if depth > 0 => children.iter().for_each(|child| add(hasher, child, depth - 1)),
        Ok(_) => {}
        // Reading a pipe or a device would not end.
        Err(_) if !path.is_file() => {}
        Err(_) => match fs::read(path) {
            Ok(content) => add_part(hasher, &content),
            Err(error) => add_part(hasher, error.kind().to_string().as_bytes()),
        },
    }
}

/// With its length first, so that different parts never produce the same bytes.
fn add_part(hasher: &mut Sha256, part: &[u8]) {
    hasher.update((part.len() as u64).to_le_bytes());
    hasher.update(part);
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut children =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    children.sort();
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn changes_within(watcher: &mut Watcher, seconds: f64) -> bool {
        tokio::time::timeout(Duration::from_secs_f64(seconds), watcher.changed()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_file_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sekisho.yaml");
        fs::write(&file, "a").unwrap();
        let mut watcher = Watcher::new(vec![file.clone()]);
        assert!(!changes_within(&mut watcher, 5.0).await);
        fs::write(&file, "b").unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
        assert!(!changes_within(&mut watcher, 5.0).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_reported_only_when_it_is_stable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sekisho.yaml");
        fs::write(&file, "whole").unwrap();
        let mut watcher = Watcher::new(vec![file.clone()]);
        fs::write(&file, "").unwrap();
        assert!(!changes_within(&mut watcher, 1.5).await, "empty for a moment");
        fs::write(&file, "whole").unwrap();
        assert!(!changes_within(&mut watcher, 5.0).await, "and as it was again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rename_a_removal_and_a_return_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let (file, draft) = (folder.path().join("sekisho.yaml"), folder.path().join("draft"));
        fs::write(&file, "a").unwrap();
        let mut watcher = Watcher::new(vec![file.clone()]);
        fs::write(&draft, "b").unwrap();
        fs::rename(&draft, &file).unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
        fs::remove_file(&file).unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
        fs::write(&file, "b").unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
    }

    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn a_folder_behind_a_replaced_link_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        for (version, policy) in [("one", "package a"), ("two", "package b")] {
            fs::create_dir(folder.path().join(version)).unwrap();
            fs::write(folder.path().join(version).join("tools.rego"), policy).unwrap();
        }
        let link = folder.path().join("policies");
        std::os::unix::fs::symlink(folder.path().join("one"), &link).unwrap();
        let mut watcher = Watcher::new(vec![link.clone()]);
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(folder.path().join("two"), &link).unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
    }
}
