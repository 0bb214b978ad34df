//! The files with images, in a folder that only our user can access, beside the compiled interpreter: whoever can write
//! there can replace that. Each begins with the SHA-256 sum of the rest.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::sessions::{Packer, Unpacker};
use sekisho_core::bounded::BoundedMap;
use sekisho_core::owner_only_files;
use sekisho_guest_protocol::ModuleImageId;
use sekisho_interpreters::prepare::default_folder;

/// The folder beside the interpreters.
const FOLDER: &str = "module_images";

/// Maximum bytes of a packed image: its pages take less.
const MAX_FILE_BYTES: usize = 64 << 20;

const SUM_BYTES: usize = 32;

/// Images that no file was read with, and no function called with, for this long are removed.
const UNUSED_FOR: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// How often those are looked for, at most: when an image is written.
const TIDY_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// Maximum images that are known without a look at the disk, and maximum that count as used, 32 bytes each. Then all are
/// forgotten: calls execute the module until its file is read again, and an image that nobody calls meanwhile counts as unused.
const MAX_KNOWN: usize = 100_000;

/// The images that are kept.
#[derive(Debug)]
pub(crate) struct ModuleImages {
    /// `None` where there is no cache folder.
    folder: Option<PathBuf>,
    known: Mutex<BoundedMap<ModuleImageId, ()>>,
    /// The images that were used since old files were removed.
    used: Mutex<BoundedMap<ModuleImageId, ()>>,
    /// When old files were removed.
    tidied: Mutex<Option<Instant>>,
}

impl Default for ModuleImages {
    fn default() -> Self {
        Self::in_folder(default_folder().map(|folder| folder.join(FOLDER)))
    }
}

impl ModuleImages {
    fn in_folder(folder: Option<PathBuf>) -> Self {
        let none = || Mutex::new(BoundedMap::new(MAX_KNOWN));
        Self { folder, known: none(), used: none(), tidied: Mutex::default() }
    }

    /// Whether one is known that can be read, which counts as used then. Takes no file.
    pub(crate) fn has(&self, id: ModuleImageId) -> bool {
        let is_known = self.known.lock().contains(&id);
        if is_known {
            self.used.lock().insert_or_clear(id, (), |()| false);
        }
        is_known
    }

    /// Whether there is one, here or on disk.
    pub(super) async fn find(&self, id: ModuleImageId) -> bool {
        if self.has(id) {
            return true;
        }
        let Some(path) = self.path_of(id) else { return false };
        let is_there = move || {
            let file = owner_only_files::open(&path).ok()?;
            // If the use cannot be recorded, the file counts as unused some day.
            let _ = file.set_modified(SystemTime::now());
            Some(())
        };
        let is_there = tokio::task::spawn_blocking(is_there).await.ok().flatten().is_some();
        if is_there {
            self.know(id);
        }
        is_there
    }

    /// Keeps an image. Where it cannot be written, it is as if there was none.
    pub(super) async fn keep(&self, id: ModuleImageId, parts: Vec<Vec<u8>>) {
        let Some((folder, path)) = self.folder.clone().zip(self.path_of(id)) else { return };
        let used = self.used_if_untidy();
        let writing = move || {
            owner_only_files::make_folder(&folder)?;
            if let Some(used) = used {
                remove_unused(&folder, &used)?;
            }
            write(&path, &parts)
        };
        match tokio::task::spawn_blocking(writing).await.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            Ok(()) => self.know(id),
            Err(error) => tracing::warn!(%error, "the image of a module cannot be written; its calls execute it"),
        }
    }

    /// The parts of an image. A damaged image is removed, and the result is `None`.
    pub(super) async fn read(&self, id: ModuleImageId) -> Option<Vec<Vec<u8>>> {
        let path = self.path_of(id)?;
        let reading = move || {
            let parts = read(&path);
            if parts.is_none() {
                // Whoever reads the module next writes it again.
                let _ = fs::remove_file(&path);
            }
            parts
        };
        let parts = tokio::task::spawn_blocking(reading).await.ok().flatten();
        if parts.is_none() {
            self.known.lock().remove(&id);
        }
        parts
    }

    /// The names of the images that were used, when it is time to remove the others.
    fn used_if_untidy(&self) -> Option<HashSet<String>> {
        let mut tidied = self.tidied.lock();
        if tidied.is_some_and(|at| at.elapsed() < TIDY_EVERY) {
            return None;
        }
        *tidied = Some(Instant::now());
        let used = self.used.lock().take();
        Some(used.into_keys().map(name_of).collect())
    }

    fn know(&self, id: ModuleImageId) {
        self.known.lock().insert_or_clear(id, (), |()| false);
    }

    fn path_of(&self, id: ModuleImageId) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(name_of(id)))
    }
}

fn name_of(ModuleImageId(id): ModuleImageId) -> String {
    hex::encode(id)
}

/// Not synchronised with the disk: a file that a crash cut off has another sum.
fn write(path: &Path, parts: &[Vec<u8>]) -> io::Result<()> {
    let mut packer = Packer::new(MAX_FILE_BYTES);
    parts.iter().try_for_each(|part| packer.add(part)).map_err(io::Error::other)?;
    let packed = packer.finish().map_err(io::Error::other)?;
    let unfinished = path.with_extension(format!("{}.new", uuid::Uuid::new_v4()));
    let mut file = owner_only_files::create(&unfinished)?;
    let written = file.write_all(&Sha256::digest(&packed)[..]).and_then(|()| file.write_all(&packed));
    let written = written.and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // It is removed with the unused ones, if this fails too.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn read(path: &Path) -> Option<Vec<Vec<u8>>> {
    let file = owner_only_files::open(path).ok()?;
    let mut content = Vec::new();
    file.take((MAX_FILE_BYTES + SUM_BYTES) as u64 + 1).read_to_end(&mut content).ok()?;
    let (sum, packed) = content.split_at_checked(SUM_BYTES)?;
    if *sum != Sha256::digest(packed)[..] {
        return None;
    }
    let (mut unpacker, mut parts) = (Unpacker::new(packed.to_vec()), Vec::new());
    while let Some(part) = unpacker.next_part().ok()? {
        parts.push(part);
    }
    Some(parts)
}

fn remove_unused(folder: &Path, used: &HashSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| used.contains(name)) {
            // For other processes. If it cannot be recorded, the file counts as unused some day.
            let _ = owner_only_files::open(&entry.path()).map(|file| file.set_modified(SystemTime::now()));
            continue;
        }
        // Another process may remove it, too.
        let modified = entry.metadata().and_then(|found| found.modified());
        if modified.is_ok_and(|at| at.elapsed().is_ok_and(|ago| ago > UNUSED_FOR)) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ID: ModuleImageId = ModuleImageId([7; SUM_BYTES]);

    fn images(place: &tempfile::TempDir) -> ModuleImages {
        ModuleImages::in_folder(Some(place.path().join(FOLDER)))
    }

    #[tokio::test]
    async fn an_image_is_found_again_also_by_another_process() {
        let place = tempfile::tempdir().unwrap();
        let parts = vec![vec![1; 5_000], vec![2], vec![3; 9]];
        let first = images(&place);
        assert!(!first.find(ID).await && !first.has(ID) && first.read(ID).await.is_none());
        first.keep(ID, parts.clone()).await;
        assert!(first.has(ID));
        let other = images(&place);
        assert!(!other.has(ID) && other.find(ID).await && other.has(ID));
        assert_eq!(other.read(ID).await, Some(parts));
        let nowhere = ModuleImages::in_folder(None);
        nowhere.keep(ID, Vec::new()).await;
        assert!(!nowhere.find(ID).await && nowhere.read(ID).await.is_none());
    }

    #[tokio::test]
    async fn what_is_damaged_or_open_to_others_is_not_read() {
        let place = tempfile::tempdir().unwrap();
        let path = images(&place).path_of(ID).unwrap();
        let damage: [fn(&Path); 4] = [
            |path| fs::write(path, b"short").unwrap(),
            |path| {
                let mut content = fs::read(path).unwrap();
                content[SUM_BYTES + 3] ^= 1;
                fs::write(path, content).unwrap();
            },
            |path| fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap(),
            |path| fs::remove_file(path).unwrap(),
        ];
        for damage in damage {
            let images = images(&place);
            images.keep(ID, vec![vec![1; 5_000]]).await;
            assert!(images.read(ID).await.is_some());
            damage(&path);
            assert!(images.read(ID).await.is_none() && !images.has(ID) && !path.exists());
        }
    }

    #[tokio::test]
    async fn images_that_nobody_used_for_long_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let old = ModuleImageId([1; SUM_BYTES]);
        let first = images(&place);
        first.keep(old, vec![vec![1]]).await;
        let path = first.path_of(old).unwrap();
        fs::File::open(&path).unwrap().set_modified(SystemTime::now() - UNUSED_FOR * 2).unwrap();
        images(&place).keep(ID, vec![vec![1]]).await;
        assert!(!path.exists() && first.path_of(ID).unwrap().exists());
    }

    #[tokio::test(start_paused = true)]
    async fn images_of_functions_that_are_called_are_kept_and_those_of_earlier_files_are_not() {
        let place = tempfile::tempdir().unwrap();
        let images = images(&place);
        let [called, earlier] = [1, 2].map(|byte| ModuleImageId([byte; SUM_BYTES]));
        for id in [called, earlier] {
            images.keep(id, vec![vec![1]]).await;
            let file = fs::File::open(images.path_of(id).unwrap()).unwrap();
            file.set_modified(SystemTime::now() - UNUSED_FOR * 2).unwrap();
        }
        assert!(images.has(called));
        images.keep(ID, vec![vec![1]]).await;
        assert!(images.path_of(earlier).unwrap().exists(), "not each time");
        tokio::time::advance(TIDY_EVERY).await;
        images.keep(ID, vec![vec![1]]).await;
        assert!(!images.path_of(earlier).unwrap().exists());
        let age =
            fs::metadata(images.path_of(called).unwrap()).unwrap().modified().unwrap().elapsed().unwrap_or_default();
        assert!(age < UNUSED_FOR, "{age:?}");
    }
}
