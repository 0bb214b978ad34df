//! The program's network namespace: its addresses, and the socket for look-ups.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, socketpair};

use super::address::{OWN_V4, OWN_V6};

/// What stays with the first process of the sandbox.
#[derive(Debug)]
pub struct Inside(pub(super) OwnedFd);

/// The gateway's part of the namespace.
#[derive(Debug)]
pub struct Outside {
    /// Takes the program's look-ups of names, at port 53 of [`RESOLVER`].
    pub resolver: OwnedFd,
    /// Where sockets of the namespace are asked for.
    pub sockets: OwnedFd,
}

/// The address of the program's resolver, for its `/etc/resolv.conf`.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Prepares a new network namespace, in a process that has its administrative capabilities.
/// Errors: when the kernel refuses.
pub fn prepare() -> io::Result<(Inside, Outside)> {
    loopback_up()?;
    let resolver = UdpSocket::bind((RESOLVER, 53))?.into();
    let (inside, sockets) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((Inside(inside), Outside { resolver, sockets }))
}

const INTERFACE_FLAGS: Opcode = 0x8914;
const INTERFACE_ADDRESS: Opcode = 0x8916;
const INTERFACE_NETMASK: Opcode = 0x891c;

/// `struct ifreq` with flags.
#[repr(C)]
struct Flags {
    name: [u8; 16],
    flags: i16,
    rest: [u8; 22],
}

/// `struct ifreq` with an address.
#[repr(C)]
struct AddressV4 {
    name: [u8; 16],
    address: libc::sockaddr_in,
    rest: [u8; 8],
}

/// `struct in6_ifreq`.
#[repr(C)]
struct AddressV6 {
    address: [u8; 16],
    prefix: u32,
    interface: i32,
}

/// Starts the loopback of this process's network namespace, and gives it an address of each family beside
/// 127.0.0.1 and ::1.
///
/// Errors: when the kernel refuses.
pub fn loopback_up() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let flags = Flags { name: name(b"lo"), flags: 0x41, rest: [0; 22] };
    set::<INTERFACE_FLAGS, _>(socket.as_fd(), flags)?;
    add_address(b"lo:1", OWN_V4)?;
    let Ok(socket) = socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None) else {
        // The kernel has no IPv6.
        return Ok(());
    };
    let address = AddressV6 { address: OWN_V6.octets(), prefix: 128, interface: 1 };
    match set::<INTERFACE_ADDRESS, _>(socket.as_fd(), address) {
        // IPv6 is switched off.
        Err(Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
        set => Ok(set?),
    }
}

/// Gives an interface a further address, by a label such as `lo:1`.
pub(super) fn add_address(label: &[u8], address: Ipv4Addr) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    set::<INTERFACE_ADDRESS, _>(socket.as_fd(), v4(label, address))?;
    // The class of the address would make it a network.
    set::<INTERFACE_NETMASK, _>(socket.as_fd(), v4(label, Ipv4Addr::BROADCAST))?;
    Ok(())
}

fn v4(label: &[u8], address: Ipv4Addr) -> AddressV4 {
    let address = libc::sockaddr_in {
        // The constant is 2.
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(2),
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    AddressV4 { name: name(label), address, rest: [0; 8] }
}

fn name(text: &[u8]) -> [u8; 16] {
    let mut name = [0; 16];
    name.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    name
}

fn set<const OPERATION: Opcode, T>(socket: BorrowedFd<'_>, value: T) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "there is no safe wrapper for these calls")]
    // SAFETY: each operation above has the type that the kernel reads.
    let answer = unsafe { ioctl(socket, Setter::<OPERATION, T>::new(value)) };
    answer
}
