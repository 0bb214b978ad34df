//! Calls with the path of a file, which the gateway records for a program that is observed. The program executes each of them
//! itself, and its namespaces and Landlock decide about it: a path that changes after it was read changes nothing.

use std::fs;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::notification::Call;
use super::target;

/// The longest path with its end (`PATH_MAX`).
const MAX_PATH: usize = 4_096;

/// Flags of `open` with which a file changes.
const WRITING: i32 = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;

/// A call with a path.
struct FileCall {
    number: i64,
    /// The argument with the path.
    path: usize,
    /// The argument with the descriptor of the folder in which the path begins.
    folder: Option<usize>,
    use_of: UseOf,
}

/// How a call uses its file.
enum UseOf {
    Read,
    Write,
    /// By the flags of `open` in this argument.
    Flags(usize),
}

const fn below(number: i64, use_of: UseOf) -> FileCall {
    FileCall { number, path: 1, folder: Some(0), use_of }
}

/// Not `execve`: the helper becomes the program by it, before anybody answers.
const CALLS: [FileCall; 10] = [
    below(libc::SYS_openat, UseOf::Flags(2)),
    below(libc::SYS_openat2, UseOf::Read),
    below(libc::SYS_newfstatat, UseOf::Read),
    below(libc::SYS_statx, UseOf::Read),
    below(libc::SYS_faccessat, UseOf::Read),
    below(libc::SYS_faccessat2, UseOf::Read),
    below(libc::SYS_readlinkat, UseOf::Read),
    below(libc::SYS_mkdirat, UseOf::Write),
    below(libc::SYS_unlinkat, UseOf::Write),
    below(libc::SYS_fchmodat, UseOf::Write),
];

#[cfg(target_arch = "x86_64")]
const fn plain(number: i64, use_of: UseOf) -> FileCall {
    FileCall { number, path: 0, folder: None, use_of }
}

/// Of the first systems, in every later one of this architecture.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: [FileCall; 10] = [
    plain(libc::SYS_open, UseOf::Flags(1)),
    plain(libc::SYS_creat, UseOf::Write),
    plain(libc::SYS_stat, UseOf::Read),
    plain(libc::SYS_lstat, UseOf::Read),
    plain(libc::SYS_access, UseOf::Read),
    plain(libc::SYS_readlink, UseOf::Read),
    plain(libc::SYS_mkdir, UseOf::Write),
    plain(libc::SYS_rmdir, UseOf::Write),
    plain(libc::SYS_unlink, UseOf::Write),
    plain(libc::SYS_chmod, UseOf::Write),
];

#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: [FileCall; 0] = [];

fn calls() -> impl Iterator<Item = &'static FileCall> {
    CALLS.iter().chain(&OLD_CALLS)
}

/// The numbers of the calls.
pub(super) fn numbers() -> impl Iterator<Item = i64> {
    calls().map(|call| call.number)
}

/// Whether a call is one of them.
pub(super) fn is_one(call: &Call) -> bool {
    numbers().any(|number| number == call.number)
}

/// The absolute path of a call, and whether the file is to change. The caller makes sure that the call still waits.
/// Errors: when the program has no such memory or descriptor.
pub(super) fn used(call: &Call) -> Result<(PathBuf, bool), Errno> {
    let found = calls().find(|known| known.number == call.number).ok_or(Errno::NOSYS)?;
    let path = PathBuf::from(target::text(call, call.args[found.path], MAX_PATH)?);
    let writes = match found.use_of {
        UseOf::Read => false,
        UseOf::Write => true,
        UseOf::Flags(index) => call.int(index) & WRITING != 0,
    };
    if path.as_os_str().is_empty() {
        // The call is about the descriptor.
        return Err(Errno::NOENT);
    }
    let folder = if path.is_absolute() { PathBuf::new() } else { folder_of(call, found.folder)? };
    Ok((normal(&folder.join(path)), writes))
}

fn folder_of(call: &Call, argument: Option<usize>) -> Result<PathBuf, Errno> {
    let descriptor = argument.map(|index| call.int(index)).filter(|descriptor| *descriptor != libc::AT_FDCWD);
    let link = match descriptor {
        None => format!("/proc/{}/cwd", call.thread),
        Some(descriptor) => format!("/proc/{}/fd/{descriptor}", call.thread),
    };
    fs::read_link(link).map_err(|_| Errno::BADF)
}

/// Without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = normal.pop(),
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_recorded_without_steps_back() {
        for (path, expected) in [("/a/./b/../c", "/a/c"), ("/../etc", "/etc"), ("/a//b/", "/a/b")] {
            assert_eq!(normal(Path::new(path)), Path::new(expected));
        }
    }
}
