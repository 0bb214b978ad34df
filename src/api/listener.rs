//! Accepts connections, and lets running calls finish on shutdown.

use std::future::{Future, ready};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::body::BodyMemory;
use super::client_address::PublicAddress;
use super::connections::Connections;
use super::local::{self, LocalListener};
use super::request_guard::RequestGuard;
use super::tls::{Tls, TlsError};
use sekisho_config::Config;
use sekisho_gateway::Gateway;
use sekisho_outbound::local_socket::LocalSocket;
use sekisho_store::replica::HEARTBEAT;

/// Maximum connections of the metrics listener.
const MAX_METRICS_CONNECTIONS: usize = 64;

/// How long other replicas may go on to forward requests to a replica that takes no more: until their next heartbeat,
/// which a busy database may delay. Connections that they do not use are closed by then, so that no request is on its
/// way.
const STILL_FORWARDED: Duration = HEARTBEAT.saturating_add(Duration::from_secs(2));

/// Bound listeners: from here on new connections queue instead of being refused.
#[derive(Debug)]
pub struct BoundListeners {
    /// `None` for a gateway on demand, which serves only its socket.
    calls: Option<TcpListener>,
    metrics: Option<TcpListener>,
    /// The listener for requests that other replicas forward to this one.
    replicas: Option<TcpListener>,
    /// The TLS of `calls`.
    tls: Option<Arc<Tls>>,
    local: Option<LocalListener>,
}

/// Why the server cannot listen.
#[derive(Debug, Error)]
pub enum BindError {
    #[error("cannot listen on {address}: {source}; {}", remedy(source))]
    Address { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

fn remedy(problem: &io::Error) -> &'static str {
    match problem.kind() {
        io::ErrorKind::AddrInUse => "end the other process that uses the port, or choose another one",
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have the address; choose one of its own (`ip address` lists them), 127.0.0.1 or 0.0.0.0"
        }
        io::ErrorKind::PermissionDenied => "choose a port from 1024, or give the process CAP_NET_BIND_SERVICE",
        _ => "choose another address",
    }
}

impl BoundListeners {
    /// Errors: an address that cannot be listened on, or TLS that cannot be used.
    pub async fn bind(config: &Config) -> Result<Self, BindError> {
        let server = &config.server;
        let tls = server.tls.as_ref().map(Tls::load).transpose()?;
        let calls = Some(bind(server.listen).await?);
        let metrics = bind_configured(server.metrics_listen).await?;
        let replicas = bind_configured(config.cluster.forwarding().map(|(address, _)| address)).await?;
        Ok(Self { calls, metrics, replicas, tls, local: None })
    }

    /// Listens only on the Unix socket.
    pub fn of_socket(local: LocalListener) -> Self {
        Self { calls: None, metrics: None, replicas: None, tls: None, local: Some(local) }
    }

    /// Listens on the Unix socket too.
    #[must_use]
    pub fn with_socket(self, local: LocalListener) -> Self {
        Self { local: Some(local), ..self }
    }

    /// The address of the main listener, with the actual port if the configuration has port 0.
    pub fn address(&self) -> Option<SocketAddr> {
        self.calls.as_ref().and_then(|calls| calls.local_addr().ok())
    }

    /// The addresses of all listeners.
    fn addresses(&self) -> Vec<SocketAddr> {
        let listeners = [&self.calls, &self.metrics, &self.replicas].into_iter().flatten();
        listeners.filter_map(|listener| listener.local_addr().ok()).collect()
    }
}

/// Serves a gateway by these routes until `shutdown` resolves, then lets running calls finish within the grace period.
/// Meanwhile it answers requests that other replicas still forward.
pub async fn serve(
    mut listening: BoundListeners,
    gateway: &Arc<Gateway>,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let config = gateway.configuration().current();
    gateway.outbound().set_own_listeners(listening.addresses());
    let replicas = listening.replicas.take();
    gateway.look_for_interpreter();
    let read_timeout = Duration::from_secs(config.server.read_timeout_seconds);
    let connections = |max: usize| Connections::new(max as u64, read_timeout, gateway.leaving().clone());
    let (calls, scrapes) = (connections(config.server.max_connections), connections(MAX_METRICS_CONNECTIONS));
    let [commands, of_replicas] = [(); 2].map(|()| connections(config.server.max_connections));
    let memory = Arc::new(BodyMemory::new(&config.server));
    let stop = CancellationToken::new();
    let local = async {
        match &listening.local {
            Some(local) => {
                let routes = router.clone().merge(local::routes(gateway, local, &stop));
                let guard = RequestGuard::of_socket(routes, Arc::clone(&memory));
                tokio::select! {
                    () = accept_local(&local.socket, &commands, &guard) => {}
                    () = local::abandoned(local, &commands) => {}
                }
            }
            None => std::future::pending().await,
        }
    };
    let mut forwarded = pin!(accept_forwarded(replicas.as_ref(), gateway, &of_replicas, &router, &memory));
    let listen = listening.address().unwrap_or(config.server.listen);
    let address = PublicAddress::new(&config.server, listen);
    let guard = RequestGuard::new(router.clone(), address, Arc::clone(&memory));
    let metrics_guard = RequestGuard::new(metrics_router(gateway), PublicAddress::any(), Arc::clone(&memory));
    if let Some(tls) = &listening.tls {
        gateway.background().spawn_until_closing(Arc::clone(tls).reload_on_change(Arc::clone(&gateway.readiness)));
    }
    if let Some(replicas) = &replicas {
        // Before a session begins here that a client may use at another replica.
        gateway.cluster().announce_address(replicas.local_addr().ok()).await;
    }
    let stopping = async {
        tokio::select! { () = stop.cancelled() => {} () = shutdown => {} }
        if replicas.is_some() {
            // From now on the sessions of this replica are unknown at the others, where their clients begin anew.
            gateway.cluster().announce_address(None).await;
        }
    };
    tokio::select! {
        () = accept(listening.calls.as_ref(), listening.tls.as_ref(), &calls, &guard) => {}
        () = accept(listening.metrics.as_ref(), None, &scrapes, &metrics_guard) => {}
        () = &mut forwarded => {}
        () = local => {}
        () = stopping => {}
    }
    gateway.draining().cancel();
    drop(listening);
    let grace = Duration::from_secs(config.server.shutdown_grace_seconds);
    let until = Instant::now() + grace;
    let of_replicas = async {
        if replicas.is_some() && gateway.cluster().replica().is_some_and(|replica| replica.live() > 1) {
            let _none_come = timeout_at(until.min(Instant::now() + STILL_FORWARDED), forwarded).await;
        }
        of_replicas.finish(until).await;
    };
    tokio::join!(calls.finish(until), scrapes.finish(until), commands.finish(until), of_replicas);
    // Removes the tasks of closed connections.
    gateway.pipeline.replies.finish(until).await;
}

/// Accepts connections for ever. A connection without a place is closed: it never waits unseen.
async fn accept(
    listener: Option<&TcpListener>,
    tls: Option<&Arc<Tls>>,
    connections: &Connections,
    guard: &RequestGuard,
) {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                rest_after(&error).await;
                continue;
            }
        };
        // Replies are written whole: Nagle's algorithm would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection closed before it was served");
            continue;
        }
        match tls {
            None => connections.serve(ready(Ok(stream)), peer, guard),
            Some(tls) => connections.serve(Arc::clone(tls).accept(stream), peer, guard),
        }
    }
}

/// Accepts connections of other replicas for ever.
async fn accept_forwarded(
    listener: Option<&TcpListener>,
    gateway: &Gateway,
    connections: &Connections,
    router: &Router,
    memory: &Arc<BodyMemory>,
) {
    let Some(replica) = gateway.cluster().replica() else { return std::future::pending().await };
    let guard = RequestGuard::of_replicas(router.clone(), Arc::clone(memory), Arc::clone(replica));
    accept(listener, None, connections, &guard).await;
}

/// Accepts connections of this user's commands for ever.
async fn accept_local(socket: &LocalSocket, connections: &Connections, guard: &RequestGuard) {
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    loop {
        match socket.accept().await {
            Ok(stream) => connections.serve(ready(Ok(stream)), peer, guard),
            Err(error) => rest_after(&error).await,
        }
    }
}

async fn bind_configured(address: Option<SocketAddr>) -> Result<Option<TcpListener>, BindError> {
    match address {
        Some(address) => bind(address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| BindError::Address { address, source })
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
