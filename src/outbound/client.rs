//! The connections: reqwest's pools of them, opened only to addresses the resolver lets through. Of reqwest's layers
//! only its proxies are used, not redirects, retries, cookies and decoding: redirects are checked and followed in
//! [`redirect`](super::redirect), the pipeline retries, and bodies are decoded here.
//!
//! Figure: `scripts/bench-mcp`, three alternating runs, time added to a call of an MCP server: over REST 0.185 ms with
//! hyper-util's client and 0.192 ms with reqwest, with a session 0.171 and 0.184 ms, without 0.169 and 0.189 ms.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Frame, SizeHint};
use hyper_util::client::legacy::connect::HttpInfo;
use reqwest::redirect;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use tower::{Service, ServiceExt};
use tower_http::decompression::{Decompression, DecompressionBody};
use url::Url;

use super::client_certificate::ClientCertificate;
use super::coding::{self, UnknownCoding};
use super::failure::{Failure, chain, host_of};
use super::own::{OwnListeners, RefuseOwnListeners};
use super::resolver::{GuardedResolver, Names};
use super::{OutboundError, OutboundRequest};
use crate::pem;
use sekisho_core::call::{SentFlag, TraceParent};
use sekisho_observe::telemetry::{TRACE_PARENT, TRACE_STATE};

/// A connection nobody uses is kept for this long, which is less than servers do: Node and uvicorn, on which most MCP
/// servers run, end one after 5 s. Where that meets a request, nobody knows whether the tool ran.
const KEPT_IDLE: Duration = Duration::from_secs(4);

/// An encrypted connection is dearer, and mostly led to a load balancer; load balancers wait for 60 s and more.
const KEPT_IDLE_ENCRYPTED: Duration = Duration::from_secs(50);

/// A peer that is silent for this long is asked whether it is still there, and again after as long. An event stream is
/// silent for hours.
const PROBED_EVERY: Duration = Duration::from_secs(15);

/// So many such questions without an answer end a connection.
const PROBES: u32 = 3;

/// Sent data must arrive within this time.
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
    plain: reqwest::Client,
    encrypted: reqwest::Client,
    is_proxied: bool,
}

/// A request's body, which notices when the request is written: a connection asks whether there is a body when it
/// takes the request to write its head, and neither it nor reqwest nor the pool asks before. Nor can reqwest clone it,
/// so that it has nothing to send a second time.
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
    bytes: Box<DecompressionBody<reqwest::Body>>,
    url: Url,
}

/// The encryption of connections: the certificates of this machine and of `ca_files` decide who is trusted.
/// Errors: a file without certificates, or a library that was built without a part that TLS needs.
pub(super) fn tls(ca_files: &[PathBuf]) -> Result<ClientConfig, OutboundError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = || ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let mut further = Vec::new();
    for file in ca_files {
        further.extend(pem::authorities(file)?);
    }
    let trusting = match Verifier::new_with_extra_roots(further, Arc::clone(&provider)) {
        Ok(verifier) => builder()?.dangerous().with_custom_certificate_verifier(Arc::new(verifier)),
        // A machine without CA certificates still has tools that need none: HTTPS then fails, closed.
        Err(error) => {
            let cause = chain(&error);
            tracing::warn!(cause, "no CA certificates: HTTPS requests will fail; install the package ca-certificates");
            builder()?.with_root_certificates(RootCertStore::empty())
        }
    };
    Ok(trusting.with_no_client_auth())
}

/// The same with a client certificate, and without sessions: each connection shows it.
/// Errors: files that cannot be read, or a key that does not belong to the certificate.
pub(super) fn tls_with_certificate(
    tls: &ClientConfig,
    certificate: &Path,
    key: &Path,
) -> Result<ClientConfig, OutboundError> {
    let provider = Arc::clone(tls.crypto_provider());
    let certificate = ClientCertificate::new(certificate.to_owned(), key.to_owned(), provider)?;
    let mut tls = tls.clone();
    tls.client_auth_cert_resolver = Arc::new(certificate);
    // A session that goes on would be of the certificate that it began with.
    tls.resumption = Resumption::disabled();
    Ok(tls)
}

impl Client {
    /// `connect_timeout` is for the look-up, the connection and its encryption together. No connection is kept to the
    /// listeners of `own`. With a proxy every connection is one to it, and `resolver` only looks up its name.
    pub(super) fn new(
        connect_timeout: Duration,
        resolver: GuardedResolver,
        own: Option<&OwnListeners>,
        mut tls: ClientConfig,
        proxy: Option<&reqwest::Proxy>,
    ) -> Self {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let resolver = Arc::new(resolver);
        let pool = |kept_idle: Duration| {
            let builder = without_layers(tls.clone()).dns_resolver(Arc::clone(&resolver));
            let builder = builder.connect_timeout(connect_timeout).tcp_nodelay(true).pool_idle_timeout(kept_idle);
            let builder = builder.tcp_keepalive(PROBED_EVERY).tcp_keepalive_interval(PROBED_EVERY);
            let builder = builder.tcp_keepalive_retries(PROBES).tcp_user_timeout(RECEIVED_TIMEOUT);
            let builder = proxy.into_iter().cloned().fold(builder, reqwest::ClientBuilder::proxy);
            built(match own {
                Some(own) => builder.connector_layer(RefuseOwnListeners(own.clone())),
                None => builder,
            })
        };
        let (plain, encrypted) = (pool(KEPT_IDLE), pool(KEPT_IDLE_ENCRYPTED));
        Self(Arc::new(Pools { plain, encrypted, is_proxied: proxy.is_some() }))
    }

    /// The connections to a proxy. They look up nothing but its name.
    pub(super) fn of_proxy(
        connect_timeout: Duration,
        names: &Arc<Names>,
        tls: ClientConfig,
        proxy: &reqwest::Proxy,
    ) -> Self {
        let resolver = GuardedResolver { names: Arc::clone(names), guard: None };
        Self::new(connect_timeout, resolver, None, tls, Some(proxy))
    }

    /// Every request goes to the Unix socket, whatever its address.
    pub(super) fn of_socket(path: PathBuf, tls: ClientConfig) -> Self {
        let pool = built(without_layers(tls).unix_socket(path).pool_idle_timeout(KEPT_IDLE));
        Self(Arc::new(Pools { plain: pool.clone(), encrypted: pool, is_proxied: false }))
    }

    /// Sends the request with these headers in place of its own, and gives the answer as soon as its head is there.
    /// Dropping the future closes the connection.
    /// Errors: of the connection, a request that cannot be written as HTTP, and an answer in a content coding that was
    /// not asked for.
    pub(super) async fn send(&self, request: &OutboundRequest<'_>, headers: HeaderMap) -> Result<Response, Failure> {
        let url = &request.url;
        let pool = if url.scheme() == "https" { &self.0.encrypted } else { &self.0.plain };
        let pool = pool
            .map_request(|wire| addressed(wire, url))
            .map_response(|answer| coding::normalize(http::Response::<reqwest::Body>::from(answer)));
        let answer = Decompression::new(pool).call(wire_request(request, headers)).await;
        let (head, bytes) = answer.map_err(|error| Failure::of_connection(error, url, self.0.is_proxied))?.into_parts();
        // Nothing is coded where nothing comes.
        let has_body = request.method != Method::HEAD
            && !matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            && bytes.size_hint().exact() != Some(0);
        if let Some(UnknownCoding(coding)) = head.extensions.get().filter(|_| has_body) {
            let (host, status, coding) = (host_of(url), head.status.as_u16(), coding.clone());
            return Err(Failure::UnknownCoding { host, status, coding });
        }
        Ok(Response {
            status: head.status,
            headers: head.headers,
            remote_addr: head.extensions.get::<HttpInfo>().map(HttpInfo::remote_addr),
            body: Body { bytes: Box::new(bytes), url: url.clone() },
        })
    }
}

/// A client of which only the connections are used.
fn without_layers(tls: ClientConfig) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().no_proxy().redirect(redirect::Policy::none()).referer(false);
    let builder = builder.retry(reqwest::retry::never()).no_gzip().no_brotli().no_zstd().no_deflate();
    builder.tls_backend_preconfigured(tls)
}

#[expect(clippy::expect_used, reason = "fails only for TLS settings of another crate's or version's type")]
fn built(builder: reqwest::ClientBuilder) -> reqwest::Client {
    builder.build().expect("the TLS settings are those of the rustls that reqwest uses")
}

impl Body {
    /// The number of bytes still to come, where the answer said so.
    pub(super) fn announced(&self) -> Option<u64> {
        self.bytes.size_hint().exact()
    }

    /// The next bytes; `None` at the end.
    /// Errors: the connection breaks off, or what came cannot be decoded.
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

/// The request, but for its address.
fn wire_request(request: &OutboundRequest<'_>, mut headers: HeaderMap) -> http::Request<RequestBody> {
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
    let mut wire =
        http::Request::new(RequestBody { bytes, sent: request.on_behalf.as_ref().map(|call| call.sent.clone()) });
    *wire.method_mut() = request.method.clone();
    *wire.headers_mut() = headers;
    wire
}

fn addressed(wire: http::Request<RequestBody>, url: &Url) -> reqwest::Request {
    let (head, body) = wire.into_parts();
    let mut request = reqwest::Request::new(head.method, url.clone());
    *request.headers_mut() = head.headers;
    *request.body_mut() = Some(reqwest::Body::wrap(body));
    request
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
