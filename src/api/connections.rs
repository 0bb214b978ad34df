//! The open connections: how many each peer may have, when idle ones end, and their end on shutdown.
//!
//! Connections are divided fairly between peers ([`Share`]). A further connection is served for a short time, and
//! answers only probes and metrics: a peer that takes all connections hides neither the state of the service nor its
//! work.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Version};
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::head_timeout::HeadTimeout;
use super::poll_inline::PollInline;
use super::request_guard::RequestGuard;
use sekisho_core::share::{Lease, Share};
use sekisho_core::spiffe_id::SpiffeId;

/// How long an HTTP/2 connection without a request stays open, at least, and at most twice as long. PING frames keep
/// none open. For HTTP/1.1, the timeout for the head of a request applies. A head that does not come whole ends both.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// Connections that answer only probes.
const MAX_PROBES: u64 = 64;

/// How long such a connection stays open.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The connections of one listener.
pub(super) struct Connections {
    http: auto::Builder<TokioExecutor>,
    read_timeout: Duration,
    slots: Arc<Share>,
    probes: Arc<Share>,
    tasks: TaskTracker,
    /// Clients are to connect to another gateway; requests are still answered.
    leaving: CancellationToken,
    draining: CancellationToken,
    cut_off: CancellationToken,
}

/// An open connection, before its requests.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// The workload that the client's certificate names.
    fn workload(&self) -> Option<SpiffeId> {
        None
    }
}

impl Stream for TcpStream {}
impl Stream for UnixStream {}
#[cfg(test)]
impl Stream for tokio::io::DuplexStream {}

/// The requests that a connection serves.
#[derive(Debug, Default)]
struct Activity {
    running: AtomicUsize,
    /// Requests over HTTP/2 that began, and that ended.
    changes: AtomicUsize,
    is_http1: AtomicBool,
    /// The client is to open another connection.
    is_leaving: AtomicBool,
}

/// How a connection is closed by the gateway.
enum Close {
    /// Once its requests are answered.
    WhenAnswered,
    /// Within [`CLOSE_TIMEOUT`].
    Soon,
}

/// A request that is served until this is dropped.
struct Running(Arc<Activity>);

impl Connections {
    pub(super) fn new(max: u64, read_timeout: Duration, leaving: CancellationToken) -> Self {
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(read_timeout);
        http.http2().timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(30));
        Self {
            http,
            read_timeout,
            slots: Share::new(max),
            probes: Share::new(MAX_PROBES),
            tasks: TaskTracker::new(),
            leaving,
            draining: CancellationToken::new(),
            cut_off: CancellationToken::new(),
        }
    }

    /// Serves a connection of this peer in a task of its own, which first waits until the connection is open: with
    /// TLS, for the handshake. Closes it if there is no slot.
    pub(super) fn serve<S: Stream>(
        &self,
        opening: impl Future<Output = io::Result<S>> + Send + 'static,
        peer: SocketAddr,
        guard: &RequestGuard,
    ) {
        let (owner, guard) = (guard.owner_of_connection(peer), guard.of_connection(peer));
        if let Some(slot) = self.slots.try_acquire(&owner, 1) {
            self.spawn(opening, guard, slot, None);
        } else if let Some(slot) = self.probes.try_acquire(&owner, 1) {
            self.spawn(opening, guard.for_probes(), slot, Some(PROBE_TIMEOUT));
        } else {
            tracing::debug!("a connection was closed: there are too many");
        }
    }

    /// The connections that are open.
    pub(super) fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Waits until this time for the requests that are served to end, then aborts the others.
    pub(super) async fn finish(&self, until: Instant) {
        self.draining.cancel();
        self.tasks.close();
        if timeout_at(until, self.tasks.wait()).await.is_err() {
            let connections = self.tasks.len();
            tracing::warn!(connections, "calls were cancelled at the end of the grace period");
            self.cut_off.cancel();
        }
        // Cancelled calls are settled before the audit trail is closed.
        self.tasks.wait().await;
    }

    fn spawn<S: Stream>(
        &self,
        opening: impl Future<Output = io::Result<S>> + Send + 'static,
        guard: RequestGuard,
        slot: Lease,
        longest: Option<Duration>,
    ) {
        let activity = Arc::new(Activity { is_leaving: self.leaving.is_cancelled().into(), ..Activity::default() });
        let leaving = self.leaving.clone();
        let (http, read_timeout, draining) = (self.http.clone(), self.read_timeout, self.draining.clone());
        let serving = async move {
            let stream = tokio::select! {
                biased;
                opened = timeout(read_timeout, opening) => opened.map_err(io::Error::from)??,
                () = draining.cancelled() => return Ok(()),
            };
            let service = {
                let (activity, guard) = (Arc::clone(&activity), Arc::new(guard.of_workload(stream.workload())));
                service_fn(move |request| answer(Arc::clone(&activity), Arc::clone(&guard), request))
            };
            let stream = TokioIo::new(HeadTimeout::new(stream, read_timeout));
            let mut connection = pin!(http.serve_connection(stream, service));
            let close = async {
                tokio::select! {
                    biased;
                    () = draining.cancelled() => Close::WhenAnswered,
                    () = activity.leaves(&leaving) => Close::WhenAnswered,
                    () = activity.idle() => Close::Soon,
                    () = sleep(longest.unwrap_or(Duration::MAX)), if longest.is_some() => Close::Soon,
                }
            };
            let mut close = only_when_woken(close);
            tokio::select! {
                biased;
                ended = &mut connection => ended,
                Some(how) = close.next() => {
                    connection.as_mut().graceful_shutdown();
                    match how {
                        Close::WhenAnswered => connection.await,
                        Close::Soon => timeout(CLOSE_TIMEOUT, connection).await.unwrap_or(Ok(())),
                    }
                }
            }
        };
        let mut cut_off = only_when_woken(self.cut_off.clone().cancelled_owned());
        self.tasks.spawn(PollInline::new(async move {
            tokio::select! {
                biased;
                ended = serving => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended with an error");
                    }
                }
                Some(()) = cut_off.next() => {}
            }
            drop(slot);
        }));
    }
}

/// A future that is polled when it is woken, not whenever its task is: the signals that end a connection are behind locks that
/// all connections share, and the task of a connection is polled several times for each request.
fn only_when_woken<F: Future>(future: F) -> FuturesUnordered<F> {
    FuturesUnordered::from_iter([future])
}

impl Activity {
    /// Returns when an HTTP/2 connection is to end: its client sends the next requests over another one, and loses no
    /// request. An HTTP/1.1 connection can only say that with an answer.
    async fn leaves(&self, leaving: &CancellationToken) {
        leaving.cancelled().await;
        self.is_leaving.store(true, Ordering::Relaxed);
        if self.changes.load(Ordering::Relaxed) == 0 {
            std::future::pending::<()>().await;
        }
    }

    /// Returns when no request was served for [`IDLE_TIMEOUT`].
    async fn idle(&self) {
        loop {
            let before = self.changes.load(Ordering::Relaxed);
            sleep(IDLE_TIMEOUT).await;
            if self.is_http1.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            if self.running.load(Ordering::Relaxed) == 0 && self.changes.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn answer(
    activity: Arc<Activity>,
    guard: Arc<RequestGuard>,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    if request.version() != Version::HTTP_2 {
        activity.is_http1.store(true, Ordering::Relaxed);
        let mut response = guard.answer(request).await?;
        if activity.is_leaving.load(Ordering::Relaxed) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        return Ok(response);
    }
    activity.changes.fetch_add(1, Ordering::Relaxed);
    activity.running.fetch_add(1, Ordering::Relaxed);
    let running = Running(activity);
    let response = guard.answer(request).await?;
    // Until the whole body is sent.
    let held = move |error| {
        let _running = &running;
        error
    };
    Ok(response.map(|body| Body::new(body.map_err(held))))
}

#[cfg(test)]
mod tests;
