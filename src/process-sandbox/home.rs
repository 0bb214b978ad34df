//! The size of a kept home: bounded before a program begins, and while it runs.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Maximum size of a kept home. A browser with its cache has about 1 GiB and 20 000 files.
const BOUNDS: Bounds = Bounds { bytes: 8 << 30, entries: 500_000, depth: 128 };

/// The time between two measurements while a program runs.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time between two measurements is at least this many times as long as one takes.
const REST: u32 = 200;

/// Bytes of a block, in which the kernel counts the space of a file whatever its file system has.
const BLOCK: u64 = 512;

/// Why a program cannot use its kept home.
#[derive(Debug, Error)]
pub enum HomeError {
    #[error(
        "its kept home {} has more than {} GiB, {} files, or {} folders in each other: delete files there, have it write large ones into a \
         folder of `sandbox.folders`, or set `sandbox.home: discard`",
        .0.display(), BOUNDS.bytes >> 30, BOUNDS.entries, BOUNDS.depth
    )]
    TooLarge(PathBuf),
    #[error("{} in its kept home cannot be measured: {error}; give its owner the permission to read it, or delete it", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("its kept home {} was not measured: {reason}", path.display())]
    Unmeasured { path: PathBuf, reason: String },
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    bytes: u64,
    /// Files, folders and links.
    entries: usize,
    /// Folders in folders.
    depth: usize,
}

/// Measures a home before a program begins.
///
/// # Errors
/// When it is larger than a home may be, or cannot be measured.
pub(crate) async fn require_room(home: PathBuf) -> Result<(), HomeError> {
    measured(home, BOUNDS).await
}

async fn measured(home: PathBuf, bounds: Bounds) -> Result<(), HomeError> {
    let path = home.clone();
    let measured = tokio::task::spawn_blocking(move || measure(&home, bounds)).await;
    measured.unwrap_or_else(|error| Err(HomeError::Unmeasured { path, reason: error.to_string() }))
}

/// Measures a home again and again, and ends the program when it is too large. Ends with its owner.
#[derive(Debug)]
pub(crate) struct HomeWatch(JoinHandle<()>);

impl HomeWatch {
    pub(crate) fn start(home: PathBuf, program: OwnedFd) -> Self {
        Self(tokio::spawn(watch(home, program, BOUNDS, INTERVAL)))
    }
}

impl Drop for HomeWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn watch(home: PathBuf, program: OwnedFd, bounds: Bounds, interval: Duration) {
    let mut pause = interval;
    loop {
        tokio::time::sleep(pause).await;
        let begun = Instant::now();
        if let Err(error) = measured(home.clone(), bounds).await {
            tracing::warn!(reason = %error, "a program is ended because of its home");
            // It fails where the program has ended.
            _ = pidfd_send_signal(&program, Signal::KILL);
            return;
        }
        pause = interval.max(begun.elapsed().saturating_mul(REST));
    }
}

/// Adds up a folder with all that is in it, up to the bounds. The program may change it meanwhile: a folder that it replaces by a link is
/// counted as the link's target, and no more than counted.
fn measure(home: &Path, bounds: Bounds) -> Result<(), HomeError> {
    let too_large = || HomeError::TooLarge(home.to_owned());
    let mut size = Size::default();
    let mut left = vec![(home.to_owned(), 0)];
    while let Some((folder, depth)) = left.pop() {
        let unreadable = |error: io::Error| match error.raw_os_error() {
            // Folders with long names in each other.
            Some(libc::ENAMETOOLONG) => too_large(),
            _ => HomeError::Unreadable { path: folder.clone(), error },
        };
        let Some(entries) = still_there(fs::read_dir(&folder)).map_err(unreadable)? else { continue };
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            let Some(metadata) = still_there(entry.metadata()).map_err(unreadable)? else { continue };
            size.add(&metadata);
            if size.bytes > bounds.bytes || size.entries > bounds.entries {
                return Err(too_large());
            }
            if metadata.is_dir() {
                if depth >= bounds.depth {
                    return Err(too_large());
                }
                left.push((entry.path(), depth + 1));
            }
        }
    }
    Ok(())
}

/// `None` of something that was removed or replaced meanwhile.
fn still_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Default)]
struct Size {
    bytes: u64,
    entries: usize,
    /// Files with several names, by their device and number.
    linked: HashSet<(u64, u64)>,
}

impl Size {
    fn add(&mut self, metadata: &Metadata) {
        self.entries += 1;
        let has_names = metadata.nlink() > 1 && !metadata.is_dir();
        if !has_names || self.linked.insert((metadata.dev(), metadata.ino())) {
            self.bytes = self.bytes.saturating_add(metadata.blocks().saturating_mul(BLOCK));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::process::ExitStatusExt;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    const WIDE: Bounds = Bounds { bytes: 1 << 30, entries: 100, depth: 3 };

    fn home(files: &[(&str, usize)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, length) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, vec![1; *length]).unwrap();
        }
        folder
    }

    #[test]
    fn a_home_is_measured_by_bytes_files_and_depth() {
        let home = home(&[("a", 100_000), ("b/c/d", 100_000)]);
        for (bounds, is_within) in [
            (WIDE, true),
            (Bounds { bytes: 150_000, ..WIDE }, false),
            (Bounds { entries: 4, ..WIDE }, true),
            (Bounds { entries: 3, ..WIDE }, false),
            (Bounds { depth: 2, ..WIDE }, true),
            (Bounds { depth: 1, ..WIDE }, false),
        ] {
            let measured = measure(home.path(), bounds);
            assert_eq!(measured.is_ok(), is_within, "{bounds:?} {measured:?}");
            assert!(measured.is_ok() || matches!(&measured, Err(HomeError::TooLarge(path)) if path == home.path()));
        }
    }

    #[test]
    fn space_is_counted_once_and_only_where_it_is_used() {
        let home = home(&[("a", 1_000_000)]);
        let path = |name: &str| home.path().join(name);
        fs::hard_link(path("a"), path("b")).unwrap();
        symlink("/usr", path("link")).unwrap();
        fs::File::create(path("sparse")).unwrap().set_len(1 << 40).unwrap();
        measure(home.path(), Bounds { bytes: 1_500_000, entries: 4, depth: 0 }).unwrap();
        measure(&path("missing"), WIDE).unwrap();
    }

    #[test]
    fn a_path_that_is_too_long_is_no_way_to_hide_files() {
        let folder = tempfile::tempdir().unwrap();
        let name = "n".repeat(250);
        // Longer than a path may be: each is made in the one before.
        let mut at = rustix::fs::open(folder.path(), rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
        for _ in 0..20 {
            rustix::fs::mkdirat(&at, &*name, rustix::fs::Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &*name, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
        }
        let deep = Bounds { depth: 1_000, ..WIDE };
        assert!(matches!(measure(folder.path(), deep), Err(HomeError::TooLarge(_))));
    }

    #[tokio::test]
    async fn a_program_that_fills_its_home_is_ended() {
        let home = home(&[("a", 1)]);
        let mut program = tokio::process::Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(program.id().unwrap()).unwrap()).unwrap();
        let open = || pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let few = Bounds { entries: 1, ..WIDE };
        let watching = tokio::spawn(watch(home.path().to_owned(), open(), few, Duration::from_millis(1)));
        assert!(program.try_wait().unwrap().is_none());
        fs::write(home.path().join("b"), "b").unwrap();
        assert_eq!(program.wait().await.unwrap().signal(), Some(libc::SIGKILL));
        watching.await.unwrap();
    }
}
