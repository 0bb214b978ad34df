//! The points of mounts, below the new root.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, open, openat};
use rustix::io::Errno;

const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a point; makes it, and the folders on the way to it, where they are missing.
///
/// The program's own home may be on the way, with links that it made before. None is followed: it could lead to the machine's files.
pub(super) fn make(at: &Path, is_folder: bool) -> io::Result<OwnedFd> {
    let mut opened = open("/", HANDLE, Mode::empty())?;
    let mut parts = at.components().filter(|part| matches!(part, Component::Normal(_))).peekable();
    while let Some(part) = parts.next() {
        opened = enter(&opened, part.as_os_str(), is_folder || parts.peek().is_some())?;
    }
    Ok(opened)
}

fn enter(folder: &OwnedFd, name: &OsStr, is_folder: bool) -> io::Result<OwnedFd> {
    let opened = match openat(folder, name, HANDLE, Mode::empty()) {
        Err(Errno::NOENT) if is_folder => {
            mkdirat(folder, name, Mode::from_raw_mode(0o755))?;
            openat(folder, name, HANDLE, Mode::empty())?
        }
        Err(Errno::NOENT) => {
            let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            drop(openat(folder, name, new, Mode::from_raw_mode(0o644))?);
            openat(folder, name, HANDLE, Mode::empty())?
        }
        opened => opened?,
    };
    match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
        FileType::Symlink => Err(Errno::LOOP.into()),
        _ => Ok(opened),
    }
}
