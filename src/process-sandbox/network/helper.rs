//! A thread of the first process in a sandbox, which does for the gateway what only a process there can do.
//!
//! A socket belongs to the namespace of the process that made it, and a registration with `epoll` to the number of a
//! descriptor. The gateway cannot make either: it has no right to enter the namespace, and other files under these numbers.

use std::cell::Cell;
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

/// The length of a request to watch a socket, after its number. One for a socket is a byte: its family.
const WATCH: usize = 16;

/// Answers the requests of the gateway, until the gateway closes its end. For a thread of the first process in the sandbox,
/// which has no filter. The thread has descriptors of its own, and of the others closes its copies.
/// Errors: when the kernel refuses.
pub fn serve_sockets(inside: Inside) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "the thread leaves the descriptors of its process")]
    // SAFETY: this thread uses only the descriptor that it is given.
    unsafe {
        unshare_unsafe(UnshareFlags::FILES)?;
    }
    let Inside(mut channel) = inside;
    close_others(channel.as_raw_fd())?;
    loop {
        let mut message = [0; 1 + WATCH];
        let (length, descriptors) = match receive(channel.as_fd(), &mut message) {
            Err(Errno::INTR) => continue,
            Ok((0, _)) => return Ok(()),
            received => received?,
        };
        let [number, request @ ..] = message;
        let answer = match (length - 1, <[OwnedFd; 2]>::try_from(descriptors)) {
            (1, _) => socket_with(family(request[0]), SocketType::STREAM, SocketFlags::CLOEXEC, None).map(Some),
            (WATCH, Ok([epoll, socket])) => watch(&mut channel, &request, &epoll, &socket).map(|()| None),
            _ => Err(Errno::INVAL),
        };
        let socket = answer.as_ref().ok().and_then(Option::as_ref).map(AsFd::as_fd);
        send(channel.as_fd(), &[number, answer.is_err().into()], socket.as_slice())?;
    }
}

/// Other copies would keep the program's pipes open.
fn close_others(own: RawFd) -> Result<(), Errno> {
    let own = own.unsigned_abs();
    let last = |first: u32, last: u32| {
        #[expect(unsafe_code, reason = "there is no safe way to close descriptors by number")]
        // SAFETY: in this thread's table nothing owns them.
        let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
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

/// The helper, as the gateway asks it.
#[derive(Debug)]
pub(super) struct Helper {
    channel: OwnedFd,
    /// The number of the last request. An answer has its request's: one that came too late is not taken for the next one's.
    last: Cell<u8>,
}

impl Helper {
    pub(super) const fn new(channel: OwnedFd) -> Self {
        Self { channel, last: Cell::new(0) }
    }

    /// Asks for a socket of the program's namespace.
    /// Errors: `NOBUFS` when there is none: it has no such family, or the sandbox ended.
    pub(super) fn socket(&self, family: AddressFamily) -> Result<OwnedFd, Errno> {
        let family = u8::try_from(family.as_raw()).map_err(|_| Errno::AFNOSUPPORT)?;
        self.ask(&[family], &[])?.ok_or(Errno::NOBUFS)
    }

    /// Asks that a socket is registered with `epoll` as the one was in whose place it is.
    /// Errors: `NOBUFS` when it was not.
    pub(super) fn watch(&self, epoll: BorrowedFd<'_>, socket: BorrowedFd<'_>, watch: &Watch) -> Result<(), Errno> {
        let request =
            [&watch.descriptor.to_ne_bytes()[..], &watch.events.to_ne_bytes(), &watch.data.to_ne_bytes()].concat();
        self.ask(&request, &[epoll, socket]).map(drop)
    }

    fn ask(&self, request: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<Option<OwnedFd>, Errno> {
        let number = self.last.get().wrapping_add(1);
        self.last.set(number);
        send(self.channel.as_fd(), &[&[number], request].concat(), descriptors).map_err(|_| Errno::NOBUFS)?;
        loop {
            let mut answer = [0, 1];
            match receive(self.channel.as_fd(), &mut answer) {
                Ok((2, _)) if answer[0] != number => {}
                Ok((2, mut received)) if answer[1] == 0 => return Ok(received.pop()),
                _ => return Err(Errno::NOBUFS),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::net::{socketpair, sockopt};

    use super::*;

    #[test]
    fn an_answer_that_came_too_late_is_not_taken_for_the_next_one() {
        let (gateway, sandbox) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let helper = Helper::new(gateway);
        sockopt::set_socket_timeout(&helper.channel, sockopt::Timeout::Recv, Some(std::time::Duration::from_millis(1)))
            .unwrap();
        assert_eq!(helper.socket(AddressFamily::INET6).unwrap_err(), Errno::NOBUFS, "no answer in time");
        sockopt::set_socket_timeout(&helper.channel, sockopt::Timeout::Recv, None).unwrap();
        let answers = std::thread::spawn(move || {
            for _ in 0..2 {
                let mut request = [0; 2];
                assert_eq!(receive(sandbox.as_fd(), &mut request).unwrap().0, 2);
                let socket = socket_with(family(request[1]), SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
                send(sandbox.as_fd(), &[request[0], 0], &[socket.as_fd()]).unwrap();
            }
        });
        let socket = helper.socket(AddressFamily::UNIX).unwrap();
        assert!(UnixStream::from(socket).local_addr().is_ok(), "the late one is of another family");
        answers.join().unwrap();
    }
}
