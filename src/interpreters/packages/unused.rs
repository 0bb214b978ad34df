//! Removes unused wheels from the folder of wheels. All configurations of a user share the folder: a wheel that one of
//! them does not pin may be another's, and is removed by the age of its last use.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::requirements::{Pin, is_sum};

/// How names of folders begin into which wheels are downloaded.
pub(super) const DOWNLOAD: &str = ".tmp";

/// How names of folders end that are filled, or removed.
const UNFINISHED: &str = "new";

/// Wheels unused for this long are removed when packages are pinned: like compiled files.
const UNUSED_FOR: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// How often a use is recorded, at most: a gateway looks at its packages twice a second.
const RECORD_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// The files of an interrupted fetch are removed after this time: the pip of a process that was killed may still write
/// there.
const INTERRUPTED_FOR: Duration = Duration::from_secs(60 * 60);

/// Records that somebody uses an unpacked wheel.
pub(super) fn record_use(folder: &Path) {
    if is_older(folder, RECORD_EVERY) {
        // If it cannot be recorded, the wheel counts as unused some day, and another `sekisho tools lock` fetches it again.
        let _ = File::open(folder).and_then(|opened| opened.set_modified(SystemTime::now()));
    }
}

/// Removes wheels that nobody used for weeks, besides wheels with these pins, and the files of interrupted fetches;
/// returns the number of wheels. Whoever calls this has the folder's lock.
pub(super) fn remove_unused(wheels: &Path, pins: &[Pin]) -> usize {
    let mut removed = 0;
    for entry in fs::read_dir(wheels).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if pins.iter().any(|pin| pin.sha256 == name) {
            record_use(&path);
        } else if is_sum(&name) && is_older(&path, UNUSED_FOR) {
            removed += usize::from(remove_wheel(&path));
        } else if is_temporary(&path, &name) && is_older(&path, INTERRUPTED_FOR) {
            // A folder that remains is removed some other day.
            let _ = fs::remove_dir_all(&path);
        }
    }
    removed
}

/// Whether it is gone. Under its name there is all of it, or nothing.
fn remove_wheel(folder: &Path) -> bool {
    let unfinished = folder.with_extension(UNFINISHED);
    fs::rename(folder, &unfinished).and_then(|()| fs::remove_dir_all(&unfinished)).is_ok()
}

fn is_temporary(path: &Path, name: &str) -> bool {
    name.starts_with(DOWNLOAD) || path.extension().is_some_and(|kind| kind == UNFINISHED)
}

fn is_older(path: &Path, age: Duration) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|found| found.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|ago| ago > age))
}
