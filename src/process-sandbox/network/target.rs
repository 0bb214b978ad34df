//! Descriptors and memory of the program that a waiting call refers to. The gateway takes copies of them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::notification::Call;
use super::socket_options;

/// `PIDFD_THREAD`, since Linux 6.9: a descriptor for a thread that is not the first of its process.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.unsigned_abs());

/// Bytes of the registrations with one `epoll` that are read: some 10 000.
const MAX_REGISTRATIONS_TEXT: u64 = 1 << 20;

/// The smallest page of memory.
const PAGE: usize = 4_096;
const PAGE_BYTES: u64 = 4_096;

/// Registrations of one socket that move to the socket in its place.
const MAX_WATCHES: usize = 1_024;

/// A socket that the program may have, too. The last one who closes it waits where it has `SO_LINGER`: as long as the program and
/// its peer like, also after the program has ended.
#[derive(Debug)]
pub(super) struct SharedSocket(OwnedFd);

impl SharedSocket {
    pub(super) const fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl Drop for SharedSocket {
    fn drop(&mut self) {
        socket_options::shorten_linger(self.as_fd());
    }
}

impl AsFd for SharedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A descriptor of this process for the same file as the program's descriptor `fd`: a socket with all its state.
/// Errors: `BADF` when the program has none of this number.
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
/// Errors: `FAULT` when the program has no such memory.
pub(super) fn memory(call: &Call, at: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut copy = vec![0; length];
    let mut read = || File::open(format!("/proc/{}/mem", call.thread))?.read_exact_at(&mut copy, at);
    read().map_err(|_| Errno::FAULT)?;
    Ok(copy)
}

/// A text that ends with a zero byte, without it. Memory is read up to the end of a page: the next one may not exist.
/// Errors: `FAULT` when the program has no such memory, `NAMETOOLONG` when the text does not end within `max` bytes.
pub(super) fn text(call: &Call, at: u64, max: usize) -> Result<OsString, Errno> {
    let mut text = Vec::new();
    while text.len() < max {
        let next = at.checked_add(text.len().try_into().unwrap_or(u64::MAX)).ok_or(Errno::FAULT)?;
        let rest_of_page = PAGE - usize::try_from(next % PAGE_BYTES).unwrap_or(0);
        let part = memory(call, next, rest_of_page.min(max - text.len()))?;
        let end = part.iter().position(|byte| *byte == 0);
        text.extend_from_slice(part.get(..end.unwrap_or(part.len())).unwrap_or_default());
        if end.is_some() {
            return Ok(OsString::from_vec(text));
        }
    }
    Err(Errno::NAMETOOLONG)
}

/// Whether the program's descriptor is closed when it executes another program.
pub(super) fn closes_on_exec(call: &Call, fd: RawFd) -> Result<bool, Errno> {
    let information = fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", call.thread)).map_err(|_| Errno::BADF)?;
    let flags = |line: &str| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok();
    let flags = information.lines().find_map(flags);
    Ok(flags.is_some_and(|flags| flags & libc::O_CLOEXEC.unsigned_abs() != 0))
}

/// The uses of a socket in the program's process.
#[derive(Debug, Default)]
pub(super) struct Uses {
    pub(super) descriptors: Vec<RawFd>,
    pub(super) watches: Vec<Watch>,
}

/// A registration of the socket with `epoll`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Watch {
    /// The descriptor of `epoll`.
    pub(super) epoll: RawFd,
    /// The socket's descriptor when it was registered: part of the key by which the program changes it.
    pub(super) descriptor: RawFd,
    pub(super) events: u32,
    pub(super) data: u64,
}

/// Finds the uses of the socket with this inode.
pub(super) fn uses_of(call: &Call, inode: u64) -> Uses {
    let socket = format!("socket:[{inode}]");
    let mut uses = Uses::default();
    let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", call.thread)) else { return uses };
    for entry in entries.filter_map(Result::ok) {
        let Some(descriptor) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(link) = fs::read_link(entry.path()) else { continue };
        if link.as_os_str() == &*socket {
            uses.descriptors.push(descriptor);
        } else if link.as_os_str() == "anon_inode:[eventpoll]" {
            let path = format!("/proc/{}/fdinfo/{descriptor}", call.thread);
            let information = start_of(&path);
            uses.watches.extend(information.lines().filter_map(|line| watch(descriptor, line, inode)));
            uses.watches.truncate(MAX_WATCHES);
        }
    }
    uses
}

/// The start of a file. A program can have millions of registrations.
fn start_of(path: &str) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_REGISTRATIONS_TEXT).read_to_string(&mut text));
    if read.is_err() {
        text.clear();
    }
    text
}

/// Reads a line such as `tfd: 5 events: 19 data: 5  pos:0 ino:61ef sdev:1`.
fn watch(epoll: RawFd, line: &str, inode: u64) -> Option<Watch> {
    let mut words = line.split_whitespace();
    let mut after = |name| words.by_ref().skip_while(|word| *word != name).nth(1);
    let descriptor = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let data = u64::from_str_radix(after("data:")?, 16).ok()?;
    let watched = words.find_map(|word| u64::from_str_radix(word.strip_prefix("ino:")?, 16).ok())?;
    (watched == inode).then_some(Watch { epoll, descriptor, events, data })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::net::sockopt::set_socket_linger;

    use super::*;

    #[test]
    fn the_close_of_a_socket_waits_for_no_peer() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _reads_nothing = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65_536]).is_ok() {}
        set_socket_linger(&socket, Some(Duration::from_secs(60))).unwrap();
        let begun = Instant::now();
        drop(SharedSocket::new(socket.into()));
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }

    #[test]
    fn only_the_start_of_many_registrations_is_read() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![b'x'; 3 << 20]).unwrap();
        assert_eq!(start_of(file.path().to_str().unwrap()).len(), 1 << 20);
        assert_eq!(start_of("/proc/self/none"), "");
    }

    #[test]
    fn a_registration_is_read_from_the_kernels_text() {
        let line = "tfd:        7 events: 80000019 data:     7f0000000b  pos:0 ino:61ef sdev:8";
        let expected = Watch { epoll: 4, descriptor: 7, events: 0x8000_0019, data: 0x7f_0000_000b };
        assert_eq!(watch(4, line, 0x61ef), Some(expected));
        assert_eq!(watch(4, line, 0x61ee), None);
        assert_eq!(watch(4, "flags:\t02000002", 0), None);
    }
}
