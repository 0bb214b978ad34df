//! What each waiting call does: `socket`, `bind`, `listen` and `connect`; a datagram for another machine is only recorded.
//!
//! All of it is done here, on a duplicate of the program's descriptor and with a copy of its address, so that exactly the
//! checked call is done. The program itself executes only calls on sockets of other families, and only where Landlock forbids
//! TCP to it: the descriptor of the call could refer to another socket by then.
//!
//! A TCP socket is made in the gateway's network namespace, and stays the same socket when it connects to another machine:
//! descriptors that were duplicated and registrations with `epoll` that were made before go on. For the program's own
//! loopback, a socket of its namespace takes its place when it is bound, listens or connects there.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_acceptconn, socket_domain, socket_timeout, socket_type};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, connect_unspec, getpeername, listen, socket_with,
};

use super::address::{self, Address, MAX_ADDRESS, is_own};
use super::helper::Helper;
use super::notification::{Answer, Call, Listener};
use super::target::SharedSocket;
use super::{Connections, Files, files, socket_options, target};

/// The program's calls, and what answers them.
pub(super) struct Calls {
    pub(super) listener: Listener,
    /// Where sockets of the program's namespace are asked for.
    pub(super) helper: Helper,
    pub(super) tcp_forbidden: bool,
    /// The gateway's network namespace.
    pub(super) outside: u64,
    pub(super) connections: Arc<dyn Connections>,
    /// Of a program that is observed.
    pub(super) files: Option<Arc<dyn Files>>,
}

/// What became of a call.
pub(super) enum Handled {
    /// It has its answer.
    Answered,
    Answer(Answer),
    /// It waits for its connection.
    Waits(Connecting),
}

/// A call of `connect` on a socket that waits.
pub(super) struct Connecting {
    pub(super) id: u64,
    pub(super) socket: SharedSocket,
    address: SocketAddr,
    /// The program's limit for the wait (`SO_SNDTIMEO`).
    pub(super) until: Option<Instant>,
}

impl Connecting {
    /// The result, once there is one. The second call of `connect` gives it, and leaves the socket as a call that waited.
    pub(super) fn result(&self) -> Option<Answer> {
        match connect_without_waiting(&self.socket, self.address) {
            Ok(()) | Err(Errno::ISCONN) => Some(Answer::Done),
            Err(Errno::INPROGRESS | Errno::ALREADY) => None,
            Err(error) => Some(Answer::Failed(error)),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp,
    /// Of the program's namespace: no other is made.
    Datagram,
    /// UNIX, netlink.
    Other,
}

impl Calls {
    pub(super) fn handle(&self, call: &Call) -> Handled {
        let handled = match call.number {
            libc::SYS_socket => self.socket(call),
            libc::SYS_bind => self.bind(call),
            libc::SYS_listen => self.listen(call),
            libc::SYS_connect => self.connect(call),
            libc::SYS_ioctl => self.ioctl(call),
            libc::SYS_sendto => self.send_to(call),
            _ if files::is_one(call) => Ok(self.use_file(call)),
            _ => Err(Errno::NOSYS),
        };
        handled.unwrap_or_else(|error| Handled::Answer(Answer::Failed(error)))
    }

    /// A TCP socket: the filter lets no other call of `socket` come here.
    fn socket(&self, call: &Call) -> Result<Handled, Errno> {
        let [family, kind, protocol] = [0, 1, 2].map(|index| call.int(index));
        if ![0, libc::IPPROTO_TCP].contains(&protocol) {
            // Also for MPTCP, whose users take TCP then.
            return Err(Errno::PROTONOSUPPORT);
        }
        let family = if family == libc::AF_INET6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let socket = socket_outside(family)?;
        if kind & libc::SOCK_NONBLOCK != 0 {
            fcntl_setfl(&socket, fcntl_getfl(&socket)? | OFlags::NONBLOCK)?;
        }
        match self.listener.answer_with(call.id, socket.as_fd(), kind & libc::SOCK_CLOEXEC != 0) {
            Ok(()) => Ok(Handled::Answered),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::NOBUFS)),
        }
    }

    fn bind(&self, call: &Call) -> Result<Handled, Errno> {
        let (socket, kind) = self.socket_of(call)?;
        if kind == Kind::Other {
            return self.natively();
        }
        let Address::Internet(address) = self.address_of(call, 1)? else { return Err(Errno::AFNOSUPPORT) };
        let socket = if kind == Kind::Tcp { self.inside(call, socket, Errno::INVAL)? } else { socket };
        bind(&socket, &address)?;
        Ok(Handled::Answer(Answer::Done))
    }

    fn listen(&self, call: &Call) -> Result<Handled, Errno> {
        let (socket, kind) = self.socket_of(call)?;
        let socket = if kind == Kind::Tcp { self.inside(call, socket, Errno::INVAL)? } else { socket };
        listen(&socket, call.int(1))?;
        Ok(Handled::Answer(Answer::Done))
    }

    fn connect(&self, call: &Call) -> Result<Handled, Errno> {
        let (socket, kind) = self.socket_of(call)?;
        if kind == Kind::Other {
            return self.natively();
        }
        let Address::Internet(address) = self.address_of(call, 1)? else {
            connect_unspec(&socket)?;
            return Ok(Handled::Answer(Answer::Done));
        };
        if kind == Kind::Datagram {
            self.record_datagram(address);
            connect(&socket, &address)?;
            return Ok(Handled::Answer(Answer::Done));
        }
        let is_of_machine = address.ip().to_canonical().is_loopback() && self.connections.is_of_machine(address);
        if is_own(address) && !is_of_machine {
            return begin(call, self.inside(call, socket, Errno::ISCONN)?, address);
        }
        if !is_of_machine {
            self.connections.may_connect(address).map_err(|_| Errno::ACCESS)?;
        }
        let connecting = begin(call, self.outside(call, socket)?, address);
        if matches!(connecting, Ok(_) | Err(Errno::INPROGRESS)) {
            self.connections.opened(address);
        }
        connecting
    }

    /// The program executes the call: a datagram does not leave its namespace, and other sockets have their address already.
    fn send_to(&self, call: &Call) -> Result<Handled, Errno> {
        let (_, kind) = self.socket_of(call)?;
        if kind == Kind::Datagram
            && let Ok(Address::Internet(address)) = self.address_of(call, 4)
        {
            self.record_datagram(address);
        }
        Ok(Handled::Answer(Answer::Continue))
    }

    /// The program executes the call: its sandbox decides about it.
    fn use_file(&self, call: &Call) -> Handled {
        if let (Some(files), Ok((path, writes))) = (&self.files, files::used(call))
            && self.still_waits(call).is_ok()
        {
            files.used(&path, writes);
        }
        Handled::Answer(Answer::Continue)
    }

    fn record_datagram(&self, address: SocketAddr) {
        if !is_own(address) {
            self.connections.datagram_refused(address);
        }
    }

    /// A request about interfaces, of which the program sees its own. It executes the call: another socket in this place
    /// would tell it addresses of the machine, and change nothing.
    fn ioctl(&self, call: &Call) -> Result<Handled, Errno> {
        let (socket, kind) = self.socket_of(call)?;
        if kind == Kind::Tcp && socket_options::namespace(socket.as_fd())? == self.outside {
            return Err(Errno::NODEV);
        }
        Ok(Handled::Answer(Answer::Continue))
    }

    /// Has the program execute the call.
    fn natively(&self) -> Result<Handled, Errno> {
        if self.tcp_forbidden { Ok(Handled::Answer(Answer::Continue)) } else { Err(Errno::ACCESS) }
    }

    /// A duplicate of the call's first argument.
    fn socket_of(&self, call: &Call) -> Result<(SharedSocket, Kind), Errno> {
        let socket = SharedSocket::new(target::duplicate(call, call.int(0))?);
        self.still_waits(call)?;
        let kind = match socket_domain(&socket)? {
            AddressFamily::INET | AddressFamily::INET6 if socket_type(&socket)? == SocketType::STREAM => Kind::Tcp,
            AddressFamily::INET | AddressFamily::INET6 => Kind::Datagram,
            _ => Kind::Other,
        };
        Ok((socket, kind))
    }

    /// A copy of the address in the call's argument with this index; its length is the next one.
    fn address_of(&self, call: &Call, index: usize) -> Result<Address, Errno> {
        let length = usize::try_from(call.int(index + 1)).ok();
        let length = length.filter(|length| *length <= MAX_ADDRESS).ok_or(Errno::INVAL)?;
        let bytes = target::memory(call, call.args[index], length)?;
        self.still_waits(call)?;
        address::parse(&bytes)
    }

    /// The thread's number may be another thread's once it has ended.
    fn still_waits(&self, call: &Call) -> Result<(), Errno> {
        if self.listener.waits(call.id) { Ok(()) } else { Err(Errno::SRCH) }
    }

    /// The socket, or one of the program's namespace in its place. A socket with a connection stays.
    fn inside(&self, call: &Call, socket: SharedSocket, connected: Errno) -> Result<SharedSocket, Errno> {
        if socket_options::namespace(socket.as_fd())? != self.outside {
            return Ok(socket);
        }
        if getpeername(&socket).is_ok() {
            return Err(connected);
        }
        let inside = self.helper.socket(socket_domain(&socket)?)?;
        // A program that got hold of the helper's channel could give one of the gateway's namespace.
        if socket_options::namespace(inside.as_fd())? == self.outside {
            return Err(Errno::NOBUFS);
        }
        self.replace(call, &socket, inside)
    }

    /// The socket, or one of the gateway's namespace in its place. It is of the program's when it was bound before, or
    /// connected to loopback.
    fn outside(&self, call: &Call, socket: SharedSocket) -> Result<SharedSocket, Errno> {
        if socket_options::namespace(socket.as_fd())? == self.outside {
            return Ok(socket);
        }
        if getpeername(&socket).is_ok() || socket_acceptconn(&socket)? {
            return Err(Errno::ISCONN);
        }
        self.replace(call, &socket, socket_outside(socket_domain(&socket)?)?)
    }

    /// Puts a socket in the place of another, with its options, at all its descriptors and in every `epoll` of the
    /// program's process.
    fn replace(&self, call: &Call, old: &SharedSocket, new: OwnedFd) -> Result<SharedSocket, Errno> {
        let new = SharedSocket::new(new);
        socket_options::copy(old.as_fd(), new.as_fd());
        fcntl_setfl(&new, fcntl_getfl(old)?)?;
        let uses = target::uses_of(call, fstat(old)?.st_ino);
        for descriptor in uses.descriptors {
            let closes = target::closes_on_exec(call, descriptor)?;
            self.listener.replace(call.id, new.as_fd(), descriptor, closes).map_err(|_| Errno::SRCH)?;
        }
        for watch in uses.watches {
            let epoll = target::duplicate(call, watch.epoll)?;
            self.still_waits(call)?;
            self.helper.watch(epoll.as_fd(), new.as_fd(), &watch)?;
        }
        Ok(new)
    }
}

fn socket_outside(family: AddressFamily) -> Result<OwnedFd, Errno> {
    match socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
        Err(Errno::MFILE | Errno::NFILE) => Err(Errno::NOBUFS),
        socket => socket,
    }
}

fn begin(call: &Call, socket: SharedSocket, address: SocketAddr) -> Result<Handled, Errno> {
    let waits = !fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK);
    match connect_without_waiting(&socket, address) {
        Err(Errno::INPROGRESS | Errno::ALREADY) if waits => {
            let limit = socket_timeout(&socket, Timeout::Send).ok().flatten();
            let until = limit.and_then(|limit: Duration| Instant::now().checked_add(limit));
            Ok(Handled::Waits(Connecting { id: call.id, socket, address, until }))
        }
        connected => connected.map(|()| Handled::Answer(Answer::Done)),
    }
}

/// The flag belongs to the socket, which the program shares; it has it for the time of one call.
fn connect_without_waiting(socket: &SharedSocket, address: SocketAddr) -> Result<(), Errno> {
    let flags = fcntl_getfl(socket)?;
    if flags.contains(OFlags::NONBLOCK) {
        return connect(socket, &address);
    }
    fcntl_setfl(socket, flags | OFlags::NONBLOCK)?;
    let connected = connect(socket, &address);
    fcntl_setfl(socket, flags)?;
    connected
}
