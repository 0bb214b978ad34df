//! The connections: hyper's pool of them, opened only to addresses the resolver lets through. Above it there is nothing
//! but the decoding of bodies, since every call of a tool somewhere else passes here.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{HttpConnector, HttpInfo};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceExt};
use tower_http::decompression::{Decompression, DecompressionBody};
use url::Url;

use super::OutboundRequest;
use super::failure::{Failure, chain};
use super::own::{OwnListeners, TcpConnector};
use super::resolver::GuardedResolver;
use crate::core::call::{SentFlag, TraceParent};
use crate::infra::telemetry::{TRACE_PARENT, TRACE_STATE};

/// A connection nobody uses is kept for this long, which is less than servers do: Node and uvicorn, on which most MCP
/// servers run, end one after 5 s. Where that meets a request, nobody knows whether the tool ran.
const KEPT_IDLE: Duration = Duration::from_secs(4);

/// An encrypted one is dearer, and mostly led to a load balancer; those wait for 60 s and more.
const KEPT_IDLE_ENCRYPTED: Duration = Duration::from_secs(50);

/// A peer that is silent for this long is asked whether it is still there, and again after as long. An event stream is
/// silent for hours.
const PROBED_EVERY: Duration = Duration::from_secs(15);

/// So many such questions without an answer end a connection.
const PROBES: u32 = 3;

/// What was sent must arrive within this.
const RECEIVED_TIMEOUT: Duration = Duration::from_secs(30);

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("sekisho/", env!("CARGO_PKG_VERSION")));

/// Headers that are the client's to write, or say something about the connection, not about the request.
const OURS: [HeaderName; 6] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::ACCEPT_ENCODING,
];

/// Pools of connections. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Client(Arc<Pools>);

#[derive(Debug)]
struct Pools {
    plain: Pool,
    encrypted: Pool,
}

type Pool = legacy::Client<Connector, RequestBody>;

/// A request's body, which notices when the request is written: a connection asks whether there is a body when it
/// takes the request to write its head, and neither it nor the pool asks before.
#[derive(Debug)]
struct RequestBody {
    bytes: Full<Bytes>,
    sent: Option<SentFlag>,
}

impl RequestBody {
    fn mark_sent(&self) {
        if let Some(sent) = &self.sent {
            sent.set();
        }
    }
}

impl hyper::body::Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.mark_sent();
        Pin::new(&mut self.bytes).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.mark_sent();
        self.bytes.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes.size_hint()
    }
}

/// An answer whose body is still to come.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The address really connected to.
    pub(super) remote_addr: Option<SocketAddr>,
    pub(super) body: Body,
}

/// The bytes of an answer, decompressed.
pub(super) struct Body {
    /// Apart, since it has room for the state of a decompressor, and the futures of all calls would have it too.
    bytes: Box<DecompressionBody<Incoming>>,
    url: Url,
}

/// What a connection is encrypted with: the certificates of this machine decide who is trusted.
///
/// # Errors
/// The library was built without what TLS needs.
pub(super) fn tls() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = || ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let trusting = builder()?.with_platform_verifier().or_else(|error| {
        // A machine without CA certificates still has tools that need none: HTTPS then fails, closed.
        let cause = chain(&error);
        tracing::warn!(cause, "no CA certificates: HTTPS requests will fail; install the package ca-certificates");
        builder().map(|builder| builder.with_root_certificates(RootCertStore::empty()))
    })?;
    Ok(trusting.with_no_client_auth())
}

impl Client {
    /// `connect_timeout` is that of the look-up, the connection and its encryption together. No connection is made
    /// to the listeners of `own`.
    pub(super) fn new(
        connect_timeout: Duration,
        resolver: GuardedResolver,
        own: Option<OwnListeners>,
        tls: ClientConfig,
    ) -> Self {
        let mut http = HttpConnector::new_with_resolver(resolver);
        http.enforce_http(false);
        http.set_nodelay(true);
        // One address of several that does not answer leaves time for the others.
        http.set_connect_timeout(Some(connect_timeout));
        http.set_keepalive(Some(PROBED_EVERY));
        http.set_keepalive_interval(Some(PROBED_EVERY));
        http.set_keepalive_retries(Some(PROBES));
        http.set_tcp_user_timeout(Some(RECEIVED_TIMEOUT));
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions();
        let https = https.wrap_connector(TcpConnector { http, own });
        let connector = Connector(Arc::new(Connecting { https, timeout: connect_timeout }));
        let pool = |kept_idle: Duration| {
            let mut pool = legacy::Client::builder(TokioExecutor::new());
            pool.pool_timer(TokioTimer::new()).pool_idle_timeout(kept_idle).build(connector.clone())
        };
        Self(Arc::new(Pools { plain: pool(KEPT_IDLE), encrypted: pool(KEPT_IDLE_ENCRYPTED) }))
    }

    /// Sends the request with these headers in place of its own, and gives the answer as soon as its head is there.
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// Of the connection, and a request that cannot be written as HTTP.
    pub(super) async fn send(&self, request: &OutboundRequest<'_>, headers: HeaderMap) -> Result<Response, Failure> {
        let url = &request.url;
        let wire = wire_request(request, headers).map_err(|error| Failure::unwritable(&error, url))?;
        let pool = if url.scheme() == "https" { &self.0.encrypted } else { &self.0.plain };
        let mut pool = Decompression::new(pool);
        let (head, bytes) = pool.call(wire).await.map_err(|error| Failure::of_connection(&error, url))?.into_parts();
        Ok(Response {
            status: head.status,
            headers: head.headers,
            remote_addr: head.extensions.get::<HttpInfo>().map(HttpInfo::remote_addr),
            body: Body { bytes: Box::new(bytes), url: url.clone() },
        })
    }
}

impl Body {
    /// The number of bytes still to come, where the answer said so.
    pub(super) fn announced(&self) -> Option<u64> {
        self.bytes.size_hint().exact()
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// The connection breaks off, or what came cannot be decoded.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        while let Some(frame) = self.bytes.frame().await {
            match frame.map(Frame::into_data) {
                Ok(Ok(chunk)) => return Ok(Some(chunk)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Err(Failure::of_body(&*error, &self.url)),
            }
        }
        Ok(None)
    }
}

fn wire_request(
    request: &OutboundRequest<'_>,
    mut headers: HeaderMap,
) -> Result<http::Request<RequestBody>, http::Error> {
    for name in OURS {
        headers.remove(name);
    }
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
    if headers.contains_key(header::RANGE) {
        // A part of something compressed cannot be decompressed.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    if let Some(trace) = &request.trace {
        write_trace(&mut headers, trace);
    }
    let bytes = Full::new(request.body.clone().unwrap_or_default());
    let body = RequestBody { bytes, sent: request.sent.clone() };
    let mut wire = http::Request::new(body);
    *wire.method_mut() = request.method.clone();
    *wire.uri_mut() = Uri::try_from(request.url.as_str())?;
    *wire.headers_mut() = headers;
    Ok(wire)
}

/// <https://www.w3.org/TR/trace-context/>
fn write_trace(headers: &mut HeaderMap, trace: &TraceParent) {
    if let Ok(parent) = HeaderValue::try_from(trace.header()) {
        headers.insert(TRACE_PARENT, parent);
    }
    if let Some(state) = trace.state.as_deref().and_then(|state| HeaderValue::from_str(state).ok()) {
        headers.insert(TRACE_STATE, state);
    }
}

/// Opens connections. The pool clones it for every request, whether it opens one or not.
#[derive(Debug, Clone)]
struct Connector(Arc<Connecting>);

#[derive(Debug)]
struct Connecting {
    https: HttpsConnector<TcpConnector>,
    timeout: Duration,
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let Self(connecting) = self.clone();
        Box::pin(async move {
            let connection = connecting.https.clone().oneshot(address);
            let in_time = tokio::time::timeout(connecting.timeout, connection).await;
            in_time.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        })
    }
}
