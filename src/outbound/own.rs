//! The gateway's own listeners, which no caller may reach through the gateway: a request from this machine is trusted
//! more than one from elsewhere.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Extensions;
use hyper_util::client::legacy::connect::{Connection, HttpInfo};
use thiserror::Error;
use tower::{BoxError, Layer, Service};

/// The gateway's listeners; empty until they are bound. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnListeners(Arc<OnceLock<Vec<SocketAddr>>>);

/// A connection to the gateway itself.
#[derive(Debug, Error)]
#[error("{0} is an address of this gateway")]
pub(super) struct OwnAddressError(pub(super) SocketAddr);

impl OwnListeners {
    /// Once for a process, which listens once.
    pub(super) fn set(&self, listeners: Vec<SocketAddr>) {
        _ = self.0.set(listeners);
    }

    /// Whether a connection to `peer` would end at one of the listeners; assumed, where that cannot be told.
    pub(super) fn are_at(&self, peer: SocketAddr) -> bool {
        let have_port = self.0.get().is_some_and(|listeners| listeners.iter().any(|own| own.port() == peer.port()));
        if !have_port {
            return false;
        }
        match local_address(peer) {
            Ok(local) => self.contain(local, peer),
            Err(error) => may_have_route(&error),
        }
    }

    /// Whether a connection from `local` to `peer` ended at one of the listeners.
    fn contain(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        let to = peer.ip().to_canonical();
        let takes = |address: IpAddr| address.is_unspecified() || address == to;
        let listener = |own: &SocketAddr| own.port() == peer.port() && takes(own.ip().to_canonical());
        stays_here(local, peer) && self.0.get().is_some_and(|listeners| listeners.iter().any(listener))
    }
}

/// Whether a connection to `peer` would end at this machine; assumed, where that cannot be told.
pub(super) fn is_of_this_machine(peer: SocketAddr) -> bool {
    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
    match local_address(peer) {
        Ok(local) => stays_here(local, peer),
        Err(error) => may_have_route(&error),
    }
}

/// A connection to an address of the same machine comes from that address, or from loopback to loopback.
fn stays_here(local: SocketAddr, peer: SocketAddr) -> bool {
    let (local, to) = (local.ip().to_canonical(), peer.ip().to_canonical());
    to == local || to.is_loopback()
}

/// Without a route there is no connection.
fn may_have_route(error: &io::Error) -> bool {
    !matches!(error.kind(), ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable)
}

/// The address from which this machine would connect to `peer`. Sends nothing.
/// Errors: when there is no route.
pub(super) fn local_address(peer: SocketAddr) -> io::Result<SocketAddr> {
    let any = if peer.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(peer)?;
    socket.local_addr()
}

/// Closes a new connection to the gateway itself before a request is written to it.
#[derive(Debug, Clone)]
pub(super) struct RefuseOwnListeners(pub(super) OwnListeners);

impl<S> Layer<S> for RefuseOwnListeners {
    type Service = Connector<S>;

    fn layer(&self, inner: S) -> Connector<S> {
        Connector { inner, own: self.0.clone() }
    }
}

/// Opens connections, but none to the gateway itself.
#[derive(Debug, Clone)]
pub(super) struct Connector<S> {
    inner: S,
    own: OwnListeners,
}

impl<S, Target> Service<Target> for Connector<S>
where
    S: Service<Target, Error = BoxError>,
    S::Response: Connection,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, target: Target) -> Self::Future {
        let own = self.own.clone();
        let connecting = self.inner.call(target);
        Box::pin(async move {
            let connection = connecting.await?;
            let mut known = Extensions::new();
            connection.connected().get_extras(&mut known);
            let addresses = known.get::<HttpInfo>().ok_or("a connection without addresses")?;
            let peer = addresses.remote_addr();
            if own.contain(addresses.local_addr(), peer) {
                return Err(OwnAddressError(peer).into());
            }
            Ok(connection)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_known() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        for own in ["127.0.0.1:80", "127.9.9.9:80", "[::ffff:127.0.0.1]:80"] {
            assert!(is_of_this_machine(address(own)), "{own}");
        }
        assert!(!is_of_this_machine(address("8.8.8.8:80")));
        // One that has a route has an address, by which the machine reaches itself.
        if let Ok(own) = local_address(address("8.8.8.8:80")) {
            assert!(is_of_this_machine(SocketAddr::new(own.ip(), 80)), "{own}");
        }
    }

    #[test]
    fn a_listener_is_known_by_every_address_it_takes() {
        for (listener, local, peer, expected) in [
            ("127.0.0.1:8080", "127.0.0.1:5000", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "127.0.0.1:5000", "127.0.0.1:8081", false),
            ("127.0.0.1:8080", "127.0.0.1:5000", "127.0.0.2:8080", false),
            ("0.0.0.0:8080", "127.0.0.1:5000", "127.0.0.2:8080", true),
            ("0.0.0.0:8080", "198.51.100.7:5000", "198.51.100.7:8080", true),
            ("0.0.0.0:8080", "198.51.100.7:5000", "198.51.100.8:8080", false),
            ("[::]:8080", "[::1]:5000", "[::1]:8080", true),
            ("[::]:8080", "[::ffff:127.0.0.1]:5000", "[::ffff:127.0.0.1]:8080", true),
            ("127.0.0.1:8080", "[::ffff:127.0.0.1]:5000", "[::ffff:127.0.0.1]:8080", true),
            ("[::1]:8080", "127.0.0.1:5000", "127.0.0.1:8080", false),
        ] {
            let own = OwnListeners::default();
            own.set(vec![listener.parse().unwrap()]);
            let contained = own.contain(local.parse().unwrap(), peer.parse().unwrap());
            assert_eq!(contained, expected, "{listener}: {local} to {peer}");
        }
    }
}
