//! The gateway's own listeners, which no caller may reach through the gateway: a request from this machine is trusted
//! more than one from elsewhere.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use super::resolver::GuardedResolver;

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

    /// Whether a connection from `local` to `peer` ended at one of the listeners.
    fn contain(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        let (local, to) = (local.ip().to_canonical(), peer.ip().to_canonical());
        // A connection to an address of the same machine comes from that address, or from loopback to loopback.
        let stays_here = to == local || to.is_loopback();
        let takes = |address: IpAddr| address.is_unspecified() || address == to;
        let listener = |own: &SocketAddr| own.port() == peer.port() && takes(own.ip().to_canonical());
        stays_here && self.0.get().is_some_and(|listeners| listeners.iter().any(listener))
    }
}

/// Opens TCP connections, but none to the gateway itself where `own` is given.
#[derive(Debug, Clone)]
pub(super) struct TcpConnector {
    pub(super) http: HttpConnector<GuardedResolver>,
    pub(super) own: Option<OwnListeners>,
}

impl Service<Uri> for TcpConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let own = self.own.clone();
        let connecting = self.http.call(address);
        Box::pin(async move {
            let stream = connecting.await?;
            if let Some(own) = own {
                let (local, peer) = (stream.inner().local_addr()?, stream.inner().peer_addr()?);
                if own.contain(local, peer) {
                    return Err(OwnAddressError(peer).into());
                }
            }
            Ok(stream)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
