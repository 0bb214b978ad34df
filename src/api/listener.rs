//! Accepts connections, and lets running calls finish on shutdown.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::poll_inline::PollInline;
use super::preface_timeout::PrefaceTimeout;
use super::request_guard::RequestGuard;
use crate::agent::AgentService;
use crate::config::ServerConfig;
use crate::gateway::Gateway;

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
    let connections = Connections::new(&config.server);
    let mut shutdown = pin!(shutdown);
    let calls =
        connections.accept(&listening.calls, RequestGuard::new(super::router(agents), config.server.is_loopback()));
    let metrics = async {
        match &listening.metrics {
            Some(listener) => connections.accept(listener, RequestGuard::new(metrics_router(gateway), false)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = calls => {}
        () = metrics => {}
        () = &mut shutdown => {}
    }
    gateway.draining().cancel();
    drop(listening);
    let grace = Duration::from_secs(config.server.shutdown_grace_seconds);
    let until = Instant::now() + grace;
    connections.finish(grace).await;
    // Removes the tasks of closed connections.
    gateway.pipeline.replies.finish(until).await;
}

async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| BindError { address, source })
}

/// A separate metrics listener needs no key: every client that can reach it may read the metrics.
fn metrics_router(gateway: &Arc<Gateway>) -> Router {
    let gateway = Arc::clone(gateway);
    Router::new().route("/metrics", get(async move || super::rest::health::exposition(&gateway)))
}

struct Connections {
    http: auto::Builder<TokioExecutor>,
    read_timeout: Duration,
    slots: Arc<Semaphore>,
    open: GracefulShutdown,
    tasks: TaskTracker,
    cut_off: CancellationToken,
}

impl Connections {
    fn new(config: &ServerConfig) -> Self {
        let mut http = auto::Builder::new(TokioExecutor::new());
        let read_timeout = Duration::from_secs(config.read_timeout_seconds);
        http.http1().timer(TokioTimer::new()).header_read_timeout(read_timeout);
        http.http2().timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(30));
        Self {
            http,
            read_timeout,
            slots: Arc::new(Semaphore::new(config.max_connections)),
            open: GracefulShutdown::new(),
            tasks: TaskTracker::new(),
            cut_off: CancellationToken::new(),
        }
    }

    async fn accept(&self, listener: &TcpListener, edge: RequestGuard) {
        loop {
            // Never closed, so a permit is always granted in the end.
            let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => self.serve(stream, edge.clone(), slot),
                Err(error) => rest_after(&error).await,
            }
        }
    }

    fn serve(&self, stream: TcpStream, edge: RequestGuard, slot: OwnedSemaphorePermit) {
        // Replies are written whole: Nagle's algorithm would only delay them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection closed before it was served");
            return;
        }
        let stream = TokioIo::new(PrefaceTimeout::new(stream, self.read_timeout));
        let service = service_fn(move |request| edge.clone().answer(request));
        let connection = self.http.serve_connection(stream, service).into_owned();
        let connection = self.cut_off.clone().run_until_cancelled_owned(self.open.watch(connection));
        self.tasks.spawn(PollInline::new(async move {
            if let Some(Err(error)) = connection.await {
                tracing::debug!(%error, "a connection ended with an error");
            }
            drop(slot);
        }));
    }

    async fn finish(self, grace: Duration) {
        if tokio::time::timeout(grace, self.open.shutdown()).await.is_err() {
            tracing::warn!(
                connections = self.tasks.len(),
                grace_seconds = grace.as_secs(),
                "calls were cancelled at the end of the grace period"
            );
            self.cut_off.cancel();
        }
        // Cancelled calls are settled before the audit trail is closed.
        self.tasks.close();
        self.tasks.wait().await;
    }
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
