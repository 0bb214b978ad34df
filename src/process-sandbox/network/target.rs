//! What a waiting call refers to in the program: its descriptors and its memory, of which the gateway takes copies.

use std::fs::{self, File};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::notification::Call;

/// `PIDFD_THREAD`, since Linux 6.9: a descriptor for a thread that is not the first of its process.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.unsigned_abs());

/// A descriptor of this process for what the program's descriptor `fd` refers to: the same socket, with the same state.
///
/// # Errors
/// `BADF` when the program has none of this number.
pub(super) fn duplicate(call: &Call, fd: RawFd) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    let process = open_process(call.thread)?;
    pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()).map_err(own_limit)
}

/// An error of this process is not one of the program, which would look for its own open files.
fn own_limit(error: Errno) -> Errno {
    if matches!(error, Errno::MFILE | Errno::NFILE) { Errno::AGAIN } else { error }
}

fn open_process(thread: i32) -> Result<OwnedFd, Errno> {
    match pidfd_open(number(thread)?, THREAD) {
        Err(Errno::INVAL) => {
            let process = process_of(thread).map_err(|_| Errno::SRCH)?;
            pidfd_open(number(process)?, PidfdFlags::empty())
        }
        opened => opened.map_err(own_limit),
    }
}

fn number(process: i32) -> Result<Pid, Errno> {
    Pid::from_raw(process).ok_or(Errno::SRCH)
}

/// The process of a thread, whose descriptors the thread shares.
fn process_of(thread: i32) -> io::Result<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    process.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A copy of the program's memory.
///
/// # Errors
/// `FAULT` when the program has no such memory.
pub(super) fn memory(call: &Call, at: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut copy = vec![0; length];
    let mut read = || File::open(format!("/proc/{}/mem", call.thread))?.read_exact_at(&mut copy, at);
    read().map_err(|_| Errno::FAULT)?;
    Ok(copy)
}

/// Whether the program's descriptor is closed when it executes another program.
pub(super) fn closes_on_exec(call: &Call, fd: RawFd) -> Result<bool, Errno> {
    let information = fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", call.thread)).map_err(|_| Errno::BADF)?;
    let flags = |line: &str| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok();
    let flags = information.lines().find_map(flags);
    Ok(flags.is_some_and(|flags| flags & libc::O_CLOEXEC.unsigned_abs() != 0))
}

/// The program's descriptors for the socket with this number of its inode.
pub(super) fn descriptors_of(call: &Call, socket: u64) -> Vec<RawFd> {
    let name = format!("socket:[{socket}]");
    let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", call.thread)) else { return Vec::new() };
    let refers = |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == &*name);
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(Result::ok).filter(refers).filter_map(number).collect()
}
