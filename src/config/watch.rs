//! Detects changes of the configuration or policies on disk.
//!
//! It compares contents once a second instead of using kernel notifications: this also detects editors that rename,
//! and mounted config maps, which replace a symbolic link.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum depth of folders; bounds a link to a parent folder.
const MAX_DEPTH: usize = 8;

/// Maximum readings of files that keep changing.
const MAX_READINGS: usize = 10;

type Fingerprint = [u8; 32];

/// Watches files and whole folders: files that are read as one, and others.
#[derive(Debug)]
pub struct Watcher {
    read: Vec<PathBuf>,
    others: Vec<PathBuf>,
    /// The contents last reported, or the contents at the start.
    known: FileState,
    /// The contents at the last check.
    seen: FileState,
}

/// The state of the files at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileState {
    read: Fingerprint,
    others: Fingerprint,
    /// Size and time of the files that are read: a file that was written anew with the same content has not come to rest.
    times: Fingerprint,
}

impl Watcher {
    /// Records the current contents. `read`: files that are read together, which must be as they are for one interval before a change
    /// counts. A path may be missing, appear and disappear.
    pub fn new(read: Vec<PathBuf>, others: Vec<PathBuf>) -> Self {
        let now = FileState::at(&read, &others);
        Self { read, others, known: now.clone(), seen: now }
    }

    /// Whether it watches these.
    pub fn watches(&self, read: &[PathBuf], others: &[PathBuf]) -> bool {
        self.read == read && self.others == others
    }

    /// Returns once the contents differ from those last reported and have been stable for one interval, so that a
    /// partially written file is not reported. Cancel safe.
    pub async fn changed(&mut self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let Some(now) = self.state().await else { continue };
            let rests = now.read == self.seen.read && now.times == self.seen.times;
            let others_rest = now.others == self.seen.others;
            self.seen = now;
            let (seen, known) = (&self.seen, &self.known);
            if rests && (seen.read != known.read || (others_rest && seen.others != known.others)) {
                self.known = self.seen.clone();
                return;
            }
        }
    }

    /// Waits until two readings of the files, an interval apart, agree. This state then counts as reported. Returns
    /// `false` where they do not come to rest.
    pub async fn settle(&mut self) -> bool {
        for _ in 0..MAX_READINGS {
            let Some(first) = self.state().await else { continue };
            tokio::time::sleep(INTERVAL).await;
            let Some(now) = self.state().await else { continue };
            let rests = now.read == first.read && now.times == first.times;
            self.seen = now;
            if rests {
                self.known = self.seen.clone();
                return true;
            }
        }
        false
    }

    /// Whether the files that are read are still as they were last read.
    pub async fn is_as_seen(&self) -> bool {
        self.state().await.is_some_and(|now| now.read == self.seen.read && now.times == self.seen.times)
    }

    async fn state(&self) -> Option<FileState> {
        let (read, others) = (self.read.clone(), self.others.clone());
        tokio::task::spawn_blocking(move || FileState::at(&read, &others)).await.ok()
    }
}

impl FileState {
    fn at(read: &[PathBuf], others: &[PathBuf]) -> Self {
        Self { read: fingerprint(read), others: fingerprint(others), times: times(read) }
    }
}

fn fingerprint(paths: &[PathBuf]) -> Fingerprint {
    let mut hasher = Sha256::new();
    for path in paths {
        add(&mut hasher, path, MAX_DEPTH);
    }
    hasher.finalize().into()
}

/// Only of files: for a folder, the content of its files counts.
fn times(paths: &[PathBuf]) -> Fingerprint {
    let mut hasher = Sha256::new();
    for path in paths {
        let file = fs::metadata(path).ok().filter(fs::Metadata::is_file);
        let modified = file.as_ref().and_then(|file| file.modified().ok());
        let since = modified.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok()).unwrap_or_default();
        add_part(&mut hasher, &file.map_or(0, |file| file.len()).to_le_bytes());
        add_part(&mut hasher, &since.as_nanos().to_le_bytes());
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
        let mut watcher = Watcher::new(vec![file.clone()], Vec::new());
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
        let mut watcher = Watcher::new(vec![file.clone()], Vec::new());
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
        let mut watcher = Watcher::new(vec![file.clone()], Vec::new());
        fs::write(&draft, "b").unwrap();
        fs::rename(&draft, &file).unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
        fs::remove_file(&file).unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
        fs::write(&file, "b").unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_written_again_and_again_is_reported_once_it_rests() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sekisho.yaml");
        fs::write(&file, "old").unwrap();
        let mut watcher = Watcher::new(vec![file.clone()], Vec::new());
        let set_time = |seconds: u64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::options().append(true).open(&file).unwrap().set_modified(time).unwrap();
        };
        fs::write(&file, "half").unwrap();
        for second in 0..5 {
            // The same half at each reading, and written in between.
            set_time(second);
            assert!(!changes_within(&mut watcher, 1.5).await, "{second}");
        }
        assert!(changes_within(&mut watcher, 5.0).await);
        set_time(9);
        assert!(!changes_within(&mut watcher, 5.0).await, "another time alone is no change");
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_change_for_ever_do_not_hold_back_those_that_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (file, busy) = (folder.path().join("sekisho.yaml"), folder.path().join("busy"));
        let mut watcher = Watcher::new(vec![file.clone()], vec![busy.clone()]);
        fs::write(&file, "new").unwrap();
        let mut changes = 0;
        for second in 0..5 {
            fs::write(&busy, second.to_string()).unwrap();
            changes += usize::from(changes_within(&mut watcher, 1.5).await);
        }
        assert_eq!(changes, 1);
        fs::write(&busy, "at last").unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
    }

    #[tokio::test(start_paused = true)]
    async fn files_settle_once_two_readings_agree_and_are_read_again_after_they_were_applied() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sekisho.yaml");
        fs::write(&file, "old").unwrap();
        let mut watcher = Watcher::new(vec![file.clone()], Vec::new());
        fs::write(&file, "new").unwrap();
        assert!(watcher.settle().await && watcher.is_as_seen().await);
        assert!(!changes_within(&mut watcher, 5.0).await, "it was reported");
        fs::write(&file, "").unwrap();
        assert!(!watcher.is_as_seen().await, "cut off while it was read");
        let busy = file.clone();
        let writing = tokio::spawn(async move {
            for second in 0_u32.. {
                fs::write(&busy, second.to_string()).unwrap();
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
        });
        assert!(!watcher.settle().await, "it does not come to rest");
        writing.abort();
        assert!(writing.await.unwrap_err().is_cancelled());
        assert!(watcher.settle().await);
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
        let mut watcher = Watcher::new(Vec::new(), vec![link.clone()]);
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(folder.path().join("two"), &link).unwrap();
        assert!(changes_within(&mut watcher, 5.0).await);
    }
}
