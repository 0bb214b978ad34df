//! The size of a kept home: bounded before a program begins, and while it runs.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Maximum size of a kept home. A browser with its cache has about 1 GiB and 20 000 files.
const BOUNDS: Bounds = Bounds { bytes: 8 << 30, entries: 500_000, depth: 128 };

/// The time between two measurements while a program runs.
const INTERVAL: Duration = Duration::from_secs(60);

/// The time between two measurements is at least this many times as long as one takes.
const REST: u32 = 200;

/// Maximum measurements at once: each has a descriptor for each of the folders in each other.
const MAX_MEASUREMENTS: usize = 2;

static MEASURING: Semaphore = Semaphore::const_new(MAX_MEASUREMENTS);

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
/// Errors: when it is larger than a home may be, or cannot be measured.
pub(crate) async fn require_room(home: PathBuf) -> Result<(), HomeError> {
    measured(home, BOUNDS).await
}

async fn measured(home: PathBuf, bounds: Bounds) -> Result<(), HomeError> {
    let path = home.clone();
    let turn = MEASURING.acquire().await;
    let measure = move || {
        // Kept to the end, also of a measurement that nobody waits for.
        let _turn = turn;
        measure(&home, bounds)
    };
    let measured = tokio::task::spawn_blocking(measure).await;
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

/// Adds up a folder with all that is in it, up to the bounds. The program may change it meanwhile: no link is followed that it puts in the
/// place of a folder.
fn measure(home: &Path, bounds: Bounds) -> Result<(), HomeError> {
    let too_large = || HomeError::TooLarge(home.to_owned());
    let mut size = Size::default();
    // Those on the way to the one that is read. A program could make so many folders with long paths that a list of all that are left has
    // gibibytes.
    let mut open: Vec<_> = OpenFolder::of(home)?.into_iter().collect();
    while let Some(folder) = open.last_mut() {
        let Some(entry) = folder.entries.next() else {
            open.pop();
            continue;
        };
        let entry = entry.map_err(|error| folder.unreadable(error))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Some(stat) = folder.stat(name)? else { continue };
        size.add(&stat);
        if size.bytes > bounds.bytes || size.entries > bounds.entries {
            return Err(too_large());
        }
        if is_folder(&stat) {
            let below = folder.below(name)?;
            if open.len() > bounds.depth {
                return Err(too_large());
            }
            open.extend(below);
        }
    }
    Ok(())
}

/// A folder that is read, with its path for errors.
struct OpenFolder {
    path: PathBuf,
    entries: Dir,
}

impl OpenFolder {
    /// `None` where there is no such folder, here and below.
    fn of(path: &Path) -> Result<Option<Self>, HomeError> {
        let opened = openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Self::new(path.to_owned(), opened)
    }

    fn below(&self, name: &CStr) -> Result<Option<Self>, HomeError> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = self.entries.fd().and_then(|folder| openat(folder, name, flags, Mode::empty()));
        Self::new(self.path.join(OsStr::from_bytes(name.to_bytes())), opened)
    }

    fn new(path: PathBuf, opened: Result<OwnedFd, Errno>) -> Result<Option<Self>, HomeError> {
        match still_there(opened.and_then(Dir::new)) {
            Ok(entries) => Ok(entries.map(|entries| Self { path, entries })),
            Err(error) => Err(HomeError::Unreadable { path, error: error.into() }),
        }
    }

    fn stat(&self, name: &CStr) -> Result<Option<Stat>, HomeError> {
        let stat = self.entries.fd().and_then(|folder| statat(folder, name, AtFlags::SYMLINK_NOFOLLOW));
        still_there(stat).map_err(|error| self.unreadable(error))
    }

    fn unreadable(&self, error: Errno) -> HomeError {
        HomeError::Unreadable { path: self.path.clone(), error: error.into() }
    }
}

/// `None` of something that was removed or replaced meanwhile.
fn still_there<T>(read: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
}

#[derive(Default)]
struct Size {
    bytes: u64,
    entries: usize,
    /// Files with several names, by their device and number.
    linked: HashSet<(u64, u64)>,
}

impl Size {
    fn add(&mut self, stat: &Stat) {
        self.entries += 1;
        let has_names = stat.st_nlink > 1 && !is_folder(stat);
        if !has_names || self.linked.insert((stat.st_dev, stat.st_ino)) {
            let blocks = u64::try_from(stat.st_blocks).unwrap_or_default();
            self.bytes = self.bytes.saturating_add(blocks.saturating_mul(BLOCK));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
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
        let deep = Bounds { depth: 1_000, entries: 20, ..WIDE };
        measure(folder.path(), deep).unwrap();
        assert!(matches!(measure(folder.path(), Bounds { entries: 19, ..deep }), Err(HomeError::TooLarge(_))));
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
