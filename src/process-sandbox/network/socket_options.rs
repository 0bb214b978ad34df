//! Options of a socket, which a socket in its place takes over.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET};
use rustix::io::Errno;

/// Options that a program may set before it connects or listens.
const OPTIONS: [(i32, &[i32]); 4] = [
    (
        SOL_SOCKET,
        &[
            libc::SO_REUSEADDR,
            libc::SO_REUSEPORT,
            libc::SO_KEEPALIVE,
            libc::SO_LINGER,
            libc::SO_RCVTIMEO,
            libc::SO_SNDTIMEO,
            libc::SO_OOBINLINE,
            libc::SO_PRIORITY,
            libc::SO_RCVLOWAT,
        ],
    ),
    (IPPROTO_IP, &[libc::IP_TOS, libc::IP_TTL, libc::IP_MTU_DISCOVER, libc::IP_RECVERR, libc::IP_BIND_ADDRESS_NO_PORT]),
    (IPPROTO_IPV6, &[libc::IPV6_V6ONLY, libc::IPV6_UNICAST_HOPS, libc::IPV6_TCLASS, libc::IPV6_RECVERR]),
    (
        IPPROTO_TCP,
        &[
            libc::TCP_NODELAY,
            libc::TCP_CORK,
            libc::TCP_KEEPIDLE,
            libc::TCP_KEEPINTVL,
            libc::TCP_KEEPCNT,
            libc::TCP_USER_TIMEOUT,
            libc::TCP_SYNCNT,
            libc::TCP_LINGER2,
            libc::TCP_DEFER_ACCEPT,
            libc::TCP_NOTSENT_LOWAT,
            libc::TCP_CONGESTION,
        ],
    ),
];

/// Sizes that the kernel doubles when they are set.
const DOUBLED: [i32; 2] = [libc::SO_RCVBUF, libc::SO_SNDBUF];

/// Sets those options of `to` that differ between the two sockets. One that the kernel refuses stays as it is.
pub(super) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) {
    for (level, options) in OPTIONS {
        for &option in options {
            if let Some(value) = differing(from, to, level, option) {
                _ = set(to, level, option, &value);
            }
        }
    }
    for option in DOUBLED {
        let halved = |value: Vec<u8>| Some(i32::from_ne_bytes(value.try_into().ok()?) / 2);
        if let Some(value) = differing(from, to, SOL_SOCKET, option).and_then(halved) {
            _ = set(to, SOL_SOCKET, option, &value.to_ne_bytes());
        }
    }
}

fn differing(from: BorrowedFd<'_>, to: BorrowedFd<'_>, level: i32, option: i32) -> Option<Vec<u8>> {
    let value = get(from, level, option).ok()?;
    (get(to, level, option).ok()? != value).then_some(value)
}

/// Maximum time for which a close of the socket waits for its peer, in seconds.
const MAX_LINGER: i32 = 1;

/// Shortens the time for which a close of the socket waits.
pub(super) fn shorten_linger(socket: BorrowedFd<'_>) {
    let Ok(value) = get(socket, SOL_SOCKET, libc::SO_LINGER) else { return };
    let Ok([a, b, c, d, seconds @ ..]) = <[u8; 8]>::try_from(value) else { return };
    let is_on = i32::from_ne_bytes([a, b, c, d]) != 0;
    if is_on && i32::from_ne_bytes(seconds) > MAX_LINGER {
        _ = set(socket, SOL_SOCKET, libc::SO_LINGER, &[1_i32.to_ne_bytes(), MAX_LINGER.to_ne_bytes()].concat());
    }
}

/// The number of the socket's network namespace, by which it is compared with others.
/// Errors: before Linux 5.14.
pub(super) fn namespace(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    /// Not in `libc`.
    const SO_NETNS_COOKIE: i32 = 71;
    let mut number = [0; 8];
    read(socket, SOL_SOCKET, SO_NETNS_COOKIE, &mut number)?;
    Ok(u64::from_ne_bytes(number))
}

fn get(socket: BorrowedFd<'_>, level: i32, option: i32) -> Result<Vec<u8>, Errno> {
    let mut value = [0; 64];
    let length = read(socket, level, option, &mut value)?;
    value.get(..length).map(<[u8]>::to_vec).ok_or(Errno::INVAL)
}

/// Reads an option, and gives its length.
fn read(socket: BorrowedFd<'_>, level: i32, option: i32, value: &mut [u8]) -> Result<usize, Errno> {
    let mut length = value.len().try_into().map_err(|_| Errno::INVAL)?;
    #[expect(unsafe_code, reason = "there is no safe wrapper for any option")]
    // SAFETY: the kernel writes at most `length` bytes of `value`.
    let answer =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut length) };
    if answer != 0 {
        return Err(last_error());
    }
    usize::try_from(length).map_err(|_| Errno::INVAL)
}

fn set(socket: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> Result<(), Errno> {
    let length = value.len().try_into().map_err(|_| Errno::INVAL)?;
    #[expect(unsafe_code, reason = "there is no safe wrapper for any option")]
    // SAFETY: the kernel reads `length` bytes of `value`.
    let answer = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length) };
    if answer == 0 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
