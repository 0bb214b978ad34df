//! The folder of compiled files. A compiled file is machine code: loading a file from anyone else would run their
//! code in our process. So a file is used only when it has the name we would give it, belongs to our user and is
//! closed to all others. [`CompiledFolder::verify`] also compares it with the hash recorded when it was written. Any
//! other file counts as missing and is compiled again.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sekisho_core::owner_only_files;
use sekisho_core::owner_only_files::{Unusable, sum_of};

/// A SHA-256 sum in hexadecimal.
const SUM_LENGTH: u64 = 64;
/// A folder that only our user can enter.
#[derive(Debug, Clone)]
pub struct CompiledFolder {
    path: PathBuf,
    /// The fingerprint of the engine that compiles and loads: wasmtime's version and its settings.
    fingerprint: String,
}

impl CompiledFolder {
    /// Creates the folder if it is missing.
    /// Errors: when it cannot be created, or when the existing one is open to other users.
    pub fn open(path: &Path, fingerprint: &str) -> io::Result<Self> {
        owner_only_files::make_folder(path)?;
        Ok(Self { path: path.to_owned(), fingerprint: fingerprint.to_owned() })
    }

    /// The path of a module's compiled form, by the SHA-256 sum of its inputs.
    pub fn path_of(&self, module_sum: &str) -> PathBuf {
        self.path.join(format!("{module_sum}-{}.cwasm", self.fingerprint))
    }

    /// Checks owner and mode, in microseconds: for the path that starts a worker. The folder is closed to others, so
    /// a file of ours in it was written by us. Records the use of the file for
    /// [`remove_unused`](Self::remove_unused).
    /// Errors: the reason why the file must be compiled again.
    pub fn find(&self, module_sum: &str) -> Result<PathBuf, Unusable> {
        let path = self.path_of(module_sum);
        owner_only_files::open(&path)?;
        // If the use cannot be recorded, the file counts as unused and is compiled again some day.
        let _ = owner_only_files::open(&sum_path(&path))?.set_modified(SystemTime::now());
        Ok(path)
    }

    /// Checks the content too, against the recorded hash.
    /// Errors: the reason why the file must be compiled again.
    pub fn verify(&self, module_sum: &str) -> Result<PathBuf, Unusable> {
        let path = self.find(module_sum)?;
        let unreadable = |error| Unusable::Unreadable(path.clone(), error);
        let mut noted = String::new();
        let noted_file = owner_only_files::open(&sum_path(&path))?;
        noted_file.take(SUM_LENGTH + 1).read_to_string(&mut noted).map_err(unreadable)?;
        let actual = sum_of(owner_only_files::open(&path)?).map_err(unreadable)?;
        if noted == actual { Ok(path) } else { Err(Unusable::Changed(path)) }
    }

    /// Stores a compiled module. Readers see either the old file or the new one; an interruption leaves no partial
    /// file.
    /// Errors: when the file cannot be written, as on a full disk; no part of it remains.
    pub fn store(&self, module_sum: &str, compiled: &[u8]) -> io::Result<PathBuf> {
        let path = self.path_of(module_sum);
        let sum = sum_of(compiled)?;
        // The sum first: a module without a sum is never used, and a sum without its module neither.
        owner_only_files::write(&sum_path(&path), |file| file.write_all(sum.as_bytes()))?;
        owner_only_files::write(&path, |file| file.write_all(compiled))?;
        File::open(&self.path)?.sync_all()?;
        Ok(path)
    }
}

impl CompiledFolder {
    /// Removes files of any version that were not used for this long and that no process runs; returns their number.
    /// Each is some hundred MB, and every version of the interpreter, the gateway or wasmtime has its own.
    /// Errors: I/O errors of reading the folder and removing files.
    pub fn remove_unused(&self, for_so_long: Duration) -> io::Result<usize> {
        let mut removed = 0;
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_none_or(|kind| kind != "cwasm") || !is_unused(&path, for_so_long) {
                continue;
            }
            fs::remove_file(sum_path(&path))?;
            fs::remove_file(path)?;
            removed += 1;
        }
        Ok(removed)
    }
}

/// A process that runs a compiled file holds a shared lock on it.
fn is_unused(path: &Path, for_so_long: Duration) -> bool {
    let looked_for = fs::metadata(sum_path(path)).and_then(|found| found.modified());
    let is_old = looked_for.is_ok_and(|at| at.elapsed().is_ok_and(|ago| ago > for_so_long));
    is_old && owner_only_files::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

fn sum_path(compiled: &Path) -> PathBuf {
    compiled.with_extension("sha256")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    const SUM: &str = "00ff";

    fn folder() -> (TempDir, CompiledFolder) {
        let place = TempDir::new().unwrap();
        let folder = CompiledFolder::open(&place.path().join("compiled"), "one").unwrap();
        (place, folder)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_stored_file_is_found_complete_and_closed_to_others() {
        let (_place, folder) = folder();
        assert!(matches!(folder.find(SUM), Err(Unusable::Missing(_))));
        let path = folder.store(SUM, b"code").unwrap();
        assert_eq!(folder.verify(SUM).unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"code");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&folder.path).unwrap().mode() & 0o777, 0o700);
        folder.store(SUM, b"newer").unwrap();
        assert_eq!(fs::read(folder.verify(SUM).unwrap()).unwrap(), b"newer");
        assert_eq!(fs::read_dir(&folder.path).unwrap().count(), 2, "no unfinished file remains");
    }

    #[test]
    fn another_fingerprint_finds_nothing() {
        let (_place, folder) = folder();
        folder.store(SUM, b"code").unwrap();
        let other = CompiledFolder::open(&folder.path, "two").unwrap();
        assert!(matches!(other.find(SUM), Err(Unusable::Missing(_))));
    }

    #[test]
    fn files_unused_for_long_are_removed() {
        const DAY: Duration = Duration::from_secs(86_400);
        let (_place, folder) = folder();
        let paths = ["old", "run", "looked-for"].map(|sum| folder.store(sum, b"code").unwrap());
        for path in &paths {
            File::open(sum_path(path)).unwrap().set_modified(SystemTime::now() - 2 * DAY).unwrap();
        }
        let running = File::open(&paths[1]).unwrap();
        running.try_lock_shared().unwrap();
        folder.find("looked-for").unwrap();
        assert_eq!(folder.remove_unused(DAY).unwrap(), 1);
        assert_eq!(paths.map(|path| path.exists() && sum_path(&path).exists()), [false, true, true]);
    }

    #[test]
    fn a_changed_file_is_detected() {
        let (_place, folder) = folder();
        let path = folder.store(SUM, b"code").unwrap();
        fs::write(&path, b"evil").unwrap();
        assert!(matches!(folder.verify(SUM), Err(Unusable::Changed(_))));
    }

    #[test]
    fn a_file_that_others_can_write_is_not_used() {
        for mode in [0o620, 0o602, 0o666] {
            let (_place, folder) = folder();
            let path = folder.store(SUM, b"code").unwrap();
            set_mode(&path, mode);
            assert!(matches!(folder.find(SUM), Err(Unusable::NotOurs(_))), "{mode:o}");
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let (place, folder) = folder();
        let path = folder.store(SUM, b"code").unwrap();
        let elsewhere = place.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(matches!(folder.find(SUM), Err(Unusable::NotOurs(_))));
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let (_place, folder) = folder();
        set_mode(&folder.path, 0o775);
        let refused = CompiledFolder::open(&folder.path, "one").unwrap_err();
        assert!(refused.to_string().contains("chmod 700"), "{refused}");
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let (_place, folder) = folder();
        fs::create_dir(folder.path_of(SUM)).unwrap();
        folder.store(SUM, b"code").unwrap_err();
        assert!(
            fs::read_dir(&folder.path).unwrap().all(|entry| !entry.unwrap().path().to_string_lossy().ends_with(".new"))
        );
    }
}
