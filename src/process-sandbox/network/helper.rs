//! A thread of the first process in a sandbox, which does for the gateway what only a process there can do.
//!
//! A socket belongs to the namespace of the process that made it, and a registration with `epoll` to the number of a
//! descriptor. The gateway cannot make either: it has no right to enter the namespace, and other files under these numbers.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::cmsg_space;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::{DupFlags, Errno, dup3, fcntl_dupfd_cloexec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::namespace::Inside;
use super::target::Watch;

/// The length of a request to watch a socket. One for a socket is a byte: its family.
const WATCH: usize = 16;

/// Answers the requests of the gateway, until the gateway closes its end. For a thread of the first process in the sandbox,
/// which has no filter. The thread has descriptors of its own, and of the others closes its copies.
///
/// # Errors
/// When the kernel refuses.
pub fn serve_sockets(inside: Inside) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "the thread leaves the descriptors of its process")]
    // SAFETY: this thread uses only the descriptor that it is given.
    unsafe {
        unshare_unsafe(UnshareFlags::FILES)?;
    }
    let Inside(mut channel) = inside;
    close_others(channel.as_raw_fd())?;
    loop {
        let mut request = [0; WATCH];
        let (length, descriptors) = match receive(channel.as_fd(), &mut request) {
            Err(Errno::INTR) => continue,
            Ok((0, _)) => return Ok(()),
            received => received?,
        };
        let answer = match (length, <[OwnedFd; 2]>::try_from(descriptors)) {
            (1, _) => socket_with(family(request[0]), SocketType::STREAM, SocketFlags::CLOEXEC, None).map(Some),
            (WATCH, Ok([epoll, socket])) => watch(&mut channel, &request, &epoll, &socket).map(|()| None),
            _ => Err(Errno::INVAL),
        };
        let socket = answer.as_ref().ok().and_then(Option::as_ref).map(AsFd::as_fd);
        send(channel.as_fd(), &[answer.is_err().into()], socket.as_slice())?;
    }
}

/// Other copies would keep the program's pipes open.
fn close_others(own: RawFd) -> Result<(), Errno> {
    let own = own.unsigned_abs();
    let last = |first: u32, last: u32| {
        #[expect(unsafe_code, reason = "there is no safe way to close descriptors by number")]
        // SAFETY: in this thread's table nothing owns them.
        let answer = unsafe { libc::close_range(first, last, 0) };
        if answer == 0 { Ok(()) } else { Err(Errno::NOSYS) }
    };
    if let Some(before) = own.checked_sub(1) {
        last(0, before)?;
    }
    last(own + 1, libc::c_uint::MAX)
}

fn family(number: u8) -> AddressFamily {
    AddressFamily::from_raw(number.into())
}

/// Registers the socket under the number that the program registered.
fn watch(channel: &mut OwnedFd, request: &[u8; WATCH], epoll: &OwnedFd, socket: &OwnedFd) -> Result<(), Errno> {
    let (number, events, data) = fields(request);
    if number < 0 || [epoll, socket].iter().any(|descriptor| descriptor.as_raw_fd() == number) {
        // Their copies have other numbers, since the lower one is taken while this one is open.
        let [epoll, socket] = [epoll, socket].map(|descriptor| fcntl_dupfd_cloexec(descriptor, number + 1));
        return watch(channel, request, &epoll?, &socket?);
    }
    if channel.as_raw_fd() == number {
        *channel = fcntl_dupfd_cloexec(&*channel, number + 1)?;
    }
    #[expect(unsafe_code, reason = "a descriptor with a chosen number")]
    // SAFETY: nothing of this thread has this number, and it is given up below.
    let mut at = unsafe { OwnedFd::from_raw_fd(number) };
    let copied = dup3(socket, &mut at, DupFlags::CLOEXEC);
    if copied.is_err() {
        // It was never opened.
        _ = at.into_raw_fd();
        return copied;
    }
    match epoll::add(epoll, &at, EventData::new_u64(data), EventFlags::from_bits_retain(events)) {
        // By another descriptor of the same `epoll`.
        Err(Errno::EXIST) => Ok(()),
        added => added,
    }
}

fn fields(request: &[u8; WATCH]) -> (RawFd, u32, u64) {
    let [a, b, c, d, e, f, g, h, data @ ..] = *request;
    (i32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]), u64::from_ne_bytes(data))
}

fn send(channel: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(channel, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

fn receive(channel: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let length = recvmsg(channel, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let descriptors = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    Ok((length, descriptors.collect()))
}

/// Asks for a socket of the program's namespace.
///
/// # Errors
/// `NOBUFS` when there is none: it has no such family, or the sandbox ended.
pub(super) fn socket_inside(sockets: BorrowedFd<'_>, family: AddressFamily) -> Result<OwnedFd, Errno> {
    let number = u8::try_from(family.as_raw()).map_err(|_| Errno::AFNOSUPPORT)?;
    ask(sockets, &[number], &[])?.ok_or(Errno::NOBUFS)
}

/// Asks that a socket is registered with `epoll` as the one was in whose place it is.
///
/// # Errors
/// `NOBUFS` when it was not.
pub(super) fn watch_inside(
    sockets: BorrowedFd<'_>,
    epoll: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
    watch: &Watch,
) -> Result<(), Errno> {
    let request =
        [&watch.descriptor.to_ne_bytes()[..], &watch.events.to_ne_bytes(), &watch.data.to_ne_bytes()].concat();
    ask(sockets, &request, &[epoll, socket]).map(drop)
}

fn ask(sockets: BorrowedFd<'_>, request: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<Option<OwnedFd>, Errno> {
    let mut failed = [1];
    let asked = send(sockets, request, descriptors).and_then(|()| receive(sockets, &mut failed));
    match asked {
        Ok((1, mut received)) if failed == [0] => Ok(received.pop()),
        _ => Err(Errno::NOBUFS),
    }
}
