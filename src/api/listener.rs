//! Accepts connections, and lets running calls finish on shutdown.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::body::BodyMemory;
use super::connections::Connections;
use super::request_guard::RequestGuard;
use crate::agent::AgentService;
use crate::config::ServerConfig;
use crate::core::caller::Owner;
use crate::gateway::Gateway;

/// Maximum connections of the metrics listener.
const MAX_METRICS_CONNECTIONS: u64 = 64;

/// Bound listeners: from here on new connections queue instead of being refused.
#[derive(Debug)]
pub struct BoundListeners {
    calls: TcpListener,
    metrics: Option<TcpListener>,
}

/// An address that cannot be listened on.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {source}; check that no other process uses the port")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

impl BoundListeners {
    pub async fn bind(config: &ServerConfig) -> Result<Self, BindError> {
        let calls = bind(config.listen).await?;
        let metrics = match config.metrics_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        Ok(Self { calls, metrics })
    }

    /// The address of the main listener, with the actual port if the configuration has port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.calls.local_addr()
    }

    /// The addresses of all listeners.
    fn addresses(&self) -> Vec<SocketAddr> {
        let metrics = self.metrics.as_ref().map(TcpListener::local_addr);
        std::iter::once(self.calls.local_addr()).chain(metrics).flatten().collect()
    }
}

/// Serves a gateway and its agents until `shutdown` resolves, then lets running calls finish within the grace period.
pub async fn serve(listening: BoundListeners, agents: &Arc<AgentService>, shutdown: impl Future<Output = ()>) {
    let gateway = agents.gateway();
    let config = gateway.config();
    gateway.outbound().set_own_listeners(listening.addresses());
    gateway.look_for_interpreter();
    let read_timeout = Duration::from_secs(config.server.read_timeout_seconds);
    let calls = Connections::new(config.server.max_connections as u64, read_timeout);
    let scrapes = Connections::new(MAX_METRICS_CONNECTIONS, read_timeout);
    let mut shutdown = pin!(shutdown);
    let memory = Arc::new(BodyMemory::new(&config.server));
    let routes = RequestGuard::new(super::router(agents), config.server.is_loopback(), Arc::clone(&memory));
    let metrics = async {
        match &listening.metrics {
            Some(listener) => {
                let guard = RequestGuard::new(metrics_router(gateway), false, memory);
                accept(listener, &scrapes, &guard).await;
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = accept(&listening.calls, &calls, &routes) => {}
        () = metrics => {}
        () = &mut shutdown => {}
    }
    gateway.draining().cancel();
    drop(listening);
    let grace = Duration::from_secs(config.server.shutdown_grace_seconds);
    let until = Instant::now() + grace;
    tokio::join!(calls.finish(until), scrapes.finish(until));
    // Removes the tasks of closed connections.
    gateway.pipeline.replies.finish(until).await;
}

/// Accepts connections for ever. One that there is no place for is closed: it never waits unseen.
async fn accept(listener: &TcpListener, connections: &Connections, guard: &RequestGuard) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                rest_after(&error).await;
                continue;
            }
        };
        // Replies are written whole: Nagle's algorithm would only delay them.
        match stream.set_nodelay(true) {
            Ok(()) => connections.serve(stream, &Owner::of_address(peer.ip()), guard),
            Err(error) => tracing::debug!(%error, "a connection closed before it was served"),
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| BindError { address, source })
}

/// A separate metrics listener needs no key: every client that can reach it may read the metrics.
fn metrics_router(gateway: &Arc<Gateway>) -> Router {
    let gateway = Arc::clone(gateway);
    Router::new().route("/metrics", get(async move || super::rest::health::exposition(&gateway)))
}

/// A connection that closes before it is accepted needs no action; other errors (out of file descriptors) need a
/// pause.
async fn rest_after(error: &io::Error) {
    if matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    ) {
        return;
    }
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(100)).await;
}
