//! Connections of a sandboxed program: the gateway makes them, where its policy allows them.
//!
//! The program has an empty network namespace: its own loopback, and no way out. A seccomp filter (`filter`) has the
//! gateway answer `socket`, `bind`, `listen` and `connect`, for any program, also one that knows of no proxy (`calls`).
//! Connected sockets are the program's: nothing is between it and the kernel. Look-ups of names go to a socket in the
//! namespace that the gateway reads (`resolver`). UDP reaches nothing else.

mod address;
mod calls;
mod dns;
mod files;
mod filter;
mod helper;
mod namespace;
mod notification;
mod resolver;
mod socket_options;
mod supervisor;
mod target;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;

use async_trait::async_trait;
use thiserror::Error;

pub use self::filter::{Installed, install_listener, install_none};
pub use self::helper::serve_sockets;
pub use self::namespace::{Inside, Outside, RESOLVER, loopback_up, prepare};
pub use self::supervisor::Supervisor;

/// The policy for the connections of one program, and who hears of them.
#[async_trait]
pub trait Connections: Debug + Send + Sync + 'static {
    /// Looks a name up, if the program may reach this host.
    async fn resolve(&self, host: &str) -> Resolved;

    /// Whether the program may connect to the address. Called on the program's own thread; must not wait.
    /// Errors: when it may not; the program gets "permission denied".
    fn may_connect(&self, address: SocketAddr) -> Result<(), Refused>;

    /// Whether a service of the machine is at this port of loopback, which the operator named for this program, and not the
    /// program's own. Called as `may_connect`, which is not asked then.
    fn is_of_machine(&self, _loopback: SocketAddr) -> bool {
        false
    }

    /// A connection to the address was begun.
    fn opened(&self, address: SocketAddr);

    /// A datagram for the address was to be sent, or a socket of datagrams connected to it. It has no route.
    fn datagram_refused(&self, _address: SocketAddr) {}
}

/// Who hears of the files that an observed program uses.
pub trait Files: Debug + Send + Sync + 'static {
    /// The program makes a call with this absolute path, with which the file may change. Whether it exists in the sandbox is not
    /// known yet. Called on the program's own thread; must not wait.
    fn used(&self, path: &Path, writes: bool);
}

/// The answer to a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    Addresses(Vec<IpAddr>),
    /// No host has this name, or the program may not reach it: it does not ask again.
    NoSuchName,
    /// It may ask again.
    Failed,
}

/// A connection that the policy does not allow.
#[derive(Debug, Clone, Copy, Error)]
#[error("the connection is not allowed")]
pub struct Refused;

/// The gateway's part of a program, from [`Installed`] and [`Outside`].
#[derive(Debug)]
pub struct Handover {
    pub listener: OwnedFd,
    pub resolver: OwnedFd,
    pub sockets: OwnedFd,
    pub tcp_forbidden: bool,
}
